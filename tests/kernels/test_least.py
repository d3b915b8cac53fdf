"""The least time of a launch: what it reads from shared memory, what binds, and what stands beside it."""

import csv

import numpy as np
import pytest
from paths import DOCS, ROOT, TESTS

from iosim.core.problem import Attention
from iosim.core.tiling import parse_tiles
from iosim.hardware import load
from iosim.kernels.least import least_time, read_once, turns
from iosim.kernels.walk.code import Block, Code, Operation, Type
from iosim.kernels.walk.work import Arithmetic
from iosim.kernels.ways import Way
from iosim.schedules import SCHEDULES
from iosim.timing.bound import time_at_least

KERNELS = str(TESTS / "helpers" / "triton_kernels.py")
SEEN = list(csv.DictReader((ROOT / "tests" / "data" / "shared_reads.csv").open()))
TABLE = {row["tiles"]: row for row in SEEN if row["d"] == "128" and row["run"] == "1"}


def attend(tiles, gpu="h200", heads=32, N=4096, d=128):
    from iosim.kernels.explain import explain
    from iosim.kernels.read.arguments import tensor
    from iosim.kernels.read.kernel_file import kernel_of

    t = parse_tiles(tiles)
    tensors = dict.fromkeys("QKVO", tensor("fp16", (heads, N, d)))
    sizes = {"scale": 0.1, "n": N, "D": d, "BR": t.rows_q, "BC": t.rows_k}
    grid = (N // t.rows_q, heads)
    return explain(kernel_of(KERNELS, "attend"), grid, hardware=gpu, resources=False, **tensors, **sizes)


@pytest.mark.needs("triton")
@pytest.mark.parametrize("tiles", TABLE)
def test_shared_memory_reads_are_those_of_the_rule_and_no_kernel_was_faster(tiles):
    """The ten kernels that a counter of an H200 saw (tests/timing/test_products.py compares the rule with it)."""
    row = TABLE[tiles]
    assert (row["gpu"], row["N"], row["heads"]) == ("h200", "4096", "32")
    found = attend(tiles)
    bound = time_at_least(SCHEDULES["flash2"], Attention(4096, 128, heads=32), parse_tiles(tiles), load("h200"))
    assert found.bound.work.smem_read_bytes == bound.work.smem_read_bytes
    assert found.at_least_seconds == pytest.approx(bound.seconds) and found.bound.binds == bound.binds
    assert found.at_least_seconds * 1e6 < float(row["microseconds"])
    words, seen = f"{found.bound.work.smem_read_bytes // 4:,}", f"{int(row['counter_words']):,}"
    times = f" | {found.bound.binds} | {found.at_least_seconds * 1e6:,.0f} | {row['microseconds']} |"
    page = (DOCS / "tiles.md").read_text().splitlines()
    assert any(line.startswith(f"| 128 | {tiles} | {words} | {seen} |") and line.endswith(times) for line in page)
    assert "tiles.md#what-matrix-units-read" in (DOCS / "explain.md").read_text()


@pytest.mark.needs("triton")
def test_no_launch_on_an_h200_was_faster(monkeypatch):
    """Those of the kernels of the tests, which validation/kernels/on_gpu.py measured: sums, softmax, products, gathers,
    atomics, copies by descriptors, and attention."""
    monkeypatch.syspath_prepend(ROOT / "validation" / "kernels")
    from listed import listed, ready

    package = "tests/helpers/triton_kernels.py"
    rows = csv.DictReader((ROOT / "validation" / "kernels" / "on_gpu.csv").open())
    names = ("kernel", "sizes", "configuration")
    times = {tuple(r[n] for n in names): float(r["nanoseconds"]) for r in rows if r["package"] == package}
    compared = {}
    for one in listed("", all_sizes=True):
        for each in ready(one) if one.package == package else ():
            chosen = " ".join(f"{name}={value}" for name, value in each.chosen.constants.items())
            if (key := (one.kernel, one.sizes, chosen)) in times:
                compared[key] = times[key] * 1e-9 / each.explained(False, "h200").at_least_seconds
    assert len(compared) == len(times) > 30 and min(compared.values()) > 1
    assert min(ratio for (kernel, *_), ratio in compared.items() if kernel == "matmul") < 2


@pytest.mark.needs("triton")
def test_mma_sync_reads_the_second_factor_for_each_warp_and_the_first_once():
    found = attend("64x32", "a100-80gb", heads=2, N=256).bound.work
    warps, turn = 2, 2 * 32 * 128  # of 32 rows each: K and V
    assert found.smem_read_bytes == 2 * 2 * 4 * (64 * 128 + 8 * warps * turn)
    assert found.smem_write_bytes == 2 * 2 * 4 * (64 * 128 + 8 * turn)


def compiled(kernel, target, warps, **values):
    from iosim.kernels.read.compile import Compilation
    from iosim.kernels.read.kernel_file import kernel_of

    return Compilation(kernel_of(KERNELS, kernel), values, target, warps, 3)


def with_products(kernel, rows, columns):
    """A kernel with products: attention, or one product of matrices."""
    from iosim.kernels.read.arguments import tensor

    if kernel == "attend":
        own = {"scale": 0.1, "n": 512, "D": 64, "BR": rows, "BC": columns}
        return {**dict.fromkeys("QKVO", tensor("fp16", (2, 512, 64))), **own}
    own = {"M": 1024, "N": 1024, "K": 1024, "BM": rows, "BN": columns, "BK": 32, "GROUP": 1}
    return {**dict.fromkeys("ABC", tensor("fp16", (1024, 1024))), **own}


@pytest.mark.needs("triton")
@pytest.mark.parametrize("kernel", ["attend", "matmul"])
@pytest.mark.parametrize("rows, columns, warps", [(128, 64, 8), (64, 128, 4), (128, 128, 4), (256, 64, 8), (64, 32, 4)])
def test_compiled_instructions_read_what_the_rule_counts(kernel, rows, columns, warps):
    """Of wgmma to the byte, once each. A warp of mma.sync holds 32 rows at most: none reads less than is counted."""
    values = with_products(kernel, rows, columns)
    made = compiled(kernel, "sm_90", warps, **values)
    assert made.resources.product_reads["wgmma"] == read_once(made.code, load("h100"))
    older = compiled(kernel, "sm_80", warps, **values)
    assert older.resources.product_reads.keys() == {"ldmatrix"}
    assert older.resources.product_reads["ldmatrix"] >= read_once(older.code, load("a100-80gb"))


@pytest.mark.needs("triton")
@pytest.mark.parametrize("rows, warps, said", [(32, 4, True), (64, 2, True), (64, 4, False)])
def test_a_kernel_without_wgmma_is_said_to_have_none(rows, warps, said):
    from iosim.kernels.explain import explain
    from iosim.kernels.read.kernel_file import kernel_of

    values = with_products("attend", rows, 64)
    found = explain(kernel_of(KERNELS, "attend"), (512 // rows, 2), num_warps=warps, hardware="h100", **values)
    notes = [note for note in found.warnings if "compiled to mma.sync, not to wgmma" in note]
    assert len(notes) == said and found.hardware.matrix_unit == "wgmma"


def product(number, first, second, sizes, element="f16"):
    """`tt.dot` of two values, with its sizes (m, n, k)."""
    m, n, k = sizes
    types = Type((m, k), element), Type((k, n), element), Type((m, n), "f32")
    return Operation("tt.dot", (first, second, 99), (number,), types, types[2:])


def load_of(number, rows, columns):
    return Operation(
        "tt.load", (98,), (number,), (Type((rows, columns), "!tt.ptr<f16>"),), (Type((rows, columns), "f16"),)
    )


def test_what_a_load_brings_is_counted_once_for_whatever_products():
    """S = Q K^T twice with the same Q, and dQ = S K: K is the second factor of all, and S is computed."""
    turned = Operation("tt.trans", (2,), (3,), (Type((32, 16), "f16"),), (Type((16, 32), "f16"),))
    dots = product(4, 1, 3, (128, 32, 16)), product(5, 1, 3, (128, 32, 16)), product(6, 4, 2, (128, 16, 32))
    code = Code("twice", (), (), (Block((), (load_of(1, 128, 16), load_of(2, 32, 16), turned, *dots)),))

    def work(gpu):
        return [sum(part) for part in zip(*Arithmetic(code, load(gpu)).found[id(code.blocks[0])], strict=True)]

    flops, q, k = 3 * 2 * 128 * 32 * 16, 2 * 128 * 16, 2 * 32 * 16
    assert work("h100") == [flops, 0, 2 * q + 3 * 2 * k, q + k]
    assert work("a100-80gb") == [flops, 0, q + 3 * 4 * k, q + k]


def test_each_resource_has_its_own_time():
    """Two lanes that ask for the same word are one sector, and the busiest multiprocessor of each resource decides."""
    chip, many = load("h100"), np.full(132, 1000)
    each = {"flops": many, "exponentials": many, "smem_read_bytes": many, "smem_write_bytes": many * 0}
    each["smem_write_bytes"] = np.array([132_000, *[0] * 131])
    ways = {"X": {"reads": Way(800, 1600, 100, 200, 320), "writes": Way(), "atomics": Way(4, 8, 4, 8, 32)}}
    code = lambda element: Code("f", (), (), (Block((), (product(4, 1, 2, (64, 8, 16), element),)),))  # noqa: E731
    found = {element: least_time(code(element), ways, each, chip, {}).times for element in ("f16", "f32", "f64", "i8")}
    shared = 132 * 133_000 / chip.shared_memory_bytes_per_second
    assert found["f16"] == pytest.approx({
        "memory": 208 / chip.hbm_bytes_per_second, "l2": 328 / chip.l2_bytes_per_second, "shared": shared,
        "matrix": 132_000 / chip.flops_per_second["fp16"], "exp": 132_000 / chip.flops_per_second["exp"],
    })  # fmt: skip
    assert found["f32"] == found["f16"] and "matrix" not in found["i8"]
    assert found["f64"]["matrix"] == pytest.approx(132_000 / chip.flops_per_second["fp64"])


def test_multiprocessors_are_not_always_busy():
    assert turns(np.full(132, 7), 132) == 1 and turns(np.full(133, 7), 132) == pytest.approx(264 / 133)
    assert turns(np.array([1, 1, 10]), 2) == pytest.approx(20 / 12) and turns(np.array([4, 6]), 132) == 132 * 6 / 10
    assert turns(np.zeros(3, int), 2) == 1
