"""Sheets of charts: what they show is counted, texts neither overlap nor leave the sheet, and the README's picture is true."""

import re
from functools import cache
from html import unescape

import pandas as pd
import pytest
from paths import DOCS, ROOT

import iosim as package
from iosim.core.tiling import Tiling
from iosim.counting.bounds import floor_of
from iosim.counting.count import count
from iosim.drawing.chart import Chart, ChartLine, colours, shapes, stride_apart
from iosim.drawing.chart_svg import OUTLINES
from iosim.drawing.colours import TENSORS, tensor_colours
from iosim.drawing.proven import FLOOR
from iosim.drawing.sheet import Sheet
from iosim.drawing.svg import THIN, text_width, thinned
from iosim.errors import InputError
from iosim.pictures.mask import tile_map
from iosim.pictures.traffic import sheet_of_rows, traffic_chart
from iosim.pictures.tune_curve import LEAST, curve_sheet
from iosim.studies.roofline import roofline
from iosim.studies.roofline_picture import roofline_sheet
from iosim.tuning.least import curve, tune


def rows(N=(64, 128), d=(8, 16), schedules=(), **more):
    return package.sweep(N=list(N), d=list(d), M=[1024, 4096, 16384], schedules=list(schedules), **more)


SHEETS = {
    "gap": lambda: curve_sheet(curve(256, 16)),
    "gap under a mask": lambda: curve_sheet(curve(64, 8, mask="causal", schedules="flash1,flash2,block-sparse-q")),
    "gap of one": lambda: curve_sheet(curve(64, 8, schedules="flash2")),
    "no floor": lambda: curve_sheet(curve(64, 8, schedules="linear")),
    "roofline": lambda: roofline_sheet(roofline(1024, 64, "h100", heads=4, tiles="64x64", decode=True)),
    "traffic": lambda: Sheet.of(traffic_chart({"N": "512", "d": "32", "mask": "causal"})),
    "traffic against N": lambda: Sheet.of(traffic_chart({"N": "64:4096:x2", "d": "32", "M": "16KB"})),
    "sweep": lambda: sheet_of_rows(rows(), "M_bytes", "total", ("schedule",)),
    "sweep of many sizes": lambda: sheet_of_rows(
        package.sweep(N=[1024, 4096, 8192], d=[64, 128], M="16KB:256KB:x2", schedules="flash1,flash2,standard"),
        "M_bytes", "total", ("schedule",)),
    "sweep in four columns": lambda: sheet_of_rows(rows((64, 128, 192), (8, 12, 16, 20)), "M_bytes", "total", ("schedule",)),
    "sweep over three": lambda: sheet_of_rows(rows(N=(64, 128, 192)), "M_bytes", "total", ("schedule",)),
    "sweep of eight problems": lambda: sheet_of_rows(
        package.sweep(N=[1024, 2048, 4096, 8192], d=[64, 128], M="20KB:1200KB:x2", schedules="flash1,standard"),
        "M_bytes", "total", ("schedule",)),
    "sweep of long names": lambda: sheet_of_rows(
        rows((64, 128), (8,), ["flash2", "block-sparse", "block-sparse-q"], dtype=["bf16", "fp32"],
             mask=["causal", "causal&window:1024|global:64"]),
        "M_bytes", "ratio_to_standard", ("schedule",)),
    "sweep against N": lambda: sheet_of_rows(rows((64, 96, 1024), (8, 16, 32), batch=3), "N", "total", ("schedule",)),
    "crowded": lambda: Sheet.of(Chart("many lines end at one place", "M_bytes", "total", [
        ChartLine(f"schedule number {k}, best tiles", [1.0, 2.0**k], [8.0, 3.0], [True, True]) for k in range(1, 9)])),
}  # fmt: skip


@cache
def drawn(name):
    """The SVG of a sheet."""
    return SHEETS[name]().svg()


