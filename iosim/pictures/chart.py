"""A chart as plain values: its lines, and the axes, ticks and colours that follow from them.

`pictures/matplotlib_chart.py` draws it to a file, `pictures/svg_chart.py` for a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2, log10

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; neighbours here differ most.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")
AXIS_TITLES = {
    "N": "N, queries", "Nk": "Nk, keys", "d": "d, head dimension", "M_bytes": "M, bytes of SRAM",
    "M_words": "M, words of SRAM", "total": "traffic, words", "reads": "reads, words", "writes": "writes, words",
    "total_bytes": "traffic, bytes", "read_bytes": "read, bytes", "write_bytes": "written, bytes",
    "flops": "floating-point operations", "sram_peak_bytes": "SRAM needed, bytes",
    "sram_peak_words": "SRAM needed, words", "ratio_to_bound": "traffic / (N²d²/M)",
    "ratio_to_standard": "traffic / standard attention's", "ratio_to_floor": "traffic / floor",
    "Br": "Br, query rows a tile", "Bc": "Bc, key rows a tile",
}  # fmt: skip


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart.

    `kind` is data (counted), floor (no traffic lies below it) or order (proven except for an unknown constant). `fits`
    is False for points that need more SRAM than there is.
    """

    label: str
    x: list[float]
    y: list[float]
    fits: list[bool]
    kind: str = "data"


@dataclass(frozen=True)
class Chart:
    """A chart. With `steps`, a value holds until the next x."""

    title: str
    x_name: str
    y_name: str
    lines: list[ChartLine]
    steps: bool = False

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

    def is_log(self, axis: str) -> bool:
        """Whether an axis is logarithmic: its values are positive and span a factor of 8 or more."""
        low, high = self.span(axis)
        return low > 0 and high >= 8 * low

    def ticks(self, axis: str) -> list[tuple[float, str]]:
        """(value, text) of each tick. On logarithmic axes, x has powers of two and y powers of ten, or 1, 2, 5 between
        them; linear axes have round steps."""
        low, high = self.limits(axis)
        name = self.x_name if axis == "x" else self.y_name
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
        low, high = self.span(axis, "" if axis == "x" else "data")
        floors = [v for line in self.lines if line.kind == "floor" for v in getattr(line, axis)]
        low = min([low, *floors])
        if axis == "x":
            return low, high if high > low else low + 1
        if self.is_log(axis):
            return low / 1.25, high * 1.25
        return min(0.0, low), high * 1.08 or 1.0


def colours(lines: list[ChartLine]) -> list[str]:
    """A colour for each line: grey for floors and orders, colours of the palette for data."""
    found, used = [], 0
    for line in lines:
        found.append(COLOURS[used % len(COLOURS)] if line.kind == "data" else "#767676")
        used += line.kind == "data"
    return found


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


def round_steps(low: float, high: float) -> list[float]:
    """About six round numbers, evenly spaced from low to high."""
    raw = (high - low) / 6
    unit = 10.0 ** floor(log10(raw))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= raw)
    return [k * step for k in range(ceil(low / step), floor(high / step) + 1)]


def number(value: float) -> str:
    """A number as a tick shows it."""
    return f"{value:.15g}" if abs(value) < 1e6 else power(value / 10 ** floor(log10(value)), floor(log10(value)))


def power(factor: float, exponent: int) -> str:
    """The number factor x 10^exponent as text; plain digits below 10^4."""
    if 0 <= exponent < 4:
        return f"{factor * 10**exponent:g}"
    text = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return text if factor == 1 else f"{factor:.3g}·{text}"


def size(value: int) -> str:
    """Bytes in the largest unit of 1024s that is at most the size: `1.5 KiB`."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value} B"
