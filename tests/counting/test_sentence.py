"""The answer in a sentence: every number in it is a count's, and it never says that something fits which does not."""

import random
import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import iosim
from iosim.core.problem import Attention
from iosim.counting import sentence
from iosim.counting.bounds import answer_of_bounds, floor_of
from iosim.counting.count import count
from iosim.counting.result import Result
from iosim.counting.sentence import answer_of, lead_lines, moved, named, reason_lines, winner_of
from iosim.masks import parse_mask
from iosim.tables import at_most, ratio
from iosim.tracing.events import trace
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


def claim(line):
    """(factor, more or fewer, unit, name of the other) of a sentence that compares; None if it does not."""
    found = re.search(r" moves ([\d.]+)x (more|fewer) (words|bytes) than ([\w-]+(?: \([^)]*\))?)", line)
    return found and (float(found[1]), found[2], found[3], found[4])


def by_name(report):
    return {named(result): result for result in report.results}


@pytest.mark.parametrize("seed", range(40))
def test_factors_are_ratios_of_counts(seed):
    report = asked(seed)
    (lead,), lines, winner = lead_lines(report), reason_lines(report), winner_of(report.results)
    assert answer_of(report) == " ".join([lead, *lines]) == report.answer
    if winner is None:
        assert lines == [] and lead.startswith("Nothing that was counted fits")
        assert not any(result.fits for result in report.results)
        return
    assert winner.fits and winner.total_bytes == min(r.total_bytes for r in report.results if r.fits)
    assert lead.startswith(re.sub("[()]", "", named(winner)) + " moves ")
    compared = [found for line in lines if (found := claim(line))]
    assert (
        compared
        or len([r for r in report.results if r.total is not None]) == 1
        or "as many" in " ".join(lines)
        or len(lines) > 1
    )
    for factor, way, unit, other in compared:
        names = {"words": "total", "bytes": "total_bytes"}
        mine, its = (getattr(by_name(report)[name], names[unit]) for name in (named(winner), other))
        ratio = its / mine if way == "fewer" else mine / its
        assert ratio > 1 and factor == pytest.approx(ratio, rel=0.006) and factor > 1


@pytest.mark.parametrize("seed", range(40))
def test_what_does_not_fit_is_said_so(seed):
    """Whatever is compared with and does not fit stands with the SRAM that it would need; nothing else does."""
    report = asked(seed)
    for line in reason_lines(report):
        found = claim(line)
        if not found or winner_of(report.results) is None:
            continue
        other = by_name(report)[found[3]]
        needs = re.search(r"which would need ([\d.]+) times this SRAM", line)
        assert bool(needs) == (not other.fits)
        if needs:
            assert float(needs[1]) == pytest.approx(other.sram_peak_bytes / report.M_bytes, rel=0.006)
            assert float(needs[1]) > 1
        assert "the next that fits" not in line or other.fits


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


@pytest.mark.parametrize("seed", range(40))
def test_reasons_are_what_the_tensors_say(seed):
    """`K and V are read 42 times, not once` are passes over the tensor; `never goes through HBM` moves no word."""
    report = asked(seed)
    winner = winner_of(report.results)
    sizes = {"Q": "N d", "K": "Nk d", "V": "Nk dv", "O": "N dv", "S": "N Nk", "P": "N Nk", "l": "N", "m": "N"}
    p = report.problem
    for line in reason_lines(report) if winner else ():
        for names, text in re.findall(
            r"((?:\b[QKVOSPlm]\b(?:, | and )?)+) (never goes?|(?:is|are) read [^;.,]*)", line
        ):
            for name in re.findall(r"\w", names.replace("and", "")):
                moved = winner.tensors.get(name, {"reads": 0, "writes": 0})
                if text.startswith("never"):
                    assert moved == {"reads": 0, "writes": 0} or name not in winner.tensors
                    continue
                size = p.instances
                for axis in sizes[name].split():
                    size *= getattr(p, axis)
                said = text.partition(" read ")[2]
                often = re.match(r"(?:and written )?(\d+|once|twice)", said)[1]
                times = {"once": 1, "twice": 2}.get(often) or int(often)
                assert moved["reads"] == times * size, line


