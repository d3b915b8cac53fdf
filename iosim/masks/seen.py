"""Exact numbers of visible pairs, rows and keys of an expression of tokens. Only what is no strip imports NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING

from .closed_form import Visible

if TYPE_CHECKING:
    from .closed_form import Strip
    from .expression import Expr
    from .pieces import Pieces, Whole

    Ranges = list[tuple[int, int]]

MOST_RESIDUES = 2**22  # some tenths of a second


def of_tokens(expr: Expr, N: int, Nk: int) -> Visible:
    """What the queries see under an expression whose atoms count tokens, and that has no file and no function."""
    from .atoms import Stripes
    from .expression import Atom, atoms
    from .strips import strip_of

    if isinstance(expr, Atom) and isinstance(expr.shape, Stripes):
        return of_stride(expr.shape.size, N, Nk)
    strides = [atom.shape.size if isinstance(atom.shape, Stripes) else 0 for atom in atoms(expr)]
    if all(strides) and 2 * lcm(*strides) <= min(Nk, MOST_RESIDUES):
        return of_strides(expr, lcm(*strides), N, Nk)
    strip = strip_of(expr, N, Nk, Nk - N)
    if strip is not None:
        return of_strip(strip, N, Nk)
    from .gaps import by_diagonals, visible_by_gaps

    found = visible_by_gaps(expr, N, Nk) if by_diagonals(expr) else None
    return by_interval(expr, N, Nk) if found is None else found


def of_strip(strip: Strip, N: int, Nk: int) -> Visible:
    """What the queries see under low <= y - x <= high. Of a query that sees two keys or more, each but the last one
    is followed by another: those are what a strip of one diagonal less shows of one key less."""
    from .closed_form import Axis, Strip, strip_counts

    every = strip_counts(strip, Axis(N, 1, 0), Axis(Nk, 1, 0))
    pairs, any_rows, any_keys = (int(sum(part.values())) for part in every)
    if Nk == 1 or strip.low == strip.high:
        return Visible(0, 0, 0, any_rows, any_keys)
    several = strip_counts(Strip(strip.low, strip.high - 1), Axis(N, 1, 0), Axis(Nk - 1, 1, 0))
    rows, followed = int(several.rows[False]), int(several.cols[False])
    return Visible(pairs - any_rows + rows, rows, followed + (followed > 0), any_rows, any_keys)


def by_interval(expr: Expr, N: int, Nk: int) -> Visible:
    """What the queries see, from pieces of rows in which each row sees as many keys as the one before, or one more or
    less. Under stripes, each row is a piece."""
    (any_rows, rows, pairs), *parts = rows_seen(expr, N, Nk)
    any_keys, keys = (sum(last - first + 1 for first, last in runs_of(part, Nk)) for part in parts)
    return Visible(pairs, rows, keys, any_rows, any_keys)


def key_runs(expr: Expr, N: int, Nk: int) -> tuple[Ranges, Ranges]:
    """The keys that queries see, as ranges (first, last): those of queries that see two or more, and all."""
    _, any_seen, seen = rows_seen(expr, N, Nk)
    return runs_of(seen, Nk), runs_of(any_seen, Nk)


def rows_seen(expr: Expr, N: int, Nk: int) -> tuple[tuple[int, int, int], list[Pieces], list[Pieces]]:
    """((queries that see a key, those that see two or more, the pairs of these), their pieces, and those of all)."""
    import numpy as np

    from .pieces import pieces

    kind: type = np.int64 if max(N, Nk) < 2**31 else object
    found = pieces(expr, *(np.array([size], kind) for size in (N, Nk, Nk - N)))
    seen: list[Pieces] = []
    any_seen: list[Pieces] = []
    numbers = np.zeros(3, object)
    for part in found.in_rows() if found.period > 1 else [found]:
        each, more = part.keys_seen()
        for least, kept in ((2, seen), (1, any_seen)):
            start, stop = rows_that_see(least, part.start, part.stop, each, more)
            some = np.flatnonzero(start < stop)
            kept.append(part.of(some).within(start[some], stop[some]))
            # Rows have no more keys than 2^31 if they are int64; what is multiplied and summed is Python's.
            number, first = (stop - start)[some].astype(object), (each + more * (start - part.start))[some]
            numbers[least - 1] += number.sum()
            if least == 2:
                numbers[2] += (number * (2 * first + more[some] * (number - 1)) // 2).sum()
    any_rows, rows, pairs = map(int, numbers)
    return (any_rows, rows, pairs), any_seen, seen


def rows_that_see(least: int, start: Whole, stop: Whole, each: Whole, more: Whole) -> tuple[Whole, Whole]:
    """The rows of pieces that see at least so many keys: from one on, or up to one. The first row of a piece sees
    `each` keys, and every row `more` than the one before."""
    import numpy as np

    step = np.maximum(abs(more), 1)
    late = np.where(more > 0, np.clip(-((each - least) // step), 0, stop - start), 0)
    early = np.where(more < 0, np.clip((each - least) // step + 1, 0, stop - start), stop - start)
    return start + late, start + np.where((more == 0) & (each < least), 0, early)


def runs_of(parts: Sequence[Pieces], Nk: int) -> Ranges:
    """The keys that some pieces of rows see together, as ranges with gaps between them."""
    import numpy as np

    from .intervals import all_runs, merged

    found = [all_runs(part.joined()) for part in parts if len(part.start)]
    if not found:
        return []
    first, last = (np.concatenate([run[k] for run in found]) for k in (1, 2))
    order = np.argsort(first, kind="stable")
    first, last = merged(first[order], np.minimum(last[order], Nk - 1), 1)
    return list(zip(first.tolist(), last.tolist(), strict=True))


def of_stride(size: int, N: int, Nk: int) -> Visible:
    """What the queries of `strided` see: the query at x sees the keys y with y = x modulo `size`."""
    shift = Nk - N
    cuts = sorted({0, size, shift % size, Nk % size})
    numbers = [0] * 5
    for low, high in pairwise(cuts):  # residues with equally many queries and equally many keys
        keys = -((low - Nk) // size)
        rows = keys + (low - shift) // size  # without those before the first query
        several, one = keys > 1, keys > 0 < rows
        more = (several * rows * keys, several * rows, several * one * keys, one * rows, one * keys)
        numbers = [n + (high - low) * m for n, m in zip(numbers, more, strict=True)]
    return Visible(*numbers)


def of_strides(expr: Expr, L: int, N: int, Nk: int) -> Visible:
    """What the queries see under strides alone, of which L is the least common multiple: whether query x sees key y
    depends on y - r modulo L. There are 2 L keys or more, so a query that sees a key sees several."""
    import numpy as np

    from .expression import evaluate, joined

    # L is at most MOST_RESIDUES = 2^22: int64 holds sums over residues. What has N or Nk as a factor is Python's.
    sees = np.asarray(evaluate(expr, lambda atom: atom.sees(0, np.arange(L), Nk - N), joined))
    if not sees.any():
        return Visible(0, 0, 0, 0, 0)
    before = np.concatenate([[0], np.cumsum(np.concatenate([sees, sees]))])
    residues = np.arange(L)
    first, rest = (
        -residues % L,
        Nk % L,
    )  # query a sees, of the keys after the last whole L, some of a stretch of residues
    more = before[first + rest] - before[first]
    pairs = int(before[L]) * (N * (Nk // L) + N // L * rest) + int(more[: N % L].sum())
    start = (residues - N + 1) % L
    reached = (residues >= 0) if N >= L else before[start + N] > before[start]
    keys = int(reached.sum()) * (Nk // L) + int(reached[:rest].sum())
    return Visible(pairs, N, keys, N, keys)
