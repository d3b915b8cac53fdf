"""Kernels of the schedules beside the core's, on the CPU (shim/): gradients, softmax in passes, pages, splits, dropout.

As in cuda/test_cuda_cpu.py: output, words per tensor by the kernel and by the pointers, shared memory; threads in both orders.
"""

import random
from dataclasses import replace

import numpy as np
import on_cpu
import pytest
from spread import spread

from iosim import SCHEDULES, Attention, Folded, Tiling, Traffic
from iosim.gpu.cuda.machine import generate, why_not
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.schedules import CORE
from iosim.schedules.state import RULES
from validation.examples import example_arrays

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
TOLERANCE = {"fp32": 2e-5, "fp16": 2e-2, "bf16": 1e-1}
OTHERS = [name for name in SCHEDULES if name not in CORE]
MASKS = ["dense", "causal", "window:5", "causal&window:3", "global:2|strided:5"]
EACH = 3


def case(name, k):
    """Schedule, problem, tiling of the k-th case of a schedule: fp32 in odd sizes, fp16 for the tensor cores, any."""
    rng = random.Random(f"{name} {k}")
    schedule, wide = SCHEDULES[name], k == 1
    dtype, acc = ("fp16", "fp32") if wide else rng.choice([("fp32", "fp32"), ("fp32", "fp32"), ("bf16", "fp32")])
    shared = k == 0 and schedule.family == "attention"
    p = Attention(
        rng.randint(17, 40), 16 if wide else rng.choice([3, 8]), Nk=rng.randint(17, 50),
        heads=4 if shared else 1, kv_heads=2 if shared else 1, batch=1 if shared else 2, dtype=dtype, acc_dtype=acc,
        mask=parse_mask(MASKS[0] if k == 0 else rng.choice(MASKS)), splits=rng.choice([1, 3, 4]),
        page_size=rng.choice([4, 7, 16]), lse=rng.random() < 0.5, keep_p=rng.random() < 0.3,
        dropout=Dropout(0.3, 5) if schedule.drops and k == 2 else None,
    )  # fmt: skip
    rows = [16, 32] if wide else [1, 5, 16]
    tiling = Tiling(rng.choice(rows), rng.choice(rows), rng.choice([1, 3]), depth=16 if wide else rng.choice([1, 3]))
    return schedule, schedule.about(p), Tiling(1, 1) if "ideal" in schedule.rules else tiling


CASES = [case(name, k) for name in OTHERS for k in range(EACH)]
CASES += [(SCHEDULES[name], Attention(40, 16, Nk=33, batch=2, dtype=dtype, acc_dtype="fp32", dropout=Dropout(0.2, 9)),
           Tiling(1, 1) if name == "standard" else Tiling(16, 16))
          for name, dtype in zip(CORE, ["fp32", "fp16"] * 3, strict=True)]  # fmt: skip

CASES += [(SCHEDULES[name], Attention(20, 8, Nk=50, batch=2, dtype="fp32", mask=parse_mask("window:3")), Tiling(8, 8))
          for name in ("block-sparse-bwd", "block-sparse-q-bwd")]  # fmt: skip  # most keys are seen by no query

CASES += [(SCHEDULES["flash2"], Attention(37, d, Nk=45, batch=2, dtype=dtype, acc_dtype="fp32", mask=parse_mask(mask),
                                         short_tile="first", lse=True), Tiling(16, 16))
          for d, dtype, mask in ((16, "fp16", "causal"), (7, "fp32", "window:9"), (8, "bf16", "causal:b"), (8, "fp32", "dense"))]  # fmt: skip

CASES += [(SCHEDULES["state-bwd"], Attention(23, 16, dv=dv, batch=2, dtype=dtype, acc_dtype="fp32", rule=rule, initial_state=True,
                                            final_state=rule == "retnet"), Tiling(rows, 1))
          for rule, dv, dtype, rows in (("retnet", 16, "fp16", 16), ("gla", 7, "fp32", 5))]  # fmt: skip

CASES += [(SCHEDULES["flash2-pinned"], Attention(21, d, Nk=45, batch=2, dtype=dtype, acc_dtype="fp32", mask=parse_mask(mask)),
           Tiling(16, 16, kept=kept))
          for d, dtype, mask, kept in ((16, "fp16", "causal", 20), (7, "fp32", "dense", 1), (8, "bf16", "window:9", 45))]  # fmt: skip

