"""Words that matrix units read from shared memory: folded = visited = by hand, and what a counter of an H200 saw."""

import csv
import random
import sys
from math import ceil
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT
from random_masks import random_mask

from iosim import SCHEDULES, Attention, Machine, Tiling
from iosim.core.folded import Folded
from iosim.core.problem import as_moved
from iosim.core.tiling import parse_tiles
from iosim.errors import InputError
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find, require
from iosim.timing.products import CUDA_CORES, UNITS, MatrixUnit, SharedReads, unit_of

SEEN = list(csv.DictReader((ROOT / "tests" / "data" / "shared_reads.csv").open()))
SMALL = {**{name: unit._replace(rows=unit.rows and 4, width=unit.width and 6) for name, unit in UNITS.items()}}
UNIT_NAMES = [*SMALL, "cuda cores"]


def unit(name):
    """A unit with so few rows and columns that small tiles have several."""
    return SMALL.get(name, CUDA_CORES)


def read(machine, schedule, p, tiling, unit):
    watcher = SharedReads(unit)
    machine(as_moved(schedule, p), watcher).run(schedule, tiling)
    return int(watcher.total)


def some_problem(rng, schedule):
    N, Nk, d, dv = (rng.randint(1, 14) for _ in range(4))
    masked = "dense" if rng.random() < 0.4 else random_mask(rng)
    p = Attention(N, d, Nk=Nk, dv=dv, mask=parse_mask(masked))
    try:
        require(schedule, p)
    except InputError:
        p = Attention(N, d)
    if schedule.family == "selected":  # it chooses whole blocks of 64 keys
        p = Attention(64, 2)
    return p, Tiling(rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 5), rng.randint(1, 5))


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n not in ("standard", "standard-bwd")])
def test_folded_is_visited(name):
    rng, schedule = random.Random(name), find(name)
    seen = 0
    for _ in range(8):
        p, tiling = some_problem(rng, schedule)
        kind = unit(rng.choice(UNIT_NAMES))
        found = read(Folded, schedule, p, tiling, kind)
        assert found == read(Machine, schedule, p, tiling, kind), (p, tiling, kind)
        seen += found > 0
    assert seen or not any(word in name for word in ("flash", "standard", "attention", "matmul"))


# ---------------------------------------------------------------- by hand: each product of a tile, from the papers


def tiles_of(length, size):
    return [(start, min(size, length - start)) for start in range(0, length, size)]


def pairs(p, t, visible, order):
    """The pairs of tiles that a schedule visits: (first query, queries, first key, keys)."""
    of_q, of_k = tiles_of(p.N, t.rows_q), tiles_of(p.Nk, t.rows_k)
    every = [(i, j) for i in of_q for j in of_k] if order == "queries" else [(i, j) for j in of_k for i in of_q]
    return [(i, j) for i, j in every if visible[i[0] : sum(i), j[0] : sum(j)].any()]


def of_product(kind: MatrixUnit, m, n, k, loaded):
    """The words of one product. `loaded`: its first factor came from HBM."""
    second = (1 if kind.rows is None else ceil(m / kind.rows)) * n * k
    widths = 1 if kind.width is None else ceil(n / kind.width)
    return second + (widths * m * k if (loaded or kind.always) and not kind.held else 0)


def by_hand(p, t, kind, visible, order, products, first):
    """The words of all products of the pairs; `first` is the width of the first factor that the loads of a tile bring,
    which a unit that holds it reads once for each load."""
    found = sum(
        of_product(kind, *product) for i, j in pairs(p, t, visible, order) for product in products(p, i[1], j[1])
    )
    loads = pairs(p, t, visible, order)
    loaded = {i for i, _ in loads} if order == "queries" else loads
    return found + (sum((x[0][1] if order == "keys" else x[1]) * first for x in loaded) if kind.held else 0)


