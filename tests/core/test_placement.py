"""Shared memory, registers and stages: footprints by hand, brute force over all choices, and the tiles of published
kernels."""

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest

from iosim.core.placement import MOST_NAMES, Change, Launch, Placing, Resident
from iosim.core.placement import placed as footprint_of
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.counting.count import count
from iosim.counting.run import measure
from iosim.errors import InputError
from iosim.schedules import SCHEDULES, find
from iosim.search.best import best_tiles, footprint
from iosim.tuning.least import curve, tune

MUCH = 2**40  # registers without limit
RAGGED = Attention(100, 24, Nk=70, dv=40, dtype="fp16", acc_dtype="fp32", register_bytes=MUCH)
T = Tiling(16, 24)
BR, BC, D, DV, NK = 16, 24, 24, 40, 70


def by_hand(stages):
    """{schedule: (shared memory, registers)} in bytes: words of 2 bytes for inputs, of 4 bytes for all others."""
    s = stages
    return {
        "flash2": (2 * BR * D + 2 * s * BC * (D + DV), 4 * (BR * DV + BR * BC + 2 * BR)),
        "flash1": (2 * BC * (D + DV) + s * (2 * BR * D + 4 * (BR * DV + 2 * BR)), 4 * BR * BC),
        "flash2-one-room": (2 * BR * D + 2 * s * BC * DV, 4 * (BR * DV + BR * BC + 2 * BR)),
        "standard-tiled": (
            max(2 * BR * D + 2 * s * BC * D, 4 * NK, s * (4 * BR * BC + 2 * BC * DV)),
            4 * max(BR * BC, BR * DV),
        ),
        "split-kv": (
            max(2 * BR * D + 2 * s * 18 * (D + DV), s * 4 * (BR * DV + BR)),  # a share has 18 keys
            4 * (BR * DV + BR * 18 + 2 * BR),
        ),
    }


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("name", by_hand(1))
def test_by_hand(name, stages):
    p = replace(RAGGED, stages=stages)
    found = footprint(find(name), p, T)
    assert (found.smem_bytes, found.register_bytes) == by_hand(stages)[name]
    assert found.least_smem_bytes == found.smem_bytes
    whole = footprint(find(name), replace(p, register_bytes=0), T)
    assert whole.smem_bytes == whole.peak_bytes == found.peak_bytes and whole.register_bytes == 0


def test_without_registers_and_stages_it_is_the_footprint():
    p = replace(RAGGED, register_bytes=0)
    for schedule in SCHEDULES.values():
        if schedule.family == "attention":
            one, other = footprint(schedule, p, T), Placing(p).run(schedule, T)
            peaks = [launch.whole(1) for launch in other.launches]
            assert (one.peak_words, one.peak_bytes) == tuple(map(max, zip(*peaks, strict=True))), schedule.name
            assert (one.smem_bytes, one.register_bytes) == (one.peak_bytes, 0)


def placed(name):
    """{tensor or name: whether it may live in registers}, of the last launch that has it."""
    machine = Placing(RAGGED).run(find(name), T)
    return {c.block.name: c.block.name in launch.free_names() for launch in machine.launches for c in launch.changes}


def test_what_may_live_in_registers():
    """What is loaded may not; nor what a product reads whole, as P and dS of the backward pass (their transposes are
    factors)), and a state on chip."""
    assert placed("flash2") == {"Q": False, "O": True, "l": True, "m": True, "K": False, "V": False, "S": True}
    assert [name for name, free in placed("flash1").items() if free] == ["S"]
    backward = placed("flash2-bwd")
    assert backward["dK"] and backward["dV"] and not backward["S"] and not backward["dP"] and not backward["K"]
    assert not placed("state-fused")["SN"]


def test_a_step_without_a_mark_needs_its_inputs_in_shared_memory():
    def fill(x): ...

    def use(y, x): ...

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            x = chip.compute("S", (i, 4), fill)
            y = chip.compute("O", (i, p.dv), use, x)
            chip.store(y, "O", i)

    (launch, _) = Placing(RAGGED).run(text, T).launches
    assert launch.free_names() == ["O"]


