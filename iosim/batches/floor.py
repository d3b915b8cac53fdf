"""The floor of a batch. Imports NumPy.

Requests that have tokens in common are one problem with a mask: its rows are all their new tokens, its keys their
distinct tokens, and a row sees the tokens of its own request. So docs/floors.md applies to it with |P| visible pairs.
Requests that have none in common are several problems, whose floors add up (section 2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.problem import DENSE, narrowed
from ..counting.floor_arrays import SeenAt, floor_of_arrays
from ..counting.floors import floor_of_seen, held_words
from ..masks.visible import Visible, visible

if TYPE_CHECKING:
    from ..core.typing import Mask
    from .asked import Batch
    from .shapes import Shapes

MOST_EXACT = 2000  # shapes; more are counted in float64, whose floors are lower by at most a word an instance


class BatchFloor(NamedTuple):
    """The floor of a batch in words, over all heads and layers, with the numbers that it follows from, of one head."""

    words: int
    form: str
    """The statement that gives most of it: compulsory, simple, I or II."""
    pairs: int
    """Visible pairs (query of one head, key), in rows that see two keys or more."""
    rows: int
    """Queries of one head."""
    keys: int
    """Distinct keys."""
    M_words: int | None


def floor_of(batch: Batch) -> BatchFloor:
    """The floor of a batch for its M; without M the compulsory words, each distinct word once."""
    M_words = None if batch.M_bytes is None else int(held_words(batch.problem, batch.M_bytes))
    families = batch.tree.families()
    together = {index for family in families for index in family}
    forms: dict[str, int] = {}
    words = pairs = 0
    for family in families:
        seen = seen_by_family(batch, family)
        found = floor_of_seen(batch.problem, times(seen, batch.group), M_words)
        forms[found.form] = forms.get(found.form, 0) + found.words
        words, pairs = words + found.words, pairs + seen.pairs
    alone = alone_of(batch, together)
    if len(alone):
        more, seen_pairs, form = floor_alone(batch, alone, M_words)
        forms[form] = forms.get(form, 0) + more
        words, pairs = words + more, pairs + seen_pairs
    form = max(forms, key=lambda name: forms[name])
    return BatchFloor(words, form, pairs, batch.new_tokens, batch.distinct_tokens, M_words)


def alone_of(batch: Batch, together: set[int]) -> Shapes:
    """The shapes of the requests that have no tokens in common with others."""
    if not together:
        return batch.shapes
    left = batch.shapes.times.copy()
    for index in together:
        left[batch.shape_of[index]] -= 1
    return replace(batch.shapes, times=left).picked(left > 0)


def floor_alone(batch: Batch, alone: Shapes, M_words: int | None) -> tuple[int, int, str]:
    """(words, visible pairs, form) of requests that are problems of their own."""
    seen = seen_at(batch.mask, alone)
    pairs = (
        alone.sum(np.array([one.pairs for one in seen], object))
        if len(seen) <= MOST_EXACT
        else alone.sum(np.array([one[0] for one in seen], np.int64))
    )
    if len(seen) <= MOST_EXACT:
        found = [floor_of_seen(batch.problem, times(one, batch.group), M_words) for one in seen]
        forms: dict[str, int] = {}
        for one, number in zip(found, alone.times.tolist(), strict=True):
            forms[one.form] = forms.get(one.form, 0) + one.words * number
        return sum(forms.values()), pairs, max(forms, key=lambda name: forms[name])
    p = batch.problem
    several = SeenAt(
        *(np.array(column, float) for column in zip(*(times(one, batch.group) for one in seen), strict=True))
    )
    words = floor_of_arrays(p, several, M_words)
    compulsory = floor_of_arrays(p, several, None)
    form = "compulsory" if np.array_equal(words, compulsory) else "mixed"
    return alone.sum(words.astype(np.int64)), pairs, form


def seen_at(mask: Mask, alone: Shapes) -> list[Visible]:
    """What the queries of one head see in each shape."""
    pairs = zip(alone.new.tolist(), alone.tokens.tolist(), strict=True)
    if mask is not DENSE and str(mask).strip() == "causal":
        return [causal(new, tokens) for new, tokens in pairs]
    return [visible(mask, new, tokens) for new, tokens in pairs]


def causal(new: int, tokens: int) -> Visible:
    """What `visible` finds under `causal`, for many shapes in little time. Only the first query of a request without
    cached tokens sees one key."""
    one = new == tokens
    pairs = new * tokens - new * (new - 1) // 2 - one
    rows = new - one
    return Visible(pairs, rows, tokens if rows else 0, new, tokens)


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
