"""Attention to chosen blocks of keys: by hand, on arrays, with planted mistakes, and against the floor."""

import random
from dataclasses import replace

import numpy as np
import pytest
from verdicts import wrong

from iosim import SCHEDULES, Attention, InputError, Tiling, count
from iosim.counting.floors import selected_floor
from iosim.schedules import selected

NAMES = ["selected", "selected-keys-outside"]
GATHER, OUTSIDE = (SCHEDULES[name] for name in NAMES)


def case(rng):
    block, blocks, rows = rng.randint(1, 6), rng.randint(1, 9), rng.randint(1, 4)
    d = rng.randint(1, 9)
    return Attention(
        rows * rng.randint(1, 8), d, Nk=block * blocks, dv=rng.randint(1, d), key_block=block, choice_rows=rows,
        top_k=rng.randint(1, blocks), latent=rng.random() < 0.3, kv_scales=rng.choice(["none", "tensor", "2"]),
        lse=rng.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_three_ways(name):
    rng = random.Random(name)
    for _ in range(60):
        p, t = case(rng), Tiling(rng.randint(1, 6), rng.randint(1, 8))
        assert wrong(SCHEDULES[name], p, t) == set(), (p, t)


def test_choices_are_what_they_should_be():
    """Every choice has `top_k` different blocks, each is in as many choices, and all lists say the same."""
    rng = random.Random(5)
    for _ in range(60):
        p = case(rng)
        found = selected.example(np.random.default_rng(rng.randint(0, 99)), p, None)
        index, results = found["index"], found["results"]
        assert all(len(set(row)) == p.top_k for row in index.tolist()) and (index < p.Nk // p.key_block).all()
        uses = np.unique(index, return_counts=True)[1]
        assert len(uses) == selected.chosen_blocks(p) and sorted(uses)[1:] == [selected.choices_each(p)] * (
            len(uses) - 1
        )
        assert (found["queries"][results] == np.arange(selected.choices(p))[:, None]).all()
        assert (found["blocks"][results // selected.choices_each(p)] == index).all()


def test_sparse_mla_by_hand():
    """DeepSeek-V3.2: 2048 keys of 656 bytes for 128 heads, in two tiles of 64 heads, and their numbers."""
    p = {"N": 1, "Nk": 65536, "d": 576, "dv": 512, "heads": 128, "kv_heads": 1, "gqa": "pack", "latent": True,
         "dtype": "bf16", "kv_dtype": "fp8", "kv_scales": "128", "top_k": 2048, "key_block": 1}  # fmt: skip
    one = count(**p, tiles="64x1", schedules="selected")["selected"]
    assert one.read_bytes == 2 * 2048 * (656 + 4) + 128 * 576 * 2 and one.write_bytes == 128 * 512 * 2
    whole = count(**{**p, "kv_scales": "none"}, tiles="128x1", schedules="selected")
    assert whole["selected"].total == whole.bounds[0].words + 2048, "all but the numbers is compulsory"


def test_the_two_orders_by_hand():
    """1000 queries in groups of 4 heads choose 8 of 64 blocks of 32 keys: 125 choices of each block."""
    p = {"N": 1000, "Nk": 2048, "d": 64, "heads": 4, "kv_heads": 1, "gqa": "pack", "top_k": 8, "key_block": 32}
    found = count(**p, tiles="4x32", schedules="selected")["selected"]
    keys, outputs = 2 * 8 * 32 * 64, 4 * 1000 * 64
    assert found.reads == outputs + 1000 * (keys + 8) and found.writes == outputs
    other = count(**p, schedules="selected-keys-outside")["selected-keys-outside"]
    assert other.reads == 8 * outputs + 2 * 2048 * 64 + 64 + 2 * 8000 + 8 * (outputs + 4000)
    assert other.writes == 8 * (outputs + 4000) + outputs


def test_no_schedule_is_below_the_floor():
    rng = random.Random(3)
    for _ in range(50):
        block, top, latent = rng.randint(1, 16), rng.randint(1, 6), rng.random() < 0.4
        p = {"N": rng.randint(1, 300), "Nk": block * rng.randint(top, 20), "d": rng.randint(1, 40), "top_k": top,
             "key_block": block, "latent": latent}  # fmt: skip
        M = rng.choice([None, rng.randint(100, 50000)])
        for row in count(**p, M=M, tiles="3x5", schedules=NAMES):
            room = row.sram_peak_bytes if M is None and row.tiling == "given" else M
            exact = selected_floor(Attention(**p), None if room is None else room // 2).words
            assert row.total >= exact or row.fits is False
            if row.fits is not False:
                assert row.ratio_to_floor == pytest.approx(row.total / exact, rel=1e-15)


@pytest.mark.parametrize("bad", [
    {"Nk": 100}, {"top_k": 9}, {"mask": "causal"}, {"key_block": 0}, {"keep_p": True}, {"top_k": -1},
])  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_bad_input(name, bad):
    tiles = {} if name != "selected" else {"tiles": "4x4"}
    good = {"N": 8, "Nk": 128, "d": 8, "key_block": 16, "top_k": 2}
    count(**good, **tiles, schedules=name)
    with pytest.raises(InputError):
        count(**{**good, **bad}, **tiles, schedules=name)


# ---------------------------------------------------------------- planted mistakes


@pytest.mark.parametrize("name, mistake, caught_by", [
    ("selected", "block 0", {"output"}), ("selected-keys-outside", "block 0", {"output"}),
    ("selected", "blocks twice", {"output", "formula"}), ("selected-keys-outside", "own place", {"output"}),
])  # fmt: skip
def test_a_mistake_is_caught(name, mistake, caught_by, monkeypatch):
    right = {"keys_of": selected.keys_of, "block_tiles": selected.block_tiles, "results_of": selected.results_of}

    def first_block(p, entry, j):
        return selected.Moved(p.Nk, j, ((1, j),))

    def twice(*args):
        yield from right["block_tiles"](*args)
        yield from right["block_tiles"](*args)

    def own_place(chip, p, x, i):
        for b in chip.tiles(p.top_k, 1):
            chip.load("results", x, b)
            yield selected.Moved(
                selected.choice_results(p), i, ((p.choice_rows, b), (p.choice_rows * (p.top_k - 1), x), (1, i))
            )

    where, changed = {"block 0": ("keys_of", first_block), "blocks twice": ("block_tiles", twice),
                      "own place": ("results_of", own_place)}[mistake]  # fmt: skip
    monkeypatch.setattr(selected, where, changed)
    p = Attention(12, 5, Nk=40, key_block=4, top_k=3, choice_rows=2)
    found = wrong(replace(SCHEDULES[name]), p, Tiling(2, 3))
    assert caught_by & found and "footprint" not in found