def test_a_part_of_a_block_is_in_shared_memory():
    """Registers have no addresses."""

    def fill(x): ...

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            o = chip.compute("O", (i, p.dv), fill)
            for k in chip.tiles(i, 4):
                chip.update(o[k], fill)
            chip.store(o, "O", i)

    assert Placing(RAGGED).run(text, T).launches[0].free_names() == []


# ---------------------------------------------------------------- too few registers


def brute(name, p, t):
    """The least shared memory over all sets of names whose registers fit, launch by launch."""
    found = []
    for launch in Placing(p).run(find(name), t).launches:
        names = launch.free_names()
        sets = [frozenset(some) for n in range(len(names) + 1) for some in combinations(names, n)]
        peaks = [launch.peaks(p.stages, some) for some in sets]
        found.append(min(smem for smem, registers in peaks if registers <= p.register_bytes))
    return max(found)


@pytest.mark.parametrize("name", ["flash2", "flash1", "standard-tiled", "split-kv", "flash2-bwd", "attention-2pass"])
def test_too_few_registers_are_used_best(name):
    last = None
    for room in (0, 4 * 16, 200, 1535, 1536, 2559, 2560, 4000, 4224, 10**6):
        p = replace(RAGGED, dv=24, register_bytes=room, stages=2)
        found = footprint(find(name), p, T)
        assert found.smem_bytes == brute(name, p, T) and found.register_bytes <= room
        assert last is None or found.smem_bytes <= last
        last = found.smem_bytes
    assert found.smem_bytes == found.least_smem_bytes


def test_arrays_have_the_footprints_of_numbers():
    """Each element chooses its own blocks for the registers."""
    p = replace(RAGGED, register_bytes=3000, stages=2)
    rows = np.arange(1, 60)
    for name in ("flash2", "standard-tiled", "flash1"):
        found = footprint(find(name), p, Tiling(rows, 24))
        for k, n in enumerate(rows.tolist()):
            one = footprint(find(name), p, Tiling(n, 24))
            same = ("peak_words", "peak_bytes", "smem_bytes", "register_bytes", "least_smem_bytes")
            for key in same:
                assert np.broadcast_to(getattr(found, key), rows.shape)[k] == getattr(one, key), (name, n, key)


def test_names_beyond_the_limit_stay_in_shared_memory():
    def fill(x): ...

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            for n in range(MOST_NAMES + 2):
                chip.compute(f"x{n}", (i,), fill)

    launch: Launch = Placing(RAGGED).run(text, T).launches[0]
    assert len(launch.free_names()) == MOST_NAMES and launch.best(1, MUCH)[:2] == (2 * 4 * 16, MOST_NAMES * 4 * 16)


# ---------------------------------------------------------------- published tiles, fit and search


H100 = {"M": "227KB", "schedules": "flash2", "acc_dtype": "fp32"}


@pytest.mark.parametrize("d, tiles, stages, threads", [
    (128, "128x176", 2, 256), (64, "192x128", 2, 384), (192, "128x112", 2, 256), (256, "128x80", 2, 256),  # FA3, H100
    (64, "128x128", 1, 128), (128, "128x64", 1, 128),  # FlashAttention-2, as PyTorch runs it
])  # fmt: skip
def test_tiles_of_published_kernels_fit(d, tiles, stages, threads):
    """A thread has up to 255 registers; the accumulators of one block live in those of its product warps."""
    room = min(threads * 255, 65536) * 4
    (found,) = count(8192, d, tiles=tiles, register_bytes=room, stages=stages, **H100)
    assert found.fits and found.limit is None and found.register_peak_bytes <= room
    Br, Bc = map(int, tiles.split("x"))
    assert found.smem_peak_bytes == 2 * (Br * d + stages * 2 * Bc * d)
    assert found.register_peak_bytes == 4 * (Br * d + Br * Bc + 2 * Br)


