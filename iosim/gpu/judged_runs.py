"""Runs of schedules on NumPy arrays, judged: their output, counts and footprint beside the expected ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

import numpy as np

from ..answer import Column, Columns, Row
from ..core.event_count import EventCount, count_events
from ..core.folded import Folded
from ..core.loop_paths import run_together
from ..core.numeric import NUMPY_DTYPE, Numeric
from ..core.options import OF_STATE
from ..core.problem import DENSE, TENSORS, Attention, skips_tiles
from ..core.rounding import rounder
from ..core.row_blocks import RowBlocks
from ..core.tiling import Tiling
from ..core.watchers import Capacity, Traffic, same_counts
from ..counting.roundings import roundings
from ..errors import InputError
from ..oracles.accuracy import DEVIATIONS, UNIT, Judge, Rounded, baseline, bias
from ..schedules import Schedule, require

if TYPE_CHECKING:
    from ..core.typing import Array, Arrays, Bools, Size
    from .arrays import DeviceArray

HALF = 2e-2  # allowed error in fp16, which has 11 bits, for numbers of about 1; it grows with the value of the last bit
FEW = 256  # in an output of so few words the baseline may be exact by chance
EVENTS_BETWEEN = 2048  # loads and stores of a run, between two texts on how much of it is done
ROUNDINGS = 4  # roundings of the largest input that are also allowed in an output of few words
# The allowed errors of schedules that have no baseline, and of the float64 run.
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": HALF, "bf16": HALF * 2 ** (11 - 8), "fp8": HALF * 2 ** (11 - 4)}


def judged_rows(
    problem: Attention,
    tiling: Tiling | None,
    schedules: list[Schedule],
    seed: int = 0,
    begin: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """A row for each schedule, on random inputs. `begin` is called with the name of each before its run. Without tiles
    they are those that the problem names for a schedule, as by --chunk, or the usual ones.

    A row has the largest absolute error of the output, in float64 and in the problem's dtype; the words that the run
    moved, that the formula by hand gives and that the folded machine counts; the peak SRAM and the footprint by hand.
    For the error in the dtype, the inputs and the result of every load, store and step are rounded to it, and the
    expected output is the float64 answer to the rounded inputs. For softmax attention, a baseline of the same
    precision decides the allowed error and the allowed bias, which is the slope against the answer less 1
    (oracles/accuracy.py).
    `ok` is False if anything disagrees; `faults` says what.
    """
    p = problem
    check_types(p)
    visible = None
    if p.mask is not DENSE:
        usual = tiling or usual_tiles(p)
        token = p.mask.bind(p, Tiling(usual.rows_q, usual.rows_k), True)
        visible = token.visible(0, p.N, 0, p.Nk)
    rows = []
    for schedule in schedules:
        begin(schedule.name)
        require(schedule, p)
        rng = np.random.default_rng(seed)  # the same for each, whatever other schedules are checked
        tiles = tiling or schedule.named_tiles(p, True) or usual_tiles(p)
        rows.append(check_one(schedule, p, tiles, schedule.example(rng, p, visible), visible, begin))
    return rows


def check_types(p: Attention) -> None:
    """Raise InputError for an element type that this machine does not compute in."""
    for option, dtype in (("--dtype", p.dtype), ("--acc-dtype", p.acc_dtype), ("--kv-dtype", p.cache_dtype)):
        if dtype not in NUMPY_DTYPE:
            raise InputError(option, dtype, ", ".join(NUMPY_DTYPE), "a check computes in floating point")


def check_columns(dtype: str) -> list[Column[Row]]:
    """The columns of the rows of `check` for problems of one element type."""
    names = dict.fromkeys(("error_fp64", f"error_{dtype}"))
    errors: Columns[Row] = [Column(name, "number", name, ".1e") for name in names]
    return [
        Column("check", "string", "check"),
        *errors,
        Column("allowed_error", "number", "allowed_error", ".1e", spare=6),
        Column("bias", "number", "bias", ".1e", spare=7),
        Column("allowed_bias", "number", "allowed_bias", ".1e", spare=1),
        Column("words", heading="words", spare=8),
        Column("formula_words", heading="formula_words", spare=5),
        Column("folded_words", heading="folded_words", spare=2),
        Column("peak_words", heading="peak_words", spare=4),
        Column("footprint_words", heading="footprint_words", spare=3),
        Column("ok", "boolean", "ok"),
        Column("faults", "string"),
    ]


class Told(EventCount):
    """Counts loads and stores, and tells after every few thousand what percentage of two runs is done."""

    def __init__(self, tell: Callable[[int], None], whole: Callable[[], int], runs_before: int = 0):
        super().__init__()
        self.tell, self.whole, self.runs_before, self.calls = tell, whole, runs_before, 0

    def add(self, turns: int) -> None:
        super().add(turns)
        self.calls += 1
        if self.calls % EVENTS_BETWEEN == 0 and (whole := self.whole()):
            self.tell(50 * self.runs_before + min(50, 50 * self.moves // whole))


def check_one(
    schedule: Schedule,
    p: Attention,
    tiling: Tiling,
    inputs: Arrays,
    visible: Bools | None,
    begin: Callable[[str], None] = lambda name: None,
) -> Row:
    """The row of one schedule; `visible` is what the mask lets see, (N, Nk), or None if all. A long run tells `begin`
    its name and how much of it is done."""
    whole = cache(lambda: count_events(schedule, p, tiling).moves)

    def told(runs_before: int) -> Told:
        return Told(lambda percent: begin(f"{schedule.name}: {percent} % done"), whole, runs_before)

    exact = run_together(lambda: RowBlocks(p, inputs, Traffic(), Capacity(), told(0)), schedule, tiling)
    counted, room = cast("tuple[Traffic, Capacity]", exact.watchers[:2])
    tensors = {**TENSORS, **schedule.tensors}
    rounded = {name: in_type(x, p.hbm_type(tensors[name])) for name, x in inputs.items() if x.dtype.kind not in "iu"}
    rounded = {**inputs, **rounded}
    narrow = run_together(lambda: RowBlocks(p, rounded, told(1), double=False), schedule, tiling)
    if narrow.overflowed:
        found = f"{narrow.overflowed}, in which a word of {schedule.name} is too large"
        raise InputError("--acc-dtype", found, "a wider type", "as --acc-dtype fp32")
    error = output_error(exact, schedule.answer(inputs, p, visible))
    precise = judged(schedule, p, tiling, narrow, rounded, visible)
    words, words_faults = words_row(schedule, p, tiling, counted)
    peak, peak_faults = peak_row(schedule, p, tiling, room)
    faults = [*wrong_error("fp64", error, TOLERANCE["fp64"]), *precise.faults(p.dtype), *words_faults, *peak_faults]
    errors = {"error_fp64": error, f"error_{p.dtype}": precise.error, "allowed_error": precise.allowed_error}
    biases = {"bias": precise.bias, "allowed_bias": precise.allowed_bias}
    return {"check": schedule.name, **errors, **biases, **words, **peak, "ok": not faults, "faults": "; ".join(faults)}


class Precise(NamedTuple):
    """The largest error and bias of the outputs of a rounded run, and the largest that are allowed."""

    error: float
    allowed_error: float
    bias: float
    allowed_bias: float | None
    """The largest bias that is allowed; None for an output of few words, whose bias is not judged."""

    def faults(self, dtype: str) -> list[str]:
        """A fault for the error and one for the bias, if they are too large."""
        found = wrong_error(dtype, self.error, self.allowed_error)
        if self.allowed_bias is not None and not self.bias <= self.allowed_bias:
            allowed = f"(allowed: {self.allowed_bias:.2g}, a wider --acc-dtype may help)"
            found.append(f"the slope of the output in {dtype} on the answer is off by {self.bias:.2g} {allowed}")
        return found


def judged(
    schedule: Schedule, p: Attention, tiling: Tiling, narrow: Numeric, inputs: Arrays, visible: Bools | None
) -> Precise:
    """The errors of a rounded run. For softmax attention, a baseline of the same precision decides what is allowed.
    Other outputs have no baseline. The error has a limit, that of a word of 1; of a state, whose sums grow with
    the tokens, it is that of its largest word. Only chance may explain the bias."""
    answers, coarser = schedule.answer(inputs, p, visible), max(p.dtype, str(p.acc_dtype), key=UNIT.__getitem__)
    if (attention_inputs := schedule.softmax_inputs) is not None:
        judge = Judge(np, coarser)
        ordered = attention_inputs(inputs, p)
        same = baseline_output(schedule, p, tiling, ordered, visible)
        judge.add(of_numpy(narrow.array("O")), same, of_numpy(answers["O"]))
        if p.N * p.dv >= FEW:
            return Precise(judge.error, judge.allowed_error, judge.bias, judge.allowed_bias)
        largest = max(float(np.abs(ordered[name]).max()) for name in "QKV")
        return Precise(judge.error, max(judge.allowed_error, ROUNDINGS * UNIT[coarser] * largest), judge.bias, None)
    biases = [bias(np, of_numpy(narrow.array(name)), of_numpy(answer)) for name, answer in answers.items()]
    slope, deviation = max(biases, key=lambda found: abs(found[0]) - DEVIATIONS * found[1])
    few = any(answer.size < FEW for answer in answers.values())
    allowed = None if few else DEVIATIONS * (deviation + UNIT[coarser])
    summed = schedule.reads(OF_STATE)
    largest = max(float(np.abs(answer).max()) for answer in answers.values()) if summed else 1.0
    return Precise(output_error(narrow, answers), TOLERANCE[coarser] * max(1.0, largest), abs(slope), allowed)


def baseline_output(
    schedule: Schedule, p: Attention, tiling: Tiling, inputs: Arrays, visible: Bools | None
) -> DeviceArray:
    """Softmax attention of Q, K, V in NumPy, without the schedule's steps. It rounds where the schedule does."""
    rounds, factors = roundings(schedule, p, tiling), p.dropout
    q, k, v = (of_numpy(inputs[name]) for name in "QKV")

    def rounded_to(dtype: str) -> Callable[[DeviceArray], DeviceArray]:
        held = np.result_type(np.float32, NUMPY_DTYPE[dtype])
        return lambda x: of_numpy(in_type(cast("Array", x), dtype).astype(held))

    rounded = Rounded(rounded_to(p.dtype), rounded_to(str(p.acc_dtype)), **rounds._asdict())
    seen = None if visible is None else lambda x, rows: of_numpy(visible[x : x + rows])
    kept = None if factors is None else lambda x, rows: of_numpy(factors.factors(range(x, x + rows), range(p.Nk)))
    return baseline(np, q, k, v, rounded, seen, kept)


