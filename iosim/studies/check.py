"""`iosim check`: run schedules on the CPU, compare output, counts and footprint; and show the pieces of softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.folded import Folded
from ..core.numeric import NUMPY_DTYPE, Numeric
from ..core.problem import DENSE, Attention
from ..core.rounding import rounder
from ..core.tiling import Tiling
from ..core.watchers import Capacity, Traffic
from ..errors import InputError
from ..schedules import Schedule, require

HALF = 2e-2  # of numbers of about 1, in fp16, which has 11 bits; the error grows as its last bit does
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": HALF, "bf16": HALF * 2 ** (11 - 8), "fp8": HALF * 2 ** (11 - 4)}
Row = dict[str, Any]


def check(problem: Attention, tiling: Tiling, schedules: list[Schedule], seed: int = 0) -> list[Row]:
    """A row for each schedule: the largest absolute error of the output in float64 and in the dtype, counted words
    against the formula by hand, peak against the footprint by hand, folded against numeric. In the dtype the inputs and
    every load, store and step are rounded; the answer to these inputs is in float64. `ok` is False if any of them
    disagrees, and `faults` says which."""
    rng = np.random.default_rng(seed)
    p = problem
    visible = None
    if p.mask is not DENSE:
        token = p.mask.bind(p, Tiling(tiling.rows_q, tiling.rows_k), True)
        visible = token.visible(0, p.N, 0, p.Nk)
    return [check_one(schedule, p, tiling, schedule.example(rng, p, visible), visible) for schedule in schedules]


def check_one(schedule: Schedule, p: Attention, tiling: Tiling, inputs: dict[str, Any], visible: Any) -> Row:
    require(schedule, p)
    expected = schedule.answer(inputs, p, visible)
    numeric, folded, room, dense_room = Traffic(), Traffic(), Capacity(), Capacity()
    machine = Numeric(p, inputs, numeric, room).run(schedule, tiling)
    Folded(p, folded).run(schedule, tiling)
    Folded(replace(p, mask=DENSE), dense_room).run(schedule, tiling)
    error = max(worst(machine.array(name), array) for name, array in expected.items())
    rounded = {name: x if x.dtype.kind in "iu" else in_type(x, p.dtype) for name, x in inputs.items()}
    narrow = Numeric(p, rounded, double=False).run(schedule, tiling)
    answer = schedule.answer(rounded, p, visible)
    narrow_error = max(worst(narrow.array(name), array) for name, array in answer.items())
    bound = p.tiled(tiling, schedule.skips)
    by_hand = None if schedule.exact_traffic is None else dict(schedule.exact_traffic(bound, tiling))
    counts = by_hand is None or same_counts(by_hand, numeric.tensors)
    formula = None if schedule.footprint is None else schedule.footprint(p, tiling)
    row = {
        "check": schedule.name,
        "error_fp64": error,
        f"error_{p.dtype}": narrow_error,
        "words": numeric.total,
        "formula_words": None if by_hand is None else sum(map(sum, by_hand.values())),
        "folded_words": folded.total,
        "peak_words": room.peak_words,
        "footprint_words": formula,
    }
    peak = formula is None or (formula == dense_room.peak_words and room.peak_words <= formula)
    allowed = max(TOLERANCE[p.dtype], TOLERANCE[str(p.acc_dtype)])
    faults = [
        *wrong_error("fp64", error, TOLERANCE["fp64"]),
        *wrong_error(p.dtype, narrow_error, allowed),
        *([] if counts else ["words are not those of the formula by hand"]),
        *([] if same_counts(folded.tensors, numeric.tensors) else ["folded words are not those of the run"]),
        *([] if peak else ["the peak is not the footprint by hand"]),
    ]
    return {**row, "ok": not faults, "faults": "; ".join(faults)}


def wrong_error(dtype: str, error: float, allowed: float) -> list[str]:
    """What is wrong with the largest error of a run in a type, if it is not below what is allowed."""
    hint = ", a wider --acc-dtype may help" if dtype != "fp64" else ""
    return [] if error < allowed else [f"the error in {dtype} is {error:.2g} (allowed: less than {allowed:.2g}{hint})"]


def in_type(x: Any, dtype: str) -> Any:
    """An array as a type holds it."""
    narrow, step = x.astype(NUMPY_DTYPE[dtype]), rounder(dtype)
    return narrow if step is None else step(narrow)


def worst(found: Any, expected: Any) -> float:
    """The largest error; NaN counts as infinite."""
    return float(np.nan_to_num(np.max(np.abs(found - expected)), nan=np.inf))


def same_counts(a: Any, b: Any) -> bool:
    """Equal words for every tensor; one that never moves may be left out."""
    return all(tuple(a.get(name, (0, 0))) == tuple(b.get(name, (0, 0))) for name in {*a, *b})


def run_checks(given: Attention, tiles: str, names: tuple[str, ...], seed: str) -> tuple[list[Row], bool]:
    """`check` with the texts of the command line -> (rows, whether all are right). At most 2^22 scores."""
    from ..core.tiling import parse_tiles
    from ..counting.count import default_schedules
    from ..schedules import SCHEDULES, find_all
    from ..units import parse_count

    problem = given.packed
    if problem.N * problem.Nk > 2**22 or max(problem.N, problem.Nk) * problem.d > 2**24:
        raise InputError("--N", problem.N, "at most 2^22 scores (N x Nk) and 2^24 words a tensor in a numeric run")
    schedules = find_all(names) or default_schedules(problem)
    if problem.dropout is not None and not all(s.drops for s in schedules):
        allowed = ", ".join(s.name for s in SCHEDULES.values() if s.drops)
        raise InputError("--schedule", ", ".join(s.name for s in schedules), f"with --dropout one of {allowed}")
    rows = check(problem, parse_tiles(tiles), schedules, parse_count(seed, "--seed", least=0))
    return rows, all(row["ok"] for row in rows)
