"""The prefix tree of a batch: which tokens several requests have in common, and how many tokens are distinct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
