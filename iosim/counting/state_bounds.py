"""What is proven of the words of attention with a state, each statement with its class (docs/floors-state.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..schedules.state import CHUNK, USUAL_CHUNK, key_words
from .state_floors import EMPTY, EXACT, RING, compulsory_words, once, product_words, ring_words, step_reads
from .state_heads import heads_of_problem, problem_of

if TYPE_CHECKING:
    from ..core.problem import Attention

DOCS = "docs/floors-state.md"


class StateFloor(NamedTuple):
    """The least words over all heads and sequences, and the algorithms that move no fewer."""

    name: str
    """K, S, D1 or D2."""
    words: int
    of_class: str
    """The class as the subject of a sentence: `no exact algorithm`."""
    condition: str
    """What is counted, and when it holds."""
    holds: bool = True


def compulsory(p: Attention) -> StateFloor:
    """K: what every exact algorithm moves."""
    words = heads_of_problem(p).instances * sum(compulsory_words(problem_of(p)))
    return StateFloor("K", words, EXACT, "moved: q, k, v, b and gates once, outputs once")


def products(p: Attention, M_words: int, chunk: int | None = None) -> StateFloor | None:
    """S, for an SRAM below the state; None with features, whose words are computed from fewer ones.

    A chunk has the tokens of the tiles that are counted, else those of --chunk, else as many as usual.
    """
    one, tokens = problem_of(p), chunk or int(p[CHUNK]) or USUAL_CHUNK
    if M_words < 1 or of_features(p):
        return None
    words = heads_of_problem(p).instances * max(0, product_words(one, M_words, tokens))
    return StateFloor("S", words, once(tokens), f"moved, for M < {one.state:,} words, a state", M_words < one.state)


def of_token(p: Attention) -> list[StateFloor]:
    """D1 and D2, for a step of one token behind a state; D1 alone with features."""
    one, heads = problem_of(p), heads_of_problem(p).instances
    (read, written), row = one.own, one.d + one.dv
    rank = one.rows if of_features(p) else min(one.rows, one.dv + one.normaliser)
    when = [f"from token {rank + 1:,} on", "behind a given state"]
    if of_features(p) and one.normaliser:
        del when[1 - one.initial]
    D1 = StateFloor("D1", heads * (read + step_reads(one)), EMPTY, f"read in a step, {', or '.join(when)}")
    if of_features(p):
        return [D1]
    mean = ring_words(one.N, one.stored, row) // one.N
    return [D1, StateFloor("D2", heads * (read + written + mean), RING, f"moved in a step, mean of {one.N:,} steps")]


def of_features(p: Attention) -> bool:
    """Whether words of phi(k) follow from fewer, or more, words of k. No S and no D2 is proven then."""
    return key_words(p) != p.d


def without_proof(p: Attention, M_words: int | None) -> list[tuple[str, str]]:
    """(name, class) of the floors that other problems have and that this one has not."""
    lost = [*([("S", once(int(p[CHUNK]) or USUAL_CHUNK))] if M_words else []), ("D2", RING)]
    return lost if of_features(p) else []


def state_floor(p: Attention, M_words: int | None, chunk: int | None = None) -> StateFloor:
    """The larger of K and S."""
    least, most = compulsory(p), products(p, M_words, chunk) if M_words else None
    return most if most is not None and most.holds and most.words > least.words else least


def statements(p: Attention, M_words: int | None) -> list[StateFloor]:
    """K, S if M is given, and D1 and D2."""
    S = products(p, M_words) if M_words else None
    return [compulsory(p), *([S] if S else []), *of_token(p)]