def test_the_example_of_the_readme():
    assert count(8192, 128, "100KB").answer == (
        "flash2 196x1 moves 172 MiB; no exact algorithm of its class can move less than 162 MiB: 6 % above. "
        "flash2 (196x1) moves 3.02x fewer words than standard, which would need 20.5 times this SRAM: S and P never go "
        "through HBM; but K and V are read 42 times, not once. It moves 1.5x fewer words than flash1 (2x196), the next "
        "that fits: O is written once, not read and written 42 times, and Q is read once, not 42 times."
    )


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
    assert "Whether it fits is not known without M: it needs 1,600 B of SRAM." in report.answer
    assert "of its class" not in report.answer and "that fits" not in report.answer
    assert report["flash2"].sram_peak_bytes == 1600


def test_several_families_have_a_sentence_each():
    report = count(64, 8, "4KB", schedules="matmul-tiled,flash1,flash2,matmul-naive")
    assert [line.split()[0] for line in lead_lines(report)] == ["matmul-tiled", "flash2"]
    assert [line.split()[0] for line in reason_lines(report)] == ["matmul-tiled", "flash2"]


@pytest.mark.parametrize("seed", range(12))
def test_tune_has_the_sentence_of_its_winner(seed):
    rng = random.Random(seed)
    best = tune(rng.randint(1, 90), rng.choice([4, 16]), rng.choice([600, 4000, 30000]), mask=rng.choice(MASKS))
    if best.winner is None:
        assert answer_of(best).startswith("Nothing")
        return
    assert answer_of(best).startswith(best.winner.schedule) and best.winner is winner_of(best.results)
    for factor, way, _, other in filter(None, map(claim, reason_lines(best))):
        its = by_name(best)[other]
        ratio = its.total_bytes / best.winner.total_bytes
        assert factor == pytest.approx(ratio if way == "fewer" else 1 / ratio, rel=0.006)
        assert way == "more" or ratio >= 1


def test_bounds_have_a_sentence():
    text = answer_of_bounds(count(8192, 128, "100KB").bounds)
    assert text.startswith(
        "No algorithm for exact attention by standard products moves fewer than 84,758,228 words (form II, T = 102,400, "
        "lambda = 128); the least of what was counted moves "
    )
    least = int(re.search(r"moves ([\d,]+), within", text)[1].replace(",", ""))
    assert float(re.search(r"within a factor of ([\d.]+) of that", text)[1]) == pytest.approx(
        least / 84758228, abs=0.001
    )
    assert "No floor is known here" in answer_of_bounds(count(64, 8, "4KB", mask="window:1b", tiles="8x8").bounds)


@pytest.mark.parametrize("command", ["count", "tune"])
def test_commands_begin_with_the_answer_and_end_with_the_reasons(command, ask, iosim):
    args = (command, "--N", 256, "--d", 16, "--M", "4KB")
    answer, text = ask(*args)["answer"], iosim(*args).stdout
    lead, asked = text.split("\n")[:2]
    assert answer.startswith(lead + " ") and asked.startswith("attention: N = 256")
    assert " ".join(text.split()).endswith(answer.removeprefix(lead + " ")) and len(lead) > 60


def test_bounds_begin_with_their_sentence_and_end_with_what_reaches_it(ask, iosim):
    args = ("bounds", "--N", 256, "--d", 16, "--M", "4KB")
    found, text = ask(*args), iosim(*args).stdout
    assert text.startswith(found["answer"] + "\n")
    (form,) = [bound for bound in found["bounds"] if bound["name"] == "floor"]
    *_, reached, classes = text.splitlines()
    assert reached == f"form {form['form']}: {form['reached_by']}" and classes.endswith("docs/floors.md")


