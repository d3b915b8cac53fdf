"""split-kv and paged, and query heads that share a KV head: by hand, on arrays, and with planted mistakes."""

import inspect
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import DATA

from iosim import (
    Attention,
    Capacity,
    Flops,
    Folded,
    Machine,
    Numeric,
    Tiling,
    Traffic,
    count,
)
from iosim.core.problem import DENSE
from iosim.core.shapes import Tile
from iosim.core.watchers import same_counts
from iosim.errors import ScheduleError
from iosim.masks import parse_mask
from iosim.oracles.attention import attention
from iosim.schedules import decode, find
from iosim.search.best import footprint

LATER = "from __future__ import annotations\n"  # the types in a schedule are not looked up when it runs
SPLIT, PAGED, BOTH = find("split-kv"), find("paged"), find("paged-split-kv")
MASKS = ["dense", "causal", "~causal", "window:2", "global:1b|strided:3"]
sizes = st.integers(1, 40)


def seen_by(p, t):
    return None if p.mask is DENSE else p.mask.bind(p, t).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()


def three_ways(schedule, p, t, seed):
    """Run a schedule on arrays, unrolled and folded. Compare the runs with each other, with the formulas by hand and
    with softmax in float64."""
    visible, traffics, room = seen_by(p, t), [Traffic() for _ in range(3)], Capacity()
    flops = [Flops() for _ in range(3)]
    hbm = schedule.example(np.random.default_rng(seed), p, visible)
    machine = Numeric(p, hbm, traffics[0], flops[0], room).run(schedule, t)
    Machine(p, traffics[1], flops[1]).run(schedule, t)
    Folded(p, traffics[2], flops[2]).run(schedule, t)
    for tensor, array in schedule.answer(hbm, p, visible).items():
        np.testing.assert_allclose(machine.array(tensor), array, atol=1e-12)
    assert traffics[0].tensors == traffics[1].tensors == traffics[2].tensors
    assert traffics[0].steps == traffics[1].steps == traffics[2].steps
    assert {f.total for f in flops} == {2 * p.N * p.Nk * (p.d + p.dv)}
    assert same_counts(schedule.exact_traffic(p, t), traffics[2].tensors)
    assert footprint(schedule, p, t).peak_words == schedule.footprint(p, t) >= room.peak_words
    return machine, hbm, visible, traffics[2]


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, st.integers(1, 6), st.integers(1, 60), st.integers(1, 20), sizes, sizes, st.sampled_from(MASKS),
       st.integers(0, 99))  # fmt: skip
def test_split_pages_three_ways(N, Nk, d, splits, page, rows_q, rows_k, mask, seed):
    p = Attention(N, d, Nk=Nk, splits=splits, page_size=page, mask=parse_mask(mask), lse=True)
    traffic = three_ways(BOTH, p, Tiling(rows_q, rows_k), seed)[3]
    assert len(traffic.launches) == 2 and decode.page_shares(p) * decode.share_pages(p) >= decode.pages(p)


def test_split_pages_count_arrays_like_numbers():
    rng = np.random.default_rng(4)
    N, Nk, rows = (rng.integers(1, 90, 300) for _ in range(3))
    many = Traffic()
    Folded(Attention(N, 8, Nk=Nk, splits=3, page_size=4), many).run(BOTH, Tiling(rows, 3))
    for k in range(0, 300, 5):
        one = Traffic()
        p = Attention(int(N[k]), 8, Nk=int(Nk[k]), splits=3, page_size=4)
        Machine(p, one).run(BOTH, Tiling(int(rows[k]), 3))
        assert {name: (np.broadcast_to(r, 300)[k], np.broadcast_to(w, 300)[k]) for name, (r, w) in
                many.tensors.items()} == one.tensors  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, st.integers(1, 6), st.integers(1, 6), st.integers(1, 60), sizes, sizes, st.sampled_from(MASKS),
       st.integers(0, 99))  # fmt: skip
def test_split_keys_three_ways(N, Nk, d, dv, splits, rows_q, rows_k, mask, seed):
    p = Attention(N, d, Nk=Nk, dv=dv, splits=splits, mask=parse_mask(mask), lse=True)
    t = Tiling(rows_q, rows_k)
    machine, hbm, visible, traffic = three_ways(SPLIT, p, t, seed)
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


