"""The visits of a ring: which rows and keys of two GPUs meet, under a mask and a layout of the tokens.

A ring has R GPUs with equal shards. A visit (r, s) is the rows of GPU r with the keys of GPU s. Visits that are alike
form one class, so that a ring of thousands of GPUs is counted at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.problem import DENSE
from ..core.tiling import Tiling
from ..errors import InputError
from ..masks.between import between
from ..masks.strips import strip_of
from .row_ends import intervals_of, visit_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.mask_types import Mask as AnyMask
    from ..core.problem import Attention
    from ..core.typing import Bools
    from ..masks.mask import BoundMask, Mask
    from ..masks.reach import Ends

    Positions = NDArray[np.int64]

MOST_PAIRS_OF_GPUS = 2**20
MOST_PAIRS_IN_CHUNKS = 2**16  # of GPUs in zigzag order, whose chunks are looked at: about a second
MOST_PAIRS = 2**26  # of tokens that are looked at one by one: about a second, and no sum needs more than int64


class Visit(NamedTuple):
    """The part of a visit in which something is visible: its rows, its keys, its visible pairs, and their mask."""

    rows: int
    keys: int
    pairs: int
    mask: AnyMask


NOTHING = Visit(0, 0, 0, DENSE)


def strip_visit(rows: int, keys: int, low: int, high: int) -> Visit:
    """The visit of rows x keys whose visible pairs are low <= y - x <= high. Rows and keys that see nothing, or that
    nothing sees, are left out at both ends."""
    seen, shown = strip_ends(rows, keys, low, high)
    if not seen or not shown:
        return NOTHING
    pairs = below(rows, keys, high) - below(rows, keys, low - 1)
    shift = seen.start - shown.start
    return Visit(len(seen), len(shown), pairs, between(low + shift, high + shift, len(seen), len(shown)))


def strip_ends(rows: int, keys: int, low: int, high: int) -> tuple[range, range]:
    """The rows that see a key of those with low <= y - x <= high, and the keys that a row sees."""
    seen = range(max(0, -high), min(rows, keys - low) if low <= high else 0)
    return seen, range(max(0, low), min(keys, rows + high))


def below(rows: int, keys: int, high: int) -> int:
    """The pairs of rows x keys with y - x <= high: row x has min(keys, x + high + 1) of them, if that is positive."""
    first, full = max(0, -high), max(0, keys - 1 - high)  # rows before `first` have none, rows from `full` on have all
    full = min(rows, full)
    first = min(first, full)
    rising = full - first
    return rising * (first + high + 1) + rising * (rising - 1) // 2 + (rows - full) * keys


@dataclass(frozen=True)
class Hops:
    """The visits of a ring of `ring` GPUs for a problem whose tokens have a layout.

    `strip` is the mask as low <= y - x <= high; None for a mask that is looked at pair by pair.
    """

    problem: Attention
    ring: int
    layout: str
    strip: tuple[int, int] | None

    @property
    def rows(self) -> int:
        """Query tokens of a GPU."""
        return self.problem.N // self.ring

    @property
    def keys(self) -> int:
        """Key tokens of a GPU."""
        return self.problem.Nk // self.ring

    def visit(self, r: int, s: int) -> Visit:
        """What the rows of GPU r see of the keys of GPU s."""
        return self._at(s - r) if self._by_distance else self._meet(r, s)

    def _meet(self, r: int, s: int) -> Visit:
        """A visit that is not known yet."""
        if self.strip is None:
            return self._looked_at(r, s)
        return self._of_chunks(r, s) if self.in_chunks else LAYOUT[self.layout](self, r, s)

    @cached_property
    def _by_distance(self) -> bool:
        """Whether a visit follows from s - r alone."""
        return self.strip is not None and (self.rows == self.keys or self._dense) and not self.in_chunks

    @cached_property
    def in_chunks(self) -> bool:
        """Whether a visit is put together from those of two chunks of rows and two of keys: in zigzag order, under any
        strip but a causal mask of as many rows as keys. The schedule inside visits all its rows and keys."""
        known = self._dense or (self.strip == (-self.problem.N, 0) and self.rows == self.keys)
        return self.layout == "zigzag" and self.strip is not None and not known

    @cached_property
    def _by_sign(self) -> bool:
        """Whether a visit follows from the sign of s - r alone: without a mask, and under a causal one."""
        p = self.problem
        return self._by_distance and (self._dense or (self.strip == (-p.N, 0) and self.rows == self.keys))

    @cached_property
    def _dense(self) -> bool:
        return self.problem.mask is DENSE

    def _at(self, distance: int) -> Visit:
        """The visit of GPUs r and s = r + distance."""
        if self._by_sign:
            distance = (distance > 0) - (distance < 0)
        if distance not in self._known:
            self._known[distance] = self._meet(max(0, -distance), max(0, distance))
        return self._known[distance]

    @cached_property
    def _known(self) -> dict[int, Visit]:
        return {}

    # ------------------------------------------------------------ all visits at once

    @cached_property
    def others(self) -> list[tuple[int, Visit]]:
        """(how often, visit) for the visits of different GPUs."""
        return [(n, v) for n, v, other in self._classes if other]

    @cached_property
    def own(self) -> list[tuple[int, Visit]]:
        """(how often, visit) for the visits of a GPU to its own keys."""
        return [(n, v) for n, v, other in self._classes if not other]

    @cached_property
    def _classes(self) -> list[tuple[int, Visit, bool]]:
        found: Counter[tuple[Visit, bool]] = Counter()
        for times, visit, other in self._all():
            found[visit, other] += times
        return [(times, visit, other) for (visit, other), times in found.items()]

    def _all(self) -> Iterator[tuple[int, Visit, bool]]:
        R = self.ring
        if self._by_distance:
            for distance in range(1 - R, R):
                yield R - abs(distance), self._at(distance), distance != 0
        else:
            most = MOST_PAIRS_IN_CHUNKS if self.in_chunks else MOST_PAIRS_OF_GPUS
            if most < R * R:
                where = f"at most {isqrt(most)} under --mask {self.problem.mask} in layout {self.layout}"
                raise InputError("--ranks", R, where, "try fewer")
            for r in range(R):
                for s in range(R):
                    yield 1, self.visit(r, s), r != s

    @cached_property
    def needed(self) -> list[int]:
        """The keys of other GPUs that the rows of each GPU see."""
        R = self.ring
        if not self._by_distance:
            return [sum(self.visit(r, s).keys for s in range(R) if s != r) for r in range(R)]
        before = list(accumulate((self._at(distance).keys for distance in range(1 - R, R)), initial=0))
        return [before[2 * R - 1 - r] - before[R - 1 - r] - self._at(0).keys for r in range(R)]

    @cached_property
    def shown(self) -> list[int]:
        """The keys of each GPU that the rows of other GPUs see, each as often as there are such GPUs."""
        if self._by_distance:  # the visit of r and s is that of the last GPU - s and - r
            return self.needed[::-1]
        R = range(self.ring)
        return [sum(self.visit(r, s).keys for r in R if r != s) for s in R]

    def pairs_of_mesh(self, columns: int) -> list[int]:
        """The visible pairs of each GPU of a mesh: of the rows of the GPUs of its row with the keys of its column."""
        R, b = self.ring, columns
        rows = R // b
        if not self._by_distance:
            places = [(range(i, i + b), range(j, R, b)) for i in range(0, R, b) for j in range(b)]
            return [sum(self.visit(r, s).pairs for r in row for s in column) for row, column in places]
        below = list(accumulate((self._at(distance).pairs for distance in range(1 - R, R)), initial=0))
        of_row = [below[place + b] - below[place] for place in range(2 * R - b)]  # b rows with the keys of one GPU
        sums = [list(accumulate(of_row[j::b], initial=0)) for j in range(b)]
        return [column[2 * rows - 1 - i] - column[rows - 1 - i] for i in range(rows) for column in sums]

    # ------------------------------------------------------------ token by token

    def tokens(self, r: int, length: int) -> Positions:
        """The positions in the sequence of the `length` / R tokens of GPU r, in their order there."""
        import numpy as np

        n = length // self.ring
        if self.layout == "zigzag":
            half, late = n // 2, 2 * self.ring - 1 - r
            return np.concatenate([np.arange(c * half, (c + 1) * half) for c in (r, late)])
        return np.arange(n) * self.ring + r if self.layout == "striped" else np.arange(r * n, (r + 1) * n)

    def order(self, length: int) -> Positions:
        """The positions of all tokens, GPU after GPU."""
        import numpy as np

        if self.layout == "blocks":
            return np.arange(length)
        return np.concatenate([self.tokens(r, length) for r in range(self.ring)])

    def visible(self, r: int, s: int) -> Bools:
        """Booleans (rows x keys) of a visit, True where visible."""
        return self.visible_at(self.tokens(r, self.problem.N), self.tokens(s, self.problem.Nk))

    def visible_at(self, queries: Positions, keys: Positions) -> Bools:
        """Booleans (queries x keys) of tokens at these positions, True where visible."""
        import numpy as np

        if self.problem.mask is DENSE:
            return np.ones((len(queries), len(keys)), bool)
        return self._bound.visible_at(queries, keys)

    @cached_property
    def _bound(self) -> BoundMask:
        return cast("BoundMask", self.problem.mask.bind(self.problem, Tiling(1, 1)))

    def _of_chunks(self, r: int, s: int) -> Visit:
        """A visit in zigzag order under a strip: an early and a late chunk of rows with two such chunks of keys."""
        low, high = cast("tuple[int, int]", self.strip)
        R, rows, keys = self.ring, self.rows // 2, self.keys // 2
        of_rows: list[list[range]] = [[], []]
        of_keys: list[list[range]] = [[], []]
        pairs = 0
        for i, a in enumerate((r, 2 * R - 1 - r)):
            for j, b in enumerate((s, 2 * R - 1 - s)):
                offset = b * keys - a * rows
                seen, shown = strip_ends(rows, keys, low - offset, high - offset)
                if seen and shown:
                    of_rows[i].append(seen)
                    of_keys[j].append(shown)
                    pairs += strip_visit(rows, keys, low - offset, high - offset).pairs
        if not pairs:
            return NOTHING
        return Visit(sum(map(covered, of_rows)), sum(map(covered, of_keys)), pairs, DENSE)

    def _looked_at(self, r: int, s: int) -> Visit:
        """A visit under any mask of tokens, row by row, or pair by pair where a row sees no interval of keys. The
        schedule inside visits all its rows and keys."""
        if (r, s) not in self._seen:
            if self.intervals is not None:
                tokens = self.tokens(r, self.problem.N), self.tokens(s, self.problem.Nk)
                counts = visit_of(self.intervals, *tokens)
            else:
                check_pairs(self.problem)
                seen = self.visible(r, s)
                counts = int(seen.any(axis=1).sum()), int(seen.any(axis=0).sum()), int(seen.sum())
            self._seen[r, s] = Visit(*counts, DENSE)
        return self._seen[r, s]

    @cached_property
    def intervals(self) -> Ends | None:
        """The keys that each row sees, if they are an interval."""
        return intervals_of(self.problem, self.ring)

    @cached_property
    def _seen(self) -> dict[tuple[int, int], Visit]:
        return {}


def check_pairs(p: Attention) -> None:
    """Raise InputError for more pairs of tokens than can be looked at one by one."""
    if p.N * p.Nk > MOST_PAIRS:
        allowed = (
            f"dense, causal, window, documents and what combines them; of other masks {MOST_PAIRS:,} pairs of tokens"
        )
        raise InputError("--mask", str(p.mask), allowed, "try fewer tokens or GPUs")


def covered(some: list[range]) -> int:
    """The numbers that are in any of at most two ranges."""
    both = len(range(max(x.start for x in some), min(x.stop for x in some))) if len(some) == 2 else 0
    return sum(map(len, some)) - both


# ---------------------------------------------------------------- the visit of two GPUs under a strip, by layout


def in_blocks(hops: Hops, r: int, s: int) -> Visit:
    """Shards one after the other."""
    low, high = cast("tuple[int, int]", hops.strip)
    offset = s * hops.keys - r * hops.rows
    return strip_visit(hops.rows, hops.keys, low - offset, high - offset)


def in_stripes(hops: Hops, r: int, s: int) -> Visit:
    """Token i of GPU r is token i R + r of the sequence, so y - x = s - r + R (j - i)."""
    low, high = cast("tuple[int, int]", hops.strip)
    return strip_visit(hops.rows, hops.keys, -((s - r - low) // hops.ring), (high - s + r) // hops.ring)


def in_zigzag(hops: Hops, r: int, s: int) -> Visit:
    """GPU r has chunks r and 2R - 1 - r, half a shard each. Causal: all rows see the early chunk of a GPU before r;
    the late rows see both chunks of a GPU after r; a GPU's own two chunks are in order, so their mask is causal."""
    rows, keys = hops.rows, hops.keys
    if hops.problem.mask is DENSE:
        return in_blocks(hops, r, s)
    if r == s:
        return strip_visit(rows, keys, -rows, 0)
    rows, keys = (rows, keys // 2) if s < r else (rows // 2, keys)
    return Visit(rows, keys, rows * keys, DENSE)


LAYOUT = {"blocks": in_blocks, "striped": in_stripes, "zigzag": in_zigzag}


@lru_cache(maxsize=256)
def hops_of(problem: Attention, ring: int, layout: str) -> Hops:
    """The visits of a ring. A mask that is no strip is looked at pair by pair."""
    N, Nk = problem.N, problem.Nk
    if problem.mask is DENSE:
        strip: tuple[int, int] | None = (-2 * (N + Nk), 2 * (N + Nk))
    else:
        found = strip_of(cast("Mask", problem.mask).expr, N, Nk, Nk - N)
        tokens = found is not None and not problem.mask.tile_units
        strip = cast("tuple[int, int]", tuple(found)) if tokens and found is not None else None
    if layout == "striped" and problem.mask is not DENSE and Nk != N:
        strip = None
    return Hops(problem, ring, layout, strip)
