"""Counts of a sweep: tidy rows from one folded walk over arrays for each schedule and chunk of grid points.

Imports NumPy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict, TypeVar, cast

import numpy as np

from ..cells import Cells, Chunk, are_none
from ..core.arrays import keep_freed_memory
from ..core.options import NUMBERS, find_option
from ..core.problem import DENSE, Attention, narrowed
from ..core.tiling import Tiling, paper_tiles, rule_name
from ..hardware import load
from ..schedules import SCHEDULES, Schedule, require
from ..search.best import search
from .bounds import APART, order_words
from .columns import COLUMNS, DIVIDED, TIMED, types_of_count
from .floor_arrays import ONE_BY_ONE, floor_words, one_by_one
from .result import RESULT, Result, more_sizes
from .run import measure, named_tiles, run, with_plain_keys
from .sweep_axes import Runs, Sweep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..answer import Type
    from ..cells import Floats, Whole
    from ..core.mask_types import Mask
    from ..core.tiling import Rule
    from ..core.typing import Size, Test
    from .typing import Counted

    Labels = NDArray[np.str_]

T = TypeVar("T")
CHUNK_ROWS = 16_384  # rows of a chunk, approximately
SLOW_POINTS = 256  # grid points of a chunk if they are counted one by one
PART_ROWS = 2**17  # rows of a part: about a second of counting, and 20 MB of CSV
SLOW_PART_ROWS = 2**12  # rows of a part if its points are counted one by one, which may take milliseconds each

CellValues = dict[str, object]
"""Columns of one schedule and tile rule: an array with a cell for each grid point, or one value for all."""


class Sizes(TypedDict):
    """Sizes of the grid points of a chunk, as `Attention` takes them."""

    N: Size
    d: Size
    Nk: NotRequired[Size]
    batch: NotRequired[Size]
    heads: NotRequired[Size]
    kv_heads: NotRequired[Size]
    dv: NotRequired[Size]


class Question(NamedTuple):
    """The problems of a chunk in arrays, with what is counted of them: the arguments of `rows_of`."""

    problem: Attention[Size]
    M_bytes: Whole | None
    runs: Runs
    multiple: int
    names: Sequence[str]
    """The columns to show."""
    chips: Labels | None
    """The names of the presets whose M these are."""
    timed: bool
    """Whether the least time on these presets is asked, which decides which tiles are best."""


class Chunks:
    """The rows of a sweep in numbered chunks, of about CHUNK_ROWS rows at most.

    They are in grid order: schedules and tile rules run fastest, then the sizes (the last axis, which is that of M,
    first), then masks, types, options and tile multiples. The grid is never listed, so any chunk of 10^9
    points is counted without those before it. A chunk and its bytes are the same on every machine.
    """

    def __init__(self, plan: Sweep):
        keep_freed_memory()
        self.plan, self.shown = plan, plan.shown
        self.runs = [plan.runs(mask) for mask in plan.masks]
        axes = {name: values for name, values in plan.sizes.items() if values is not None}
        self.axes = {name: axis_array(values) for name, values in axes.items()}
        self.lengths = [1 if values is None else len(values) for values in plan.sizes.values()]
        self.total = prod(self.lengths)
        self.points = [
            points_of_chunk(mask, runs, plan.timed) for mask, runs in zip(plan.masks, self.runs, strict=True)
        ]
        self.ends = list(accumulate(-(-self.total // points) for points in self.points))
        self.row_ends = list(accumulate(self.total * len(runs) for runs in self.runs))

    unit = "rows"

    @property
    def types(self) -> dict[str, Type]:
        """The type of each column that a row may have, by its name."""
        return types_of_count()

    @property
    def int64(self) -> bool:
        """Whether int64 holds all counts."""
        return in_int64(self.plan)

    def __len__(self) -> int:
        return self.ends[-1] * len(self.plan.options) * len(self.plan.types) * len(self.plan.multiples)

    @property
    def most_rows(self) -> int:
        """The rows of the largest chunk."""
        return max(points * len(runs) for points, runs in zip(self.points, self.runs, strict=True))

    def rows_of_part(self, asked: int = 0) -> int:
        """The rows of a part, rounded to whole chunks: `asked`, or the usual number if it is 0. A part has at least one
        chunk."""
        slow = SLOW_POINTS in self.points
        return max(self.most_rows, asked or (SLOW_PART_ROWS if slow else PART_ROWS))

    def __iter__(self) -> Iterator[Chunk]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> Chunk:
        return rows_of(*self.question(number))

    def with_problems(self, number: int) -> tuple[Chunk, list[Attention]]:
        """(a chunk, the problem that each of its rows counts)."""
        question = self.question(number)
        rows = rows_of(*question)
        points = problems_of(question.problem, len(rows) // len(question.runs))
        return rows, [point for point in points for _ in question.runs]

    def question(self, number: int) -> Question:
        """The problems of a chunk, with what is counted of them."""
        plan, (outer, at) = self.plan, divmod(number, self.ends[-1])
        outer, kind = divmod(outer, len(plan.types))
        dtype, acc = plan.types[kind]
        which, options = divmod(outer, len(plan.options))
        place, start = self.place_of_chunk(at)
        index = np.unravel_index(np.arange(start, min(self.total, start + self.points[place])), self.lengths)
        places = dict(zip(plan.sizes, index, strict=True))
        picked = {name: values[places[name]] for name, values in self.axes.items()}
        M_bytes = picked.pop("M", None)
        chips = np.array(plan.hardware)[places["M"]] if plan.hardware else None
        sizes = cast("Sizes", picked)
        problem = Attention(**sizes, dtype=dtype, acc_dtype=acc, mask=plan.masks[place], **plan.options[options])
        return Question(problem, M_bytes, self.runs[place], plan.multiples[which], self.shown, chips, plan.timed)

    def place_of_chunk(self, at: int) -> tuple[int, int]:
        """(the index of the mask, the first grid point) of a chunk, among the points with the same types and
        options."""
        place = bisect_right(self.ends, at)
        return place, (at - (self.ends[place - 1] if place else 0)) * self.points[place]

    def first_row(self, number: int) -> int:
        """The number of rows before a chunk."""
        outer, at = divmod(number, self.ends[-1])
        before = outer * self.row_ends[-1]
        if at == 0:
            return before
        place, start = self.place_of_chunk(at)
        return before + (self.row_ends[place - 1] if place else 0) + start * len(self.runs[place])

    def at_row(self, row: int) -> int:
        """The first chunk that begins at this row or after it."""
        outer, rest = divmod(row, self.row_ends[-1])
        place = bisect_right(self.row_ends, rest)
        rest -= self.row_ends[place - 1] if place else 0
        chunk = -(-rest // (self.points[place] * len(self.runs[place])))
        before = self.ends[place - 1] if place else 0
        return min(len(self), outer * self.ends[-1] + min(self.ends[place], before + chunk))


def points_of_chunk(mask: Mask, runs: Runs, timed: bool = False) -> int:
    """The grid points of a chunk: fewer if each needs its own walk, so that a chunk takes seconds at most."""
    if timed or not all(in_arrays(mask, *one) for one in runs):
        return SLOW_POINTS
    return max(1, CHUNK_ROWS // max(1, len(runs)))


def axis_array(values: list[int]) -> Whole:
    """The values of an axis as an array."""
    return np.array(values, dtype=np.int64 if max(values) < 2**62 else object)


def rows_of(
    problem: Attention[Size],
    M_bytes: Whole | None,
    runs: Runs,
    multiple: int,
    names: Sequence[str],
    chips: Labels | None = None,
    timed: bool = False,
) -> Chunk:
    """The rows of one chunk: integers stay integers, and unknown cells stay empty. `chips` are names of presets."""
    length = len(np.atleast_1d(problem.N))
    on = chips if timed else None
    results = run_all(problem, M_bytes, runs, multiple, length, "ratio_to_floor" in names, on)
    base = {name: getattr(problem, name) for name in names if find_option(name)}
    base |= {"mask": str(problem.mask), "M_bytes": M_bytes, "tile_multiple": multiple, "hardware": chips}
    base["M_words"] = None if M_bytes is None else M_bytes // problem.word_bytes
    types, columns = types_of_count(), {}
    for name in names:
        if name in base:
            columns[name] = constant_column(base[name], length, len(runs))
        elif name in ("schedule", "tiling"):
            columns[name] = labels_column([str(r[name]) for r in results], length)
        else:
            columns[name] = interleave([cell(r, name) for r in results], length, types[name])
    return Chunk(columns)


def cell(values: CellValues, name: str) -> object:
    """The cells of a column: what was counted, or what the column makes of it."""
    if name in values or name not in OF_RESULTS:
        return values[name]
    return OF_RESULTS[name].value(cast("Result", SimpleNamespace(**values)))


OF_RESULTS = {column.name: column for column in RESULT if column.of is not None}


def constant_column(value: object, length: int, runs: int) -> Cells:
    """A column that is the same for all runs of a grid point; None is an empty cell."""
    if isinstance(value, str):
        return Cells.full(np.zeros(length * runs, np.int8), (value,))
    if value is None:
        return with_gaps(None, length * runs)
    return Cells.full(np.repeat(np.broadcast_to(np.asarray(value), (length,)), runs))


def labels_column(texts: list[str], length: int) -> Cells:
    """A column of texts: one for each run, the same at all grid points."""
    labels = tuple(dict.fromkeys(texts))
    return Cells.full(np.tile(np.array([labels.index(text) for text in texts], np.int8), length), labels)


def interleave(parts: list[object], length: int, kind: Type) -> Cells:
    """A column of all runs, one after the other for each grid point; None is an empty cell."""
    if kind == "string":
        texts = np.stack([np.broadcast_to(np.asarray(x, object), (length,)) for x in parts], axis=1).ravel()
        return Cells(texts, are_none(texts))
    filled = [with_gaps(x, length) for x in parts]
    merged = np.stack([part.values for part in filled], axis=1).ravel()
    absent = np.stack([part.absent for part in filled], axis=1).ravel()
    if kind == "number":
        merged = np.where(absent, np.nan, merged).astype(float, copy=False)
        return Cells(merged, np.isnan(merged))
    if kind == "boolean":
        merged = merged.astype(bool, copy=False)
    elif merged.dtype == object and max(cast("Whole", merged), default=0) < 2**63:
        merged = merged.astype(np.int64)
    elif merged.dtype == object:
        merged = np.where(absent, np.array(None, object), merged)
    return Cells(merged, absent)


def with_gaps(cells: object, length: int) -> Cells:
    """Cells of a column, one for each grid point, with anything in the empty ones. None is an empty cell."""
    if isinstance(cells, Cells):
        return Cells(np.broadcast_to(cells.values, (length,)), np.broadcast_to(cells.absent, (length,)))
    if cells is None:
        return Cells(np.zeros(length, np.int64), np.ones(length, bool))
    values = np.broadcast_to(np.asarray(cells), (length,))
    if values.dtype != object:
        return Cells.full(values)
    absent = are_none(values)
    return Cells(np.where(absent, 0, values), absent)


def run_all(
    problem: Attention[Size],
    M_bytes: Whole | None,
    runs: Runs,
    multiple: int,
    length: int,
    with_floor: bool,
    chips: Labels | None = None,
) -> list[CellValues]:
    """The results of all runs, in arrays if possible, else point by point. In arrays the ratio to the floor is computed
    only `with_floor`, because under a mask the floor may take longer than the counts."""
    results: dict[tuple[Schedule, Rule], CellValues] = {}
    together = [one for one in runs if chips is None and in_arrays(problem.mask, *one)]
    single = [one for one in runs if one not in together]
    if together:
        results |= zip(together, run_in_arrays(problem, M_bytes, together, multiple, with_floor), strict=True)
    if single:
        results |= zip(single, run_by_point(problem, M_bytes, single, multiple, length, chips), strict=True)
    return [results[one] for one in runs]


def in_arrays(mask: Mask, schedule: Schedule, rule: Rule) -> bool:
    """Whether one walk can count all grid points. A schedule that states its candidates takes one problem at a
    time."""
    if (schedule.candidates or schedule.sizes) and (rule == "best" or mask is not DENSE):
        return False
    return mask is DENSE or bool(mask.counts_arrays)


def run_by_point(
    problem: Attention[Size],
    M_bytes: Whole | None,
    runs: Runs,
    multiple: int,
    length: int,
    chips: Labels | None = None,
) -> list[CellValues]:
    """The results of runs with one walk for every grid point, each on its preset if there are `chips`."""
    presets = {} if chips is None else {str(name): load(str(name)) for name in set(chips.tolist())}
    columns: list[list[Result]] = [[] for _ in runs]
    for k, point in enumerate(problems_of(problem, length)):
        M = None if M_bytes is None else int(M_bytes[k])
        for column, (schedule, rule) in zip(columns, runs, strict=True):
            column.append(run(schedule, rule, point, M, multiple, None if chips is None else presets[str(chips[k])]))
    out = []
    for (schedule, _), column in zip(runs, columns, strict=True):
        names = [c for c in (*COLUMNS, *TIMED, *DIVIDED) if c not in ("schedule", "tiling") and hasattr(column[0], c)]
        cells: CellValues = {n: np.array([getattr(r, n) for r in column], object) for n in names}
        cells["more_tiles"] = np.array([more_sizes(r.more_tiles) for r in column], object)
        out.append({"schedule": schedule.name, "tiling": column[0].tiling, **cells})
    return out


def problems_of(problem: Attention[Size], length: int) -> list[Attention]:
    """The `length` problems in arrays. Equal ones are the same object."""
    sizes = [*zip(*(np.broadcast_to(getattr(problem, name), (length,)).tolist() for name in NUMBERS), strict=True)]
    made = {one: narrowed(cast("Attention", problem), **dict(zip(NUMBERS, one, strict=True))) for one in set(sizes)}
    return [made[one] for one in sizes]


def part_of(problem: Attention[Size], part: slice[int, int, None]) -> Attention[Size]:
    """The problems of a slice of those in arrays."""
    arrays = {name: size for name in NUMBERS if isinstance(size := getattr(problem, name), np.ndarray)}
    return narrowed(problem, **{name: size[part] for name, size in arrays.items()})


def run_in_arrays(
    problem: Attention[Size], M_bytes: Whole | None, runs: Runs, multiple: int, with_floor: bool
) -> list[CellValues]:
    """The results of runs with one walk for the whole chunk. Counts are Python integers if int64 might be too small."""
    for schedule, _ in runs:
        require(schedule, cast("Attention", problem))
    if any(not fits_int64(p, schedule) for p in (problem, problem.packed) for schedule, _ in runs):
        sizes = {n: as_objects(getattr(problem, n)) for n in NUMBERS}
        problem = narrowed(problem, **sizes)
        M_bytes = as_objects(M_bytes)
    standard = measure(SCHEDULES["standard"], with_plain_keys(problem), Tiling(1, 1))["total"]
    length = len(np.atleast_1d(problem.N))
    floors: dict[str, Floats | None] = {}

    def least(family: str, need: Size | None, rows: Size) -> Floats | None:
        if family in ONE_BY_ONE:
            return one_by_one(problem, need if M_bytes is None else M_bytes, family, rows, length)
        if M_bytes is None and need is not None:
            return floor_words(problem, need, family, length)
        if family not in floors:
            floors[family] = floor_words(problem, M_bytes, family, length)
        return floors[family]

    return [
        cells_of(problem.packed, M_bytes, schedule, rule, multiple, standard, least if with_floor else None)
        for schedule, rule in runs
    ]


def as_objects(value: T) -> T:
    """An array of int64 as one of Python integers; anything else is returned as it is."""
    return cast("T", value.astype(object)) if isinstance(value, np.ndarray) else value


def fits_int64(problem: Attention[Size], schedule: Schedule) -> bool:
    """Whether int64 holds every count of a chunk: a walk at the largest sizes, without a mask, bounds them all."""
    names = ("N", "Nk", "d", "dv", "batch", "heads", "choice_rows")
    largest = {n: int(np.max(getattr(problem, n))) for n in names}
    largest["kv_heads"] = largest["heads"]
    worst = narrowed(cast("Attention", problem), mask=DENSE, **largest)
    counted = measure(schedule, worst, Tiling(1, 1))
    room = worst.instances * (worst.N + worst.Nk + 2) * (worst.N + worst.Nk + worst.d + worst.dv + 2)
    return 8 * max(counted["total_bytes"], counted["flops"], room, worst.N * worst.Nk * worst.d**2) < 2**63


def in_int64(plan: Sweep) -> bool:
    """Whether int64 holds every count of a sweep. The largest size of each axis decides it."""
    largest = {name: max(values) for name, values in plan.sizes.items() if values is not None and name != "M"}
    largest = {"Nk": largest["N"], "dv": largest["d"], **largest, "kv_heads": 1}
    problems = [
        narrowed(Attention(1, 1, dtype=dtype, acc_dtype=acc, **options), **largest)
        for options in plan.options
        for dtype, acc in plan.types
    ]
    schedules = {schedule for mask in plan.masks for schedule, _ in plan.runs(mask)}
    return all(fits_int64(p, s) for problem in problems for p in (problem, problem.packed) for s in schedules)


def cells_of(
    problem: Attention[Size],
    M_bytes: Whole | None,
    schedule: Schedule,
    rule: Rule,
    multiple: int,
    standard: Size,
    least: Callable[[str, Size | None, Size], Floats | None] | None,
) -> CellValues:
    """The results of one schedule and tile rule. `standard` are the words of standard attention; `least` computes the
    floor of a family, without M that of the bytes that tiles need."""
    tiling, nothing = tilings_of(problem, M_bytes, schedule, rule, multiple)
    counted = measure(schedule, problem, tiling)
    ideal, apart = rule == "ideal", schedule.family in APART
    row: CellValues = {name: value for name, value in counted.items() if name in (*COLUMNS, *DIVIDED)}
    row |= {"Br": None if ideal else tiling.rows_q, "Bc": None if ideal else tiling.rows_k}
    row["fits"] = fits = None if M_bytes is None else counted["smem_peak_bytes"] <= M_bytes
    row["limit"] = limits(fits, counted["least_smem_bytes"], M_bytes)
    row["ratio_to_standard"] = None if apart else counted["total"] / standard
    need = counted["smem_peak_bytes"]
    floor = None if least is None else least(schedule.family, None if ideal else need, tiling.rows_q)
    row["ratio_to_floor"] = None if floor is None else ratio_to_floor(counted["total"], floor, fits)
    room = need if M_bytes is None and not ideal else M_bytes
    row["ratio_to_order"] = None if room is None or apart else ratio_to_order(problem, room, counted)
    if np.any(nothing):
        gone = np.asarray(nothing, bool)
        limit = np.where(gone, np.array(None, object), np.asarray(row["limit"], object))
        row = {name: v if v is None else Cells(np.asarray(v), gone) for name, v in row.items()}
        row |= {"fits": np.asarray(fits, bool) & ~gone, "limit": limit}
    more = {name: size for name in schedule.more_tiles if (size := getattr(tiling, name)) is not None}
    label = rule_name(named_tiles(schedule, rule, cast("Attention", problem), M_bytes) or rule)
    return {"schedule": schedule.name, "tiling": label, **row, "more_tiles": more_sizes(more)}


def tilings_of(
    problem: Attention[Size], M_bytes: Whole | None, schedule: Schedule, rule: Rule, multiple: int
) -> tuple[Tiling[Size], Test]:
    """The tiles of a rule, and the grid points where no tiles fit, as booleans."""
    if rule == "ideal":
        return Tiling(1, 1), False
    if isinstance(rule, Tiling):
        return rule, False
    if (named := named_tiles(schedule, rule, cast("Attention", problem), M_bytes)) is not None:
        return named, False
    assert M_bytes is not None
    if rule == "best":
        tiling, found = search(schedule, problem, M_bytes, multiple)
        return tiling, np.logical_not(found)
    M_words = M_bytes // problem.word_bytes
    return paper_tiles(problem, np.where(M_words < 1, 1, M_words)), M_words < 1


def limits(fits: object, least_smem_bytes: Size, M_bytes: Whole | None) -> object:
    """`Result.limit` at each grid point: what is too small for the tiles; None where they fit."""
    if M_bytes is None:
        return None
    short = np.where(np.asarray(least_smem_bytes <= M_bytes), "registers", "shared memory")
    return np.where(np.asarray(fits), np.array(None, object), short.astype(object))


def ratio_to_order(problem: Attention[Size], M_bytes: Size, counted: Counted[Size]) -> Floats:
    """Words over N^2 d^2 / M; NaN if M holds no word."""
    M_words = cast("Whole", problem.on_chip_words(M_bytes))
    ratio = np.asarray(counted["total"] / order_words(problem, np.where(M_words < 1, 1, M_words)), float)
    return np.where(M_words < 1, np.nan, ratio)


def ratio_to_floor(total: Size, least: Floats, fits: object) -> Floats:
    """Words over the floor; NaN where a run does not fit, or where there is no floor."""
    ratio = np.asarray(total / least, float)
    return ratio if fits is None else np.where(np.asarray(fits, bool), ratio, np.nan)
