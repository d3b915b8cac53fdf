"""The footprint of a schedule in shared memory and in registers, with tiles in flight.

The rules are properties of blocks, and hold for every schedule:

- What `load` brings lies in shared memory, where copies that run ahead (cp.async, TMA) put it.
- What `compute` makes may live in registers, as the accumulators of tensor cores do, unless another warp needs its
  rows: a step whose `Operands.reads_whole` names the block (the second factor of a product), or one on a part of it.
- What the innermost loop of a thread block loads has `stages` tiles in flight, each in shared memory.

Each launch has its own registers. All blocks of one name live in the same place. The names that live in registers are
those that leave the least shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from .arrays import anywhere, choose, larger, plus
from .folded import Unsummed
from .machine import Block
from .shapes import Tile
from .watchers import Footprint

if TYPE_CHECKING:
    from .machine import Input, ScheduleLike, ScheduleText
    from .mask_types import MaskLine
    from .problem import Attention
    from .shapes import Own, Shape
    from .tiling import Tiling
    from .typing import Size, Step

MOST_NAMES = 8  # tried in all combinations for a launch; further names stay in shared memory


@dataclass
class Loop:
    """A loop of the text. `inside_block`: each thread block runs it, so it is not a loop of the grid."""

    inside_block: bool
    innermost: bool = True


@dataclass(eq=False)
class Resident:
    """A block on the chip: its words and bytes, its name, the loop that it is in, and what is known of its place."""

    name: str
    words: Size
    size_bytes: Size
    loop: Loop | None
    loaded: bool = False
    shared: bool = False
    """Whether it must lie in shared memory."""

    def copies(self, stages: int) -> int:
        """The number of tiles of it that are on the chip at one time."""
        flies = self.loaded and self.loop is not None and self.loop.innermost and self.loop.inside_block
        return stages if flies else 1


class Change(NamedTuple):
    """A block that comes (+1) or leaves (-1)."""

    sign: int
    block: Resident


@dataclass
class Launch:
    """The blocks that come and leave in one launch, in order."""

    changes: list[Change] = field(default_factory=list)

    def free_names(self) -> list[str]:
        """Names of blocks that may live in registers, in the order of the schedule's text."""
        names = dict.fromkeys(change.block.name for change in self.changes)
        bound = {change.block.name for change in self.changes if change.block.shared}
        return [name for name in names if name not in bound][:MOST_NAMES]

    def peaks(self, stages: int, names: frozenset[str]) -> tuple[Size, Size]:
        """The peaks of (shared memory, registers) in bytes, with the blocks of these names in registers."""
        now: list[Size] = [0, 0]
        most: list[Size] = [0, 0]
        for sign, block in self.changes:
            place = int(block.name in names)
            now[place] = plus(now[place], sign * block.copies(stages) * block.size_bytes)
            most[place] = larger(most[place], now[place])
        return most[0], most[1]

    def whole(self, stages: int) -> tuple[Size, Size]:
        """The peaks of (words, bytes) of everything on the chip."""
        now: list[Size] = [0, 0]
        most: list[Size] = [0, 0]
        for sign, block in self.changes:
            for k, size in enumerate((block.words, block.size_bytes)):
                now[k] = plus(now[k], sign * block.copies(stages) * size)
                most[k] = larger(most[k], now[k])
        return most[0], most[1]

    def best(self, stages: int, room_bytes: int) -> tuple[Size, Size, Size]:
        """(shared memory, registers, shared memory if registers had no limit), each a peak in bytes.

        The names in registers leave the least shared memory, and take at most `room_bytes`. Of two sets that leave
        equally much, the larger one is taken.
        """
        every = list(subsets(self.free_names()))
        all_in = self.peaks(stages, every[0])
        if not anywhere(all_in[1] > room_bytes):
            return *all_in, all_in[0]
        smem, registers = self.peaks(stages, frozenset())
        for names in every[:-1]:
            found = self.peaks(stages, names)
            better = (found[1] <= room_bytes) & (found[0] < smem)
            smem, registers = choose(better, found[0], smem), choose(better, found[1], registers)
        return smem, registers, all_in[0]


def subsets(names: list[str]) -> Iterator[frozenset[str]]:
    """All sets of these names, the largest first."""
    for size in range(len(names), -1, -1):
        yield from map(frozenset, combinations(names, size))


class Placing(Unsummed):
    """A folded machine that records the blocks of each launch, and which of them must lie in shared memory."""

    def __init__(self, problem: Attention[Size]):
        super().__init__(problem)
        self.launches = [Launch()]
        self._loops: list[Loop] = []
        self._known: dict[Block, Resident] = {}

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        for loop in self._loops:
            loop.innermost = False
        self._loops.append(Loop(inside_block=bool(self._loops) or not parallel))
        try:
            yield from super()._walk(length, size, where, parallel)
        finally:
            self._loops.pop()

    def load(
        self, tensor: str, *tiles: Tile, where: MaskLine | None = None, own: Own = False, sender: Tile | None = None
    ) -> Block:
        block = super().load(tensor, *tiles, where=where, own=own, sender=sender)
        self._known[block].loaded = self._known[block].shared = True
        return block

    def _allocate(self, name: str, shape: Shape) -> Block:
        block = super()._allocate(name, shape)
        size_bytes = block.words * self.p.sram_bytes(block.tensor)
        self._known[block] = Resident(name, block.words, size_bytes, self._loops[-1] if self._loops else None)
        self.launches[-1].changes.append(Change(1, self._known[block]))
        return block

    def _release(self, blocks: list[Block]) -> None:
        super()._release(blocks)
        self.launches[-1].changes += [Change(-1, self._known[block]) for block in blocks]

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        super()._apply(step, outputs, inputs)
        whole = getattr(getattr(step, "operands", None), "reads_whole", range(1, len(outputs) + len(inputs)))
        for number, x in enumerate((*outputs, *inputs)):
            if isinstance(x, Block) and (number in whole or x.base is not None):
                self._known[x.base or x].shared = True

    def _end_of_launch(self) -> None:
        super()._end_of_launch()
        if self._depth == 0 and not self._resident:
            self.launches.append(Launch())


def placed(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The footprint of a schedule with the registers and the stages of its problem."""
    machine = Placing(problem).run(schedule, tiling)
    words: Size = 0
    peak: Size = 0
    smem: Size = 0
    registers: Size = 0
    least: Size = 0
    for launch in machine.launches:
        (own_words, own_bytes), best = launch.whole(problem.stages), launch.best(problem.stages, problem.register_bytes)
        words, peak = larger(words, own_words), larger(peak, own_bytes)
        smem, registers, least = larger(smem, best[0]), larger(registers, best[1]), larger(least, best[2])
    return Footprint(words, peak, smem, registers, least)
