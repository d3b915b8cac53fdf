"""A question about a batch: its requests, the problem that each of them is a case of, and the memory. Imports NumPy.

The prefix tree of the requests says which tokens several of them have in common, and how many tokens are distinct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..core.problem import DENSE
from ..masks.closed_form import Strip
from ..masks.expression import Atom, Join, unit
from ..masks.grouped import grouped
from ..masks.seen import of_tokens
from ..masks.strips import strip_of
from .shapes import Shapes, shapes_of

if TYPE_CHECKING:
    from ..core.mask_types import Mask
    from ..core.problem import Attention
    from ..core.tiling import Rule
    from ..hardware import Hardware
    from ..masks.expression import Expr
    from ..masks.mask import Mask as TextMask
    from .requests import Request

    Segment = tuple[Hashable, int]


class Shared(NamedTuple):
    """Tokens that several requests have in common, and no other request has: a node of the prefix tree."""

    tokens: int
    users: tuple[int, ...]
    """The indices of these requests."""


class Tree(NamedTuple):
    """The prefix tree of a batch."""

    shared: tuple[Shared, ...]
    """Its nodes with two requests or more, each after the node above it."""
    paths: dict[int, tuple[int, ...]]
    """{index of a request: the nodes that its tokens begin with, from the root on}, for requests that have any."""

    @property
    def tokens_saved(self) -> int:
        """The tokens that are counted more than once in the sum over the requests."""
        return sum(node.tokens * (len(node.users) - 1) for node in self.shared)

    def families(self) -> list[tuple[int, ...]]:
        """The requests that have tokens in common, family by family. Families have none in common."""
        roots = dict.fromkeys(path[0] for path in self.paths.values())
        return [self.shared[root].users for root in roots]


def tree_of(requests: Sequence[Request]) -> Tree:
    """The prefix tree of some requests. A request with a prefix stands for one request."""
    cuts: dict[Hashable, set[int]] = defaultdict(set)
    for request in requests:
        for part in request.prefix:
            cuts[part.key].add(part.tokens)
    users: dict[Segment, list[int]] = defaultdict(list)
    segments: dict[int, list[Segment]] = {}
    for index, request in enumerate(requests):
        if request.prefix:
            ends = ((part.key, end) for part in request.prefix for end in sorted(cuts[part.key]) if end <= part.tokens)
            segments[index] = list(ends)
            for segment in segments[index]:
                users[segment].append(index)
    return joined(segments, users, cuts)


def joined(segments: dict[int, list[Segment]], users: dict[Segment, list[int]], cuts: dict[Hashable, set[int]]) -> Tree:
    """The tree in which segments that the same requests have are one node.

    The requests of a segment are among those of the segment before it. So if they are as many, they are the same.
    """
    lengths = {(key, end): end - start for key, ends in cuts.items() for start, end in steps(sorted(ends))}
    nodes: dict[Segment, int] = {}
    shared: list[Shared] = []
    paths: dict[int, tuple[int, ...]] = {}
    for index, line in segments.items():
        path = []
        for several, run in groupby(line, key=lambda segment: len(users[segment])):
            together = list(run)
            if several == 1:
                break
            if together[0] not in nodes:
                nodes[together[0]] = len(shared)
                shared.append(Shared(sum(lengths[one] for one in together), tuple(users[together[0]])))
            path.append(nodes[together[0]])
        if path:
            paths[index] = tuple(path)
    return Tree(tuple(shared), paths)


def steps(ends: list[int]) -> list[tuple[int, int]]:
    """(start, end) of the stretches between 0 and some ends."""
    return list(pairwise([0, *ends]))


@dataclass(frozen=True)
class Batch:
    """A batch and what is asked of it.

    `problem` is that of every request but for N and Nk. Its `batch` is the number of layers: each layer has its own
    Q, K and V. `tiles` are those asked for, `best`, or None.
    """

    problem: Attention
    requests: Sequence[Request]
    layers: int = 1
    M_bytes: int | None = None
    tiles: Rule | None = None
    multiple: int = 1
    chunks: tuple[int, ...] = ()
    multiprocessors: int | None = None
    chip: Hardware | None = None
    """The GPU whose least time decides which tiles are best; None without one."""
    distinct: dict[str, int] = field(default_factory=dict)
    """The words of Q, of the tensors of keys and values, and of O, each once, as `distinct_words` of floor.py."""

    @cached_property
    def _shapes(self) -> tuple[Shapes, list[int]]:
        return shapes_of(self.requests)

    @property
    def shapes(self) -> Shapes:
        """The distinct shapes of the requests."""
        return self._shapes[0]

    @property
    def shape_of(self) -> list[int]:
        """The index of each request's shape."""
        return self._shapes[1]

    @cached_property
    def tree(self) -> Tree:
        """The prefixes that requests have in common."""
        return tree_of(self.requests)

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.problem.heads // self.problem.kv_heads

    @cached_property
    def single(self) -> bool:
        """Whether every request has one new token."""
        return int(self.shapes.new.max()) == 1

    @cached_property
    def mask(self) -> Mask:
        """The mask of the requests; the dense one if it hides nothing, as `causal` from a single new token."""
        low, high = self.strip or (1, 0)
        hides = np.any(low > 1 - self.shapes.new) or np.any(high < self.shapes.tokens - 1)
        return self.problem.mask if hides else DENSE

    @cached_property
    def strip(self) -> Strip | None:
        """The strips of diagonals that the mask shows, one for each shape; None for any other mask."""
        mask, of = self.problem.mask, self.shapes
        if mask is DENSE:
            return Strip(-of.new, of.tokens)
        return strip_of(expr_of(mask), of.new, of.tokens, of.tokens - of.new) if in_tokens(mask) else None

    @cached_property
    def looks_ahead(self) -> bool:
        """Whether a new token may see a later one."""
        if self.single or self.mask.is_causal:
            return False
        of, mask = self.shapes, self.problem.mask
        if self.strip is not None:
            return bool(np.any((of.new > 1) & (self.strip.high > of.tokens - of.new)))
        if not in_tokens(mask):
            return True
        later = Join("&", (expr_of(mask), Join("~", (Atom("causal"),))))
        return any(of_tokens(later, new, tokens).any_rows for new, tokens, _ in of.each())

    @cached_property
    def packed_mask(self) -> Mask | None:
        """The mask of packed rows; None if it cannot be counted."""
        return DENSE if self.mask is DENSE else grouped(self.mask, self.group)

    @property
    def new_tokens(self) -> int:
        """The new tokens of all requests: the queries."""
        return self.shapes.sum(self.shapes.new)

    @property
    def tokens(self) -> int:
        """The tokens of all requests. Tokens that several have in common count for each of them."""
        return self.shapes.sum(self.shapes.tokens)

    @property
    def distinct_tokens(self) -> int:
        """The tokens of all requests, each once: the keys."""
        return self.tokens - self.tree.tokens_saved


def expr_of(mask: Mask) -> Expr:
    """The expression of a mask that is not dense."""
    return cast("TextMask", mask).expr


def in_tokens(mask: Mask) -> bool:
    """Whether a mask that is not dense speaks of positions of tokens only."""
    return unit(expr_of(mask)) == "tokens"