def of_numpy(array: Array | Bools) -> DeviceArray:
    """A NumPy array, typed as a DeviceArray (of NumPy or CuPy)."""
    return cast("DeviceArray", array)


def output_error(machine: Numeric, expected: Arrays) -> float:
    """The largest absolute error of the outputs that a run left in HBM."""
    return max(largest_error(machine.array(name), array) for name, array in expected.items())


class WordsMoved(TypedDict):
    """Words moved: by the run, by the formula by hand (None without one), and as the folded machine counts them."""

    words: Size
    formula_words: int | None
    folded_words: Size


class Peak(TypedDict):
    """Words in SRAM at its fullest: in the run, and by the formula by hand (None without one)."""

    peak_words: Size
    footprint_words: int | None


def words_row(schedule: Schedule, p: Attention, tiling: Tiling, counted: Traffic) -> tuple[WordsMoved, list[str]]:
    """(the words, the faults found in them); `counted` is what the run moved."""
    folded, formula = Traffic(), schedule.exact_traffic
    Folded(p, folded).run(schedule, tiling)
    by_hand = None if formula is None else dict(formula(p.tiled(tiling, skips_tiles(schedule, p)), tiling))
    faults = []
    if by_hand is not None and not same_counts(by_hand, counted.tensors):
        faults.append("words are not those of the formula by hand")
    if not same_counts(folded.tensors, counted.tensors):
        faults.append("folded words are not those of the run")
    total = None if by_hand is None else sum(map(sum, by_hand.values()))
    return {"words": counted.total, "formula_words": total, "folded_words": folded.total}, faults


