"""A claimed time or rate of a step beside what its requests need: timing/claim.py over all of them. Imports NumPy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..counting.layers import heads_of, ring_of
from ..counting.needed import needed_by
from ..errors import InputError
from ..hardware import load
from ..timing.claim import Judged, in_narrower_types, judged, parse_claim
from .floor import problems_of
from .layers import behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from ..counting.layers import LayerKind
    from .answer import Batched
    from .shapes import Shapes


def claim_on(
    text: str, hardware: str | None, p: Attention, shapes: Shapes, found: Batched | None, states: Sequence[LayerKind]
) -> Judged:
    """The judgement of a claim about a step on a GPU: in layers with attention, of which `found` is the answer, and in
    those with a state. Raises InputError where no GPU is named."""
    claim = parse_claim(text, flops=not states)
    if hardware is None:
        raise InputError("--claim", text, "a GPU, whose rates decide it", "as --hardware h100")
    moved, instead = moved_in_states(p, shapes, states)
    work = {dtype: {**of, "memory": of["memory"] + moved} for dtype, of in work_of_attention(found).items()}
    own = work.pop(p.dtype, {"memory": moved})
    of_attention = own["memory"] - moved
    ways = {way: size + of_attention for way, size in instead.items()}
    return judged(claim, own, load(hardware), p.dtype, {} if states else work, ways)


def work_of_attention(found: Batched | None) -> dict[str, dict[str, int]]:
    """{type: the least work of all layers with attention in it}: the type of the problem, and narrower ones."""
    if found is None:
        return {}
    batch, seen = found.batch, [*problems_of(found.batch)]
    each = {batch.problem.dtype: batch.problem, **in_narrower_types(batch.problem)}
    return {dtype: needed_by(p, seen) for dtype, p in each.items()}


def moved_in_states(p: Attention, shapes: Shapes, states: Sequence[LayerKind]) -> tuple[int, dict[str, int]]:
    """(the bytes that move in layers with a state, {another way to keep the states: the bytes with it})."""
    requests, total, less = behind(shapes), 0, Counter[str]()
    for kind in states:
        heads, ring = heads_of(kind, p), ring_of(kind)
        own = round(sum(heads.moved_by(requests, ring)))
        total += own
        less.update({way: own - size for way, size in heads.otherwise(requests, ring).items()})
    return total, {way: total - saved for way, saved in less.items()}
