"""split-kv and paged, and query heads that share a KV head: by hand, on arrays, and with planted mistakes."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_masks import random_mask
from verdicts import seen_by, wrong

import iosim
from iosim import (
    Attention,
    Flops,
    Folded,
    Machine,
    Numeric,
    Tiling,
    Traffic,
    count,
)
from iosim.masks import parse_mask
from iosim.oracles.attention import attention
from iosim.schedules import decode, find

SPLIT, PAGED, BOTH = find("split-kv"), find("paged"), find("paged-split-kv")
MASKS = ["dense", "causal", "~causal", "window:2", "global:1b|strided:3"]
sizes = st.integers(1, 40)


def three_ways(schedule, p, t, seed):
    """(machine, HBM, traffic) of a run on arrays, after all checks."""
    hbm, traffic = schedule.example(np.random.default_rng(seed), p, seen_by(p, t)), Traffic()
    assert wrong(schedule, p, t, hbm) == set()
    return Numeric(p, hbm, traffic).run(schedule, t), hbm, traffic


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, st.integers(1, 6), st.integers(1, 60), st.integers(1, 20), sizes, sizes, st.sampled_from(MASKS),
       st.integers(0, 99))  # fmt: skip
def test_split_pages_three_ways(N, Nk, d, splits, page, rows_q, rows_k, mask, seed):
    p = Attention(N, d, Nk=Nk, splits=splits, page_size=page, mask=parse_mask(mask), lse=True)
    traffic = three_ways(BOTH, p, Tiling(rows_q, rows_k), seed)[2]
    assert len(traffic.launches) == 2 and decode.page_shares(p) * decode.share_pages(p) >= decode.pages(p)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, st.integers(1, 6), st.integers(1, 6), st.integers(1, 60), sizes, sizes, st.sampled_from(MASKS),
       st.integers(0, 99))  # fmt: skip
def test_split_keys_three_ways(N, Nk, d, dv, splits, rows_q, rows_k, mask, seed):
    p = Attention(N, d, Nk=Nk, dv=dv, splits=splits, mask=parse_mask(mask), lse=True)
    t = Tiling(rows_q, rows_k)
    machine, hbm, traffic = three_ways(SPLIT, p, t, seed)
    visible = seen_by(p, t)
    shares, rows = decode.shares(p), decode.share_rows(p)
    assert len(traffic.launches) == 2 and shares <= min(splits, Nk) and shares * rows >= Nk
    s = hbm["Q"] @ hbm["K"].T / np.sqrt(d)
    s = s if visible is None else np.where(visible, s, -np.inf)
    part = machine.array("LSEpart").reshape(shares, N)
    for c in range(shares):
        keys = s[:, c * rows : (c + 1) * rows]
        assert keys.shape[1] > 0, "no share is empty"
        np.testing.assert_allclose(part[c], np.logaddexp.reduce(keys, axis=1), atol=1e-12)
    np.testing.assert_allclose(machine.array("LSE"), np.logaddexp.reduce(s, axis=1), atol=1e-12)
    assert not np.isnan(machine.array("Opart")).any() and not np.isnan(machine.array("O")).any()


@pytest.mark.parametrize("problems", [300, pytest.param(6000, marks=pytest.mark.long)])
def test_shares_and_pages_skip_what_no_row_of_a_tile_sees(problems):
    """Keys, entries of the block table and scores by looking at every pair, for tiles that begin anew in each page."""
    rng = random.Random(61)
    for _ in range(problems):
        N, Nk, page, splits = rng.randint(1, 20), rng.randint(1, 40), rng.randint(1, 14), rng.randint(1, 9)
        rows_q, rows_k, schedule = rng.randint(1, 12), rng.randint(1, 16), rng.choice([SPLIT, PAGED, BOTH])
        p = Attention(N, 1, Nk=Nk, page_size=page, splits=splits, mask=parse_mask(random_mask(rng)))
        block = -(-Nk // splits) if schedule is SPLIT else page
        visible = seen_by(p, Tiling(N, Nk))
        seen = (np.ones((N, Nk), bool) if visible is None else visible).tolist()
        keys = entries = queries = pairs = 0
        for x in range(0, N, rows_q):
            any_of = [any(row[y] for row in seen[x : x + rows_q]) for y in range(Nk)]
            rows, here = min(rows_q, N - x), 0
            for first in range(0, Nk, block):
                entries += any(any_of[first : first + block])
                for y in range(first, min(first + block, Nk), rows_k):
                    end = min(y + rows_k, first + block, Nk)
                    here += (end - y) * any(any_of[y:end])
            keys, queries, pairs = keys + here, queries + rows * any(any_of), pairs + rows * here
        watcher, flops = Traffic(), Flops()
        Folded(p, watcher, flops).run(schedule, Tiling(rows_q, rows_k))
        parts = {SPLIT: decode.shares(p), PAGED: 1, BOTH: decode.page_shares(p)}[schedule]
        assert watcher.reads["K"] == watcher.reads["V"] == keys, (schedule, p, rows_q, rows_k)
        assert watcher.reads["Q"] == parts * queries and flops.total == 4 * pairs
        assert schedule is SPLIT or watcher.reads["table"] == entries


def test_arrays_skip_like_numbers():
    rng = np.random.default_rng(6)
    N, Nk, splits, rows = (rng.integers(1, most, 60) for most in (40, 60, 9, 20))
    for mask in ("causal", "causal&window:7", "causal&(window:3|sink:2)"):
        for schedule in (SPLIT, PAGED, BOTH):
            many = Traffic()
            Folded(Attention(N, 2, Nk=Nk, splits=splits, page_size=6, mask=parse_mask(mask)), many).run(
                schedule, Tiling(rows, 4)
            )
            for k in range(60):
                one = Traffic()
                p = Attention(int(N[k]), 2, Nk=int(Nk[k]), splits=int(splits[k]), page_size=6, mask=parse_mask(mask))
                Machine(p, one).run(schedule, Tiling(int(rows[k]), 4))
                assert {
                    n: tuple(int(np.broadcast_to(x, 60)[k]) for x in moved) for n, moved in many.tensors.items()
                } == (one.tensors)


def test_a_share_that_sees_nothing_adds_nothing():
    """With a window of width 0 every query sees one key. So its other partial results are 0 with LSE = -inf."""
    p, t = Attention(8, 2, splits=4, mask=parse_mask("window:0")), Tiling(8, 8)
    machine, hbm, _ = three_ways(SPLIT, p, t, 5)
    part = machine.array("LSEpart").reshape(4, 8)
    assert np.isneginf(part).sum() == 3 * 8 and not np.isnan(part).any()
    np.testing.assert_allclose(machine.array("O"), hbm["V"], atol=1e-14)


def test_split_keys_by_hand(ask):
    """One query, T = 8192, d = 128, 32 heads, 4 shares: kernel 1 reads Q 4 times, K and V once and writes 4 x (128 + 1)
    words of fp32 a head; kernel 2 reads these and writes O in fp16."""
    args = ["--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--tiles", "1x64", "--acc-dtype", "fp32"]
    result = ask("count", *args, "--schedule", "split-kv")["results"][0]
    first = {"reads": 32 * (4 * 128 + 2 * 8192 * 128), "writes": 32 * 4 * 129}
    assert result["steps"] == [first, {"reads": 32 * 4 * 129, "writes": 32 * 128}]
    assert result["read_bytes"] == 2 * first["reads"] + 4 * 32 * 4 * 129
    assert result["write_bytes"] == 4 * 32 * 4 * 129 + 2 * 32 * 128
    one = ask("count", *args, "--schedule", "split-kv", "--splits", 1)["results"][0]
    flash = ask("count", *args, "--schedule", "flash2")["results"][0]
    assert one["total"] - flash["total"] == 32 * 2 * 129, "one share still goes through HBM"


@pytest.mark.parametrize("Nk, splits, shares", [(10, 4, 4), (9, 6, 5), (3, 8, 3), (1, 4, 1), (12, 5, 4), (8, 1, 1)])
def test_shares_are_ceil_and_never_empty(Nk, splits, shares):
    assert decode.shares(Attention(1, 2, Nk=Nk, splits=splits)) == shares


@settings(max_examples=80, deadline=None)
@given(sizes, st.integers(1, 70), st.integers(1, 6), st.integers(1, 6), st.integers(1, 33), sizes, sizes,
       st.sampled_from(MASKS), st.integers(0, 99))  # fmt: skip
def test_pages_three_ways(N, Nk, d, dv, page_size, rows_q, rows_k, mask, seed):
    """The pages lie in random order, and rows without a key are NaN."""
    p = Attention(N, d, Nk=Nk, dv=dv, page_size=page_size, mask=parse_mask(mask))
    machine, hbm, traffic = three_ways(PAGED, p, Tiling(rows_q, rows_k), seed)
    assert mask != "dense" or traffic.reads["table"] == -(-Nk // page_size) * -(-N // rows_q)
    assert np.isnan(hbm["K"]).sum() == (decode.cache_rows(p) - Nk) * d and not np.isnan(machine.array("O")).any()


def test_pages_by_hand(ask):
    """T = 8191, d = 128, 8 heads, fp16: 512 entries of 4 bytes a head; the last page holds 15 keys."""
    args = ["--N", 1, "--Nk", 8191, "--d", 128, "--heads", 8, "--tiles", "1x16", "--schedule", "paged"]
    result = ask("count", *args)["results"][0]
    assert result["tensors"]["table"] == {"reads": 8 * 512, "writes": 0}
    assert result["tensors"]["K"] == {"reads": 8 * 8191 * 128, "writes": 0}
    assert result["read_bytes"] == 8 * (2 * 128 + 2 * 2 * 8191 * 128 + 4 * 512)
    assert result["sram_peak_bytes"] == 2 * (17 * 2 * 128 + 16 + 2) + 4
    wide = ask("count", *args, "--page-size", 256)["results"][0]
    assert wide["tensors"]["table"]["reads"] == 8 * 32 and wide["tensors"]["K"] == result["tensors"]["K"]


# ---------------------------------------------------------------- heads that share K and V


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), sizes, st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20),
       st.sampled_from(["flash1", "flash2", "split-kv", "memory-efficient", "standard-tiled"]))  # fmt: skip
def test_packed_heads_compute_the_same(N, Nk, group, kv_heads, rows_q, rows_k, name):
    """Head h reads KV head h // g. With pack the g heads of a group are one head of N g queries."""
    rng, d, heads = np.random.default_rng(N), 4, group * kv_heads
    p = Attention(N, d, Nk=Nk, heads=heads, kv_heads=kv_heads, gqa="pack")
    q, k, v = (rng.normal(size=(n, m, d)) for n, m in ((heads, N), (kv_heads, Nk), (kv_heads, Nk)))
    assert (p.packed.N, p.packed.heads, p.packed.instances) == (N * group, kv_heads, kv_heads)
    for kv in range(kv_heads):
        hbm = {"Q": q[kv * group : (kv + 1) * group].reshape(-1, d), "K": k[kv], "V": v[kv]}
        packed = Numeric(p.packed, hbm).run(find(name), Tiling(rows_q, rows_k)).array("O").reshape(group, N, d)
        for h in range(group):
            np.testing.assert_allclose(packed[h], attention(q[kv * group + h], k[kv], v[kv]), atol=1e-12)


