"""The shapes of a batch: its requests with equal numbers of new tokens and of tokens stand together. Imports NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..units import LARGEST_COUNT
from .requests import MOST_REQUESTS, WHERE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.typing import Size
    from .requests import Request

    Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Shapes:
    """Distinct shapes, as arrays of one length: `times` requests have `new` queries over `tokens` keys.

    `of` are the indices of the shapes that these were made from, if a way cuts requests into others.
    """

    new: Whole
    tokens: Whole
    times: Whole
    of: Whole

    def __len__(self) -> int:
        return len(self.new)

    @property
    def requests(self) -> int:
        """The number of requests."""
        return int(self.times.sum())

    @property
    def of_any_length(self) -> bool:
        """Whether a library is told the length of each request, as a server tells it."""
        return True

    @property
    def longest(self) -> int:
        """The tokens of the longest request."""
        return int(self.tokens.max())

    def each(self) -> Iterator[tuple[int, int, int]]:
        """(new tokens, all tokens, requests) of each shape."""
        return zip(self.new.tolist(), self.tokens.tolist(), self.times.tolist(), strict=True)

    def sum(self, values: Size) -> int:
        """The sum of a number of each shape over all requests, exactly."""
        each = np.broadcast_to(np.asarray(values), self.new.shape)
        if each.dtype != object and (not len(each) or int(each.max()) * self.requests < 2**63):
            return int(each @ self.times)
        return sum(value * times for value, times in zip(each.tolist(), self.times.tolist(), strict=True))

    def picked(self, which: NDArray[np.bool]) -> Shapes:
        """Some of the shapes."""
        return Shapes(self.new[which], self.tokens[which], self.times[which], self.of[which])


def shapes_of(requests: Sequence[Request]) -> tuple[Shapes, list[int]]:
    """The shapes of some requests, in the order in which they first stand, and the shape of each request."""
    counted: Counter[tuple[int, int]] = Counter()
    for request in requests:
        counted[request.new, request.tokens] += request.times
    found = shapes([*counted], [*counted.values()])
    places = {shape: place for place, shape in enumerate(counted)}
    return found, [places[request.new, request.tokens] for request in requests]


def shapes(pairs: Sequence[tuple[int, int]], times: Sequence[int], of: Sequence[int] | None = None) -> Shapes:
    """Shapes (new, tokens) as arrays. InputError for more than LARGEST_COUNT tokens, as requests with a prefix in
    common may have together. So int64 holds each number, and the sum of MOST_REQUESTS of them needs Python's."""
    if (most := max(map(max, pairs), default=0)) > LARGEST_COUNT:
        raise InputError(WHERE, f"{most} tokens of one problem", f"at most {LARGEST_COUNT}", "give fewer tokens")
    new, tokens = np.array(pairs, np.int64).reshape(-1, 2).T
    places = np.arange(len(new)) if of is None else np.array(of, np.int64)
    return Shapes(new, tokens, np.array(times, np.int64), places)


# ---------------------------------------------------------------- requests cut into others


def one_by_one(found: Shapes) -> Shapes:
    """Each new token as a request of its own: the first of them sees the fewest tokens."""
    return repeated(found, found.new, lambda step, new, tokens: (np.ones_like(new), tokens - new + step + 1))


def in_chunks(found: Shapes, size: int) -> Shapes:
    """New tokens in chunks of `size`, the last one shorter. Each chunk sees the chunks before it."""

    def chunk(step: Whole, new: Whole, tokens: Whole) -> tuple[Whole, Whole]:
        done = step * size
        some = np.minimum(size, new - done)
        return some, tokens - new + done + some

    return repeated(found, -(-found.new // size), chunk)


def repeated(found: Shapes, parts: Whole, cut: Cut) -> Shapes:
    """Each shape cut into a number of others; `cut(step, new, tokens)` are the shapes of the parts `step`."""
    number = sum(parts.tolist())  # Python's: each may be LARGEST_COUNT
    if number == len(found):
        return found
    if number > MOST_REQUESTS:
        raise InputError(
            WHERE, f"{number} parts of requests", f"at most {MOST_REQUESTS}", "try a larger --chunk, or another --way"
        )
    row = np.repeat(np.arange(len(found)), parts)
    step = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    new, tokens = cut(step, found.new[row], found.tokens[row])
    return Shapes(new, tokens, found.times[row], found.of[row])


if TYPE_CHECKING:
    Cut = Callable[[Whole, Whole, Whole], tuple[Whole, Whole]]
