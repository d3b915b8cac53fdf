"""Where one schedule moves less than others, over M and over N, and where the gap to the floor is largest: against
counts at every single M and N."""

import random
import re
from bisect import bisect_right
from dataclasses import replace
from math import inf, log2

import pytest
from paths import DOCS

import iosim as package
from iosim import Attention, count, curve, over_N, tune
from iosim.core.tiling import Tiling
from iosim.counting.bounds import floor_of
from iosim.counting.run import choose_tiling, measure
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.tuning.every_M import Gap, answer_lines, ends_of_steps, worst
from iosim.tuning.sides import side_of, sides_of
from iosim.tuning.where import Interval, Stretch, Where, intervals, octaves, stretches, united, where, where_on_axis

# ---------------------------------------------------------------- intervals and stretches


def staircase(rng, most):
    """A falling staircase: the number that it has at each of 1 to `most`."""
    starts = sorted(rng.sample(range(1, most + 1), rng.randint(0, 6)))
    heights = sorted(rng.sample(range(1, 12), len(starts)), reverse=True)
    return lambda M: ([inf, *heights])[bisect_right(starts, M)]


def runs(numbers):
    return united(Interval(k, k) for k in numbers)


@pytest.mark.parametrize("seed", range(200))
def test_intervals_of_two_staircases_are_those_of_every_number(seed):
    rng = random.Random(seed)
    most = rng.randint(6, 40)
    below, above = staircase(rng, most), staircase(rng, most)

    def less(low, high):
        return True if below(low) < above(high) else False if below(high) >= above(low) else None

    true = [M for M in range(1, most + 1) if below(M) < above(M)]
    assert intervals(less, 1, most) == where(less, most).intervals == runs(true)
    always = max({*range(most + 1)} - {*true}) + 1
    assert where(less, most).always_from == (always if always <= most else None)


