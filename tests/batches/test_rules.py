"""The rules of libraries, at points that were worked out by hand from their sources."""

import csv
from math import ceil

import pytest
from paths import ROOT

import iosim
from iosim.batches.rules import common_prefix, given
from iosim.counting import libraries
from iosim.counting.libraries import splits_of


def share_tokens(batch, Br):
    return libraries.share_tokens(given(batch), batch.shapes, batch.multiprocessors, Br)


FIELDS = {"d": 128, "heads": 32, "kv_heads": 8, "mask": "causal"}


def test_flash_attention_2_packs_single_tokens_only():
    found = iosim.batch("1:3000, 1:9000", **FIELDS)
    assert found["FA2"].tensors == found["pack"].tensors and found["FA2"].tiles == "128x64"
    for mask in ("causal", "dense"):
        found = iosim.batch("4:3000, 4:9000", **{**FIELDS, "mask": mask})
        assert found["FA2"].tensors == found["repeat"].tensors != found["pack"].tensors


def test_flash_attention_2_splits_keys_where_few_blocks_are():
    found = iosim.batch("4 * 1:3000, 1:9000", **FIELDS, hardware="h200", tiles="128x64")
    split = iosim.batch("4 * 1:3000, 1:9000", **FIELDS, acc_dtype="fp32", tiles="64x128", splits=6)["split"]
    assert found["FA2"].tensors == split.tensors
    # 40 blocks on 264 places: 6 shares are 240 of 264, a share of 0.909; the best number is 13, with 520 of 528
    assert splits_of(40, 264, 71) == 6
    assert splits_of(212, 264, 71) == 1 and splits_of(1, 264, 3) == 3
    many = iosim.batch("40 * 1:3000", **FIELDS, hardware="h200", tiles="128x64")
    assert many["FA2"].schedule == "flash2"  # 320 blocks fill 0.8 of 264 places


def test_the_splits_of_flash_attention_2_are_the_fewest_good_ones():
    for blocks in (1, 7, 40, *range(50, 173, 4), 200):
        for tiles in (1, 5, 33, 200):
            found = splits_of(blocks, 216, tiles)
            if blocks >= 0.8 * 216:
                assert found == 1
                continue
            share = [0.0]
            for s in range(1, min(128, 216, tiles) + 1):
                waves = blocks * s / 216
                good = s == 1 or ceil(tiles / s) < ceil(tiles / (s - 1))
                share.append(waves / ceil(waves) if good else 0.0)
            assert share[found] >= 0.85 * max(share) > max(share[1:found], default=0)


def test_flash_attention_3_packs_always():
    for requests in ("1:3000, 1:9000", "4:3000, 4:9000"):
        found = iosim.batch(requests, **FIELDS)
        assert found["FA3"].tiles in ("128x176", "128x128")
        assert found["FA3"].kv_times_read <= found["pack"].kv_times_read * 1.02


def test_the_height_of_flashinfer_follows_from_the_mean():
    for requests, height in (("1:300", 16), ("4 * 1:300, 20:300", 64), ("64:300", 128), ("4:300", 16), ("5:300", 64)):
        assert iosim.batch(requests, **FIELDS, hardware="h100")["FlashInfer"].tiles.startswith(f"{height}x"), requests


