"""The schedules inside a GPU: flash2 that goes on where the last shard of keys ended, merges, and gradients of a visit.

Each is an ordinary schedule: machines run it, a search finds its best tiles, and CUDA can be generated from it. They
are not in the lists of `iosim schedules`, because by themselves they are pieces of attention.
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
from ..oracles.attention import attention
from ..oracles.backward import backward_inputs, backward_output
from ..schedules.backward import BACKWARD_TENSORS
from ..schedules.backward_lse import key_side, keys_outside_lse_traffic, row_sums
from ..schedules.cache import Cache, cache_room, cache_traffic
from ..schedules.flash import attend, flash_footprint, queries_outside_traffic, visited
from ..schedules.registry import FA2, Schedule
from ..search.best import best_tiles
from ..steps.softmax import denormalise, log_sum_exp, merge, minus_infinity, normalise, zeros
from .across import Across, All, Own, Part, size_of

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Input, Machine
    from ..core.mask_types import Mask
    from ..core.shapes import Tile
    from ..core.typing import Arrays, Bools, Size, Step, Words
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


def gradients_hop(chip: Machine, p: Attention, t: Tiling) -> None:
    """The loop of flash2-bwd over keys, which adds to dQ. It is one visit of a shard of queries and a shard of keys."""
    key_side(chip, p, t, shared=True)


def dots_of_rows(chip: Machine, p: Attention, t: Tiling) -> None:
    """D = rowsum(dO * O), before the first hop."""
    row_sums(chip, p, t)


# ---------------------------------------------------------------- by hand (words of one head)


def gradients_traffic(p: Attention, t: Tiling) -> Words:
    """Those of flash2-bwd without D: R = Nk (d + dv) + Tc N (2 d + dv + 2), W = Nk (d + dv) + Tc N d."""
    found = {**keys_outside_lse_traffic(p, t)}
    rows = visited(p, t)["rows"]
    del found["O"]
    return {**found, "dO": (rows * p.dv, 0), "D": (rows, 0)}


def dots_traffic(p: Attention, t: Tiling) -> Words:
    """R = 2 N dv, W = N."""
    return {"dO": (p.N * p.dv, 0), "O": (p.N * p.dv, 0), "D": (0, p.N)}


def gradients_footprint(p: Attention, t: Tiling) -> int:
    """K, V, dK, dV, and then Q, dO, dQ, LSE, D, S and dP."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return 2 * rows_k * (p.d + p.dv) + rows_q * (2 * p.d + p.dv) + 2 * rows_q * rows_k + 2 * rows_q


def dots_footprint(p: Attention, t: Tiling) -> int:
    """dO, O and D of a tile of rows."""
    return min(t.rows_q, p.N) * (2 * p.dv + 1)


def first_traffic(p: Attention, t: Tiling) -> Words:
    """Those of flash2 for rows that all see a key, and l and m of each row once."""
    return {**queries_outside_traffic(p, t), "Q": (p.N * p.d, 0), "O": (0, p.N * p.dv), "l": (0, p.N), "m": (0, p.N)}


def later_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (d + dv + 2) + Nk (d + dv) Tr, W = N (dv + 2) without a mask."""
    keys = cache_traffic(p, visited(p, t)["keys"], -(-p.N // t.rows_q))
    rows = {"O": (p.N * p.dv, p.N * p.dv), "l": (p.N, p.N), "m": (p.N, p.N)}
    return {"Q": (p.N * p.d, 0), **keys, **rows}


def merge_traffic(p: Attention, t: Tiling) -> Words:
    """R = 2 N (dv + 1), W = N (dv + 1)."""
    words = p.N * p.dv
    return {"O": (words, words), "LSE": (p.N, p.N), "Opart": (words, 0), "LSEpart": (p.N, 0)}


def hop_footprint(p: Attention, t: Tiling) -> int:
    """That of flash2: Q, O, l, m, and then K, V and S."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows_q * (p.d + p.dv + 2) + cache_room(p, rows_k, rows_q * rows_k)


def merge_footprint(p: Attention, t: Tiling) -> int:
    """O, LSE and m of a tile of rows, and one of the two results."""
    return min(t.rows_q, p.N) * (2 * p.dv + 3)


# ---------------------------------------------------------------- references in float64


