"""Pictures of what is in SRAM and of predicted times: what they show is counted, and their texts keep apart."""

import re

import pytest
from test_sheets import boxes, overlapping

import iosim
from iosim import Attention, Tiling
from iosim.counting.count import count
from iosim.counting.given import Choice
from iosim.drawing.asked import Asked
from iosim.drawing.colours import ink_on
from iosim.errors import InputError
from iosim.pictures.footprint import footprint
from iosim.pictures.timeline import COLUMNS, Run, thinned, timeline
from iosim.studies.roofline import roofline
from iosim.studies.roofline_picture import time_sheet

MINE = ("standard", "standard-tiled", "flash1", "flash2")
DRAWN = {
    "footprint": lambda: footprint(Attention(8192, 128), "100KB", (), None, 1),
    "footprint without M": lambda: footprint(Attention(256, 32, heads=4), None, MINE, Tiling(16, 16), 1),
    "footprint of gradients": lambda: footprint(Attention(256, 32), "64KB", ("flash2-bwd", "flash1-bwd"), None, 1),
    "timeline": lambda: timeline(Attention(64, 16), "4KB", (), None, 1),
    "timeline of one": lambda: timeline(Attention(96, 8), None, ("block-sparse-q",), Tiling(16, 8), 1),
    "a long timeline": lambda: timeline(Attention(1024, 16), "16KB", ("standard-tiled", "flash2"), Tiling(16, 64), 1),
}


def test_bars_are_footprints():
    """The blocks of a bar are the bytes that `count` says a schedule needs; M is where the line stands."""
    found = DRAWN["footprint"]()
    report = count(8192, 128, "100KB")
    assert [bar.bytes for bar in found.bars] == [r.sram_peak_bytes for r in report.results] and found.limit == 102400
    assert [bar.name for bar in found.bars][:3] == ["standard", "standard-tiled best 391x2", "flash1 paper 100x100"]
    paper = dict(found.bars[2].parts)
    assert paper == {"K": 25600, "V": 25600, "Q": 25600, "O": 25600, "l": 200, "m": 200, "S": 20000}
    assert [found.note(bar) for bar in found.bars[2:4]] == ["119.92 KiB, 1.2 x M", "99.77 KiB"]
    assert found.longest == 3 * 102400 < found.bars[0].bytes, "the bar of 20 M is cut off"


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_a_timeline_ends_at_the_counted_words_and_reaches_the_peak(mask):
    p = Attention(64, 16, mask=iosim.Attention(1, 1).mask if mask == "dense" else parse(mask))
    for name in ("standard-tiled", "flash1", "block-sparse-q"):
        (run,) = timeline(p, None, (name,), Tiling(16, 8), 1).runs
        result = count(64, 16, tiles="16x8", schedules=name, mask=mask)[name]
        assert run.x[-1] == result.total and run.peak == result.sram_peak_words and run.x == sorted(set(run.x))


def parse(mask):
    from iosim.masks import parse_mask

    return parse_mask(mask)


def test_what_is_in_sram_by_hand():
    """flash2 with N = 4, d = 2, Br = 2, Bc = 4. Q comes (4 words; O, l, m are made: 8 more), then K (8), then V (8) and
    S (8), then O goes (4 words), while only Q, O, l, m are there. Then the same again."""
    (run,) = timeline(Attention(4, 2), None, ("flash2",), Tiling(2, 4), 1).runs
    assert run.x == [0, 4, 12, 20, 24, 28, 36, 44, 48]
    totals = [sum(column) for column in zip(*run.words.values(), strict=True)]
    assert totals == [12, 20, 36, 12, 12, 20, 36, 12]
    assert [words[2] for words in run.words.values()] == [4, 4, 2, 2, 8, 8, 8]
    assert list(run.words) == ["Q", "O", "l", "m", "K", "V", "S"]


def test_a_long_run_keeps_its_peak():
    words = [5 if k == 777 else k % 3 for k in range(2000)]
    found = thinned(Run("a", list(range(2001)), {"Q": words}), 2000)
    assert len(found.x) == COLUMNS + 1 and found.peak == 5 and found.x[-1] == 2000
    short = Run("a", [0, 1, 2], {"Q": [1, 2]})
    assert thinned(short, 2000) is short


@pytest.mark.parametrize("name", DRAWN)
def test_texts_keep_apart_and_inside(name):
    text = DRAWN[name]().svg()
    width, height = map(float, re.search(r'width="([\d.]+)" height="([\d.]+)"', text).groups())
    found = boxes(text)
    assert len(found) > 6 and overlapping(found) == []
    assert [b for b in found if not (b[1] >= 0 and b[3] <= width and b[2] >= 0 and b[4] <= height)] == []
    assert len(text) < 60_000


