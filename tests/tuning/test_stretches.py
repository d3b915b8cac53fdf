"""Where one schedule moves less than another: all intervals, the stretches, and the sentences that say so."""

import math
import random
import re
from bisect import bisect_right
from fractions import Fraction
from math import log2

import pytest
from paths import DOCS

from iosim.core.problem import Attention
from iosim.counting.count import count
from iosim.tuning.crossover import crossover, line_over_N, stretches_text, where_in_M
from iosim.tuning.sides import OverM, OverN, questions_of_papers
from iosim.tuning.stretches import Interval, Stretch, intervals, list_of, octaves, stretches, united

MOST = 9  # the M of the sentences beyond which nothing changes


def staircase(rng, most):
    """A falling staircase, and the number that it has at each of 1 to `most`."""
    starts = sorted(rng.sample(range(1, most + 1), rng.randint(0, 6)))
    heights = sorted(rng.sample(range(1, 12), len(starts)), reverse=True)
    return lambda M: ([float("inf"), *heights])[bisect_right(starts, M)]


def runs(numbers):
    return united(Interval(k, k) for k in numbers)


@pytest.mark.parametrize("seed", range(200))
def test_intervals_of_two_staircases_are_those_of_every_number(seed):
    rng = random.Random(seed)
    most = rng.randint(6, 40)
    below, above = staircase(rng, most), staircase(rng, most)
    asked = []

    def less(low, high):
        asked.append((low, high))
        return True if below(low) < above(high) else False if below(high) >= above(low) else None

    assert intervals(less, 1, most) == runs(M for M in range(1, most + 1) if below(M) < above(M))
    assert asked[0] == (1, most)


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
    assert stretches(runs([*range(10, 100), *range(102, 900)]), octaves(2000)) == [
        Stretch(Interval(10, 899), (Interval(100, 101),))
    ]
    assert stretches(runs([98, 99, *range(102, 900)]), octaves(2000)) == [
        Stretch(Interval(102, 899)), Stretch(Interval(98, 99)),
    ]  # fmt: skip
    endless = stretches(runs([*range(10, 100), 2000]), octaves(2000))
    assert endless[0].whole == Interval(10, 99), "without end counts as one doubling here"


PLACES = {  # the M at which one side moves less, and how a sentence says so
    (4, 5, 6, 7, 8, 9): "at M = 4 B (4 fp8 words, 4 d^2) and at every larger M, but at no smaller one.",
    (1, 2, 5, 6, 7, 8, 9): "at M = 5 B (5 fp8 words, 5 d^2) and at every larger M. The same holds from 1 B to 2 B.",
    (3, 4): "from M = 3 B (3 fp8 words, 3 d^2) to 4 B, and at no other M.",
    (3, 4, 7): "from M = 3 B (3 fp8 words, 3 d^2) to 4 B. The same holds at 7 B.",
    (6,): "at M = 6 B (6 fp8 words, 6 d^2) alone, and at no other M.",
    (2, 3, 4, 5, 6, 7, 9): "at M = 2 B (2 fp8 words, 2 d^2) and at every larger M except for 1 B from 8 B, but at no "
                           "smaller one.",
    (1, 3, 5, 7): "at M = 1 B (1 fp8 words, 1 d^2) alone. The same holds at 3 B, at 5 B and in 1 shorter stretch.",
    (): "at no M.",
}  # fmt: skip


@pytest.mark.parametrize("less", PLACES, ids=str)
def test_the_sentence_says_at_which_M_it_is_so(less):
    found = OverM(questions_of_papers()[0], Attention(9, 1, dtype="fp8"), runs(less), MOST)
    last = max((M for M in range(1, 10) if M not in less), default=0)
    assert where_in_M(found) == PLACES[less] and found.M_bytes == (last + 1 if last < MOST else None)


LENGTHS = (16, 32, 48, 64, 80, 96, 112, 128)
ABOUT = "(M = 8 B, d = 2, fp16)"


@pytest.mark.parametrize("less, first, said", [
    (LENGTHS, 16, f"at every N of the axis, from 16 to 128 {ABOUT}."),
    (LENGTHS[1:], 32, f"at N = 32 and at every larger N up to 128, but at no smaller one {ABOUT}."),
    ((128,), 128, f"at N = 128, the largest one, but at no smaller one {ABOUT}."),
    ((16, 48, 64, 80, 96, 112, 128), 48, f"at N = 48 and at every larger N up to 128 {ABOUT}. The same holds at N = 16."),
    ((32, 48), None, f"from N = 32 to 48, and at no other N {ABOUT}."),
    ((32,), None, f"at N = 32 alone, and at no other N {ABOUT}."),
    ((), None, f"at no N up to 128 {ABOUT}."),
])  # fmt: skip
def test_the_sentence_says_at_which_N_it_is_so(less, first, said):
    places = [Interval(one.first, one.last) for one in runs(LENGTHS.index(N) for N in less)]
    at = [Interval(LENGTHS[one.first], LENGTHS[one.last]) for one in places]
    parts = sorted(map(Stretch, at), key=lambda part: part.whole.first - part.whole.last)
    found = OverN(questions_of_papers()[3], Attention(16, 2), 8, 128, at, parts)
    assert line_over_N(found) == "flash2 moves less than standard-tiled (best tiles) " + said and first == found.N


