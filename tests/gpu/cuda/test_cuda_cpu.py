"""Generated kernels run on the CPU (shim/): output, words per tensor by the kernel and by the pointers, both orders."""

import random
from functools import cache

import numpy as np
import on_cpu
import pytest
from spread import spread

from iosim import SCHEDULES, Attention, Folded, Numeric, Tensor, Tiling, Traffic
from iosim.core.dependent_tiles import Stretch
from iosim.core.problem import DENSE
from iosim.core.shapes import Tile
from iosim.gpu.cuda.machine import generate, known_steps
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.oracles.attention import attention
from iosim.schedules import CORE, Schedule
from iosim.steps import backward, passes, softmax, state, state_backward
from iosim.steps.passes import Number, Place
from iosim.steps.softmax import accumulate, minus_infinity, normalise, online_softmax, scores, zeros
from iosim.steps.state import OF_HEAD

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
MASKS = ["dense", "causal", "window:5", "global:2|strided:5", "causal:b&~window:2", "causal&window:3", "~causal",
         "causal&(chunk:7|sink:2)"]  # fmt: skip
TYPES = [("fp32", "fp32"), ("fp16", "fp32"), ("fp16", "fp16"), ("bf16", "fp32")]
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-2, "bf16": 1e-1}


def case(k):
    """Schedule, problem, tiling of the k-th random case; every other one in whole 16s, for the tensor cores."""
    rng = random.Random(k)
    name, wide = CORE[k % 6], k % 4 >= 2
    dtype, acc = rng.choice(TYPES[1:] if wide else TYPES)
    kv_heads = rng.choice([1, 2])
    mask = parse_mask(rng.choice(MASKS))
    d = rng.choice([16, 32, 48, 64]) if wide else rng.choice([3, 4, 8, 24])
    sizes = (
        {"N": rng.randint(16, 70), "Nk": rng.randint(16, 70)}
        if wide
        else {"N": rng.randint(1, 45), "Nk": rng.randint(1, 45)}
    )
    p = Attention(**sizes, d=d, dv=rng.choice([d, 16, 32] if wide else [d, 5, 8]), heads=kv_heads * rng.choice([1, 2]),
                  kv_heads=kv_heads, batch=rng.choice([1, 1, 2]), dtype=dtype, acc_dtype=acc, mask=mask,
                  lse=rng.random() < 0.3, elementwise=rng.choice([0, 0, 1]))  # fmt: skip
    rows = [16, 20, 32, 64] if wide else [1, 2, 5, 11, 16, 50]
    tiling = Tiling(rng.choice(rows), rng.choice(rows), rng.choice([1, 1, 3, 8]))
    return SCHEDULES[name], p, Tiling(1, 1) if name == "standard" else tiling


CASES = [case(k) for k in range(60)]