@pytest.mark.parametrize("d, Bc, more", [(128, 192, 208), (192, 112, 128), (256, 80, 96)])
def test_the_limits_that_flashattention_3_found(d, Bc, more):
    """As comments of its hopper/tile_size.h say: with 128 rows these key tiles hit the limit of shared memory."""
    for size, fits in ((Bc, True), (more, False)):
        (found,) = count(8192, d, tiles=f"128x{size}", register_bytes=MUCH, stages=2, **H100)
        assert (found.fits, found.limit) == (fits, None if fits else "shared memory")


def test_flashattention_3_did_not_fit_before():
    (plain,) = count(8192, 128, tiles="128x176", **H100)
    assert plain.fits is False and (plain.limit, plain.register_peak_bytes) == ("shared memory", 0)
    assert plain.smem_peak_bytes == plain.sram_peak_bytes == 279_552


def test_fits_says_which_limit_failed():
    for room, stages, limit in ((65536, 2, "registers"), (262_144, 3, "shared memory"), (262_144, 2, None)):
        (found,) = count(8192, 128, tiles="128x176", register_bytes=room, stages=stages, **H100)
        assert (found.fits, found.limit) == (limit is None, limit)


def test_the_floor_is_that_of_all_words_on_the_chip():
    """Registers are fast memory too, so the floor and the order are those of M and the registers together."""
    (found,) = count(512, 64, M="32KB", schedules="flash2", tiles="best", register_bytes=16384)
    (larger,) = count(512, 64, M="48KB", schedules="flash2", tiles=f"{found.Br}x{found.Bc}")
    assert found.fits and larger.total == found.total
    assert (found.ratio_to_floor, found.ratio_to_order) == (larger.ratio_to_floor, larger.ratio_to_order)
    bounds = [{b.name: b.words for b in count(512, 64, M=M, **options).bounds}
              for M, options in (("32KB", {"register_bytes": 16384}), ("48KB", {}))]  # fmt: skip
    bounds = [{name: words for name, words in found.items() if name != "attainable"} for found in bounds]
    assert bounds[0] == bounds[1]


@pytest.mark.parametrize("room, stages", [(0, 2), (600, 1), (1200, 2), (MUCH, 3)])
@pytest.mark.parametrize("name", ["flash2", "flash1", "standard-tiled", "block-sparse-q"])
def test_best_tiles_respect_both_limits(name, room, stages):
    """All 30 x 26 tilings."""
    p = Attention(30, 8, Nk=26, acc_dtype="fp32", register_bytes=room, stages=stages)
    schedule = find(name)
    rows = np.indices((30, 26)).reshape(2, -1) + 1
    counted = measure(schedule, p, Tiling(*rows))
    needs = np.broadcast_arrays(counted["total_bytes"], counted["smem_peak_bytes"], rows[0])[:2]
    for M in (400, 1000, 2500):
        fitting = [total for total, smem in zip(*needs, strict=True) if smem <= M]
        best = best_tiles(schedule, p, M)
        assert (best is None) == (not fitting)
        if best is not None:
            assert measure(schedule, p, best)["total_bytes"] == min(fitting)
            assert footprint(schedule, p, best).smem_bytes <= M


def test_the_curve_is_what_tune_finds():
    options = {"acc_dtype": "fp32", "register_bytes": 4096, "stages": 2}
    steps = curve(96, 16, **options)
    assert {s.name for s in steps.left_out} == {
        "flash2-pinned", "memory-efficient", "small-cache", "small-cache-q", "standard-square",
    }  # fmt: skip
    for step in steps.steps[::9]:
        at, below = (tune(96, 16, step.M_bytes - less, **options).winner for less in (0, 1))
        assert at.total_bytes == step.total_bytes and (below is None or below.total_bytes > step.total_bytes)


