"""A chart as plain values: its lines, and the axes, ticks and colours that follow from them. chart_svg.py draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, log2, log10

from .colours import COLOURS, GREY, INK, SCHEDULES_SEEN

MOST_SEEN = 8  # points along x that are marked one by one
SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "bar")
AXIS_TITLES = {
    "N": "N, queries", "Nk": "Nk, keys", "d": "d, head dimension", "M_bytes": "M, bytes of SRAM",
    "ranks": "P, GPUs", "mean_received_words": "words that a GPU receives, mean",
    "M_words": "M, words of SRAM", "total": "traffic, words", "reads": "reads, words", "writes": "writes, words",
    "total_bytes": "traffic, bytes", "read_bytes": "read, bytes", "write_bytes": "written, bytes",
    "flops": "floating-point operations", "sram_peak_bytes": "SRAM needed, bytes",
    "sram_peak_words": "SRAM needed, words", "ratio_to_order": "traffic / (N²d²/M)",
    "ratio_to_standard": "traffic / standard attention's", "ratio_to_floor": "traffic / floor",
    "intensity": "matrix operations a byte; marks from the left: shared memory, L2, HBM",
    "flops_per_second": "matrix operations a second",
    "microseconds": "time, microseconds", "Br": "Br, query rows a tile", "Bc": "Bc, key rows a tile",
}  # fmt: skip


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart.

    `kind` is data (counted), floor (no traffic lies below it), order (proven except for an unknown constant) or roof
    (nothing lies above it; its name stands on it). `fits` is False for points that need more SRAM than there is.
    """

    label: str
    x: list[float]
    y: list[float]
    fits: list[bool]
    kind: str = "data"
    key: str = ""
    """The name that decides the colour, such as the schedule; the label unless given."""

    @classmethod
    def of(cls, label: str, points: Mapping[float, float], kind: str = "data", key: str = "") -> ChartLine:
        """The line through points {x: y}, which all fit."""
        return cls(label, [*points], [*points.values()], [True] * len(points), kind, key)

    @property
    def name(self) -> str:
        """The name that decides the colour."""
        return self.key or self.label


Limits = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """A chart. With `steps`, a value holds until the next x.

    `shaded` are the labels of two lines with the same x; the chart is shaded between them. `frame` are the limits of
    the axes, if the data do not decide them.
    """

    title: str
    x_name: str
    y_name: str
    lines: list[ChartLine]
    steps: bool = False
    shaded: tuple[str, str] | None = None
    frame: dict[str, Limits] | None = None

    def line(self, label: str) -> ChartLine:
        """The line with a label."""
        return next(line for line in self.lines if line.label == label)

    @property
    def x_label(self) -> str:
        """The name of the x axis, with its unit."""
        return AXIS_TITLES.get(self.x_name, self.x_name)

    @property
    def y_label(self) -> str:
        """The name of the y axis, with its unit."""
        return AXIS_TITLES.get(self.y_name, self.y_name)

    def span(self, axis: str, only: str = "") -> tuple[float, float]:
        """The least and the greatest value on an axis (`x` or `y`), of all lines or of one kind only."""
        values = [v for line in self.lines if not only or line.kind == only for v in getattr(line, axis)]
        return min(values), max(values)

    @property
    def seen_points(self) -> list[float]:
        """The x of the counted points, if they are few enough to be seen one by one; else nothing. The lines of a
        roofline have no such points."""
        x = sorted({x for line in self.lines if line.kind == "data" for x in line.x})
        return x if 1 < len(x) <= MOST_SEEN and not self.steps and self.x_name != "intensity" else []

    def around(self, x: float) -> Chart:
        """The chart with an x axis that goes from at least x / 2 to at least 2 x, whether a line does or not."""
        low, high = self.limits("x")
        return replace(self, frame={"x": (min(low, x / 2), max(high, 2 * x)), "y": self.limits("y")})

    def is_log(self, axis: str) -> bool:
        """Whether an axis is logarithmic: its values are positive and span a factor of 8 or more."""
        low, high = self.frame[axis] if self.frame else self.span(axis)
        return low > 0 and high >= 8 * low

    def ticks(self, axis: str) -> list[tuple[float, str]]:
        """(value, text) of each tick. The ticks of x are the counted points if these are few. Otherwise a logarithmic x
        has powers of two. A logarithmic y has powers of ten, or 1, 2, 5 between them. Linear axes have round steps."""
        low, high = self.limits(axis)
        name = self.x_name if axis == "x" else self.y_name
        if axis == "x" and self.seen_points:
            return [(x, size(int(x)) if name.endswith("bytes") else number(x)) for x in self.seen_points]
        if not self.is_log(axis):
            return [(v, number(v)) for v in round_steps(low, high)]
        if axis == "x":
            step = max(1, round((log2(high) - log2(low)) / 7))
            powers = range(ceil(log2(low) - 1e-9), floor(log2(high) + 1e-9) + 1, step)
            return [(2.0**k, size(2**k) if name.endswith("bytes") else number(2.0**k)) for k in powers]
        factors = (1,) if high > 300 * low else (1, 2, 5) if high > 12 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
        decades = range(floor(log10(low)), ceil(log10(high)) + 1)
        return [(f * 10.0**k, power(f, k)) for k in decades for f in factors if low <= f * 10.0**k <= high]

    def limits(self, axis: str) -> tuple[float, float]:
        """The ends of an axis. The y axis has some room above and below, and lines of kind order do not stretch it."""
        if self.frame:
            return self.frame[axis]
        low, high = self.span(axis, "" if axis == "x" else "data")
        floors = [v for line in self.lines if line.kind == "floor" for v in getattr(line, axis)]
        low = min([low, *floors])
        if axis == "x":
            return low, high if high > low else low + 1
        if self.is_log(axis):
            return low / 1.25, high * 1.25
        return min(0.0, low), high * 1.08 or 1.0


