"""Decides where a kernel needs which barrier: only where a statement conflicts with accesses of other threads.

Two accesses conflict if they touch the same memory and at least one of them writes. The barrier between them depends on
whose rows they touch, because each team of threads owns the same rows of every block (cuda/tiles.cuh):

- If both touch only the team's own rows of one block, the team synchronises. A team is mostly a warp, so this is cheap.
- Otherwise the whole thread block synchronises.

The wait for an asynchronous copy comes where its block is next used, not earlier. cuda/write.py says what each
statement touches. The mark of a step says which arguments it reads whole. These barriers stand between statements; a
step may hold others inside (steps/*.cuh).
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.machine import Block

NONE, TEAM, BLOCK = range(3)


class Access(NamedTuple):
    """One access of a statement: to bytes low..high of shared memory (`space` is empty), or to a tensor in HBM."""

    space: str
    low: int
    high: int
    block: int
    """The block of SRAM that is accessed, or copied from or to HBM."""
    own: bool
    """Every team touches only the rows that it owns."""
    writes: bool
    copy: int | None = None
    """The number of an asynchronous copy that may still be under way."""
    agreed: bool = False
    """The team has synchronised since this access."""

    def against(self, new: Access) -> int:
        """The barrier needed between this access and a new one."""
        apart = self.space != new.space or (self.space == "" and (self.high <= new.low or new.high <= self.low))
        if apart or not (self.writes or new.writes):
            return NONE
        if self.own and new.own and self.block == new.block:
            return NONE if self.agreed else TEAM
        return BLOCK


class State(NamedTuple):
    """The accesses since the last barrier, and the copies that may be under way, oldest first."""

    accesses: frozenset[Access] = frozenset()
    copies: tuple[int, ...] = ()

    def before(self, new: list[Access]) -> Needed:
        """The wait and the barrier before a statement with these accesses. Copies end in the order in which they
        began."""
        met = [(old, need) for old in self.accesses for access in new if (need := old.against(access))]
        waits = [self.copies.index(old.copy) for old, _ in met if old.copy in self.copies]
        state, flying = self, None
        if waits:
            done = self.copies[: max(waits) + 1]
            flying = len(self.copies) - len(done)
            landed = {x._replace(copy=None) if x.copy in done else x for x in self.accesses}
            state = State(frozenset(landed), self.copies[len(done) :])
        barrier = max((need for _, need in met), default=NONE)
        return Needed(flying, barrier, state.after(barrier))

    def after(self, barrier: int) -> State:
        """The state after a barrier; it does not end the copies that are under way."""
        flying = {x for x in self.accesses if x.copy in self.copies}
        if barrier == BLOCK:
            return self._replace(accesses=frozenset(flying))
        if barrier == TEAM:
            return self._replace(accesses=frozenset({x._replace(agreed=True) for x in self.accesses - flying} | flying))
        return self

    def add(self, new: list[Access], copy: int | None = None) -> State:
        """The state after more accesses, by asynchronous copy number `copy` if it is not None."""
        return State(self.accesses | set(new), self.copies if copy is None else (*self.copies, copy))

    def landed(self) -> State:
        """The state after a wait for all copies."""
        return State(frozenset(x._replace(copy=None) for x in self.accesses))

    def join(self, other: State) -> State:
        """The state after this path or the other one, which left no new copy under way."""
        return State(self.accesses | other.accesses, self.copies)


class Needed(NamedTuple):
    """The wait for copies and the barrier that a statement needs before it."""

    copies: int | None
    """The number of copies that may still be under way after the wait; None if there is nothing to wait for."""
    barrier: int
    """NONE, TEAM or BLOCK."""
    state: State
    """The state after the wait and the barrier."""


def barrier_lines(needed: Needed) -> list[str]:
    """The CUDA of a wait and a barrier."""
    lines = [] if needed.copies is None else [f"copies_done<{needed.copies}>();"]
    return lines + {NONE: [], TEAM: ["Team::sync();"], BLOCK: ["__syncthreads();"]}[needed.barrier]


def sram(block: Block, low: int, high: int, own: bool, writes: bool, copy: int | None = None) -> Access:
    """An access to the bytes low..high of a block in shared memory."""
    return Access("", low, high, id(block), own, writes, copy)


def hbm(block: Block, tensor: str, writes: bool, copy: int | None = None) -> Access:
    """An access to a tensor in HBM by the copy of a block, each team for its own rows."""
    return Access(tensor, 0, 0, id(block), True, writes, copy)
