"""The HBM accesses of a schedule as a cache sees them: a sequence of objects.

A run that visits every tile leaves a list of tile moves. Tensors are row-major. They lie one after the other, and each
starts a new line. So in memory a tile is one or more runs of lines. Overlapping runs are cut into pieces, so that every
piece is always accessed as a whole and in order. These pieces are the objects. An access to a piece stands for accesses
to all of its lines. So a string of such accesses is much shorter than a string of lines, and holds the same
information.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.event_count import check_length, count_events
from ..core.machine import Machine
from ..core.shapes import Tile
from ..core.shapes import product as product_of
from ..core.watchers import Traffic
from ..errors import InputError, suggestion
from .granularities import GRANULARITIES

if TYPE_CHECKING:
    from ..core.machine import Block, ScheduleLike
    from ..core.problem import Attention
    from ..core.shapes import Shape
    from ..core.tiling import Tiling
    from ..core.typing import Bools, Size
    from .reuse_distance import Numbers
    from .trace_file import MovesOfFile

MOST_RUNS = 20_000_000
MOST_BYTES = 2**62  # of tensors, and of all that moves: int64 holds each place, and each sum of lines, bytes or tiles


class Moves(Traffic):
    """Records the tile moves of the tensors in `wanted` (of all if it is empty), and counts their traffic.

    A move is (tensor, is store, row, rows, column, columns). All moves stand in one flat array. A tensor of more than
    two axes is a stack of matrices, whose rows are numbered through all of them.
    """

    def __init__(self, wanted: tuple[str, ...] = ()):
        super().__init__()
        self.wanted = wanted
        self.seen: dict[str, None] = {}
        self.names: list[str] = []
        self.numbers = array("q")

    def start(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if self.wants(tensor) and words:
            super().load(block, tensor, words)
            self._add(tensor, 0, block)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        if self.wants(tensor):
            super().store(block, tensor, words)
            self._add(tensor, 1, block)

    def wants(self, tensor: str) -> bool:
        """Whether a tensor was asked for. Either way it is recorded as seen."""
        self.seen[tensor] = None
        return not self.wanted or tensor in self.wanted

    def _add(self, tensor: str, store: int, block: Block) -> None:
        if tensor not in self.names:
            self.names.append(tensor)
            check_bytes(product_of(self.shapes[-1]) * self.widths[-1])  # so that each number of a move fits
        number = self.names.index(tensor)
        for part in matrices(block.shape):
            self.numbers.extend((number, store, *part))
        check_length(len(self.numbers) // 6)

    @property
    def table(self) -> Numbers:
        """The moves as an array of six columns."""
        return np.array(self.numbers, np.int64).reshape(-1, 6)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each tensor in `names`."""
        shapes = [self.machine.p.shape(self.machine.tensors[name]) for name in self.names]
        return cast("list[tuple[int, ...]]", shapes)

    @property
    def widths(self) -> list[int]:
        """The bytes of a word of each tensor in `names`."""
        return [self.machine.p.hbm_bytes(self.machine.tensors[name]) for name in self.names]

    @property
    def total_bytes(self) -> int:
        """The bytes that these tensors move."""
        return sum(int(sum(self.tensors[name])) * width for name, width in zip(self.names, self.widths, strict=True))


def matrices(shape: Shape) -> Iterator[tuple[int, int, int, int]]:
    """The (row, rows, column, columns) of a block, for each index of its leading axes."""
    sizes = cast("tuple[Tile | int, ...]", shape)  # numbers, because only one problem is run
    extents = [(x.start, x.size, int(x.length)) if isinstance(x, Tile) else (0, x, x) for x in sizes]
    if len(extents) == 1:
        extents.append((0, 1, 1))
    *leading, (row, rows, height), (column, columns, _) = extents
    for index in product(*(range(start, start + size) for start, size, _ in leading)):
        matrix = 0
        for place, (_, _, length) in zip(index, leading, strict=True):
            matrix = matrix * length + place
        yield matrix * height + row, rows, column, columns


@dataclass(frozen=True)
class Accesses:
    """A string of accesses: `ids` are the objects accessed, and `stores` says which accesses are stores.

    Object x fills `weights[x]` units of `unit_bytes`. An access to it counts as `amounts[x]` accesses: all of its
    lines, or one tile. With `whole`, objects enter and leave a cache as a whole.
    """

    ids: Numbers
    stores: Bools
    weights: Numbers
    amounts: Numbers
    unit_bytes: int
    whole: bool

    @property
    def total(self) -> int:
        """The number of accesses."""
        return int(self.amounts[self.ids].sum())


def record(schedule: ScheduleLike, problem: Attention, tiling: Tiling, tensors: tuple[str, ...] = ()) -> Moves:
    """The tile moves of a run that visits every tile, of all tensors or of those asked for."""
    check_length(count_events(schedule, problem, tiling).moves)
    moves = Moves(tensors)
    Machine(problem, moves).run(schedule, tiling)
    for name in tensors:
        if name not in moves.seen:
            known = ", ".join(moves.seen)
            raise InputError("--tensors", name, f"{known}: what this schedule moves", suggestion(name, moves.seen))
    return moves


