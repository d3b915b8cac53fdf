"""The verdict: every number in it is a cost's, and it never says that something fits which does not."""

import random
import re

import pytest

from iosim.verdict import Way, about, above, best_of, joined, times, verdict


def drawn(seed):
    """Random ways, and a memory that some of them fit in."""
    rng = random.Random(seed)
    memory = rng.choice([None, 100])
    ways = [
        Way(f"way{k}", rng.choice([1000, 1005, rng.randint(1000, 9000)]), fits, 50 if fits else 300, 1.5)
        for k in range(rng.randint(1, 5))
        for fits in [None if memory is None else rng.random() < 0.7]
    ]
    return ways, memory, rng.choice([None, *ways])


@pytest.mark.parametrize("seed", range(60))
def test_numbers_are_ratios_of_costs(seed):
    ways, memory, baseline = drawn(seed)
    lines, best = verdict(ways, "move", memory, baseline), best_of(ways)
    assert 1 <= len(lines) <= 3 and all(line.endswith(".") for line in lines)
    if best is None:
        assert lines == [f"Nothing that was counted fits: {ways[0].name} needs least, 3 times this memory."]
        return
    assert best.cost == min(way.cost for way in ways if way.fits is not False)
    assert lines[0].startswith(f"{best.name} moves {about(best.cost)}; no exact algorithm")
    known = {way.name: way for way in ways}
    for name, room, share in re.findall(
        r"(way\d)(, which needs 3 times this memory,)? moves ([\d.]+) times", lines[-1]
    ):
        assert float(share) == pytest.approx(known[name].cost / best.cost, rel=0.006)
        assert bool(room) == (known[name].fits is False)
    for name, share in re.findall(r"(way\d) is next, with ([\d.]+) times as much", lines[-1]):
        assert known[name].fits is not False and float(share) == pytest.approx(known[name].cost / best.cost, rel=0.006)
        assert known[name].cost == min(w.cost for w in ways if w.fits is not False and w.cost > 1.01 * best.cost)
    said = " ".join(lines)
    assert all(way.name in said for way in ways if way.fits is not False and way.cost <= 1.01 * best.cost)
    assert baseline is None or baseline.name in said


def test_words():
    assert [about(n) for n in (7, 1024, 1536, 2**20 * 162.7)] == ["7 B", "1 KiB", "1.50 KiB", "163 MiB"]
    assert [about(k * 1024 + 1) for k in (999, 1000, 1023)] == ["999 KiB", "1,000 KiB", "1,023 KiB"]
    assert [times(n, 10) for n in (9994, 9996)] == ["999", "1,000"]
    assert [above(x) for x in (1.064, 1.0004, 1 + 5e-7, 2.5)] == [
        "6 % above",
        "0.04 % above",
        "less than 0.01 % above",
        "this is 2.5 times that",
    ]
    assert [joined(x) for x in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert times(3, 2) == "1.5" and times(10**6 + 1, 10**6) == "1.000001"


def test_a_way_at_its_floor_and_one_without_a_floor():
    assert verdict([Way("ring", 2048, None, over_floor=1.0)], "receive") == [
        "ring receives 2 KiB, and no exact algorithm can receive less."
    ]
    assert verdict([Way("ring", 3e-6, shown="3 us")], "take", 9) == ["ring takes 3 us."]
