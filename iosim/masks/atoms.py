"""The table of the atoms of a mask, one row each: name, predicate, place in the text, and what its counts follow from.

To add an atom, add a row to `ROWS`. The parser (text.py), the help of --mask, the messages of errors, all counts, the
masks of kernels (cuda/mask_tables.py) and those of FlexAttention (gpu/flex.py) follow from it.

A predicate `see(x, y, n)` says whether the query at x sees the key at y. n is the number of the atom. Both are places
on the axis of keys, and the last query stands at the last key: query r of N is at x = r + Nk - N, behind the cached
tokens. For an atom of tiles, and for files and functions, x is the number of the query itself. The same function is
called with Python integers, with NumPy arrays, with tensors, and with texts, which it turns into C. So it uses
operators only: + - comparisons, & and | of comparisons, and // and % of numbers that are never negative, because C
rounds a negative quotient up. With more queries than keys the first ones stand at negative places.

With a `shape`, an atom is counted without looking at single tokens. Without one, a mask is looked at pair by pair, for
one problem at a time. This is exact too. It takes about a second for 2^30 pairs of tokens, and 2^33 are the most. Up
to 2^26, which is N = 8192, pairs are looked at once for all tilings, and there is a floor; a search of tiles then takes
some seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ..core.arrays import clamp, larger, smaller
from ..units import LARGEST_COUNT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.typing import Size, Test
    from .closed_form import Axis, Counts
    from .files import MaskFile
    from .functions import MaskFunction

    T = TypeVar("T")

    class Of(Protocol[T]):
        """A function of positions, numbers and other values of an atom: integers, arrays, tensors or texts."""

        __call__: Callable[..., T]  # type: ignore[explicit-any]

# ---------------------------------------------------------------- shapes: what counts follow from


class Diagonals(NamedTuple):
    """The shape of an atom that sees the pairs with low <= y - x <= high. None is no bound.

    Its methods speak of y - r for the query of number r, which is at x = r + shift.
    """

    low: int | None = None
    high: int | None = None

    def edges(self, shift: Size) -> list[Size]:
        """The differences y - r at which it starts to see, or to hide."""
        starts = [] if self.low is None else [self.low + shift]
        return starts if self.high is None else [*starts, self.high + 1 + shift]

    def bounds(self, N: Size, Nk: Size, shift: Size) -> tuple[Size, Size]:
        """The least and the largest y - r that it sees, within -N..Nk."""
        low = -N if self.low is None else larger(self.low + shift, -N)
        return low, Nk if self.high is None else smaller(self.high + shift, Nk)


class Stripes(NamedTuple):
    """The shape of an atom that sees the pairs whose y - x is a multiple of `size`."""

    size: int


class First(NamedTuple):
    """The shape of an atom that depends only on whether x < size, and on whether y < size."""

    size: int


class Chunks(NamedTuple):
    """The shape of an atom that sees the pairs in the same segment, where all segments have one size."""

    size: int

    def edges(self, first: int, last: int) -> Iterable[int]:
        """The positions at which the segments of first..last start, and the one at which the last of them ends."""
        return range(first // self.size * self.size, (last // self.size + 1) * self.size + 1, self.size)


class Documents(NamedTuple):
    """The segments of given lengths: the value of the atom `documents`, and its shape."""

    lengths: tuple[int, ...]

    def __call__(self, position: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
        """The number of the document that a position lies in, or each position of an array."""
        if isinstance(position, int):
            return bisect_right(ends(self.lengths), position)
        import numpy as np

        return np.searchsorted(np.array(ends(self.lengths)), position, "right")

    def edges(self, first: int, last: int) -> Iterable[int]:
        """The positions at which the documents of first..last start, and the one at which the last of them ends."""
        stops = ends(self.lengths)
        return (0, *stops)[bisect_right(stops, first) : bisect_right(stops, last) + 2]


Shape = Diagonals | Stripes | First | Chunks | Documents


@lru_cache(maxsize=256)
def ends(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The position after the last token of each document."""
    return tuple(accumulate(lengths))


# ---------------------------------------------------------------- closed forms of single atoms


