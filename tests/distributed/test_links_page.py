"""The page of `iosim links`: tiles move between GPUs, and the words are those that the command counts."""

import re
import shlex
from collections import Counter
from html import unescape

import links_by_hand
import pytest
from played import BROWSER, browser, data
from spread import spread

import iosim
from iosim.distributed.page import data_of, example
from iosim.distributed.schedules import PASSES

QUESTION = "--ranks 8 --N 131072 --d 128 --heads 32 --kv-heads 8"
MASKS = ["dense", "causal"]
DECODING = ("tree", "gathered-q")
ALL = [(kind, name) for kind, known in PASSES.items() for name in known]


def asked(kind, name, mask="causal", **more):
    sizes = {"N": 1, "Nk": 65536} if name in DECODING else {"N": 131072}
    sizes |= {"d": 128, "ranks": 8, "heads": 32, "kv_heads": 8, "mask": mask, "passes": kind, "schedules": name}
    return iosim.links(**{**sizes, **more})


def one_mask_each(case):
    """Each scheme under one mask, and half of them under each mask."""
    kind, name, mask = case
    return ALL.index((kind, name)) % 2 == MASKS.index(mask)


@pytest.mark.parametrize(
    "kind, name, mask", spread([(*one, mask) for one in ALL for mask in MASKS], one_mask_each, "-".join)
)
def test_the_words_that_move_are_those_of_the_count(kind, name, mask):
    """By tensor and by pair of GPUs."""
    scheme, t, counted = example(asked(kind, name, mask))
    runs = data_of(scheme, t)["runs"]
    assert len(runs) == t.ranks == (4 if name in ("usp", "usp-zigzag", "mesh") else 2)
    words, pairs = Counter(), Counter()
    for gpu, run in enumerate(runs):
        assert run["clock"] == sorted(run["clock"]) and len(run["clock"]) == len(run["events"])
        for event in run["events"]:
            assert (event[6] > 0) == (event[0] == "load") == (event[10] is not None) and event[10] != gpu
            words[event[1]] += event[6]
            pairs[event[10], gpu] += event[6]
    assert +words == counted.tensors and sum(words.values()) == counted.received_words
    sent = Counter()
    for (sender, gpu, _), many in links_by_hand.sent(scheme, t).items():
        sent[sender, gpu] += many
    assert +pairs == sent


@pytest.mark.parametrize("kind, name", [("forward", "ulysses"), ("backward", "all-gather"), ("forward", "mesh"),
                                        ("step", "mesh"), ("forward", "zigzag-needed")])  # fmt: skip
def test_a_tile_comes_from_where_it_lies(kind, name):
    """An input comes from the GPU in whose memory it is drawn at the start; nothing is passed on."""
    scheme, t, _ = example(asked(kind, name))
    runs = data_of(scheme, t)["runs"]
    for run in runs:
        for event in run["events"]:
            source = runs[event[10]] if event[10] is not None else run
            if event[0] == "load" and event[1] in source["here"]:
                _, columns, high, wide = run["tensors"][event[1]]
                cell = event[2] // high * -(-columns // wide) + event[4] // wide
                assert cell in source["here"][event[1]] and cell not in run["here"][event[1]]


def test_gpus_wait_where_a_part_of_the_text_ends():
    """With a tree, GPU 0 receives a partial result when GPU 1 has received the queries and made it."""
    scheme, t, _ = example(asked("forward", "tree"))
    first, second = data_of(scheme, t)["runs"]
    comes = min(when for when, event in zip(first["clock"], first["events"], strict=True) if event[6])
    queries = sum(event[6] for event in second["events"])
    assert comes > queries > 0 == sum(event[6] for event in first["events"] if event[1] == "Q")


@pytest.mark.parametrize("more", ["--causal --hardware h100", "--pass step --schedule ring", "--schedule usp",
                                  "--nodes 2x4 --schedule mesh --dv 64", "--Nk 262144 --schedule pass-q"])  # fmt: skip
def test_the_page_names_the_command_that_counts_its_words(iosim, ask, tmp_path, more):
    page = tmp_path / "page.html"
    done = iosim("links", *shlex.split(f"{QUESTION} {more}"), "-o", page)
    assert done.exit_code == 0 and done.stdout == ""
    text = page.read_text()
    told = re.search(r"receive ([\d,]+) words in all, as this command counts: iosim (links [^<]*)</p>", text)
    (row,) = ask(*shlex.split(unescape(told[2])))["results"]
    moved = sum(event[6] for run in data(text)["runs"] for event in run["events"])
    assert moved == row["received_words"] == int(told[1].replace(",", "")) > 0


def test_a_small_question_is_played_as_it_is(ask, iosim, tmp_path):
    page, line = tmp_path / "page.html", shlex.split("--ranks 4 --N 32 --d 8 --heads 4 --causal --schedule ring")
    iosim("links", *line, "-o", page)
    text = page.read_text()
    (row,) = ask("links", *line)["results"]
    assert "This is the question itself: ring (ring 4)." in text and len(data(text)["runs"]) == 4
    assert sum(e[6] for run in data(text)["runs"] for e in run["events"]) == row["received_words"] == 3 * 32 * 4 * 16


def test_a_page_of_one_gpu_has_nothing_to_play(iosim, tmp_path):
    page = tmp_path / "page.html"
    iosim("links", "--ranks", 1, "--N", 32, "--d", 8, "-o", page)
    assert "One GPU receives nothing." in page.read_text() and 'id="play"' not in page.read_text()


def test_a_browser_opens_the_page(iosim, tmp_path, monkeypatch):
    opened, page = [], tmp_path / "page.html"
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert iosim("links", *shlex.split(QUESTION), "--open", "-o", page).stdout == f"{page}\n"
    assert opened == [page.as_uri()] and data(page.read_text())["gpus"]


@BROWSER
@pytest.mark.long
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("more", ["--causal", "--pass backward --schedule usp", "--schedule tree --N 1 --Nk 65536"])
def test_a_browser_shows_all_words_at_the_end(iosim, tmp_path, width, more):
    page = tmp_path / "page.html"
    iosim("links", *shlex.split(f"{QUESTION} {more}"), "-o", page)
    wanted = [str(sum(event[6] for event in run["events"])) for run in data(page.read_text())["runs"]]
    assert re.findall(r'data-moved="(\d+)"', browser(page, "t=end", width)) == wanted
    assert {*re.findall(r'data-moved="(\d+)"', browser(page, "t=0", width))} == {"0"}