DECODE = ["--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--tiles", "32x64", "--schedule", "flash2"]


@pytest.mark.parametrize("kv_heads, MiB", [(32, 128), (8, 32), (1, 4)])
def test_bytes_of_keys_and_values_in_decoding(kv_heads, MiB, ask):
    result = ask("count", *DECODE, "--kv-heads", kv_heads, "--gqa", "pack")["results"][0]
    assert 2 * sum(result["tensors"][x]["reads"] for x in "KV") == MiB * 2**20
    repeated = ask("count", *DECODE, "--kv-heads", kv_heads, "--gqa", "repeat")["results"][0]
    assert repeated == ask("count", *DECODE, "--kv-heads", kv_heads)["results"][0]
    assert 2 * sum(repeated["tensors"][x]["reads"] for x in "KV") == 128 * 2**20


def test_packing_changes_traffic_only(ask):
    packed = ask("count", *DECODE, "--kv-heads", 4, "--gqa", "pack", "--M", "100KB")
    repeated = ask("count", *DECODE, "--kv-heads", 4, "--M", "100KB")
    assert {**packed["problem"], "gqa": "repeat"} == repeated["problem"]
    assert (packed["problem"]["N"], packed["problem"]["heads"], packed["problem"]["gqa"]) == (1, 32, "pack")
    a, b = packed["results"][0], repeated["results"][0]
    assert a["flops"] == b["flops"] and packed["bounds"][0] == repeated["bounds"][0]
    assert a["total"] / a["ratio_to_standard"] == pytest.approx(b["total"] / b["ratio_to_standard"], rel=1e-15)
    assert a["total"] / a["ratio_to_order"] == pytest.approx(b["total"] / b["ratio_to_order"], rel=1e-15)


