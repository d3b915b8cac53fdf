"""The number of events of a run that visits every tile, known before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..errors import FoldingError, InputError
from .dependent_tiles import Ends, UpTo
from .folded import Folded
from .watchers import Watcher

if TYPE_CHECKING:
    from .machine import Block, Input, Machine, ScheduleLike, ScheduleText
    from .problem import Attention
    from .tiling import Tiling
    from .typing import Size, Step

MOST_EVENTS = 5_000_000  # that are kept in memory


class EventCount(Watcher):
    """The number of events of a run, from a folded walk. `moves` counts loads and stores, `total` steps as well."""

    def __init__(self) -> None:
        self.moves, self.total = 0, 0

    def start(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def turns(self) -> int:
        """The number of visits for which the current one stands."""
        return cast("int", self.machine.total(()))

    def load(self, block: Block, tensor: str, words: Size) -> None:
        growing = [x for x in block.shape if isinstance(x, UpTo | Ends)]  # empty where a share begins
        turns = self.turns
        if growing:
            seen = self.machine.occurrences(*growing)
            turns = sum(cast("int", times) for times, sizes in seen if all(sizes[x] for x in growing))
        if block.own is not True:
            self.add(turns)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self.add(self.turns)

    def add(self, turns: int) -> None:
        """Add a load or store that happens so many times."""
        self.moves += turns
        self.total += turns

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.total += self.turns


def count_events(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> EventCount:
    """The number of events of a run; 0 if the schedule cannot be folded.

    Under a mask a run may have fewer, because here loads for an empty line of the mask are counted too.
    """
    watcher = EventCount()
    try:
        Folded(problem, watcher).run(schedule, tiling)
    except FoldingError:
        return EventCount()
    return watcher


def check_length(events: int, most: int = MOST_EVENTS) -> None:
    """Raise InputError for too many events."""
    if events > most:
        hint = "try larger --tiles or a smaller --N; iosim count has no limit"
        raise InputError("events of this run", events, f"at most {most}", hint)
