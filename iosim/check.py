"""`iosim check`: run schedules on the CPU, compare output, counts and footprint; and show the pieces of softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .demos import demos
from .errors import InputError
from .folded import Folded
from .numeric import NUMPY_DTYPE, Numeric
from .problem import DENSE, Attention
from .rounding import rounder
from .schedules import Schedule, require
from .tiling import Tiling
from .watchers import Capacity, Traffic

HALF = 2e-2  # of numbers of about 1, in fp16, which has 11 bits; the error grows as its last bit does
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": HALF, "bf16": HALF * 2 ** (11 - 8), "fp8": HALF * 2 ** (11 - 4)}
Row = dict[str, Any]


def check(problem: Attention, tiling: Tiling, schedules: list[Schedule], seed: int = 0) -> list[Row]:
    """A row a schedule: largest absolute error of the output in float64 and in the dtype (its inputs rounded, and every
    load, store and step; the answer to these inputs is in float64), counted words against the formula by hand, peak
    against the footprint by hand, folded against numeric. `ok` is False when any of them disagrees, and `faults` says
    which."""
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


# ---------------------------------------------------------------- the pieces of online softmax


def softmax_passes(x: Any, passes: int, block: int = 3) -> tuple[Any, int, int]:
    """softmax of n numbers in 3, 2 or 1 passes -> (result, reads, writes) of n numbers in slow memory.

    3: maximum, sum, quotient. 2: maximum and sum online, then the quotient. 1: whole row on chip.
    """
    x = np.asarray(x, np.float64)
    n = len(x)
    if passes == 3:
        m = x.max()
        l = np.exp(x - m).sum()
    elif passes == 2:
        m, l = -np.inf, 0.0
        for start in range(0, n, block):
            part = x[start : start + block]
            m, l = merge(m, l, part.max(), np.exp(part - part.max()).sum())
    else:
        m, l = x.max(), np.exp(x - x.max()).sum()
    return np.exp(x - m) / l, passes * n, n


def merge(m1: float, l1: float, m2: float, l2: float) -> tuple[float, float]:
    """The (maximum, sum) of two blocks together."""
    m = max(m1, m2)
    return (m, 0.0) if np.isneginf(m) else (m, l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m))


def online_output(s: Any, v: Any, block: int, rescale: bool = True) -> float:
    """softmax(s) . v in one pass; without `rescale`, as when the factor is forgotten."""
    m, l, o = -np.inf, 0.0, 0.0
    for start in range(0, len(s), block):
        part, values = np.asarray(s[start : start + block], float), np.asarray(v[start : start + block], float)
        new = max(m, part.max())
        factor = np.exp(m - new) if rescale else 1.0
        weights = np.exp(part - new)
        m, l, o = new, l * factor + weights.sum(), o * factor + weights @ values
    return float(o / l)


def pieces() -> list[Row]:
    """Rows for the pieces: passes, merge, and the two mistakes that must show."""
    x = np.random.default_rng(1).normal(size=10)
    e = np.exp(x - x.max())
    rows = []
    for passes in (3, 2, 1):
        result, reads, writes = softmax_passes(x, passes)
        right = bool(np.allclose(result, e / e.sum(), rtol=1e-14))
        value = f"{reads} reads, {writes} writes"
        rows.append({"piece": f"{passes}-pass softmax, n = 10", "value": value, "ok": right})
    halves = [(part.max(), np.exp(part - part.max()).sum()) for part in (x[:4], x[4:])]
    error = abs(merge(*halves[0], *halves[1])[1] - e.sum())
    rows.append({"piece": "merge of two blocks", "value": f"error {error:.1e}", "ok": bool(error < 1e-13)})
    good, wrong = online_output([0, 1, 2], [-10, 0, 10], 2), online_output([0, 1, 2], [-10, 0, 10], 2, rescale=False)
    shown = f"{wrong:.4f} instead of {good:.4f}"
    rows.append({"piece": "rescale forgotten (must be wrong)", "value": shown, "ok": abs(wrong - good) > 1})
    s, hidden = np.array([0.0, 2000.0]), np.array([False, True])
    with np.errstate(invalid="ignore", under="ignore"):
        late = np.where(hidden, 0, np.exp(s - s.max()))
        late = late / late.sum()
    rows.append({"piece": "mask after the maximum (must be wrong)", "value": f"{late[0]} instead of 1.0",
                 "ok": bool(late[0] != 1.0)})  # fmt: skip
    return rows + demos()


def run_checks(given: Attention, tiles: str, names: tuple[str, ...], seed: str) -> tuple[list[Row], bool]:
    """`check` with the texts of the command line -> (rows, whether all are right). At most 2^22 scores."""
    from .experiment import default_schedules
    from .schedules import SCHEDULES, find_all
    from .tiling import parse_tiles
    from .units import parse_count

    problem = given.packed
    if problem.N * problem.Nk > 2**22 or max(problem.N, problem.Nk) * problem.d > 2**24:
        raise InputError("--N", problem.N, "at most 2^22 scores (N x Nk) and 2^24 words a tensor in a numeric run")
    schedules = find_all(names) or default_schedules(problem)
    if problem.dropout is not None and not all(s.drops for s in schedules):
        allowed = ", ".join(s.name for s in SCHEDULES.values() if s.drops)
        raise InputError("--schedule", ", ".join(s.name for s in schedules), f"with --dropout one of {allowed}")
    rows = check(problem, parse_tiles(tiles), schedules, parse_count(seed, "--seed", least=0))
    return rows, all(row["ok"] for row in rows)
