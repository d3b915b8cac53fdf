"""The work of launches: operations against formulas by hand and against what NumPy does; bytes as a count has them."""

import random
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from iosim import SCHEDULES, Attention, Machine, Tiling
from iosim.core.folded import Folded
from iosim.core.problem import skips_tiles
from iosim.counting.run import measure
from iosim.masks import parse_mask
from iosim.schedules import CORE
from iosim.steps import backward, passes, softmax, state
from iosim.timing.products import UNITS
from iosim.timing.work import WorkByLaunch, work_of

COUNTED = {np.exp: "exp", np.log: "exp"}
OTHER = {np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.greater}


class Counting(np.ndarray):
    """Counts the operations that NumPy carries out on it: of a reduction every element that goes in."""

    tally: ClassVar[dict] = {"exp": 0, "other": 0}

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counting) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        kind = COUNTED.get(ufunc, "other" if ufunc in OTHER else None)
        if kind:
            Counting.tally[kind] += np.size(plain[0]) if method == "reduce" else np.size(result)
        return result.view(Counting) if isinstance(result, np.ndarray) else result


STEPS = [
    (softmax.scores, [(5, 7), (5, 3), (7, 3)]),
    (softmax.softmax_rows, [(5, 7)]),
    (softmax.online_softmax, [(5, 7), (5,), (5,), (5, 3)]),
    (softmax.normalise, [(5, 3), (5,)]),
    (softmax.denormalise, [(5, 3), (5,)]),
    (softmax.log_sum_exp, [(5,), (5,)]),
    (softmax.merge, [(5,), (5,), (5, 3), (5, 3), (5,)]),
    (softmax.drop, [(5, 7), (5, 7)]),
    (softmax.zeros, [(5, 3)]),
    (softmax.minus_infinity, [(5,)]),
    (softmax.keep, [(5, 7)]),
    (passes.scale, [(5, 7), ()]),
    (passes.add_maximum, [(5,), (5, 7)]),
    (passes.exponentials, [(5, 7), (5,)]),
    (passes.add_sum, [(5,), (5, 7)]),
    (passes.add_maximum_and_sum, [(5,), (5,), (5, 7)]),
    (state.features, [(5, 3)]),
    (state.add_keys, [(3,), (7, 3)]),
    (backward.probabilities, [(5, 7), (5,), (5,)]),
    (backward.probabilities_from_lse, [(5, 7), (5,)]),
    (backward.row_dots, [(5,), (5, 3), (5, 3)]),
    (backward.add_row_dots, [(5,), (5, 3), (5, 3)]),
    (backward.score_gradients, [(5, 7), (5, 7), (5,)]),
    (backward.score_gradients_of_rows, [(5, 7), (5, 7)]),
]


@pytest.mark.parametrize("step, shapes", STEPS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_step_does_what_it_says(step, shapes):
    rng = np.random.default_rng(1)
    Counting.tally = {"exp": 0, "other": 0}
    step(*(rng.uniform(1, 2, size=shape).view(Counting) for shape in shapes))
    exps, other = (sum(int(np.prod(term)) for term in terms(*shapes)) for terms in step.work)
    assert Counting.tally == {"exp": exps, "other": other}


def launches(schedule, p, tiling, machine=Folded):
    watcher = WorkByLaunch(UNITS["wgmma"])
    machine(p, watcher).run(schedule, tiling)
    return watcher.launches


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n in CORE])
@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_work_agrees_with_what_is_counted_elsewhere(name, mask):
    """Bytes and matrix FLOPs as in a count; folded as unrolled, ragged tiles and grouped heads included."""
    schedule, rng = SCHEDULES[name], random.Random(name)
    for _ in range(5):
        p = Attention(
            rng.randint(1, 40), rng.randint(1, 9), Nk=rng.randint(1, 40), heads=4, kv_heads=2, batch=3,
            acc_dtype="fp32", lse=True, mask=parse_mask(mask), elementwise=rng.randint(0, 2),
        )  # fmt: skip
        tiling = Tiling(rng.randint(1, 20), rng.randint(1, 20))
        work, counts = launches(schedule, p, tiling), measure(schedule, p, tiling)
        for key, of in {"read_bytes": "read_bytes", "write_bytes": "write_bytes", "flops": "matrix_flops"}.items():
            assert sum(getattr(launch, of) for launch in work) == counts[key]
        assert len(work) == len(counts["steps"]) and not any(launch.unmarked for launch in work)
        if mask == "dense" or skips_tiles(schedule, p):
            assert launches(schedule, p, tiling, Machine) == work
        assert all(0 <= launch.floor_bytes <= launch.total_bytes for launch in work)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_step_of_every_schedule_says_what_it_does(name):
    schedule = SCHEDULES[name]
    work = launches(schedule, schedule.about(Attention(12, 4)), Tiling(5, 4), Machine)
    assert not any(launch.unmarked for launch in work) and sum(launch.floor_bytes for launch in work) > 0


@pytest.mark.parametrize("N, Nk, d, rows_q, rows_k", [(64, 64, 8, 16, 16), (50, 33, 7, 16, 10), (1, 100, 4, 1, 30)])
def test_operations_by_hand(N, Nk, d, rows_q, rows_k):
    """An exponential a score; of FlashAttention also one a row and key tile."""
    p, tiling, tiles = Attention(N, d, Nk=Nk, heads=2), Tiling(rows_q, rows_k), -(-Nk // rows_k)
    for name in ("flash1", "flash2"):
        (flash,) = launches(SCHEDULES[name], p, tiling)
        assert (flash.matrix_flops, flash.exps) == (2 * 4 * N * Nk * d, 2 * (N * Nk + N * tiles))
    three = launches(SCHEDULES["standard"], p, tiling)
    assert [x.exps for x in three] == [0, 2 * N * Nk, 0]
    assert [x.matrix_flops for x in three] == [4 * N * Nk * d, 0, 4 * N * Nk * d]


def test_steps_that_nobody_marked_are_named():
    def unheard_of(o):
        o[...] = 0

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("O", (i, p.dv), unheard_of), "O", i)

    (work,) = launches(text, Attention(8, 2), Tiling(3, 3), Machine)
    assert work.unmarked == {"unheard_of"} and work.write_bytes == 32


def test_a_mask_in_tiles_is_no_mask_for_tiles_of_another_size(tmp_path):
    """Four tiles of 16 see themselves: each word of K, V and Q is loaded once, whatever a larger tile would see."""
    (tmp_path / "tiles.txt").write_text("1000\n0100\n0010\n0001\n")
    for mask in (f"file:{tmp_path / 'tiles.txt'}", "window:0b"):
        p = Attention(N=64, d=8, mask=parse_mask(mask))
        (work,) = work_of(SCHEDULES["flash2"], p, Tiling(16, 16), UNITS["wgmma"])
        assert work.touched == {("read", name): 64 * 8 * 2 for name in "QKV"} | {("write", "O"): 64 * 8 * 2}