def test_over_N_it_says_at_which_other_N(ask):
    """Against counts at every N of the axis."""
    both = [count(N, 8, 700, schedules="flash1,flash2", tiles="best").results for N in range(1, 61)]
    one, other = (
        [N for N, (a, b) in enumerate(both, 1) if sign * (a.total_bytes - b.total_bytes) < 0] for sign in (1, -1)
    )
    found = ask("crossover", "--d", 8, "--M", 700, "--N", "1:60:+1", "--schedule", "flash1,flash2")
    for row, less in zip(found["crossovers"], (one, other), strict=True):
        assert row["intervals"] == [{"from_N": part.first, "to_N": part.last} for part in runs(less)]
    assert (one, other) == ([18, 19], [*range(1, 18), *range(20, 61)])
    assert "flash1 moves less than flash2 from N = 18 to 19, and at no other N (" in found["answer"]
    assert (
        "flash2 moves less than flash1 at every N of the axis, from 1 to 60 except for N = 18 to 19 ("
        in found["answer"]
    )


def test_a_schedule_that_pays_nearly_everywhere_is_said_to(iosim, ask):
    """flash1 wins at 4 B and at 32 KiB of M. The sentence leads with all the rest, and the table with where it begins."""
    line = ("crossover", "--N", 8192, "--d", 128, "--schedule", "flash2,flash1")
    first, second = ask(*line)["crossovers"]
    one, two, three = first["intervals"]
    assert (first["from_M_bytes"], first["to_M_bytes"], first["gaps"]) == (one["from_M_bytes"], None, 2)
    assert three["to_M_bytes"] is None and first["M_bytes"] == three["from_M_bytes"]
    gaps = [(one["to_M_bytes"] + 1, two["from_M_bytes"] - 1), (two["to_M_bytes"] + 1, three["from_M_bytes"] - 1)]
    assert [(part["from_M_bytes"], part["to_M_bytes"]) for part in second["intervals"]] == gaps
    answer = ask(*line)["answer"]
    start, *named = re.search(
        r"^flash2 moves less than flash1 at M = (\d+) B .* except for (.*) from (\d+) B .* and ([\d.]+) KiB from (\d+) B",
        answer.replace(",", ""),
    ).groups()
    assert int(start) == 1030 and named[0] == "4 B" and [int(named[1]), int(named[3])] == [low for low, _ in gaps]
    assert float(named[2]) == pytest.approx(Fraction(gaps[1][1] - gaps[1][0] + 1, 1024), abs=0.006)
    detail = iosim(*line, "--detail").stdout.splitlines()
    assert (
        detail[0] == "N = 8192, d = 128: " + next(text for text in answer.split("  ") if text).split(" flash1 moves")[0]
    )
    assert detail[4].split()[8:12] == ["1,030", "no", "end", "2"]
    _, _, _, flash2, flash1 = iosim(*line).stdout.splitlines()
    assert flash2.split()[2:] == ["from", "1,030,", "2", "gaps"]
    (a, b), (c, d) = gaps
    assert flash1.partition("at ")[2] == f"{c:,} to {d:,}; {a:,} to {b:,}"
    text = (DOCS / "tune.md").read_text().split("<!-- stretches -->")[1]
    sizes = [x for low, high in gaps for x in (high - low + 1, low)]
    assert [int(x) for x in re.findall(r"(\d+) B", text.replace(",", ""))] == [1030, *sizes, first["M_bytes"]]


def test_every_interval_of_the_command_is_what_counts_say(ask):
    """At the first and last byte of each interval, and one byte outside of it."""
    found = ask("crossover", "--N", 300, "--d", 16, "--schedule", "flash2-one-room,flash2")["crossovers"][0]
    assert len(found["intervals"]) > 20

    def less(M):
        one, two = count(300, 16, M, schedules="flash2,flash2-one-room", tiles="best").results
        assert (one.schedule, two.schedule) == ("flash2", "flash2-one-room")
        return two.total_bytes is not None and (one.total_bytes is None or two.total_bytes < one.total_bytes)

    for part in random.Random(1).sample(found["intervals"], 12):
        low, high = part["from_M_bytes"], part["to_M_bytes"]
        assert less(low) and less(high) and not less(low - 1) and not less(high + 1)


def numbers(one):
    return one.last - one.first + 1


def test_a_gap_of_a_quarter_is_short():
    """A gap of 1 between intervals of 4 is one of a quarter. Between intervals of 3 it is longer."""
    (stretch,) = stretches([Interval(1, 4), Interval(6, 9)], numbers)
    assert stretch == Stretch(Interval(1, 9), (Interval(5, 5),))
    assert len(stretches([Interval(1, 3), Interval(5, 9)], numbers)) == 2


