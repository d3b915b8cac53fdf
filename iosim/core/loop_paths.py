"""Machines that take many turns of a loop together, and find out by running which loops allow that.

A loop has a path: its place among the loops of each enclosing loop. A machine raises Refused with the path of a loop
whose turns it cannot take together. The run then starts anew, and walks that loop turn by turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypeVar

from .machine import Machine, Tile

if TYPE_CHECKING:
    from .tiling import Tiling
    from .typing import MaskLine, ScheduleLike, ScheduleText, Size

Path = tuple[int, ...]


class Refused(BaseException):
    """The turns of the loop at `path` cannot be taken together. It is not an Exception, so nothing takes it
    for an error of the schedule."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.path = path


class LoopPaths(Machine):
    """A machine that knows the path of each loop. The turns of loops whose paths are in `singly` are taken singly."""

    singly: AbstractSet[Path] = frozenset()
    merged: Path | None = None
    """The path of the loop whose turns are being taken together."""
    _path: Path = ()
    _siblings: tuple[list[int], ...] = ()  # for each open loop, how many loops began in its current turn

    def together(self, length: Size | Tile, size: Size, where: MaskLine | None) -> Iterable[Tile] | None:
        """The tiles of a loop whose turns are taken together; None if this loop is walked turn by turn."""
        raise NotImplementedError

    def refuse(self, wrong: bool = True) -> None:
        """Raise Refused if something is wrong with taking the turns of the current loop together."""
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

    An error while turns are taken together is a refusal too: turn by turn it shows again, or was none.
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
