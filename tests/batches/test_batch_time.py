"""The least time of a way on a GPU: that of `count` for a request, whole waves included, and tiles as `count` has them."""

import pytest

import iosim
from iosim.batches.cascade import MERGE, cascade
from iosim.batches.moved import counted
from iosim.batches.timed import least_time
from iosim.hardware import load

GPU = {"hardware": "h100"}
COUNTED = {  # the schedule and the heads of a group, as `count` names them
    "repeat": ("flash2", "repeat"),
    "pack": ("flash2", "pack"),
    "split": ("split-kv", "pack"),
    "paged": ("paged", "pack"),
    "paged-split": ("paged-split-kv", "pack"),
}
PROBLEMS = [
    ("4096:4096", {"heads": 32}),  # 1,024 blocks on 132 multiprocessors: 7.76 waves are 8
    ("2048:11048", {"heads": 64, "kv_heads": 8, "hardware": "h200"}),
    ("300:9300", {"heads": 33, "mask": "causal&window:64", "tiles": "128x64", "hardware": "t4"}),
    ("500:9000", {"heads": 32, "kv_heads": 8, "mask": "causal&(window:500|sink:4)"}),
    ("1:9000", {"heads": 133, "mask": "causal"}),  # it hides nothing
    ("16:4112", {"heads": 64, "kv_heads": 8, "kv_dtype": "int4", "hardware": "a100-80gb"}),
]


@pytest.mark.parametrize(("request_", "asked"), PROBLEMS, ids=lambda x: str(x)[:40])
def test_a_request_takes_the_time_of_its_count(request_, asked):
    new, tokens = map(int, request_.split(":"))
    asked, grouped = {**GPU, **asked}, "kv_heads" in asked
    batched = iosim.batch(request_, 128, **asked)
    for way, (schedule, gqa) in COUNTED.items():
        if grouped or gqa != "repeat" or way == "repeat":
            if way not in {one.way for one in batched} or (grouped and gqa == "pack" and "mask" in asked):
                continue  # count packs no rows under a mask
            own = {"gqa": gqa} if grouped else {}
            one = iosim.count(new, 128, Nk=tokens, schedules=schedule, **own, **asked).results[0]
            mine = batched[way]
            assert (mine.tiles, mine.total, mine.binds) == (f"{one.Br}x{one.Bc}", one.total, one.binds)
            assert mine.at_least_seconds == pytest.approx(one.at_least_seconds, rel=1e-12)


def test_whole_waves_by_hand():
    """1,024 blocks of 128 rows take 8 turns of 132 multiprocessors, at 989.4 TFLOP/s: 286.5 us, not 277.8."""
    found = iosim.batch("4096:4096", 128, heads=32, ways="repeat", tiles="128x128", **GPU)["repeat"]
    of_a_block = 4 * 128 * 4096 * 128
    assert found.at_least_seconds == pytest.approx(8 * of_a_block * 132 / 989.4e12) == pytest.approx(286.5e-6, rel=1e-3)


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("number", [1, 3])
def test_equal_requests_are_a_count_with_a_batch(mask, number):
    sizes = {"heads": 16, "mask": mask}
    batched = iosim.batch([(4096, 4096)] * number, 128, ways="repeat", **GPU, **sizes)["repeat"]
    counted = iosim.count(4096, 128, schedules="flash2", batch=number, **GPU, **sizes).results[0]
    assert batched.tiles == f"{counted.Br}x{counted.Bc}" and batched.total == counted.total
    assert batched.at_least_seconds == pytest.approx(counted.at_least_seconds, rel=1e-12)
    assert batched.binds == counted.binds and batched.ratio_to_floor == pytest.approx(counted.ratio_to_floor)


def test_layers_follow_each_other():
    one, many = (iosim.batch("300:4000, 1:900", 128, heads=8, layers=n, **GPU) for n in (1, 5))
    assert [5 * way.at_least_seconds for way in one] == pytest.approx([way.at_least_seconds for way in many])


def test_the_longest_request_runs_on_one_multiprocessor():
    """Two blocks, of 65,536 keys and of 100: the whole GPU would take 66 times less of shared memory."""
    asked = {"heads": 1, "ways": "repeat", "tiles": "16x64", **GPU}
    both, long = (iosim.batch(of, 128, **asked)["repeat"].at_least_seconds for of in ("1:65536, 1:100", "1:65536"))
    assert both == pytest.approx(long, rel=1e-3) and both >= long


def test_a_merge_follows_what_it_merges():
    """The time of a cascade is that of its levels, which run at once, and then that of its merge."""
    with_prefix = [{"new": 1, "cached": 4000, "prefix": "system:3000"}] * 40
    found = iosim.batch(with_prefix, 128, ways="cascade", heads=8, tiles="16x64", **GPU)
    *levels, merge = [counted(found.batch, one)[:3] for one in cascade(found.batch)]
    bound = least_time(found.batch, [*levels, merge], load("h100"))
    assert merge[0].schedule is MERGE and len(levels) == 2 and len(bound.launches) == 2
    first, second = bound.launches
    assert ("write", "Opart") in first.work.touched and ("read", "Opart") in second.work.touched
    assert found["cascade"].at_least_seconds == first.seconds + second.seconds > first.seconds


def test_tokens_in_common_come_from_the_memory_once():
    with_prefix = [{"new": 1, "cached": 9000, "prefix": "system:8000"}] * 64
    asked = {"heads": 32, "kv_heads": 8, "ways": "pack", **GPU}
    shared, apart = (iosim.batch(of, 128, **asked) for of in (with_prefix, [(1, 9001)] * 64))
    seconds = shared.distinct_bytes / load("h100").hbm_bytes_per_second
    assert seconds <= shared["pack"].at_least_seconds < apart["pack"].at_least_seconds
    assert shared["pack"].binds != "memory" and apart["pack"].binds == "memory"


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
