"""Keys and values of other types than Q's, with scales, and latent rows: by hand, on arrays, and against the floor."""

import random
from dataclasses import replace

import numpy as np
import pytest
from verdicts import wrong

from iosim import SCHEDULES, Attention, Folded, InputError, Machine, Tiling, Traffic, count
from iosim.core.machine import Watcher
from iosim.core.problem import TENSORS
from iosim.counting.floors import floor, held_words, in_narrowest
from iosim.counting.run import measure
from iosim.masks import parse_mask
from iosim.oracles.attention import attention
from iosim.schedules import cache
from iosim.steps import passes
from iosim.tuning.least import space_of

WITH_SCALES = [name for name, s in SCHEDULES.items() if s.scales and s.family == "attention"]
MLA = {"N": 1, "Nk": 4096, "d": 576, "dv": 512, "heads": 128, "kv_heads": 1, "gqa": "pack", "latent": True,
       "dtype": "bf16", "acc_dtype": "fp32"}  # fmt: skip


def case(rng, name):
    d = rng.randint(1, 12)
    latent = rng.random() < 0.5
    return Attention(
        rng.randint(1, 20), d, Nk=rng.randint(1, 30), dv=rng.randint(1, d if latent else 12), latent=latent,
        kv_dtype=rng.choice([None, "fp8", "fp32"]), kv_scales=rng.choice(["none", "tensor", "1", "3", "8"]),
        splits=rng.randint(1, 5), page_size=rng.randint(1, 9), lse=rng.random() < 0.5, keep_p=rng.random() < 0.3,
        mask=parse_mask(rng.choice(["dense", "causal", "window:3"])),
    )  # fmt: skip


@pytest.mark.parametrize("name", WITH_SCALES)
def test_three_ways(name):
    rng = random.Random(name)
    for _ in range(40):
        p, t = case(rng, name), Tiling(rng.randint(1, 22), rng.randint(1, 32))
        assert wrong(SCHEDULES[name], p, t) == set(), (p, t)


@pytest.mark.parametrize("name", [name for name, s in SCHEDULES.items() if s.family == "attention" and not s.scales])
def test_schedules_that_read_v_apart_are_right_for_latent_rows(name):
    schedule = SCHEDULES[name]
    p, t = schedule.about(Attention(7, 6, Nk=11, dv=4, latent=True)), Tiling(3, 4)
    plain, latent = Traffic(), Traffic()
    Folded(p, latent).run(schedule, t)
    Folded(replace(p, latent=False), plain).run(schedule, t)
    assert latent.tensors == plain.tensors and wrong(schedule, p, t) == set()


def test_one_load_serves_keys_and_values():
    """Decoding with 128 query heads in two tiles of 64: Q and O move once, the rows of 576 words once a tile."""
    found = count(**MLA, tiles="64x64", schedules="flash2")["flash2"]
    assert found.reads == 128 * 576 + 2 * 4096 * 576 and found.writes == 128 * 512
    assert found.flops == 2 * 128 * 4096 * (576 + 512)
    one = count(**MLA, tiles="128x64", schedules="flash2")
    assert (
        one["flash2"].total == one.bounds[0].words == floor(Attention(**MLA)).words
        and one["flash2"].ratio_to_floor == 1
    )


def test_a_row_of_flashmla_has_656_bytes():
    """512 words of 1 byte, 4 scales of 4 bytes, and 64 words of 2 bytes (FlashMLA, the FP8 KV cache)."""
    found = count(**MLA, tiles="128x64", schedules="flash2", kv_dtype="fp8", kv_scales="128")["flash2"]
    assert {name: words["reads"] / 4096 for name, words in found.tensors.items() if name[0] == "K"} == {
        "K": 512, "Kscale": 4, "Krope": 64}  # fmt: skip
    assert found.read_bytes == 4096 * 656 + 128 * 576 * 2 and found.write_bytes == 128 * 512 * 2
    plain = count(**MLA, tiles="128x64", schedules="flash2", kv_dtype="fp8")["flash2"]
    assert plain.read_bytes == 4096 * 576 + 128 * 576 * 2