def test_three_gaps_are_listed_and_four_are_counted():
    gaps = [Interval(k, k + k // 10) for k in (1, 11, 21, 31)]
    assert list_of(gaps[:3], lambda one: str(one.first)) == "1, 11 and 21"
    assert list_of(gaps, lambda one: str(one.first)) == "4 gaps, of which the longest is 31"


def test_an_m_in_words_is_rounded_down():
    """1031 bytes hold 515 words of fp16, which is 8.0469 d^2 for d = 8."""
    found = OverM(questions_of_papers()[0], Attention(64, 8), [Interval(1031, 5000)], 5000)
    assert (found.M_bytes, found.M_words, found.M_over_d2) == (1031, 515, round(515 / 64, 4))
    none = OverM(questions_of_papers()[0], Attention(64, 8), [Interval(1, 9)], 5000)
    assert none.M_words is none.M_over_d2 is None


# ---------------------------------------------------------------- a few lines


def test_the_sentence_that_leads_holds_from_its_m_on_and_not_before(ask):
    """At the byte that it names flash2 moves less than all that it names, and one byte less it does not."""
    answer = ask("crossover", "--N", 300, "--d", 16)["answer"]
    names, M = re.match(r"flash2 moves less than (.*) from M = ([\d,]+) B \([\d.]+ d\^2 words\) on\.", answer).groups()
    assert names == "standard ideal, standard-tiled, small-cache and small-cache-q"
    (ideal,) = count(300, 16, schedules="standard").results

    def least(M):
        found = count(300, 16, M, schedules="flash2,standard-tiled,small-cache,small-cache-q", tiles="best").results
        own, *others = [one.total_bytes or math.inf for one in sorted(found, key=lambda one: one.schedule != "flash2")]
        return own < min(ideal.total_bytes, *others)

    first = int(M.replace(",", ""))
    assert not least(first - 1) and all(least(M) for M in (first, first + 1, 2 * first, 10 * first))


def test_the_sentence_about_several_problems_is_rounded_up():
    """The share of d^2 words that leads is at least that of each problem."""
    found = crossover(1024, [16, 32])
    lead = re.search(r"from M = ([\d.]+) d\^2 words on, in each of 2 problems\.", str(found))
    rows = [row for row in found if str(row["question"]).startswith("flash2")]
    assert 0 <= float(lead[1]) - max(row["M_words"] / row["d"] ** 2 for row in rows) < 0.001


def test_where_the_other_side_does_not_fit_is_said():
    """A row of 300 scores, and what goes with it, is what standard-tiled needs. Nothing is said where both fit."""
    text = str(crossover(300, 16, schedules=["flash2", "standard-tiled"]))
    M = int(re.search(r"Below ([\d,]+) B.* nothing of standard-tiled fits\.", text)[1].replace(",", ""))
    fits = [count(300, 16, size, schedules="standard-tiled", tiles="best").results[0].fits for size in (M - 1, M)]
    assert not fits[0] and fits[1]
    assert "nothing of flash2 fits" not in text


def test_stretches_in_a_few_words():
    parts = [Stretch(Interval(9, 40)), Stretch(Interval(5, 7)), Stretch(Interval(1, 1))]
    assert (
        stretches_text(parts, 40) == "from 9; 5 to 7; 1 more"
        and stretches_text(parts, 99) == "at 9 to 40; 5 to 7; 1 more"
    )
    gap = Stretch(Interval(9, 40), (Interval(20, 21),))
    assert stretches_text([gap, *parts[1:]], 40) == "from 9, 1 gap; 2 more"
    assert stretches_text(parts[2:], None) == "at 1" and stretches_text([], None) == "nowhere"


def test_the_sentence_that_leads_is_about_a_question_that_is_true_somewhere(iosim):
    first = iosim("crossover", "--N", 100, "--d", 8, "--schedule", "flash2,flash2-one-room").stdout.splitlines()[0]
    assert first.startswith("N = 100, d = 8: flash2-one-room moves less than flash2 ")
    first = iosim("crossover", "--d", 8, "--M", "4KB", "--N", "64:128:+64", "--schedule", "flash1,flash2").stdout
    assert first.startswith("flash2 moves less than flash1 at every N of the axis")


def test_problems_are_told_apart_by_what_differs(iosim):
    """Two sizes of M by their M, and two head dimensions by both."""
    line = ("crossover", "--N", "64:128:+64", "--M", "4KB,8KB", "--schedule", "flash2,flash1")
    one, two = (iosim(*line, "--d", d).stdout.splitlines() for d in ("8", "8,16"))
    assert [row.split("  ")[0] for row in one[3:]] == ["M = 4,096 B"] * 2 + ["M = 8,192 B"] * 2
    assert [row.split("  ")[0] for row in two[3::2]] == [
        f"M = {M} B, d = {d}" for d in (8, 16) for M in ("4,096", "8,192")
    ]
    alone = iosim("crossover", "--N", "64:128:+64", "--M", "4KB", "--d", 8).stdout
    assert "problem" not in alone
