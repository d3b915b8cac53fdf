"""The floor of a batch.

Requests that have tokens in common are one problem with a mask: its rows are all their new tokens, its keys their
distinct tokens, and a row sees the tokens of its own request. So docs/floors.md applies to it with |E| visible pairs.
Requests that have none in common are several problems, whose floors add up (section 2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import DENSE, TENSORS, narrowed
from ..counting.floors import floor_of_seen, held_words, in_narrowest
from ..masks.visible import Visible, key_ranges, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.mask_types import Mask
    from .asked import Batch

    Ranges = defaultdict[int, list[range]]


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


def floor_of(batch: Batch, more_bytes: int = 0) -> BatchFloor:
    """The floor of a batch for its M and more bytes beside it; without both the compulsory words, each distinct word
    once."""
    room = (batch.M_bytes or 0) + more_bytes
    M_words = None if batch.M_bytes is None and not more_bytes else int(held_words(batch.problem, room))
    forms: Counter[str] = Counter()
    pairs, g = 0, batch.group
    for seen, times in problems_of(batch):
        of_group = seen._replace(pairs=g * seen.pairs, rows=g * seen.rows, any_rows=g * seen.any_rows)
        found = floor_of_seen(batch.problem, of_group, M_words)
        forms[found.form] += times * found.words
        pairs += times * seen.pairs
    words = forms.total()
    tokens, least = (batch.new_tokens, batch.distinct_tokens), in_narrowest(batch.problem, words)
    return BatchFloor(words, forms.most_common(1)[0][0], pairs, *tokens, M_words, dict(forms.most_common()), least)


def problems_of(batch: Batch) -> Iterator[tuple[Visible, int]]:
    """(what the queries of one head see, the number of such problems): requests that have tokens in common, and the
    shapes of all others."""
    shapes = batch.shapes
    left = shapes.times.copy()
    for family in batch.tree.families():
        yield seen_by_family(batch, family), 1
        for index in family:
            left[batch.shape_of[index]] -= 1
    for new, tokens, times in zip(shapes.new.tolist(), shapes.tokens.tolist(), left.tolist(), strict=True):
        if times:
            yield seen_by(batch.mask, new, tokens), times


def seen_by(mask: Mask, new: int, tokens: int) -> Visible:
    """What the queries of a request see. Under `causal` only the first query of one without cached tokens sees one
    key."""
    if mask is DENSE or not mask.is_causal:
        return visible(mask, new, tokens)
    rows = new - (new == tokens)
    return Visible(new * tokens - new * (new - 1) // 2 - (new - rows), rows, tokens * (rows > 0), new, tokens)


def seen_by_family(batch: Batch, family: tuple[int, ...]) -> Visible:
    """What the queries of requests with tokens in common see, each key once.

    If every request sees all of its keys, the keys are the distinct tokens. Else those that they see are put together.
    """
    requests = [batch.requests[index] for index in family]
    seen = [seen_by(batch.mask, one.new, one.tokens) for one in requests]
    nodes = {node for index in family for node in batch.tree.paths[index]}
    shared = [batch.tree.shared[node] for node in nodes]
    keys = any_keys = sum(one.tokens for one in requests) - sum(one.tokens * (len(one.users) - 1) for one in shared)
    if not all(one.keys == request.tokens for one, request in zip(seen, requests, strict=True)):
        keys, any_keys = keys_together(batch, family)
    return Visible(
        sum(one.pairs for one in seen), sum(one.rows for one in seen), keys, sum(one.any_rows for one in seen), any_keys
    )


def keys_together(batch: Batch, family: tuple[int, ...]) -> tuple[int, int]:
    """The distinct keys that the queries of a family see, those of queries that see two keys or more, and all."""
    found = [0, 0]
    in_nodes: tuple[Ranges, ...] = defaultdict(list), defaultdict(list)
    for index in family:
        one, places = batch.requests[index], [0]
        for node in batch.tree.paths[index]:
            places.append(places[-1] + batch.tree.shared[node].tokens)
        for k, ranges in enumerate(ranges_seen(batch.mask, one.new, one.tokens)):
            found[k] += sum(map(len, clipped(ranges, places[-1], one.tokens)))
            for node, (start, end) in zip(batch.tree.paths[index], pairwise(places), strict=True):
                in_nodes[k][node] += clipped(ranges, start, end)
    several, every = (
        more + sum(covered(ranges) for ranges in nodes.values()) for more, nodes in zip(found, in_nodes, strict=True)
    )
    return several, every


def ranges_seen(mask: Mask, new: int, tokens: int) -> tuple[list[range], ...]:
    """The keys that the queries of a request see: those of queries that see two keys or more, and all."""
    if mask is DENSE or mask.is_causal:
        seen = seen_by(mask, new, tokens)
        return [range(seen.keys)], [range(seen.any_keys)]
    return tuple([range(first, last + 1) for first, last in found] for found in key_ranges(mask, new, tokens))


def clipped(ranges: list[range], start: int, end: int) -> list[range]:
    """The parts of ranges that lie in start..end-1, counted from `start` on."""
    parts = (range(max(one.start, start) - start, min(one.stop, end) - start) for one in ranges)
    return [part for part in parts if len(part)]


def covered(ranges: list[range]) -> int:
    """The numbers that lie in any of some ranges."""
    total = reached = 0
    for one in sorted(ranges, key=lambda one: one.start):
        total += max(0, one.stop - max(one.start, reached))
        reached = max(reached, one.stop)
    return total


def distinct_words(batch: Batch) -> dict[str, int]:
    """The words of Q, of the tensors of keys and values, and of O, each word once, over all heads and layers. Keys that
    no query sees are left out, and queries that see none."""
    p, seen = narrowed(batch.problem, N=1, Nk=1), [*problems_of(batch)]
    queries = sum(times * one.any_rows for one, times in seen)
    keys = sum(times * one.any_keys for one, times in seen)
    found = {}
    for name in ("Q", *p.cache_tensors, "O"):
        tensor = TENSORS[name]
        rows = keys * p.kv_heads
        if name in "QO":
            rows = (queries if name == "Q" else batch.new_tokens) * p.heads
        if tensor.axes[0] == "scale_rows" and not p.scale_words:
            rows = p.kv_heads  # one scale for all
        found[name] = p.batch * rows * p.length(tensor.axes[1])
    return found
