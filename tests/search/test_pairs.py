"""Two tile sizes that share the SRAM: the best at one M and at every M, against all pairs of sizes."""

import random
from itertools import product

import numpy as np
import pytest
from random_masks import random_mask

from iosim import SCHEDULES, Attention, Tiling
from iosim.counting.count import measure
from iosim.masks import parse_mask
from iosim.masks.reach import needed, reaches_of_sizes
from iosim.search import pairs
from iosim.search.best import best_tiles
from iosim.search.pairs import Pair, SeenCost, cheaper, least_passes, seen_falls, sizes_by_passes

MEMORY_EFFICIENT = SCHEDULES["memory-efficient"]


def test_one_tile_for_each_number_of_passes():
    for length, multiple in product((1, 2, 7, 30, 64, 97), (1, 2, 3, 16)):
        passes = [-(-length // size) for size in sizes_by_passes(length, multiple)]
        every = {-(-length // size) for size in range(multiple, length + multiple, multiple)}
        assert passes == sorted(every, reverse=True)


def test_any_cost_and_room_against_every_pair():
    """Costs favour rows, columns or neither, and the room has any shape and one or two phases."""
    rng = random.Random(7)
    for _ in range(300):
        rows_axis, columns_axis, multiple = rng.randint(1, 30), rng.randint(1, 30), rng.choice([1, 2, 3, 5])
        x, y, u, v, w, M = (rng.choice([0, 1, 3, 10]) for _ in range(6))
        M = M * rng.randint(1, 100)
        phases = rng.choice([[(u, v + 1, w)], [(u, v + 1, w), (0, 0, u + w)], [(u, v + 1, w), (w, u, v)]])
        pair = Pair(
            rows_axis,
            columns_axis,
            room=lambda r, phases=phases: [(r * a + b, r * c) for a, b, c in phases],
            cost=lambda columns, rows, area, x=x, y=y: x * columns + y * rows,
            others=rng.choice([(), ("depth",)]),
        )
        space = {}
        for rows in range(multiple, rows_axis + multiple, multiple):
            for columns in range(multiple, columns_axis + multiple, multiple):
                needed = [each * min(columns, columns_axis) + more for each, more in pair.room(min(rows, rows_axis))]
                assert pair.needed(rows, columns) == max(needed)
                if max(needed) <= M:
                    space[rows, columns] = pair.passes_cost(-(-rows_axis // rows), -(-columns_axis // columns))
        found = least_passes(pair, M, multiple)
        assert (found is None) == (not space)
        if found:
            assert space[found] == min(space.values())
            assert pair.others or found[1] == max(columns for rows, columns in space if rows == found[0])


# ---------------------------------------------------------------- under a mask


def masked(rng, most):
    """A random problem of memory-efficient under a mask, its pair of sizes, and a multiple."""
    types = {"dtype": rng.choice(["fp8", "fp16"]), "acc_dtype": rng.choice(["fp16", "fp32"])}
    mask = parse_mask(rng.choice(["causal", "window:5", random_mask(rng)]))
    if str(mask) == "dense":
        mask = parse_mask("causal")
    d, wide = rng.randint(1, 9), rng.choice([1, 1, 2**40])
    p = Attention(
        rng.randint(1, most), d * wide, Nk=rng.randint(1, most), mask=mask, keep_p=rng.random() < 0.4, **types
    )
    multiple = rng.choice([1, 1, 2, 3, 60])
    (pair,) = MEMORY_EFFICIENT.candidates.of(p, multiple)
    return p, pair, multiple


def every_pair(p, pair, multiple):
    """(M, cost, rows, columns) of all pairs of sizes, as arrays; those of few columns come first."""
    rows, columns = (np.arange(multiple, n + multiple, multiple).astype(object) for n in (p.N, p.Nk))
    n, columns = np.tile(np.arange(len(rows)), len(columns)), np.repeat(columns, len(rows))
    return pair.needed(rows[n], columns), SeenCost(pair, p, rows)(n, columns), rows[n], columns


@pytest.mark.parametrize("seed", range(60))
def test_halved_ranges_leave_out_no_pair_that_is_best(seed):
    """Also where several pairs are equally good: the one with the fewest columns is taken."""
    p, pair, multiple = masked(random.Random(seed), 40)
    M, cost, rows, columns = every_pair(p, pair, multiple)
    kept = cheaper(M, cost)
    found = seen_falls(pair, p, multiple)
    assert [sizes.tolist() for sizes in found] == [rows[kept].tolist(), columns[kept].tolist()]


@pytest.mark.parametrize("at_once", [1, 50, 2**18])
def test_the_best_at_one_m_is_counted_in_parts(at_once, monkeypatch):
    """It has the fewest rows of those of least cost, and the most columns beside them."""
    monkeypatch.setattr(pairs, "AT_ONCE", at_once)
    monkeypatch.setattr(pairs, "SEEN_AT_ONCE", at_once)
    rng = random.Random(at_once)
    for _ in range(25):
        p, pair, multiple = masked(rng, 25)
        M, cost, rows, columns = every_pair(p, pair, multiple)
        most = rng.choice(M.tolist()) - rng.choice([0, 0, 1])
        fits = np.flatnonzero((most >= M).astype(bool))
        best = best_tiles(MEMORY_EFFICIENT, p, most, multiple) if most else None
        assert (best is None) == (len(fits) == 0)
        if best is not None:
            least = [k for k in fits if cost[k] == min(cost[fits])]
            assert best.rows_q == min(rows[least])
            assert best.rows_k == max(columns[k] for k in fits if rows[k] == best.rows_q)


@pytest.mark.parametrize("seed", range(40))
def test_tiles_of_many_sizes_reach_as_far_as_those_of_each(seed):
    p, _, multiple = masked(random.Random(seed), 60)
    sizes = np.array(random.Random(seed).choices(range(1, p.N + multiple), k=9))
    found = reaches_of_sizes(p.tiled(Tiling(1, 1)).mask, sizes)
    for k, size in enumerate(sizes.tolist()):
        own = found.owners == k
        told = list(zip(found.heights[own].tolist(), found.keys[own].tolist(), strict=True))
        assert told == needed(p.tiled(Tiling(1, 1)).mask, size, cut=False)


@pytest.mark.parametrize("kind", ["int64", object])
def test_one_walk_counts_query_tiles_of_many_sizes_under_a_mask(kind):
    """Each counts as it does by itself."""
    rng = random.Random(str(kind))
    for _ in range(15):
        p, _, _ = masked(rng, 40)
        if kind == "int64" and p.d > 2**30:
            continue
        tilings = [Tiling(rng.randint(1, p.N + 2), rng.randint(1, p.Nk + 2)) for _ in range(7)]
        arrays = Tiling(*(np.array([getattr(t, name) for t in tilings], kind) for name in ("rows_q", "rows_k")))
        together = measure(MEMORY_EFFICIENT, p, arrays)
        for name in ("reads", "writes", "total_bytes", "flops", "smem_peak_bytes"):
            alone = [measure(MEMORY_EFFICIENT, p, tiling)[name] for tiling in tilings]
            assert np.broadcast_to(together[name], 7).tolist() == alone, name
