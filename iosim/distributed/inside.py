"""The schedules inside a GPU: flash2 that goes on where the last shard of keys ended, merges, and gradients of a visit.

Each is an ordinary schedule: machines run it, a search finds its best tiles, and CUDA can be generated from it. They
are not in the lists of `iosim schedules`, because by themselves they are pieces of attention. Tests have their words
and their room by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.levels import Run
from ..core.problem import Attention, Tensor, with_mask
from ..core.tiling import Tiling
from ..errors import InputError
from ..schedules.backward import BACKWARD_TENSORS
from ..schedules.backward_lse import key_side, row_sums
from ..schedules.cache import Cache
from ..schedules.flash import attend
from ..schedules.registry import Schedule
from ..search.best import best_tiles
from ..steps.softmax import denormalise, log_sum_exp, merge, minus_infinity, normalise, zeros
from .across import Across, All, Own, Part, size_of

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.mask_types import Mask
    from ..core.shapes import Tile
    from ..core.typing import Size, Step
    from .hops import Visit

    Runs = Callable[["Below", Schedule, Machine, tuple[Block, ...], tuple[Input, ...]], Iterator[Run]]

STATE = {
    "O": Tensor(("N", "dv"), "state", 0.0),
    "l": Tensor(("N",), "state", 0.0),
    "m": Tensor(("N",), "state", float("-inf")),
}
"""O, l and m between hops, in the accumulators' type. O is divided by l."""
BACKWARD_STATE = {**BACKWARD_TENSORS, "dQ": Tensor(("N", "d"), "state", 0.0), "D": Tensor(("N",), "state")}
"""dQ between hops, in the accumulators' type."""
PARTIAL = {
    "O": Tensor(("N", "dv"), "state"),
    "Opart": Tensor(("N", "dv"), "output"),
    "LSEpart": Tensor(("N",), "state"),
}
"""A partial result, and that of another GPU."""


def first_hop(chip: Machine, p: Attention, t: Tiling) -> None:
    """flash2 that also keeps l and m of its rows, so that a later hop can go on."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i)
        o, l = chip.compute("O", (i, p.dv), zeros), chip.compute("l", (i,), zeros)
        m = chip.compute("m", (i,), minus_infinity)
        add_keys(chip, p, t, i, q, (m, l, o))


def later_hop(chip: Machine, p: Attention, t: Tiling) -> None:
    """flash2 whose O, l and m come from HBM and go back: it adds the keys of one more shard."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, o, l, m = (chip.load(name, i) for name in ("Q", "O", "l", "m"))
        chip.update(o, denormalise, l)
        add_keys(chip, p, t, i, q, (m, l, o))


def add_keys(chip: Machine, p: Attention, t: Tiling, i: Tile, q: Block, state: tuple[Block, Block, Block]) -> None:
    """Add all keys that a tile of queries sees, and store O, l and m."""
    m, l, o = state
    cache = Cache(chip, p)
    for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
        attend(chip, p, i, j, q, cache.load(j), state)
    chip.update(o, normalise, l)
    for block, name in ((o, "O"), (l, "l"), (m, "m")):
        chip.store(block, name, i)


