"""Machines that run many iterations of a loop together, and find out by running which loops allow that.

A loop has a path: its place among the loops of each enclosing loop. A machine raises Refused with the path of a loop
whose iterations it cannot run together. The run then starts anew, and runs that loop one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypeVar

from .machine import Machine
from .shapes import Tile

if TYPE_CHECKING:
    from .machine import ScheduleLike, ScheduleText
    from .mask_types import MaskLine
    from .tiling import Tiling
    from .typing import Size

Path = tuple[int, ...]


class Refused(BaseException):
    """The iterations of the loop at `path` cannot be run together. It is not an Exception, so that no handler takes it
    for an error of the schedule."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.path = path


class LoopPaths(Machine):
    """A machine that knows the path of each loop. Loops whose paths are in `singly` run one
    iteration at a time."""

    singly: AbstractSet[Path] = frozenset()
    merged: Path | None = None
    """The path of the loop whose iterations are being run together."""
    _path: Path = ()
    _siblings: tuple[list[int], ...] = ()  # for each open loop, how many loops began in its current iteration

    def together(self, length: Size | Tile, size: Size, where: MaskLine | None) -> Iterable[Tile] | None:
        """The tiles of a loop whose iterations run together; None if they run one at a time."""
        raise NotImplementedError

    def refuse(self, wrong: bool = True) -> None:
        """Raise Refused if `wrong` and the iterations of the current loop are being run together."""
        if wrong and self.merged is not None:
            raise Refused(self.merged)

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        self._siblings = self._siblings or ([0],)
        outer, path = self._path, (*self._path, self._siblings[-1][0])
        self._siblings[-1][0] += 1
        free = self.merged is None and path not in self.singly
        tiles = self.together(length, size, where) if free else None
        if tiles is not None:
            self.merged = path
        for tile in super()._walk(length, size, where, parallel) if tiles is None else tiles:
            self._path, self._siblings = path, (*self._siblings, [0])
            yield tile
            self._path, self._siblings = outer, self._siblings[:-1]
        if tiles is not None:
            self.merged = None


M = TypeVar("M", bound=LoopPaths)


def run_together(make: Callable[[], M], schedule: ScheduleLike | ScheduleText, tiling: Tiling) -> M:
    """The machine after a run. `make` makes a machine with new watchers; it is called again after each refusal.

    An error while iterations run together is a refusal too. If it is an error of the schedule, it occurs again when
    they run one at a time.
    """
    singly: set[Path] = set()
    while True:
        machine = make()
        machine.singly = singly
        try:
            return machine.run(schedule, tiling)
        except Refused as found:
            singly.add(found.path)
        except Exception:
            if machine.merged is None:
                raise
            singly.add(machine.merged)
