"""The best number of keys that stay on chip beside query tiles, at one M and at every M.

With T query tiles and r keys that stay, r + (Nk - r) T keys are read. Only the smallest tile of queries with T tiles
can be best, since it leaves the most room for keys. Up to the last tile of keys, the need grows with r by the same
bytes for each key, whatever T is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..errors import InputError
from .best import MOST_PAIRS, sizes_by_passes, up

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.typing import Size

    Need = Callable[[Attention, int, int, int], int]


@dataclass(frozen=True)
class Kept:
    """The candidates of a schedule that keeps keys on chip. `need(p, rows, r, keys)`: the bytes of a tile of so many
    query rows, with r keys that stay and tiles of so many keys of the others."""

    need: Need

    def best(self, p: Attention, M_bytes: int, multiple: int) -> Tiling | None:
        """The tiling of least traffic that fits in M; None if nothing fits. Of equal ones, the smallest query tile."""
        found: list[tuple[int, int, int]] = []
        for rows in sizes_by_passes(p.N, multiple):
            r = self.most(p, rows, M_bytes, multiple)
            if not r:  # nor beside a larger tile, which leaves less room
                break
            found.append((keys_read(p, rows, r), rows, r))
        return Tiling(rows_q=min(found)[1], rows_k=multiple, kept=min(found)[2]) if found else None

    def most(self, p: Attention, rows: int, M_bytes: int, multiple: int) -> int:
        """The most keys, a multiple, that may stay beside these rows; 0 if not even `multiple` may."""
        for r in reversed(last_ones(p, multiple)):
            if self.need(p, rows, r, multiple) <= M_bytes:
                return r
        steps = steps_of_keys(p, multiple)
        first = self.need(p, rows, multiple, multiple)
        if not steps or first > M_bytes:
            return 0
        return multiple * min(steps, 1 + (M_bytes - first) // self.each(p, multiple))

    def each(self, p: Attention, multiple: int) -> int:
        """The bytes of `multiple` more keys that stay, while a whole tile of the others streams."""
        return self.need(p, 1, multiple, multiple) - self.need(p, 1, 0, multiple)

    def __call__(self, p: Attention, multiple: int) -> Iterator[Tiling[Size]]:
        """Tilings of arrays that have a best one for every M."""
        import numpy as np

        sizes, last = list(sizes_by_passes(p.N, multiple)), last_ones(p, multiple)
        worth = [self.worth(p, sizes, k, multiple) for k in range(len(sizes))]
        if sum(len(part) for parts in worth for part in parts) > MOST_PAIRS:
            raise InputError(
                "--N", p.N, f"at most {MOST_PAIRS} pairs of tile sizes", f"give --tile-multiple {2 * multiple}"
            )
        kept = [[multiple * (1 + i) for part in parts for i in part] + last[:-1] for parts in worth]
        kept[0].append(last[-1])  # with all keys on chip the number of query tiles does not matter
        rows = np.repeat(np.array(sizes, object), [len(some) for some in kept])
        yield Tiling(rows_q=rows, rows_k=multiple, kept=np.array([r for some in kept for r in some], object))

    def worth(self, p: Attention, sizes: list[int], k: int, multiple: int) -> list[range]:
        """Ranges of i such that 1 + i multiples of keys may be best beside the k-th size, of T tiles, at some M.

        A larger size with T' < T tiles fits from i = D on. There at least 1 + i - D multiples may stay beside it. So it
        reads at most T' Nk - (T' - 1)(1 + i - D) multiples, where the k-th size reads T Nk - (T - 1)(1 + i) multiples.
        """
        steps, size = steps_of_keys(p, multiple), sizes[k]
        T, first = tiles(p, size), self.need(p, size, multiple, multiple)
        if T == 1 or not steps:
            return [range(min(1, steps))]
        ranges, start = [], 0
        for begin, end in sorted(self.worse(p, T, first, sizes[j], multiple) for j in spread(k, len(sizes))):
            if begin > start:
                ranges.append(range(start, min(begin, steps)))
            start = max(start, end)
        return [*ranges, range(start, steps)]

    def worse(self, p: Attention, T: int, first: int, larger: int, multiple: int) -> tuple[int, int]:
        """The i, from the first to before the second, for which a larger size reads fewer keys than T tiles do.
        `first` is what those need with one multiple."""
        fewer = tiles(p, larger)
        begin = -(-(self.need(p, larger, multiple, multiple) - first) // self.each(p, multiple))
        most = (T - fewer) * p.Nk - (fewer - 1) * begin * multiple
        return begin, max(begin, -(-most // ((T - fewer) * multiple)) - 1)


def tiles(p: Attention, rows: int) -> int:
    """The number of query tiles of so many rows."""
    return -(-p.N // rows)


def keys_read(p: Attention, rows: int, r: int) -> int:
    """The keys that are read if r of them, or all, stay."""
    return p.Nk + (tiles(p, rows) - 1) * max(0, p.Nk - r)


def steps_of_keys(p: Attention, multiple: int) -> int:
    """The numbers of keys, in multiples, that may stay while a whole tile of the others streams."""
    return max(0, p.Nk // multiple - 1)


def last_ones(p: Attention, multiple: int) -> list[int]:
    """The numbers of keys after these, as multiples: if there is one, the one beside which the last tile is cut short;
    and all keys."""
    cut = p.Nk // multiple * multiple
    return [cut, up(p.Nk, multiple)] if multiple <= cut < p.Nk else [up(p.Nk, multiple)]


def spread(k: int, count: int) -> Iterator[int]:
    """Some of the numbers after k: the next ones, then ever fewer, and the last."""
    step = 1
    while k + step < count:
        yield k + step
        step *= 2
    if k + 1 < count:
        yield count - 1