def boxes(text):
    """(text, left, top, right, bottom) of every text of an SVG, in its own pixels."""
    found, dx, dy = [], 0.0, 0.0
    for tag in re.finditer(r'<g transform="translate\(([\d.]+) ([\d.]+)\)">|</g>|<text ([^>]*)>([^<]*)</text>', text):
        if tag[0] == "</g>":
            dx = dy = 0.0
        elif tag[1]:
            dx, dy = float(tag[1]), float(tag[2])
        else:
            where = dict(re.findall(r'([\w-]+)="([^"]*)"', tag[3]))
            words, size = unescape(tag[4]), float(where.get("font-size", 12))
            width = text_width(words, size)
            x = float(where["x"]) + dx - {"start": 0, "middle": width / 2, "end": width}[where["text-anchor"]]
            y = float(where["y"]) + dy
            found.append((words, x, y - 0.75 * size, x + width, y + 0.2 * size))
    return found


def overlapping(found, gap=3):
    """Pairs of texts whose boxes overlap, or stand beside each other with less than `gap` pixels between them."""
    return [
        (a[0], b[0])
        for k, a in enumerate(found)
        for b in found[k + 1 :]
        if a[1] < b[3] + gap and b[1] < a[3] + gap and a[2] < b[4] and b[2] < a[4]
    ]


@pytest.mark.parametrize("name", SHEETS)
def test_texts_of_svg_keep_apart_and_inside(name):
    text = drawn(name)
    width, height = map(float, re.search(r'width="([\d.]+)" height="([\d.]+)"', text).groups())
    found = boxes(text)
    assert len(found) > 8 and overlapping(found) == []
    outside = [b for b in found if not (b[1] >= 0 and b[3] <= width and b[2] >= 0 and b[4] <= height)]
    assert outside == []


@pytest.mark.parametrize("mask, Nk", [("causal&window:64", None), ("global:20|strided:64", 128), ("dense", 2048)])
def test_texts_of_masks_keep_apart_and_inside(mask, Nk):
    text = tile_map(mask, 512, Nk, Tiling(32, 32)).svg()
    width, height = map(float, re.search(r'width="([\d.]+)" height="([\d.]+)"', text).groups())
    found = boxes(text)
    assert len(found) >= 6 and overlapping(found) == []
    assert [b for b in found if not (b[1] >= 0 and b[3] <= width and b[2] >= 0 and b[4] <= height)] == []


@pytest.mark.parametrize("name", SHEETS)
def test_letters_can_be_read_at_500_pixels(name):
    """8 pixels or more of letters if a page shows the picture 500 pixels wide."""
    text = drawn(name)
    width = float(re.search(r'width="([\d.]+)"', text)[1])
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * 500 / width >= 7.6


def test_lines_of_small_multiples_are_told_apart_without_colours():
    sheet = SHEETS["sweep of many sizes"]()
    found = shapes(sheet.lines)
    assert len(found) == len(sheet.legend) == len(set(found.values())) == 4
    text = sheet.svg()
    assert all(text.count(OUTLINES[shape]) > 6 for shape in found.values() if shape != "circle")
    hollow = {*re.findall(r'<path transform="[^"]*" d="([^"]*)" fill="#fff"', text)}
    assert OUTLINES[found["standard"]] in hollow and OUTLINES[found["flash2, best tiles"]] not in hollow


def test_a_schedule_has_one_colour_in_every_picture():
    def drawn(*names):
        lines = [ChartLine(name, [1.0, 2.0], [1.0, 2.0], [True, True]) for name in names]
        return dict(zip(names, colours(lines), strict=True))

    every = drawn("standard", "standard-tiled", "flash1", "flash2", "split-kv")
    assert drawn("flash2", "flash1", "other") | every == every | {"other": drawn("other", "flash1", "flash2")["other"]}
    assert len(set(every.values())) == 5 and len(set(drawn(*"abcdefgh").values())) == 8


def test_a_tensor_has_one_colour():
    names = ["Q", "K", "V", "S", "P", "O", "l", "m", "dQ", "dK", "Opart", "other", "another"]
    found = tensor_colours(names)
    assert set(found) == set(names) and found["dQ"] == found["Q"] == TENSORS["Q"]
    assert len({found[x] for x in ("Q", "K", "V", "S", "P", "O", "l", "m")}) == 8 and found["Opart"] == found["O"]
    assert found["other"] not in [found[x] for x in "QKVSPO"] and tensor_colours(["Q"])["Q"] == found["Q"]


