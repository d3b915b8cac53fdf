"""The floor of a batch. Imports NumPy.

Requests that have tokens in common are one problem with a mask: its rows are all their new tokens, its keys their
distinct tokens, and a row sees the tokens of its own request. So docs/floors.md applies to it with |E| visible pairs.
Requests that have none in common are several problems, whose floors add up (section 2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.problem import DENSE, narrowed
from ..counting.floor_arrays import SeenAt, floor_of_arrays
from ..counting.floors import floor_of_seen, held_words, narrowest_bytes
from ..masks.visible import Visible, visible

if TYPE_CHECKING:
    from ..core.mask_types import Mask
    from .asked import Batch
    from .shapes import Shapes, Whole

MOST_EXACT = 2000  # shapes; more are counted in float64, whose floors are lower by at most a word an instance


class BatchFloor(NamedTuple):
    """The floor of a batch in words, over all heads and layers, with the numbers that it follows from, of one head."""

    words: int
    form: str
    """The statement that gives most of it, as `form` of a `Floor`."""
    pairs: int
    """Visible pairs (query of one head, key), in rows that see two keys or more."""
    rows: int
    """Queries of one head."""
    keys: int
    """Distinct keys."""
    M_words: int | None
    forms: dict[str, int]
    """The words that each statement gives, the most first."""
    bytes: int
    """`words` in bytes of the narrowest type that moves."""


def floor_of(batch: Batch, register_bytes: int = 0) -> BatchFloor:
    """The floor of a batch for its M, and for registers beside it; without M the compulsory words, each distinct word
    once."""
    M_words = None if batch.M_bytes is None else int(held_words(batch.problem, batch.M_bytes + register_bytes))
    families = batch.tree.families()
    together = {index for family in families for index in family}
    forms: dict[str, int] = {}
    pairs = 0
    for family in families:
        seen = seen_by_family(batch, family)
        found = floor_of_seen(batch.problem, times(seen, batch.group), M_words)
        forms[found.form] = forms.get(found.form, 0) + found.words
        pairs += seen.pairs
    alone = alone_of(batch, together)
    if len(alone):
        more, seen_pairs = floor_alone(batch, alone, M_words)
        forms = {name: forms.get(name, 0) + more.get(name, 0) for name in {**forms, **more}}
        pairs += seen_pairs
    forms = dict(sorted(forms.items(), key=lambda one: -one[1]))
    words, least = sum(forms.values()), narrowest_bytes(batch.problem)
    tokens = batch.new_tokens, batch.distinct_tokens
    return BatchFloor(words, next(iter(forms)), pairs, *tokens, M_words, forms, words * least)


def alone_of(batch: Batch, together: set[int]) -> Shapes:
    """The shapes of the requests that have no tokens in common with others."""
    if not together:
        return batch.shapes
    left = batch.shapes.times.copy()
    for index in together:
        left[batch.shape_of[index]] -= 1
    return replace(batch.shapes, times=left).picked(left > 0)


def floor_alone(batch: Batch, alone: Shapes, M_words: int | None) -> tuple[dict[str, int], int]:
    """(words by form, visible pairs) of requests that are problems of their own."""
    seen, group = seen_at(batch.mask, alone), batch.group
    pairs = alone.sum(seen.pairs)
    if len(alone) > MOST_EXACT:
        words, form = floor_in_arrays(batch, alone, seen, M_words)
        return {form: words}, pairs
    forms: dict[str, int] = {}
    for number, *one in zip(alone.times.tolist(), *(column.tolist() for column in seen), strict=True):
        found = floor_of_seen(batch.problem, times(Visible(*one), group), M_words)
        forms[found.form] = forms.get(found.form, 0) + found.words * number
    return forms, pairs


def floor_in_arrays(batch: Batch, alone: Shapes, seen: Seen, M_words: int | None) -> tuple[int, str]:
    """(words, form) of the floors of many shapes at once. `seen` is what the queries of one head see."""
    g = batch.group
    columns = (seen.pairs * g, seen.rows * g, seen.keys, seen.any_rows * g, seen.any_keys)
    several = SeenAt(*(column.astype(float) for column in columns))
    words = floor_of_arrays(batch.problem, several, M_words)
    form = "compulsory" if np.array_equal(words, floor_of_arrays(batch.problem, several, None)) else "several"
    return alone.sum(words.astype(np.int64)), form


class Seen(NamedTuple):
    """The fields of `Visible` for many shapes, of one head."""

    pairs: Whole
    rows: Whole
    keys: Whole
    any_rows: Whole
    any_keys: Whole


def seen_at(mask: Mask, alone: Shapes) -> Seen:
    """What the queries of one head see in each shape."""
    new, tokens = alone.new, alone.tokens
    if mask is DENSE:
        several = (tokens > 1).astype(np.int64)
        return Seen(several * new * tokens, several * new, several * tokens, new, tokens)
    if mask.is_causal:
        return causal(new, tokens)
    found = [visible(mask, *shape) for shape in zip(new.tolist(), tokens.tolist(), strict=True)]
    return Seen(*(np.array(column, object) for column in zip(*found, strict=True)))


def causal(new: Whole, tokens: Whole) -> Seen:
    """What `visible` finds under `causal`, for many shapes at once. Only the first query of a request without cached
    tokens sees one key."""
    one = (new == tokens).astype(np.int64)
    rows = new - one
    return Seen(new * tokens - new * (new - 1) // 2 - one, rows, tokens * (rows > 0), new, tokens)


def seen_by_family(batch: Batch, family: tuple[int, ...]) -> Visible:
    """What the queries of requests with tokens in common see, each key once.

    If every request sees all of its keys, the keys are the distinct tokens. Else they are at least those of the request
    that sees most.
    """
    requests = [batch.requests[index] for index in family]
    seen = [visible(batch.mask, one.new, one.tokens) for one in requests]
    nodes = {node for index in family for node in batch.tree.paths[index]}
    shared = [batch.tree.shared[node] for node in nodes]
    distinct = sum(one.tokens for one in requests) - sum(node.tokens * (len(node.users) - 1) for node in shared)
    every = all(one.keys == request.tokens for one, request in zip(seen, requests, strict=True))
    keys = distinct if every else max(one.keys for one in seen)
    any_keys = distinct if every else max(one.any_keys for one in seen)
    return Visible(
        sum(one.pairs for one in seen), sum(one.rows for one in seen), keys, sum(one.any_rows for one in seen), any_keys
    )


def times(seen: Visible, group: int) -> Visible:
    """What the query heads that share a KV head see."""
    return seen._replace(pairs=group * seen.pairs, rows=group * seen.rows, any_rows=group * seen.any_rows)


def distinct_words(batch: Batch) -> dict[str, int]:
    """The words of Q, of the tensors of keys and values, and of O, each word once, over all heads and layers."""
    from ..core.problem import TENSORS

    p = narrowed(batch.problem, N=1, Nk=1)
    found = {}
    for name in ("Q", *p.cache_tensors, "O"):
        tensor = TENSORS[name]
        rows = batch.new_tokens * p.heads if name in "QO" else batch.distinct_tokens * p.kv_heads
        if tensor.axes[0] == "scale_rows" and not p.scale_words:
            rows = p.kv_heads  # one scale for all
        found[name] = p.batch * rows * p.length(tensor.axes[1])
    return found
