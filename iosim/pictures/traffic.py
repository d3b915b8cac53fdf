"""Charts of traffic: against M, N or another column of a sweep, with what is proven beside it."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from ..errors import InputError, suggestion
from ..units import LARGEST_COUNT, parse_count
from .chart import NAMES, Chart, Line, size

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
    from ..counting import sweep
    from ..schedules import find

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
    plan = sweep.build(values, schedules, tiles, multiple, **options)
    import pandas as pd

    rows = pd.concat(list(sweep.chunks(plan)), ignore_index=True)
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
    from ..units import dtype_bytes

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

    from ..core.problem import Attention
    from ..counting.bounds import compulsory_words, order_words

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
        from ..errors import MissingError

        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    except (OSError, ValueError) as error:
        raise InputError("file", file, "a CSV, JSON lines or Parquet file of rows", str(error).split("\n")[0]) from None