def test_boxes_that_overlap_are_found():
    touching = '<text x="10" y="20" text-anchor="end">256 KiB</text><text x="12" y="20" text-anchor="start">1</text>'
    assert overlapping(boxes(touching)) == [("256 KiB", "1")]
    near = '<text x="10" y="20" text-anchor="start">abc</text><text x="20" y="22" text-anchor="start">def</text>'
    assert overlapping(boxes(near)) == [("abc", "def")]


# ---------------------------------------------------------------- the gap


def test_the_gap_is_what_is_counted():
    sheet = curve_sheet(curve(256, 16))
    words, ratios = sheet.charts
    p = package.Attention(256, 16)
    for chart in sheet.charts:
        assert chart.shaded == (LEAST, FLOOR)
    least, floor, share = words.line(LEAST), words.line(FLOOR), ratios.line(LEAST)
    assert least.x == floor.x == share.x
    for k in range(0, len(least.x), 61):
        M = int(least.x[k])
        assert least.y[k] == tune(256, 16, M).winner.total and floor.y[k] == floor_of(p, M, "attention")
        assert share.y[k] == least.y[k] / floor.y[k] >= 1
    for name in ("flash1", "flash2", "standard-tiled"):
        line = words.line(name)
        for M, total in list(zip(line.x, line.y, strict=True))[::67]:
            assert count(256, 16, int(M), schedules=name, tiles="best")[name].total == total


def test_an_ideal_schedule_is_dashed_where_it_does_not_fit():
    line = curve_sheet(curve(256, 16)).charts[0].line("standard")
    needs = count(256, 16, "1MB", schedules="standard")["standard"].sram_peak_bytes
    assert [x >= needs for x in line.x] == line.fits and False in line.fits and len(set(line.y)) == 1


def test_schedules_that_move_alike_share_a_line():
    sheet = curve_sheet(curve(256, 16))
    labels = [line.label for line in sheet.charts[0].lines if line.kind == "data"]
    assert len(labels) <= 6 and "flash2" in labels and "paged" not in labels and "split-kv" not in labels


def test_the_picture_of_the_readme_is_what_the_tool_draws():
    """`iosim plot --picture gap --N 8192 --d 128 -o docs/gap.svg`."""
    readme = (ROOT / "README.md").read_text()
    first = re.search(r"!\[[^\]]*\]\((?!https://img.shields.io)([^)]*)\)", readme)  # after the badges
    assert first[1] == "docs/gap.svg" and readme[: first.start()].count("\n") < 20
    if not (DOCS / "gap.svg").exists():
        pytest.skip("a package without the pictures of the README")
    assert curve_sheet(curve(8192, 128)).svg() == (DOCS / "gap.svg").read_text()


def test_the_command_draws_it(iosim, tmp_path):
    assert iosim("plot", "--picture", "gap", "--N", 64, "--d", 8, "-o", tmp_path / "g.svg").exit_code == 0
    assert (tmp_path / "g.svg").read_text() == curve_sheet(curve(64, 8)).svg()
    args = ("--N", 64, "--d", 8, "-o", tmp_path / "h.svg")
    assert iosim("plot", "--picture", "gap", "--M", "4KB", *args).exit_code == 2
    assert iosim("plot", "--picture", "roofline", *args).exit_code == 2
    assert iosim("plot", "--picture", "roofline", "--hardware", "h100", *args).exit_code == 0
    assert not (tmp_path / "i.svg").exists() and "roof: HBM" in (tmp_path / "h.svg").read_text()


