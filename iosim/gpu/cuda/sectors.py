"""The sectors that the copies of generated kernels touch: the most bytes beyond those of their words. It needs no GPU.

The hardware counts sectors of 32 bytes for each request of a warp. Where a request ends inside a sector, that sector is
counted whole, and again for the next request. Which words a request has follows from the plan of a launch
(cuda/copies.py), and where a head starts in a sector from its size. Where a tile starts inside its head is not
followed: the worst place that is possible counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...core.dependent_tiles import Stretch
from ...core.folded import Folded, Group, joined
from ...core.machine import Block
from ...core.problem import as_moved
from ...core.shapes import Tile
from ...hardware import SECTOR_BYTES
from .copies import Copy
from .plan import make_plan
from .record import LoadNode, Recorder, StoreNode, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.machine import ScheduleLike, ScheduleText
    from ...core.mask_types import MaskLine
    from ...core.problem import Attention
    from ...core.shapes import Shape, SizeClasses
    from ...core.tiling import Tiling
    from ...core.typing import Size


class PartialSectors(NamedTuple):
    """The most bytes that partial sectors can add to those of the words, over all heads."""

    read_bytes: int
    write_bytes: int


def partial_sectors(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> PartialSectors:
    """The bound for the kernels that are generated from a schedule; 0 if every request is made of whole sectors."""
    p = as_moved(schedule, problem.packed)
    visits = Visits(p).run(schedule, tiling).visits
    read = written = 0
    for (node, copy), sizes in zip(copies(schedule, p, tiling), visits, strict=True):
        more = sum(times * beyond_words(p, copy, rows, columns) for times, rows, columns in sizes)
        read, written = (read + more, written) if isinstance(node, LoadNode) else (read, written + more)
    return PartialSectors(read, written)


def copies(
    schedule: ScheduleLike | ScheduleText, p: Attention, tiling: Tiling
) -> Iterator[tuple[LoadNode | StoreNode, Copy]]:
    """The copies of all launches, in the order of the schedule's text."""
    recorder = Recorder(p).run(schedule, tiling)
    for body in recorder.launches:
        plan = make_plan(p, body, True)
        for node in statements(body):
            if isinstance(node, LoadNode | StoreNode):
                loads = isinstance(node, LoadNode)
                yield node, Copy.of(p, recorder.tensors[node.tensor], node.block, node.place, plan, loads)


def beyond_words(p: Attention, copy: Copy, rows: int, columns: int) -> int:
    """The most bytes of a tile's sectors, in all heads, that are not its words."""
    words = p.instances * rows * columns
    return SECTOR_BYTES * copy.most_sectors(rows, columns) - words * copy.width if words else 0


class Visits(Folded):
    """For each load and store of a schedule, in the order of its text: how often it moves a tile of which size."""

    def __init__(self, problem: Attention) -> None:
        super().__init__(problem)
        self.visits: list[list[tuple[int, int, int]]] = []
        """A list (how often, rows, columns) for each load and store."""

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        """The recorder leaves out a loop over a part of an axis that is empty, and so does this."""
        if (length.extent if isinstance(length, Tile) else length) != 0:
            yield from super()._walk(length, size, where, parallel)

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None:
        self.visits.append(self._sizes(block.shape, where))

    def _put(self, block: Block, tensor: str) -> None:
        self.visits.append(self._sizes(block.shape, None))

    def _sizes(self, shape: Shape, where: MaskLine | None) -> list[tuple[int, int, int]]:
        groups = dict(self._groups)
        shape = tuple(x.size if isinstance(x, Stretch) else x for x in shape)
        if where is not None and where.tile is not None:
            groups[where.tile] = self._lines(where, where.tile, groups[where.tile])
        elif where is not None and not where.mask.active_tiles:
            return []
        for x in shape:
            if isinstance(x, Tile):
                groups = joined(x, groups)
        found: SizeClasses = [(1, {})]
        for group in dict.fromkeys(groups.values()):
            found = [(a * b, {**x, **y}) for a, x in found for b, y in of_shape(group, shape)]
        return [
            (int(times), size_of(shape[0], sizes), size_of(shape[1], sizes) if len(shape) > 1 else 1)
            for times, sizes in found
            if times
        ]


def size_of(axis: Tile | Size, sizes: dict[Tile, Size]) -> int:
    """The positions of an axis of a block, where tiles have these sizes."""
    return int(sizes[axis] if isinstance(axis, Tile) else axis)


def of_shape(group: Group, shape: Shape) -> SizeClasses:
    """The rows of a group, with the sizes of the tiles of a shape only: equal ones are one row."""
    merged: dict[tuple[tuple[Tile, Size], ...], Size] = {}
    for times, sizes in group.rows:
        own = tuple((tile, size) for tile, size in sizes.items() if tile in shape)
        merged[own] = merged.get(own, 0) + times
    return [(times, dict(own)) for own, times in merged.items()]