def in_the_short_run(k):
    """Two cases of each schedule in odd sizes, and two in whole 16s; one more for its mask, and one for its type."""
    return k < 25 or k == 28


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of all cases. programs[k] -> (program, library, its number there)."""
    folder = tmp_path_factory.mktemp("shim")
    return on_cpu.Libraries(CASES, lambda case: generate(*case, count=True), folder, in_the_short_run)


def inputs_of(program, seed):
    rng, found = np.random.default_rng(seed), {}
    for name in "QKV":
        array = program.arrays[name]
        values = rng.normal(scale=2, size=array.full_shape)
        found[name] = on_cpu.decode(on_cpu.encode(values, array.dtype), array.dtype).astype(np.float64)
    return found


def expected_output(p, tiling, inputs):
    visible = (
        None
        if p.mask is DENSE
        else p.mask.bind(p, tiling, True).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()
    )
    group = p.heads // p.kv_heads
    kv = [h // p.heads * p.kv_heads + h % p.heads // group for h in range(p.instances)]
    return np.stack(
        [attention(inputs["Q"][h], inputs["K"][kv[h]], inputs["V"][kv[h]], visible) for h in range(p.instances)]
    )


def simulated(schedule, p, tiling):
    traffic = Traffic()
    Folded(p, traffic).run(schedule, tiling)
    return {name: (int(r) * p.instances, int(w) * p.instances) for name, (r, w) in traffic.tensors.items()}


@pytest.mark.parametrize("k", spread(range(len(CASES)), in_the_short_run))
def test_kernels_compute_and_move_what_the_simulation_says(programs, k):
    schedule, p, tiling = CASES[k]
    program, library, number = programs[k]
    inputs = inputs_of(program, k)
    wanted, words = expected_output(p, tiling, inputs), simulated(schedule, p, tiling)
    for backwards in (False, True):
        outputs, counted, pointers = on_cpu.run(library, number, program, inputs, backwards)
        tolerance = max(TOLERANCE[p.dtype], 4 * TOLERANCE[p.dtype] * (p.acc_dtype == "fp16"))
        np.testing.assert_allclose(outputs["O"], wanted, atol=tolerance)
        assert counted == words
        assert pointers == words
    assert program.smem_bytes == program.footprint_bytes


def on_tensor_cores(programs, cases):
    return [k for k in cases if any(kernel.tensor_cores for kernel in programs.program(k).kernels)]


@pytest.mark.long
def test_the_cases_cover_what_they_should(programs):
    on_them = on_tensor_cores(programs, range(len(CASES)))
    assert len(on_them) >= 12 and {CASES[k][0].name for k in on_them} >= set(CORE[2:])
    assert sum(p.mask is not DENSE for _, p, _ in CASES) >= 20
    assert {p.heads // p.kv_heads for _, p, _ in CASES} == {1, 2}
    empty = [
        k
        for k, (s, p, t) in enumerate(CASES)
        if p.mask is not DENSE and not p.mask.bind(p, t, True).table.any(axis=1).all()
    ]
    assert empty, "rows that see nothing"


# ---------------------------------------------------------------- long rows, which all threads of a block share

LONG = [(2048, 32, 1, "fp16", "fp32"), (1024, 4, 1, "fp32", "fp32"), (1024, 16, 2, "fp16", "fp16"),
        (1100, 8, 1, "bf16", "fp32"), (555, 4, 3, "fp32", "fp32"), (4096, 128, 1, "fp16", "fp32")]  # fmt: skip


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Programs that are compiled together. few(program) -> (library, the number of the program there)."""
    programs = [long_rows(*row)[2] for row in LONG] + [large_scores(d)[2] for d in MANY_WORDS]
    programs += [program for dtype in ("fp32", "fp16") for program in (not_ours(dtype)[2], *less_barriers(dtype)[2])]
    library = on_cpu.build(programs, tmp_path_factory.mktemp("few"))
    return lambda program: (library, programs.index(program))


@cache
def long_rows(Nk, words, rows, dtype, acc):
    p, tiling = Attention(5, 4, Nk=Nk, dtype=dtype, acc_dtype=acc, mask=parse_mask("window:400")), Tiling(5, 64, rows)
    return p, tiling, generate(SCHEDULES["standard-tiled"], p, tiling, count=True, row_words=words)


@pytest.mark.parametrize("k", range(len(LONG)))
def test_a_row_that_many_warps_share(few, k):
    Nk, words, rows, dtype, _ = LONG[k]
    p, tiling, program = long_rows(*LONG[k])
    threads = program.kernels[1].block[0]
    assert threads % 32 == 0 and (threads == 512 or threads * words >= rows * Nk > (threads - 32) * words)
    inputs = inputs_of(program, k)
    for backwards in (False, True):
        outputs, counted, pointers = on_cpu.run(*few(program), program, inputs, backwards)
        np.testing.assert_allclose(outputs["O"], expected_output(p, tiling, inputs), atol=TOLERANCE[dtype])
        assert counted == pointers == simulated(SCHEDULES["standard-tiled"], p, tiling)


