"""The numbers of `visible.py` for an expression of tokens, from intervals of y - x or from classes of residues.

Each axis is cut into bands as in counts.py. In a pair of bands the intervals of y - x in which the expression holds are
the same for all queries. So the number of keys that a query sees is a piecewise linear function of its position, with
few pieces.

Under an expression of strides alone, whether query x sees key y depends only on y - x modulo L, the least common
multiple of the strides. So all queries with the same residue see equally many keys. The time grows with L, and not with
N.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..errors import InputError
from .counts import Band, Counter, Intervals, by_class, dilate, merge_intervals, total

MOST_INTERVALS = 2**22  # some seconds

KeyInterval = tuple[int, int, int, int]
"""(a, b, start, stop): query x sees the keys from x + a to x + b, as far as they lie in start..stop-1."""


def by_interval(counter: Counter) -> tuple[int, int, int, int, int]:
    """The fields of `Visible`, in their order, of an expression whose tiles are single tokens."""
    pairs = rows = any_rows = 0
    keys: Intervals = []
    any_keys: Intervals = []
    for band in counter.row_bands():
        seen = [one for col in counter.col_bands(band) for one in seen_in(counter, band, col)]
        several: Intervals = []
        for piece in pieces(seen, band):
            any_rows += len(at_least(1, *piece))
            those = at_least(2, *piece)
            rows, pairs = rows + len(those), pairs + sum_over(those, *piece)
            several += [(those.start, those.stop - 1)] if those else []
        keys += seen_by(merge_intervals(several), seen)
        any_keys += seen_by([(band.start, band.stop - 1)], seen)
    return pairs, rows, total(merge_intervals(keys)), any_rows, total(merge_intervals(any_keys))


def seen_in(counter: Counter, rows: Band, cols: Band) -> list[KeyInterval]:
    """The keys of one band that the queries of another band see, as intervals."""
    found = merge_intervals(dilate(low, high, *piece) for low, high, piece in counter.visible(rows, cols))
    return [(a, b, cols.start, cols.stop) for a, b in found]


Piece = tuple[int, int, int, int]
"""(start, stop, value, slope): each query x of start..stop-1 sees value + slope * (x - start) keys."""


def pieces(seen: list[KeyInterval], band: Band) -> Iterator[Piece]:
    """The number of keys that each query of a band sees, as pieces on which it is linear.

    Of the band of keys, query x sees those from x + low to x + high. As x grows, these keys move over the band.
    While they enter it, each query sees one key more than the one before. Then the number stays the same. While they
    leave it, each query sees one key fewer.
    """
    bends: dict[int, int] = defaultdict(int)
    for a, b, start, stop in seen:
        for x, more in ((start - b - 1, 1), (stop - 1 - b, -1), (start - a, -1), (stop - a, 1)):
            bends[x] += more
    x = band.start
    value = sum(max(0, min(b + x, stop - 1) - max(a + x, start) + 1) for a, b, start, stop in seen)
    slope = sum(more for at, more in bends.items() if at <= x)
    inner = sorted(at for at in bends if x < at < band.stop)
    for following in [*inner, band.stop]:
        yield x, following, value, slope
        value, slope, x = value + slope * (following - x), slope + bends.get(following, 0), following


def at_least(least: int, start: int, stop: int, value: int, slope: int) -> range:
    """The queries of a piece that see at least `least` keys."""
    if slope > 0:
        return range(max(start, start - (value - least) // slope), stop)
    if slope < 0:
        return range(start, min(stop, start + max(0, (value - least) // -slope + 1)))
    return range(start, stop if value >= least else start)


def sum_over(rows: range, start: int, stop: int, value: int, slope: int) -> int:
    """The sum of the numbers of keys that the queries `rows` of a piece see."""
    return len(rows) * (2 * value + slope * (rows.start + rows.stop - 1 - 2 * start)) // 2


def seen_by(rows: Intervals, seen: list[KeyInterval]) -> Intervals:
    """The keys that any query of `rows` sees."""
    if len(rows) * len(seen) > MOST_INTERVALS:
        raise InputError("--mask", f"{len(rows) * len(seen)} intervals", f"at most {MOST_INTERVALS}", "try a smaller N")
    found = []
    for first, last in rows:
        ends = ((max(start, a + first), min(stop - 1, b + last)) for a, b, start, stop in seen)
        found += merge_intervals((low, high) for low, high in ends if low <= high)
    return found


def by_residue(counter: Counter) -> tuple[int, int, int, int, int]:
    """The fields of `Visible`, in their order, for an expression without edges, cuts and segments."""
    L, N, Nk = counter.period, counter.rows.length, counter.cols.length
    runs = counter.runs(0, L - 1, 0, 0)
    sees = seen_by_class(runs, L, N, Nk)
    seen_by = seen_by_class([(-high % L, -low % L) for low, high in runs], L, Nk, N)
    several = [a for a, keys in enumerate(sees) if keys > 1]
    keys = {b for b, queries in enumerate(seen_by) if queries}
    reached = keys
    if len(several) < sum(keys > 0 for keys in sees):  # some see one key: as Nk >= L, there is but one residue
        reached = {(a + low) % L for a in several for low, _ in runs}
    return (
        sum(sees[a] * alike(a, L, N) for a in several),
        sum(alike(a, L, N) for a in several),
        sum(alike(b, L, Nk) for b in reached),
        sum(alike(a, L, N) for a, keys in enumerate(sees) if keys),
        sum(alike(b, L, Nk) for b in keys),
    )


def seen_by_class(residues: Intervals, L: int, N: int, Nk: int) -> list[int]:
    """For each residue of the N queries modulo L, how many of the Nk keys such a query sees."""
    return by_class(residues, L, Nk, 1, (-a for a in range(min(L, N))))


def alike(residue: int, L: int, length: int) -> int:
    """How many of the positions below `length` have a residue modulo L."""
    return len(range(residue, length, L))
