"""Pairs of sizes under a mask: one walk over tiles of many sizes, and the best at one M counted in parts."""

import random

import numpy as np
import pytest
from random_masks import random_mask

from iosim import SCHEDULES, Attention, Tiling
from iosim.counting.run import measure
from iosim.masks import parse_mask
from iosim.masks.reach import needed, reaches_of_sizes
from iosim.search import best as best_module
from iosim.search.best import best_tiles, footprint, moved_bytes

MEMORY_EFFICIENT = SCHEDULES["memory-efficient"]


def masked(rng, most):
    """A random problem of memory-efficient under a mask, and a multiple."""
    types = {"dtype": rng.choice(["fp8", "fp16"]), "acc_dtype": rng.choice(["fp16", "fp32"])}
    mask = parse_mask(rng.choice(["causal", "window:5", random_mask(rng)]))
    mask = parse_mask("causal") if str(mask) == "dense" else mask
    d, wide = rng.randint(1, 9), rng.choice([1, 1, 2**40])
    sizes = rng.randint(1, most), d * wide
    p = Attention(*sizes, Nk=rng.randint(1, most), mask=mask, keep_p=rng.random() < 0.4, **types)
    return p, rng.choice([1, 1, 2, 3, 60])


@pytest.mark.parametrize("at_once", [1, 50, 2**18])
def test_the_best_at_one_m_is_counted_in_parts(at_once, monkeypatch):
    """It has the fewest rows of those of least cost, and the most columns beside them."""
    monkeypatch.setattr(best_module, "AT_ONCE", at_once)
    rng = random.Random(at_once)
    for _ in range(12):
        p, multiple = masked(rng, 14)
        sides = [range(multiple, n + multiple, multiple) for n in (p.N, p.Nk)]
        needs = {(q, k): footprint(MEMORY_EFFICIENT, p, Tiling(q, k)).smem_bytes for q in sides[0] for k in sides[1]}
        M = rng.choice([*needs.values()]) - rng.choice([0, 0, 1])
        fits = {pair: moved_bytes(MEMORY_EFFICIENT, p, Tiling(*pair)) for pair, need in needs.items() if need <= M}
        best = best_tiles(MEMORY_EFFICIENT, p, M, multiple) if M else None
        assert (best is None) == (not fits)
        if best is not None:
            assert best.rows_q == min(q for (q, _), moved in fits.items() if moved == min(fits.values()))
            assert best.rows_k == max(k for q, k in fits if q == best.rows_q)


@pytest.mark.parametrize("seed", range(40))
def test_tiles_of_many_sizes_reach_as_far_as_those_of_each(seed):
    p, multiple = masked(random.Random(seed), 60)
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
        p, _ = masked(rng, 40)
        if kind == "int64" and p.d > 2**30:
            continue
        tilings = [Tiling(rng.randint(1, p.N + 2), rng.randint(1, p.Nk + 2)) for _ in range(7)]
        arrays = Tiling(*(np.array([getattr(t, name) for t in tilings], kind) for name in ("rows_q", "rows_k")))
        together = measure(MEMORY_EFFICIENT, p, arrays)
        for name in ("reads", "writes", "total_bytes", "flops", "smem_peak_bytes"):
            alone = [measure(MEMORY_EFFICIENT, p, tiling)[name] for tiling in tilings]
            assert np.broadcast_to(together[name], 7).tolist() == alone, name