# ---------------------------------------------------------------- how scores are summed


def one_after_another(q, k):
    """Q K^T / sqrt(d), each product added to one sum of 32 bits."""
    s = np.zeros((len(q), len(k)), np.float32)
    for x in range(q.shape[1]):
        s = (s.astype(np.float64) + np.outer(q[:, x], k[:, x])).astype(np.float32)
    return s * np.float32(q.shape[1] ** -0.5)


MANY_WORDS = [256, 253]


@cache
def large_scores(d):
    p, tiling = Attention(150, d, dtype="fp32"), Tiling(16, 16)
    return p, tiling, generate(SCHEDULES["flash2"], p, tiling, count=True)


@pytest.mark.parametrize("d", MANY_WORDS)
def test_large_scores_of_long_rows_are_summed_in_parts(few, d):
    """Four sums that are added last round less than one: with scores of hundreds that is most of an output's error. With
    d = 256 four words are read at once, else one."""
    (_, _, program), rng = large_scores(d), np.random.default_rng(1)
    inputs = {name: rng.normal(scale=8 if name in "QK" else 1, size=(1, 150, d)).astype(np.float32) for name in "QKV"}
    found, _, _ = on_cpu.run(*few(program), program, {name: x.astype(np.float64) for name, x in inputs.items()})
    q, k, v = (inputs[name][0].astype(np.float64) for name in "QKV")
    weights = np.exp((s := one_after_another(q, k).astype(np.float64)) - s.max(axis=1, keepdims=True))
    expected, chain = attention(q, k, v), weights / weights.sum(axis=1, keepdims=True) @ v
    error, other = (np.sqrt(np.mean((o - expected) ** 2)) for o in (found["O"][0], chain))
    assert error < 0.5 * other


# ---------------------------------------------------------------- every step, in NumPy and in CUDA


SHAPES = {
    "S P dP": "ij",
    "Q Q2 Q3 O dO dQ part l m D LSE index": "i",
    "K V dK dV Krope Kscale": "j",
    "row state ds z e q1 o1 v1 b1 rows u1 gr grd": "",
    "C": "ii",
    "g gd b X": "i",
}
SHAPE = {name: tiles for names, tiles in SHAPES.items() for name in names.split()}
TENSORS = {**SCHEDULES["flash1-bwd"].tensors, "part": Tensor(("N", "dv"), "state"),
           "C": Tensor(("N", "N"), "state"), "X": Tensor(("N", "d"), "input"), "b": Tensor(("N",), "input"),
           "state": Tensor(("d", "dv"), "state"), "ds": Tensor(("d", "dv"), "state"), "z": Tensor(("d",), "state"), "e": Tensor((1,), "state"),
           "g": Tensor(("N", 1), "scale"), "gd": Tensor(("N", "d"), "scale"),
           "q1": Tensor((1, "d"), "input"), "o1": Tensor((1, "dv"), "state"), "v1": Tensor((1, "dv"), "input"), "b1": Tensor((1,), "input"),
           "rows": Tensor((8, "d"), "input"), "u1": Tensor((7, "dv"), "input"), "gr": Tensor((8, 1), "scale"), "grd": Tensor((8, "d"), "scale"),
           "Q2": Tensor(("N", 20), "input"), "Q3": Tensor(("N", 3), "input"), "Krope": Tensor(("Nk", 4), "input"), "Kscale": Tensor(("Nk", 3), "scale"), "row": Tensor((1, "Nk"), "state"), "index": Tensor(("N", 5), "index")}  # fmt: skip
GATED = {"products": ("C", "Q X"), "key_products": ("C", "X"), "delta_values": ("O", "b C X state"),
         "read_state": ("O", "Q state"), "add_chunk": ("state", "X O"), "state_factors": ("Q", "C X b"),
         "read_state_rows": ("Q", "O state"), "read_gradient_rows": ("Q", "O state"), "read_gradient": ("O", "X state"),
         "add_earlier": ("Q", "C X"), "add_later": ("Q", "C X"), "add_keys_back": ("state", "X O"),
         "delta_rests": ("O", "b C X state"), "add_chunk_back": ("state", "X O")}  # fmt: skip
