"""The curve of least traffic against M: every breakpoint against exhaustive search, and against golden figures."""

import json
import random
from itertools import product

import pytest
from footprints import footprints
from paths import DATA

from iosim import SCHEDULES, Attention, Schedule, Tiling, count, floor
from iosim.core.problem import TENSORS, skips_tiles
from iosim.counting.run import measure
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.search import best as best_module
from iosim.search.best import best_tiles, footprint, sizes_by_passes
from iosim.steps.softmax import zeros
from iosim.tuning.curve import curve, exact, step_at, steps
from iosim.tuning.least import curve as trace_curve
from iosim.tuning.least import space_of, tune

GOLDEN = json.loads((DATA / "golden.json").read_text())
SEARCH = GOLDEN["search_cases"] + GOLDEN["big_table_N8192_d128"]
DENSE_SPACE = [s.name for s in space_of((), Attention(8, 4)) if exact(s, Attention(8, 4))]
CAUSAL = Attention(8, 4, mask=parse_mask("causal"))
MASKED = [s.name for s in space_of((), CAUSAL) if s.skips and exact(s, CAUSAL)]


def every_tiling(schedule, p, multiple):
    """The (bytes of SRAM needed, bytes moved) of every tiling. Bytes moved come from the schedule's formula."""
    lengths = {
        "rows_q": p.N,
        "rows_k": p.Nk,
        "depth": min(3, max(p.d, p.Nk)),
        "rows_o": p.N,
        "cols_o": p.dv,
        "kept": p.Nk,
    }
    names = [n for n in lengths if n in ("rows_q", "rows_k", *schedule.more_tiles)]
    ranges = [range(multiple, lengths[n] + multiple, multiple) for n in names]
    tilings = [Tiling(**dict(zip(names, sizes, strict=True))) for sizes in product(*ranges)]
    if "ideal" in schedule.rules:
        tilings = [Tiling(1, 1)]
    for tiling, need in zip(tilings, footprints(schedule, p, tilings), strict=True):
        yield need.peak_bytes, moved(schedule, p, tiling)


def moved(schedule, p, tiling):
    kinds = {**TENSORS, **schedule.tensors}
    counts = schedule.exact_traffic(p.tiled(tiling, skips_tiles(schedule, p)), tiling)
    return p.instances * sum(int(sum(pair)) * p.hbm_bytes(kinds[name]) for name, pair in counts.items())


def staircase(pairs):
    """The steps at which the least bytes moved fall as M grows, by definition."""
    falls = []
    for M in sorted({M for M, _ in pairs}):
        words = min(w for m, w in pairs if m <= M)
        if not falls or words < falls[-1][1]:
            falls.append((M, words))
    return falls


def small(rng, most=17, **options):
    multiple = rng.choice([1, 1, 2, 3, 8])
    return Attention(rng.randint(1, most), rng.randint(1, 6), Nk=rng.randint(1, most), **options), multiple


def test_the_space_is_not_empty():
    assert {"standard", "standard-tiled", "flash1", "flash2", "memory-efficient", "small-cache"} <= set(DENSE_SPACE)
    assert {"flash1", "flash2", "memory-efficient"} <= set(MASKED)


@pytest.mark.parametrize("name", DENSE_SPACE)
def test_each_schedule_has_the_breakpoints_of_an_exhaustive_search(name):
    rng = random.Random(name)
    for _ in range(12):
        types = {"dtype": rng.choice(["fp8", "fp16", "fp32"]), "acc_dtype": rng.choice(["fp16", "fp32"])}
        most = 17 if not SCHEDULES[name].more_tiles else 5
        p, multiple = small(rng, most, lse=rng.random() < 0.5, heads=rng.choice([1, 3]), **types)
        pairs = list(every_tiling(SCHEDULES[name], p, multiple))
        found = curve([SCHEDULES[name]], p, multiple)
        assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple)


