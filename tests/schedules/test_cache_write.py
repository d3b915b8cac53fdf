"""New rows of a KV cache: by hand, on arrays, and with planted mistakes."""

import random
from dataclasses import replace

import numpy as np
import pytest
from verdicts import wrong

from iosim import SCHEDULES, Attention, InputError, Numeric, Tiling, count
from iosim.core.rounding import to_e4m3
from iosim.schedules import cache_write

WRITE = SCHEDULES["cache-write"]
ONE = Tiling(1, 1)
FLASH_MLA = {"d": 576, "dv": 512, "latent": True, "dtype": "bf16", "kv_dtype": "fp8", "kv_scales": "128"}


def problems(number):
    rng = random.Random(1)
    for _ in range(number):
        Nk, d = rng.randint(1, 20), rng.randint(1, 40)
        yield Attention(
            rng.randint(1, Nk), d, Nk=Nk, dv=rng.randint(1, d), latent=rng.random() < 0.5,
            kv_scales=rng.choice(["none", "tensor", "1", "7", "16"]),
        )  # fmt: skip


def test_three_ways():
    for p in problems(150):
        assert wrong(WRITE, p, ONE) == set(), p


def test_a_row_of_flash_mla_has_656_bytes():
    found = count(N=3, Nk=4096, **FLASH_MLA, schedules="cache-write")
    one = found["cache-write"]
    assert one.write_bytes == 3 * (512 + 4 * 4 + 2 * 64) == 3 * 656
    assert one.read_bytes == 3 * (2 * 576 + 4)
    assert found.bounds[0].words == one.total == 3 * (576 + 1 + 580), "nothing moves twice"


def test_heads_are_those_of_the_cache():
    found = count(N=5, Nk=64, d=16, dv=8, heads=2, batch=3, dtype="bf16", kv_dtype="fp8", kv_scales="tensor",
                  schedules="cache-write")  # fmt: skip
    two = found["cache-write"]
    assert two.write_bytes == 6 * 5 * 24 and two.read_bytes == 6 * 5 * (2 * 24 + 4 + 2 * 4)
    assert two.total - found.bounds[0].words == 6 * 2 * 4, "a scale is read for each row, once would do"
    for bad in ({"heads": 4, "kv_heads": 2}, {"heads": 4, "kv_heads": 2, "gqa": "pack"}, {"N": 65}, {"lse": True}):
        with pytest.raises(InputError, match="New rows belong to KV heads"):
            count(**{"N": 5, "Nk": 64, "d": 16, **bad}, schedules="cache-write")


def test_the_oracle_by_hand():
    p = Attention(2, 3, Nk=4, dv=1, kv_scales="2", dtype="fp32")
    hbm = {"slots": np.array([2, 0]), "Knew": np.array([[448.0, -2, 896], [0, 0, -112]]),
           "Vnew": np.array([[1.0], [224.0]])}  # fmt: skip
    found = WRITE.answer(hbm, p, None)
    assert found["K"].tolist() == [[0, 0, -448], [0, 0, 0], [448, -2, 448], [0, 0, 0]]
    assert found["Kscale"].tolist() == [[1, 0.25], [0, 0], [1, 2], [0, 0]]
    assert found["V"].tolist() == [[448], [0], [448], [0]] and found["Vscale"][2, 0] == 1 / 448
    assert wrong(WRITE, p, ONE, hbm) == set()


def test_random_rows_come_back_within_the_precision_of_fp8():
    """Rounded to E4M3 and multiplied by its scale, a word is off by at most 2^-4 of itself, or of the smallest normal."""
    p, rng = Attention(6, 64, Nk=9, kv_dtype="fp8", kv_scales="16", dtype="fp32"), np.random.default_rng(2)
    hbm = {"slots": rng.permutation(9)[:6], "Knew": rng.normal(size=(6, 64)), "Vnew": rng.normal(size=(6, 64))}
    machine = Numeric(p, hbm).run(WRITE, ONE)
    for name in "KV":
        scales = np.repeat(machine.array(name + "scale")[hbm["slots"]], 16, axis=1)
        back = to_e4m3(machine.array(name)[hbm["slots"]].astype(np.float32)) * scales
        off = np.abs(back - hbm[name + "new"])
        assert (off <= np.maximum(np.abs(hbm[name + "new"]) * 2.0**-4, scales * 2.0**-10) * 1.001).all()
        assert off.max() > 1e-3


def loaded_twice(chip, p, name, width, i, row):
    chip.free(chip.load(name + "new", i))
    RIGHT(chip, p, name, width, i, row)


def in_order(chip, p, name, width, i, row):
    """Rows written one after the other, whatever their slots."""
    terms, row.terms = row.terms, ((1, i),)
    RIGHT(chip, p, name, width, i, row)
    row.terms = terms


RIGHT = cache_write.write_row
KEPT = Attention(5, 12, Nk=9, kv_scales="4")


@pytest.mark.parametrize("text, caught", [(loaded_twice, {"formula"}), (in_order, {"output"})])
def test_planted_mistakes_are_caught(monkeypatch, text, caught):
    monkeypatch.setattr(cache_write, "write_row", text)
    assert wrong(replace(WRITE), KEPT, ONE) == caught


def test_a_scale_of_another_block_is_caught(monkeypatch):
    monkeypatch.setattr(cache_write, "scales_of", lambda p, name: p.v_scales)
    assert wrong(replace(WRITE), Attention(5, 12, dv=3, Nk=9, kv_scales="4"), ONE) == {"error"}
