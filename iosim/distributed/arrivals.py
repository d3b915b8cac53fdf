"""What the GPUs of a text receive, from its folded run: of each load the GPUs that send, and the words of each.

A folded run meets a load once, for all GPUs and for all that a loop brings. The places that a text names say who sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.watchers import Watcher
from .across import Needed, OfFirst, Peer, Piece, Scattered, size_of

if TYPE_CHECKING:
    from ..core.machine import Block
    from ..core.shapes import Own, Shape, Tile
    from ..core.typing import Size
    from .across import Across


class Arrival(NamedTuple):
    """What some GPUs send to one, which is none of them even if the range has it."""

    senders: range
    tensor: str
    each: int | Callable[[int], int]
    """The words of each sender."""
    to: int
    """The GPU that receives."""
    total: int
    """The words of all senders."""

    def of(self, sender: int) -> int:
        """The words of one sender."""
        return self.each(sender) if callable(self.each) else self.each

    def among(self, gpus: range) -> range:
        """The senders between two GPUs, the receiver perhaps among them."""
        first, last, step = self.senders.start, self.senders.stop, self.senders.step
        return range(first + max(0, -((first - gpus.start) // step)) * step, min(last, gpus.stop), step)

    def within(self, gpus: range) -> int:
        """The words of the senders between two GPUs."""
        some = self.among(gpus)
        if callable(self.each):
            return sum(self.each(sender) for sender in some if sender != self.to)
        return self.each * (len(some) - (self.to in some))


@dataclass(frozen=True)
class Load:
    """A load of a text that brings words from other GPUs."""

    t: Across
    tensor: str
    words: int
    """Those of all GPUs."""
    shape: Shape
    own: Own
    sender: Tile | None

    @property
    def of_keys(self) -> bool:
        """Whether the words are those of keys, or of their gradients."""
        return self.tensor.removeprefix("d")[0] in "KV"

    @property
    def needed(self) -> bool:
        """Whether only those keys come that a row sees."""
        return isinstance(self.shape[0], Needed)

    @property
    def receivers(self) -> range:
        """The GPUs that receive; as many words each, if not only those that are needed come."""
        if self._from_first:
            return range(1, self.t.ranks)
        return range(self.sender.tile.length if type(self.sender) is Piece else self.t.ranks)  # type: ignore[arg-type]

    @property
    def _from_first(self) -> bool:
        return isinstance(self.own, tuple) and bool(self.own) and isinstance(self.own[0], OfFirst)

    def senders(self, r: int) -> range:
        """The GPUs that send to GPU r; it may be one of them."""
        if isinstance(self.sender, Peer):
            first, second = self.sender.of(r, 0), self.sender.of(r, 1)
            return range(first, first + cast("int", self.sender.tile.length) * (second - first), second - first)
        if self.sender is not None:
            return one(cast("Piece", self.sender).first(r))
        return one(0) if self._from_first else self._homes(r)

    def _homes(self, r: int) -> range:
        """The GPUs that have a part of the place in their own memory."""
        place, (home, *_) = self.shape[0], cast("tuple[Piece, ...]", self.own)
        if size_of(place) == home.each:  # the heads of these tokens lie in the GPUs of the group
            return range(r // self.t.apart * self.t.apart, (r // self.t.apart + 1) * self.t.apart)
        first = cast("Piece", place).first(r)
        if isinstance(place, Scattered):
            return range(first, first + place.each // place.chunk * place.step, place.step)
        return range(first // home.each, (first + size_of(place)) // home.each)

    def to(self, r: int) -> Arrival | None:
        """What GPU r receives."""
        if self.needed:
            return self._of_members(r)
        if r not in self.receivers:
            return None
        senders, total = self.senders(r), self.words // len(self.receivers)
        return Arrival(senders, self.tensor, total // (len(senders) - (r in senders)), r, total)

    def _of_members(self, r: int) -> Arrival:
        """The keys that are needed, of each member of a ring: those that a row of the GPU sees, or those of the GPU
        that a row of the member sees."""
        hops, u, shown = self.t.hops, self.t.apart, cast("Needed", self.shape[0]).tile.flipped
        group, words = r // u, prod(map(size_of, self.shape[1:]))

        def each(sender: int) -> int:
            pair = (sender // u, group) if shown else (group, sender // u)
            return hops.visit(*pair).keys * words

        return Arrival(self.senders(r), self.tensor, each, r, (hops.shown if shown else hops.needed)[group] * words)


def one(gpu: int) -> range:
    """A single GPU."""
    return range(gpu, gpu + 1)


class Loads(Watcher):
    """Records the loads of a folded run that bring words from other GPUs."""

    def __init__(self, t: Across):
        self.t = t
        self.found: list[Load] = []

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if words:
            self.found.append(Load(self.t, tensor, int(words), block.shape, block.own, block.sender))

    def arrivals(self, r: int) -> Iterator[Arrival]:
        """All that GPU r receives."""
        return filter(None, (load.to(r) for load in self.found))

    @property
    def in_turn(self) -> bool:
        """Whether GPUs receive alike that have the same place in their node, their group and their row of a mesh."""
        return all(not load.needed and len(load.receivers) == self.t.ranks for load in self.found)