RINGS = {"ring_state": ("o1", "q1 state rows"), "ring_key": ("o1", "state rows"), "ring_output": ("o1", "q1 rows u1 v1"),
         "ring_delta": ("v1", "b1 o1 rows u1"), "add_ring": ("state", "rows u1 v1")}  # fmt: skip
MORE = {  # inputs that are no tensors
    **dict.fromkeys(("hide", "clear"), lambda p, i, j: p.mask.part(i, j)),
    **dict.fromkeys(
        ("add_scores_from", "accumulate_columns", "accumulate_transposed"),
        lambda p, i, j: Place(Stretch(p.d, 7, 3), Stretch(p.d, 2, 8)),
    ),
    "drop": lambda p, i, j: p.dropout_part(i, j),
    "scale": lambda p, i, j: Number(p.d),
    **dict.fromkeys(("rescale", "block_scales", "quantised"), lambda p, i, j: Number(7)),
    **dict.fromkeys([f"{step} fixed" for step in (*GATED, *RINGS)], lambda p, i, j: OF_HEAD),
}


def step_schedule(name):
    """A schedule that loads the arguments of a step, takes it, and stores what it changed. The name of a step may be
    followed by that of its gates."""
    own = name.split()[0]
    step = next(
        getattr(module, own) for module in (softmax, passes, backward, state, state_backward) if hasattr(module, own)
    )
    outputs, inputs = (names.split() for names in ARGUMENTS[name])

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=all(SHAPE[n].startswith("i") for n in outputs)):
            for j in chip.tiles(p.Nk, p.Nk):
                tiles = {n: [{"i": i, "j": j}[x] for x in SHAPE[n]] for n in (*outputs, *inputs)}
                blocks = {n: chip.load(n, *tiles[n]) for n in (*outputs, *inputs)}
                more = [MORE[name](p, i, j)] if name in MORE else []
                chip.update(tuple(blocks[n] for n in outputs), step, *(blocks[n] for n in inputs), *more)
                for n in outputs:
                    chip.store(blocks[n], n, *tiles[n])

    return Schedule(f"only_{name.replace(' ', '_')}", text, "one step", tensors=TENSORS)