INKED = "least"  # the key of the line in ink
TINTS = (1.0, 0.5, 0.3)  # opacity of lines of the same key, the first, second and later ones


def colours(lines: Sequence[ChartLine]) -> list[str]:
    """A colour for each line: grey for floors and orders, and the palette for data, one colour for each key. A schedule
    of SCHEDULES_SEEN has the same colour in every picture; others get those that are left, in their order."""
    keys = dict.fromkeys(line.name for line in lines if line.kind == "data" and line.name != INKED)
    known = {name: COLOURS[k] for k, name in enumerate(SCHEDULES_SEEN) if name in keys}
    kept = len(SCHEDULES_SEEN)
    left = [colour for colour in (*COLOURS[kept:], *COLOURS[:kept]) if colour not in known.values()]
    others = [name for name in keys if name not in known]
    palette = known | {name: left[k % len(left)] for k, name in enumerate(others)} | {INKED: INK}
    return [palette[line.name] if line.kind == "data" else GREY for line in lines]


def tints(lines: Sequence[ChartLine]) -> list[float]:
    """The opacity of each line: lines of the same colour differ in it, those of the same label do not."""
    labels: dict[str, list[str]] = {}
    for line in lines:
        known = labels.setdefault(line.name, [])
        known += [line.label] * (line.label not in known)
    return [TINTS[min(labels[line.name].index(line.label), len(TINTS) - 1)] for line in lines]


def shapes(lines: Sequence[ChartLine]) -> dict[str, str]:
    """The shape of the marks of each label of data, so that lines are told apart without colours."""
    labels = dict.fromkeys(line.label for line in lines if line.kind == "data")
    return {label: SHAPES[k % len(SHAPES)] for k, label in enumerate(labels)}


def spread_labels(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels: those given, moved at least `gap` apart. They keep their order, and stay within [low, high] if
    there is room."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    found = list(places)
    for before, k in zip([None, *order], order, strict=False):
        found[k] = max(found[k], low if before is None else found[before] + gap)
    top = high
    for k in reversed(order):
        found[k] = min(found[k], top)
        top = found[k] - gap
    return found


def stride_apart(places: list[tuple[float, float]], gap: float) -> int:
    """The least k for which every k-th of these (left, right) ends at least `gap` before the next one begins."""
    strides = range(1, max(2, len(places)))
    return next((k for k in strides if all(a[1] + gap <= b[0] for a, b in pairwise(places[::k]))), len(places) or 1)


def round_steps(low: float, high: float) -> list[float]:
    """About six round numbers, evenly spaced from low to high."""
    raw = (high - low) / 6
    unit = 10.0 ** floor(log10(raw))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= raw)
    return [k * step for k in range(ceil(low / step), floor(high / step) + 1)]


def number(value: float) -> str:
    """A number as a tick shows it."""
    if abs(value) < 1e6:
        return f"{value:.15g}"
    exponent = floor(log10(abs(value)))
    return power(value / 10.0**exponent, exponent)


def power(factor: float, exponent: int) -> str:
    """The number factor x 10^exponent as text; plain digits below 10^4."""
    if 0 <= exponent < 4:
        return f"{factor * 10**exponent:g}"
    text = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return text if factor == 1 else f"{factor:.3g}·{text}"


def size(value: int) -> str:
    """Bytes in the largest binary unit that is at most the size: `1.5 KiB`."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value} B"
