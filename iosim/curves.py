"""What a picture shows, apart from who draws it: lines, axes, ticks, labels. `plot.py` and `svg.py` draw it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2, log10
from typing import Any

from .errors import InputError, suggestion
from .units import LARGEST_COUNT, parse_count

# Okabe and Ito's colours, told apart with any kind of colour vision; the order keeps neighbours far apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")
NAMES = {
    "N": "N, queries", "Nk": "Nk, keys", "d": "d, head dimension", "M_bytes": "M, bytes of SRAM",
    "M_words": "M, words of SRAM", "total": "traffic, words", "reads": "reads, words", "writes": "writes, words",
    "total_bytes": "traffic, bytes", "read_bytes": "read, bytes", "write_bytes": "written, bytes",
    "flops": "floating-point operations", "sram_peak_bytes": "SRAM needed, bytes",
    "sram_peak_words": "SRAM needed, words", "ratio_to_bound": "traffic / (N²d²/M)",
    "ratio_to_standard": "traffic / standard attention's", "Br": "Br, query rows a tile", "Bc": "Bc, key rows a tile",
}  # fmt: skip
SPLITS = (
    "tiling",
    "schedule",
    "policy",
    "dtype",
    "acc_dtype",
    "mask",
    "d",
    "N",
    "Nk",
    "heads",
    "kv_heads",
    "batch",
    "M_bytes",
)
POINTS_AN_OCTAVE = 8
MOST_LINES = 24
OPTIONS = ("count_init", "lse", "keep_p", "elementwise", "splits", "page_size", "gqa")


@dataclass(frozen=True)
class Line:
    """`kind` is data, floor (nothing lies below) or order (a constant is unknown); `fits` is False where a point needs
    more SRAM than there is."""

    label: str
    x: list[float]
    y: list[float]
    fits: list[bool]
    kind: str = "data"


@dataclass(frozen=True)
class Chart:
    """With `steps`, a value holds until the next x."""

    title: str
    x_name: str
    y_name: str
    lines: list[Line]
    steps: bool = False

    @property
    def x_label(self) -> str:
        return NAMES.get(self.x_name, self.x_name)

    @property
    def y_label(self) -> str:
        return NAMES.get(self.y_name, self.y_name)

    def span(self, axis: str, only: str = "") -> tuple[float, float]:
        values = [v for line in self.lines if not only or line.kind == only for v in getattr(line, axis)]
        return min(values), max(values)

    def is_log(self, axis: str) -> bool:
        low, high = self.span(axis)
        return low > 0 and high >= 8 * low

    def ticks(self, axis: str) -> list[tuple[float, str]]:
        """(value, text): powers of two for sizes, decades for large counts, round steps where the axis is linear."""
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
        """With some room above and below; lines of an order alone do not stretch an axis."""
        low, high = self.span(axis, "" if axis == "x" else "data")
        floors = [v for line in self.lines if line.kind == "floor" for v in getattr(line, axis)]
        low = min([low, *floors])
        if axis == "x":
            return low, high if high > low else low + 1
        if self.is_log(axis):
            return low / 1.25, high * 1.25
        return min(0.0, low), high * 1.08 or 1.0


def colours(lines: list[Line]) -> list[str]:
    """One a line: grey for what is proven, the palette for what is counted."""
    found, used = [], 0
    for line in lines:
        found.append(COLOURS[used % len(COLOURS)] if line.kind == "data" else "#767676")
        used += line.kind == "data"
    return found


def spread(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places of labels, in their order, at least `gap` apart, within [low, high] as far as there is room."""
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
    """About six round numbers from low to high."""
    raw = (high - low) / 6
    unit = 10.0 ** floor(log10(raw))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= raw)
    return [k * step for k in range(ceil(low / step), floor(high / step) + 1)]


def number(value: float) -> str:
    return f"{value:.15g}" if abs(value) < 1e6 else power(value / 10 ** floor(log10(value)), floor(log10(value)))


def power(factor: float, exponent: int) -> str:
    if 0 <= exponent < 4:
        return f"{factor * 10**exponent:g}"
    text = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return text if factor == 1 else f"{factor:.3g}·{text}"