FORWARD = lambda p, m, n: [(m, n, p.d, True), (m, p.dv, n, False)]  # noqa: E731  # S = Q K^T, O += P V
BACKWARD = lambda p, m, n: [  # noqa: E731  # S, dP = dO V^T, dV += P^T dO, dQ += dS K, dK += dS^T Q
    (m, n, p.d, True), (m, n, p.dv, True), (n, p.dv, m, False), (m, p.d, n, False), (n, p.d, m, False)
]  # fmt: skip
HAND = {
    "flash1": ("keys", FORWARD, lambda p: p.d),
    "flash2": ("queries", FORWARD, lambda p: p.d),
    "flash1-bwd": ("keys", BACKWARD, lambda p: p.d + p.dv),
    "flash2-bwd": ("keys", BACKWARD, lambda p: p.d + p.dv),
}


@pytest.mark.parametrize("name", HAND)
def test_by_hand(name):
    rng, schedule, (order, products, first) = random.Random(name), find(name), HAND[name]
    for _ in range(40):
        N, Nk, d, dv = (rng.randint(1, 40) for _ in range(4))
        mask = rng.choice(["dense", "causal", "window:3"])
        p = Attention(N, d, Nk=Nk if mask == "dense" else N, dv=dv, mask=parse_mask(mask))
        t, kind = Tiling(rng.randint(1, 17), rng.randint(1, 17)), unit(rng.choice(UNIT_NAMES))
        moved = as_moved(schedule, p)
        rows, keys = np.arange(N)[:, None], np.arange(p.Nk)
        masked = str(moved.mask)
        visible = {"dense": keys >= 0, "causal": keys <= rows, "window:3": abs(keys - rows) <= 3}[masked] | (rows < 0)
        assert read(Folded, schedule, p, t, kind) == by_hand(p, t, kind, visible, order, products, first(p)), (p, t)


def test_standard_reads_its_probabilities_from_shared_memory():
    """P comes from HBM, so it is not in registers."""
    p, t = Attention(128, 16), Tiling(64, 32)
    scores, output = 2 * (128 * 16 + 4 * 64 * 16), 2 * (4 * (32 * 16 + 64 * 32))
    assert read(Folded, find("standard-tiled"), p, t, UNITS["wgmma"]) == scores + output


def test_arrays_count_as_numbers():
    sizes = [(64, 16, 24, 8), (100, 8, 16, 16), (7, 5, 3, 2)]
    N, d, Br, Bc = (np.array(column) for column in zip(*sizes, strict=True))
    watcher = SharedReads(MatrixUnit(4, 6))
    Folded(Attention(N, d), watcher).run(find("flash2"), Tiling(Br, Bc))
    alone = [read(Machine, find("flash2"), Attention(a, b), Tiling(x, y), MatrixUnit(4, 6)) for a, b, x, y in sizes]
    assert watcher.total.tolist() == alone


# ---------------------------------------------------------------- on hardware


@pytest.mark.parametrize("row", SEEN, ids=lambda row: f"{row['run']}-{row['d']}-{row['tiles']}")
def test_what_the_loop_reads_is_what_a_counter_saw(row):
    """Plain Triton kernels on an H200. The rest is of prologue and epilogue: whole quarters of the size of Q, at most 11,
    whatever the number of keys of a tile is. Two kernels of 16 keys at d = 64 exchange P between warps as well."""
    p = Attention(int(row["N"]), int(row["d"]), heads=int(row["heads"]))
    tiling, unit = parse_tiles(row["tiles"]), unit_of(load(row["gpu"]), row["dtype"])
    counted = read(Folded, find("flash2"), p, tiling, unit) * p.heads * 2 // 4
    of_q = p.N * p.d * p.heads * 2 // 4
    rest = (int(row["counter_words"]) - counted) / of_q
    if p.d == 64 and tiling.rows_k == 16:
        assert rest > 7
    else:
        assert 3 < rest <= 11 and (4 * rest) % 1 == 0


def test_the_rules_of_units():
    h100, a100 = load("h100"), load("a100-80gb")
    assert unit_of(h100, "fp16") == UNITS["wgmma"] and unit_of(None, "bf16") == UNITS["wgmma"]
    assert unit_of(a100, "fp16") == UNITS["mma.sync"]._replace(rows=32) and unit_of(h100, "fp32") == CUDA_CORES
    assert unit_of(load("b200"), "fp16").rows == 128
