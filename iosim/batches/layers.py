"""What a step moves in layers of two kinds: with attention, and with a state instead of a cache. Imports NumPy.

In a layer with a state a request has a state, whatever its length. A step reads its new tokens and the state before
them, if there is one, and writes the state behind them: `state-fused` and `state-decode` move that and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..answer import Answer, Column, Columns, Pieces, Row, Table, numbered
from ..core.problem import TENSORS
from ..counting.layers import ATTENTION, LayerKind, heads_of, kept_bytes, ring_of
from ..counting.state_floors import EMPTY
from ..verdict import about, joined

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..counting.state_heads import StateHeads
    from ..timing.claim import Judged
    from .answer import Batched
    from .shapes import Shapes

DOCS = "docs/floors-state.md"


class OfKind(NamedTuple):
    """What a step moves in layers of one kind, over all requests."""

    layers: int
    kind: str
    moved_by: str
    """A way of attention; or how the state is kept."""
    kept_bytes: int
    """Bytes of all requests that stay in HBM: states and rings, or K and V."""
    read_bytes: int
    write_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes


OF_KIND: Columns[OfKind] = (
    Column("layers", heading="layers"),
    Column("kind", "string", "kind"),
    Column("moved_by", "string", "moved by", spare=1),
    Column("kept_bytes", heading="kept in HBM", cell="bytes"),
    Column("read_bytes", heading="read bytes", cell="bytes", spare=3),
    Column("write_bytes", heading="write bytes", cell="bytes", spare=2),
    Column("total_bytes", heading="bytes", cell="bytes"),
)


def behind(shapes: Shapes) -> list[tuple[int, bool, int]]:
    """(new tokens, whether others lie before them, requests) of each shape."""
    return [(new, new < tokens, times) for new, tokens, times in shapes.each()]


def decodes(new: int, tokens: int) -> bool:
    """Whether a request has one new token behind others."""
    return new == 1 < tokens


def of_state(kind: LayerKind, p: Attention, shapes: Shapes) -> OfKind:
    """What the new tokens of all requests move in the layers of a kind."""
    ring = ring_of(kind)
    reads, writes = heads_of(kind, p).moved_by(behind(shapes), ring)
    kept = kind.layers * kept_bytes(kind, p) // p.batch
    how = "state read and written" if ring == 1 else f"ring of {ring} rows, mean step"
    return OfKind(kind.layers, kind.name, how, shapes.requests * kept, round(reads), round(writes))


def of_attention(found: Batched) -> OfKind:
    """What the way that is best moves in the layers with attention."""
    p, best = found.batch.problem, found.least or found.ways[0]
    tensors = [TENSORS[name] for name in p.cache_tensors if p.scale_words or not name.endswith("scale")]
    row = sum(p.in_bytes(tensor, p.shape(tensor)[-1]) for tensor in tensors)
    kept = found.batch.distinct_tokens * found.batch.layers * p.kv_heads * int(row)
    return OfKind(found.batch.layers, ATTENTION, best.way, kept, best.read_bytes, best.write_bytes)


def about_states(kind: LayerKind, heads: StateHeads, shapes: Shapes) -> str:
    """What decoding reads at least in the layers of a kind (D1), and what the best ring would move; empty if no request
    decodes."""
    least = sum(times * heads.least_step(t) for new, t, times in shapes.each() if decodes(new, t))
    many = sum(times for new, tokens, times in shapes.each() if decodes(new, tokens))
    if not many:
        return ""
    line = f"{EMPTY[0].upper()}{EMPTY[1:]}, reads less than {about(least)} in the {kind.name} layers of "
    line += numbered(many, "decoding request")
    now, best = (many * sum(heads.ring_step(rows)) for rows in (ring_of(kind), heads.best_ring))
    better = f"; a ring of {heads.best_ring} rows would move {about(round(best))} a step, not {about(round(now))}"
    less = about(round(best)) != about(round(now)) and best < now
    return f"{line}{better if less else ''} ({DOCS})."


@dataclass(frozen=True, repr=False)
class BatchOfLayers(Answer):
    """The answer of `batch` for layers of two kinds: what a step moves in each, over all requests."""

    kinds: Sequence[OfKind]
    """What each kind moves; attention by its best way."""
    attention: Batched | None
    """The answer about the layers with attention; None if there are none."""
    shapes: Shapes
    """The requests."""
    sentences: Sequence[str]
    """What is known of decoding in layers with a state."""
    claim: Judged | None = None
    """The judgement of a claim about the step."""

    @property
    def total_bytes(self) -> int:
        """The bytes that the step moves in all layers."""
        return sum(kind.total_bytes for kind in self.kinds)

    @cached_property
    def lines(self) -> list[str]:
        """What a step moves in each kind of layers, and what is known of decoding; first what is claimed."""
        parts = [
            f"{about(kind.total_bytes)} in {kind.layers} of {kind.kind}"
            + f" by {kind.moved_by}" * (kind.kind == ATTENTION)
            for kind in self.kinds
        ]
        layers = numbered(sum(kind.layers for kind in self.kinds), "layer")
        whole = f"{about(self.total_bytes)} in {layers}: {joined(parts)}" if len(parts) > 1 else parts[0]
        return [*self.claimed, f"A step moves {whole}.", *filter(None, self.sentences)]

    @property
    def claimed(self) -> list[str]:
        """The sentences about a claim; none if nothing is claimed."""
        return [] if self.claim is None else self.claim.lines()

    def table(self) -> Table:
        return Table(OF_KIND, self.kinds)

    def pieces(self) -> Pieces:
        first, *others = self.lines[len(self.claimed) :]
        new, tokens = (self.shapes.sum(many) for many in (self.shapes.new, self.shapes.tokens))
        asked = f"batch: {numbered(self.shapes.requests, 'request')}, {new:,} new of {numbered(tokens, 'token')}\n"
        more: Pieces = ["", *self.attention.pieces()] if self.attention else []
        return [*self.claimed, first, asked, self.table(), *([""] if others else []), *others, *more]

    def to_dict(self) -> Row:
        of_attention = self.attention.to_dict() if self.attention else {}
        claim = {"claim": None if self.claim is None else self.claim.to_dict()}
        answer = {**claim, "answer": " ".join(self.lines), "notes": [*self.notes]}
        return {**of_attention, "kinds": self.table().to_rows(), "step_bytes": self.total_bytes, **answer}

    def summary(self) -> str:
        return f"{numbered(self.shapes.requests, 'request')}, {joined(f'{k.layers} x {k.kind}' for k in self.kinds)}"

    @property
    def notes(self) -> Sequence[str]:
        return self.attention.notes if self.attention else []