LATENT = {"latent": True, "heads": 4, "kv_heads": 1, "gqa": "pack"}
FP8 = {"kv_dtype": "fp8", "acc_dtype": "fp32"}
CACHES = [  # latent rows, and other types than Q's, with scales
    (Attention(5, 11, dv=8, Nk=45, dtype="fp32", **LATENT), Tiling(5, 6)),
    (Attention(7, 48, dv=32, Nk=45, dtype="fp16", kv_scales="16", **FP8, **LATENT), Tiling(16, 16)),
    (Attention(9, 13, dv=10, Nk=45, dtype="fp32", kv_scales="4", **FP8, latent=True), Tiling(4, 5)),
    (Attention(19, 32, Nk=45, heads=4, kv_heads=2, dtype="bf16", kv_scales="tensor", **FP8), Tiling(16, 16)),
    (Attention(9, 20, dv=6, Nk=45, dtype="fp32", kv_dtype="fp16", kv_scales="8"), Tiling(4, 5)),
]
OF_CACHES = range(len(CASES), len(CASES) + 10)  # each schedule with a cache, then each with another
for shift in (0, 2):
    for k, name in enumerate(("flash1", "flash2", "split-kv", "paged", "paged-split-kv")):
        p, tiling = CACHES[(k + shift) % 5]
        CASES.append((SCHEDULES[name], replace(p.packed, splits=3, page_size=7), tiling))

CHOICES = [
    (
        Attention(7, 48, dv=32, Nk=45, dtype="fp16", kv_scales="16", top_k=3, key_block=9, **FP8, **LATENT),
        Tiling(16, 16),
    ),
    (Attention(6, 9, Nk=40, heads=4, kv_heads=2, dtype="fp32", top_k=2, key_block=5, lse=True), Tiling(3, 4)),
]
CASES += [(SCHEDULES[name], p.packed, t) for name in ("selected", "selected-keys-outside") for p, t in CHOICES]

ROWS = [
    Attention(5, 48, dv=32, Nk=9, dtype="bf16", kv_scales="16", **FP8, latent=True),
    Attention(6, 32, dv=7, Nk=6, heads=2, dtype="fp16", kv_scales="tensor", **FP8),
    Attention(3, 13, dv=10, Nk=8, dtype="fp32", kv_dtype="fp16"),
    Attention(4, 9, dv=5, Nk=7, dtype="fp32", kv_scales="4", **FP8),
]
CASES += [(SCHEDULES["cache-write"], p, Tiling(1, 1)) for p in ROWS]


def cases_of_rule(k, rule):
    """Seven cases of a rule of a state: odd sizes and whole 16s in one pass and with saved states, blocks of columns,
    blocks of rows and columns, chunks of one token or of all."""
    own = {"rule": rule, "acc_dtype": "fp32"}
    odd = Attention(
        29, 7, dv=10, heads=2, dtype="fp32", padding=k % 4, initial_state=k % 2 == 0, final_state=k % 3 == 0, **own
    )
    own["final_state"] = True
    wide = Attention(45, 16, dv=32, batch=2, dtype="bf16" if k % 2 else "fp16", initial_state=True, **own)
    small = Attention(11, 8, dv=3, dtype="fp32", initial_state=k % 2 == 1, **own)
    for name, p, tiling in (
        ("state-fused", odd, Tiling(8 + k % 3, 1)), ("state-fused", wide, Tiling(16, 1)),
        ("state-saved", odd, Tiling(8 + k % 3, 1, cols_o=4)), ("state-saved", wide, Tiling(16, 1, cols_o=16)),
        ("state-split", odd, Tiling(9, 1, cols_o=3)), ("state-tiles", odd, Tiling(9, 1, cols_o=4, depth=3)),
        ("state-fused", small, Tiling(1 + 10 * (k % 2), 1)),
    ):  # fmt: skip
        yield SCHEDULES[name], SCHEDULES[name].about(p), tiling


OF_RULES = range(len(CASES), len(CASES) + 7 * len(RULES))
CASES += [case for k, rule in enumerate(RULES) for case in cases_of_rule(k, rule)]
CASES += [(SCHEDULES["state-fused"], Attention(30, 6, dv=5, rule="linear", dtype="fp32", initial_state=True, normalise=True, **more),
           Tiling(8, 1)) for more in ({}, {"features": 9, "final_state": True})]  # fmt: skip


STEPS = [  # of decoding: rings of rows, and verified drafts
    ("state-ring", 18, {"ring": 5}), ("state-verify", 7, {"ring": 3, "drafts": 3, "accepted": 1}),
    ("state-verify", 5, {"rollback": "snapshots", "drafts": 2, "accepted": 0}),
]  # fmt: skip
for k, rule in enumerate(RULES):
    name, N, more = STEPS[k % 3]
    p = Attention(
        N,
        7,
        dv=10,
        heads=2,
        dtype="bf16" if k > 4 else "fp32",
        acc_dtype="fp32",
        rule=rule,
        initial_state=k % 2 == 0,
        **more,
    )
    CASES.append((SCHEDULES[name], SCHEDULES[name].about(p), Tiling(1, 1, cols_o=4)))


