"""Tiles ranked by the bound: whole blocks by hand, ties, published tiles, and how good the ranking is."""

import json
import re
from dataclasses import replace
from math import ceil

import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling, parse_tiles
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.search.best import footprint
from iosim.studies.bound_tiles import TIE, at_least, goodness, in_order
from iosim.studies.roofline import kept, roofline

ranking = pytest.importorskip("ranking", exc_type=ImportError)
tiles_by_time = pytest.importorskip("tiles_by_time", exc_type=ImportError)
FILE, found = ranking.FILE, ranking.found
FLASH2, measured, problem = tiles_by_time.FLASH2, tiles_by_time.measured, tiles_by_time.problem

LINE = ("tune", "--N", 4096, "--d", 128, "--heads", 32, "--by", "time", "--hardware", "h100")


def test_equal_blocks_run_in_turns():
    """132 blocks on 132 multiprocessors take one turn, and 133 take two."""
    for heads, turns in ((132, 1), (133, 2), (264, 2), (66, 1)):
        p = Attention(128, 64, Nk=4096, heads=heads, acc_dtype="fp32")
        found = at_least(find("flash2"), p, Tiling(128, 64), load("h200"))
        one = at_least(
            find("flash2"), Attention(128, 64, Nk=4096, heads=132, acc_dtype="fp32"), Tiling(128, 64), load("h200")
        )
        assert found.blocks == heads and found.seconds == pytest.approx(turns * one.seconds, rel=1e-12)


def test_whole_blocks_by_hand(ask):
    """The bound of `roofline` in turns of blocks: 32 x 4096 / 256 = 512 of them on 132 multiprocessors are four turns."""
    rows = ask(*LINE, "--schedule", "flash2")["results"]
    for row in rows:
        (bound,) = roofline(4096, 128, "h100", heads=32, schedules="flash2", tiles=f"{row['Br']}x{row['Bc']}").rows
        many = 32 * ceil(4096 / row["Br"])
        assert row["blocks"] == many and row["sm_bytes"] == bound.work.total_bytes and row["bound_by"] == "matrix"
        assert row["seconds"] == pytest.approx(bound.ideal_l2_seconds * ceil(many / 132) * 132 / many, rel=1e-12)


def test_under_a_mask_blocks_are_balanced_and_no_more_than_all_multiprocessors_work():
    p = Attention(4096, 128, heads=32, acc_dtype="fp32", mask=parse_mask("causal"))
    for tiles, heads in (("128x128", 32), ("256x64", 2)):
        (bound,) = roofline(4096, 128, "h200", heads=heads, mask="causal", schedules="flash2", tiles=tiles).rows

        found = at_least(find("flash2"), replace(p, heads=heads, kv_heads=heads), parse_tiles(tiles), load("h200"))
        assert found.seconds == pytest.approx(bound.ideal_l2_seconds * max(1, 132 / found.blocks), rel=1e-12)


def test_ratios_are_to_the_least_time_of_all(ask, iosim):
    """No row is faster than the fastest. The first of a schedule is named for its ties, as the least time is of others."""
    line = ("tune", "--N", 8192, "--d", 128, "--heads", 32, "--causal", "--by", "time", "--hardware", "h100")
    rows = ask(*line)["results"]
    p = Attention(8192, 128, heads=32, acc_dtype="fp32", mask=parse_mask("causal"))
    sizes = [16 * k for k in range(1, 17)]
    tilings = [Tiling(Br, Bc) for Br in sizes for Bc in sizes]
    fitting = [t for t in tilings if footprint(find("flash2"), p, t).smem_bytes <= load("h100").sram_bytes]
    least = min(at_least(find("flash2"), p, tiling, load("h100")).seconds for tiling in fitting)
    assert all(row["seconds_over_fastest"] >= 1 for row in rows)
    assert rows[0]["seconds"] / rows[0]["seconds_over_fastest"] == pytest.approx(least, rel=1e-12)
    assert 1 < rows[0]["seconds_over_fastest"] < TIE and rows[0]["chosen_by"] == "time"
    text = iosim(*line).stdout
    assert f"within 5% of the least time, {least * 1e6:,.1f} us" in text and "flash2          time, to 5%" in text


def test_ties_go_to_fewer_bytes_then_to_fewer_operations():
    chip, p = load("h200"), Attention(2048, 128, heads=66, acc_dtype="fp32")
    every = [at_least(find("flash2"), p, Tiling(rows, keys), chip) for rows in (64, 128, 256) for keys in (16, 64, 128)]
    ranked = in_order(every)
    first, least = ranked[0], min(one.seconds for one in every)
    ties = [one for one in every if one.seconds <= TIE * least]
    assert first.seconds <= TIE * least and len(ties) > 1
    assert first.sm_bytes == min(one.sm_bytes for one in ties)
    assert first.operations == min(one.operations for one in ties if one.sm_bytes == first.sm_bytes)
    assert in_order(list(reversed(every))) == ranked