def peak_row(schedule: Schedule, p: Attention, tiling: Tiling, room: Capacity) -> tuple[Peak, list[str]]:
    """(the peak, the faults found in it); `room` watched the run. The formula by hand is for a dense mask, so a run
    with a mask may need less."""
    by_hand = None if schedule.footprint is None else schedule.footprint(p, tiling)
    dense = Capacity()
    Folded(replace(p, mask=DENSE), dense).run(schedule, tiling)
    right = by_hand is None or (by_hand == dense.peak_words and room.peak_words <= by_hand)
    faults = [] if right else ["the peak is not the footprint by hand"]
    return {"peak_words": room.peak_words, "footprint_words": by_hand}, faults


def wrong_error(dtype: str, error: float, allowed: float) -> list[str]:
    """A list with the fault of a run in a type if its largest error is not below the allowed one; else an empty
    list."""
    hint = ", a wider --acc-dtype may help" if dtype != "fp64" else ""
    return [] if error <= allowed else [f"the error in {dtype} is {error:.2g} (allowed: {allowed:.2g}{hint})"]


def in_type(x: Array, dtype: str) -> Array:
    """An array rounded to an element type."""
    narrow, step = x.astype(NUMPY_DTYPE[dtype]), rounder(dtype)
    return narrow if step is None else step(narrow)