def test_a_scale_of_a_tensor_is_a_word_of_each_thread_block():
    p = {"N": 100, "d": 8, "heads": 3, "kv_dtype": "fp8", "kv_scales": "tensor", "tiles": "16x16"}
    found = count(**p, schedules="flash2")["flash2"]
    assert found.tensors["Kscale"] == found.tensors["Vscale"] == {"reads": 3 * 7, "writes": 0}
    assert found.read_bytes == 3 * (2 * 100 * 8 + 7 * (100 * 8 * 2 + 2 * 4))


def test_no_schedule_is_below_the_floor_of_latent_rows():
    rng = random.Random(2)
    for _ in range(60):
        N, Nk, dv = rng.randint(1, 300), rng.randint(1, 300), rng.randint(1, 40)
        d, M = dv + rng.randint(0, 20), rng.choice([None, rng.randint(50, 60000)])
        p = {"N": N, "Nk": Nk, "d": d, "dv": dv, "latent": True, "kv_dtype": rng.choice(["fp16", "fp8"])}
        names = "flash2,flash1,standard-tiled" if p["kv_dtype"] == "fp16" else "flash2"
        for row in count(**p, M=M, tiles=rng.choice(["1x1", "7x3", "400x4"]), schedules=names):
            if row.fits is not False:
                exact = floor(Attention(**p), row.sram_peak_bytes if M is None else M).words
                assert row.ratio_to_floor == pytest.approx(row.total / exact, rel=1e-15)
                assert row.total / exact >= 1


def test_the_floor_of_latent_rows_is_nearly_reached():
    """For large M flash2 moves d (d + dv) |E| / M to leading order, as form (a) of docs/floors.md says."""
    found = count(65536, 128, "116224el", latent=True, schedules="flash2")
    assert 1 < found["flash2"].ratio_to_floor < 1.04 and found.bounds[1].form == "latent"


def test_the_oracle_by_hand():
    p = Attention(2, 3, Nk=4, dv=2, latent=True, kv_scales="1")
    hbm = SCHEDULES["flash2"].example(np.random.default_rng(3), p, None)
    keys = np.concatenate([hbm["K"] * hbm["Kscale"], hbm["Krope"]], axis=1)
    assert keys.shape == (4, 3)
    found = SCHEDULES["flash2"].answer(hbm, p, None)["O"]
    assert np.allclose(found, attention(hbm["Q"], keys, keys[:, :2]))


