"""The floor beside the curve, the gap between them, and the sentences of crossovers: each number is counted again."""

import random
import re
from bisect import bisect_right
from dataclasses import replace

import pytest
from paths import DOCS

import iosim as package
from iosim.core.problem import Attention
from iosim.counting.bounds import floor_of
from iosim.counting.count import count
from iosim.masks import parse_mask
from iosim.tuning.crossover import lines_over_M
from iosim.tuning.every_M import Gap, answer_lines, ends_of_steps, worst
from iosim.tuning.least import curve, tune
from iosim.tuning.sides import over_M, questions_of_papers

PROBLEMS = [
    (48, 6, "dense", ()),
    (40, 8, "causal", ("block-sparse-q", "flash2")),
    (33, 4, "window:5", ("block-sparse",)),
]


def gaps(found):
    """The gap at the last byte of each step of a curve."""
    p = found.problem
    return [Gap(M, step.schedule, step.total, floor_of(p, M, "attention")) for M, step in ends_of_steps(found)]


@pytest.mark.parametrize("N, d, mask, names", [*PROBLEMS, (300, 16, "dense", ()), (300, 64, "dense", ())])
def test_the_largest_gap_is_that_of_all_steps(N, d, mask, names):
    """Of all steps, and of any that follow each other."""
    found, rng = curve(N, d, mask=mask, schedules=names), random.Random(N)
    known, ends = gaps(found), ends_of_steps(found)
    for _ in range(30):
        start = rng.randrange(len(ends))
        part = slice(start, rng.randint(start + 1, len(ends)))
        assert worst(found.problem, "attention", ends[part]) == max(known[part], key=lambda gap: gap.ratio)


def test_the_largest_gap_where_words_rise():
    """With types of several widths, words may rise from one step to the next, while bytes fall."""
    found, rng = curve(48, 6, schedules=("flash1", "flash2")), random.Random(0)
    p, ends = found.problem, ends_of_steps(found)
    for _ in range(100):
        some = [(M, replace(step, total=rng.randint(600, 3000))) for M, step in ends]
        known = [Gap(M, step.schedule, step.total, floor_of(p, M, "attention")) for M, step in some]
        assert worst(p, "attention", some) == max(known, key=lambda gap: gap.ratio)


@pytest.mark.parametrize("N, d, mask, names", PROBLEMS)
def test_rows_have_the_floor_of_their_M(N, d, mask, names):
    found = curve(N, d, mask=mask, schedules=names)
    p = Attention(N, d, mask=parse_mask(mask))
    for row in found.to_rows():
        assert row["floor_words"] == package.floor(p, row["M_bytes"]).words
        assert row["ratio_to_floor"] == row["total"] / row["floor_words"] >= 1


@pytest.mark.parametrize("N, d, mask, names", PROBLEMS)
def test_no_gap_between_the_steps_is_larger(N, d, mask, names):
    """At every single byte of M the ratio is at most that of the end of its step."""
    found = curve(N, d, mask=mask, schedules=names)
    known, starts = gaps(found), [step.M_bytes for step in found.steps]
    assert len(known) == len(found.steps) - 1
    for M in range(starts[0], starts[-1]):
        k = bisect_right(starts, M) - 1
        assert found.steps[k].total / floor_of(found.problem, M, "attention") <= known[k].ratio
    assert [gap.M_bytes + 1 for gap in known] == starts[1:]


@pytest.mark.parametrize("N, d", [(8192, 128), (2048, 32)])
def test_the_sentence_names_the_largest(N, d):
    text = " ".join(answer_lines(curve(N, d)))
    worst = re.findall(
        r"([\d.]+) times the floor for M [^(]+ \(([\w-]+) at M = ([\d,]+) B = ([\d.]+) d\^2 words\)", text
    )
    assert len(worst) == 3
    for ratio, name, M, share in worst:
        searched = tune(N, d, int(M.replace(",", "")))
        least = {r.schedule for r in searched.results if r.total == searched.winner.total}
        assert name in least and f"{searched.winner.ratio_to_floor:.3f}" == ratio
        assert float(share) == pytest.approx(int(M.replace(",", "")) // 2 / d**2, rel=0.006)
    ratios = [gap.ratio for gap in gaps(curve(N, d)) if gap.M_bytes >= 2 * d]
    assert f"{max(ratios):.3f}" == max(ratio for ratio, *_ in worst)


def test_where_the_gap_is_largest_for_large_sizes():
    """The table of docs/tune.md, and what the page says of it."""
    text = (DOCS / "tune.md").read_text()
    table = re.search(r"<!-- gap -->\n(.*?)<!-- gap -->", text, re.S)[1]
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\w-]+) \|$", table, re.M)
    assert len(rows) >= 6
    ratios = {}
    for share, ratio, name in rows:
        found = count(
            2**20, 4096, f"{int(float(share) * 4096**2)}el", schedules="small-cache,small-cache-q,flash2", tiles="best"
        )
        best = min(found.results, key=lambda r: r.total)
        assert (f"{best.ratio_to_floor:.3f}", best.schedule) == (ratio, name)
        ratios[float(share)] = best.ratio_to_floor
    assert max(ratios, key=ratios.get) == 1.0 and "is largest at M = d^2" in " ".join(text.split())