ARGUMENTS = {
    "zeros": ("O", ""), "minus_infinity": ("m", ""), "scores": ("S", "Q K"), "softmax_rows": ("S", ""), "clear": ("S", ""),
    "add_scores_from": ("S", "Q Kscale"), "accumulate_columns": ("dQ", "P Kscale"), "accumulate_transposed": ("dK", "dP Q3"),
    "online_softmax": ("S m l O", ""), "accumulate": ("O", "P V"), "normalise": ("O", "l"), "denormalise": ("O", "l"),
    "log_sum_exp": ("l", "m"), "keep": ("S", ""), "hide": ("S", ""), "drop": ("S", ""), "scale": ("S", ""),
    "merge": ("m l O", "part LSE"), "add_scores": ("S", "Q K"), "add_maximum": ("m", "S"), "exponentials": ("S", "m"),
    "add_sum": ("l", "P"), "add_maximum_and_sum": ("m l", "S"), "features": ("Q", ""), "more_features": ("Q2", "Q"),
    "add_keys": ("z", "K"), "cumulate": ("gd", ""), "invert": ("C", "b"), "own_values": ("O", "C X b"), "less_state": ("O", "Q state"), "read_normaliser": ("l", "Q z"),
    "weighted_sums": ("row", "S l"), "largest": ("index", "S"),
    "copied": ("Q", "O"), "block_scales": ("Kscale", "K"), "quantised": ("V", "K Kscale"),
    "scores_apart": ("S", "Q2 K Krope"), "rescale": ("K", "Kscale"), "probabilities": ("S", "l m"), "probabilities_from_lse": ("S", "LSE"),
    "row_dots": ("D", "dO O"), "add_row_dots": ("D", "dO O"), "probability_gradients": ("dP", "dO V"), "score_gradients": ("dP", "P D"),
    "score_gradients_of_rows": ("dP", "P"), "add_value_gradients": ("dV", "P dO"),
    "add_key_gradients": ("dK", "dP Q"), "add_query_gradients": ("dQ", "dP K"),
    "state_dots": ("z", "state ds"), "state_dots of all": ("e", "state ds"), "less_keys": ("gd", "X Q"), "more_keys": ("gd", "X Q"),
    "solve_back": ("O", "C b"), "weigh_rows": ("O", "b X"), "weigh_down": ("O", "b"), "earlier_rows": ("C", "Q X"), "add_rows": ("Q", "X"),
    "less_keys of one": ("g", "X Q"), "more_keys of one": ("g", "X Q"), "gate_gradients": ("gd z", "X Q"), "gate_gradients of one": ("g e", "X Q"),
    **GATED, **RINGS, **{f"{step} fixed": arguments for step, arguments in (GATED | RINGS).items()},
    **{f"{step} {gates}": (outputs, f"{inputs} {gates}") for step, (outputs, inputs) in GATED.items() for gates in ("g", "gd")},
    **{f"{step} {gates}": (outputs, f"{inputs} {gates}") for step, (outputs, inputs) in RINGS.items() for gates in ("gr", "grd")},
}  # fmt: skip
EMPTY_ROW = (
    "online_softmax softmax_rows add_maximum exponentials add_maximum_and_sum probabilities probabilities_from_lse"
)
STEP_TILES = [Tiling(6, 19), Tiling(3, 19), Tiling(16, 19)]  # a warp a row; all threads a row; a warp 8 rows


@pytest.fixture(scope="module")
def step_library(tmp_path_factory):
    p = Attention(21, 16, Nk=19, dtype="fp32", mask=parse_mask("causal"), dropout=Dropout(0.4, 3))
    folder = tmp_path_factory.mktemp("steps")

    def program_of(step):
        return generate(step_schedule(step[0]), p, step[1], count=True)

    return p, on_cpu.Libraries(STEPS, program_of, folder, lambda k: first_of_a_step(STEPS[k]))


STEPS = [(name, tiling) for name in ARGUMENTS for tiling in STEP_TILES]


def first_of_a_step(step):
    """Each step with one of the tilings, and each tiling with a third of the steps."""
    name, tiling = step
    return list(ARGUMENTS).index(name) % len(STEP_TILES) == STEP_TILES.index(tiling)


@pytest.mark.parametrize(
    "name, tiling", spread(STEPS, first_of_a_step, lambda step: f"{step[0]}-{step[1].rows_q} rows")
)
def test_a_step_does_the_same_in_numpy_and_in_cuda(step_library, name, tiling):
    p, made = step_library
    rng, (program, library, number) = np.random.default_rng(5), made[STEPS.index((name, tiling))]
    hbm = {n: rng.normal(size=a.shape).astype(np.float32) for n, a in program.arrays.items()}
    if "l" in hbm:
        hbm["l"] = np.abs(hbm["l"])
        hbm["l"][4] = 0
    for n in {"m", "LSE", *({"S"} if name in EMPTY_ROW.split() else ())} & set(hbm):
        hbm[n][4] = -np.inf
    if "C" in hbm:
        hbm["C"] = np.tril(hbm["C"])
    for n in {"g", "gd", "gr", "grd"} & set(ARGUMENTS[name][1].split()):  # sums of log decays, which fall
        hbm[n] = -np.abs(hbm[n]).cumsum(axis=0) / 8
    numeric = Numeric(p, {n: x.astype(np.float64) for n, x in hbm.items()})
    numeric.run(step_schedule(name), tiling)
    arrays, _, _ = on_cpu.run(library, number, program, hbm)
    for tensor in ARGUMENTS[name][0].split():
        np.testing.assert_allclose(arrays[tensor][0], numeric.hbm[tensor], rtol=2e-5, atol=4e-6)