@pytest.mark.parametrize("mask", [(), ("--causal",)], ids=str)
def test_published_tiles_stand_beside(ask, iosim, mask):
    got = ask(*LINE, *mask)
    by = {row["chosen_by"] for row in got["results"]}
    assert by == {"time", "traffic", "FA2", "FA3"} and got["not_predicted"] == {}
    fa3 = next(row for row in got["results"] if row["chosen_by"] == "FA3")
    assert (fa3["Br"], fa3["Bc"]) == ((128, 128) if mask else (128, 176))
    first = min(got["results"], key=lambda row: row["chosen_by"] != "time")
    said = f"flash2 with {first['Br']}x{first['Bc']} takes at least {first['seconds'] * 1e6:,.1f} us; of "
    assert (
        got["answer"].startswith(said) and " it moves the fewest bytes within 5% of the least time, " in got["answer"]
    )
    text = iosim(*LINE, *mask).stdout
    assert text.startswith(got["answer"] + "\n")
    assert (
        "\ntimes at the peaks of H100 with an ideal L2, in whole blocks on 132 multiprocessors, each with its share"
        in text
    )


def test_idle_multiprocessors_are_named_and_splits_that_use_them(ask):
    """One query of 32 heads has 32 blocks. The time in whole blocks is no bound if the HBM binds, and the splits that
    are named take what is said."""
    line = ("tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--by", "time", "--hardware", "h100")
    one = ask(*line)
    first = one["results"][0]
    assert first["blocks"] == 32 and "at least" not in one["answer"]
    said = f"takes {first['seconds'] * 1e6:,.1f} us if a multiprocessor has its share of the HBM's rate and no more;"
    assert said in one["answer"]
    advice = re.search(r"32 blocks for 132 multiprocessors: (--.*) has (\d+) and takes ([\d.]+) us\.$", one["answer"])
    split = ask(*line, *advice[1].split())
    row = split["results"][0]
    assert (row["blocks"], f"{row['seconds'] * 1e6:,.1f}") == (int(advice[2]), advice[3])
    assert row["seconds"] < first["seconds"] / 2 and "--splits" not in split["answer"]


@pytest.mark.parametrize(
    ("line", "splits"),
    [
        ("--N 4096 --d 64 --hardware rtx-3090", None),
        ("--N 4096 --d 64 --hardware h100", None),
        ("--N 1 --Nk 8192 --d 128 --heads 32 --kv-heads 8 --gqa pack --hardware h100 --schedule split-kv --splits 8", 16),
        ("--N 1 --Nk 8192 --d 128 --heads 32 --kv-heads 8 --gqa pack --hardware h100 --schedule split-kv --splits 32", None),
    ],
)  # fmt: skip
def test_splits_are_named_only_where_they_take_less_time(ask, line, splits):
    answer = ask("tune", *line.split(), "--by", "time")["answer"]
    found = re.search(r"--splits (\d+)", answer)
    assert (found and int(found[1])) == splits


# ---------------------------------------------------------------- against what was measured


def test_the_ranking_is_as_good_as_it_says(iosim):
    """The figures are those of the kept measurements today, and the answer has them."""
    kept_figures, text = found(), iosim(*LINE).stdout
    assert json.loads(FILE.read_text()) == kept_figures == dict(goodness())
    assert kept_figures["kernels"] > 600 and kept_figures["calls"] > 100
    least, median, most = (f"{share:.3g}" for share in kept_figures["first_over_fastest"])
    assert (
        f"its first tiles took {least} to {most} times as long as the fastest (median {median}; rank correlation"
        in text
    )


def test_no_measured_kernel_is_faster_than_its_whole_blocks():
    """Generated kernels with their own tiles; PyTorch's dense prefill with those that explain it, 128x128."""
    chip = load("h200")
    for folder in (FILE.parents[2] / "validation" / "h200-2026-11-22",):
        for shape, times in measured(folder).items():
            for tiles, seconds in times.items():
                assert seconds > at_least(FLASH2, problem(*shape), parse_tiles(tiles), chip).seconds
    for one in kept():
        if one.kernel in ("torch-flash", "torch-cudnn") and one.problem.N > 16:
            assert one.seconds > at_least(find("flash2"), one.problem, Tiling(128, 128), load(one.gpu)).seconds, one
