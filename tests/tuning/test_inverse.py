"""The least M for a goal (`tune --at-most`, `--x-floor`): against the search and the floor at every single M."""

import csv
import io
import random
import re
from fractions import Fraction
from functools import cache

import pytest
from paths import DOCS

import iosim as package
from iosim import Attention, floor, least_M, tune
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.tuning.curve import step_at

PROBLEMS = [  # N, d, and other options
    (30, 4, {}),
    (24, 3, {"mask": "causal", "heads": 2}),
    (17, 5, {"acc_dtype": "fp32", "Nk": 40, "schedules": "flash1,flash2"}),
    (32, 4, {"tile_multiple": 4, "dtype": "fp32", "schedules": "flash2,standard-tiled"}),
    (20, 4, {"kv_dtype": "fp8", "schedules": "flash2", "mask": "window:5"}),
    (12, 4, {"register_bytes": 64, "schedules": "flash2,flash1", "acc_dtype": "fp32"}),
    (16, 4, {"schedules": "flash1-bwd,flash2-bwd"}),
    (20, 4, {"schedules": "standard-tiled"}),
    (3, 4, {"Nk": 50, "least_blocks": 6, "schedules": "split-kv,flash2"}),
]
ids = str


def problem_of(N, d, options):
    own = {k: v for k, v in options.items() if k not in ("schedules", "tile_multiple", "least_blocks")}
    return Attention(N, d, **{**own, "mask": parse_mask(own.get("mask", "dense"))})


def searched(N, d, M, options):
    """The result of the search at one M; None if nothing fits."""
    given = {k: v for k, v in options.items() if k != "schedules"}
    return tune(N, d, M, schedules=options.get("schedules", ()), **given).winner


def widths(p):
    return min({"fp8": 1, "fp16": 2, "fp32": 4}[kind] for kind in (p.dtype, p.acc_dtype, p.cache_dtype))


@pytest.mark.parametrize("N, d, options", PROBLEMS, ids=ids)
def test_the_least_M_is_that_of_the_search(N, d, options):
    """At that M the search finds a schedule that moves few enough, and with one byte less it finds none."""
    steps = package.curve(N, d, **options).steps
    goals = {
        step.total_bytes + extra for step in random.Random(N).sample(steps, min(6, len(steps))) for extra in (0, 1)
    }
    for goal in goals:
        found = least_M(N, d, at_most=goal, **options)
        there, below = (searched(N, d, M, options) for M in (found.M_bytes, found.M_bytes - 1) if M)
        assert there.total_bytes <= goal and (below is None or below.total_bytes > goal)
        (winner,) = [row for row in found.to_rows() if row["schedule"] == found.step.schedule]
        assert (winner["M_bytes"], winner["total_bytes"]) == (found.M_bytes, there.total_bytes)
        assert winner["ratio_to_least_M"] == 1.0 == min(row["ratio_to_least_M"] or 9 for row in found.to_rows())


@pytest.mark.parametrize("N, d, options", [p for p in PROBLEMS if "bwd" not in str(p)], ids=ids)
def test_what_is_proven_is_what_the_floor_says_at_every_M(N, d, options):
    p, steps = problem_of(N, d, options), package.curve(N, d, **options).steps
    floors = {M: floor(p, M).words * widths(p) for M in range(widths(p), steps[-1].M_bytes + 1)}  # of one word and more
    for step in steps:
        found = least_M(N, d, at_most=step.total_bytes, **options)
        excluded = [M for M in floors if found.M_bytes >= M and floors[M] > step.total_bytes]
        assert excluded == [*range(widths(p), found.none_below or 0)], "the floor falls with M"
        assert (found.none_below or 0) <= found.M_bytes


