"""Pictures of times: what they show is counted."""

import pytest

from iosim.counting.count import count
from iosim.counting.given import Choice
from iosim.drawing.asked import Asked
from iosim.studies.roofline import roofline
from iosim.studies.roofline_picture import OWN, roofline_section, roofline_sheet, time_sheet

TIMES = {"N": "256:1024:x2", "d": 64, "heads": 8, "acc_dtype": "fp32"}


def test_times_are_those_of_the_roofline():
    (chart,) = time_sheet(Asked("time", TIMES, Choice(None, "h100", ("flash2",), "64x64"))).charts
    assert chart.lines[0].label == "flash2, at least"
    assert chart.lines[0].x == [256, 512, 1024]
    for k, N in enumerate((256, 512, 1024)):
        found = roofline(N, 64, "h100", heads=8, acc_dtype="fp32", tiles="64x64", schedules="flash2")
        (row,) = [row for row in found.rows if row.launch == "all"]
        assert chart.lines[0].y[k] == 1e6 * row.at_least_seconds


def test_the_bound_stands_beside_what_was_measured():
    """At the sizes that were measured; every measurement is above the lowest bound."""
    values = {"N": "2048,4096,8192", "d": 128, "heads": 32}
    sheet = time_sheet(Asked("time", values, Choice(None, "h100", ("flash2",), "128x128")))
    (chart,) = sheet.charts
    bound, *kept = chart.lines
    assert bound.label == "flash2, at least" and bound.x == [2048, 4096, 8192]
    assert {line.label for line in kept} >= {"torch-cudnn, measured", "torch-flash, measured"}
    least = dict(zip(bound.x, bound.y, strict=True))
    assert all(y > least[x] for line in kept for x, y in zip(line.x, line.y, strict=True))
    assert dict(zip(kept[0].x, kept[0].y, strict=True))[4096] in (424.896, 776.928)


def test_marks_are_rows_of_the_roofline_below_five_ceilings():
    """A mark for each memory, at the FLOPs a byte that moves there; the roof of what binds is the nearest."""
    found = roofline(1024, 64, "h100", heads=66, tiles="64x64")
    (chart,) = roofline_sheet(found).charts
    rates = {"HBM": 3.35e12, "L2": 15.45984e12, "shared memory": 30.91968e12}
    roofs = {line.label: line for line in chart.lines if line.kind == "roof"}
    assert {line.label for line in chart.lines if line.kind == "floor"} == {"fp16 products", "exponentials"}
    assert {name: roof.y[0] / roof.x[0] for name, roof in roofs.items()} == pytest.approx(rates)
    for row in (row for row in found.rows if row.launch == "all" and row.result.tiling in OWN):
        line = chart.line(row.result.schedule + ("" if row.result.Br is None else " 64x64"))
        assert set(line.y) == {row.work.matrix_flops / row.at_least_seconds}
        of_shared = row.work.smem_read_bytes + row.work.smem_write_bytes
        moved = [of_shared, row.work.total_bytes, row.times["memory"] * rates["HBM"]][row.result.Br is None :]
        assert line.x == pytest.approx([row.work.matrix_flops / many for many in moved])
        heights = [x * rate for x, rate in zip(line.x[::-1], rates.values(), strict=False)]
        level = [roof.y[0] for roof in chart.lines if roof.kind == "floor"]
        assert line.y[0] <= 1.0001 * min(heights) and line.y[0] <= 1.0001 * min(level)
    assert all(roof.y[1] / roof.x[1] == pytest.approx(roof.y[0] / roof.x[0]) for roof in roofs.values())


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_the_section_of_a_page_leads_with_the_bound_of_its_winner(mask):
    """The schedule and the tiles of the page's answer, and what was measured."""
    asked = {"heads": 32, "hardware": "h100", "mask": mask}
    report = count(4096, 128, **asked)
    best = next(r for r in report.results if r.schedule == "flash2")
    text = roofline_section(report, "flash2", ["flash2", "standard-tiled"], "h100", None)
    lead = str(report).split("\n")[0]
    assert lead.startswith("flash2 ") and f"<p>{lead}</p>" in text
    assert "Measured on H100: torch-cudnn " in text and f">flash2 {best.Br}x{best.Bc}<" in text
