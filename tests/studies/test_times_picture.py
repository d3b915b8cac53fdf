"""Pictures of times: what they show is counted."""

import pytest

from iosim.counting.count import count
from iosim.counting.given import Choice
from iosim.drawing.asked import Asked
from iosim.studies.roofline import roofline
from iosim.studies.roofline_picture import roofline_section, roofline_sheet, time_sheet

TIMES = {"N": "256:1024:x2", "d": 64, "heads": 8, "acc_dtype": "fp32"}


def test_times_are_those_of_the_roofline():
    (chart,) = time_sheet(Asked("time", TIMES, Choice(None, "h100", ("flash2",), "64x64"))).charts
    assert chart.lines[0].label == "flash2, at the peaks, ideal L2"
    assert chart.lines[0].x == [256, 512, 1024]
    for k, N in enumerate((256, 512, 1024)):
        found = roofline(N, 64, "h100", heads=8, acc_dtype="fp32", tiles="64x64", schedules="flash2")
        (row,) = [row for row in found.rows if row.launch == "all"]
        assert chart.lines[0].y[k] == 1e6 * row.ideal_l2_seconds


def test_the_bound_stands_beside_what_was_measured():
    """At the sizes that were measured; every measurement is above the lowest bound."""
    values = {"N": "2048,4096,8192", "d": 128, "heads": 32}
    sheet = time_sheet(Asked("time", values, Choice(None, "h100", ("flash2",), "128x128")))
    (chart,) = sheet.charts
    bound, *kept = chart.lines
    assert bound.label == "flash2, at the peaks, ideal L2" and bound.x == [2048, 4096, 8192]
    assert {line.label for line in kept} >= {"torch-cudnn, measured", "torch-flash, measured"}
    least = dict(zip(bound.x, bound.y, strict=True))
    assert all(y > least[x] for line in kept for x, y in zip(line.x, line.y, strict=True))
    assert dict(zip(kept[0].x, kept[0].y, strict=True))[4096] in (424.896, 776.928)


def test_marks_are_rows_of_the_roofline():
    found = roofline(1024, 64, "h100", heads=4, tiles="64x64")
    (chart,) = roofline_sheet(found).charts
    for row in (row for row in found.rows if row.launch == "all"):
        tiles = "" if row.Br is None else " 64x64"
        line = chart.line(f"{row.schedule}{tiles}, at the peaks")
        assert line.x == [row.work.matrix_flops / row.work.floor_bytes]
        assert line.y == [row.work.matrix_flops / row.ideal_l2_seconds]
    (roof,) = [line for line in chart.lines if line.kind == "floor"]
    assert all(line.y[0] <= 1.0001 * min(roof.y[1], line.x[0] * 3.35e12) for line in chart.lines if line.kind == "data")


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_the_section_of_a_page_leads_with_the_bound_of_its_winner(mask):
    """The schedule and the tiles of the page's answer, and what was measured."""
    asked = {"heads": 32, "hardware": "h100", "mask": mask}
    report = count(4096, 128, **asked)
    best = min((r for r in report.results if r.fits), key=lambda r: r.total_bytes)
    text = roofline_section(report, best.schedule, [best.schedule, "standard-tiled"], "h100", None)
    tiles = f"{best.Br}x{best.Bc}"
    (row,) = roofline(4096, 128, **asked, schedules=best.schedule, tiles=tiles).to_rows()
    assert f"<p>{best.schedule} ({tiles}) takes at least {row['ideal_l2_seconds'] * 1e6:.2f} us" in text
    assert "Measured on H100: torch-cudnn " in text and f"{tiles}, at the peaks" in text