class RowByRow(Watcher):
    """The bytes of each tensor, of every row of every load and store: two words of K or V to a byte, the last byte of
    a row half empty where the row is odd."""

    def __init__(self):
        self.bytes = {}

    def load(self, block, tensor, words):
        spec = self.machine.tensors[tensor]
        moved = words * {"scale": self.scale_bytes, "index": 4}.get(spec.kind, 2)
        if spec.kind == "cache":
            width = int(self.machine.p.shape(spec)[-1])
            assert words % width == 0
            moved = sum(len(range(0, width, 2)) for _ in range(words // width))
        self.bytes[tensor] = self.bytes.get(tensor, 0) + moved

    store = load

    def start(self, machine):
        self.machine, self.scale_bytes = machine, {"fp16": 2, "fp32": 4}[machine.p.scale_dtype]


@pytest.mark.parametrize("name", [name for name, s in SCHEDULES.items() if s.scales])
def test_words_of_4_bits_lie_two_to_a_byte_and_rows_begin_with_a_byte(name):
    rng = random.Random(name)
    for _ in range(20):
        scales = rng.choice(["none", "tensor", "1", "3", "8"])
        p = replace(case(rng, name), dtype="fp16", acc_dtype="fp16", kv_dtype="int4", kv_scales=scales)
        p = replace(p, scale_dtype="fp32" if scales == "none" else "fp16")
        p = SCHEDULES[name].about(replace(p, latent=p.latent and SCHEDULES[name].family == "attention"))
        t, watched = Tiling(rng.randint(1, 9), rng.randint(1, 9)), RowByRow()
        Machine(p, watched).run(SCHEDULES[name], t)
        found = measure(SCHEDULES[name], p, t)
        assert found["total_bytes"] == sum(watched.bytes.values()), (p, t)


def test_a_cache_of_4_bits_by_hand():
    """32 heads of 128 words, 4,096 tokens: 64 B a row of K, and a scale of 2 B for each 32 words."""
    p = {"N": 1, "Nk": 4096, "d": 128, "kv_dtype": "int4", "kv_scales": "32", "scale_dtype": "fp16"}
    found = count(**p, tiles="1x64", schedules="flash2")["flash2"]
    assert found.read_bytes == 2 * 4096 * (64 + 4 * 2) + 128 * 2 and found.write_bytes == 128 * 2
    odd = count(**{**p, "d": 127, "kv_scales": "tensor"}, tiles="1x64", schedules="flash2")["flash2"]
    assert odd.read_bytes == 2 * (4096 * 64 + 2) + 127 * 2
    assert Attention(5, 3, kv_heads=2, heads=4, batch=7, kv_dtype="int4").whole_bytes(TENSORS["K"]) == 7 * 2 * 5 * 2
    p = Attention(8, 8, kv_dtype="u4")
    assert (held_words(p, 100), in_narrowest(p, 7), p.kv_dtype) == (200, 4, "int4")


@pytest.mark.parametrize(("bad", "said"), [
    ({"dtype": "int4"}, "only K and V have 4 bits: --kv-dtype int4"),
    ({"kv_dtype": "nvfp4"}, "int8, int4; int4 has as many bits"),
    ({"scale_dtype": "fp16"}, "--scale-dtype: found 'fp16'; allowed: with --kv-scales"),
])  # fmt: skip
def test_errors_about_4_bits_say_what_to_try(bad, said):
    with pytest.raises(InputError, match=said):
        count(**{"N": 8, "d": 8, "tiles": "4x4", "schedules": "flash2", **bad})


@pytest.mark.parametrize("bad", [
    {"latent": True, "dv": 9}, {"kv_dtype": "fp9"}, {"kv_scales": "0"}, {"kv_scales": "some"},
    {"kv_dtype": "fp8", "schedules": "standard"}, {"kv_scales": "4", "schedules": "memory-efficient"},
    {"latent": True, "schedules": "flash2-bwd"}, {"latent": True, "schedules": "state-fused"},
])  # fmt: skip
def test_bad_input(bad):
    with pytest.raises(InputError):
        count(**{"N": 8, "d": 8, "tiles": "4x4", "schedules": "flash2", **bad})


def test_tune_tries_the_schedules_that_apply():
    space = space_of("", Attention(**MLA, kv_dtype="fp8", kv_scales="128"))
    assert {s.name for s in space} == {*WITH_SCALES} - {"block-sparse", "block-sparse-q", "local-gather"}


# ---------------------------------------------------------------- planted mistakes


@pytest.mark.parametrize("mistake, caught_by", [
    ("values again", {"formula", "footprint"}),  # V is loaded though it is in K's row
    ("no scales", {"output", "formula"}), ("scales kept", {"footprint"}), ("scales of the wrong words", {"output"}),
])  # fmt: skip
def test_a_mistake_is_caught(mistake, caught_by, monkeypatch):
    right = cache.Cache.load, cache.Cache.scaled

    def load(self, j):
        return right[0](self, j)._replace(v=self.chip.load("V", j))

    def unscaled(self, name, j):
        return self.chip.load(name, j)

    def kept(self, name, j):
        with monkeypatch.context() as patch:
            patch.setattr(self.chip, "free", lambda *blocks: None)
            return right[1](self, name, j)

    def shifted(self, name, j):
        with monkeypatch.context() as patch:
            patch.setattr(passes, "Number", lambda words: cache_number(words + 1))
            return right[1](self, name, j)

    cache_number = passes.Number
    name, changed = {"values again": ("load", load), "no scales": ("scaled", unscaled), "scales kept": ("scaled", kept),
                     "scales of the wrong words": ("scaled", shifted)}[mistake]  # fmt: skip
    monkeypatch.setattr(cache.Cache, name, changed)
    scales = "none" if mistake == "values again" else "3"
    p = Attention(9, 8, Nk=10, dv=5, latent=True, kv_scales=scales)
    assert wrong(replace(SCHEDULES["flash2"]), p, Tiling(4, 4)) == caught_by  # another object: answers are kept