def test_without_M_the_floor_is_that_of_every_algorithm():
    (text,) = lead_lines(count(512, 64, tiles="16x16", schedules="standard"))
    assert text == "standard moves 2.25 MiB; no exact algorithm can move less than 256 KiB: this is 9 times that."


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


@pytest.mark.parametrize("mask", ["dense", "causal", "window:5", "sink:3|window:4", "strided:5"])
@pytest.mark.parametrize("tiles", ["4x4", "3x8", "8x2"])
def test_how_often_a_word_moves_is_what_a_trace_shows(mask, tiles):
    """What is not called an average holds for each word of the tensor."""
    names = ["flash1", "flash2", "block-sparse", "block-sparse-q", "memory-efficient", "attention-2pass"]
    report = count(24, 4, tiles=tiles, mask=mask, schedules=names, keep_p=True)
    for result in report.results:
        events = trace(24, 4, tiles=tiles, mask=mask, schedule=result.schedule, keep_p=True).to_frame()
        for name, words in result.tensors.items():
            found = moved(report.problem, result, name)
            assert (found.reads, found.writes) == (words["reads"], words["writes"])
            shape = (24, 24) if name in ("S", "P") else (24, 1 if name in ("l", "m") else 4)
            if found.passes is None:
                continue
            assert [words["reads"], words["writes"]] == [prod(shape) * passes for passes in found.passes]
            if found.on_average:
                continue
            times = np.zeros((2, 24, 24), int)  # loads and stores of each place of the tensor
            for event, row, rows, column, columns in events[events.name == name][PLACE].itertuples(index=False):
                if event in ("load", "store"):
                    times[int(event == "store"), row : row + rows, column : column + columns] += 1
            for passes, seen in zip(found.passes, times, strict=True):
                assert (seen[: shape[0], : shape[1]] == passes).all(), (result.schedule, name)


PLACE = ["event", "row", "rows", "column", "columns"]


def test_averages_are_called_averages():
    """Causal, in square tiles: a tile of keys is read 1 to 63 times."""
    (answer,) = [count(4032, 128, tiles="64x64", mask="causal", schedules=["standard", "block-sparse-q"]).answer]
    assert "K and V are read 32 times on average, not once" in answer


def test_a_sentence_after_one_on_others_names_its_subject():
    answer = count(1, 128, "100KB", Nk=8192, heads=32).answer
    assert "flash1 (1x196) moves at most" in answer and "flash2 moves 1.02x fewer words than flash1 (1x100)" in answer
    assert "It moves" not in answer


def test_a_cost_of_a_tenth_of_the_gains_is_said():
    """Between a tenth and three tenths: K is read three times here."""
    answer = count(16, 16, "4KB", schedules="attention-3pass,split-kv").answer
    assert "Opart never goes through HBM; but K is read 3 times, not once" in answer


def test_a_winner_that_moves_more_has_the_reason_of_the_other():
    answer = count(128, 64, "4KB", acc_dtype="fp32", schedules="standard,standard-tiled").answer
    assert "moves 2.33x more words than standard" in answer and "K and V are read 9 times, not once" in answer


def test_what_is_written_once_by_both_is_said_once():
    answer = count(128, 64, "64KB", schedules="flash1,small-cache").answer
    assert "but O is read and written once, not only written" in answer
    answer = count(1, 8, "4KB", Nk=64, schedules="flash1,flash2").answer
    assert "O is written once, not read as well" in answer


# ---------------------------------------------------------------- where a sentence turns


def result(schedule, total, tensors=(), width=2):
    """A result that fits and moves so many words of `width` bytes."""
    found = {name: {"reads": reads, "writes": writes} for name, (reads, writes) in dict(tensors).items()}
    return Result(schedule, "given", Br=16, Bc=16, fits=True, total=total, total_bytes=width * total, tensors=found,
                  smem_peak_bytes=1000)  # fmt: skip


