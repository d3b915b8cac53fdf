"""Barriers are derived: one is written only where a statement meets what another thread touched since the last one.

Every team of threads owns the same rows of every block (cuda/tiles.cuh). Two accesses that both keep to their own rows of
one block need the team to agree (a warp: cheap); any others that meet need the whole thread block. Copies that are
under way are waited for where their block is first met, not earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

NONE, TEAM, BLOCK = range(3)


@dataclass(frozen=True)
class Access:
    """Bytes low..high of shared memory (space "") or a tensor in HBM, by the owner of each row or by anyone."""

    space: str
    low: int
    high: int
    block: int
    own: bool
    writes: bool
    copy: int | None = None  # number of the asynchronous copy that may still be under way
    agreed: bool = False  # the team synchronised since

    def against(self, new: Access) -> int:
        """The barrier needed between this access and a new one."""
        apart = self.space != new.space or (self.space == "" and (self.high <= new.low or new.high <= self.low))
        if apart or not (self.writes or new.writes):
            return NONE
        if self.own and new.own and self.block == new.block:
            return NONE if self.agreed else TEAM
        return BLOCK


@dataclass(frozen=True)
class State:
    """What happened since the last barrier, and the copies that may be under way, oldest first."""

    accesses: frozenset[Access] = frozenset()
    copies: tuple[int, ...] = ()

    def before(self, new: list[Access]) -> tuple[int | None, int, State]:
        """What a statement needs first, copies that may stay under way (or None) and a barrier; and the state then."""
        met = [(old, need) for old in self.accesses for access in new if (need := old.against(access))]
        waits = [self.copies.index(old.copy) for old, _ in met if old.copy in self.copies]
        state, still = self, None
        if waits:
            done = self.copies[: max(waits) + 1]
            still = len(self.copies) - len(done)
            landed = {replace(x, copy=None) if x.copy in done else x for x in self.accesses}
            state = State(frozenset(landed), self.copies[len(done) :])
        barrier = max((need for _, need in met), default=NONE)
        return still, barrier, state.after(barrier)

    def after(self, barrier: int) -> State:
        flying = {x for x in self.accesses if x.copy in self.copies}
        if barrier == BLOCK:
            return replace(self, accesses=frozenset(flying))
        if barrier == TEAM:
            return replace(self, accesses=frozenset({replace(x, agreed=True) for x in self.accesses - flying} | flying))
        return self

    def add(self, new: list[Access], copy: int | None = None) -> State:
        return State(self.accesses | set(new), self.copies if copy is None else (*self.copies, copy))

    def landed(self) -> State:
        """After a wait for all copies."""
        return State(frozenset(replace(x, copy=None) for x in self.accesses))

    def join(self, other: State) -> State:
        """After either of two paths, of which the other left no new copy under way."""
        return State(self.accesses | other.accesses, self.copies)


def describe(still: int | None, barrier: int) -> list[str]:
    """The statements of CUDA that do it."""
    lines = [] if still is None else [f"copies_done<{still}>();"]
    return lines + {NONE: [], TEAM: ["Team::sync();"], BLOCK: ["__syncthreads();"]}[barrier]


def sram(block: Any, low: int, high: int, own: bool, writes: bool, copy: int | None = None) -> Access:
    return Access("", low, high, id(block), own, writes, copy)


def hbm(block: Any, tensor: str, writes: bool, copy: int | None = None) -> Access:
    return Access(tensor, 0, 0, id(block), True, writes, copy)