def in_the_short_run(k):
    """Of each schedule, one of its three random cases; of the chosen cases all but the second cache of a schedule, and
    three of seven of each rule of a state."""
    if k in OF_RULES:
        rule, number = divmod(k - OF_RULES[0], 7)
        return number in (rule % 2, 3 - rule % 2, 4 + rule % 2)
    name, number = divmod(k, EACH)
    return k not in OF_CACHES[5:] if name >= len(OTHERS) else number == name % EACH


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of all cases. programs[k] -> (program, library, its number there)."""
    folder = tmp_path_factory.mktemp("family")
    return on_cpu.Libraries(CASES, lambda case: generate(*case, count=True), folder, in_the_short_run)


def rounded(array, dtype):
    return on_cpu.decode(on_cpu.encode(array, dtype), dtype).astype(np.float64)


def simulated(schedule, p, tiling):
    traffic = Traffic()
    Folded(p, traffic).run(schedule, tiling)
    return {name: (int(r) * p.instances, int(w) * p.instances) for name, (r, w) in traffic.tensors.items()}


@pytest.mark.parametrize("k", spread(range(len(CASES)), in_the_short_run, lambda k: f"{CASES[k][0].name}-{k}"))
def test_kernels_compute_and_move_what_the_simulation_says(programs, k):
    schedule, p, tiling = CASES[k]
    program, library, number = programs[k]
    inputs, answers = example_arrays(schedule, program, k, rounded)
    words = simulated(schedule, p, tiling)
    for backwards in (False, True):
        outputs, counted, pointers = on_cpu.run(library, number, program, inputs, backwards)
        for name, wanted in answers.items():
            tolerance = TOLERANCE[p.dtype] * max(1, np.abs(wanted).max())
            np.testing.assert_allclose(outputs[name], wanted, atol=tolerance, err_msg=name)
        assert counted == words
        assert pointers == words
    assert program.smem_bytes == program.footprint_bytes


@pytest.mark.parametrize(
    "name, rule",
    [("state-bwd", "mamba2"), ("state-bwd", "gla"), ("state-bwd-saved", "gla"), ("state-bwd-saved", "deltanet"),
     ("state-bwd-saved", "gdn"), ("state-bwd-saved", "kda")],
)  # fmt: skip
def test_gates_take_in_a_gradient_of_the_last_state(name, rule, tmp_path):
    """Both states are on chip. What comes after one does not always fit into its place."""
    schedule = SCHEDULES[name]
    p = schedule.about(Attention(13, 6, dv=5, dtype="fp32", rule=rule, initial_state=True, final_state=True))
    program = generate(schedule, p, Tiling(4, 1), True)
    inputs, answers = example_arrays(schedule, program, 1, rounded)
    outputs, counted, _ = on_cpu.run(on_cpu.build([program], tmp_path), 0, program, inputs)
    for name, wanted in answers.items():
        np.testing.assert_allclose(outputs[name], wanted, atol=1e-4, err_msg=name)
    assert counted == simulated(schedule, p, Tiling(4, 1))
    assert program.smem_bytes >= program.footprint_bytes


def test_every_schedule_has_its_kernels():
    assert [name for name, schedule in SCHEDULES.items() if why_not(schedule)] == []


@pytest.fixture(scope="module")
def barriers(tmp_path_factory):
    """(library, {schedule: (program, its barriers, the number of the program there)}): after each program are those that
    have one barrier less."""
    made, places = [], {}
    for name in ("flash2-bwd", "state-fused", "paged"):
        program = generate(
            SCHEDULES[name], SCHEDULES[name].about(Attention(64, 32, dtype="fp32")), Tiling(32, 16), True
        )
        sync = on_cpu.lines_of(program, r"__syncthreads\(\);")
        places[name] = program, sync, len(made)
        made += [program, *(on_cpu.without(program, *place) for place in sync)]
    return on_cpu.build(made, tmp_path_factory.mktemp("barriers")), places


@pytest.mark.parametrize("name", ["flash2-bwd", "state-fused", "paged"])
def test_a_barrier_left_out_is_seen(barriers, name):
    library, (program, sync, first) = barriers[0], barriers[1][name]
    inputs, answers = example_arrays(SCHEDULES[name], program, 1, rounded)

    def right(k):
        for backwards in (False, True):
            try:
                outputs, _, _ = on_cpu.run(library, k, program, inputs, backwards)
            except AssertionError:  # pages are then looked for where none are
                return False
            if not all(np.allclose(outputs[x], wanted, atol=1e-4) for x, wanted in answers.items()):
                return False
        return True

    assert right(first) and len(sync) >= 2
    assert [place for k, place in enumerate(sync) if right(first + 1 + k)] == []