@pytest.mark.parametrize("seed", range(12))
def test_floors_fall_with_M(seed):
    """What `--x-floor` halves its steps by."""
    rng = random.Random(seed)
    d, N = rng.choice([1, 2, 5, 16, 64]), rng.choice([1, 7, 64, 300])
    p = Attention(N, d, Nk=rng.choice([N, 3, 2 * N]), dv=rng.choice([d, max(1, d // 2)]),
                  mask=parse_mask(rng.choice(["dense", "causal"])))  # fmt: skip
    words = [floor(p, 2 * M).words for M in range(1, 900)]
    assert words == sorted(words, reverse=True)


@cache
def floor_words(p, M):
    """The floor in words at an M in bytes. All factors of a problem are compared with the same ones."""
    return floor(p, M).words


@pytest.mark.parametrize("factor", ["1", "1.05", "1.3", "2", "3.125", "5"])
@pytest.mark.parametrize("N, d, options", [PROBLEMS[k] for k in (0, 1, 2, 5, 7)], ids=ids)
def test_the_M_within_a_factor_are_those_of_every_M(N, d, options, factor):
    p, steps = problem_of(N, d, options), package.curve(N, d, **options).steps
    found = least_M(N, d, x_floor=factor, **options)
    last = 2 * found.most
    within = [
        M
        for M in range(1, last)
        if (step := step_at(steps, M)) and Fraction(step.total, floor_words(p, M)) <= Fraction(factor)
    ]
    said = found.to_dict()["intervals"]
    assert within == [M for one in said for M in range(one["from_M_bytes"], (one["to_M_bytes"] or last - 1) + 1)]
    failing = max({*range(1, last)} - {*within})
    assert found.where.always_from == (None if failing == last - 1 else failing + 1)
    assert found.to_dict()["first_M_bytes"] == (within[0] if within else None)


def test_a_factor_may_be_reached_at_one_byte_of_M():
    p = Attention(100, 4)
    for step in least_M(100, 4, x_floor=2, schedules="flash1").curve.steps[::5]:
        exact = f"{step.total}/{floor(p, step.M_bytes).words}"
        found = least_M(100, 4, x_floor=exact, schedules="flash1")
        assert any(one.first == step.M_bytes for one in found.where.intervals)
        if floor(p, step.M_bytes + 2).words < floor(p, step.M_bytes).words:
            assert any(one.first == step.M_bytes and one.last < step.M_bytes + 2 for one in found.where.intervals)


def test_a_factor_is_taken_exactly_as_its_decimals_say():
    """flash1 moves 5 / 4 of the floor at its last M, where the floor is compulsory."""
    ratio = Fraction(least_M(64, 4, x_floor=9, schedules="flash1").curve.steps[-1].total, floor(Attention(64, 4)).words)
    exact = f"{float(ratio)}"
    assert Fraction(exact) == ratio, "a decimal number"
    assert least_M(64, 4, x_floor=exact, schedules="flash1").where.always_from is not None
    below = str(Fraction(exact) - Fraction(1, 10**12))
    assert least_M(64, 4, x_floor=below, schedules="flash1").where.always_from is None


# ---------------------------------------------------------------- sentences


def test_the_sentences_on_at_most(ask):
    said = ask("tune", "--N", 2048, "--d", 64, "--at-most", "8MiB")
    M, least = said["M_bytes"], said["winner"]
    moved, tiles = re.escape(f"{least['total_bytes']:,} B ("), f"{least['Br']}x{least['Bc']}"
    first = rf"The least M for at most 8,388,608 B \(8 MiB\) is {M:,} B \(.*\): {least['schedule']} \({tiles}\) moves {moved}"
    assert re.match(first, said["answer"]) and said["none_below_M_bytes"] < M and said["impossible"] is False
    none = f"No algorithm for exact attention by standard products does so below M = {said['none_below_M_bytes']:,} B"
    assert none in said["answer"] and said["class"].startswith("exact attention")
    assert "every" not in said and said["at_most_bytes"] == 8 * 2**20


def test_what_no_algorithm_can_do_is_said_so(ask):
    """Q, K, V and O are 4 N d words of two bytes."""
    least = 4 * 64 * 8 * 2
    under, at = (ask("tune", "--N", 64, "--d", 8, "--at-most", goal) for goal in (least - 1, least))
    assert under["impossible"] and under["M_bytes"] is under["winner"] is under["none_below_M_bytes"] is None
    assert f"No exact algorithm moves at most {least - 1:,} B" in under["answer"]
    assert f"at any M: it moves {least:,} B (4 KiB) or more." in under["answer"]
    assert at["M_bytes"] and not at["impossible"]


def test_the_sentences_on_a_factor(ask):
    said = ask("tune", "--N", 2048, "--d", 64, "--x-floor", "1.2")
    first = re.search(
        r"Its longest range is from M = ([\d,]+) B [^)]*\) to ([\d,]+)",
        said["answer"],
    )
    assert [int(x.replace(",", "")) for x in first.groups()] == [said["from_M_bytes"], said["to_M_bytes"]]
    lead = "The least traffic is within a factor of 1.2 of the floor from M = "
    ends = f"{lead}{said['always_from_M_bytes']:,} B ", f"at no M below {said['first_M_bytes']:,} B "
    assert all(end in said["answer"] for end in ends)
    assert said["stretches"][0]["from_M_bytes"] == said["from_M_bytes"] and said["x_floor"] == 1.2
    inside = tune(2048, 64, said["from_M_bytes"]).winner.ratio_to_floor
    assert (
        inside
        == said["stretches"][0]["ratio_to_floor"]
        <= 1.2
        < tune(2048, 64, said["from_M_bytes"] - 1).winner.ratio_to_floor
    )


def test_a_csv_without_a_row_has_its_header(iosim):
    line = ("tune", "--N", 64, "--d", 8, "--schedule", "standard-tiled", "--csv", "--x-floor")
    never, reached = (iosim(*line, factor).stdout.splitlines() for factor in ("1.01", "3"))
    assert len(never) == 1 and set(never[0].split(",")) <= set(reached[0].split(",")) and len(reached) > 1


def test_a_factor_that_is_never_reached_names_the_nearest(ask):
    said = ask("tune", "--N", 64, "--d", 8, "--x-floor", "1.01", "--schedule", "standard-tiled")
    ratio, M = re.search(r"at no M: the nearest is a factor of ([\d.]+), at M = (\d+) B", said["answer"]).groups()
    there = tune(64, 8, int(M), schedules="standard-tiled").winner
    assert (
        float(ratio) == pytest.approx(there.ratio_to_floor, rel=1e-3) and said["intervals"] == said["stretches"] == []
    )
    assert said["from_M_bytes"] is said["always_from_M_bytes"] is said["first_M_bytes"] is None


@pytest.mark.parametrize("goal, fits", [("160MiB", True), ("64MiB", False)])
def test_the_sram_of_a_gpu_is_compared(goal, fits, ask):
    line = ("tune", "--N", 8192, "--d", 128, "--at-most", goal, "--hardware", "h100", "--schedule", "flash2")
    said, sram = ask(*line), load("h100").sram_bytes
    assert said["hardware"] == {"name": "H100", "M_bytes": sram, "fits": fits} and (said["M_bytes"] <= sram) == fits
    assert (
        f"H100 has {sram:,} B (227 KiB) for a thread block: {'enough' if fits else 'too little; the least'}"
        in said["answer"]
    )
    both = ask("tune", *line[1:6], goal, "--hardware", "h100,t4", "--schedule", "flash2")["answers"]
    assert [one["hardware"]["name"] for one in both] == ["h100", "t4"] or len(both) == 2


# ---------------------------------------------------------------- the table, CSV, Python and sweeps


def test_rows_say_what_each_schedule_needs(ask, iosim):
    line = ("tune", "--N", 512, "--d", 64, "--at-most", "1MiB")
    rows = ask(*line)["results"]
    for row in rows:
        alone = least_M(512, 64, at_most="1MiB", schedules=row["schedule"])
        assert row["M_bytes"] == alone.M_bytes and (alone.M_bytes is not None or row["total_bytes"] > 2**20)
    M = [row["M_bytes"] for row in rows if row["M_bytes"]]
    assert sorted(M) == M and {row["schedule"] for row in rows if row["dominated_by"]} >= {"paged", "split-kv"}
    text = iosim(*line).stdout
    assert (
        "\npaged " not in text
        and "that need no less M than flash2" in text
        and "\npaged " in iosim(*line, "--all").stdout
    )
    written = list(csv.DictReader(io.StringIO(iosim(*line, "--csv").stdout)))
    assert [row["schedule"] for row in written] == [row["schedule"] for row in rows]
    assert iosim(*line).stdout == f"{least_M(512, 64, at_most='1MiB')}\n"


@pytest.mark.parametrize("N, d", [(1024, 64), pytest.param(8192, 128, marks=pytest.mark.long)])
def test_many_stretches_are_shown_in_part(N, d, iosim, ask):
    line = ("tune", "--N", N, "--d", d, "--x-floor", 1.2)
    whole, some = iosim(*line, "--all").stdout, iosim(*line).stdout
    count = len(ask(*line)["stretches"])
    assert (
        count > 10
        and f"10 of {count} stretches, those of most doublings of M first; --all" in some
        and "of {count}" not in whole
    )
    assert whole.count("\n") == some.count("\n") - 1 + count - 10
    assert iosim(*line, "--csv").stdout.count("\n") == count + 1


def test_the_numbers_in_the_docs():
    _, goal, _, within, _ = re.split("<!-- (?:goal|within) -->", (DOCS / "tiles.md").read_text().replace(",", ""))
    most, factor = least_M(8192, 128, at_most="64MiB"), least_M(8192, 128, x_floor=1.2)
    assert [int(x) for x in re.findall(r"(\d+) B", goal)] == [most.M_bytes, most.step.total_bytes, most.none_below]
    assert f"where {most.step.schedule} moves" in goal
    longest = factor.where.stretches[0]
    gaps = [gap.last - gap.first + 1 for gap in longest.gaps]
    ends = [factor.where.always_from, factor.where.intervals[0].first]
    assert [int(x) for x in re.findall(r"(\d+) B", within)] == [*longest.whole, *gaps, *ends]


def test_an_sram_that_is_just_enough_is_enough():
    """The bytes that move least in the SRAM of the GPU are reached there, and one byte less is not. The tiles of least
    time on the GPU move more."""
    least = tune(2048, 64, load("h100").sram_bytes, acc_dtype="fp32", tile_multiple=16).winner.total_bytes
    assert least < tune(2048, 64, hardware="h100").winner.total_bytes
    for goal, said in ((least, ": enough."), (least - 1, ": too little; the least there is ")):
        found = least_M(2048, 64, at_most=goal, hardware="h100")
        assert any(said in line for line in found.lines), found.lines
        assert found.to_dict()["hardware"]["fits"] == (goal == least)
