"""The least time of a way on a GPU: that of `count` for equal requests, and tiles as `count` chooses them."""

import pytest

import iosim
from iosim.hardware import load

GPU = {"hardware": "h100"}


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("number", [1, 3])
def test_equal_requests_are_a_count_with_a_batch(mask, number):
    sizes = {"heads": 16, "mask": mask}
    batched = iosim.batch([(4096, 4096)] * number, 128, ways="repeat", **GPU, **sizes)["repeat"]
    counted = iosim.count(4096, 128, schedules="flash2", batch=number, **GPU, **sizes).results[0]
    assert batched.tiles == f"{counted.Br}x{counted.Bc}" and batched.total == counted.total
    assert batched.at_least_seconds == pytest.approx(counted.at_least_seconds, rel=0.1)
    assert batched.binds == counted.binds and batched.ratio_to_floor == pytest.approx(counted.ratio_to_floor)


def test_decoding_is_bound_by_the_memory():
    """Each word of K and V once, whatever the way: what is read again comes from the L2."""
    found = iosim.batch("32 * 1:65536", 128, heads=32, kv_heads=8, **GPU)
    once = 2 * 32 * (8 * 65536 * 128 + 32 * 128) * 2
    assert found["pack"].at_least_seconds == pytest.approx(once / load("h100").hbm_bytes_per_second)
    assert {way.binds for way in found} == {"memory"}
    assert found.lines[0].startswith("pack takes at least 2,564 us on H100: the HBM binds; it moves 8.00 GiB")


def test_without_a_gpu_there_is_no_time():
    found = iosim.batch("1:64", 8, M="64KB")
    assert all(way.at_least_seconds is None and way.binds is None for way in found)
    paper = iosim.batch("1:64", 8, paper_model=True, **GPU)
    assert all(way.at_least_seconds is None for way in paper)
