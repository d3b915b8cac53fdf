"""A sweep: one vectorised folded walk a schedule and chunk, tidy rows out. Imports NumPy, and pandas for tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from . import experiment
from .best_tiles import search
from .bounds import APART, order_words
from .errors import InputError
from .problem import DENSE, Attention
from .report import COLUMNS, OPTIONS, more_columns, more_sizes
from .schedules import SCHEDULES, Schedule, find_all, require
from .tiling import Tiling, paper_tiles, parse_tiles
from .units import MOST_POINTS, parse_axis, parse_bytes, parse_count

CHUNK = 16_384
AXES = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M")
NUMBERS = ("N", "Nk", "d", "batch", "heads", "kv_heads")
INTEGERS = tuple(c for c in COLUMNS if c not in ("dtype", "acc_dtype", "mask", "schedule", "tiling", "fits")
                 and not c.startswith("ratio"))  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """Axes (lists of values; an empty one means the default), schedules, tile rules, and options of `Attention`;
    the columns to show, in their order (empty: all)."""

    axes: dict[str, list[Any]]
    schedules: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    tile_multiple: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return int(np.prod([len(self.axes[name]) for name in AXES], dtype=object))

    def runs(self, mask: Any) -> list[tuple[Schedule, str]]:
        """The (schedule, tile rule) pairs of one grid point."""
        problem = Attention(1, 1, mask=mask)
        chosen = find_all(self.schedules) or experiment.default_schedules(problem)
        pairs = []
        for schedule in chosen:
            for tiles in self.tiles or (None,):
                pairs += [(schedule, rule) for rule in experiment.rules_of(schedule, tiles, problem)]
        return list(dict.fromkeys(pairs))

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of all chunks: those asked for, or all that a row depends on."""
        if self.columns:
            return self.columns
        runs = [run for mask in self.axes["mask"] for run in self.runs(mask)]
        return COLUMNS + more_columns(Attention(1, 1, **self.options), [s.more_tiles for s, _ in runs])

    @property
    def rows(self) -> int:
        masks = self.axes["mask"]
        return sum(self.points // len(masks) * len(self.runs(mask)) for mask in masks)


def build(
    values: dict[str, Any], schedules: Any = (), tiles: Any = None, tile_multiple: Any = 1, **options: Any
) -> Sweep:
    """Read axes from texts, numbers or lists; every fault is an InputError that names the option."""
    axes: dict[str, list[Any]] = {}
    for name in NUMBERS:
        where = "--" + name.replace("_", "-")
        axes[name] = read_axis(values.get(name), where, lambda text, where=where: parse_count(text, where))
    for name in ("N", "d"):
        if axes[name] == [None]:
            raise InputError(f"--{name}", "nothing", "an axis as in 1024,4096 or 1024:8192:x2")
    for name in ("dtype", "acc_dtype"):
        axes[name] = split(values.get(name)) or [None if name == "acc_dtype" else "fp16"]
    masks = values.get("mask")
    several = masks.split(";") if isinstance(masks, str) else masks or ["dense"]
    axes["mask"] = [experiment.parse_mask(m) for m in several]
    axes["M"] = [values.get("M")]
    multiple = parse_count(tile_multiple, "--tile-multiple")
    sweep = Sweep(axes, tuple(split(schedules)), tuple(split(tiles)), multiple, options)
    word = experiment.Attention(1, 1, dtype=axes["dtype"][0]).word_bytes
    axes["M"] = read_axis(values.get("M"), "--M", lambda text: parse_bytes(text, word))
    if any("el" in str(part).lower() for part in split(values.get("M"))) and len(axes["dtype"]) > 1:
        raise InputError("--M", values.get("M"), "bytes where there are several --dtype, since words differ in size")
    for mask in axes["mask"]:
        for schedule, rule in sweep.runs(mask):
            if rule not in ("ideal", *experiment.TILE_RULES):
                parse_tiles(rule, more=schedule.more_tiles, rules=True)
            elif rule != "ideal" and axes["M"] == [None]:
                raise InputError("--M", "nothing", "an axis as in 16KB:256KB:x2", "or give --tiles as 128x64")
    if sweep.points > MOST_POINTS:
        raise InputError("sweep", f"{sweep.points} grid points", f"at most {MOST_POINTS}")
    for dtype, acc in product(axes["dtype"], axes["acc_dtype"]):
        Attention(1, 1, dtype=dtype, acc_dtype=acc, **options)
    for heads, kv in product(axes["heads"], axes["kv_heads"]):
        Attention(1, 1, heads=heads or 1, kv_heads=kv)
    return sweep


def split(value: Any) -> list[str]:
    """`a,b` or a list of such, as a list without repetitions."""
    if value is None:
        return []
    values = [value] if isinstance(value, str | int) else list(value)
    return list(dict.fromkeys(part.strip() for v in values for part in str(v).split(",")))


def read_axis(value: Any, where: str, parse: Any) -> list[Any]:
    if value is None:
        return [None]
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int | str) and not isinstance(v, bool) for v in values):
        raise InputError(where, value, "whole numbers, or texts as in 1024:8192:x2")
    return list(dict.fromkeys(x for v in values for x in parse_axis(v, where, parse)))