def test_svg_needs_no_library(iosim, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for args in (("--picture", "gap"), ()):
        assert iosim("plot", *args, "--N", 64, "--d", 8, "-o", tmp_path / "a.svg").exit_code == 0
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


# ---------------------------------------------------------------- the roofline


def test_marks_are_rows_of_the_roofline():
    found = roofline(1024, 64, "h100", heads=4, tiles="64x64")
    (chart,) = roofline_sheet(found).charts
    for row in (row for row in found.rows if row.launch == "all"):
        tiles = "" if row.Br is None else " 64x64"
        line = chart.line(f"{row.schedule}{tiles}, at the peaks")
        assert line.x == [row.work.matrix_flops / row.work.floor_bytes] and line.y == [
            row.work.matrix_flops / row.ideal_l2_seconds
        ]
    (roof,) = [line for line in chart.lines if line.kind == "floor"]
    assert all(line.y[0] <= 1.0001 * min(roof.y[1], line.x[0] * 3.35e12) for line in chart.lines if line.kind == "data")


# ---------------------------------------------------------------- small multiples


def test_a_sweep_over_two_axes_has_a_chart_for_each_problem():
    sheet = sheet_of_rows(rows(), "M_bytes", "total", ("schedule",))
    assert [chart.title for chart in sheet.charts] == [f"d = {d}, N = {N}" for N in (64, 128) for d in (8, 16)]
    for chart in sheet.charts:
        d, N = map(int, re.findall(r"\d+", chart.title))
        line = chart.line("flash2, best tiles")
        assert line.y == [count(N, d, M)["flash2"].total for M in (1024, 4096, 16384)]
    assert len(sheet.legend) == 5 and len({chart.frame["y"] for chart in sheet.framed}) == 1


@pytest.mark.parametrize("N, d, columns", [
    ((64, 128, 192), (8, 12, 16, 20), 4), ((64, 128, 192, 256), (8, 16), 2), ((64, 128), (8, 12, 16), 3),
    ((64, 128), (8, 10, 12, 14, 16), 3),
])  # fmt: skip
def test_values_of_the_inner_axis_stand_below_each_other(N, d, columns):
    """Five values have no room. Labels and the axis are those of the whole sheet, also where only the best tiles fit."""
    sheet = sheet_of_rows(rows(N, d, ("flash1", "flash2")), "M_bytes", "ratio_to_floor", ("schedule",))
    assert sheet.columns == columns
    assert {line.label for line in sheet.lines} == {"flash1, paper tiles", "flash1, best tiles", "flash2, best tiles"}
    assert len({chart.is_log("y") for chart in sheet.framed}) == 1


def test_one_steep_chart_makes_the_axis_of_all_logarithmic():
    flat, steep = (Chart("", "M_bytes", "total", [ChartLine("flash2", [1.0, 2.0], y, [True, True])])
                   for y in ([2.0, 3.0], [2.0, 99.0]))  # fmt: skip
    sheet = Sheet("", [flat, steep], 2)
    assert not flat.is_log("y") and all(chart.is_log("y") for chart in sheet.framed)


def test_a_column_that_follows_from_another_splits_nothing():
    """Nk is N in every row, so a picture against N has no chart for each Nk."""
    sheet = SHEETS["sweep against N"]()
    assert [chart.title for chart in sheet.charts] == [f"d = {d}, M = {M} KiB" for d in (8, 16, 32) for M in (1, 4, 16)]
    assert all(line.x == [64, 96, 1024] for chart in sheet.charts for line in chart.lines if line.label == "standard")


def test_ticks_are_left_out_evenly():
    places = [(float(x - 8), float(x + 8)) for x in range(0, 100, 10)]
    assert [stride_apart(places, gap) for gap in (-7, 0, 5, 1000)] == [1, 2, 3, 10] and stride_apart([], 5) == 1


def test_a_few_lines_stay_in_one_chart():
    sheet = sheet_of_rows(rows(schedules=("flash2",)), "M_bytes", "total", ("schedule",))
    assert len(sheet.charts) == 1 and len(sheet.charts[0].lines) == 4


def test_too_much_says_what_to_fix_with_which_option():
    with pytest.raises(InputError, match="at most 12 charts.*keep the rows of one N, or draw -x N"):
        sheet_of_rows(rows(N=range(16, 160, 16)), "M_bytes", "total", ("schedule",))
    many = pd.concat([rows(N=[64], d=[8]).assign(schedule=f"s{k}") for k in range(3)], ignore_index=True)
    with pytest.raises(InputError, match="--by: found .45 lines.*at most 8 lines; keep the rows of fewer"):
        sheet_of_rows(many.assign(tiling=range(len(many))), "M_bytes", "total", ("tiling",))


@pytest.mark.parametrize("seed", range(5))
def test_thinned_lines_stay_close(seed):
    import random

    rng = random.Random(seed)
    points = sorted((rng.uniform(0, 50), rng.uniform(0, 50)) for _ in range(300))
    kept = thinned(points)
    assert kept[0] == points[0] and kept[-1] == points[-1] and set(kept) <= set(points)
    near = [min(max(abs(x - a), abs(y - b)) for a, b in kept) for x, y in points]
    assert max(near) < THIN
