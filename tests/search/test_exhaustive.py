"""The best tiles of every schedule, with any options and under any mask, against every tiling there is.

The bytes of a tiling come from the formula that was derived by hand, and from a table of all pairs. Neither knows how
tiles are searched.
"""

import random
from itertools import product
from operator import attrgetter
from types import SimpleNamespace

import pytest
from footprints import footprints
from random_masks import random_mask

from iosim import SCHEDULES, Attention, Tiling
from iosim.core.problem import DENSE, TENSORS, skips_tiles
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.search import best as best_module
from iosim.search.best import best_tiles
from iosim.tuning.curve import curve, exact, step_at

pytestmark = pytest.mark.early

TILED = [s.name for s in SCHEDULES.values() if "ideal" not in s.rules]
SKIPPING = [name for name in TILED if SCHEDULES[name].skips]
WIDTHS = ["fp8", "fp16", "fp32", "fp64"]


def random_problem(rng, name, most):
    """A problem that the schedule is about, with random sizes, types, heads, options and mask."""
    schedule = SCHEDULES[name]
    few = {0: most, 1: 7}.get(len(schedule.more_tiles), 4)  # every tiling is tried
    heads, kv_heads = rng.choice([(1, 1), (1, 1), (3, 3), (4, 2)])
    options = {
        "Nk": rng.randint(1, few), "dv": rng.randint(1, min(few, 5)), "heads": heads,
        "kv_heads": kv_heads, "dtype": rng.choice(WIDTHS), "acc_dtype": rng.choice(WIDTHS), "lse": rng.random() < 0.4,
        "keep_p": rng.random() < 0.5, "visit_all": rng.random() < 0.3, "elementwise": rng.choice([0, 0, 2]), "count_init": rng.random() < 0.3,
        "splits": rng.randint(1, 5), "page_size": rng.randint(1, 5), "gqa": rng.choice(["repeat", "repeat", "pack"]),
        "dropout": Dropout(0.5, 1) if schedule.drops and rng.random() < 0.5 else None,
    }  # fmt: skip
    if not schedule.candidates and not schedule.sizes and rng.random() < 0.4:
        options |= {"register_bytes": rng.choice([0, 20, 100, 400]), "stages": rng.randint(1, 3)}
    if name in ("flash2", "block-sparse-q"):
        options["short_tile"] = rng.choice(["last", "first"])
    if SCHEDULES[name].family == "state":
        options["gqa"] = "repeat"
    dense = options["gqa"] == "pack" or rng.random() < (0.05 if schedule.skips else 0.5)
    options["mask"] = DENSE if dense else parse_mask(random_mask(rng))
    return schedule.about(Attention(rng.randint(1, few), rng.randint(1, 5), **options)).packed


def bytes_moved(schedule, p, tilings):
    """{a tiling: the bytes that it moves}, by the hand-derived formula."""
    width = {name: p.hbm_bytes(kind) for name, kind in {**TENSORS, **schedule.tensors}.items()}
    skips = skips_tiles(schedule, p)
    counts = {tiling: schedule.exact_traffic(p.tiled(tiling, skips), tiling) for tiling in tilings}
    return {
        tiling: sum(int(sum(pair)) * width[name] for name, pair in moved.items()) for tiling, moved in counts.items()
    }


def every_tiling(schedule, p, multiple):
    lengths = {"rows_q": p.N, "rows_k": p.Nk, "depth": max(p.d, p.Nk), "rows_o": p.N, "cols_o": p.dv, "kept": p.Nk}
    if schedule.family == "backward":
        lengths |= {"rows_o": max(p.N, p.Nk), "cols_o": max(p.d, p.dv)}
    names = ["rows_q", "rows_k", *schedule.more_tiles]
    sizes = [range(multiple, lengths[name] + multiple, multiple) for name in names]
    return [Tiling(**dict(zip(names, values, strict=True))) for values in product(*sizes)]


def judge(rng, name, monkeypatch, most=14):
    """One random problem at a few sizes of the SRAM, by both searches; the number of sizes at which anything fits."""
    schedule, multiple = SCHEDULES[name], rng.choice([1, 1, 1, 2, 3])
    outer = attrgetter("rows_q" if schedule.outer == "queries" else "rows_k")
    p = random_problem(rng, name, most)
    space = every_tiling(schedule, p, multiple)
    needs = {t: need.smem_bytes for t, need in zip(space, footprints(schedule, p, space), strict=True)}
    moved = bytes_moved(schedule, p, needs)
    steps = curve([schedule], p, multiple) if exact(schedule, p) else None
    fitting = 0
    for M in [*rng.sample(sorted(needs.values()), min(3, len(needs))), min(needs.values()) - 1]:
        least = min((moved[t] for t in needs if needs[t] <= M), default=None)
        for worth in (10**6, 0):  # sizes under a mask are counted one by one, and in arrays
            monkeypatch.setattr(best_module, "WORTH_NUMPY", worth)
            monkeypatch.setattr(best_module, "sys", SimpleNamespace(modules={}))
            found = best_tiles(schedule, p, M, multiple) if M > 0 else None
            assert (found is None) == (least is None), (name, p, M, multiple)
            if found is not None:
                assert needs[found] <= M, (name, p, M, multiple, found)
                assert moved[found] == least, (name, p, M, multiple, found)
                if skips_tiles(schedule, p) and p.mask is not DENSE:  # of equal outer tiles the smallest is taken
                    equal = [t for t in needs if needs[t] <= M and moved[t] == least]
                    assert outer(found) == min(map(outer, equal)), (name, p, M, multiple, found)
        if steps is not None and (step := step_at(steps, M)) is not None:
            assert moved[Tiling(step.Br, step.Bc, **step.more_tiles)] == least, (name, p, M, multiple, step)
        assert steps is None or (step is None) == (least is None), (name, p, M, multiple)
        fitting += least is not None
    return fitting


@pytest.mark.parametrize("name", TILED)
def test_the_best_tiles_move_the_fewest_bytes(name, monkeypatch):
    rng = random.Random(name)
    assert sum(judge(rng, name, monkeypatch, 9) for _ in range(16 if name in SKIPPING else 4))


@pytest.mark.long
@pytest.mark.parametrize("name", TILED)
def test_the_best_tiles_of_many_problems_move_the_fewest_bytes(name, monkeypatch):
    rng = random.Random(name + "long")
    assert sum(judge(rng, name, monkeypatch) for _ in range(250 if name in SKIPPING else 50)) > 100
