"""How a problem lies on GPUs: the parts of its tensors that a text across GPUs names.

P GPUs have n = N / P query tokens and Nk / P key tokens each, GPU after GPU. They form `ring` groups of `apart` GPUs:
GPU r is number r // apart in its ring and number r % apart in its group. The GPUs of a group divide the heads.
For a mesh of `rows_apart` x `keys_apart` GPUs, GPU r is in row r // keys_apart and in column r % keys_apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.dependent_tiles import Span
from ..core.folded import occurring
from ..core.problem import DENSE, with_mask
from .hops import Hops, Visit, check_pairs, hops_of, strip_visit

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.mask_types import BoundMask
    from ..core.problem import Attention
    from ..core.shapes import SizeClasses, Tile
    from ..core.typing import Bools, Places, Size

    Start = Callable[[int], int]


def size_of(x: object) -> int:
    """The positions of a dimension of a block, or of a part of an axis: the same for all GPUs."""
    return cast("int", getattr(x, "extent", x))


class Piece(Span):
    """`each` positions of an axis, whose first one follows from the position of `tile`."""

    __slots__ = ("each", "first")

    def __init__(self, length: Size, each: int, tile: Tile, first: Callable[[int], int]):
        self.length, self.each, self.tile, self.first = length, each, tile, first

    @property
    def start(self) -> int:  # type: ignore[override]
        return self.first(self.tile.start)

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.each

    @property
    def extent(self) -> int:
        return self.each

    def rows(self, rows: SizeClasses) -> SizeClasses:
        return [(times, {**sizes, self: self.each}) for times, sizes in rows]


class Peer(Piece):
    """`each` positions of an axis, whose first one follows from the positions of `here` and of `tile`, an inner
    loop's."""

    __slots__ = ("of",)

    def __init__(self, length: Size, each: int, here: Tile, tile: Tile, of: Callable[[int, int], int]):
        super().__init__(length, each, tile, lambda j: of(here.start, j))
        self.of = of


class OfFirst(Span):
    """All positions of an axis for GPU 0, and none for the others."""

    __slots__ = ()
    start = 0

    def __init__(self, length: Size, tile: Tile):
        self.length, self.tile = length, tile

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self.length if self.tile.start == 0 else 0

    @property
    def extent(self) -> Size:
        return self.length

    def rows(self, rows: SizeClasses) -> SizeClasses:
        ((total, sizes),) = occurring(rows)
        return [(1, {**sizes, self: self.length}), (total - 1, {**sizes, self: 0})]