def test_near_results_are_compared_in_bytes_where_bytes_decide():
    """flash1 moves fewer words here, but some of them are wider."""
    winner, near = result("flash2", 1000), replace(result("flash1", 999), total_bytes=2010)
    (line,) = sentence.lines_of_family(Attention(16, 4), [winner, near], 9000)
    assert line == "flash1 (16x16) moves at most 1.005 times as many bytes."
    (line,) = sentence.lines_of_family(Attention(16, 4), [winner, replace(near, total_bytes=2000)], 9000)
    assert line == "flash1 (16x16) moves as many bytes."


def test_one_hundredth_more_is_nearly_as_much():
    winner, near, beyond = result("flash2", 1000), result("flash1", 1010), result("flash1", 1011)
    (line,) = sentence.lines_of_family(Attention(16, 4), [winner, near], 9000)
    assert line == "flash1 (16x16) moves at most 1.01 times as much."
    (line,) = sentence.lines_of_family(Attention(16, 4), [winner, beyond], 9000)
    assert "moves 1.01x fewer words than flash1" in line


def test_a_cost_of_just_a_tenth_is_said():
    p, other = Attention(100, 10), result("flash1", 2000, {"Q": (2000, 0)})
    for cost, said in ((100, True), (99, False)):
        winner = result("flash2", 1000 + cost, {"Q": (1000, 0), "V": (cost, 0)})
        assert ("; but V goes through HBM" in sentence.why(p, winner, other)) == said


@pytest.mark.parametrize("saved, names", [
    ({"Q": 60, "K": 20, "V": 20}, ["Q", "K", "V"]),  # K and V are equal
    ({"Q": 80, "K": 20}, ["Q"]),  # four fifths explain it
    ({"Q": 79, "K": 21}, ["Q", "K"]),
    ({"Q": 80, "K": 20, "V": -5}, ["Q"]),
])  # fmt: skip
def test_the_main_tensors_explain_four_fifths(saved, names):
    assert sentence.main_of(saved) == names


def test_an_output_that_is_written_once_is_no_average_under_a_mask():
    p = Attention(8, 4, mask=parse_mask("causal"))
    found = result("flash2", 96, {"O": (0, 32), "K": (64, 0), "Q": (32, 0)})
    assert not moved(p, found, "O").on_average and moved(p, found, "K").on_average
    assert moved(p, result("flash1", 96, {"O": (32, 32)}), "O").on_average


@pytest.mark.parametrize("share, text", [(2.0, "this is 2 times that"), (1.99, "99 % above"), (1.004, "0.4 % above")])
def test_twice_the_floor_is_a_factor(share, text):
    assert sentence.above(share).replace("2.000", "2") == text


def test_a_list_with_a_comma_has_one_before_its_last_part():
    assert sentence.joined(["a", "b", "c"]) == "a, b and c"
    assert sentence.joined(["a", "b, not c"]) == "a, and b, not c"
    assert sentence.joined(["a, not b", "c"]) == "a, not b, and c"


def test_values_in_the_rows_of_keys_are_not_said_to_stay_away(ask):
    """MLA's V is a part of K, which is read."""
    line = ("count", "--N", 1, "--Nk", 8192, "--d", 576, "--dv", 512, "--heads", 128, "--latent", "--M", "227KB")
    said = ask(*line, "--kv-heads", 1, "--gqa", "pack")["answer"]
    assert "V comes in the rows of K, and S and P never go through HBM" in said


def test_latent_rows_of_several_heads_have_a_note(ask):
    line = ("count", "--N", 4, "--d", 64, "--heads", 8, "--latent", "--M", "8KB")
    note = "8 KV heads have latent rows of their own; MLA has one for all heads: --kv-heads 1"
    assert note in ask(*line)["notes"] and note not in ask(*line, "--kv-heads", 1)["notes"]


def test_words_of_two_widths_are_compared_in_bytes():
    narrow, wide = result("flash2", 100), result("flash1", 100, width=4)
    assert sentence.than(narrow, wide).endswith("fewer bytes than") and sentence.than(narrow, wide).startswith("2")
    assert sentence.than(narrow, result("flash1", 300)).endswith("fewer words than")
    assert sentence.than(narrow, narrow) == "as many words as"