def test_curves_say_it(ask, iosim):
    args = ("tune", "--N", 64, "--d", 8, "--curve")
    found, text = ask(*args), iosim(*args).stdout
    assert text.startswith(found["answer"] + "\n") and "times the floor" in found["answer"]
    assert "x floor" in text and found["curve"][0]["floor_words"] > 0
    assert "No gap is known" in ask(*args, "--schedule", "linear")["answer"]


# ---------------------------------------------------------------- crossovers


@pytest.mark.parametrize("N, d", [(200, 8), (1000, 16)])
def test_crossovers_are_compared_at_their_M(N, d):
    asked = questions_of_papers()
    found = [over_M(question, Attention(N, d)) for question in asked]
    lines = lines_over_M(asked, found)
    assert len(lines) == len(asked)
    for question, one, line in zip(asked, found, lines, strict=True):
        assert one.question == question
        assert line.startswith(f"{question.text} at M = {one.M_bytes:,} B (") and "and at every larger M" in line
        if one.above_bytes is None:
            assert re.search(r"At M = [\d,]+ B nothing of [\w -]+ \(best tiles\) fits\.", line)
            continue
        factor = float(re.search(r" moves ([\d.]+)x fewer words than ", line)[1])
        assert factor == pytest.approx(one.above_bytes / one.below_bytes, rel=0.006) and factor > 1


def test_tiles_that_do_not_fit_are_said_so_of_the_winner_too():
    asked = questions_of_papers()[:1]
    (line,) = lines_over_M(asked, [over_M(asked[0], Attention(8192, 128))])
    assert (
        "flash1 (97x97), which would need 1.21 times this SRAM, moves 1.001x fewer words than standard, which" in line
    )
    assert "of the least" not in line, "what does not fit has no distance to the floor of this M"


def test_several_problems_have_a_range(ask):
    answer = ask("crossover", "--N", 1024, "--d", "16,32", "--schedule", "flash2,flash1")["answer"]
    rows = ask("crossover", "--N", 1024, "--d", "16,32", "--schedule", "flash2,flash1")["crossovers"]
    text = "flash2 moves less than flash1"
    pairs = [(row["d"], row["from_M_bytes"]) for row in rows if row["question"] == "flash2 below flash1"]
    shares = [M // 2 / d**2 for d, M in pairs]
    low, high = map(float, re.search(text + r" at an M of ([\d.]+) to ([\d.]+) d\^2 words", answer).groups())
    assert (low, high) == (pytest.approx(min(shares), rel=0.006), pytest.approx(max(shares), rel=0.006))
    assert answer.endswith(" There is no M from which on flash1 moves less than flash2, in any of the 2 problems.")


def test_over_N_it_says_from_which(ask):
    found = ask("crossover", "--M", "4KB", "--d", 16, "--N", "16:512:+16", "--schedule", "flash2,standard")
    (first, _) = found["crossovers"]
    assert first["N"] == 16 and found["answer"].startswith(
        "flash2 moves less than standard (fits or not) at every N of the axis, from 16 to 512 (M = 4,096 B, d = 16, fp16)."
    )


def test_six_questions_end_with_the_gap():
    """The sentence is that of the curve. Under a mask, and for two schedules that were named, there is none."""
    said = answer_lines(curve(96, 8))
    assert package.crossover(N=96, d=8).to_dict()["answer"].endswith(" ".join(said)) and "times the floor" in said[0]
    for options in ({"mask": "causal"}, {"schedules": "flash2,standard"}, {"d": [8, 16]}):
        assert "The least traffic" not in package.crossover(**{"N": 96, "d": 8, **options}).to_dict()["answer"]