def merge_two(chip: Machine, p: Attention, t: Tiling) -> None:
    """O and LSE of all keys, from those of some keys and from those of the others, which came from another GPU."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        o, l = chip.compute("O", (i, p.dv), zeros), chip.compute("LSE", (i,), zeros)
        m = chip.compute("m", (i,), minus_infinity)
        for name in ("", "part"):
            part, lse = chip.load(f"O{name}", i), chip.load(f"LSE{name}", i)
            chip.update((m, l, o), merge, part, lse)
            chip.free(part, lse)
        chip.update(o, normalise, l)
        chip.update(l, log_sum_exp, m)
        chip.store(o, "O", i)
        chip.store(l, "LSE", i)


FIRST = Schedule("flash2-first-hop", first_hop, "flash2 that keeps l and m", skips=True, scales=True, tensors=STATE)
HOP = Schedule(
    "flash2-hop",
    later_hop,
    "flash2 whose O, l, m come from HBM and go back",
    skips=True,
    scales=True,
    tensors=STATE,
    initialised=("O", "l", "m"),
    family="hop",
)
MERGE = Schedule(
    "merge-two", merge_two, "O and LSE from two partial results (Flash-Decoding)", tensors=PARTIAL, family="hop"
)
GRADIENTS = Schedule(
    "flash2-bwd-hop",
    key_side,
    "the loop of flash2-bwd over the keys of one shard",
    skips=True,
    outer="keys",
    tensors=BACKWARD_STATE,
    adds=("dQ",),
    family="hop",
)
DOTS = Schedule("row-dots", row_sums, "D, the row sums of dO * O", tensors=BACKWARD_TENSORS, family="hop")


# ---------------------------------------------------------------- the runs of an event


class Below:
    """Which schedules an event of an outer run stands for inside a GPU, with the best tiles in an SRAM of M.

    With M None each schedule reads and writes each of its words once, and the query heads of a KV head share its keys.
    """

    def __init__(self, t: Across, M_bytes: int | None, multiple: int = 1):
        self.t, self.M_bytes, self.multiple = t, M_bytes, multiple
        self.packs = M_bytes is None or t.problem.gqa == "pack"

    def __call__(
        self, machine: Machine, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]
    ) -> Iterator[Run]:
        inner = INNER.get(getattr(step, "inside", ""))
        return inner.runs(self, inner.schedule, machine, outputs, inputs) if inner else iter(())

    def merges(
        self, schedule: Schedule, machine: Machine, outputs: tuple[Block, ...], inputs: tuple[Input, ...]
    ) -> Iterator[Run]:
        """The runs of a merge of two results: one for each event."""
        rows, heads, *_ = map(size_of, outputs[2].shape)
        p = self._problem(rows, rows, heads, heads)
        for times, _ in machine.occurrences():
            yield Run(times, schedule, p, self._tiles(schedule, p))

    def dots(
        self, schedule: Schedule, machine: Machine, outputs: tuple[Block, ...], inputs: tuple[Input, ...]
    ) -> Iterator[Run]:
        """The run that gives D of the rows of a GPU."""
        return self.merges(schedule, machine, (outputs[0],) * 3, inputs)

    def gradients(
        self, schedule: Schedule, machine: Machine, outputs: tuple[Block, ...], inputs: tuple[Input, ...]
    ) -> Iterator[Run]:
        """The runs of a visit in a backward pass."""
        return self.visits(schedule, machine, outputs, (inputs[0], *inputs[4:]))

    def visits(
        self, schedule: Schedule, machine: Machine, outputs: tuple[Block, ...], inputs: tuple[Input, ...]
    ) -> Iterator[Run]:
        """The runs of a visit: one for each class of visits in which something is visible. All have the tiles that are
        best for the largest."""
        heads, kv_heads = (size_of(cast("Block", x).shape[1]) for x in inputs[:2])
        part = inputs[-1]
        found = [(times, visit) for times, visit in self._visits(machine, part) if visit.rows]
        if not found:
            return
        largest = max(self._alike(part), key=lambda visit: (visit.rows * visit.keys, visit.rows))
        tiles = self._tiles(schedule, self._problem(largest.rows, largest.keys, heads, kv_heads))
        step = 1 if self.M_bytes is None else tiles.rows_k
        for times, rows, keys, mask in together(found, step):
            p = self._problem(rows, keys, heads, kv_heads)
            yield Run(times, schedule, p if self.packs else with_mask(p, mask), tiles)

    def _problem(self, rows: int, keys: int, heads: int, kv_heads: int) -> Attention:
        """The problem of a visit without its mask."""
        return problem_of(with_mask(self.t.problem), rows, keys, heads, kv_heads, "pack" if self.packs else "repeat")

    def _tiles(self, schedule: Schedule, p: Attention) -> Tiling:
        """The best tiles for a visit without its mask. InputError if none fit."""
        if self.M_bytes is None:
            return Tiling(self.t.problem.N * self.t.problem.heads, self.t.problem.Nk)
        found = tiles_of(schedule, p, self.M_bytes, self.multiple)
        if found is None:
            raise InputError("--M", f"{self.M_bytes} B", f"enough for a tile of {schedule.name}", "try a larger M")
        return found

    def _alike(self, part: Input) -> list[Visit]:
        """All visits of the kind of an event, whichever GPU it is."""
        hops = self.t.hops
        if isinstance(part, All):
            return part.of_all()
        return [visit for _, visit in (hops.own if isinstance(part, Own) else hops.others)]

    def _visits(self, machine: Machine, part: Input) -> Iterator[tuple[Size, Visit]]:
        """How often, and which visits, an event stands for."""
        hops = self.t.hops
        if isinstance(part, Part):
            for times, sizes in machine.occurrences(part.kind):
                yield times, hops.others[cast("int", sizes[part.kind])][1]
        elif isinstance(part, All):
            yield from part.visits(machine)
        elif isinstance(part, Own):
            if machine.folded:
                yield from ((self.t.apart * times, visit) for times, visit in hops.own)
            else:
                r = part.here.start // self.t.apart
                yield 1, hops.visit(r, r)


def together(visits: list[tuple[Size, Visit]], step: int) -> Iterator[tuple[Size, int, int, Mask]]:
    """(times, rows, keys, mask) of visits.

    A tile of keys has `step` of them. All rows of a dense or causal visit see a tile that is added, so each costs the
    same words. Two visits therefore stand for many that differ in whole tiles: the shortest, and one a tile longer.
    """
    alike: dict[tuple[int, str, int], list[tuple[Size, Visit]]] = {}
    for times, visit in visits:
        alike.setdefault((visit.rows, str(visit.mask), visit.keys % step), []).append((times, visit))
    for (rows, mask, _), several in alike.items():
        if len(several) < 3 or mask not in ("dense", "causal"):
            yield from ((times, rows, visit.keys, visit.mask) for times, visit in several)
            continue
        least = min((visit for _, visit in several), key=lambda visit: visit.keys)
        more = sum(times * ((visit.keys - least.keys) // step) for times, visit in several)
        yield sum(times for times, _ in several) - more, rows, least.keys, least.mask
        if more:  # else no visit is that long
            yield more, rows, least.keys + step, least.mask


@lru_cache(maxsize=4096)
def problem_of(p: Attention, rows: int, keys: int, heads: int, kv_heads: int, gqa: str) -> Attention:
    """A problem with other sizes, for one sequence, as machines run it."""
    return replace(p, N=rows, Nk=keys, heads=heads, kv_heads=kv_heads, batch=1, gqa=gqa).packed


@lru_cache(maxsize=4096)
def tiles_of(schedule: Schedule, p: Attention, M_bytes: int, multiple: int) -> Tiling | None:
    """The tiles of least traffic of a schedule inside; None if none fit."""
    return best_tiles(schedule, p, M_bytes, multiple)


class Inner(NamedTuple):
    """A schedule inside, and the function that gives its runs for an event."""

    schedule: Schedule
    runs: Runs


INNER = {
    "first": Inner(FIRST, Below.visits),
    "hop": Inner(HOP, Below.visits),
    "merge": Inner(MERGE, Below.merges),
    "backward": Inner(GRADIENTS, Below.gradients),
    "dots": Inner(DOTS, Below.dots),
}
"""The schedules inside, by the mark of the step that they are (steps/shards.py)."""
