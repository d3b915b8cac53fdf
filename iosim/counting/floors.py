"""Floors: the least words that any algorithm of a class can move, with true constants, for any mask.

The proofs are in docs/floors.md, the inequalities in forms.py. This file finds what a problem's queries see, and takes
the largest number that the compulsory words and the forms give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, overload

from ..errors import InputError
from ..masks.visible import Visible, visible
from ..units import PACKED, dtype_bytes, parse_bytes
from .forms import Form, backward_forms, forward_forms, gradients, latent_forms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size

CLASS = (
    "exact attention by standard products: each score sums d products of q and k, each output one product of p and v "
    "for every visible key; in any order and tiles, with any recomputation"
)
BACKWARD_CLASS = (
    "exact gradients by the five standard products, with P stored or computed again, LSE and D for free; in any order "
    "and tiles, with any recomputation; P is computed from S and P words alone, not from dP or dS, as FlashAttention 1 "
    "to 3, xFormers, Triton's tutorial, FlexAttention and standard attention do"
)


class Floor(NamedTuple):
    """The least words, and the numbers with which they can be computed again by hand.

    `words` (reads and writes) and `reads` are over all heads and batches. Where slow memory adds, as atomic operations
    do, `words` bounds reads, writes and adds together. `form` says which statement gives `words`: compulsory, simple,
    I, II, latent, latent II, backward, I', II', I'' or II''. `segments` (K), `lam` (lambda) and `weights` (h, a and b
    of forms I'' and II'') are those of the form, or None if it has none. `M_words` is None if M was not given. An
    instance is the query heads that share a KV head, in one batch; there are `instances` of them. `pairs` (|E|),
    `rows`, `written` (n, or n' of the form) and `writes` (the compulsory ones) are of one instance. Except for
    compulsory and simple, words / instances = the right side of the form + writes - written.
    """

    words: int
    reads: int
    form: str
    segments: int | None
    lam: float | None
    M_words: int | None
    pairs: int
    rows: int
    written: int
    d: int
    dv: int
    writes: int
    instances: int
    weights: tuple[int, int, int] | None = None


def floor(problem: Attention, M: int | str | None = None, tiles: Tiling | None = None, backward: bool = False) -> Floor:
    """The floor of attention's forward pass, for an SRAM of M (bytes, `100KB`, or words as `51200el`); with `backward`,
    that of the gradients dQ, dK and dV.

    Without M it is the compulsory traffic. InputError if the mask depends on tiles and they are not given, or if its
    visible pairs cannot be counted in reasonable time.
    """
    from ..core.problem import Attention

    if not isinstance(problem, Attention):
        raise InputError("floor: problem", problem, "an iosim.Attention", "iosim.bounds takes N, d and M")
    return (backward_floor if backward else forward_floor)(problem, sram_words(problem, M), tiles)


def check_dropout(problem: Attention) -> None:
    """Raise InputError if there is dropout. An algorithm that knows which pairs are dropped needs fewer inputs."""
    if problem.dropout is not None:
        raise InputError("dropout", "given", "no dropout, for a floor", "dropped pairs may leave inputs out")


def forward_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of attention's forward pass, for an SRAM of `M_words` words; the compulsory traffic for None."""
    check_dropout(problem)
    return floor_of_seen(problem, seen_by_group(problem, tiles), M_words)


def selected_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of attention in which each query sees the keys of any `top_k` blocks.

    A choice is a mask. All queries may choose the same blocks, so only the keys of one query must be read.
    """
    check_dropout(problem)
    from ..schedules.selected import KEY_BLOCK, TOP_K

    keys, rows = problem[TOP_K] * problem[KEY_BLOCK], problem.N * (problem.heads // problem.kv_heads)
    several = keys > 1
    seen = Visible(several * rows * keys, several * rows, several * keys, rows, keys)
    return floor_of_seen(problem, seen, M_words)


def floor_of_seen(problem: Attention, seen: Visible, M_words: int | None) -> Floor:
    """The floor of a forward pass in which the query heads of a group see `seen`."""
    d, dv = problem.d, problem.dv
    if problem.latent:
        return mla_floor(problem, M_words, seen)
    reads = d * (seen.rows + seen.keys) + dv * seen.any_keys
    found = forward_forms(seen, d, dv, M_words) if M_words and seen.pairs else ()
    return highest(problem, seen, M_words, (reads, dv * seen.any_rows), dv * seen.rows, found)


def backward_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of the gradients dQ, dK, dV, for an SRAM of `M_words` words; the compulsory traffic for None."""
    check_dropout(problem)
    seen, d, dv = seen_by_group(problem, tiles), problem.d, problem.dv
    reads = d * (seen.rows + seen.keys) + dv * (seen.keys + seen.any_rows)
    writes = d * (seen.rows + seen.keys) + dv * seen.any_keys
    found = backward_forms(seen, d, dv, M_words) if M_words and seen.pairs else ()
    return highest(problem, seen, M_words, (reads, writes), gradients(seen, d, dv), found)


def mla_floor(problem: Attention, M_words: int | None, seen: Visible) -> Floor:
    """The floor of latent attention, where V is the first dv <= d words of each row of K, so one read serves both."""
    d, dv = problem.d, problem.dv
    if dv > d:
        raise InputError("--dv", dv, f"at most --d {d}, because V is part of K")
    reads = d * (seen.rows + seen.keys) + dv * (seen.any_keys - seen.keys)
    found = latent_forms(seen, d, dv, M_words) if M_words and seen.pairs else ()
    return highest(problem, seen, M_words, (reads, dv * seen.any_rows), dv * seen.rows, found)


def seen_by_group(problem: Attention, tiles: Tiling | None) -> Visible:
    """What the query heads that share one KV head see. All heads have the same mask."""
    one, group = visible(problem.mask, problem.N, problem.Nk, tiles), problem.heads // problem.kv_heads
    return one._replace(pairs=group * one.pairs, rows=group * one.rows, any_rows=group * one.any_rows)


def highest(
    problem: Attention,
    seen: Visible,
    M_words: int | None,
    compulsory: tuple[int, int],
    written: int,
    found: Iterable[Form],
) -> Floor:
    """The largest of the compulsory words (reads, writes) and the words that forms give, over all heads and batches.

    A run of several instances contains a run of each of them in the same M, so their floors add up.
    """
    least_reads, least_writes = compulsory
    words, best, segments = sum(compulsory), None, None
    for one in found:
        reached, K = one.best(M_words or 0)
        # The form is a bound on reads + one.written, and at least `least_writes` words are written.
        least_reads = max(least_reads, reached - one.written)
        total = reached - one.written + least_writes
        if total > words:
            words, best, segments = total, one, K
            written = one.written or written
    instances = problem.batch * problem.kv_heads
    return Floor(
        words=instances * words,
        reads=instances * least_reads,
        form=best.name if best else "compulsory",
        segments=segments,
        lam=float(best.lam) if best and best.lam else None,
        M_words=M_words,
        pairs=seen.pairs,
        rows=seen.rows,
        written=written,
        d=problem.d,
        dv=problem.dv,
        writes=least_writes,
        instances=instances,
        weights=best.weights if best else None,
    )


def sram_words(problem: Attention, M: int | str | None) -> int | None:
    """The words that an SRAM of M holds."""
    return None if M is None else held_words(problem, parse_bytes(M, problem.word_bytes))


@overload
def held_words(problem: Attention, M_bytes: int) -> int: ...


@overload
def held_words(problem: Attention[Size], M_bytes: Size) -> Size: ...


def held_words(problem: Attention[Size], M_bytes: Size) -> Size:
    """The most words that M bytes hold: those of the narrowest type."""
    size = M_bytes + problem.register_bytes
    return 2 * size if problem.cache_dtype == PACKED else size // narrowest_bytes(problem)


def in_narrowest(problem: Attention[Size], words: int) -> int:
    """The bytes of words of the narrowest type among Q, K and V, and the accumulators; of int4 rounded up."""
    return -(-words // 2) if problem.cache_dtype == PACKED else words * narrowest_bytes(problem)


def narrowest_bytes(problem: Attention[Size]) -> int:
    """The bytes of a word of the narrowest type, of whole bytes."""
    return min(problem.word_bytes, problem.acc_bytes, dtype_bytes(problem.cache_dtype))