def test_every_cuda_step_is_tested():
    assert {name.split()[0] for name in ARGUMENTS} == known_steps()


# ---------------------------------------------------------------- a schedule of somebody else


def squash(o):
    o[...] = o / (1 + np.abs(o))


squash.cuda = """
template <class O> STEP squash(const O& o) {
    each_piece(o, [&](float (&x)[O::V], int, int) {
        for (int k = 0; k < O::V; ++k) x[k] /= 1.0f + fabsf(x[k]);
    });
}
"""


def keys_freed_early(chip, p, t):
    """FlashAttention-2 as a user may write it: K makes room before V comes, and a step of their own at the end."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i)
        o = chip.compute("O", (i, p.dv), zeros)
        l, m = chip.compute("l", (i,), zeros), chip.compute("m", (i,), minus_infinity)
        for j in chip.tiles(p.Nk, t.rows_k):
            k = chip.load("K", j)
            s = chip.compute("S", (i, j), scores, q, k)
            chip.free(k)
            v = chip.load("V", j)
            chip.update((s, m, l, o), online_softmax)
            chip.update(o, accumulate, s, v)
        chip.update(o, normalise, l)
        chip.update(o, squash)
        chip.store(o, "Y", i)


MINE = Schedule("mine", keys_freed_early, "not ours", tensors={"Y": Tensor(("N", "dv"))})


@cache
def not_ours(dtype):
    p, tiling = Attention(50, 16, Nk=41, heads=2, dtype=dtype, acc_dtype="fp32"), Tiling(16, 16)
    return p, tiling, generate(MINE, p, tiling, count=True)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_schedule_that_is_not_ours_gets_its_kernel(few, dtype):
    p, tiling, program = not_ours(dtype)
    ours = generate(SCHEDULES["flash2"], p, tiling)
    assert program.smem_bytes == program.footprint_bytes == ours.smem_bytes - 16 * 16 * p.word_bytes
    inputs = inputs_of(program, 3)
    outputs, counted, pointers = on_cpu.run(*few(program), program, inputs)
    o = expected_output(p, tiling, inputs)
    np.testing.assert_allclose(outputs["Y"], o / (1 + np.abs(o)), atol=TOLERANCE[dtype])
    assert counted == pointers == simulated(MINE, p, tiling)


# ---------------------------------------------------------------- the shim sees what it should


@cache
def less_barriers(dtype):
    """(problem, tiling, a program of flash2 and those with one barrier or one wait for copies less)."""
    p, tiling = Attention(64, 32, Nk=64, dtype=dtype, acc_dtype="fp32"), Tiling(32, 16)
    program = generate(SCHEDULES["flash2"], p, tiling, count=True)
    sync = on_cpu.lines_of(program, r"__syncthreads\(\);|copies_done<\d>\(\);")
    return p, tiling, [program, *(on_cpu.without(program, *place) for place in sync)]


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_barrier_or_a_wait_left_out_is_seen(few, dtype):
    """Each `__syncthreads` and each wait for copies of flash2, one at a time; and what the whole kernel needs."""
    p, tiling, (whole, *less) = less_barriers(dtype)
    inputs = inputs_of(whole, 1)
    wanted = expected_output(p, tiling, inputs)

    def right(program):
        for backwards in (False, True):
            try:
                outputs, _, _ = on_cpu.run(*few(program), program, inputs, backwards)
            except AssertionError:
                return False
            if not np.allclose(outputs["O"], wanted, atol=TOLERANCE[dtype]):
                return False
        return True

    assert right(whole) and len(less) >= 4
    assert [number for number, program in enumerate(less) if right(program)] == []