def accesses(moves: Moves | MovesOfFile, granularity: str = "line", line_bytes: int = 64) -> Accesses:
    """The string of accesses to lines, words or tiles. Raises InputError if the tensors have no
    such units."""
    if granularity not in GRANULARITIES:
        raise InputError("--granularity", granularity, ", ".join(GRANULARITIES), suggestion(granularity, GRANULARITIES))
    check_bytes(sum(product_of(shape) * width for shape, width in zip(moves.shapes, moves.widths, strict=True)))
    check_bytes(moves.total_bytes)
    if granularity == "tile":
        return tile_accesses(moves.table, moves.widths)
    if granularity == "word":
        line_bytes = min(moves.widths)
        if max(moves.widths) > line_bytes:
            raise InputError(
                "--granularity", "word", "words of one size", "give --granularity line, or --tensors of one type"
            )
    for width in moves.widths:
        if line_bytes % width:
            raise InputError("--line", line_bytes, f"a multiple of {width} bytes, the size of a word")
    return line_accesses(moves.table, moves.shapes, moves.widths, line_bytes)


def check_bytes(size: int) -> None:
    """Raise InputError for more bytes of tensors, or that move, than the places and the sums of a cache may have."""
    if size >= MOST_BYTES:
        hint = "try a smaller --N or --d; iosim count has no limit"
        raise InputError("bytes that a cache sees", size, f"less than {MOST_BYTES}", hint)


def line_accesses(
    moves: Numbers, shapes: Sequence[tuple[int, ...]], widths: Sequence[int], line_bytes: int
) -> Accesses:
    """The string of accesses to lines, from the table of the moves. Units are lines."""
    first, stop, stores = line_runs(moves, shapes, widths, line_bytes)
    cuts = np.union1d(first, stop)
    begin, end = np.searchsorted(cuts, first), np.searchsorted(cuts, stop)
    count = end - begin
    ids = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(count.sum())
    weights = np.diff(cuts)
    return Accesses(ids, np.repeat(stores, count), weights, weights, line_bytes, False)


def line_runs(
    moves: Numbers, shapes: Sequence[tuple[int, ...]], widths: Sequence[int], line_bytes: int
) -> tuple[Numbers, Numbers, Bools]:
    """The arrays (first line, line after the last, is store) of all runs of lines that the moves touch.

    A tile of whole rows is one run. Any other tile is one run for each row. A line that two rows of a tile share is
    touched once.
    """
    bases = [0]
    for shape, width in zip(shapes, widths, strict=True):
        bases.append(bases[-1] + -(-product_of(shape) * width // line_bytes))
    tensor, store, row, rows, column, columns = moves.T
    across = np.array([shape[-1] if len(shape) > 1 else 1 for shape in shapes], np.int64)[tensor]
    count = np.where((columns == across) | (columns == 0), 1, rows)  # no more runs than words: see MOST_BYTES
    if int(count.sum()) > MOST_RUNS:
        raise InputError("runs of lines", int(count.sum()), f"at most {MOST_RUNS}", "try larger --tiles")
    event = np.repeat(np.arange(len(moves)), count)
    turn = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count)
    words = (rows * columns // count)[event]
    start = (row[event] + turn) * across[event] + column[event]
    word_bytes, base = (np.array(each, np.int64)[tensor][event] for each in (widths, bases))
    first, stop = base + start * word_bytes // line_bytes, base - (-(start + words) * word_bytes // line_bytes)
    first[1:] = np.where(turn[1:] > 0, np.maximum(first[1:], stop[:-1]), first[1:])
    kept = stop > first
    return first[kept], stop[kept], store[event][kept].astype(bool)


def tile_accesses(moves: Numbers, widths: Sequence[int]) -> Accesses:
    """The string of accesses to tiles, from the table of the moves. Units are bytes.

    A tile is identified by its place. Raises InputError if tiles of a tensor overlap.
    """
    places, ids = np.unique(moves[:, [0, 2, 3, 4, 5]], axis=0, return_inverse=True)
    tensor, row, rows, column, columns = places.T
    for axis, (start, size) in {"rows": (row, rows), "columns": (column, columns)}.items():
        spans = np.unique(np.column_stack([tensor, start, start + size]), axis=0)
        if ((spans[1:, 0] == spans[:-1, 0]) & (spans[1:, 1] < spans[:-1, 2])).any():
            raise InputError(
                "--granularity",
                "tile",
                f"a schedule whose tiles of a tensor do not overlap (here in {axis})",
                "try line or word",
            )
    weights = rows * columns * np.array(widths, np.int64)[tensor]
    return Accesses(ids.ravel(), moves[:, 1].astype(bool), weights, np.ones_like(weights), 1, True)
