"""The player of the report's page: its events move what iosim counts, and a browser shows them to the end."""

import json
import re
import shutil
import subprocess

import pytest

from iosim.counting.count import count
from iosim.pictures.player import plays, small_memory

SIZES = ("--N", 1024, "--d", 64, "--M", "64KB")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")


def data(text):
    return json.loads(re.search(r'<script type="application/json" id="play">(.*?)</script>', text)[1])


@pytest.mark.parametrize("mask", ["dense", "causal", "window:100"])
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


def test_lines_that_are_lit_are_those_that_move(iosim):
    for run in data(iosim("report", *SIZES).stdout)["runs"]:
        lit = {run["text"][event[8][-1]] for event in run["events"] if event[0] == "store"}
        assert lit and all("chip.store" in line for line in lit)


def test_a_run_that_does_not_fit_overflows():
    found = count(N=1024, d=64, M="8KB", tiles="64x64", schedules=["flash2"])
    _, runs = plays(found)
    ratio = found["flash2"].sram_peak_bytes / 8192
    assert ratio > 1 and small_memory(found, runs) == int(runs[0].peak_words / ratio)


def test_a_mask_has_the_same_form():
    p, _ = plays(count(N=1024, d=64, M="64KB", mask="causal&window:128"))
    assert (p.N, p.d, str(p.mask)) == (48, 8, "causal&window:6")


def browser(page, state, width=1200, more=()):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200",
               "--virtual-time-budget=4000", "--enable-logging=stderr", *more, "--dump-dom", f"file://{page}#{state}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    faults = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not faults and 'data-ready="yes"' in done.stdout, faults
    return done.stdout


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
def test_a_browser_plays_and_obeys_keys(iosim, tmp_path):
    page = tmp_path / "page.html"
    iosim("report", *SIZES, "-o", page)
    plain = page.read_text()
    press = "document.dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}));"
    for keys, check in [("ArrowRight", lambda a: a > 0), ("End", lambda a: a > 1000), (" ", lambda a: a > 0)]:
        page.write_text(plain.replace("</body>", f"<script>{press % keys}</script></body>"))
        moved = int(re.search(r'data-moved="(\d+)"', browser(page, "t=0&speed=4"))[1])
        assert check(moved), (keys, moved)
