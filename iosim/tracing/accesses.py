"""A schedule's HBM accesses as a string of objects: what a cache would see.

The run that visits every tile leaves a list of tile moves. In memory (row-major tensors, one after the other, each
from the start of a line) a tile is one or more runs of lines. Where runs overlap they are cut, so that every piece is
always touched as a whole and in order. The string is then as long as the number of tile moves, not of lines, and still
says for every line when it is touched.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..core.machine import Machine, Tile
from ..core.problem import Attention
from ..core.shapes import product as product_of
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..errors import InputError, suggestion
from .event_file import MOST_EVENTS, check_length, visits

GRANULARITIES = ("line", "word", "tile")
MOST_RUNS = 20_000_000


class Moves(Traffic):
    """Tile moves of the tensors asked for, with their traffic: what the explicit SRAM moves.

    Each is (tensor, is store, row, rows, column, columns), flat in one array. A tensor of more than two axes is one
    matrix over another.
    """

    def __init__(self, wanted: tuple[str, ...] = ()):
        super().__init__()
        self.wanted = wanted
        self.seen: dict[str, None] = {}
        self.names: list[str] = []
        self.numbers = array("q")

    def start(self, machine: Any) -> None:
        self.machine = machine

    def load(self, block: Any, tensor: str, words: Any) -> None:
        if words and self.wants(tensor):
            super().load(block, tensor, words)
            self._add(tensor, 0, block)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        if self.wants(tensor):
            super().store(block, tensor, words)
            self._add(tensor, 1, block)

    def wants(self, tensor: str) -> bool:
        self.seen[tensor] = None
        return not self.wanted or tensor in self.wanted

    def _add(self, tensor: str, store: int, block: Any) -> None:
        if tensor not in self.names:
            self.names.append(tensor)
        number = self.names.index(tensor)
        for part in matrices(block.shape):
            self.numbers.extend((number, store, *part))
        if len(self.numbers) > 6 * MOST_EVENTS:
            check_length(len(self.numbers) // 6)

    @property
    def rows(self) -> Any:
        return np.array(self.numbers, np.int64).reshape(-1, 6)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.machine.p.shape(self.machine.tensors[name]) for name in self.names]

    @property
    def widths(self) -> list[int]:
        """Bytes of a word, for each tensor."""
        return [self.machine.p.hbm_bytes(self.machine.tensors[name]) for name in self.names]

    @property
    def total_bytes(self) -> int:
        return sum(int(sum(self.tensors[name])) * width for name, width in zip(self.names, self.widths, strict=True))


def matrices(shape: tuple[Any, ...]) -> Iterator[tuple[int, int, int, int]]:
    """(row, rows, column, columns) of a block; one for each index of its leading axes."""
    spans = [(x.start, x.size, int(x.length)) if isinstance(x, Tile) else (0, x, x) for x in shape]
    if len(spans) == 1:
        spans.append((0, 1, 1))
    *leading, (row, rows, height), (column, columns, _) = spans
    for index in product(*(range(start, start + size) for start, size, _ in leading)):
        matrix = 0
        for place, (_, _, length) in zip(index, leading, strict=True):
            matrix = matrix * length + place
        yield matrix * height + row, rows, column, columns


@dataclass(frozen=True)
class Accesses:
    """A string of accesses. Object x fills `weights[x]` units of `unit_bytes`; an access to it counts as `amounts[x]`
    accesses (all of its lines, or one tile)."""

    ids: Any
    stores: Any
    weights: Any
    amounts: Any
    unit_bytes: int
    whole: bool

    @property
    def total(self) -> int:
        return int(self.amounts[self.ids].sum())


def record(schedule: Any, problem: Attention, tiling: Tiling, tensors: tuple[str, ...] = ()) -> Moves:
    """Visit every tile; all tensors, or those asked for."""
    check_length(visits(schedule, problem, tiling).moves)
    moves = Moves(tensors)
    Machine(problem, moves).run(schedule, tiling)
    for name in tensors:
        if name not in moves.seen:
            known = ", ".join(moves.seen)
            raise InputError("--tensors", name, f"{known}: what this schedule moves", suggestion(name, moves.seen))
    return moves


def accesses(moves: Moves, granularity: str = "line", line_bytes: int = 64) -> Accesses:
    """The string of accesses at a granularity."""
    if granularity not in GRANULARITIES:
        raise InputError("--granularity", granularity, ", ".join(GRANULARITIES), suggestion(granularity, GRANULARITIES))
    if granularity == "tile":
        return of_tiles(moves.rows, moves.widths)
    if granularity == "word":
        line_bytes = min(moves.widths)
        if max(moves.widths) > line_bytes:
            raise InputError("--granularity", "word", "words of one size", "give --granularity line, or no --acc-dtype")
    for width in moves.widths:
        if line_bytes % width:
            raise InputError("--line", line_bytes, f"a multiple of {width} bytes, the size of a word")
    return of_lines(moves.rows, moves.shapes, moves.widths, line_bytes)


def of_lines(moves: Any, shapes: list[tuple[int, ...]], widths: list[int], line_bytes: int) -> Accesses:
    first, stop, stores = runs(moves, shapes, widths, line_bytes)
    cuts = np.union1d(first, stop)
    begin, end = np.searchsorted(cuts, first), np.searchsorted(cuts, stop)
    count = end - begin
    ids = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(count.sum())
    weights = np.diff(cuts)
    return Accesses(ids, np.repeat(stores, count), weights, weights, line_bytes, False)


def runs(moves: Any, shapes: list[tuple[int, ...]], widths: list[int], line_bytes: int) -> tuple[Any, Any, Any]:
    """(first line, line behind the last, is store) of the runs that the moves are in memory: one for a tile of whole
    rows, else one a row. A line that two rows of one tile share is touched once."""
    bases = [0]
    for shape, width in zip(shapes, widths, strict=True):
        bases.append(bases[-1] + -(-product_of(shape) * width // line_bytes))
    tensor, store, row, rows, column, columns = moves.T
    across = np.array([shape[-1] if len(shape) > 1 else 1 for shape in shapes])[tensor]
    count = np.where(columns == across, 1, rows)
    if int(count.sum()) > MOST_RUNS:
        raise InputError("runs of lines", int(count.sum()), f"at most {MOST_RUNS}", "try larger --tiles")
    event = np.repeat(np.arange(len(moves)), count)
    turn = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count)
    words = (rows * columns // count)[event]
    start = (row[event] + turn) * across[event] + column[event]
    width, base = np.array(widths)[tensor][event], np.array(bases)[tensor][event]
    first, stop = base + start * width // line_bytes, base - (-(start + words) * width // line_bytes)
    first[1:] = np.where(turn[1:] > 0, np.maximum(first[1:], stop[:-1]), first[1:])
    kept = stop > first
    return first[kept], stop[kept], store[event][kept].astype(bool)


def of_tiles(moves: Any, widths: list[int]) -> Accesses:
    """Tiles as the objects, by their place; those of a tensor must not overlap. Units are bytes."""
    places, ids = np.unique(moves[:, [0, 2, 3, 4, 5]], axis=0, return_inverse=True)
    tensor, row, rows, column, columns = places.T
    for axis, (start, size) in {"rows": (row, rows), "columns": (column, columns)}.items():
        spans = np.unique(np.column_stack([tensor, start, start + size]), axis=0)
        if ((spans[1:, 0] == spans[:-1, 0]) & (spans[1:, 1] < spans[:-1, 2])).any():
            raise InputError(
                "--granularity", "tile", f"a schedule whose tiles of a tensor do not overlap (here in {axis})",
                "try line or word",
            )  # fmt: skip
    weights = rows * columns * np.array(widths)[tensor]
    return Accesses(ids.ravel(), moves[:, 1].astype(bool), weights, np.ones_like(weights), 1, True)
