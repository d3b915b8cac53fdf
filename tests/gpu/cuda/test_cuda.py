"""The machine that writes CUDA: layout, barriers, tables, programs, errors. No compiler and no GPU needed."""

import re

import numpy as np
import pytest
from gpu_here import has_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim import SCHEDULES, Attention, InputError, Tensor, Tiling
from iosim.errors import ScheduleError
from iosim.gpu.cuda.expressions import in_c, split_loops
from iosim.gpu.cuda.machine import generate, known_steps, why_not
from iosim.gpu.cuda.mask_tables import Tables, bits
from iosim.gpu.cuda.plan import Life, place_blocks
from iosim.gpu.cuda.record import LoopNode, SymbolicTile
from iosim.masks import parse_mask
from iosim.schedules import CORE, Schedule
from iosim.search.best import footprint
from iosim.steps.softmax import keep, scores, zeros
from validation.examples import cases
from validation.selftest import run_case

FP16 = {"dtype": "fp16", "acc_dtype": "fp32"}


# ---------------------------------------------------------------- shared memory


def peak(lives):
    """The most bytes that are alive at one time: no placement needs less."""
    return max((sum(x.size for x in lives if x.start <= life.start < x.end) for life in lives), default=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 300)), max_size=8))
def test_blocks_that_live_together_do_not_overlap(spans):
    lives = [Life(start, start + length, 2 * size) for start, length, size in spans]
    offsets, total = place_blocks(lives)
    for a, x in zip(lives, offsets, strict=True):
        assert x % a.alignment == 0 and x + a.size <= total
        for b, y in zip(lives, offsets, strict=True):
            assert a is b or not a.meets(b) or x + a.size <= y or y + b.size <= x
    assert total >= peak(lives)
    if all(a.meets(b) for a in lives for b in lives):
        assert total == sum(life.size for life in lives), "no gap where all live together"


sizes = st.integers(1, 200)


@settings(max_examples=100, deadline=None)
@given(
    N=sizes, Nk=sizes, d=st.sampled_from([1, 3, 16, 40, 64]), rows_q=sizes, rows_k=sizes, rows_s=st.integers(1, 9),
    dtype=st.sampled_from(["fp32", "fp16", "bf16"]), acc=st.sampled_from([None, "fp32"]), name=st.sampled_from(CORE),
    mask=st.sampled_from(["dense", "causal"]), tensor_cores=st.sampled_from([None, False]),
)  # fmt: skip
def test_shared_memory_is_the_footprint(N, Nk, d, rows_q, rows_k, rows_s, dtype, acc, name, mask, tensor_cores):
    p, tiling = (
        Attention(N, d, Nk=Nk, dtype=dtype, acc_dtype=acc, mask=parse_mask(mask)),
        Tiling(rows_q, rows_k, rows_s),
    )
    program = generate(SCHEDULES[name], p, tiling, tensor_cores=tensor_cores)
    plain = footprint(SCHEDULES[name], p, tiling).peak_bytes
    assert program.smem_bytes == program.footprint_bytes and program.plain_footprint_bytes == plain
    if not any(kernel.tensor_cores for kernel in program.kernels):
        assert program.smem_bytes == plain


def test_the_footprint_by_hand():
    """2 Bc d + Br d in fp16, Br d + Br Bc + 2 Br in fp32; with Br = 100, Bc = 100 rounded to 112."""
    p = Attention(4096, 80, **FP16)
    assert generate(SCHEDULES["flash2"], p, Tiling(64, 48)).smem_bytes == 2 * (2 * 48 * 80 + 64 * 80) + 4 * (
        64 * 80 + 64 * 48 + 2 * 64
    )
    program = generate(SCHEDULES["flash2"], p, Tiling(100, 100))
    assert program.smem_bytes == 2 * (3 * 112 * 80) + 4 * (112 * 80 + 112 * 112 + 2 * 112) == 140_672
    assert program.plain_footprint_bytes == 120_800


# ---------------------------------------------------------------- programs


