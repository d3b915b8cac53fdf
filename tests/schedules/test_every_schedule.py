"""Three proofs of each schedule: numerics, the formula by hand, capacity; and folded == unrolled == numeric."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import wrong

from iosim import SCHEDULES, Attention, Capacity, Folded, Tiling, Traffic
from iosim.core.problem import DENSE
from iosim.masks import parse_mask

MASKS = ["dense", "causal", "window:3", "window:1b", "global:2|strided:5", "causal:b&~window:2", "~causal",
         "causal&(chunk:7|sink:2)"]  # fmt: skip
BY_WORDS = ["standard", "standard-bwd", "standard-square", "matmul-naive"]  # their tiles are words, so there are many
sizes = st.integers(1, 24)


@settings(max_examples=60, deadline=None)
@given(
    N=sizes, Nk=sizes, d=st.integers(1, 9), rows_q=st.integers(1, 28), rows_k=st.integers(1, 28),
    mask=st.sampled_from(MASKS), lse=st.booleans(), keep_p=st.booleans(), elementwise=st.integers(0, 2),
    visit_all=st.booleans(), name=st.sampled_from(list(SCHEDULES)), seed=st.integers(0, 99),
)  # fmt: skip
def test_three_ways_at_random(N, Nk, d, rows_q, rows_k, mask, lse, keep_p, elementwise, visit_all, name, seed):
    compare_three_ways(N, Nk, d, rows_q, rows_k, mask, lse, keep_p, elementwise, visit_all, name, seed)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_three_ways(name, mask):
    """Every schedule under every mask, each with other sizes. Two masks meet each pair of options."""
    three_ways_of(name, mask, [(MASKS.index(mask) + list(SCHEDULES).index(name)) % 4])


@pytest.mark.long
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_three_ways_with_each_pair_of_options(name, mask):
    three_ways_of(name, mask, range(4))


def three_ways_of(name, mask, seeds):
    rng = random.Random(name + mask)
    most = 12 if name in BY_WORDS else 30
    for seed, visit_all in product(seeds, (False, True) if SCHEDULES[name].reads("visit_all") else (False,)):
        N, Nk, rows_q, rows_k = (rng.randint(1, most) for _ in range(4))
        options = bool(seed % 2), seed > 1, seed % 3, visit_all
        compare_three_ways(N, Nk, rng.randint(1, 7), rows_q, rows_k, mask, *options, name, seed)


def compare_three_ways(N, Nk, d, rows_q, rows_k, mask, lse, keep_p, elementwise, visit_all, name, seed):
    schedule, tiling = SCHEDULES[name], Tiling(rows_q, rows_k)
    options = {"lse": lse, "keep_p": keep_p, "elementwise": elementwise, "visit_all": visit_all}
    p = schedule.about(Attention(N, d, Nk=Nk, mask=parse_mask(mask), **options))
    assert wrong(schedule, p, tiling, seed=seed) == set()


@pytest.mark.parametrize("mask", [*MASKS, "documents:9,8,13&causal", "window:3&causal", "file:tiles"])
@pytest.mark.parametrize("name", ["flash2", "block-sparse-q"])
def test_three_ways_with_the_short_tile_first(name, mask, tmp_path):
    """Many sizes, with fewer and with more queries than keys. Masks of tiles show the same pairs as with the short tile
    last."""
    rng = random.Random(name + mask)
    for _ in range(12):
        N, Nk, rows_q, rows_k = (rng.randint(1, 30) for _ in range(4))
        N, Nk = (min(N, 30), 30) if "documents" in mask else (N, Nk)
        if mask == "file:tiles":
            shape = -(-N // rows_q), -(-Nk // rows_k)
            np.savetxt(tmp_path / "tiles.txt", np.random.default_rng(N).integers(0, 2, shape), fmt="%d")
        options = {"lse": rng.random() < 0.5, "visit_all": rng.random() < 0.2 and name == "flash2"}
        where = parse_mask(mask.replace("file:tiles", f"file:{tmp_path / 'tiles.txt'}"))
        p = Attention(N, rng.randint(1, 7), Nk=Nk, mask=where, short_tile="first", **options)
        assert wrong(SCHEDULES[name], p, Tiling(rows_q, rows_k)) == set(), p


PAGES, SCALED, BLOCKS = (
    {"splits": 3, "page_size": 4},
    {"latent": True, "dv": 2, "kv_scales": "4", "kv_dtype": "fp8"},
    {"key_block": 8, "top_k": 3},
)
WITH_OPTIONS = [("paged-split-kv", PAGES), ("flash2", SCALED), ("flash2", {"short_tile": "first"}), ("block-sparse-q", SCALED), ("paged", SCALED), ("selected", BLOCKS),
                ("selected-keys-outside", BLOCKS), ("indexer", {"top_k": 3}), ("cache-write", {"kv_scales": "4"})]  # fmt: skip


@pytest.mark.parametrize("name, options", [*((name, {}) for name in SCHEDULES), *WITH_OPTIONS], ids=str)
def test_arrays_count_like_numbers(name, options):
    schedule, rng = SCHEDULES[name], np.random.default_rng(3)
    N, Nk, rows_q, rows_k = (rng.integers(1, 200, 500) for _ in range(4))
    d = rng.integers(options.get("dv", 0) + 1, 70, 500)
    if "key_block" in options:
        Nk = 8 * rng.integers(3, 30, 500)
    if name == "cache-write":
        Nk = 200
    if name == "indexer":
        Nk += 2

    def about(N, d, Nk):
        return replace(schedule.about(Attention(N, d, Nk=Nk, acc_dtype="fp32", **options)), mask=DENSE)

    many, room = Traffic(), Capacity()
    Folded(about(N, d, Nk), many, room).run(schedule, Tiling(rows_q, rows_k))
    for k in range(0, 500, 7):
        one, one_room = Traffic(), Capacity()
        p = about(*(int(np.broadcast_to(size, 500)[k]) for size in (N, d, Nk)))
        Folded(p, one, one_room).run(schedule, Tiling(int(rows_q[k]), int(rows_k[k])))
        found = {t: tuple(int(np.broadcast_to(x, 500)[k]) for x in words) for t, words in many.tensors.items()}
        assert found == {t: tuple(map(int, words)) for t, words in one.tensors.items()}
        peaks = [int(np.broadcast_to(peak, 500)[k]) for peak in (room.peak_words, room.peak_bytes)]
        assert peaks == [one_room.peak_words, one_room.peak_bytes]


def test_counts_are_exact_at_any_size():
    """Sizes are N = 2^24, d = 256, 1024 heads, tiles 128x64. R = Nd + 2 N d Tr with Tr = 2^17, in bytes of fp16."""
    import iosim

    result = iosim.count(N=2**24, d=256, heads=1024, tiles="128x64", schedules=["flash2"])["flash2"]
    assert result.read_bytes == 2 * 1024 * (2**24 * 256 + 2 * 2**24 * 256 * 2**17)
    assert result.write_bytes == 2 * 1024 * 2**24 * 256
    assert type(result.read_bytes) is int
