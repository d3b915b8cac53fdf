"""`bounds --rule` and the first line of `count --rule`: each number of words with its class."""

import random

import pytest

import iosim
from iosim import SCHEDULES, Attention, Tiling
from iosim.counting.run import measure
from iosim.counting.state_bounds import compulsory, products, state_floor
from iosim.counting.state_floors import compulsory_words, product_words, ring_words
from iosim.counting.state_heads import problem_of
from iosim.schedules import applies
from iosim.schedules.state import BY_NAME

FORWARD = [name for name, schedule in SCHEDULES.items() if schedule.family == "state"]
PASS = [name for name in FORWARD if name in ("state-fused", "state-saved", "state-split", "state-tiles")]


def test_bounds_say_every_class_in_full():
    found = iosim.bounds(8192, 128, "24KB", rule="gdn", heads=32, key_heads=16)
    kinds = {bound.name: bound.kind for bound in found}
    assert list(kinds)[:4] == ["state: compulsory", "state: S", "state: D1", "state: D2"]
    assert kinds["state: compulsory"] == "no exact algorithm"
    assert kinds["state: S"] == (
        "no algorithm that computes each k u once and uses scores only within chunks of 64 tokens"
    )
    assert kinds["state: D1"] == ("no exact algorithm with fixed addresses, one number a word, from an empty chip")
    assert kinds["state: D2"] == "no scheme of a state and rows (k, u)"
    assert not any("floor" in kind for kind in kinds.values())
    said = kinds["state: S"]
    assert found.answer.startswith(f"N{said[1:]} moves fewer than")
    assert found["state: S"].words == 16 * (product_words(problem_of(found.report.problem), 12288, 64))


def test_bounds_of_pairs_of_value_heads():
    """Qwen3-Next: 388 words a token and value head with its last state, 386 without (docs/state.md)."""
    found = iosim.bounds(8192, 128, rule="gdn", heads=32, key_heads=16, final_state=True)
    assert round(found["state: compulsory"].words / 8192 / 32) == 388
    assert found["state: D1"].words == 16 * (128 * 256 + 2 * 128 + 256 + 4)
    assert found["state: D1"].valid and found.answer == "No exact algorithm moves fewer than 101,711,840 words."


def test_steps_with_a_normaliser_and_with_phi():
    """With phi no S and no D2 is proven, and the answer says why."""
    found = iosim.bounds(8192, 128, "24KB", rule="linear", normalise=True)
    assert (found["state: D1"].words, found["state: D2"].words) == (
        384 + 16384 + 127,
        512 + ring_words(8192, 16512, 256) // 8192,
    )
    assert found["state: D1"].condition == "read in a step, from token 129 on, or behind a given state"
    found = iosim.bounds(8192, 128, "24KB", rule="linear", features=256, normalise=True)
    assert found["state: D1"].words == 384 + 256 * 128 and "given" not in found["state: D1"].condition
    given = iosim.bounds(8192, 128, rule="linear", features=256, normalise=True, initial_state=True)["state: D1"]
    assert given.words == 384 + 256 * 129 - 1 and given.condition == "read in a step, behind a given state"
    for name in ("S", "D2"):
        lost = found[f"state: {name}"]
        assert (lost.words, lost.valid) == (None, False) and lost.condition.startswith("not proven: words of phi(k)")


@pytest.mark.parametrize("rule", BY_NAME)
def test_a_chunk_of_the_state_on_chip_moves_what_is_compulsory(rule):
    """But for the first decays, which act on nothing."""
    p = Attention(50, 12, dv=7, heads=2, rule=rule, final_state=True)
    one = problem_of(p)
    words = measure(SCHEDULES["state-fused"], p.packed, Tiling(8, 1))["total"]
    assert words == 2 * (sum(compulsory_words(one)) + one.decays) == compulsory(p).words + 2 * one.decays


def test_the_first_line_of_a_count_has_the_class():
    count = iosim.count(8192, 128, "200KB", rule="linear", schedules="state-fused")
    line = count.answer
    assert "no exact algorithm can move less" in line and "class" not in line and "floor" not in line
    on_gpu = iosim.count(8192, 128, hardware="h100", rule="gdn", schedules="state-fused").answer
    assert "times what any exact algorithm must move (docs/floors-state.md)" in on_gpu
    said = str(iosim.count(4096, 128, dv=64, heads=32, key_heads=1, rule="mamba2", hardware="h100"))
    assert "8.44 times what any exact algorithm must move" in said and "Its class" not in said
    small = iosim.count(4096, 512, hardware="h100", rule="gdn", schedules="state-split").answer
    assert "what any algorithm that computes each k u once and uses scores only within chunks of" in small


def test_products_are_for_an_SRAM_below_the_state():
    p = Attention(4096, 128, rule="gdn")
    assert products(p, 16384).holds is False and state_floor(p, 16384).name == "K"
    assert products(p, 4096).holds and state_floor(p, 4096).name == "S"
    assert products(Attention(64, 8, rule="linear", features=32), 16) is None
    assert state_floor(Attention(64, 8, rule="linear", features=32), 16).name == "K"
    assert products(p, 4096, 1).words > products(p, 4096, 64).words
    assert products(Attention(4096, 128, rule="gdn", chunk=1), 4096) == products(p, 4096, 1)


@pytest.mark.parametrize("name", PASS)
def test_no_schedule_is_below_its_floors(name):
    """In exactly the words of SRAM that it needs, with the chunk that it has."""
    draw, schedule, seen = random.Random(7), SCHEDULES[name], 0
    for _ in range(150):
        rule = draw.choice(list(BY_NAME))
        options = {flag: draw.random() < 0.3 for flag in ("initial_state", "final_state")}
        sizes = {"d": draw.randint(1, 24), "dv": draw.randint(1, 24), "rule": rule, **options}
        p = Attention(draw.randint(1, 400), **sizes)
        if not applies(schedule, p):
            continue
        t = Tiling(draw.randint(1, 16), 1, **{side: draw.randint(1, 24) for side in schedule.more_tiles})
        found = measure(schedule, p.packed, t)
        held = found["sram_peak_words"]
        assert found["total"] >= compulsory(p).words
        assert found["total"] >= products(p, held, min(t.rows_q, p.N)).words
        seen += 1
    assert seen > 30