@pytest.mark.parametrize("runs", [3, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("mask", ["causal", "window:2", "causal&window:3", "global:1|strided:4"])
def test_with_a_mask_too(name, mask, runs):
    """With sizes of more than two axes, the short run takes small problems only."""
    rng = random.Random(name + mask)
    most = 6 if SCHEDULES[name].more_tiles and runs < 4 else 17
    for _ in range(runs):
        more = {"lse": rng.random() < 0.5, "keep_p": rng.random() < 0.3, "dv": rng.choice([None, 3])}
        p, multiple = small(rng, most, mask=parse_mask(mask), acc_dtype=rng.choice(["fp16", "fp32"]), **more)
        pairs = list(every_tiling(SCHEDULES[name], p, multiple))
        found = curve([SCHEDULES[name]], p, multiple)
        assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple)


def test_pairs_under_a_mask_are_exact_where_int64_is_not():
    p = Attention(100, 2**48, heads=2**12, mask=parse_mask("causal"))
    schedule = SCHEDULES["memory-efficient"]
    found = curve([schedule], p, 8)
    assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(list(every_tiling(schedule, p, 8)))
    assert found[0].total > 2**64


@pytest.mark.parametrize("name", ["block-sparse", "block-sparse-q"])
@pytest.mark.parametrize("mask", ["causal", "window:2|global:3"])
@pytest.mark.parametrize("heads", [2**8, 2**10, 2**12, 2**14])
def test_masked_candidates_are_exact_around_what_int64_holds(name, mask, heads):
    """Of the least count of each number of heads, some are a little below 2^63, and some are above."""
    p, schedule = Attention(30, 2**42, heads=heads, mask=parse_mask(mask)), SCHEDULES[name]
    found = curve([schedule], p, 4)
    assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(list(every_tiling(schedule, p, 4)))
    assert all(type(s.total_bytes) is int for s in found)
    assert (found[0].total_bytes > 2**63) == (heads > 2**11)


def loads_only(chip, p, t):
    """It multiplies nothing, so its operations do not bound its bytes."""
    for i in chip.tiles(p.N, t.rows_q):
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            chip.free(chip.load("K", j))
        chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)


def test_a_text_without_products_is_counted_exactly_too():
    schedule = Schedule("loads", loads_only, "made up", skips=True)
    p = Attention(30, 2**40, heads=2**16, mask=parse_mask("window:3"))
    found = curve([schedule], p)
    assert found[0].total_bytes > 2**63
    for step in found:
        assert step.total_bytes == measure(schedule, p, Tiling(step.Br, step.Bc))["total_bytes"]


def test_the_whole_space_has_the_breakpoints_of_an_exhaustive_search():
    rng = random.Random(5)
    for _ in range(12):
        p, multiple = small(rng, 5, acc_dtype=rng.choice(["fp16", "fp32"]))
        space = [SCHEDULES[name] for name in DENSE_SPACE]
        pairs = [pair for s in space for pair in every_tiling(s, p, multiple)]
        assert [(s.M_bytes, s.total_bytes) for s in curve(space, p, multiple)] == staircase(pairs), (p, multiple)


def test_every_step_says_how_it_is_reached():
    """The tiles of each step fit in its M and move its words. With one byte less, no tiling in the space is as good."""
    p = Attention(200, 8, acc_dtype="fp32", heads=2)
    space = [SCHEDULES[name] for name in DENSE_SPACE if not SCHEDULES[name].more_tiles]
    found = curve(space, p, 2)
    assert len(found) > 15
    for step, before in zip(found, [None, *found], strict=False):
        tiling = Tiling(step.Br or 1, step.Bc or 1)
        schedule = SCHEDULES[step.schedule]
        assert footprint(schedule, p, tiling).peak_bytes == step.M_bytes
        assert moved(schedule, p, tiling) == step.total_bytes
        tiled = [s for s in space if "ideal" not in s.rules]
        below = [best_tiles(s, p, step.M_bytes - 1, 2) for s in tiled]
        least_below = min((moved(s, p, t) for s, t in zip(tiled, below, strict=True) if t is not None), default=None)
        assert least_below == (None if before is None else before.total_bytes)


