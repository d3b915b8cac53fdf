"""`iosim report --trace`: a file of events in the player."""

import csv
import re

import pytest
from paths import TESTS
from played import BROWSER, browser, data

from iosim.pictures.player import MOST_EVENTS
from iosim.pictures.trace_page import MOST_CELLS, cell, data_of, events_of

HEAD = "event,name,row,rows,column,columns,words,resident_words,launch,program,word_bytes\n"


def moved(run):
    """{(tensor, kind): words} of the events of a page."""
    found = {}
    for event in run["events"]:
        if event[6]:
            found[event[1], event[0]] = found.get((event[1], event[0]), 0) + event[6]
    return found


@pytest.fixture
def schedule_file(iosim, tmp_path):
    file = tmp_path / "flash1.csv"
    iosim("trace", "--N", 64, "--d", 16, "--tiles", "16x16", "--schedule", "flash1", "-o", file)
    return file


def kernel_file(tmp_path, lines):
    file = tmp_path / "kernel.csv"
    file.write_text(HEAD + "".join(line + "\n" for line in lines))
    return file


def test_a_file_of_a_schedule_moves_what_is_counted(iosim, ask, schedule_file):
    (run,) = data(iosim("report", "--trace", schedule_file).stdout)["runs"]
    (row,) = ask("count", "--N", 64, "--d", 16, "--M", "64KB", "--tiles", "16x16", "--schedule", "flash1")["results"]
    counted = {(name, kind): words for name, both in row["tensors"].items()
               for kind, words in (("load", both["reads"]), ("store", both["writes"])) if words}  # fmt: skip
    assert moved(run) == counted and run["peak"] == row["sram_peak_words"] and run["text"] == []
    with open(schedule_file) as file:
        assert len(run["events"]) == len(list(csv.DictReader(file)))


@pytest.mark.needs("triton")
def test_a_file_of_a_kernel_moves_what_is_explained(iosim, ask, tmp_path):
    launch = [TESTS / "helpers" / "triton_kernels.py", "--kernel", "add", "--grid", "cdiv(n, BLOCK)", "--arg", "n=1000",
              *(f"--arg={name}=fp32[n]" for name in "XYZ"), "--const", "BLOCK=128", "--no-resources"]  # fmt: skip
    told = ask("explain", *launch, "--trace", tmp_path / "kernel.csv")
    (run,) = data(iosim("report", "--trace", tmp_path / "kernel.csv").stdout)["runs"]
    words = {(name, kind): row[way] for name, row in told["tensors"].items()
             for kind, way in (("load", "reads"), ("store", "writes")) if row[way]}  # fmt: skip
    assert moved(run) == words and run["peak"] is None
    assert run["text"] == [f"program {k}" for k in range(told["programs"])] and len(words) == 3


def test_the_page_has_the_words_of_each_tensor(iosim, tmp_path):
    file = kernel_file(tmp_path, ["load,X,-1,2,0,8,16,,1,0,4", "atomic,Y,3,1,0,8,8,,1,1,4"])
    page = iosim("report", "--trace", file).stdout
    rows = re.findall(r"<tr><td>(\w)</td><td class=n>(\d+)</td><td class=n>(\d+)</td></tr>", page)
    assert rows == [("X", "16", "0"), ("Y", "8", "8")] and "3 events of 2 programs move 32 words" in page
    (run,) = data(page)["runs"]
    assert [event[0] for event in run["events"]] == ["load", "load", "store"] and run["events"][0][2] == 0
    assert run["tensors"] == {"X": [2, 8, 2, 8], "Y": [4, 8, 1, 8]}


@pytest.mark.parametrize("length, tile", [(1, 1), (64, 1), (65, 1), (100_000, 64), (4097, 64)])
def test_a_tensor_has_few_cells(length, tile):
    side = cell(length, tile)
    assert side % tile == 0 and -(-length // side) <= MOST_CELLS
    assert side == tile or -(-length // (side - tile)) > MOST_CELLS


def test_the_longest_file_that_is_shown(tmp_path):
    line = "load,X,0,1,0,8,8,,1,0,4"
    assert len(events_of(str(kernel_file(tmp_path, [line] * MOST_EVENTS)))) == MOST_EVENTS
    from iosim.errors import InputError

    message = "--trace: found '4001 events'; allowed: at most 4000, as many as can be watched; a smaller grid"
    with pytest.raises(InputError, match=message):
        events_of(str(kernel_file(tmp_path, [line] * (MOST_EVENTS + 1))))


@pytest.mark.parametrize("lines, more, message", [
    (["load,X,0,1,0,8,8,,1,0,4"], ("--N", 64), "--trace: found '--N'; allowed: a file alone"),
    (["load,X,0,1,0,8,8,,1,0,4"], ("--M", "1KB"), "--trace: found '--M'; allowed: a file alone"),
    (["load,X,0,1,0,8,8,,1,0,4"], ("--tile-multiple", 16), "--trace: found '--tile-multiple'; allowed: a file alone"),
    (["load,X,0,one,0,8,8,,1,0,4"], (), "event 1: rows: found 'one'; allowed: a whole number"),
    ([], (), "allowed: a file with loads and stores"),
])  # fmt: skip
@pytest.mark.parametrize("more_still", [(), ("--open",)])
def test_faults(iosim, tmp_path, more_still, lines, more, message):
    done = iosim("report", "--trace", kernel_file(tmp_path, lines), *more, *more_still)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == "", done.stderr


def test_without_a_file_sizes_are_needed(iosim):
    assert "--N, --d, --M: found 'nothing'" in iosim("report").stderr


def test_a_browser_opens_the_page_of_a_file(iosim, schedule_file, tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    page = tmp_path / "page.html"
    assert iosim("report", "--open", "--trace", schedule_file, "-o", page).stdout == f"{page}\n"
    assert data(page.read_text())["runs"][0]["name"] == "flash1.csv"


@BROWSER
@pytest.mark.long
@pytest.mark.parametrize("kind", ["schedule", "kernel"])
def test_a_browser_shows_the_file_to_the_end(iosim, schedule_file, tmp_path, kind):
    lines = ["load,X,0,4,0,8,32,,1,0,4", "store,Y,0,4,0,8,32,,1,0,4", "load,X,4,4,0,8,32,,1,1,4"]
    file = schedule_file if kind == "schedule" else kernel_file(tmp_path, lines)
    page = tmp_path / "page.html"
    iosim("report", "--trace", file, "-o", page)
    total = sum(event.words for event in events_of(str(file)))
    shown = browser(page, "t=end")
    assert re.findall(r'data-moved="(\d+)"', shown) == [str(total)]
    assert ('"sram">The file does not say' in shown) == (kind == "kernel")
    assert ('class="occupancy"' in shown) == (kind == "schedule") and data_of(str(file), events_of(str(file)))["file"]