def test_the_shares_of_flashinfer_are_the_shortest_whose_blocks_have_places():
    batch = iosim.batch("4 * 1:3000, 1:9000", **FIELDS, hardware="h200").batch
    length = share_tokens(batch, 16)  # 132 multiprocessors: 33 blocks for each of the 8 KV heads
    blocks = {tokens: 4 * ceil(188 / (tokens // 16)) + ceil(563 / (tokens // 16)) for tokens in (length - 16, length)}
    assert blocks[length] <= 33 < blocks[length - 16]
    short = iosim.batch("2 * 1:100", **FIELDS, hardware="h200").batch
    assert share_tokens(short, 16) == 128  # at least


def requests_with(prefix, number, new=1):
    return [{"new": new, "cached": 2000, "prefix": f"system:{prefix}"}] * number


def test_when_vllm_runs_a_cascade():
    def rule(**more):
        batch = iosim.batch(requests_with(**more), **FIELDS, hardware="h100").batch
        return libraries.vllm_cascades(batch.problem, batch.shapes, batch.multiprocessors, common_prefix(batch))

    assert not rule(prefix=255, number=50) and not rule(prefix=1024, number=7)
    assert rule(prefix=1024, number=8, new=2)  # FlashAttention-2 would not split the keys
    # 8 tiles of the prefix: together 32 blocks, one wave of 8 tiles; apart 8 x 8 x 8 blocks, 4 waves of one
    assert not rule(prefix=1024, number=8)
    assert rule(prefix=1024, number=17)  # apart 17 x 8 x 8 = 1088 blocks, 9 waves


@pytest.mark.parametrize(("number", "gpus"), [(10, {"h20": True, "h100": False}), (18, {"h100": True, "b200": False})])
def test_waves_of_a_cascade_are_those_of_the_gpu(number, gpus):
    """78, 132 and 148 multiprocessors: on more of them the blocks of requests apart take fewer waves."""
    for gpu, cascades in gpus.items():
        found = iosim.batch(requests_with(1024, number), **FIELDS, hardware=gpu, ways="vLLM")["vLLM"]
        assert ("cascade-level" in found.schedule) == cascades


def test_what_a_cascade_of_vllm_moves():
    found = iosim.batch(requests_with(1024, 20), **FIELDS, hardware="h100", paper_model=True)
    assert found["vLLM"].kv_times_read == 1 and found["cascade"].kv_times_read == 1
    assert found["vLLM"].tensors["K"] == found["cascade"].tensors["K"]
    assert common_prefix(iosim.batch(requests_with(1030, 20), **FIELDS, hardware="h100").batch) == 1024  # whole pages


def test_vllm_triton_has_sixteen_rows():
    found = iosim.batch("17 * 1:3000", **FIELDS)
    assert (found["vLLM-Triton"].schedule, found["vLLM-Triton"].tiles) == ("flash2", "16x1")
    found = iosim.batch("16 * 1:3000", **FIELDS)
    assert (found["vLLM-Triton"].schedule, found["vLLM-Triton"].tiles) == ("split-kv", "16x16")
    found = iosim.batch("4:3000", d=128, heads=24, kv_heads=8)
    assert found["vLLM-Triton"].tiles == "15x1"  # 5 queries of 3 heads


@pytest.mark.parametrize("batch, heads, kv_heads, Nk, gpu, mask", [
    (1, 32, 8, 8192, "h100", "dense"), (4, 32, 4, 777, "h200", "causal"), (64, 16, 2, 3000, "a100-80gb", "dense"),
    (1, 8, 1, 100, "l40s", "causal"), (3, 6, 3, 5000, "t4", "dense"), (1, 32, 8, 8192, "h100", "window:100"),
])  # fmt: skip
def test_a_batch_of_equal_requests_is_told_the_same(batch, heads, kv_heads, Nk, gpu, mask):
    """`count`, `tune` and `batch` read one rule: the same words, bytes, room and distance from the floor."""
    fields = {"d": 128, "heads": heads, "kv_heads": kv_heads, "mask": mask, "hardware": gpu}
    step = iosim.batch(f"{batch} * 1:{Nk}", **fields)
    of_tune = {tiles.short: result for tiles, result in iosim.tune(1, Nk=Nk, batch=batch, **fields).published}
    for tiles, result in iosim.count(1, Nk=Nk, batch=batch, **fields).published:
        way = step[tiles.short]
        if (result.Br, result.Bc) == tuple(map(int, way.tiles.split("x"))):
            mine = (way.total, way.total_bytes, way.smem_peak_bytes, way.fits, way.schedule)
            for one in (result, of_tune[tiles.short]) if mask != "window:100" else (result,):
                theirs = one.total, one.total_bytes, one.smem_peak_bytes, one.fits, one.schedule
                assert mine == theirs and way.ratio_to_floor == pytest.approx(one.ratio_to_floor, rel=1e-12)
        else:
            assert mask == "window:100" and tiles.short == "FA2", "unpacked, keys are split in `count` alone"


def test_every_rule_has_a_source():
    found = iosim.batch(requests_with(1024, 9), **FIELDS, hardware="h100")
    named = {way.way for way in found if way.source}
    assert named == {"FA2", "FA3", "FlashInfer", "vLLM", "vLLM-Triton", "cascade"}


def kept(kernel):
    """(words read, words written) that `iosim explain` found for a launch of vLLM's Triton kernel, which
    validation/kernels/scripts/launch_vllm.py makes: requests of 1024, 777, 512 and 100 tokens in pages of 16."""
    rows = csv.DictReader((ROOT / "validation" / "kernels" / "drawn.csv").open())
    row = next(row for row in rows if row["kernel"] == kernel)
    return int(row["reads"]), int(row["writes"])


def test_vllm_triton_is_what_its_kernel_reads():
    """Beside Q, K and V the kernel reads an entry of the block table for each key of a tile of 32, the length of a
    request in each of 256 programs, and the list of starts: 5 words for the first request, 4 for the others."""
    fields = {"d": 128, "heads": 16, "kv_heads": 4, "mask": "causal", "dtype": "bf16"}
    found = iosim.batch("64:1024, 64:777, 64:512, 64:100", **fields)["vLLM-Triton"]
    reads, writes = kept("kernel_unified_attention_2d")
    seen = [tokens - 64 + 4 * block for tokens in (1024, 777, 512, 100) for block in range(1, 17)]
    table = 4 * sum(-(-keys // 32) * 32 for keys in seen)
    assert (found.reads + table + 256 + 4 * 17 * (5 + 4 * 3), found.writes) == (reads, writes)


def test_vllm_triton_has_the_segments_of_its_kernel():
    """The kernel keeps the maximum and the sum of a row apart, where split-kv has one LSE. Each of its 208 programs with
    work reads 4 queries, and an entry of the block table for each key of a tile of 16."""
    fields = {"d": 128, "heads": 16, "kv_heads": 4, "mask": "causal", "dtype": "bf16"}
    found = iosim.batch("1:1024, 1:777, 1:512, 1:100", **fields)["vLLM-Triton"].tensors
    reads, writes = kept("kernel_unified_attention_3d")
    assert found["Opart"]["writes"] + 2 * found["LSEpart"]["writes"] == writes
    table = 4 * 16 * sum(-(-tokens // 16) for tokens in (1024, 777, 512, 100))
    lists = 1600  # lengths and starts, in 320 programs
    assert found["Q"]["reads"] + found["K"]["reads"] + found["V"]["reads"] + table + lists == reads


def test_windows_of_libraries():
    """The lines of issues: a step over a long cache under a sliding window, in every library."""
    found = iosim.batch(
        "1:65536", 64, heads=8, kv_heads=2, mask="causal&window:255", tiles="16x16", ways="vLLM-Triton,split,paged,pack"
    )
    assert {way.tensors["K"]["reads"] for way in found} == {256 * 64 * 2}  # 16 whole tiles, for two heads
    assert found.distinct["K"] == 256 * 64 * 2 and "fewer" not in found.lines[0]
    for library, tiles in (("FA2", "128x128"), ("FA3", "192x128"), ("vLLM-Triton", "16x16")):
        found = iosim.batch(
            "20 * 1:65530", 64, heads=8, kv_heads=2, mask="causal&window:255", hardware="h100", ways=library
        )[library]
        heads, Bc = (8 if library == "FA2" else 2), int(tiles.split("x")[1])
        first, last = (65530 - 256) // Bc * Bc, min(65530, -(-65530 // Bc) * Bc)
        assert (found.tiles, found.tensors["K"]["reads"]) == (tiles, 20 * heads * 64 * (last - first)), library


def test_flash_attention_2_asks_for_a_window_before_it_drops_one():
    """flash_api.cpp: with the length of each request, heads are packed only where no window is given, though it hides no
    key. With one length for all (`count`) a window of all keys is dropped first, and one of a key less is not."""
    dense = iosim.batch("1:3000, 1:200", **{**FIELDS, "mask": "dense"})
    assert iosim.batch("1:3000, 1:200", **FIELDS)["FA2"].tensors == dense["pack"].tensors
    for mask in ("causal&window:2999", "causal&window:5000", "window:5000"):
        found = iosim.batch("1:3000, 1:200", **{**FIELDS, "mask": mask})
        assert found["FA2"].tensors == dense["repeat"].tensors != found["pack"].tensors
        assert (found["FA3"].tiles, found["FA3"].tensors) == (dense["FA3"].tiles, dense["FA3"].tensors)
        assert (
            iosim.batch(requests_with(1024, 20), **{**FIELDS, "mask": mask}, hardware="h100")["vLLM"].schedule
            == "flash2"
        )
    for window, packs in ((2998, False), (2999, False), (3000, True), (9000, True)):
        (row,) = iosim.count(1, Nk=3000, **{**FIELDS, "mask": f"causal&window:{window}"}, hardware="h100").published
        assert (row.tiles.short, row.result.schedule) == ("FA2", "split-kv")
        assert row.result.total == pytest.approx(2 * 3000 * 128 * (8 if packs else 32), rel=0.1)


def test_flash_attention_3_drops_a_window_that_hides_nothing():
    """Its tiles are then those of `causal`, or those of no mask for single tokens."""
    fields = {"heads": 8, "kv_heads": 2, "hardware": "h100", "d": 128, "ways": "FA3"}
    for d, window, several, single in (
        (96, 2998, 128, 128),
        (96, 2999, 144, 144),
        (128, 2998, 128, 128),
        (128, 2999, 128, 176),
    ):
        for new, Bc in ((4, several), (1, single)):
            found = iosim.batch(f"{new}:3000", mask=f"causal&window:{window}", **{**fields, "d": d})["FA3"]
            assert found.tiles.endswith(f"x{Bc}"), (d, window, new)


@pytest.mark.parametrize("ways, more", [
    ("repeat,FA2", {"short_tile": "first"}), ("repeat,pack,cascade,FA2,FA3,FlashInfer,vLLM", {"visit_all": True}),
])  # fmt: skip
def test_options_of_schedules_move_no_row_of_a_library(ways, more):
    """A note says which ways skip nothing: those that visit all, cascades too."""
    fields = {**FIELDS, "hardware": "h100", "tiles": "128x64", "ways": ways}
    requests = [{"new": 200, "cached": 2000, "prefix": "system:1024"}] * 9
    plain, asked = (iosim.batch(requests, **fields, **own) for own in ({}, more))
    moved = {way.way for way in plain if way.total != asked[way.way].total}
    assert moved == {*ways.split(",")} & {"repeat", "pack", "cascade"}
    note = [text for text in asked.notes if "nothing under the mask" in text]
    assert note == (["repeat, pack, cascade skip nothing under the mask"] if "visit_all" in more else [])


def test_flashinfer_shares_out_the_keys_in_reach():
    """One request of 65,536 keys has 16 packed rows. Under a window of 255 keys before, ceil((255 + 16) / 16) = 17 pages
    of 16 are shared out: 272 keys in 3 shares of at least 128. Without the window there are many more."""
    fields = {**FIELDS, "hardware": "h200"}
    batch = iosim.batch("1:65536", **{**fields, "mask": "causal&window:255"}, ways="FlashInfer")
    assert share_tokens(batch.batch, 16) == 128 and batch.ways[0].tensors["LSEpart"]["writes"] == 32 * 3
    assert iosim.batch("1:65536", **fields, ways="FlashInfer").ways[0].tensors["LSEpart"]["writes"] > 32 * 3


def test_vllm_runs_no_cascade_under_a_window():
    found = iosim.batch(requests_with(1024, 20), **{**FIELDS, "mask": "causal&window:255"}, hardware="h100")
    assert found["vLLM"].schedule == "flash2" and found["vLLM"].tensors == found["FA3"].tensors


def test_sentences_about_reads_are_true():
    """A row whose keys are read as often says what else goes through HBM, and 21 times is no 2once."""
    from iosim.verdict import Way

    found = iosim.batch("1:64, 1:33", 8, heads=2, kv_heads=2, ways="repeat,paged", tiles="4x4", page_size=16)
    lines = found.why(Way("repeat", 1), Way("paged", 2))
    assert lines == "table goes through HBM"
    many = iosim.batch("21:21", 8, mask="causal", ways="repeat,split", tiles="1x21")
    assert many["repeat"].kv_times_read == 21 and "once" not in many.answer