def test_one_causal_query_packs_like_a_dense_one(ask):
    args = [*DECODE, "--kv-heads", 8, "--gqa", "pack"]
    assert ask("count", *args, "--mask", "causal")["results"] == ask("count", *args)["results"]


@pytest.mark.parametrize(("name", "most"), [("paged", 16), ("paged-split-kv", 16), ("split-kv", 2256)])
def test_the_best_key_tile_is_no_longer_than_a_page_or_a_share(name, most):
    """In multiples of 16. A share is a quarter of 9,000 keys, which is 2,250."""
    for N in (1, 512):
        row = count(N, 128, Nk=9000, M="8MB", tile_multiple=16, schedules=name)[name]
        assert row.Bc == most, row
        longer = count(N, 128, Nk=9000, M="8MB", tile_multiple=16, schedules=name, tiles=f"{row.Br}x9008")[name]
        assert (row.total, row.sram_peak_bytes) == (longer.total, longer.sram_peak_bytes)


def test_every_share_reads_a_query_tile_that_sees_any_key():
    """16 keys in 4 shares, of which the first alone has the only key that is seen (docs/masks.md)."""
    options = {"Nk": 16, "mask": "sink:1", "tiles": "300x3"}
    read = {name: iosim.count(16, 8, schedules=name, splits=5, **options)[name].tensors["Q"]["reads"]
            for name in ("split-kv", "flash2")}  # fmt: skip
    assert read == {"split-kv": 4 * 16 * 8, "flash2": 16 * 8}
