"""The answer in sentences: every number in it is a count's, and it never says that something fits which does not."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import iosim
from iosim.counting import sentence
from iosim.counting.bounds import answer_of_bounds, floor_of
from iosim.counting.count import count
from iosim.counting.result import Result
from iosim.counting.sentence import answer_of, lead_lines, reason_lines, winner_of
from iosim.tables import at_most, ratio
from iosim.tuning.least import tune

MASKS = ("dense", "dense", "causal", "window:5", "causal&window:9", "global:2")
FEW = ("flash1,flash2", "flash2", "standard,flash1", "standard-tiled,small-cache", "flash1,block-sparse-q,local-gather")


def asked(seed):
    """A random problem, and reports on it with a random choice of schedules."""
    rng = random.Random(seed)
    heads = rng.choice([1, 1, 4])
    problem = {
        "N": rng.randint(1, 200), "Nk": rng.randint(1, 200), "d": rng.choice([1, 3, 8, 16]), "mask": rng.choice(MASKS),
        "heads": heads, "kv_heads": rng.choice([1, heads]), "dtype": rng.choice(["fp16", "fp32"]),
    }  # fmt: skip
    if problem["dtype"] == "fp16":
        problem["acc_dtype"] = rng.choice(["fp16", "fp32"])
    M = rng.choice([64, 300, 2000, 9000, 60000, 10**6])
    return count(M=M, schedules=rng.choice([(), *FEW]), **problem)


def named(report):
    """The results by the names that sentences give them."""
    return {sentence.as_way(report.problem, report.M_bytes, result).name: result for result in report.results}


@pytest.mark.parametrize("seed", range(60))
def test_factors_are_ratios_of_counts_and_reasons_what_the_tensors_say(seed):
    report = asked(seed)
    (first,), lines, winner = lead_lines(report), reason_lines(report), winner_of(report.results)
    assert answer_of(report) == " ".join([first, *lines]) == report.answer and len(lines) <= 2
    if winner is None:
        assert lines == [] and first.startswith("Nothing that was counted fits")
        assert not any(result.fits for result in report.results)
        return
    assert winner.fits and winner.total_bytes == min(r.total_bytes for r in report.results if r.fits)
    for line in filter(None, re.split(r"; (?=.* is next)|\n", "\n".join(lines))):
        if winner.total_bytes == 0:
            assert " times" not in line
            continue
        claim, _, reason = line.rstrip(".").partition(": ")
        shape = (
            r"(.*?)(?:, which needs ([\d.]+) times this memory,)? (?:moves?|is next, with)(?: ([\d.]+) times)? as much"
        )
        names, room, share = re.fullmatch(shape, claim).groups()
        others = [other for name, other in named(report).items() if name in re.split(", | and ", names)]
        assert others
        factor = max(r.total_bytes for r in others) / winner.total_bytes
        assert factor == pytest.approx(float(share or 1), rel=0.006)
        for other in others:
            assert bool(room) == (not other.fits)
            assert not room or float(room) == pytest.approx(other.sram_peak_bytes / report.M_bytes, rel=0.006)
        for part in re.split("(?<=much),? and |(?<=HBM),? and |(?<=much), |(?<=HBM), ", reason) if reason else ():
            tensors, many = re.fullmatch(
                r"(.*) (?:go|goes|move|moves) ([\d.,]+|through HBM)(?: times as much)?", part
            ).groups()
            for tensor in re.split(", | and ", tensors):
                mine, its = sentence.moved(winner, tensor), sentence.moved(other, tensor)
                if many == "through HBM":
                    assert mine == 0 < its
                else:
                    assert its / mine == pytest.approx(float(many.replace(",", "")), rel=0.006)


@pytest.mark.parametrize("seed", range(40))
def test_the_first_sentence_has_the_bytes_the_floor_and_the_distance(seed):
    report = asked(seed)
    winner, (text,) = winner_of(report.results), lead_lines(report)
    if winner is None:
        return
    p, share = report.problem, winner.ratio_to_floor
    least = floor_of(p, report.M_bytes, "attention")
    assert winner.total / least == share
    moves = re.search(r" moves (?:([\d,]+) words \()?([\d.,]+ [KMG]?i?B)", text)
    assert size_of(moves[2]) == pytest.approx(winner.total_bytes, rel=0.006)
    assert moves[1] is None or int(moves[1].replace(",", "")) == winner.total
    if share == 1:
        assert text.endswith(", and no exact algorithm of its class can move less.")
        return
    found = re.search(r"; no exact algorithm of its class can move (less|fewer) than (.*): (.*)\.$", text)
    if found[1] == "fewer":
        assert found[2] == f"{least:,} words" and moves[1]
    else:
        assert size_of(found[2]) == pytest.approx(least * p.word_bytes, rel=0.006) and not moves[1]
    if percent := re.fullmatch(r"([\d.e-]+) % above", found[3]):
        assert float(percent[1]) == pytest.approx(100 * (share - 1), abs=0.51) and 0 < float(percent[1]) <= 100
    else:
        assert float(re.fullmatch("this is ([\\d.]+) times that", found[3])[1]) == pytest.approx(share, rel=0.006)


def size_of(text):
    """The bytes that a text as `162 MiB` says."""
    number, unit = text.split()
    return float(number.replace(",", "")) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def test_names_decide_nothing(monkeypatch):
    """The same texts under other names get the same answer."""
    flash1, flash2 = (iosim.SCHEDULES[name] for name in ("flash1", "flash2"))
    swapped = {"flash1": replace(flash2, name="flash1"), "flash2": replace(flash1, name="flash2", rules=("best",))}
    plain = count(512, 16, "8KB", schedules="flash1,flash2", tiles="best").answer
    for name, schedule in swapped.items():
        monkeypatch.setitem(iosim.SCHEDULES, name, schedule)
    other = count(512, 16, "8KB", schedules="flash1,flash2", tiles="best").answer
    assert other == plain.replace("flash1", "flash0").replace("flash2", "flash1").replace("flash0", "flash2")


def test_without_M_nothing_is_said_to_fit():
    report = count(64, 8, tiles="16x16", schedules="flash1,flash2")
    assert report["flash2"].fits is None and report["flash2"].sram_peak_bytes == 1600
    (text,) = lead_lines(count(512, 64, tiles="16x16", schedules="standard"))
    assert text == "standard moves 2.25 MiB; no exact algorithm can move less than 256 KiB: this is 9 times that."


def test_several_families_have_a_sentence_each():
    report = count(64, 8, "4KB", schedules="matmul-tiled,flash1,flash2,matmul-naive")
    assert [line.split()[0] for line in lead_lines(report)] == ["matmul-tiled", "flash2"] and not reason_lines(report)


@pytest.mark.parametrize("seed", range(12))
def test_tune_has_the_sentence_of_its_winner(seed):
    rng = random.Random(seed)
    best = tune(rng.randint(1, 90), rng.choice([4, 16]), rng.choice([600, 4000, 30000]), mask=rng.choice(MASKS))
    if best.winner is None:
        assert answer_of(best).startswith("Nothing")
        return
    assert answer_of(best).startswith(best.winner.schedule) and best.winner is winner_of(best.results)


def test_bounds_have_a_sentence():
    text = answer_of_bounds(count(8192, 128, "100KB").bounds)
    assert text.startswith(
        "No algorithm for exact attention by standard products moves fewer than 84,792,361 words; "
        "the least of what was counted, flash2 196x1, moves "
    )
    least = int(re.search(r"moves ([\d,]+), within", text)[1].replace(",", ""))
    assert float(re.search(r"within a factor of ([\d.]+) of that", text)[1]) == pytest.approx(
        least / 84792361, abs=0.001
    )
    assert "No floor is known here" in answer_of_bounds(count(64, 8, "4KB", mask="window:1b", tiles="8x8").bounds)


@pytest.mark.parametrize("command", ["count", "tune"])
def test_commands_begin_with_the_answer_and_end_with_the_reasons(command, ask, iosim):
    args = (command, "--N", 256, "--d", 16, "--M", "4KB")
    answer, text = ask(*args)["answer"], iosim(*args).stdout
    lead, asked = text.split("\n")[:2]
    assert answer.startswith(lead + " ") and asked.startswith("attention: N = 256")
    assert " ".join(text.split()).endswith(answer.removeprefix(lead + " ")) and len(lead) > 60


@pytest.mark.parametrize(
    "share, text",
    [(1.0639, "1.064"), (1.064, "1.064"), (1.0, "1.000"), (1.0640001, "1.0641"), (1.0644999, "1.0645"),
     (2.0003, "2.0003"), (2.00000001, "2.0001"), (12.6284, "12.6284"), (1234567.0001, "1234567.0001")],
)  # fmt: skip
def test_a_distance_is_never_below_the_ratio(share, text):
    """The sentence says `within`. So it begins with the digits of the table, and may go on."""
    assert at_most(share) == text and float(text) >= share


@given(st.floats(1, 1e9))
def test_a_distance_begins_with_the_digits_of_the_table(share):
    text = at_most(share)
    assert text.startswith(ratio(share)) and 0 <= float(text) - share < 0.001


def result(schedule, total, tensors=(), width=2):
    """A result that fits and moves so many words of `width` bytes."""
    found = {name: {"reads": reads, "writes": writes} for name, (reads, writes) in dict(tensors).items()}
    return Result(schedule, "given", Br=16, Bc=16, fits=True, total=total, total_bytes=width * total, tensors=found,
                  smem_peak_bytes=1000)  # fmt: skip


@pytest.mark.parametrize("saved, names", [
    ({"Q": 60, "K": 20, "V": 20}, ["Q", "K", "V"]),  # K and V are equal
    ({"Q": 80, "K": 20}, ["Q"]),  # four fifths explain it
    ({"Q": 79, "K": 21}, ["Q", "K"]),
])  # fmt: skip
def test_the_main_tensors_explain_four_fifths(saved, names):
    assert sentence.main_of(saved) == names


def test_words_of_two_widths_are_compared_in_bytes():
    """flash1 moves fewer words here, but some of them are wider."""
    winner, other = result("flash2", 1000), replace(result("flash1", 999), total_bytes=3000)
    ways = [sentence.as_way(iosim.Attention(16, 4), 9000, r) for r in (winner, other)]
    assert [way.cost for way in ways] == [2000, 3000] and winner_of([other, winner]) is winner