def state_of(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Arrays:  # type: ignore[type-arg]
    """O, l and m of queries that have seen some keys."""
    import numpy as np

    s = q @ k.T * q.shape[1] ** -0.5
    m = s.max(axis=1)
    return {"O": attention(q, k, v), "l": np.exp(s - m[:, None]).sum(axis=1), "m": m}


def hop_example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Queries that have seen two keys, and more keys."""
    q, k, v = rng.normal(size=(p.N, p.d)), rng.normal(size=(p.Nk, p.d)), rng.normal(size=(p.Nk, p.dv))
    seen = {"before K": rng.normal(size=(2, p.d)), "before V": rng.normal(size=(2, p.dv))}
    return {"Q": q, "K": k, "V": v, **seen, **state_of(q, seen["before K"], seen["before V"])}


def hop_answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """Attention to the keys before and to those of this hop."""
    import numpy as np

    k, v = np.concatenate([hbm["before K"], hbm["K"]]), np.concatenate([hbm["before V"], hbm["V"]])
    all_visible = None if visible is None else np.pad(visible, ((0, 0), (2, 0)), constant_values=True)
    return {"O": attention(hbm["Q"], k, v, all_visible)}


def merge_example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Two results of the same queries, and what they were made of."""
    import numpy as np

    q = rng.normal(size=(p.N, p.d))
    found: Arrays = {"Q": q}
    for name in ("", "part"):
        k, v = rng.normal(size=(3, p.d)), rng.normal(size=(3, p.dv))
        state = state_of(q, k, v)
        lse = state["m"] + np.log(state["l"])
        found |= {f"K{name}": k, f"V{name}": v, f"O{name}": state["O"], f"LSE{name}": lse}
    return found


def gradients_example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """What a backward pass begins with, and D. Gradients of queries are 0 before."""
    found = backward_inputs(rng, p, visible)
    return {**found, "D": (found["dO"] * found["O"]).sum(axis=1)}


def dots_answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """D, from whole matrices."""
    import numpy as np

    return {"D": np.einsum("nv,nv->n", hbm["dO"], hbm["O"])}


def merge_answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """Attention to the keys of both results."""
    import numpy as np

    both = (np.concatenate([hbm[name], hbm[f"{name}part"]]) for name in "KV")
    return {"O": attention(hbm["Q"], *both)}


FIRST = Schedule(
    "flash2-first-hop",
    first_hop,
    "flash2 that keeps l and m",
    FA2,
    skips=True,
    exact_traffic=first_traffic,
    footprint=flash_footprint,
    scales=True,
    tensors=STATE,
    formula="R = N d + Nk (d + dv) Tr, W = N (dv + 2)",
    state="a tile of Q with its O, l, m on chip",
)
HOP = Schedule(
    "flash2-hop",
    later_hop,
    "flash2 whose O, l, m come from HBM and go back",
    FA2,
    skips=True,
    exact_traffic=later_traffic,
    footprint=hop_footprint,
    scales=True,
    tensors=STATE,
    initialised=("O", "l", "m"),
    family="hop",
    example=hop_example,
    answer=hop_answer,
    formula="R = N (d + dv + 2) + Nk (d + dv) Tr, W = N (dv + 2)",
    state="a tile of Q with its O, l, m on chip; O, l, m wait in HBM between hops",
)
MERGE = Schedule(
    "merge-two",
    merge_two,
    "O and LSE from two partial results",
    "Dao, Haziza, Massa and Sizov 2023, Flash-Decoding",
    exact_traffic=merge_traffic,
    footprint=merge_footprint,
    tensors={
        "O": Tensor(("N", "dv"), "state"),
        "Opart": Tensor(("N", "dv"), "output"),
        "LSEpart": Tensor(("N",), "state"),
    },
    family="hop",
    example=merge_example,
    answer=merge_answer,
    formula="R = 2 N (dv + 1), W = N (dv + 1)",
    state="a tile of O with its LSE on chip",
)
GRADIENTS = Schedule(
    "flash2-bwd-hop",
    gradients_hop,
    "the loop of flash2-bwd over the keys of one shard",
    FA2,
    skips=True,
    outer="keys",
    exact_traffic=gradients_traffic,
    footprint=gradients_footprint,
    tensors=BACKWARD_STATE,
    family="hop",
    example=gradients_example,
    answer=backward_output,
    formula="R = Nk (d + dv) + N (2 d + dv + 2) Tc, W = Nk (d + dv) + N d Tc",
    state="a tile of K, V, dK, dV on chip; dQ waits in HBM between key tiles and between hops",
)
DOTS = Schedule(
    "row-dots",
    dots_of_rows,
    "D, the row sums of dO * O",
    FA2,
    exact_traffic=dots_traffic,
    footprint=dots_footprint,
    tensors=BACKWARD_TENSORS,
    family="hop",
    example=backward_inputs,
    answer=dots_answer,
    formula="R = 2 N dv, W = N",
    state="a tile of dO and O on chip",
)


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