class Scattered(Piece):
    """Pieces of `chunk` positions, one after every `step`; `first` is the number of the first one."""

    __slots__ = ("chunk", "step")

    def __init__(self, length: Size, each: int, tile: Tile, first: Start, chunk: int, step: int):
        super().__init__(length, each, tile, first)
        self.chunk, self.step = chunk, step

    @property
    def places(self) -> Places:
        import numpy as np

        starts = (self.start + np.arange(self.each // self.chunk) * self.step) * self.chunk
        return (starts[:, None] + np.arange(self.chunk)).ravel()


class Kind(Span):
    """The class of a visit of `here`, a GPU, to `tile`, another member of its ring. Its size is its number.

    `tile` has the keys, or with `flipped` the rows.
    """

    __slots__ = ("flipped", "here", "t")

    def __init__(self, t: Across, here: Tile, tile: Tile, flipped: bool = False):
        self.length, self.t, self.here, self.tile, self.flipped = len(t.hops.others), t, here, tile, flipped

    @property
    def start(self) -> int:  # type: ignore[override]
        return 0

    @property
    def visit(self) -> Visit:
        """The visit, on a machine that visits every tile."""
        return self.t.hops.visit(*self.pair)

    @property
    def pair(self) -> tuple[int, int]:
        """The numbers in the ring of the GPU that has the rows, and of the one that has the keys."""
        here, there = self.here.start // self.t.apart, self.tile.start
        return (there, here) if self.flipped else (here, there)

    @property
    def size(self) -> int:  # type: ignore[override]
        return [visit for _, visit in self.t.hops.others].index(self.visit)

    @property
    def extent(self) -> int:
        return 0

    def rows(self, rows: SizeClasses) -> SizeClasses:
        ((total, sizes),) = occurring(rows)
        classes = self.t.hops.others
        each = total // sum(times for times, _ in classes)
        return [(each * times, {**sizes, self: number}) for number, (times, _) in enumerate(classes)]


class Needed(Span):
    """The keys of a visit that any of its rows sees, of those of a GPU of the ring."""

    __slots__ = ()
    tile: Kind

    def __init__(self, length: Size, tile: Kind):
        self.length, self.tile = length, tile

    @property
    def start(self) -> int:  # type: ignore[override]
        return int(self.places[0]) if self.size else 0  # type: ignore[index]

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.tile.visit.keys

    @property
    def extent(self) -> int:
        return max((visit.keys for _, visit in self.tile.t.hops.others), default=0)

    @property
    def places(self) -> Places:
        import numpy as np

        hops, (r, s) = self.tile.t.hops, self.tile.pair
        return s * hops.keys + np.flatnonzero(hops.visible(r, s).any(axis=0))

    def rows(self, rows: SizeClasses) -> SizeClasses:
        classes = self.tile.t.hops.others
        return [(times, {**sizes, self: classes[sizes[self.tile]][1].keys}) for times, sizes in rows]  # type: ignore[index]


class NeededPart(Needed):
    """The same keys in the partial sums of gradients: Nk keys for each member of a ring, of which those of the member
    that has the rows."""

    __slots__ = ()

    def __init__(self, tile: Kind):
        super().__init__(tile.t.ring * tile.t.problem.Nk, tile)

    @property
    def places(self) -> Places:
        return super().places + self.tile.pair[0] * self.tile.t.problem.Nk  # type: ignore[operator, return-value]


class Pairs(NamedTuple):
    """The pairs (GPU, other member of its ring or of its row): a line of a mask, for loops over the others."""

    t: Across
    members: int
    number: Start
    tile: Tile | None = None
    kind: str = "row"
    rows_q: int = 1
    rows_k: int = 1

    @property
    def mask(self) -> BoundMask:
        return self  # type: ignore[return-value]  # it has what a loop over a line asks for

    @property
    def any(self) -> bool:
        return self.members > 1

    @property
    def N(self) -> int:
        return self.t.ranks

    @property
    def Nk(self) -> int:
        return self.members

    def active(self, tile: Tile) -> bool:
        assert self.tile is not None
        return bool(tile.start != self.number(self.tile.start))

    def pairs(self, row_ragged: bool, column_ragged: bool) -> int:
        return 0 if row_ragged or column_ragged else self.t.ranks * (self.members - 1)


class Own(NamedTuple):
    """What the rows of a GPU's group see of its own keys, as an input of a step."""

    t: Across
    here: Tile

    def array(self) -> Bools:
        r = self.here.start // self.t.apart
        return self.t.hops.visible(r, r)


class Part(NamedTuple):
    """What rows see of keys in a visit, as an input of a step; with `needed`, of the keys that any of them sees."""

    kind: Kind
    needed: bool = False

    def array(self) -> Bools:
        seen = self.kind.t.hops.visible(*self.kind.pair)
        return seen[:, seen.any(axis=0)] if self.needed else seen


class Seen(NamedTuple):
    """Which keys of a visit any row sees, as an input of a step."""

    kind: Kind

    def array(self) -> Bools:
        import numpy as np

        return np.any(self.kind.t.hops.visible(*self.kind.pair), axis=0)


class All(NamedTuple):
    """What some rows see of some keys, as an input of a step. They are looked at together."""

    t: Across
    rows: Tile
    keys: Tile

    def array(self) -> Bools:
        return self.t.all_visible[self.rows.places][:, self.keys.places]

    def visits(self, machine: Machine) -> Iterator[tuple[Size, Visit]]:
        """(how often, visit) of the rows and keys. They are a part of the mask if the GPUs have all keys, in order;
        else the schedule inside visits all of them."""
        found = self.of_all()
        if len(found) == 1:
            yield from ((times, found[0]) for times, _ in machine.occurrences())
        elif machine.folded:
            yield from ((1, visit) for visit in found)
        else:
            yield 1, found[cast("Piece", self.rows).tile.start]

    def of_all(self) -> list[Visit]:
        """The visit of each GPU; a single one if all are the same."""
        t, rows, keys = self.t, size_of(self.rows), size_of(self.keys)
        if t.keys_apart > 1 or keys < t.problem.Nk or t.hops.strip is None:
            return [Visit(rows, keys, rows * keys, DENSE)]
        return t.of_all_keys


@dataclass(frozen=True)
class Across:
    """A problem on `ranks` GPUs, in groups of `apart`, or in a mesh of `rows_apart` x `keys_apart`."""

    problem: Attention
    ranks: int
    apart: int = 1
    layout: str = "blocks"
    keys_apart: int = 1

    @property
    def ring(self) -> int:
        """GPUs of a ring."""
        return self.ranks // self.apart

    @property
    def rows_apart(self) -> int:
        """Rows of GPUs of a mesh: parts that the query tokens are cut into."""
        return self.ranks // self.keys_apart

    @cached_property
    def hops(self) -> Hops:
        """The visits of a ring."""
        return hops_of(self.problem, self.ring, self.layout)

    @cached_property
    def of_all_keys(self) -> list[Visit]:
        """What the rows of each GPU see of all keys, under a mask that is a strip."""
        low, high = cast("tuple[int, int]", self.hops.strip)
        starts = range(0, self.problem.N, self.n)
        return [strip_visit(self.n, self.problem.Nk, low + first, high + first) for first in starts]

    @property
    def n(self) -> int:
        """Query tokens of a GPU."""
        return self.problem.N // self.ranks

    @property
    def nk(self) -> int:
        """Key tokens of a GPU."""
        return self.problem.Nk // self.ranks

    @property
    def heads(self) -> int:
        """Query heads of a GPU of a group."""
        return self.problem.heads // self.apart

    @property
    def kv_heads(self) -> int:
        """KV heads that a GPU of a group needs: if there are fewer than GPUs, several have the same one."""
        return max(1, self.problem.kv_heads // self.apart)

    @cached_property
    def all_visible(self) -> Bools:
        """Booleans (N x Nk), True where visible, of all tokens in the order of the GPUs. InputError for too many."""
        if self.problem.mask is not DENSE:
            check_pairs(self.problem)
        return self.hops.visible_at(self.hops.order(self.problem.N), self.hops.order(self.problem.Nk))

    @property
    def run(self) -> Attention:
        """The problem that a machine runs: masks are asked of `hops`."""
        return with_mask(self.problem)

    # ------------------------------------------------------------ loops

    def gpus(self, chip: Machine) -> Iterator[Tile]:
        """A loop over the GPUs."""
        return chip.tiles(self.ranks, 1, parallel=True)

    def others_of_ring(self, chip: Machine, r: Tile) -> Iterator[Tile]:
        """A loop over the other members of the ring of a GPU, by their number in it."""
        return self._others(chip, r, self.ring, lambda r: r // self.apart)

    def others_of_row(self, chip: Machine, r: Tile) -> Iterator[Tile]:
        """A loop over the other GPUs of the row of a mesh, by their column."""
        return self._others(chip, r, self.keys_apart, lambda r: r % self.keys_apart)

    def _others(self, chip: Machine, r: Tile, members: int, number: Start) -> Iterator[Tile]:
        """A loop over the other members of a ring or a row, by their number in it."""
        return chip.tiles(members, 1, where=Pairs(self, members, number, r)) if members > 1 else iter(())

    # ------------------------------------------------------------ parts of the tokens

    def home(self, r: Tile) -> Piece:
        """The query tokens of a GPU."""
        return Piece(self.problem.N, self.n, r, lambda r: r * self.n)

    def home_keys(self, r: Tile) -> Piece:
        """The key tokens of a GPU."""
        return Piece(self.problem.Nk, self.nk, r, lambda r: r * self.nk)

    def group(self, r: Tile, keys: bool = False) -> Piece:
        """The query tokens, or the key tokens, of the group of a GPU."""
        each = (self.nk if keys else self.n) * self.apart
        return Piece(each * self.ring, each, r, lambda r: r // self.apart * each)

    def member(self, j: Tile, keys: bool) -> Piece:
        """The key tokens, or the query tokens, of member j of a ring."""
        each = (self.nk if keys else self.n) * self.apart
        return Piece(each * self.ring, each, j, lambda j: j * each)

    def mesh_rows(self, r: Tile) -> Piece:
        """The query tokens of a row of a mesh."""
        each = self.n * self.keys_apart
        return Piece(self.problem.N, each, r, lambda r: r // self.keys_apart * each)

    def mesh_keys(self, r: Tile) -> Piece:
        """The key tokens of a column of a mesh."""
        b = self.keys_apart
        return Scattered(self.problem.Nk, self.nk * self.rows_apart, r, lambda r: r % b, self.nk, b)

    def every(self, r: Tile) -> Piece:
        """All query tokens."""
        return Piece(self.problem.N, self.problem.N, r, lambda r: 0)

    def part(self, parts: int, each: int, r: Tile, first: Start) -> Piece:
        """Rows of the partial results: N for each of `parts` GPUs, one after the other."""
        return Piece(parts * self.problem.N, each, r, first)

    def ring_part(self, r: Tile) -> Piece:
        """The keys of a GPU's own group, in the partial sums that it makes: Nk keys for each member of a ring."""
        each = self.nk * self.apart
        Nk, u = self.problem.Nk, self.apart
        return Piece(self.ring * Nk, each, r, lambda r: r // u * Nk + r // u * each)

    def ring_part_of(self, r: Tile, j: Tile) -> Peer:
        """The keys of member j of a ring, in the partial sums that a GPU makes."""
        each, Nk, u = self.nk * self.apart, self.problem.Nk, self.apart
        return Peer(self.ring * Nk, each, r, j, lambda r, j: r // u * Nk + j * each)

    def ring_part_from(self, r: Tile, j: Tile) -> Peer:
        """The keys of a GPU's own group, in the partial sums that member j makes."""
        each, Nk, u = self.nk * self.apart, self.problem.Nk, self.apart
        return Peer(self.ring * Nk, each, r, j, lambda r, j: j * Nk + r // u * each)

    def key_copies(self, r: Tile) -> Piece:
        """The keys of a column of a mesh, as the GPUs of each of its rows have them: Nk keys for each row."""
        b = self.keys_apart
        chunks = self.problem.Nk // self.nk
        return Scattered(
            self.rows_apart * self.problem.Nk,
            self.nk * self.rows_apart,
            r,
            lambda r: r // b * chunks + r % b,
            self.nk,
            b,
        )

    # ------------------------------------------------------------ parts of the heads

    def slots(self, r: Tile) -> Piece:
        """The KV heads of a GPU of a group where each GPU has its own copy of a head that several have."""
        return Piece(self.apart * self.kv_heads, self.kv_heads, r, lambda r: r % self.apart * self.kv_heads)

    def my_heads(self, r: Tile) -> Piece:
        """The query heads of a GPU of a group."""
        return Piece(self.problem.heads, self.heads, r, lambda r: r % self.apart * self.heads)

    def my_kv_heads(self, r: Tile) -> Piece:
        """The KV heads of the query heads of a GPU of a group."""
        share = self.problem.heads // self.problem.kv_heads
        return Piece(self.problem.kv_heads, self.kv_heads, r, lambda r: r % self.apart * self.heads // share)

    # ------------------------------------------------------------ GPUs

    def left(self, r: Tile) -> Piece:
        """The GPU before a GPU in its ring."""
        apart = self.apart
        return Piece(self.ranks, 1, r, lambda r: (r // apart - 1) % self.ring * apart + r % apart)

    def in_row(self, r: Tile, c: Tile) -> Peer:
        """The GPU in the row of a GPU and in column c of a mesh."""
        b = self.keys_apart
        return Peer(self.ranks, 1, r, c, lambda r, c: r // b * b + c)

    def others_of_column(self, chip: Machine, r: Tile) -> Iterator[Tile]:
        """A loop over the other GPUs of the column of a mesh, by their row."""
        return self._others(chip, r, self.rows_apart, lambda r: r // self.keys_apart)

    def in_column(self, r: Tile, c: Tile) -> Peer:
        """The GPU in row c and in the column of a GPU of a mesh."""
        b = self.keys_apart
        return Peer(self.ranks, 1, r, c, lambda r, c: c * b + r % b)

    def later(self, r: Tile, by: int) -> Piece:
        """The GPU that comes `by` places after a GPU."""
        return Piece(self.ranks, 1, r, lambda r: r + by)

    def in_ring(self, r: Tile, j: Tile) -> Peer:
        """Member j of the ring of a GPU."""
        apart = self.apart
        return Peer(self.ranks, 1, r, j, lambda r, j: j * apart + r % apart)