def test_a_share_that_sees_nothing_adds_nothing():
    """With a window of width 0 every query sees one key. So its other partial results are 0 with LSE = -inf."""
    p, t = Attention(8, 2, splits=4, mask=parse_mask("window:0")), Tiling(8, 8)
    machine, hbm, _, _ = three_ways(SPLIT, p, t, 5)
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
    machine, hbm, _, traffic = three_ways(PAGED, p, Tiling(rows_q, rows_k), seed)
    assert traffic.reads["table"] == -(-Nk // page_size) * -(-N // rows_q)
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


@pytest.mark.parametrize(
    "bad",
    [
        ["--splits", "0"], ["--splits", "-1"], ["--splits", "two"], ["--splits", "1.5"], ["--page-size", "0"],
        ["--page-size", "nan"], ["--gqa", "packed"], ["--gqa", "pack", "--mask", "window:3"],
        ["--gqa", "pack", "--mask", "causal"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["count", "verify", "sweep"])
def test_bad_input(command, bad, iosim):
    result = iosim(command, "--N", 8, "--d", 4, "--tiles", "4x4", *bad)
    assert result.exit_code == 2 and bad[0] in result.stderr and result.stdout == ""


BLOCKS = [
    pytest.param(*block, id=f"{page.stem}-{k}")
    for page in sorted((DATA.parent.parent / "docs" / "schedules").glob("*.md"))
    for k, block in enumerate(re.findall(r"```console\n\$ iosim (.*?)\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("command, shown", BLOCKS)
def test_the_docs_show_what_is_printed(command, shown, iosim):
    """Every line of the pages is in the answer, in the same order. A page may leave out lines."""
    printed = iter(iosim(*shlex.split(command)).stdout.splitlines())
    assert all(line in printed for line in shown.splitlines() if line != "..."), command


# ---------------------------------------------------------------- planted mistakes


PARTS = [decode.partial_results, decode.partial_result, decode.merge_results, decode.merge_parts, decode.key_tiles,
         decode.page_tiles, decode.cache_rows]  # fmt: skip


class Changed:
    """A schedule with one place of its function changed."""

    skips = False

    def __init__(self, schedule, old, new):
        functions = [schedule.text, *PARTS]
        sources = [inspect.getsource(function) for function in functions]
        assert sum(source.count(old) for source in sources) == 1
        names = dict(vars(decode))
        exec(LATER + "".join(source.replace(old, new) for source in sources), names)
        self.tensors, self.text = schedule.tensors, names[schedule.text.__name__]


def failing(changed, schedule):
    """The checks that a changed schedule fails."""
    p, t, failed = Attention(7, 4, Nk=26, splits=3, page_size=8, mask=parse_mask("window:9")), Tiling(4, 3), set()
    visible, traffic, room = seen_by(p, t), Traffic(), Capacity()
    hbm = schedule.example(np.random.default_rng(1), p, visible)
    machine = Numeric(p, hbm).run(changed, t)
    if not np.allclose(machine.array("O"), schedule.answer(hbm, p, visible)["O"], atol=1e-12):
        failed.add("numerics")
    Folded(p, traffic).run(changed, t)
    if not same_counts(traffic.tensors, schedule.exact_traffic(p, t)):
        failed.add("formula")
    Folded(replace(p, mask=DENSE), room).run(changed, t)
    if room.peak_words != schedule.footprint(p, t):
        failed.add("footprint")
    return failed


@pytest.mark.parametrize(
    "old, new, caught_by",
    [
        ('chip.update(l, log_sum_exp, m)\n    chip.store(l, "LSEp', 'chip.store(l, "LSEp', {"numerics"}),
        ('chip.update(o, normalise, l)\n    chip.store(o, "Op', 'chip.store(o, "Op', {"numerics"}),
        ('chip.store(l, "LSEpart", r)', 'chip.store(l, "LSEpart", r); chip.store(l, "LSEpart", r)', {"formula"}),
        ("attend(chip", 'chip.load("Q", i); attend(chip', {"formula", "footprint"}),
        ("(m, l, o), merge", '(m, l, chip.compute("O", (i, p.dv), zeros)), merge', {"numerics"}),
        ("key_tiles, Share(p.Nk, share_rows(p), c)", "key_tiles, p.Nk", {"formula"}),
        (
            "part, lse =",
            "r = Moved(partial_rows(p), i, ((1, i),)); part, lse =",
            {"numerics"},
        ),
    ],
)
def test_a_mutant_of_split_keys_is_caught(old, new, caught_by):
    assert failing(Changed(SPLIT, old, new), SPLIT) == caught_by


@pytest.mark.parametrize(
    "old, new, caught_by",
    [
        ("cache.load(rows_of_page(p, b, j, entry))", "cache.load(Moved(cache_rows(p), j, ((1, j),)))", {"numerics"}),
        ("yield j, cache.load(rows", 'chip.load("table", b); yield j, cache.load(rows', {"formula", "footprint"}),
        ("Share(p.Nk, p[PAGE", "Share(cache_rows(p), p[PAGE", {"numerics", "formula"}),
        ("yield j, cache.load(rows", "cache.load(j); yield j, cache.load(rows", None),
    ],
)
@pytest.mark.parametrize("schedule", [PAGED, BOTH], ids=["paged", "paged-split-kv"])
def test_a_mutant_of_paged_is_caught(schedule, old, new, caught_by):
    if caught_by is None:  # a tile of keys indexes no cache in pages
        with pytest.raises(ScheduleError):
            failing(Changed(schedule, old, new), schedule)
    else:
        assert failing(Changed(schedule, old, new), schedule) == caught_by


def test_shares_of_whole_keys_are_not_shares_of_pages():
    changed = Changed(BOTH, "page_tiles, Share(pages(p), share_pages(p), c)", "page_tiles, pages(p)")
    assert failing(changed, BOTH) == {"formula"}


@pytest.mark.parametrize("schedule", [SPLIT, PAGED, BOTH], ids=["split-kv", "paged", "paged-split-kv"])
def test_the_texts_themselves_pass(schedule):
    assert failing(schedule, schedule) == set()