def chunks(sweep: Sweep) -> Iterator[Any]:
    """DataFrames of at most about CHUNK rows, in grid order: the last axis runs fastest, then schedules and tilings."""
    lists = [sweep.axes[name] for name in NUMBERS] + [sweep.axes["M"]]
    lengths = [len(values) for values in lists]
    points = int(np.prod(lengths))
    for dtype, acc, mask in product(sweep.axes["dtype"], sweep.axes["acc_dtype"], sweep.axes["mask"]):
        runs = sweep.runs(mask)
        size = max(1, CHUNK // max(1, len(runs)))
        for start in range(0, points, size):
            index = np.unravel_index(np.arange(start, min(points, start + size)), lengths)
            columns = dict(zip((*NUMBERS, "M"), (pick(v, i) for v, i in zip(lists, index, strict=True)), strict=True))
            fixed = {"dtype": dtype, "acc_dtype": acc, "mask": mask, **sweep.options}
            yield frame(columns, fixed, runs, sweep.tile_multiple, sweep.shown)


def pick(values: list[Any], index: Any) -> Any:
    if values == [None]:
        return None
    exact = max(values) < 2**62
    return np.array(values, dtype=np.int64 if exact else object)[index]


def frame(
    columns: dict[str, Any], fixed: dict[str, Any], runs: list[tuple[Schedule, str]], multiple: int, names: Any
) -> Any:
    """One chunk as a DataFrame: integers stay integers, what is unknown stays empty."""
    import pandas as pd

    M_bytes = columns.pop("M")
    sizes: Any = {k: 1 if v is None and k in ("batch", "heads") else v for k, v in columns.items()}
    problem = Attention(**sizes, **fixed)
    length = len(np.atleast_1d(problem.N))
    results = count(problem, M_bytes, runs, multiple, length)
    base = {name: getattr(problem, name) for name in (*NUMBERS, "dtype", "acc_dtype", *OPTIONS)}
    base |= {"mask": str(problem.mask), "M_bytes": M_bytes, "tile_multiple": multiple}
    base["M_words"] = None if M_bytes is None else M_bytes // problem.word_bytes
    data = {}
    for name in names:
        if name in base:
            data[name] = spread(base[name], length, len(runs), name)
        else:
            data[name] = interleave([r[name] for r in results], length, name)
    return pd.DataFrame(data)


def spread(value: Any, length: int, runs: int, name: str) -> Any:
    import pandas as pd

    if isinstance(value, str):
        return pd.Categorical.from_codes(np.zeros(length * runs, np.int8), [value])
    if value is None:
        return pd.array([None] * (length * runs), dtype="Int64")
    return np.repeat(np.broadcast_to(np.asarray(value), (length,)), runs)


def interleave(parts: list[Any], length: int, name: str) -> Any:
    """Columns of several runs, one after the other for each grid point; None is an empty cell."""
    import pandas as pd

    if name == "more_tiles":
        return np.stack([np.broadcast_to(np.asarray(x, object), (length,)) for x in parts], axis=1).ravel()
    if name in ("schedule", "tiling"):
        labels = list(dict.fromkeys(parts))
        codes = np.array([labels.index(x) for x in parts], np.int8)
        return pd.Categorical.from_codes(np.tile(codes, length), labels)
    full = [np.full(length, None, object) if x is None else np.broadcast_to(np.asarray(x), (length,)) for x in parts]
    merged = np.stack(full, axis=1).ravel()
    if merged.dtype != object:
        return merged
    empty = np.array([x is None for x in merged], bool)
    if name == "fits":
        return pd.array(merged, dtype="boolean")
    if name.startswith("ratio"):
        return np.where(empty, np.nan, merged).astype(float)
    values = np.where(empty, 0, merged)
    if max(values, default=0) < 2**63:
        return pd.arrays.IntegerArray(values.astype(np.int64), empty)
    return merged


def count(problem: Attention, M_bytes: Any, runs: Any, multiple: int, length: int) -> list[dict[str, Any]]:
    """One result a run: in arrays; point by point where the mask, or a search of the schedule's own, asks for it."""
    results: dict[Any, Any] = {}
    for walk in (vector_runs, scalar_runs):
        some = [run for run in runs if in_arrays(problem.mask, *run) is (walk is vector_runs)]
        if some:
            results |= zip(some, walk(problem, M_bytes, some, multiple, length), strict=True)
    return [results[run] for run in runs]


def in_arrays(mask: Any, schedule: Schedule, rule: str) -> bool:
    if schedule.search and (rule == "best" or mask is not DENSE):
        return False
    return mask is DENSE or bool(mask.counts_arrays)


def scalar_runs(problem: Attention, M_bytes: Any, runs: Any, multiple: int, length: int) -> list[dict[str, Any]]:
    """One walk for every grid point."""
    rows: list[list[Any]] = [[] for _ in runs]
    for k in range(length):
        sizes: Any = {n: int(np.broadcast_to(getattr(problem, n), (length,))[k]) for n in (*NUMBERS, "dv")}
        point = replace(problem, **sizes)
        for column, (schedule, rule) in zip(rows, runs, strict=True):
            column.append(experiment.run(schedule, rule, point, None if M_bytes is None else int(M_bytes[k]), multiple))
    out = []
    for (schedule, _), column in zip(runs, rows, strict=True):
        names = [c for c in COLUMNS if c not in ("schedule", "tiling") and hasattr(column[0], c)]
        arrays = {n: np.array([getattr(r, n) for r in column], object) for n in names if n != "mask"}
        arrays["more_tiles"] = np.array([more_sizes(r.more_tiles) for r in column], object)
        out.append({"schedule": schedule.name, "tiling": column[0].tiling, **arrays})
    return out


def vector_runs(problem: Attention, M_bytes: Any, runs: Any, multiple: int, length: int) -> list[dict[str, Any]]:
    """One walk for the whole chunk; in Python integers where int64 might not hold the counts."""
    for schedule, _ in runs:
        require(schedule, problem)
    if any(not fits_int64(p, schedule) for p in (problem, problem.packed) for schedule, _ in runs):
        problem = replace(problem, **{n: as_objects(getattr(problem, n)) for n in (*NUMBERS, "dv")})
        M_bytes = as_objects(M_bytes)
    standard = experiment.measure(SCHEDULES["standard"], problem, Tiling(1, 1))
    return [vector_run(problem.packed, M_bytes, schedule, rule, multiple, standard) for schedule, rule in runs]


def as_objects(value: Any) -> Any:
    return value.astype(object) if isinstance(value, np.ndarray) else value


def fits_int64(problem: Attention, schedule: Schedule) -> bool:
    """A walk at the largest sizes, in tiles of one row and without a mask, bounds every count of the chunk."""
    largest: Any = {n: int(np.max(getattr(problem, n))) for n in ("N", "Nk", "d", "dv", "batch", "heads")}
    worst = replace(problem, **largest, kv_heads=largest["heads"], mask=DENSE)
    counted = experiment.measure(schedule, worst, Tiling(1, 1))
    room = worst.instances * (worst.N + worst.Nk + 2) * (worst.N + worst.Nk + worst.d + worst.dv + 2)
    return 8 * max(counted["total_bytes"], counted["flops"], room, worst.N * worst.Nk * worst.d**2) < 2**63


def vector_run(
    problem: Attention, M_bytes: Any, schedule: Schedule, rule: str, multiple: int, standard: dict[str, Any]
) -> dict[str, Any]:
    label = rule if rule in ("ideal", *experiment.TILE_RULES) else "given"
    M_words: Any = None if M_bytes is None else M_bytes // problem.word_bytes
    nothing: Any = False
    tiling: Any
    if rule == "best":
        tiling, found = search(schedule, problem, M_bytes, multiple)
        nothing = np.logical_not(found)
    elif rule == "paper":
        nothing = M_words < 1
        tiling = paper_tiles(problem, np.where(nothing, 1, M_words))
    else:
        tiling = Tiling(1, 1) if rule == "ideal" else parse_tiles(rule, more=schedule.more_tiles)
    counted = experiment.measure(schedule, problem, tiling)
    row = {name: counted[name] for name in COLUMNS if name in counted}
    row |= {"Br": None if label == "ideal" else tiling.rows_q, "Bc": None if label == "ideal" else tiling.rows_k}
    row["fits"] = None if M_bytes is None else counted["sram_peak_bytes"] <= M_bytes
    apart = schedule.family in APART
    row["ratio_to_standard"] = None if apart else counted["total"] / standard["total"]
    row["ratio_to_bound"] = None
    if M_words is not None and not apart:
        ratio: Any = counted["total"] / order_words(problem, np.where(M_words < 1, 1, M_words))
        empty = np.full(ratio.shape, None, object)
        row["ratio_to_bound"] = ratio if (M_words >= 1).all() else np.where(M_words < 1, empty, ratio)
    if np.any(nothing):
        empty = np.full(np.shape(nothing), None, object)
        row = {k: v if v is None else np.where(nothing, empty, np.asarray(v, object)) for k, v in row.items()}
        row["fits"] = np.where(nothing, False, row["fits"])
    more = {name: size for name in schedule.more_tiles if (size := getattr(tiling, name)) is not None}
    return {"schedule": schedule.name, "tiling": label, **row, "more_tiles": more_sizes(more)}