@pytest.mark.parametrize("pair, room, stages", [
    ("flash2,flash1", 40, 1), ("flash1,standard-tiled", 0, 3), ("flash2-one-room,flash2", 150, 2), ("flash2,standard", 150, 2),
])  # fmt: skip
def test_crossovers_are_where_counts_say(pair, room, stages):
    """Both questions, against the least bytes that `count` finds around the answer and at some other M."""
    most, names = 1000, pair.split(",")
    options = {"acc_dtype": "fp32", "register_bytes": room, "stages": stages}

    def less(M, below, above):
        found = [
            count(6, 3, M, schedules=name, tiles="ideal" if name == "standard" else "best", **options)
            for name in (below, above)
        ]
        one, other = (report.results[0].total_bytes or inf for report in found)
        return one < other

    found = curve(6, 3, schedules=names, **options).to_dict()["moves_less"]
    for row, sides in zip(found, (names, names[::-1]), strict=True):
        M = row["M_bytes"]
        assert less(most, *sides) == (M is not None)
        if M is not None:
            assert not less(M - 1, *sides) and all(less(size, *sides) for size in (M, M + 1, *range(M, most, 97)))


def test_registers_change_where_two_schedules_cross(ask, iosim):
    """flash2 passes Algorithm 0 when its query tile has 32 rows: (32 + 2) 64 + 32 (64 + 1 + 2) words of one SRAM, and
    (32 + 4) 64 of shared memory with two stages and all that is computed in registers."""
    chip = ("--registers", "64K", "--stages", 2)
    line = ("tune", "--curve", "--N", 1024, "--d", 64, "--schedule", "flash2,standard,small-cache")
    two, divided = ask(*line[:-1], "flash2,standard")["moves_less"], ask(*line, *chip)
    assert [one[0]["M_bytes"] for one in (two, divided["moves_less"])] == [2 * (34 * 64 + 32 * 67), 2 * 36 * 64]
    assert len(divided["moves_less"]) == 2 and divided["space"]["left_out"] == ["small-cache"]
    counted = count(512, 64, "5KB", schedules="flash2", tiles="best", register_bytes=2**18, stages=2).results[0]
    over = ("tune", "--over", "N", "--d", 64, "--M", "5KB", "--schedule", "flash2,flash1")
    assert ask(*over, "--N", "64:512:+64", *chip)["moves_less"][0]["N"] == 64
    assert ask(*over, "--N", "512,512", *chip)["moves_less"][0]["below_bytes"] == counted.total_bytes
    refused = iosim(
        *over[:5], "--schedule", "flash2,flash1", "--N", "64,128", "--hardware", "h100", "--registers", "1M"
    )
    assert refused.exit_code == 2 and "the registers of an SM of H100" in refused.stderr


def test_a_search_by_formulas_knows_one_sram_only():
    found = tune(256, 64, "64KB", stages=2)
    assert "memory-efficient" in found.left_out and all("all schedules" not in b.condition for b in found.bounds)
    with pytest.raises(InputError, match="a schedule without a search of its own"):
        tune(256, 64, "64KB", stages=2, schedules="small-cache")
    assert tune(256, 64, "64KB", schedules="small-cache").winner


@pytest.mark.parametrize("parallel, copies", [(True, 1), (False, 2)])
def test_a_loop_of_the_grid_has_one_tile_in_flight(parallel, copies):
    """With two stages a loop that a thread block runs has two tiles of Q on chip. A loop whose iterations are thread
    blocks has one."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=parallel):
            chip.load("Q", i)

    found = footprint_of(text, Attention(64, 8, stages=2), Tiling(16, 16))
    assert found.smem_bytes == found.peak_bytes == copies * 16 * 8 * 2


def test_of_sets_that_leave_equally_much_the_larger_lives_in_registers():
    """X, Y and U are on chip together, 125 bytes, and then Z of 100 bytes. 70 bytes of registers hold X, or X and U: both
    leave 100 bytes of shared memory, for Z."""
    sizes = {"X": 60, "Y": 60, "U": 5, "Z": 100}
    blocks = {name: Resident(name, size, size, None) for name, size in sizes.items()}
    changes = [Change(sign, blocks[name]) for names in ("XYU", "Z") for sign in (1, -1) for name in names]
    assert Launch(changes).best(1, 70) == (100, 65, 0)
    assert Launch(changes).best(1, 4) == (125, 0, 0) and Launch(changes).best(1, 125) == (0, 125, 0)
