"""Floors of attention with a state, in whole numbers: the least words that any algorithm of a class moves.

The proofs are in docs/floors-state.md. Numbers are of one key head: its value heads are one problem, whose state is
d x dv with the columns of all of them. No floor here may be printed without its class.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from .forms import root_above

EXACT = "no exact algorithm"
FIXED = "no exact algorithm with fixed addresses, one number a word"
EMPTY = f"{FIXED}, from an empty chip"
RING = "no scheme of a state and rows (k, u)"


def once(chunk: int) -> str:
    """The class of `product_words`."""
    within = f"only within chunks of {chunk:,} token{'s' * (chunk != 1)}" if chunk else "nowhere"
    return f"no algorithm that computes each k u once and uses scores {within}"


class StateProblem(NamedTuple):
    """N tokens of one key head: keys of d words, dv columns in all its value heads."""

    N: int
    d: int
    dv: int
    decays: int = 0
    """Words of gates a token that act on the state before it."""
    betas: int = 0
    """Words of b a token, of the delta rule."""
    initial: bool = False
    """Whether S_0 is given; else it is 0."""
    final: bool = False
    """Whether S_N is asked for."""
    normaliser: bool = False
    """Whether outputs are divided by q . z with z the sum of keys, which are d words of state more."""
    rows: int = 0
    """Words of phi(k), the rows of a state; d if 0."""

    @property
    def state(self) -> int:
        """The words of S."""
        return (self.rows or self.d) * self.dv

    @property
    def stored(self) -> int:
        """The words of a state in slow memory, with z."""
        return self.state + (self.rows or self.d) * self.normaliser

    @property
    def gates(self) -> int:
        """The gate words that outputs depend on. The first decay acts on S_0."""
        return self.N * self.betas + (self.N - 1 + self.initial) * self.decays

    @property
    def own(self) -> tuple[int, int]:
        """The words of a token that its step reads and writes: q, k, v, gates; o."""
        return 2 * self.d + self.dv + self.decays + self.betas, self.dv


def compulsory_words(p: StateProblem) -> tuple[int, int]:
    """The reads and writes that every exact algorithm makes (K). M >= d dv + d + 2 words are enough to make no more."""
    queries, keys = p.N, p.N
    if p.normaliser and not p.initial:  # o_1 is v_1
        queries, keys = p.N - 1, p.N if p.N > 1 or p.final else 0
    if p.normaliser and (p.rows or p.d) == 1:
        queries = 0  # q cancels
    reads = p.d * (queries + keys) + p.N * p.dv + p.gates + p.initial * p.stored
    return reads, p.N * p.dv + p.final * p.stored


def product_words(p: StateProblem, M_words: int, chunk: int = 0) -> int:
    """The least reads and writes (S) of algorithms that compute each k u once, with scores within chunks only.

    It is 4 s (N - C) / sqrt(M) + M/3 - s with s = d dv, without the last term if S_0 is given, and s more if S_N is
    asked for; gates are added. May be negative.
    """
    s, work = p.state, 2 * p.state * max(0, p.N - max(chunk, 0))
    several = M_words if 27 * work * work > M_words**3 else 0  # segments: more than one
    words = -(-(root_above((6 * work) ** 2, M_words) + several) // 3)
    return words + s * (p.initial + p.final - 1) + p.gates


def step_reads(p: StateProblem, token: int | None = None, kept: int = 0) -> int:
    """The least words of earlier tokens that a step reads (D1), beside its own inputs, from a chip that keeps `kept`
    words between steps. `token` counts from 1; None: any token behind as many others as matter.

    With a normaliser outputs give S and z up to a common factor. With phi, and no state given, values alone are varied.
    """
    rows, columns = p.rows or p.d, p.dv + p.normaliser
    before = None if token is None or p.initial else token - 1
    if rows != p.d and not p.initial:
        return max(0, (rows if before is None else min(rows, before)) * p.dv - kept)
    full = min(rows, columns)
    rank = full if before is None else min(full, before)
    return max(0, rank * (rows + columns - rank) - (p.normaliser and rank == full) - kept)


def ring_words(steps: int, state: int, row: int) -> int:
    """The least words that `steps` steps read and write beside their own inputs and outputs (D2), with a state and
    rows (k, u) of so many words. Sizes in bytes give bytes.

    The steps are cut into lengths l: a state is read each step and written between lengths, and the step at place i
    of a length reads i rows. Equal lengths are best, near `best_ring`.
    """
    if steps < 1:
        return 0
    near = steps // max(1, best_ring(state, row))
    return steps * state + min(cut_into(parts, steps, state, row) for parts in {max(1, near), min(steps, near + 1)})


def cut_into(parts: int, steps: int, state: int, row: int) -> int:
    """The words beside the reads of the state, for lengths that are equal up to 1."""
    length, longer = divmod(steps, parts)
    return (parts - 1) * state + row * (parts * (length * (length - 1) // 2) + longer * length)


def best_ring(state: int, row: int) -> int:
    """The tokens L of the best ring: the least L with L (L + 1) >= 2 state / row."""
    least = -(-2 * state // row)
    L = isqrt(least)
    return L + (least > L * (L + 1))


def ring_step(length: int, state: int, row: int, appended: bool = False) -> Fraction:
    """The mean words of a step with a ring of `length` rows beside its own inputs and outputs: state + state / L +
    row (L - 1) / 2, and row (1 - 1/L) more if the step itself appends its row."""
    rows = Fraction(row * (length - 1), 2) + (Fraction(row * (length - 1), length) if appended else 0)
    return state + Fraction(state, length) + rows


def cut_words(p: StateProblem, earlier: int, later: int) -> int:
    """The least words that the side with the `later` tokens of a sequence receives from that with the `earlier` ones
    (X): d dv, if neither is short."""
    n = min(later, p.d)
    rank = min(earlier, n, p.dv)
    return rank * (n + p.dv - rank)


def one_round_words(p: StateProblem, transition: str) -> int:
    """The least words that a device between two others sends to each later one, if no message depends on another (X):
    the state and the product of its A_t, which is `none`, a `scalar`, a `diagonal` or a `matrix`."""
    return p.state + {"none": 0, "scalar": 1, "diagonal": p.d, "matrix": p.d * p.d}[transition]