@pytest.mark.parametrize("case", SEARCH, ids=lambda c: f"{c['N']}-{c['M_elements']}")
def test_golden_searches_lie_on_the_curve(case):
    p = Attention(case["N"], case["d"])
    for name, key in (("flash1", "best_k_outer_total"), ("flash2", "best_q_outer_total")):
        step = step_at(curve([SCHEDULES[name]], p), 2 * case["M_elements"])
        assert (step and step.total) == case[key]


def test_the_end_is_compulsory_and_the_start_is_one_by_one():
    """The curve goes from 4 d + 3 words with 1x1 tiles to one query tile of all rows, where each word moves once."""
    found = curve([SCHEDULES["flash2"]], Attention(8192, 128))
    assert (found[0].M_bytes, found[0].Br, found[0].Bc) == (2 * (4 * 128 + 3), 1, 1)
    assert found[-1].total == 4 * 8192 * 128 and found[-1].Br == 8192
    assert len(found) == len({-(-8192 // n) for n in range(1, 8193)})


def test_counts_are_exact_where_int64_is_not():
    """For N = 2^33, d = 256, 2^20 heads and Tr = N, R = N d + 2 N d N and W = N d words a head. They exceed 2^63."""
    step = curve([SCHEDULES["flash2"]], Attention(2**33, 256, heads=2**20), 2**20)[0]
    tiles = 2**13
    assert step.total == 2**20 * (2 * 2**33 * 256 + 2 * 2**33 * 256 * tiles) > 2**63
    assert type(step.total) is int and type(step.M_bytes) is int


@pytest.mark.parametrize("length", [1, 2, 7, 31, 100, 1000])
@pytest.mark.parametrize("multiple", [1, 3, 16])
def test_tile_sizes_are_the_smallest_of_their_number(length, multiple):
    found = [*sizes_by_passes(length, multiple)]
    sizes = range(multiple, length + multiple, multiple)
    numbers = sorted({-(-length // s) for s in sizes}, reverse=True)
    assert found == [min(s for s in sizes if -(-length // s) == n) for n in numbers]


def test_grouped_heads_are_packed_as_they_are_counted():
    options = {"heads": 8, "kv_heads": 2, "gqa": "pack"}
    found = curve([SCHEDULES["flash2"]], Attention(40, 8, **options))
    step = step_at(found, 1000)
    assert step.total == count(40, 8, 1000, schedules=["flash2"], **options)["flash2"].total


@pytest.mark.parametrize("name", DENSE_SPACE)
@pytest.mark.parametrize("acc", ["fp16", "fp32"])
def test_the_search_at_one_m_and_the_curve_agree(name, acc):
    """Two programs find the same least on both sides of each fall, at sizes too large for an exhaustive search."""
    schedule, p = SCHEDULES[name], Attention(700, 24, Nk=500, acc_dtype=acc)
    found = curve([schedule], p, 4)
    if "ideal" in schedule.rules:
        assert [s.M_bytes for s in found] == [footprint(schedule, p, Tiling(1, 1)).peak_bytes]
        return
    for step in random.Random(name).sample(found, min(12, len(found))):
        for M in (step.M_bytes - 1, step.M_bytes):
            tiling, there = best_tiles(schedule, p, M, 4), step_at(found, M)
            assert (tiling and moved(schedule, p, tiling)) == (there and there.total_bytes), M


def test_tune_stands_on_the_curve():
    """The search at one M finds what the curve says for that M."""
    found = trace_curve(300, 16, tile_multiple=4, acc_dtype="fp32")
    for M in (300, 1000, 2000, 5000, 20_000, 40_000, 200_000):
        one = tune(300, 16, M, tile_multiple=4, acc_dtype="fp32", schedules=[s.name for s in found.space])
        step = step_at(found.steps, M)
        assert (one.winner and one.winner.total_bytes) == (step and step.total_bytes)


def test_too_many_tiles_are_refused():
    with pytest.raises(InputError, match="--N"):
        steps(SCHEDULES["flash2"], Attention(2**40, 8))
    with pytest.raises(InputError, match="pairs"):
        steps(SCHEDULES["memory-efficient"], Attention(2**24, 8))


@pytest.mark.parametrize("name", ["memory-efficient", "small-cache", "block-sparse-q", "block-sparse"])
def test_candidates_in_parts_are_those_of_one_piece(name, monkeypatch):
    rng = random.Random(name)
    for mask in ("dense", "causal", "window:2|global:3"):
        p, multiple = small(rng, 40, mask=parse_mask(mask))
        whole = curve([SCHEDULES[name]], p, multiple)
        with monkeypatch.context() as patch:
            patch.setattr(best_module, "AT_ONCE", 7)
            assert curve([SCHEDULES[name]], p, multiple) == whole != []


@pytest.mark.long
@pytest.mark.parametrize("name", ["memory-efficient", "small-cache", "flash1"])
def test_the_curve_of_half_a_million_queries(name):
    """The search at one M finds the same on both sides of some falls."""
    schedule, p = SCHEDULES[name], Attention(2**19, 128)
    found = curve([schedule], p)
    for step in random.Random(name).sample(found, 5):
        for M in (step.M_bytes - 1, step.M_bytes):
            tiling, there = best_tiles(schedule, p, M), step_at(found, M)
            assert (tiling and moved(schedule, p, tiling)) == (there and there.total_bytes), M


def test_a_schedule_with_too_many_pairs_is_left_out_under_a_mask(monkeypatch):
    """Of memory-efficient every pair of tiles is counted under a mask. The others have a curve all the same."""
    monkeypatch.setattr(best_module, "MOST_MASKED_PAIRS", 100)
    found = trace_curve(41, 7, mask="causal")  # sizes that no other test asks for, whose curve would be kept
    assert "memory-efficient" in [s.name for s in found.left_out] and "flash2" in found.own
    assert not {s.name for s in found.left_out} & {s.name for s in found.space}
    with pytest.raises(InputError, match="at most 100 pairs.*--tile-multiple 8"):
        trace_curve(41, 7, mask="causal", schedules=["memory-efficient"])


def test_a_curve_without_the_schedules_that_skip_is_refused(monkeypatch):
    """What is left would be no answer about a mask: schedules that leave out no tile."""
    for most in ("MOST_MASKED", "MOST_IN_ARRAYS"):
        monkeypatch.setattr(best_module, most, 10)
    with pytest.raises(InputError, match="at most 10 where"):
        trace_curve(41, 7, mask="strided:3")


@pytest.mark.parametrize("mask", ["causal:b", "window:2b"])
@pytest.mark.parametrize("more", [["--M", "10KB"], ["--M", "10KB", "--least-blocks", 4], ["--curve"]], ids=str)
def test_a_mask_of_tiles_has_no_least(iosim, mask, more):
    """`tune` has no --tiles, so its message is about the mask. Schedules that skip nothing take such a mask."""
    args = ["tune", "--N", 256, "--d", 16, *more, "--mask", mask]
    message = iosim(*args).stderr
    assert message.startswith(f"Error: --mask: found '{mask}'; allowed: ") and "in tokens" in message
    assert iosim(*args, "--schedule", "flash2", "--visit-all").exit_code == 0


def test_every_tile_size_is_shown(iosim, ask):
    """The sizes of a step are those of its count, and the table shows them as `--tiles` takes them."""
    args = ["tune", "--N", 40, "--d", 8, "--curve", "--schedule", "small-cache"]
    rows, text = ask(*args)["curve"], iosim(*args, "--all").stdout
    assert rows[-1]["Br"] == rows[-1]["Bc"] == 40
    for row in random.Random(3).sample(rows, 8):
        tiles = f"{row['Br']}x{row['Bc']}/{row['more_tiles']}"
        counted = count(40, 8, row["M_bytes"], schedules=["small-cache"], tiles=tiles)["small-cache"]
        assert (counted.total, counted.sram_peak_bytes) == (row["total"], row["M_bytes"]) and f" {tiles} " in text
    assert "more_tiles" not in ask(*args[:-1], "flash2")["curve"][0]


# ---------------------------------------------------------------- a range of M, and the rows that people see


@pytest.mark.parametrize("first, last", [(1, 50), (200, 200), (150, 400), (700, 100_000), (10**6, 10**6)])
def test_a_range_has_the_steps_that_apply_in_it(first, last):
    whole = trace_curve(60, 8, mask="causal").steps
    some = trace_curve(60, 8, f"{first}:{last}", mask="causal").steps
    applies = {step_at(whole, M) for M in {first, last, *(s.M_bytes for s in whole if first <= s.M_bytes <= last)}}
    assert set(some) == applies - {None} and some == sorted(some, key=lambda s: s.M_bytes)


def test_a_range_in_the_command(iosim, ask):
    args = ["tune", "--N", 2048, "--d", 64, "--curve"]
    every = ask(*args)["curve"]
    some = ask(*args, "--M", "10KB:100KB")
    inside = [row for row in every if 10 * 1024 <= row["M_bytes"] <= 100 * 1024]
    assert some["curve"][1:] == inside and len(inside) > 45
    assert some["curve"][0] == every[every.index(inside[0]) - 1], "what applies at 10 KB"
    text = iosim(*args, "--M", "10KB:100KB").stdout
    assert "For M from 10,240 B (10 KiB) to 102,400 B (100 KiB): " in text
    starts = {line.split(" B ")[0].strip() for line in text.split("\npublished")[0].splitlines()}
    shown = [row for row in some["curve"] if f"{row['M_bytes']:,}" in starts]
    assert shown[0] == some["curve"][0] and shown[-1] == some["curve"][-1] and len(shown) < 20
    assert f"{len(shown)} of {len(some['curve'])} breakpoints: each the first at which " in text
    whole = iosim(*args, "--M", "10KB:100KB", "--all").stdout
    assert all(f" {row['total']:,} " in whole for row in some["curve"])
    ends = [*(row["M_bytes"] - 1 for row in inside), 100 * 1024]
    ratios = [row["total"] / floor(Attention(2048, 64), M).words for row, M in zip(some["curve"], ends, strict=True)]
    assert f"at most {max(ratios):.3f} times the floor. For M from 10,240 B" in some["answer"]


def test_the_gap_of_a_range_is_that_of_its_last_byte():
    first = trace_curve(100, 8, schedules="flash2").steps[3]
    end = first.M_bytes + 9
    found = trace_curve(100, 8, f"{first.M_bytes + 3}:{end}", schedules="flash2")
    assert found.steps == [first]
    ratio = first.total / floor(Attention(100, 8), end).words
    assert found.answer == (
        f"The least traffic is at most {ratio:.3f} times the floor. For M from {first.M_bytes + 3} B to {end} B: "
        f"{ratio:.3f} times, flash2 at M = {end} B = {end // 2 / 64:.3g} d^2 words."
    )


def test_without_a_range_some_rows_are_shown(iosim, ask):
    args = ["tune", "--N", 2048, "--d", 64, "--curve"]
    every, text = ask(*args)["curve"], iosim(*args).stdout
    table = text[text.index("from M  sch") : text.index("\npublished")].splitlines()[2:]
    *rows, legend, said, _ = table if table[-1] == "" else [*table, ""]
    assert legend.startswith("tiles: Br x Bc; kept: keys that stay in SRAM")
    bytes_of = [int(row.split(" B ")[0].replace(",", "")) for row in rows]
    chosen = [row for row in every if row["M_bytes"] in bytes_of]
    assert len(rows) == len(chosen) < 40 < len(every) and chosen[-1] == every[-1]
    assert f"{len(rows)} of {len(every):,} breakpoints" in said and "--all" in said and "16KB:1MB" in said
    large = [row for row in every if row["M_bytes"] >= 64 * 2]
    expected = [large[0]]
    for row in large[1:-1]:
        if row["total_bytes"] <= 0.8 * expected[-1]["total_bytes"]:
            expected.append(row)
    assert chosen == [*expected, every[-1]]
    whole = iosim(*args, "--all").stdout
    assert whole.count("\n") - text.count("\n") == len(every) - len(rows) - 1 and "of a range" not in whole