@pytest.mark.parametrize("seed", range(100))
def test_stretches_have_the_numbers_of_the_intervals_and_short_gaps(seed):
    rng = random.Random(seed)
    numbers = [k for k in range(1, 400) if (k // rng.randint(20, 30)) % 3 or rng.random() < 0.2]
    places, length = runs(numbers), octaves(399)
    found = stretches(places, length)
    inside = {k for part in found for k in range(part.whole.first, part.whole.last + 1)}
    gaps = [one for part in found for one in part.gaps]
    assert inside - {k for one in gaps for k in range(one.first, one.last + 1)} == set(numbers)
    assert [length(part.whole) for part in found] == sorted((length(part.whole) for part in found), reverse=True)
    for gap in gaps:
        after = next(one for one in places if one.first == gap.last + 1)
        assert 4 * log2((gap.last + 1) / gap.first) <= log2((after.last + 1 if after.last < 399 else 799) / after.first)


def test_a_gap_that_is_long_beside_a_neighbour_parts_two_stretches():
    parted = [Stretch(Interval(102, 899)), Stretch(Interval(98, 99))]
    assert stretches(runs([98, 99, *range(102, 900)]), octaves(2000)) == parted
    (whole,) = stretches(runs([*range(10, 100), *range(102, 900)]), octaves(2000))
    assert whole == Stretch(Interval(10, 899), (Interval(100, 101),))
    assert octaves(2000)(Interval(1000, 2000)) == log2(4001 / 1000), "without end it counts up to twice that number"
    endless = stretches(runs([*range(10, 100), 2000]), octaves(2000))
    assert endless[0].whole == Interval(10, 99), "without end counts as one doubling here"
    quarter = Where(runs([1, 2, 3, 4, 6, 7, 8, 9]), 10, range(11))
    assert quarter.stretches == [Stretch(Interval(1, 9), (Interval(5, 5),))]
    assert len(Where(runs([1, 2, 3, 5, 6, 7, 8, 9]), 10, range(11)).stretches) == 2


@pytest.mark.parametrize("true, text, brief", [
    (range(4, 10), "from M = 4 on, and nowhere else", "from 4 on"),
    ([1, 2, 5, 6, 7, 8, 9], "from M = 5 on, and in 1 shorter stretch", "from 5 on; 1 to 2"),
    ([3, 4, 7], "from M = 3 to 4, and in 1 shorter stretch", "3 to 4; 7"),
    ([6], "at M = 6, and nowhere else", "6"),
    ([9], "from M = 9 on, and nowhere else", "from 9 on"),
    ([2, 3, 4, 5, 6, 7, 9], "from M = 2 on, but for the gap from 8 to 8, and nowhere else", "from 2 on, 1 gap"),
    ([1, 3, 5, 7], "at M = 1, and in 3 shorter stretches", "1; 3; 2 more"),
    ([], "at no M", "nowhere"),
], ids=str)  # fmt: skip
def test_it_says_where(true, text, brief):
    found = Where(runs(true), 9)
    assert (found.text(), found.brief()) == (text, brief)


def test_it_says_at_which_N():
    axis = range(16, 144, 16)
    assert where_on_axis([False, True] * 4, axis).brief() == "32; 64; 2 more"
    found = where_on_axis([False, *[True] * 7], axis)
    assert (found.text(), found.always_from, found.rows()) == (
        "from N = 32 to 128, and nowhere else", 32, [{"from_N": 32, "to_N": 128}],
    )  # fmt: skip
    assert where_on_axis([False] * 8, axis).text() == "at no N up to 128"


# ---------------------------------------------------------------- over M and over N


def moved(side, p, M, known):
    """The bytes of a side at an M, with the tiles of this M alone. `known` has the bytes of tiles that were counted."""
    (schedule, rule), p = side, p.packed
    tiling = choose_tiling(schedule, rule, p, M, 1)
    if isinstance(rule, Tiling) and measure(schedule, p, rule)["smem_peak_bytes"] > M:
        return inf
    if tiling is not None and (side, tiling) not in known:
        known[side, tiling] = measure(schedule, p, tiling)["total_bytes"]
    return inf if tiling is None else known[side, tiling]


SIDES = [
    ("flash1:paper,standard", {}), ("flash1,standard", {}), ("flash2,standard-tiled", {}), ("flash2,small-cache", {}),
    ("flash2,small-cache,small-cache-q", {}), ("flash2:3x2,flash1:paper,flash2", {"heads": 2}),
    ("flash1,flash2", {"heads": 4, "kv_heads": 2, "gqa": "pack"}), ("block-sparse,block-sparse-q", {"mask": "causal"}),
    ("memory-efficient,flash2", {"mask": "window:2", "dv": 2}), ("flash1-bwd,flash2-bwd", {"batch": 2}),
]  # fmt: skip


@pytest.mark.parametrize("names, options", SIDES, ids=str)
def test_where_each_moves_less_is_what_every_single_M_says(names, options):
    rng, sides = random.Random(names), sides_of(names)
    for _ in range(2):
        p = Attention(rng.randint(2, 9), rng.randint(1, 4), Nk=rng.randint(2, 9), dtype=rng.choice(["fp8", "fp16"]))
        p = replace(p, **{**options, "mask": parse_mask(options.get("mask", "dense"))})
        most, known = 2 * p.word_bytes * (p.N * p.Nk + (p.N + p.Nk) * (3 * p.d + 2)), {}
        found = curve(p.N, p.d, schedules=names, Nk=p.Nk, dtype=p.dtype, **options).moves_less
        bytes_of = {side: [moved(side, p, M, known) for M in range(1, most)] for side in sides}
        assert [one.side for one in found] == sides
        for one in found:
            others = zip(*(bytes_of[side] for side in one.others), strict=True)
            less = [M for M, (a, b) in enumerate(zip(bytes_of[one.side], others, strict=True), 1) if a < min(b)]
            where = one.where
            assert where.most < most
            assert [
                M for M in range(1, most) if any(x.first <= M <= (where.end_of(x) or M) for x in where.places)
            ] == less
            if (M := where.always_from) is not None:
                above = min(bytes_of[side][M - 1] for side in one.others)
                assert (one.below_bytes, one.above_bytes or inf) == (bytes_of[one.side][M - 1], above)


@pytest.mark.parametrize("names, M, options", [
    ("flash2,standard", 300, {}), ("flash1,standard-tiled", 500, {"heads": 2}), ("small-cache,flash2", 150, {}),
    ("block-sparse-q,flash2", 400, {"mask": "causal"}), ("flash1:paper,flash2:4x2,standard", 200, {}),
], ids=str)  # fmt: skip
def test_over_N_it_is_what_every_N_says(names, M, options):
    found, sides = over_N("1:24:+1", 4, M, schedules=names, **options), sides_of(names)
    own = {**options, "mask": parse_mask(options.get("mask", "dense"))}
    bytes_of = {side: [moved(side, Attention(N, 4, **own), M, {}) for N in range(1, 25)] for side in sides}
    for one in found.moves_less:
        others = zip(*(bytes_of[side] for side in one.others), strict=True)
        less = [N for N, (a, b) in enumerate(zip(bytes_of[one.side], others, strict=True), 1) if a < min(b)]
        assert one.where.intervals == runs(less)
    assert [row["M_bytes"] for row in found.to_rows()] == [M] * len(sides) and found.axis[-1] == 24


def test_every_interval_of_the_command_is_what_counts_say(ask):
    """At the first and last byte of each interval, and one byte outside of it."""
    found = ask("tune", "--curve", "--N", 300, "--d", 16, "--schedule", "flash2-one-room,flash2")["moves_less"][0]
    assert len(found["intervals"]) > 20 and (found["schedule"], found["than"]) == ("flash2-one-room", "flash2")

    def less(M):
        one, two = count(300, 16, M, schedules="flash2,flash2-one-room", tiles="best").results
        return two.total_bytes is not None and (one.total_bytes is None or two.total_bytes < one.total_bytes)

    for part in random.Random(1).sample(found["intervals"], 12):
        low, high = part["from_M_bytes"], part["to_M_bytes"]
        assert less(low) and less(high) and not less(low - 1) and not less(high + 1)


def test_sources_say_where_the_algorithms_break_even():
    """Paper tiles from about 3 d^2 words on (24 to 25 KiB for d = 64, 93 to 96 KiB for d = 128), and flash2 from 1.0 to
    1.1 d^2 words on."""
    for d in (64, 128):
        for names, low, high in (("flash1:paper,standard", 2.9, 3.1), ("flash2,standard", 1.0, 1.06)):
            row = curve(8192, d, schedules=names).to_dict()["moves_less"][0]
            assert low < row["M_over_d2"] < high and row["M_words"] == row["M_bytes"] // 2


def test_the_stretches_in_the_docs(ask):
    less, more = ask("tune", "--curve", "--N", 8192, "--d", 128, "--schedule", "flash2,flash1")["moves_less"]
    gaps = [(one["from_M_bytes"], one["to_M_bytes"]) for one in more["intervals"]]
    text = (DOCS / "tiles.md").read_text().split("<!-- stretches -->")[1]
    said = [int(x) for x in re.findall(r"(\d+)(?: B| to)", text.replace(",", ""))]
    assert said == [less["from_M_bytes"], *gaps[0], *gaps[1], less["M_bytes"]] and less["gaps"] == 2


def test_what_is_no_side():
    for names, said in (("flash2:paper", "tiles of flash2"), ("flash1:2", "128x64"), ("flash9:paper", "flash9")):
        with pytest.raises(InputError, match=said):
            curve(64, 8, schedules=names)
    for options, said in (({"schedules": "flash2"}, "two schedules"), ({"schedules": "flash2,state-fused"}, "family")):
        with pytest.raises(InputError, match=said):
            over_N("64,128", 8, "1KB", **options)
    assert side_of("flash2:8x4").name == "flash2:8x4" and side_of("standard").rule == "ideal"


# ---------------------------------------------------------------- the gap to the floor

PROBLEMS = [
    (48, 6, "dense", ()), (40, 8, "causal", ("block-sparse-q", "flash2")), (33, 4, "window:5", ("block-sparse",)),
]  # fmt: skip


def gaps(found):
    """The gap at the last byte of each step of a curve."""
    p = found.problem
    return [Gap(M, step.schedule, step.total, floor_of(p, M, "attention")) for M, step in ends_of_steps(found)]


@pytest.mark.parametrize("N, d, mask, names", [*PROBLEMS, (300, 16, "dense", ())])
def test_the_largest_gap_is_that_of_all_steps(N, d, mask, names):
    """Of all steps, and of any that follow each other, also where words rise from one to the next."""
    found, rng = curve(N, d, mask=mask, schedules=names), random.Random(N)
    p, ends = found.problem, ends_of_steps(found)
    for k in range(60):
        some = ends if k % 2 else [(M, replace(step, total=rng.randint(600, 3000))) for M, step in ends]
        known = [Gap(M, step.schedule, step.total, floor_of(p, M, "attention")) for M, step in some]
        start = rng.randrange(len(some))
        part = slice(start, rng.randint(start + 1, len(some)))
        assert worst(p, "attention", some[part]) == max(known[part], key=lambda gap: gap.ratio)


@pytest.mark.parametrize("N, d, mask, names", PROBLEMS)
def test_no_gap_between_the_steps_is_larger(N, d, mask, names):
    """At every single byte of M the ratio is at most that of the end of its step; rows have the floor of their M."""
    found = curve(N, d, mask=mask, schedules=names)
    known, starts = gaps(found), [step.M_bytes for step in found.steps]
    assert len(known) == len(found.steps) - 1
    for M in range(starts[0], starts[-1]):
        k = bisect_right(starts, M) - 1
        assert found.steps[k].total / floor_of(found.problem, M, "attention") <= known[k].ratio
    for row in found.to_rows():
        assert row["floor_words"] == package.floor(found.problem, row["M_bytes"]).words
        assert row["ratio_to_floor"] == row["total"] / row["floor_words"] >= 1


@pytest.mark.parametrize("N, d", [(8192, 128), (2048, 32)])
def test_the_sentence_names_the_largest(N, d):
    found = curve(N, d)
    pattern = r"For M [^:]+: ([\d.]+) times, ([\w-]+) at M = ([\d,]+) B = ([\d.]+) d\^2 words\."
    named = re.findall(pattern, " ".join(answer_lines(found)))
    assert len(named) == 3
    for ratio, name, M, share in named:
        M = int(M.replace(",", ""))
        searched = tune(N, d, M)
        least = {r.schedule for r in searched.results if r.total == searched.winner.total}
        assert name in least and f"{searched.winner.ratio_to_floor:.3f}" == ratio
        assert float(share) == pytest.approx(M // 2 / d**2, rel=0.006)
    assert f" {max(ratio for ratio, *_ in named)} times the floor, from M = d words on." in answer_lines(found)[0]
    assert max(ratio for ratio, *_ in named) == f"{max(g.ratio for g in gaps(found) if g.M_bytes >= 2 * d):.3f}"


def test_where_the_gap_is_largest_for_large_sizes():
    """The table of docs/tiles.md, and what the page says of it."""
    text = (DOCS / "tiles.md").read_text()
    table = re.search(r"<!-- gap -->\n(.*?)<!-- gap -->", text, re.S)[1]
    ratios = {}
    for share, ratio, name in re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\w-]+) \|$", table, re.M):
        M, names = f"{int(float(share) * 4096**2)}el", "small-cache,small-cache-q,flash2"
        best = min(count(2**20, 4096, M, schedules=names, tiles="best").results, key=lambda r: r.total)
        assert (f"{best.ratio_to_floor:.3f}", best.schedule) == (ratio, name)
        ratios[float(share)] = best.ratio_to_floor
    assert len(ratios) >= 6 and max(ratios, key=ratios.get) == 1.0
    assert "is largest at M = d^2" in " ".join(text.split())