def all_but_a_corner(size: int, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts:
    """The counts of `global`: all tiles but those whose row and column both begin at `size` or later."""
    from .closed_form import Counts

    far = []
    for axis, first in ((rows, size - shift), (cols, size)):  # the first positions that are not global
        whole = axis.whole - clamp(-(-first // axis.size), 0, axis.whole)
        far.append((whole, axis.ragged * (axis.last[0] >= first)))
    row_tiles, col_tiles = (rows.whole, rows.ragged), (cols.whole, cols.ragged)
    any_key, any_query = size > 0, size - shift > 0
    return Counts(
        {(bool(r), bool(c)): row_tiles[r] * col_tiles[c] - far[0][r] * far[1][c] for r in (0, 1) for c in (0, 1)},
        {bool(r): row_tiles[r] - far[0][r] * (1 - any_key) for r in (0, 1)},
        {bool(c): col_tiles[c] - far[1][c] * (1 - any_query) for c in (0, 1)},
    )


def all_if_tiles_are_large(size: int, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts | None:
    """The counts of `strided` if every tile has a diagonal that is visible; None otherwise, and for arrays."""
    from .closed_form import Strip, strip_counts

    least = 0
    for axis in (rows, cols):
        if not isinstance(axis.size, int) or not isinstance(axis.rest, int):
            return None
        least += min(axis.rest or axis.size, axis.size)
    return strip_counts(Strip(-rows.length, cols.length), rows, cols) if size < least else None


# ---------------------------------------------------------------- values that are not one number


def read_documents(text: str, where: str) -> Documents:
    """The documents whose lengths have commas between them; InputError that names `where` for any other text."""
    from ..units import parse_count

    return Documents(tuple(parse_count(length, where) for length in text.split(",")))


def read_matrix(path: str, where: str) -> MaskFile:
    """The matrix of a file; InputError for any other file."""
    from .files import read_file

    return read_file(path)


def read_function(text: str, where: str) -> MaskFunction:
    """The function of a Python file; InputError for anything else."""
    from .functions import read_function

    return read_function(text, where)


# ---------------------------------------------------------------- the table


class Density(NamedTuple):
    """The share of active tiles that papers give: its `formula`, and its value for T tiles an axis and the number n."""

    formula: str
    value: Callable[[int, int], float]
    tiles: bool = False
    """Whether it holds only for an atom of tiles."""


class Row(NamedTuple):
    """One atom.

    `syntax` is its name, and what stands after the colon: numbers of at least `least`, in tokens or, if it can count
    `tiles`, in tiles. Anything else `read(text, where)` reads. Without a predicate it `stands_for` other atoms, joined
    by &: it gives their names and numbers. `counts(n, rows, cols, shift)` are counts of the atom alone that need no
    general way; None where it has none.
    """

    syntax: str
    see: Of[Test] | None
    meaning: str
    known_as: str = ""
    least: tuple[int, ...] = (0,)
    tiles: bool = True
    shape: Of[Shape] | None = None
    counts: Callable[[int, Axis[Size], Axis[Size], Size], Counts | None] | None = None
    density: Density | None = None
    read: Callable[[str, str], Documents | MaskFile | MaskFunction] | None = None
    stands_for: Of[dict[str, int]] | None = None

    @property
    def name(self) -> str:
        """The name of the atom."""
        return self.syntax.partition(":")[0]


ROWS = (
    Row("dense", lambda x, y, n: x == x, "always", tiles=False, shape=lambda n: Diagonals()),
    Row(
        "causal",
        lambda x, y, n: y <= x,
        "y <= x: the last query sees the last key",
        "autoregressive",
        shape=lambda n: Diagonals(high=0),
        density=Density("(T+1)/(2T)", lambda T, n: (T + 1) / (2 * T)),
    ),
    Row(
        "window:W",
        lambda x, y, n: (x - y <= n) & (y - x <= n),
        "abs(x - y) <= W",
        "sliding window, local (Longformer, Mistral)",
        shape=lambda n: Diagonals(-n, n),
        density=Density("(2w+1)/T", lambda T, n: min(1.0, (2 * n + 1) / T), tiles=True),
    ),
    Row(
        "sink:K",
        lambda x, y, n: y < n,
        "y < K: all queries see the first K keys",
        "attention sinks (StreamingLLM)",
        shape=First,
    ),
    Row(
        "global:G",
        lambda x, y, n: (x < n) | (y < n),
        "x < G or y < G: the queries at the first G positions see all keys as well",
        "global tokens (BigBird, Longformer)",
        shape=First,
        counts=all_but_a_corner,
        density=Density("1-(1-g/T)^2", lambda T, n: 1 - max(0.0, 1 - n / T) ** 2, tiles=True),
    ),
    Row(
        "strided:S",
        lambda x, y, n: x % n == y % n,
        "x and y are equal modulo S",
        "strided (Sparse Transformer)",
        least=(1,),
        shape=Stripes,
        counts=all_if_tiles_are_large,
        density=Density("1/S", lambda T, n: 1 / n),
    ),
    Row(
        "dilated:W:S",
        None,
        "abs(x - y) <= W S, and x and y are equal modulo S: W keys on each side, S apart",
        "dilated window (Longformer, NATTEN)",
        least=(0, 1),
        stands_for=lambda W, S: {"window": min(W * S, 2 * LARGEST_COUNT), "strided": S},  # no distance is larger
    ),
    Row(
        "chunk:C",
        lambda x, y, n: (x >= y // n * n) & (x < y // n * n + n),
        "floor(x / C) = floor(y / C)",
        "chunked attention (Llama 4), local blocks",
        least=(1,),
        shape=Chunks,
    ),
    Row(
        "documents:A,B,...",
        lambda x, y, n: n(x) == n(y),
        "x and y lie in the same document; the lengths add up to Nk",
        "document or packed mask, block-diagonal, variable lengths",
        tiles=False,
        shape=lambda n: n,
        read=read_documents,
    ),
    Row("file:PATH", lambda x, y, n: n(x, y), "the file says so", tiles=False, read=read_matrix),
    Row(
        "py:FILE.py:NAME",
        lambda x, y, n: n(x, y),
        "the function NAME(b, h, r, y) of the Python file returns true for query number r; iosim runs the file",
        "a `mask_mod` of FlexAttention",
        tiles=False,
        read=read_function,
    ),
)
BY_NAME = {row.name: row for row in ROWS}
