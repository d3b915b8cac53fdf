"""Matrix products: loop orders, the best tiles against brute force, and what is proven about the least traffic."""

from math import sqrt

import pytest

import iosim
from iosim import Folded, Traffic

TILED = ["matmul-tiled", "matmul-tiled-a", "matmul-tiled-b"]


def words(schedule, p, tiling):
    watcher = Traffic()
    Folded(p, watcher).run(schedule, tiling)
    return watcher.total


@pytest.mark.parametrize("M", [300, 1000, 5000, 20000])
def test_no_loop_order_is_below_the_leading_term_and_the_best_comes_near(M):
    """The leading term is 2 n m p / sqrt(M) (Smith et al.). A and B are read ceil(p/Bc) and ceil(n/Br) times, and
    Br Bc < M."""
    report = iosim.count(512, 512, f"{M}el", schedules=TILED)
    bound = next(b.words for b in report.bounds if b.name == "matmul: 2 n m p / sqrt(M)")
    assert bound == pytest.approx(2 * 512**3 / sqrt(M))
    for result in report.results:
        assert result.fits and bound < result.total
    assert report["matmul-tiled"].total == min(r.total for r in report.results) < 1.35 * bound


def test_the_bounds_are_those_of_the_family():
    names = [b.name for b in iosim.count(64, 16, "1KB", schedules=["matmul-tiled", "flash2"]).bounds]
    assert "matmul: n m p / sqrt(M)" in names and "N^2 d^2 / M" in names and len(set(names)) == len(names)
    report = iosim.count(64, 16, "1KB", schedules=["matmul-tiled"])
    assert all(b.name.startswith("matmul") for b in report.bounds)
    assert report.results[0].ratio_to_order is None and report.results[0].ratio_to_standard is None
    floor = next(b for b in report.bounds if b.kind == "floor")
    assert floor.words == 64 * 16 * 2 + 64 * 64 <= report.results[0].total


def test_the_tiles_shown_can_be_given_back(ask):
    args = ["count", "--N", 100, "--d", 30, "--M", "400el", "--schedule", "matmul-tiled-a"]
    best = ask(*args)["results"][0]
    given = f"{best['Br']}x{best['Bc']}/depth={best['more_tiles']['depth']}"
    again = ask(*args, "--tiles", given)["results"][0]
    assert {**again, "tiling": "best"} == best