def size(value: int) -> str:
    """Bytes in 1024s, as short as they are exact."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value} B"


# ---------------------------------------------------------------- charts from rows


def from_rows(rows: Any, x: str, y: str, by: tuple[str, ...], steps: bool = False) -> Chart:
    """Lines of y against x, one for each value of `by`; split further by what else differs, until each x has one y."""
    for option, name in (("-x", x), ("-y", y), *(("--by", b) for b in by)):
        if name not in rows.columns:
            raise InputError(option, name, ", ".join(map(str, rows.columns)), suggestion(name, map(str, rows.columns)))
    for option, name in (("-x", x), ("-y", y)):
        if rows[name].dtype.kind not in "iuf":
            raise InputError(option, name, "a column of numbers")
    known = rows.dropna(subset=[x, y])
    if known.empty:
        raise InputError("rows", "none", f"rows with {x} and {y}")
    names = list(by)
    for column in (c for c in SPLITS if c in rows.columns and c not in (x, y, *by)):
        if known.duplicated([x, *names]).any() and known[column].nunique() > 1:
            names.append(column)
    if known.duplicated([x, *names]).any():
        raise InputError("--by", ",".join(names), f"columns that leave one {y} for each {x}")
    order = rows.groupby(names, sort=False, dropna=False).ngroup() if names else rows[x] * 0  # empty ones keep a place
    groups = [(key, group) for key, group in known.groupby(order.loc[known.index])]
    if len(groups) > MOST_LINES:
        raise InputError("--by", f"{len(groups)} lines", f"at most {MOST_LINES}", "take fewer rows, or another --by")
    lines = [line_of(names, group.sort_values(x), x, y) for _, group in groups]
    return Chart(f"{NAMES.get(y, y)}, against {NAMES.get(x, x)}", x, y, lines, steps)


def line_of(names: list[str], group: Any, x: str, y: str) -> Line:
    fits = [bool(f) for f in group["fits"].fillna(True)] if "fits" in group.columns else [True] * len(group)
    first = group.iloc[0]
    label = ", ".join(part(name, first[name]) for name in names if first[name] != "ideal") or NAMES.get(y, y)
    return Line(label + ("" if any(fits) else " (does not fit)"), group[x].tolist(), group[y].tolist(), fits)


def part(name: str, value: Any) -> str:
    if name in ("schedule", "policy", "dtype", "mask"):
        return str(value)
    return (
        f"{value} tiles"
        if name == "tiling"
        else f"M = {size(int(value))}"
        if name == "M_bytes"
        else f"{name} = {value}"
    )


def traffic(
    values: dict[str, Any], schedules: tuple[str, ...] = (), tiles: str | None = None, multiple: Any = 1
) -> Chart:
    """Words of each schedule against M, or against N where N is an axis, with what is proven beside them."""
    from . import grid
    from .schedules import find

    values = dict(values)
    sizes = values.get("N"), values.get("M")
    many = [name for name in ("N", "M") if any(c in str(values.get(name, "")) for c in ",:")]
    if len(many) > 1:
        raise InputError("--N, --M", f"{sizes[0]} and {sizes[1]}", "several values of one of them")
    options = {k: values.pop(k) for k in OPTIONS if k in values}
    against = many[0] if many else "M"
    if not many:
        if values.get("M") is not None:
            raise InputError("--M", values["M"], "several values, as 16KB:1MB:x2, or none", "or several --N")
        values["M"] = octaves(values)
    limits = {"elementwise": (0, 10_000), "splits": (1, LARGEST_COUNT), "page_size": (1, LARGEST_COUNT)}
    for name, (least, most) in limits.items():
        if name in options:
            options[name] = parse_count(options[name], "--" + name.replace("_", "-"), least, most)
    plan = grid.build(values, schedules, tiles, multiple, **options)
    import pandas as pd

    rows = pd.concat(list(grid.chunks(plan)), ignore_index=True)
    x = "M_bytes" if against == "M" else "N"
    chart = from_rows(rows, x, "total", ("schedule",))
    mask = str(rows["mask"].iloc[0])
    attention = {find(name).family for name in rows["schedule"].unique()} == {"attention"}
    return Chart(
        title_of(rows, x), x, "total", [*chart.lines, *(proven(rows, x) if attention and mask == "dense" else [])]
    )


def title_of(rows: Any, x: str) -> str:
    """What is the same all along the lines."""
    import pandas as pd

    row = rows.iloc[0]
    about = [f"N = {row['N']}"] * (x != "N") + [f"d = {row['d']}", str(row["dtype"])]
    if x == "N" and pd.notna(row["M_bytes"]):
        about.append(f"M = {size(int(row['M_bytes']))}")
    mask = [] if row["mask"] == "dense" else [f"mask {row['mask']}"]
    return "Words moved between HBM and SRAM: " + ", ".join([*about, *mask])


def octaves(values: dict[str, Any]) -> list[int]:
    """Sizes of SRAM in bytes, from where tiles of a few rows fit to where a whole K and V do."""
    from .units import dtype_bytes

    N, d = (parse_count(values.get(name) or "", f"--{name}") for name in ("N", "d"))
    word = dtype_bytes(str(values.get("dtype") or "fp16"))
    low = ceil(log2(8 * d * word))
    high = max(low + 4, min(60, ceil(log2(4 * N * d * word))))
    return sorted(
        {round(2 ** (k / POINTS_AN_OCTAVE)) for k in range(low * POINTS_AN_OCTAVE, high * POINTS_AN_OCTAVE + 1)}
    )


def proven(rows: Any, x: str) -> list[Line]:
    """The floor, and the order of Theorem 2 where it holds (d <= M <= Nd)."""
    import pandas as pd

    from .bounds import compulsory_words, order_words
    from .problem import Attention

    points = rows.drop_duplicates(x).sort_values(x)
    names = ("N", "Nk", "d", "batch", "heads", "kv_heads")
    found: list[tuple[float, int, float | None]] = []
    for row in points.to_dict("records"):
        numbers: dict[str, Any] = {name: int(row[name]) for name in names}
        p = Attention(**numbers)
        M = int(row["M_words"]) if pd.notna(row["M_words"]) else None
        order = order_words(p, M) if M and p.d <= M <= p.N * p.d else None
        found.append((float(row[x]), compulsory_words(p), order))
    floors = Line(
        "every tensor once (floor)", [f[0] for f in found], [f[1] for f in found], [True] * len(found), "floor"
    )
    inside = [(place, order) for place, _, order in found if order is not None]
    orders = Line("N²d²/M (order only)", [i[0] for i in inside], [i[1] for i in inside], [True] * len(inside), "order")
    return [floors, orders] if inside else [floors]


def read_rows(file: str) -> Any:
    """Rows of a CSV, JSON lines or Parquet file."""
    import pandas as pd

    try:
        if file.endswith(".parquet"):
            return pd.read_parquet(file)
        return pd.read_json(file, lines=True) if file.endswith((".jsonl", ".ndjson")) else pd.read_csv(file)
    except ImportError:
        from .errors import MissingError

        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    except (OSError, ValueError) as error:
        raise InputError("file", file, "a CSV, JSON lines or Parquet file of rows", str(error).split("\n")[0]) from None
