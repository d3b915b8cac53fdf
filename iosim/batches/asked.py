"""A question about a batch: its requests, the problem that each of them is a case of, and the memory. Imports NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..core.problem import DENSE
from ..masks.grouped import grouped
from .prefixes import Tree, tree_of
from .shapes import Shapes, shapes_of

if TYPE_CHECKING:
    from ..core.typing import Attention, Mask, Rule
    from .requests import Request


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
        """The mask of the requests. One new token sees every key under `causal`."""
        return DENSE if self.single and str(self.problem.mask).strip() == "causal" else self.problem.mask

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
