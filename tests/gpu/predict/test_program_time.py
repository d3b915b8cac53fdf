"""The time of a launch follows from what its programs do, by rates of the GPU alone. Worked out by hand here."""

from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from iosim.gpu.predict.launch_time import Rates
from iosim.gpu.predict.program_time import program_seconds, time_of


class Work(NamedTuple):
    """The operations of one program."""

    flops: int = 0
    tensor_flops: int = 0
    exponentials: int = 0
    operations: int = 0
    waits: int = 0


SMS = 10
RATES = Rates(
    sms=SMS, dram_bytes_per_second=1e12, l2_bytes_per_second=4e12, tensor_flops_per_second={"fp16": 1e14},
    simt_operations_per_second=1e13, exponentials_per_second=1e12, launch_seconds=1e-6, latency_seconds=4e-7,
    shared_memory_per_sm_bytes=233_472, l2_latency_seconds=1e-7, wgmma_flops_per_second=2e14,
)  # fmt: skip


def program(products="wgmma", num_warps=4):
    return SimpleNamespace(products=products, num_warps=num_warps)


PROGRAM = program()


def works(*rows, followed=True):
    """The work of programs in the order of the grid."""
    counts = dict(Counter(rows))
    order = [[list(counts).index(row) for row in rows]] if followed else None
    return SimpleNamespace(counts=counts, order=order, programs=len(rows))


def near(value):
    return pytest.approx(value, rel=1e-12)


PRODUCTS = Work(flops=2_000_000_000, tensor_flops=2_000_000_000)  # 10 us on the whole GPU, 100 us on one multiprocessor


def test_a_program_alone_does_one_thing_after_another():
    work = PRODUCTS._replace(exponentials=3_000_000, operations=5_000_000, waits=4)
    parts = 1e-5 * SMS + 3e-6 * SMS + 5e-7 * SMS
    assert program_seconds(work, PROGRAM, 2e-6, 1, RATES) == near(parts + 4e-7 + 3 * 1e-7 + 2e-6)


@pytest.mark.parametrize("products, seconds", [("wgmma", 1e-4), ("mma", 2e-4), ("simt", 1e-3)])
def test_products_have_the_rate_of_what_computes_them(products, seconds):
    assert program_seconds(PRODUCTS, program(products), 0.0, 1, RATES) == near(seconds)


def test_few_warps_reach_only_their_quarters():
    assert program_seconds(PRODUCTS, program(num_warps=2), 0.0, 1, RATES) == near(2e-4)
    assert program_seconds(PRODUCTS, program(num_warps=8), 0.0, 1, RATES) == near(1e-4)


def test_programs_that_share_a_multiprocessor_fill_the_waits_of_each_other():
    work = PRODUCTS._replace(waits=1 + 1000)
    alone, two, many = (program_seconds(work, PROGRAM, 0.0, n, RATES) for n in (1, 2, 40))
    assert alone == near(1e-4 + 4e-7 + 1e-4)
    assert alone < two < 2 * alone and many == pytest.approx(40 * 1e-4, rel=0.01)


def test_waves_are_whole():
    of = {n: time_of(works(*[PRODUCTS] * n), PROGRAM, 1, 0, 0, RATES) for n in (1, 10, 11, 20, 21)}
    assert [round(t.block_seconds * 1e4, 9) for t in of.values()] == [1, 1, 2, 2, 3]
    assert of[11].seconds == near(2e-4 + 1e-6) and of[11].bound_by == "blocks"


def test_the_longest_part_counts():
    one = works(*[PRODUCTS] * 10)
    assert time_of(one, PROGRAM, 1, 0, 800_000_000, RATES).seconds == near(2e-4 + 1e-6)
    assert time_of(one, PROGRAM, 1, 0, 800_000_000, RATES).bound_by == "L2"
    words = works(*[Work(waits=1)] * 20_000)
    assert time_of(words, PROGRAM, 16, 1 << 30, 0, RATES).seconds == pytest.approx((1 << 30) / 1e12, rel=0.01)


def test_long_programs_at_the_end_of_the_grid_end_late():
    short, long = Work(operations=1_000_000), Work(operations=10_000_000)
    first = time_of(works(*[long] * 5, *[short] * 50), PROGRAM, 1, 0, 0, RATES)
    last = time_of(works(*[short] * 50, *[long] * 5), PROGRAM, 1, 0, 0, RATES)
    assert first.block_seconds == near(1e-5) and last.block_seconds == near(5 * 1e-6 + 1e-5)


def test_very_many_programs_are_not_followed_one_by_one():
    rows = [Work(operations=n) for n in (1_000, 2_000, 3_000)] * 30_000
    times = [time_of(works(*rows, followed=f), PROGRAM, 2, 0, 0, RATES).block_seconds for f in (True, False)]
    assert times[0] == pytest.approx(times[1], rel=1e-3)
