"""What the thread blocks of one head touch, launch by launch: the input of the model of the L2."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.problem import DENSE, Attention
from ..core.unrolled import Unrolled
from ..core.watchers import Watcher, extent_of
from ..errors import InputError
from .l2 import Cells as Numbers

MOST_TOUCHES = 6_000_000  # of one head: half a minute of unrolled walking
LEAST_ROWS = 16  # tiles with fewer rows share a cell: their blocks run together


@dataclass
class Cells:
    """A tensor cut into cells, of one head: their sizes, and the number of the first."""

    rows: int
    columns: int
    length: int
    width: int
    word_bytes: int
    first: int
    shared: bool

    @property
    def across(self) -> int:
        return -(-self.width // self.columns)

    @property
    def count(self) -> int:
        return -(-self.length // self.rows) * self.across

    def touched(self, row: int, rows: int, column: int, columns: int) -> Numbers:
        """The cells that a part of the tensor lies in."""
        i = np.arange(row // self.rows, -(-(row + rows) // self.rows))
        j = np.arange(column // self.columns, -(-(column + columns) // self.columns))
        return (self.first + i[:, None] * self.across + j).ravel()

    def sizes_bytes(self) -> NDArray[np.int64]:
        heights = np.minimum(self.rows, self.length - np.arange(0, self.length, self.rows))
        widths = np.minimum(self.columns, self.width - np.arange(0, self.width, self.columns))
        return (heights[:, None] * widths * self.word_bytes).ravel()


@dataclass
class Launch:
    """Blocks of one head: `touches[starts[b]:starts[b + 1]]` are block b's cells, `writes` says which are stores."""

    touches: Numbers
    writes: NDArray[np.bool_]
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """What one head does to memory, launch by launch."""

    launches: list[Launch]
    sizes_bytes: NDArray[np.int64]
    shared_cells: int
    """Cells [0, shared_cells) belong to a key/value head, the others to a query head."""


@dataclass
class _Blocks(Watcher):
    """Events as (launch, block, tensor, row, rows, column, columns, write)."""

    machine: Any = None
    launch: int = 0
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def start(self, machine: Any) -> None:
        self.machine = machine

    def load(self, block: Any, tensor: str, words: Any) -> None:
        if words:
            self._add(block, tensor, False)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self._add(block, tensor, True)

    def _add(self, block: Any, tensor: str, write: bool) -> None:
        rows, columns = extent_of(block)
        self.events.append((self.launch, self.machine.block, tensor, *rows, *columns, write))
        if len(self.events) > MOST_TOUCHES:
            raise InputError("--tiles", f"more than {MOST_TOUCHES} tile events a head", "larger tiles or a smaller N")

    def launch_ended(self) -> None:
        self.launch += 1


def trace(schedule: Any, problem: Attention, tiling: Any, *watchers: Any, backwards: bool = False) -> Trace:
    """The touches of one head; other watchers may see the same run. `backwards`: inner loops go from the last tile to
    the first. Under a causal mask blocks that run together are then at different keys, which stay in use for longer."""
    from dataclasses import replace

    if not getattr(schedule, "skips", True) and problem.mask is not DENSE:
        problem = replace(problem, mask=DENSE)  # a mask that only hides moves no word
    watcher = _Blocks()
    machine = Unrolled(problem, watcher, *watchers, backwards=backwards).run(schedule, tiling)
    if not watcher.events:
        raise InputError("--mask", "a mask that hides every tile", "one with an active tile", "nothing would be moved")
    tensors = _cells(watcher.events, machine)
    by_launch = ([event for event in watcher.events if event[0] == number] for number in range(watcher.launch))
    launches = [_launch(events, tensors) for events in by_launch if events]
    ordered = sorted(tensors.values(), key=lambda cells: cells.first)
    sizes = np.concatenate([cells.sizes_bytes() for cells in ordered])
    shared = sum(cells.count for cells in ordered if cells.shared)
    return Trace(launches, sizes, shared)


def _cells(events: list[tuple[Any, ...]], machine: Any) -> dict[str, Cells]:
    """Cells so small that every tile is made of whole ones; but rows in groups of 16, columns down to 32 bytes."""
    found: dict[str, Cells] = {}
    p = machine.p
    names = dict.fromkeys(event[2] for event in events)
    shared = {name: machine.tensors[name].axes[0] == "Nk" for name in names}
    first = 0
    for name in sorted(names, key=lambda name: not shared[name]):
        axes = p.shape(machine.tensors[name])
        length, width = axes[0], axes[1] if len(axes) > 1 else 1
        rows = columns = 0
        for _, _, tensor, row, _, column, _, _ in events:
            if tensor == name:
                rows, columns = gcd(rows, row), gcd(columns, column)
        word_bytes = p.hbm_bytes(machine.tensors[name])
        rows, columns = max(rows or length, min(LEAST_ROWS, length)), max(columns or width, min(32, width))
        found[name] = Cells(rows, columns, length, width, word_bytes, first, shared[name])
        first += found[name].count
    return found


def _launch(events: list[tuple[Any, ...]], tensors: dict[str, Cells]) -> Launch:
    parts = [tensors[name].touched(*part) for _, _, name, *part, _ in events]
    counts = np.array([len(part) for part in parts])
    writes = np.repeat(np.array([event[-1] for event in events]), counts)
    blocks = np.repeat(np.array([event[1] for event in events]), counts)
    edges = np.flatnonzero(np.diff(blocks)) + 1
    return Launch(np.concatenate(parts), writes, np.concatenate([[0], edges, [len(blocks)]]))
