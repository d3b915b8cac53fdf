"""The player of the report's page: its events move what iosim counts, and a browser shows them to the end."""

import json
import re
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import pytest
from paths import DOCS
from played import BROWSER, browser, data

from iosim.core.event_count import count_events
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.counting.count import count
from iosim.drawing.player import small_mask
from iosim.masks import parse_mask
from iosim.pictures.player import plays, small_memory
from iosim.schedules import SCHEDULES, find

SIZES = ("--N", 1024, "--d", 64, "--M", "64KB")


@pytest.mark.parametrize("mask", ["dense", "causal&window:100"])
@pytest.mark.parametrize("schedules", ["", "flash1", "block-sparse-q,flash2", "flash2-bwd"])
def test_the_words_of_the_events_are_those_that_are_counted(iosim, schedules, mask):
    asked = ("--schedule", schedules, "--tiles", "64x64") if schedules else ()
    found = data(iosim("report", *SIZES, "--mask", mask, *asked).stdout)
    p, runs = plays(count(N=1024, d=64, M="64KB", mask=mask, schedules=schedules.split(",") if schedules else ()))
    assert len(found["runs"]) == len(runs) == (2 if not schedules or "," in schedules else 1)
    sizes = {"N": p.N, "Nk": p.Nk, "d": p.d, "dv": p.dv, "mask": str(p.mask)}
    for run in found["runs"]:
        counted = count(**sizes, tiles=run["tiles"], schedules=[run["name"]])[run["name"]]
        words = {kind: sum(e[6] for e in run["events"] if e[0] == kind) for kind in ("load", "store")}
        assert (words["load"], words["store"]) == (counted.reads, counted.writes)
        assert run["peak"] == counted.sram_peak_words == max(sum(e[7].values()) for e in run["events"])
        lit = {run["text"][event[8][-1]] for event in run["events"] if event[0] == "store"}
        assert lit and all("chip.store" in line for line in lit), "the lines that are lit are those that move"


def test_a_run_that_does_not_fit_overflows():
    found = count(N=1024, d=64, M="8KB", tiles="64x64", schedules=["flash2"])
    _, runs = plays(found)
    ratio = found["flash2"].sram_peak_bytes / 8192
    assert ratio > 1 and small_memory(found, runs) == int(runs[0].peak_words / ratio)
    found = count(N=1024, d=64, M="65KB", tiles="128x128", schedules=["standard-tiled", "flash2"])
    peak, (fits, over) = max(run.peak_words for run in plays(found)[1]), found.results
    assert fits.fits and not over.fits
    assert small_memory(found, plays(found)[1]) == int(peak / (over.sram_peak_bytes / 66560)) < peak


@pytest.mark.parametrize("more, names", [
    ((), ["standard-tiled", "flash2"]),
    (("--mask", "window:64"), ["standard-tiled", "flash2"]),
    (("--mask", "window:64", "--visit-all"), ["standard-tiled", "flash2", "block-sparse-q"]),
    (("--schedule", "flash1,memory-efficient,flash2"), ["flash1", "memory-efficient", "flash2"]),
    (("--schedule", "flash2,flash1,memory-efficient"), ["flash2", "flash1"]),
])  # fmt: skip
def test_the_winner_is_shown_beside_its_rivals(iosim, more, names):
    text = iosim("report", *SIZES, *more).stdout
    winner = re.search(r"<p class=answer>(\S+) ", text)[1]
    assert [run["name"] for run in data(text)["runs"]] == names and winner in names
    assert f" {winner} moves the fewest bytes in the question." in text


def test_lengths_of_a_mask_shrink_to_one_token_at_least():
    assert str(small_mask(parse_mask("causal&window:128|sink:4"), 21.3)) == "causal&window:6|sink:1"


def test_a_small_question_is_played_as_it_is(iosim):
    """With or without M: the words that move are those of the count, and the tiles those that were given."""
    line = ("--N", 64, "--d", 16, "--tiles", "16x16", "--mask", "causal")
    for more in ((), ("--M", "4KB")):
        text = iosim("report", *line, *more).stdout
        runs = {run["name"]: run for run in data(text)["runs"]}
        for name, run in runs.items():
            counted = count(64, 16, tiles="16x16", mask="causal", schedules=name)[name]
            assert run["tiles"] == "16x16" and run["peak"] == counted.sram_peak_words
            assert sum(event[6] for event in run["events"]) == counted.total
        assert {*runs} == {"standard-tiled", "flash2"} and data(text)["M"] == (2048 if more else 1312)


def test_where_nothing_fits_nothing_fits_in_the_example(iosim):
    text = iosim("report", *SIZES[:4], "--M", "64").stdout
    found = data(text)
    assert all(run["peak"] > found["M"] for run in found["runs"]) and len(found["runs"]) == 2
    assert "Nothing that was counted fits in the question's M, so nothing fits here." in unescape(text)


@BROWSER
@pytest.mark.long
@pytest.mark.parametrize("width, more", [(1600, ()), (360, ()), (1200, ("--force-dark-mode",))])
def test_a_browser_shows_all_words_at_the_end(iosim, tmp_path, width, more):
    page = tmp_path / "page.html"
    iosim("report", *SIZES, "-o", page)
    wanted = [str(sum(event[6] for event in run["events"])) for run in data(page.read_text())["runs"]]
    assert re.findall(r'data-moved="(\d+)"', browser(page, "t=end", width, more)) == wanted
    begun = re.findall(r'data-moved="(\d+)"', browser(page, "t=0", width, more))
    assert begun == ["0"] * len(wanted)


