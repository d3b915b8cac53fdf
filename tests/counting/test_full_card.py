"""The floor of a full card: never below that of one multiprocessor, and never above a schedule that keeps it busy."""

import random
from dataclasses import replace
from math import isqrt

import pytest

from iosim import Attention, Tiling, count
from iosim.counting.bounds import floor_of
from iosim.counting.full_card import full_card_floor
from iosim.counting.run import measure
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find

H100 = load("h100")


def card(sms):
    return replace(H100, sms=sms)


def test_by_hand():
    """2 sqrt(Pi |E| p) with Pi = (d + dv)^2, rounded up: 8 heads of 4096 x 4096 pairs, d = 64, 132 multiprocessors."""
    p = Attention(4096, 64, heads=8)
    exact = 4 * 128**2 * 8 * 4096**2 * 132
    assert full_card_floor(p, 500_000, H100, "flash2") == isqrt(exact - 1) + 1 > floor_of(p, 500_000, "attention")


def test_many_heads_need_no_more_than_one_multiprocessor_after_the_other():
    p = Attention(8192, 128, heads=32)
    assert full_card_floor(p, 232_448, H100, "flash2") == floor_of(p, 232_448, "attention")


@pytest.mark.parametrize(
    "schedule", ["flash2", "flash2-one-room", "memory-efficient", "standard-tiled", "attention-2pass"]
)
def test_no_busy_schedule_is_below_it(schedule):
    """Equal blocks, as many for each multiprocessor: its work is a p-th."""
    rng, seen = random.Random(schedule), 0
    for _ in range(60):
        sms, rows = rng.choice([2, 3, 4, 8]), rng.randint(1, 40)
        N, d = sms * rows * rng.randint(1, 3), rng.randint(1, 24)
        p = Attention(N, d, Nk=rng.randint(1, 200), dv=rng.randint(1, d), heads=rng.randint(1, 3))
        tiling = Tiling(rows, rng.randint(1, 40))
        words = measure(find(schedule), p, tiling)["total"]
        need = measure(find(schedule), p, tiling)["smem_peak_bytes"]
        least = full_card_floor(p, need, card(sms), schedule)
        assert floor_of(p, need, "attention") <= least <= words
        seen += least > floor_of(p, need, "attention")
    assert seen > 5, "it is often above the floor of one multiprocessor"


def test_a_split_of_queries_and_keys_comes_near_it():
    """One head on 4 multiprocessors: each has half of the queries and half of the keys."""
    p = Attention(4096, 64, splits=2)
    words = measure(find("split-kv"), p, Tiling(2048, 16))["total"]
    least = full_card_floor(p, None, card(4), "split-kv")
    assert least < words < 1.6 * least


def test_it_stands_in_the_first_line_and_the_json():
    report = count(4096, 64, hardware="h100", heads=8, schedules="flash2")
    best = report.results[0]
    assert best.ratio_to_full_card == best.total / full_card_floor(report.problem, report.M_bytes, H100, "flash2")
    assert "4.06 times what a full H100 needs and 12.8 times the floor of one multiprocessor." in report.answer


def test_what_leaves_multiprocessors_idle_has_no_such_floor():
    """flash1 has a block for each of 64 heads, and moves less than 132 busy multiprocessors need."""
    report = count(256, 32, hardware="h100", heads=64, schedules="flash1,flash2")
    assert {r.ratio_to_full_card is None for r in report.results if r.schedule == "flash1"} == {True}
    assert all(r.ratio_to_full_card >= 1 for r in report.results if r.schedule == "flash2" and r.blocks >= 132)


@pytest.mark.parametrize(("name", "said"), [("standard", True), ("flash2", False)])
def test_what_has_no_thread_blocks_is_not_compared(name, said):
    lines = str(count(512, 64, hardware="h100", schedules=f"{name},flash1"))
    assert ("standard has no thread blocks, so its time leaves out shared memory and is not compared" in lines) == said


def test_what_moves_the_floor_is_said_to():
    answer = count(1, 128, Nk=256, hardware="h100", schedules="flash2", tiles="16x64").answer
    assert "it moves 128 KiB, the floor of one multiprocessor." in answer, answer


def test_none_where_there_is_no_floor():
    p = Attention(64, 8)
    assert full_card_floor(p, 10_000, H100, "softmax-2pass") is None
    masked = replace(p, mask=parse_mask("causal"))
    assert full_card_floor(masked, 10_000, card(1), "flash2") == floor_of(masked, 10_000, "attention")
