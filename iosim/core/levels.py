"""Three levels of memory: a step of an outer run is a schedule of the level below, counted by the folded machine.

To one GPU the memories of the others are the slow memory, and its own is the fast one. Inside it, its own memory is the
slow one, and the SRAM of a thread block the fast one. The outer run moves the words of the links. Each of its steps
may be a schedule inside a GPU, which moves words of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .folded import Folded
from .watchers import Traffic, Watcher

if TYPE_CHECKING:
    from .machine import Block, Input, Machine, ScheduleLike
    from .problem import Attention
    from .tiling import Tiling
    from .typing import Size, Step

    Below = Callable[[Machine, Step, tuple[Block, ...], tuple[Input, ...]], "Iterable[Run]"]


class Run(NamedTuple):
    """A run at the level below: how often it happens, and what is run. `times` may be 0, and negative where two runs
    stand for many."""

    times: Size
    schedule: ScheduleLike
    problem: Attention
    tiling: Tiling


class Inside(Watcher):
    """The words that the steps of a run move at the level below, over all heads and visits.

    `below(machine, step, outputs, inputs)` says which schedules an event of a step stands for there; none for a step
    that is no schedule. `machine.occurrences` tells it how often the event happens, and with which sizes.
    """

    def __init__(self, below: Below):
        self.below = below
        self.tensors: dict[str, tuple[Size, Size]] = {}
        """{tensor: (words read, words written)}."""
        self.bytes: Size = 0
        """Bytes read and written."""

    @property
    def total(self) -> Size:
        """Words read and written, of all tensors."""
        return sum(reads + writes for reads, writes in self.tensors.values())

    def start(self, machine: Machine) -> None:
        self.machine = machine

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        for run in self.below(self.machine, step, outputs, inputs):
            words, moved = words_of(run.schedule, run.problem, run.tiling)
            times = run.times * run.problem.instances
            self.bytes = self.bytes + times * moved
            for name, (reads, writes) in words.items():
                before = self.tensors.get(name, (0, 0))
                self.tensors[name] = before[0] + times * reads, before[1] + times * writes


@lru_cache(maxsize=4096)
def words_of(schedule: ScheduleLike, p: Attention, tiling: Tiling) -> tuple[dict[str, tuple[int, int]], int]:
    """The words (read, written) of one head of a run by tensor, and its bytes."""
    traffic = Traffic()
    machine = Folded(p, traffic).run(schedule, tiling)
    words = {name: (int(r), int(w)) for name, (r, w) in traffic.tensors.items()}
    return words, int(sum(p.in_bytes(machine.tensors[name], r + w) for name, (r, w) in words.items()))
