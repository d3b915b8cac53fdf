"""The parts of charts: ticks, labels, colours, marks and lines, as plain values."""

import random

import numpy as np
import pytest

from iosim.drawing import chart as curves
from iosim.drawing.chart import Chart, ChartLine
from iosim.drawing.chart_svg import chart_svg
from iosim.drawing.colours import COLOURS, GREY, TENSORS, tensor_colours
from iosim.drawing.sheet import Sheet
from iosim.drawing.svg import THIN, thinned


def line_of(name, x=(1.0, 2.0), y=(1.0, 2.0)):
    return ChartLine(name, [*x], [*y], [True] * len(x))


@pytest.mark.parametrize("seed", range(8))
def test_labels_keep_apart_and_inside(seed):
    places = np.random.default_rng(seed).uniform(-20, 320, 12).tolist()
    found = curves.spread_labels(places, 14, 0, 300)
    steps = np.diff([found[k] for k in sorted(range(12), key=lambda k: places[k])])
    assert (steps >= 14 - 1e-9).all() and max(found) <= 300 and min(found) >= 0
    assert curves.spread_labels([200.0, 10.0, 100.0], 14, 0, 300) == [200, 10, 100], "those that are apart stay"


def test_sizes_in_1024s():
    values = (1024, 102400, 1536, 100, 2**30, 3 * 2**20)
    assert [curves.size(v) for v in values] == ["1 KiB", "100 KiB", "1.5 KiB", "100 B", "1 GiB", "3 MiB"]


@pytest.mark.parametrize("y", [[5.0, 5.0], [0.0, 0.0], [1.0, 9.5], [0.5, 70.0], [3.0, 4e9], [-2.0, 2.0], [-1.0, 90.0]])
@pytest.mark.parametrize("x", [[1.0, 1.0], [1.0, 4.0], [64.0, 2.0**30]])
def test_ticks_lie_inside_and_are_enough(x, y):
    chart = Chart("", "M_bytes", "total", [line_of("a", x, y)])
    for axis in ("x", "y"):
        low, high = chart.limits(axis)
        ticks = chart.ticks(axis)
        assert low < high and len(ticks) >= 2 and all(low <= v <= high for v, _ in ticks)
        assert len({text for _, text in ticks}) == len(ticks) <= 16


def test_few_points_are_the_ticks():
    """Each counted N has its tick and its mark. Nine points are too many, and a staircase has corners, not points."""

    def over(x, **more):
        return Chart("", "N", "total", [line_of("flash2", x, x)], **more)

    few, many = [1024.0, 3000.0, 4096.0], [1024.0 + 700 * n for n in range(9)]
    assert over(few).ticks("x") == [(1024.0, "1024"), (3000.0, "3000"), (4096.0, "4096")]
    assert chart_svg(over(few)).count("<circle") == 3
    for chart in (over(many), over(few, steps=True)):
        assert 1024.0 not in [x for x, _ in chart.ticks("x")] and "<circle" not in chart_svg(chart)


def test_ticks_are_left_out_evenly():
    places = [(float(x - 8), float(x + 8)) for x in range(0, 100, 10)]
    assert [curves.stride_apart(places, gap) for gap in (-7, 0, 5, 1000)] == [1, 2, 3, 10]
    assert curves.stride_apart([], 5) == 1


def test_one_steep_chart_makes_the_axis_of_all_logarithmic():
    flat, steep = (Chart("", "M_bytes", "total", [line_of("flash2", y=y)]) for y in ([2.0, 3.0], [2.0, 99.0]))
    assert not flat.is_log("y") and all(chart.is_log("y") for chart in Sheet("", [flat, steep], 2).framed)


@pytest.mark.parametrize("seed", range(3))
def test_thinned_lines_stay_close(seed):
    rng = random.Random(seed)
    points = sorted((rng.uniform(0, 50), rng.uniform(0, 50)) for _ in range(300))
    kept = thinned(points)
    assert kept[0] == points[0] and kept[-1] == points[-1] and set(kept) <= set(points)
    assert max(min(max(abs(x - a), abs(y - b)) for a, b in kept) for x, y in points) < THIN


def test_steps_hold_a_value():
    x, y = [float(k) for k in range(30)], [float(1000 - 33 * k) for k in range(30)]
    for steps, corners in ((False, 30), (True, 59)):
        text = Sheet.of(Chart("", "M_bytes", "total", [line_of("a", x, y)], steps)).svg()
        assert len(text.partition('<polyline points="')[2].partition('"')[0].split()) == corners


# ---------------------------------------------------------------- colours


def test_a_schedule_and_a_tensor_have_one_colour():
    def drawn(*names):
        return dict(zip(names, curves.colours([line_of(name) for name in names]), strict=True))

    every = drawn("standard", "standard-tiled", "flash1", "flash2", "split-kv")
    assert drawn("flash2", "flash1", "other") | every == every | {"other": drawn("other", "flash1", "flash2")["other"]}
    assert len(set(every.values())) == 5 and len(set(drawn(*"abcdefgh").values())) == 8
    names = ["Q", "K", "V", "S", "P", "O", "l", "m", "dQ", "dK", "Opart", "other", "another"]
    found = tensor_colours(names)
    assert set(found) == set(names) and found["dQ"] == found["Q"] == TENSORS["Q"] == tensor_colours(["Q"])["Q"]
    assert len({found[x] for x in ("Q", "K", "V", "S", "P", "O", "l", "m")}) == 8 and found["Opart"] == found["O"]
    assert found["other"] not in [found[x] for x in "QKVSPO"]


def test_grey_is_for_what_is_proven_and_lines_of_one_schedule_differ_in_tint():
    lines = [ChartLine(f"{key}, {kind}", [1.0], [1.0], [True], key=key) for key in "abc" for kind in ("paper", "best")]
    lines.append(ChartLine.of("floor", {1.0: 1.0}, "floor"))
    looks = [*zip(curves.colours(lines), curves.tints(lines), strict=True)]
    assert looks[-1][0] == GREY and GREY not in [colour for colour, _ in looks[:-1]]
    assert len(set(looks)) == 7 and len({colour for colour, _ in looks}) == 4
    assert len(set(curves.shapes(lines).values())) == 6, "marks tell them apart without colours"


# What people see who lack one kind of cones (Machado, Oliveira and Fernandes 2009), on linear RGB.
CONES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def seen(colour, matrix):
    """A colour in CIE Lab, as somebody with these cones sees it."""
    rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.clip(matrix @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(to_xyz @ linear / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("cones", CONES)
def test_colours_are_told_apart_with_any_cones(cones):
    """The first six colours of lines, and the six large tensors, each pair at least 10 apart in CIE Lab."""
    for group in (COLOURS[:6], [TENSORS[name] for name in "QKVSPO"]):
        places = [seen(colour, np.array(CONES[cones])) for colour in group]
        pairs = {(group[i], group[j]): np.linalg.norm(places[i] - places[j]) for i in range(6) for j in range(i)}
        assert min(pairs.values()) >= 10, min(pairs, key=pairs.get)
