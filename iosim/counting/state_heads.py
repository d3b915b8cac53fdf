"""The heads of a layer with a state: its rule, the sizes and types of one key head, and what a step of it moves."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ..errors import InputError, suggestion
from .state_floors import StateProblem, best_ring, step_reads

GATE_BYTES = 4  # decays are logarithms in fp32


class Rule(NamedTuple):
    """What S_(t-1) becomes before k_t u_t^T is added."""

    decay: str
    """`none`, `fixed` (a number of the head), `scalar` (a number of the token) or `diagonal` (one for each row)."""
    delta: bool
    """Whether u_t is v_t less what the state holds for k_t, times b_t."""

    def decays(self, d: int) -> int:
        """Words of decay a token and value head."""
        return {"scalar": 1, "diagonal": d}.get(self.decay, 0)

    @property
    def transition(self) -> str:
        """What the product of A_t over a run of tokens is, for `one_round_words`."""
        return "matrix" if self.delta else {"none": "none", "diagonal": "diagonal"}.get(self.decay, "scalar")


RULES = {
    "linear": Rule("none", False),
    "retnet": Rule("fixed", False),
    "scalar": Rule("scalar", False),
    "diagonal": Rule("diagonal", False),
    "delta": Rule("none", True),
    "delta-scalar": Rule("scalar", True),
    "delta-diagonal": Rule("diagonal", True),
}
KNOWN_AS = {"mamba2": "scalar", "gla": "diagonal", "deltanet": "delta", "gdn": "delta-scalar", "kda": "delta-diagonal"}


def rule_of(name: str, where: str = "--rule") -> Rule:
    """The rule of a name, also one that people type. Raises InputError for any other."""
    names = [*RULES, *KNOWN_AS]
    if name not in names:
        raise InputError(where, name, ", ".join(names), suggestion(name, names))
    return RULES[KNOWN_AS.get(name, name)]


class StateHeads(NamedTuple):
    """Key heads of one size, each with `values` value heads: `instances` of them, over all sequences and layers."""

    rule: Rule
    d: int
    dv: int
    """Words of a value, of one value head."""
    values: int
    instances: int
    word_bytes: int = 2
    """Bytes of a word of q, k, v, b and o."""
    state_word_bytes: int = 4
    """Bytes of a word of a state in HBM."""

    def problem(self, N: int, initial: bool = False, final: bool = False) -> StateProblem:
        """The problem of one key head with N tokens."""
        decays, betas = self.values * self.rule.decays(self.d), self.values * self.rule.delta
        return StateProblem(N, self.d, self.values * self.dv, decays, betas, initial, final)

    @property
    def state_bytes(self) -> int:
        """The state of a key head."""
        return self.d * self.values * self.dv * self.state_word_bytes

    @property
    def row_bytes(self) -> int:
        """The row (k, u) of a token that a ring keeps, of a key head."""
        return (self.d + self.values * self.dv) * self.word_bytes

    @property
    def decay_bytes(self) -> int:
        """The decays of a token, of a key head."""
        return self.values * self.rule.decays(self.d) * GATE_BYTES

    @property
    def own_bytes(self) -> tuple[int, int]:
        """What the step of a token reads and writes of its own, of a key head: q, k, v and gates; o."""
        each = self.values * self.dv * self.word_bytes
        return (
            2 * self.d * self.word_bytes + each + self.decay_bytes + self.values * self.rule.delta * self.word_bytes,
            each,
        )

    def moved(self, N: int, initial: bool, final: bool = True) -> tuple[int, int]:
        """The bytes that N tokens of all heads read and write at least (K)."""
        (read, written), state = self.own_bytes, self.state_bytes
        reads = N * read + (state if initial else -self.decay_bytes)
        return self.instances * reads, self.instances * (N * written + final * state)

    @property
    def best_ring(self) -> int:
        """The rows of the ring of which steps move least, if each appends its own row."""
        return best_ring(max(1, self.state_bytes - self.row_bytes), self.row_bytes)

    def ring_step(self, length: int) -> tuple[Fraction, Fraction]:
        """The mean bytes that a step of all heads reads and writes with a ring, of which it appends a row."""
        (read, written), state, row = self.own_bytes, self.state_bytes, self.row_bytes
        reads = read + state + Fraction(row * (length - 1), 2)
        writes = written + Fraction(state + row * (length - 1), length)
        return self.instances * reads, self.instances * writes

    def least_step(self, token: int) -> int:
        """The bytes that the step of a token, counted from 1, reads at least (D1), of all heads."""
        state = step_reads(self.problem(token), token) * self.state_word_bytes
        return self.instances * (self.own_bytes[0] + state)