@BROWSER
@pytest.mark.long
def test_a_browser_obeys_keys(iosim, tmp_path):
    page = tmp_path / "page.html"
    iosim("report", *SIZES, "-o", page)
    plain = page.read_text()
    end = sum(event[6] for event in data(plain)["runs"][0]["events"])
    press = "document.dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}));"
    for key, begin, wanted in [("ArrowRight", 0, 64), ("End", 0, end), ("Home", 640, 0), ("ArrowLeft", 64, 0)]:
        page.write_text(plain.replace("</body>", f"<script>{press % key}</script></body>"))
        assert int(re.search(r'data-moved="(\d+)"', browser(page, f"t={begin}"))[1]) == wanted, key


@BROWSER
@pytest.mark.long
@pytest.mark.parametrize(
    "way",
    ["dispatchEvent(new KeyboardEvent('keydown', {key: ' '}))", "querySelectorAll('.controls button')[2].click()"],
)
def test_a_browser_plays_to_the_end(way, iosim, tmp_path):
    """Frames come every 16 ms of the browser's own virtual time, so that a busy machine plays as far as an idle one."""
    page = tmp_path / "page.html"
    iosim("report", *SIZES, "-o", page)
    text = page.read_text()
    wanted = [str(sum(event[6] for event in run["events"])) for run in data(text)["runs"]]
    frames = "<script>window.requestAnimationFrame = f => setTimeout(() => f(performance.now()), 16);</script>"
    page.write_text(
        text.replace("<body>", "<body>" + frames).replace("</body>", f"<script>document.{way}</script></body>")
    )
    assert re.findall(r'data-moved="(\d+)"', browser(page, "t=0&speed=16")) == wanted


@BROWSER
@pytest.mark.long
@pytest.mark.needs("axe_core_python")
@pytest.mark.parametrize("width, more", [(1600, ()), (360, ()), (1200, ("--force-dark-mode",))])
def test_axe_finds_no_fault(iosim, tmp_path, width, more):
    """axe-core reads the page as a screen reader and an eye would: names, roles, contrast."""
    page = tmp_path / "page.html"
    iosim("report", *SIZES, "--mask", "causal", "-o", page)
    axe = (Path(find_spec("axe_core_python").submodule_search_locations[0]) / "axe.min.js").read_text()
    run = "axe.run().then(r => document.body.dataset.faults = JSON.stringify(r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.target)])))"
    page.write_text(page.read_text().replace("</body>", f"<script>{axe};{run}</script></body>"))
    found = re.search(r'data-faults="([^"]*)"', browser(page, "t=end", width, more))[1]
    assert json.loads(unescape(found)) == []


def test_a_schedule_of_the_users_own_is_played(iosim, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(re.search(r"```python\n(.*?)```", (DOCS / "adding-a-schedule.md").read_text(), re.S)[1])
    try:
        done = iosim("--load", file, "report", *SIZES, "--schedule", "flash2,wasteful", "--tiles", "64x64")
    finally:
        SCHEDULES.pop("wasteful", None)
    assert [run["name"] for run in data(done.stdout)["runs"]] == ["flash2", "wasteful"]
    assert "chip.load(&quot;Q&quot;, i)" not in done.stdout and "where=p.mask.row(i)" in done.stdout


def test_a_browser_opens_the_page(iosim, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) < 3)
    page = tmp_path / "page.html"
    assert iosim("report", "--open", *SIZES, "-o", page).stdout == f"{page}\n" and opened == [page.as_uri()]
    kept = Path(iosim("report", "--open", *SIZES).stdout.strip())
    assert opened[1] == kept.as_uri() and data(kept.read_text())["runs"]
    failed = iosim("report", "--open", *SIZES, "-o", page)
    assert failed.exit_code == 0 and failed.stdout == f"{page}\n" and "no browser was found" in failed.stderr


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_how_often_an_event_happens_in_the_real_run(iosim, mask):
    """The numbers of all lines add up to the loads and stores of the real run, which is never walked."""
    names = ["flash1", "block-sparse-q"]
    asked = ("--mask", mask, "--heads", 2, "--schedule", ",".join(names), "--tiles", "64x32")
    runs = data(iosim("report", *SIZES, *asked).stdout)["runs"]
    for run, name in zip(runs, names, strict=True):
        times = {(tuple(event[8]), event[0]): event[9] for event in run["events"] if event[6]}
        p = Attention(1024, 64, mask=parse_mask(mask))
        real = count_events(find(name), p, Tiling(64, 32))
        assert sum(times.values()) == 2 * real.moves and min(times.values()) > 1


def test_tiles_in_registers_do_not_overflow(iosim):
    """FlashAttention-3's tiles fit with registers, so the player does not show them overflow. Without, it does."""
    line = ("report", "--N", 1024, "--d", 128, "--M", "227KB", "--acc-dtype", "fp32", "--tiles", "128x176",
            "--schedule", "flash2")  # fmt: skip
    with_registers, without = (data(iosim(*line, *more).stdout) for more in (("--registers", "64K", "--stages", 2), ()))
    assert with_registers["M"] == with_registers["runs"][0]["peak"] and without["M"] < without["runs"][0]["peak"]


def test_the_page_says_the_sizes_of_both_cases(iosim):
    text = unescape(iosim("report", *SIZES, "--mask", "window:128", "--heads", 2).stdout)
    assert "It has one head, N = 48, Nk = 48, d = 8, mask window:6 and M = " in text
    assert "has batch 1 x heads 2, N = 1024, Nk = 1024, d = 64, mask window:128 and M = 32,768 words (64 KiB)." in text
    long = iosim("report", *SIZES[:4], "--M", "1GB", "--schedule", "standard,standard-tiled").stdout
    assert [run["name"] for run in data(long)["runs"]] == ["standard-tiled"]
    assert "standard moves the fewest bytes in the question; its run is too long to be shown." in long
