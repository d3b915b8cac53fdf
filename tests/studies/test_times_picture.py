"""Pictures of times: what they show is counted."""

import pytest

from iosim.counting.given import Choice
from iosim.drawing.asked import Asked
from iosim.studies.roofline import roofline
from iosim.studies.roofline_picture import time_sheet

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

GOOD = {
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


BAD = {
    "no GPU": ("predicted", "--N", "256,512", "--d", 64),
    "one N": ("predicted", "--N", 256, "--d", 64, "--hardware", "h100"),
    "a GPU that was not measured": ("predicted", "--N", "256,512", "--d", 64, "--hardware", "t4", "--tiles", "64x64"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(iosim, tmp_path, args):
    answer = iosim("plot", "--picture", *args, "-o", tmp_path / "a.svg")
    assert answer.exit_code == 2 and answer.stdout == "" and "allowed" in answer.stderr
    assert list(tmp_path.iterdir()) == []