def test_launches_grids_and_tensors():
    p = Attention(1000, 64, Nk=777, heads=6, kv_heads=2, batch=3, **FP16)
    one, two, three = generate(SCHEDULES["standard-tiled"], p, Tiling(64, 48)).kernels
    assert [k.grid for k in (one, two, three)] == [(16, 18, 1), (1000, 18, 1), (16, 18, 1)]
    assert [k.tensors for k in (one, two, three)] == [("Q", "K", "S"), ("S", "P"), ("P", "V", "O")]
    assert [k.tensor_cores for k in (one, two, three)] == [True, False, True]
    (flash1,) = generate(SCHEDULES["flash1"], p, Tiling(64, 48)).kernels
    assert flash1.grid == (1, 18, 1), "keys outside: no loop is independent"
    sums, main = generate(SCHEDULES["flash2-bwd"], p, Tiling(64, 48)).kernels
    assert sums.grid == (16, 18, 1) and main.grid == (1, 18, 1), "a kernel adds to dQ in turn, without atomics"
    program = generate(SCHEDULES["flash2"], p, Tiling(64, 48))
    assert program.arrays["K"].full_shape == (6, 777, 64) and program.arrays["O"].full_shape == (18, 1000, 64)
    assert "blockIdx.y / 6 * 2 + blockIdx.y % 6 / 3" in program.kernels[0].source
    assert program.starts == () and generate(SCHEDULES["flash1"], p, Tiling(64, 48)).starts == ("O", "l", "m")


def test_few_barriers_where_a_warp_owns_its_rows():
    """flash2's inner loop needs the whole block only where K or V change hands: 3 times; steps on own rows do not."""
    (kernel,) = generate(SCHEDULES["flash2"], Attention(1024, 64, **FP16), Tiling(64, 64)).kernels
    loop = kernel.source[kernel.source.index("for (int j") : kernel.source.index("normalise")]
    assert loop.count("__syncthreads") == 3
    between = loop[loop.index("scores(") : loop.index("online_softmax")]
    assert "Team::sync();" in between and "__syncthreads" not in between
    assert "copies_done<1>();" in loop[: loop.index("scores(")], "V may still be on its way when K is there"


@pytest.mark.parametrize(
    "text", ["causal", "window:9", "causal:b&~window:2", "global:7|strided:3", "~(causal|window:1b)", "sink:4|chunk:5",
             "chunk:2b&~sink:1b|dilated:3:2"]
)  # fmt: skip
def test_tables_and_predicates_of_masks(text):
    """Bits against the table; the C expression, read as Python, against the mask."""
    p = Attention(37, 4, Nk=45, mask=parse_mask(text)).tiled(Tiling(8, 6))
    tables, table = Tables(p.mask), p.mask.table
    tables.use("active"), tables.use("whole")
    whole = [
        [p.mask.visible(i * 8, min(8, 37 - i * 8), j * 6, min(6, 45 - j * 6)).all() for j in range(8)] for i in range(5)
    ]
    for name, wanted in (("active", table), ("whole", np.array(whole))):
        words = tables.words[name]
        got = [int(words[k // 32]) >> k % 32 & 1 for k in range(wanted.size)]
        assert got == wanted.ravel().astype(int).tolist()
    python = re.sub(r"(\d)LL", r"\1", tables.visible())
    python = python.replace("&&", " and ").replace("||", " or ").replace("!", " not ").replace("/", "//")
    python = python.replace("true", "True")
    visible = p.mask.visible(0, 37, 0, 45)
    assert all(bool(eval(python, {"x": x, "y": y})) == visible[x, y] for x in range(37) for y in range(45))


def test_tables_of_documents_and_blocks(tmp_path):
    blocks = np.random.default_rng(1).random((5, 4)) < 0.5
    order = np.argsort(~blocks, axis=1, kind="stable")
    np.savez(tmp_path / "b.npz", kv_num_blocks=blocks.sum(axis=1), kv_indices=order, BLOCK_SIZE=np.array([8, 11]))
    mask = parse_mask(f"documents:30,1,9 | file:{tmp_path / 'b.npz'} & ~documents:20,20")
    p = Attention(40, 4, mask=mask).tiled(Tiling(8, 6))
    tables, seen = Tables(p.mask), p.mask.visible(0, 40, 0, 40)
    python = tables.visible().replace("LL", "").replace("/", "//").replace("&&", "and").replace("||", "or")
    names = {"bit": lambda words, k: int(words[k // 32]) >> k % 32 & 1, **tables.words}
    python = python.replace("!", " not ")
    assert all(bool(eval(python, {**names, "x": x, "y": y})) == seen[x, y] for x in range(40) for y in range(40))


def test_large_tables_are_arguments(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "mask.npy", rng.random((400, 400)) < 0.5)
    p = Attention(400, 16, mask=parse_mask(f"file:{tmp_path / 'mask.npy'}"))
    program = generate(SCHEDULES["block-sparse-q"], p, Tiling(16, 16))
    assert program.kernels[0].tables == ("file0",) and set(program.tables) == {"file0"}
    assert "__constant__ const unsigned active" in program.source and bits([True] + [False] * 32).tolist() == [1, 0]


# ---------------------------------------------------------------- errors


def test_a_step_without_cuda_is_named():
    def unheard(o): ...

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("O", (i, p.dv), unheard), "O", i)

    with pytest.raises(ScheduleError, match=r"'unheard' has no CUDA.*online_softmax.*unheard\.cuda") as caught:
        generate(text, Attention(8, 4), Tiling(4, 4))
    assert caught.value.exit_code == 2 and why_not(text) and not why_not(SCHEDULES["flash2"])
    assert {"scores", "hide", "zeros"} <= known_steps()


def test_a_step_may_not_take_the_name_of_another():
    """Its CUDA would do something else."""

    def features(o): ...

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("O", (i, p.dv), features), "O", i)

    with pytest.raises(ScheduleError, match="'features' has the name of a step of iosim"):
        generate(text, Attention(8, 4), Tiling(4, 4))


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"dtype": "fp64"}, "--dtype"),
        ({"dtype": "fp8"}, "--dtype"),
        ({"heads": 70_000}, "--heads"),
        ({"acc_dtype": "fp64"}, "--acc-dtype"),
        ({"Nk": 2**31}, "found '2147483648 positions of K'; allowed: at most 1073741824"),
    ],
)
def test_what_no_kernel_can_do(options, where):
    with pytest.raises(InputError, match=where):
        generate(SCHEDULES["flash2"], Attention(8, 4, **options), Tiling(4, 4))