def largest_error(found: Array, expected: Array) -> float:
    """The largest absolute difference; infinite where one is NaN."""
    return float(np.nan_to_num(np.max(np.abs(found - expected)), nan=np.inf))


MOST_SCORES, MOST_WORDS = 2**22, 2**24
LARGEST_TILE = 16  # of a check that names no tiles


def run_checks(
    given: Attention, tiling: Tiling | None, schedules: list[Schedule], seed: int, begin: Callable[[str], None]
) -> tuple[list[Row], bool]:
    """(the rows of `check`, whether all are ok). Allows at most 2^22 scores."""
    from ..counting.count import default_schedules
    from ..schedules import SCHEDULES

    problem = given.packed
    if problem.N * problem.Nk > MOST_SCORES or max(problem.N, problem.Nk) * problem.d > MOST_WORDS:
        raise InputError(
            "--N",
            problem.N,
            "at most 2^22 scores (N x Nk) and 2^24 words a tensor in a numeric run",
            size_that_runs(given),
        )
    schedules = schedules or default_schedules(problem)
    if problem.dropout is not None and not all(s.drops for s in schedules):
        allowed = ", ".join(s.name for s in SCHEDULES.values() if s.drops)
        raise InputError("--schedule", ", ".join(s.name for s in schedules), f"with --dropout one of {allowed}")
    rows = judged_rows(problem, tiling, schedules, seed, begin)
    return rows, all(row["ok"] for row in rows)


def usual_tiles(problem: Attention) -> Tiling:
    """The tiles of a check that names none: 16x16, or smaller, so that each axis of two rows or more has two tiles."""
    lengths = problem.N, problem.Nk
    return Tiling(*(LARGEST_TILE if length > LARGEST_TILE else -(-length // 2) for length in lengths))


def size_that_runs(given: Attention) -> str:
    """The hint for a problem that is too large: the largest sizes that are not. As many keys stay as can."""
    heads, longest = given.packed.N // given.N, MOST_WORDS // given.d
    if given.Nk == given.N:
        N = min(isqrt(MOST_SCORES // heads), longest // heads)
        return f"as in --N {N}" if N else "try a smaller --d"
    Nk = min(given.Nk, longest, MOST_SCORES // heads)
    N = min(given.N, longest // heads, MOST_SCORES // heads // Nk) if Nk else 0
    return f"as in --N {N} --Nk {Nk}" if N else "try a smaller --d"