def test_letters_stand_out():
    assert ink_on("#0072B2") == "#FFFFFF" and ink_on("#E69F00") == "#000000" == ink_on("#56B4E9")


# ---------------------------------------------------------------- predicted times

TIMES = {"N": "256:1024:x2", "d": 64, "heads": 8, "acc_dtype": "fp32"}


def test_times_are_those_of_the_roofline():
    (chart,) = time_sheet(Asked("predicted", TIMES, Choice(None, "h100", ("flash2",), "64x64"))).charts
    assert [line.label for line in chart.lines] == ["flash2, predicted", "flash2, at the peaks, ideal L2"]
    assert chart.lines[0].x == chart.lines[1].x == [256, 512, 1024]
    for k, N in enumerate((256, 512, 1024)):
        found = roofline(
            N, 64, "h100", heads=8, acc_dtype="fp32", tiles="64x64", schedules="flash2", predict="generated"
        )
        (row,) = [row for row in found.rows if row.launch == "all"]
        assert chart.lines[0].y[k] == 1e6 * row.predicted_seconds > chart.lines[1].y[k] == 1e6 * row.ideal_l2_seconds


def test_without_a_prediction_the_bound_stands_beside_what_was_measured():
    """At the sizes that were measured; every measurement is above the lowest bound."""
    values = {"N": "2048,4096,8192", "d": 128, "heads": 32}
    sheet = time_sheet(Asked("time", values, Choice(None, "h100", ("flash2",), "128x128")))
    (chart,) = sheet.charts
    assert "model" not in sheet.title
    bound, *kept = chart.lines
    assert bound.label == "flash2, at the peaks, ideal L2" and bound.x == [2048, 4096, 8192]
    assert {line.label for line in kept} >= {"torch-cudnn, measured", "torch-flash, measured"}
    least = dict(zip(bound.x, bound.y, strict=True))
    assert all(y > least[x] for line in kept for x, y in zip(line.x, line.y, strict=True))
    assert dict(zip(kept[0].x, kept[0].y, strict=True))[4096] in (424.896, 776.928)


# ---------------------------------------------------------------- the command

PROBLEM = ("--N", 64, "--d", 16)
GOOD = {
    "footprint": (*PROBLEM, "--M", "4KB"),
    "timeline": (*PROBLEM, "--tiles", "16x16"),
    "time": ("--N", "256,512", "--d", 64, "--hardware", "b200", "--schedule", "flash2"),
    "predicted": ("--N", "256,512", "--d", 64, "--tiles", "64x64", "--hardware", "h200", "--schedule", "flash2"),
}


@pytest.mark.parametrize("picture", GOOD)
def test_the_command_draws_them_without_a_library(picture, iosim, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    answer = iosim("plot", "--picture", picture, *GOOD[picture], "-o", tmp_path / "a.svg")
    assert answer.exit_code == 0 and answer.stdout == "", answer.stderr
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_rows_of_pictures():
    found = iosim.plot(picture="footprint", N=64, d=16, M="4KB", schedules="flash2")
    assert (
        sum(row["bytes"] for row in found.to_rows())
        == count(64, 16, "4KB", schedules="flash2")["flash2"].sram_peak_bytes
    )
    run = iosim.plot(picture="timeline", N=64, d=16, tiles=(16, 16), schedules="flash2")
    assert {row["block"] for row in run.to_rows()} == {
        "Q",
        "O",
        "l",
        "m",
        "K",
        "V",
        "S",
    } and "<svg" in run._repr_html_()


BAD = {
    "a timeline of two heads": ("timeline", *PROBLEM, "--heads", 2, "--tiles", "8x8"),
    "a timeline without tiles": ("timeline", *PROBLEM),
    "too long a timeline": ("timeline", "--N", 8192, "--d", 16, "--tiles", "8x8"),
    "nothing fits": ("footprint", *PROBLEM, "--M", 8, "--schedule", "flash2"),
    "no GPU": ("predicted", "--N", "256,512", "--d", 64),
    "one N": ("predicted", "--N", 256, "--d", 64, "--hardware", "h100"),
    "a GPU that was not measured": ("predicted", "--N", "256,512", "--d", 64, "--hardware", "t4", "--tiles", "64x64"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(iosim, tmp_path, args):
    answer = iosim("plot", "--picture", *args, "-o", tmp_path / "a.svg")
    assert answer.exit_code == 2 and answer.stdout == "" and "allowed" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_many_schedules():
    with pytest.raises(InputError, match="at most 8"):
        footprint(Attention(64, 16), "4KB", tuple(iosim.SCHEDULES)[:9], None, 1)