def test_a_bit_beyond_int_has_a_number_of_64_bits():
    assert in_c(2**16, 2**15) == "65536LL" and in_c(2**16, 2**15 - 1) == "65536"


def test_tensor_cores_on_demand():
    with pytest.raises(InputError, match="tensor cores"):
        generate(SCHEDULES["flash2"], Attention(64, 64, dtype="fp32"), Tiling(16, 16), tensor_cores=True)
    p = Attention(64, 64, **FP16)
    made = {
        want: generate(SCHEDULES["flash2"], p, Tiling(16, 16), tensor_cores=want).kernels[0].tensor_cores
        for want in (None, False, True)
    }
    assert made == {None: True, False: False, True: True}


def test_a_text_may_not_look_at_a_tile():
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.compute("O", (i.size, p.dv), zeros)

    with pytest.raises(ScheduleError, match="only knows while it runs"):
        generate(text, Attention(8, 4), Tiling(4, 4))


def test_parts_of_blocks_and_loops_in_loops():
    """A block loaded whole and used by parts, in tiles of tiles."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, 32, parallel=True):
            q = chip.load("Q", i)
            k = chip.load("K")
            for x in chip.tiles(i, 8):
                for j in chip.tiles(p.Nk, 4):
                    s = chip.compute("S", (x, j), scores, q[x], k[j])
                    chip.update(s, keep)
                    chip.store(s, "S", x, j)

    schedule = Schedule("parts", text, "", tensors={"S": Tensor(("N", "Nk"))})
    program = generate(schedule, Attention(50, 16, Nk=30, dtype="fp32"), Tiling(1, 1))
    source = program.kernels[0].source
    assert "for (int j = 0; j < (ni + 7) / 8; ++j)" in source and program.kernels[0].grid[0] == 2
    assert program.smem_bytes == program.footprint_bytes == 4 * (32 * 16 + 30 * 16 + 8 * 4)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no GPU, or no CuPy")
def test_some_of_the_self_test_on_the_gpu(tmp_path):
    found = [case for case in cases(tmp_path) if case.sizes["N"] <= 1024][::7]
    assert [row["case"] for row in map(run_case, found) if not row["ok"]] == []


def loops(*sizes):
    """Loops inside each other: (positions, those of a tile) of each, outermost first."""
    found = []
    for depth, (length, step) in enumerate(sizes):
        node = LoopNode(SymbolicTile(length, step, min(step, length), None, depth), None, False)
        (found[-1].body if found else []).append(node)
        found.append(node)
    return found


@pytest.mark.parametrize("sizes, split", [
    ([(64, 16)], []), ([(65, 16)], [0]), ([(63, 16)], []), ([(79, 16)], [0]),  # a last tile, and four whole ones before
    ([(65, 16)] * 2, [0, 1]), ([(65, 16)] * 3, [1, 2]), ([(65, 16), (65, 16), (64, 16)], [0, 1]),
])  # fmt: skip
def test_loops_are_written_twice_if_a_last_tile_is_smaller(sizes, split):
    """With four whole tiles or more; and four innermost loops at most, for which outer loops are written once."""
    nodes = loops(*sizes)
    assert split_loops(nodes[:1]) == {nodes[k] for k in split}
