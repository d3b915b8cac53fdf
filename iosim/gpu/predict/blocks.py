"""The loads and stores of the thread blocks of one head, launch by launch: the input of the model of the L2.

Tensors are cut into cells, rectangles so small that every tile is made of whole ones. A touch is one load or store of
one cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.problem import Attention, as_moved
from ...core.unrolled import BlockWatcher, Unrolled
from ...core.watchers import Watcher, extent_of
from ...errors import InputError
from .l2 import CellNumbers

if TYPE_CHECKING:
    from ...core.machine import Block, ScheduleLike, ScheduleText
    from ...core.tiling import Tiling
    from ...core.typing import Size

MOST_HEAD_EVENTS = 6_000_000  # loads and stores of tiles of one head: half a minute of visiting every tile
LEAST_CELL_COLUMNS = 32
LEAST_CELL_ROWS = 16  # of a cell: smaller tiles share one, because their blocks run at the same time


@dataclass
class Cells:
    """A tensor of one head, `length` x `width` words, cut into cells of `rows` x `columns`.

    Its cells are numbered from `first`, row by row. `shared`: the heads of a group share them.
    """

    rows: int
    columns: int
    length: int
    width: int
    word_bytes: int
    first: int
    shared: bool

    @property
    def across(self) -> int:
        """The number of cells side by side."""
        return -(-self.width // self.columns)

    @property
    def count(self) -> int:
        """The number of cells."""
        return -(-self.length // self.rows) * self.across

    def touched(self, row: int, rows: int, column: int, columns: int) -> CellNumbers:
        """The numbers of the cells that a part of the tensor lies in; `row` and `column` are its first."""
        i = np.arange(row // self.rows, -(-(row + rows) // self.rows))
        j = np.arange(column // self.columns, -(-(column + columns) // self.columns))
        return (self.first + i[:, None] * self.across + j).ravel()

    def sizes_bytes(self) -> NDArray[np.int64]:
        """The bytes of each cell; those at the ends may be smaller."""
        heights = np.minimum(self.rows, self.length - np.arange(0, self.length, self.rows))
        widths = np.minimum(self.columns, self.width - np.arange(0, self.width, self.columns))
        return (heights[:, None] * widths * self.word_bytes).ravel()


@dataclass
class Launch:
    """One launch, of one head. Block b touches the cells `touches[starts[b]:starts[b + 1]]`, in this order.

    `writes` says which touches are stores.
    """

    touches: CellNumbers
    writes: NDArray[np.bool_]
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class Touches:
    """The touches of one head, launch by launch."""

    launches: list[Launch]
    sizes_bytes: NDArray[np.int64]
    """The bytes of each cell."""
    shared_cells: int
    """Cells [0, shared_cells) belong to a key/value head, the others to a query head."""


class TileEvent(NamedTuple):
    """A load or a store of a tile by a block of a launch."""

    launch: int
    block: int
    tensor: str
    row: int
    rows: int
    column: int
    columns: int
    write: bool


@dataclass
class Events(BlockWatcher):
    """Keeps the loads and stores of a run. Loads that move no word are left out."""

    launch: int = 0
    events: list[TileEvent] = field(default_factory=list)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if words:
            self._add(block, tensor, False)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._add(block, tensor, True)

    def _add(self, block: Block, tensor: str, write: bool) -> None:
        (row, rows), (column, columns) = extent_of(block)
        place = row, int(rows), column, int(columns)
        self.events.append(TileEvent(self.launch, self.machine.thread_block, tensor, *place, write))
        if len(self.events) > MOST_HEAD_EVENTS:
            raise InputError(
                "--tiles", f"more than {MOST_HEAD_EVENTS} tile events a head", "larger tiles or a smaller N"
            )

    def launch_ended(self) -> None:
        self.launch += 1


def touches_of(
    schedule: ScheduleLike | ScheduleText,
    problem: Attention,
    tiling: Tiling,
    *watchers: Watcher,
    backwards: bool = False,
) -> Touches:
    """The touches of one head. Other watchers may see the same run.

    `backwards`: inner loops go from the last tile to the first. Under a causal mask, blocks that run at the same time
    are then at different keys, and each key tile stays in use for longer. Raises InputError if nothing is moved, or if
    there are more than MOST_HEAD_EVENTS loads and stores.
    """
    watcher = Events()
    machine = Unrolled(as_moved(schedule, problem), watcher, *watchers, backwards=backwards).run(schedule, tiling)
    if not watcher.events:
        raise InputError("--mask", "a mask that hides every tile", "one with an active tile", "nothing would be moved")
    tensors = _cells(watcher.events, machine)
    by_launch = ([event for event in watcher.events if event.launch == number] for number in range(watcher.launch))
    launches = [_launch(events, tensors) for events in by_launch if events]
    ordered = sorted(tensors.values(), key=lambda cells: cells.first)
    sizes = np.concatenate([cells.sizes_bytes() for cells in ordered])
    shared = sum(cells.count for cells in ordered if cells.shared)
    return Touches(launches, sizes, shared)


def _cells(events: list[TileEvent], machine: Unrolled) -> dict[str, Cells]:
    """The cells of each tensor: so small that every tile is made of whole ones, but of at least 16 rows and 32 columns
    where the tensor has as many."""
    found: dict[str, Cells] = {}
    p = machine.p
    names = dict.fromkeys(event.tensor for event in events)
    shared = {name: machine.tensors[name].axes[0] == "Nk" for name in names}
    first = 0
    for name in sorted(names, key=lambda name: not shared[name]):
        axes = p.shape(machine.tensors[name])
        length, width = int(axes[0]), int(axes[1]) if len(axes) > 1 else 1
        rows = columns = 0
        for event in events:
            if event.tensor == name:
                rows, columns = gcd(rows, event.row), gcd(columns, event.column)
        word_bytes = p.hbm_bytes(machine.tensors[name])
        rows, columns = (
            max(rows or length, min(LEAST_CELL_ROWS, length)),
            max(columns or width, min(LEAST_CELL_COLUMNS, width)),
        )
        found[name] = Cells(rows, columns, length, width, word_bytes, first, shared[name])
        first += found[name].count
    return found


def _launch(events: list[TileEvent], tensors: dict[str, Cells]) -> Launch:
    """The touches of one launch, from its events in the order in which its blocks run."""
    places = [(e.tensor, e.row, e.rows, e.column, e.columns) for e in events]
    cells = {
        place: tensors[place[0]].touched(*place[1:]) for place in dict.fromkeys(places)
    }  # many blocks share a tile
    parts = [cells[place] for place in places]
    counts = np.array([len(part) for part in parts])
    writes = np.repeat(np.array([event.write for event in events]), counts)
    blocks = np.repeat(np.array([event.block for event in events]), counts)
    edges = np.flatnonzero(np.diff(blocks)) + 1
    return Launch(np.concatenate(parts), writes, np.concatenate([[0], edges, [len(blocks)]]))
