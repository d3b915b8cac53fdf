"""The heads of a layer with a state: its rule, the sizes and types of one key head, and what a step of it moves."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.options import KEY_HEADS, OF_STATE, flag
from ..errors import InputError, suggestion
from ..schedules.state import (
    BY_NAME,
    FINAL_STATE,
    INITIAL_STATE,
    NORMALISE,
    STATE_DTYPE,
    Rule,
    key_heads,
    key_words,
    length,
    state_type,
)
from ..schedules.state import rule_of as rule_of_problem
from ..units import dtype_bytes
from .state_floors import StateProblem, best_ring, step_reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..core.problem import Attention

READ = ("batch", "heads", "dv", "dtype", "acc_dtype", OF_STATE, KEY_HEADS.name, STATE_DTYPE.name)
NO_PART = "it has no part in what a state moves: leave it out"
GATE_BYTES = 4  # decays are logarithms in fp32


def rule_of(name: str, where: str = "--rule", *more: str) -> Rule:
    """The rule of a name. Raises InputError for any other; `more` are further names that it allows."""
    if name not in BY_NAME:
        raise InputError(where, name, ", ".join([*more, *BY_NAME]), suggestion(name, [*more, *BY_NAME]))
    return BY_NAME[name]


def check_read(p: Attention, instead: Mapping[str, str], *also: str) -> None:
    """Raise InputError for options on which an answer about the states of a problem does not depend; `instead` says of
    some why, and what to try, and `also` names further ones that it reads."""
    vain = {name: value for name, value in p.unusual().items() if name not in (*READ, *also)}
    if p.kv_heads == p.heads:
        vain.pop("kv_heads", None)
    if vain:
        found = ", ".join(map(str, vain.values()))
        hints = dict.fromkeys(instead.get(name, NO_PART) for name in vain)
        raise InputError(", ".join(map(flag, vain)), found, "nothing here", "; ".join(hints))


def transition_of(rule: Rule) -> str:
    """What the product of A_t over a run of tokens is, for `one_round_words`."""
    return "matrix" if rule.delta else {"fixed": "scalar"}.get(rule.decay, rule.decay)


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

    @property
    def decays(self) -> int:
        """Words of decay a token and value head."""
        return {"scalar": 1, "diagonal": self.d}.get(self.rule.decay, 0)

    def problem(self, N: int, initial: bool = False, final: bool = False) -> StateProblem:
        """The problem of one key head with N tokens."""
        decays, betas = self.values * self.decays, self.values * self.rule.delta
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
        return self.values * self.decays * GATE_BYTES

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

    def moved_by(
        self, requests: Iterable[tuple[int, bool, int]], ring: int = 1, final: bool = True
    ) -> tuple[Fraction, Fraction]:
        """The bytes that requests read and write; of each shape (new tokens, whether a state is before them, requests).
        A token behind a state is a mean step with the ring. Without `final` no state is written."""
        step, reads, writes = self.ring_step(ring), Fraction(0), Fraction(0)
        for new, behind, times in requests:
            read, written = step if new == 1 and behind else self.moved(new, behind)
            reads, writes = (
                reads + times * read,
                writes + times * (written if final else self.moved(new, behind, False)[1]),
            )
        return reads, writes

    def otherwise(self, requests: Sequence[tuple[int, bool, int]], ring: int = 1) -> dict[str, int]:
        """{another way to keep the states: the bytes that requests move with it}: what a claim may mean."""
        narrow, best = self._replace(state_word_bytes=min(2, self.state_word_bytes)), self.best_ring
        decodes = ring == 1 and any(new == 1 and behind for new, behind, _ in requests)
        found = {
            "states in 16 bit": narrow.moved_by(requests, ring),
            **({f"a ring of {best} rows, mean step": self.moved_by(requests, best)} if decodes else {}),
            "states that are read and not written": self.moved_by(requests, ring, final=False),
        }
        return {way: round(sum(moved)) for way, moved in found.items()}

    def least_step(self, token: int) -> int:
        """The bytes that the step of a token, counted from 1, reads at least (D1), of all heads."""
        state = step_reads(self.problem(token), token) * self.state_word_bytes
        return self.instances * (self.own_bytes[0] + state)


def heads_of_problem(p: Attention) -> StateHeads:
    """The heads of a problem with --rule."""
    keys = cast("int", key_heads(p))
    types = p.word_bytes, dtype_bytes(state_type(p))
    return StateHeads(rule_of_problem(p), p.d, p.dv, p.heads // keys, p.batch * keys, *types)


def problem_of(p: Attention) -> StateProblem:
    """The problem of one key head of a problem with --rule."""
    one = heads_of_problem(p).problem(cast("int", length(p)), bool(p[INITIAL_STATE]), bool(p[FINAL_STATE]))
    return one._replace(normaliser=bool(p[NORMALISE]), rows=cast("int", key_words(p)))
