"""Attention below d^2 words: the exact optimum, the order N^2 d / sqrt(M), and which schedule is best at which M."""

import re
import time
from math import sqrt

import pytest
from paths import DOCS

import iosim
from iosim import SCHEDULES, Attention, Folded, Tiling, Traffic
from iosim.masks import parse_mask

NAMES = ["small-cache", "small-cache-q", "standard-square"]


def words(schedule, p, tiling):
    watcher = Traffic()
    Folded(p, watcher).run(schedule, tiling)
    return watcher.total


def test_deeper_parts_of_the_sum_move_the_same_words():
    p = Attention(20, 12, Nk=17)
    for name in NAMES:
        found = {words(SCHEDULES[name], p, Tiling(4, 5, depth=c, rows_o=6, cols_o=7)) for c in (1, 2, 5, 12, 40)}
        assert len(found) == 1


def test_what_a_mask_hides_is_left_out():
    """The table of docs/schedules/forward.md."""
    rows = re.findall(r"^\| `([a-z&:0-9]+)` \| (\d+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|$",
                      (DOCS / "schedules" / "forward.md").read_text(), re.M)  # fmt: skip
    assert len(rows) == 2
    for mask, M, *ratios in rows:
        for visit_all, ratio in zip((False, True), ratios, strict=True):
            found = iosim.count(
                8192, 64, f"{M}el", mask=mask, tiles="best", schedules="small-cache", visit_all=visit_all
            )
            assert f"{found['small-cache'].ratio_to_floor:.3f}" == ratio


def test_keys_needed_by_hand():
    """N = Nk = 8, causal & window:2, tiles of 3x2. Query tiles see keys 0 to 2, 1 to 5, 4 to 7: 3, 5, 4 of them. They
    have 3, 3, 2 rows and 2, 3, 2 key tiles. In the second product query tiles of 4 rows see keys 0 to 3 and 2 to 7."""
    p = Attention(8, 5, mask=parse_mask("causal&window:2"))
    traffic = Traffic()
    Folded(p, traffic).run(SCHEDULES["small-cache"], Tiling(3, 2, rows_o=4, cols_o=3))
    assert traffic.tensors == {"Q": (5 * (3 * 2 + 3 * 3 + 2 * 2), 0), "K": (5 * 12, 0), "V": (5 * 10, 0), "O": (0, 40),
                               "S": (2 * (4 * 4 + 4 * 6), 3 * 3 + 3 * 5 + 2 * 4)}  # fmt: skip


# ---------------------------------------------------------------- the order, and the best schedule


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("share", [16, 8, 4, 2])
def test_it_beats_flash_below_half_of_d_squared(d, share):
    report = iosim.count(8192, d, f"{d * d // share}el", schedules=["small-cache", "flash1", "flash2"], tiles="best")
    assert report["small-cache"].fits
    for name in ("flash1", "flash2"):
        assert report[name].total is None or report["small-cache"].total < report[name].total


@pytest.mark.parametrize("d", [64, 128, 256])
def test_it_is_of_the_order_that_saha_and_ye_prove(d):
    """Two products move 2 N^2 d / sqrt(M) each, and writing S moves N^2. In units of N^2 d / sqrt(M) this is
    4 + sqrt(M) / d, and some more for what else is on chip. It does not grow as M shrinks, while that of flash2 grows
    as d / sqrt(M)."""
    for M in (d * d // 32, d * d // 8, d * d // 2):
        total = iosim.count(8192, d, f"{M}el", schedules=["small-cache"]).results[0].total
        constant = total / (8192**2 * d / sqrt(M))
        assert 4 + sqrt(M) / d < constant < 5.2


def test_the_winner_changes_from_scores_to_queries_to_flash2():
    """With x = M / d^2, the leading terms 4 / sqrt(x) + 1, 2 / x + 2 and 4 / x cross at x = 0.34 and at x = 1."""
    winners = []
    for share in (0.1, 0.25, 0.45, 0.8, 1.3, 2):
        M = f"{int(share * 128 * 128)}el"
        report = iosim.count(8192, 128, M, schedules=["small-cache", "small-cache-q", "flash2"])
        winners.append(min(report.results, key=lambda r: r.total).schedule)
    assert winners == ["small-cache"] * 2 + ["small-cache-q"] * 2 + ["flash2"] * 2


# Millions of words at N = 8192, d = 128, from an independent brute force: standard attention with tiles of all axes,
# and column tiles of O of 32 and 64. Tiles of 43 columns are better: 1055 at M = 2048.
STATED = [
    (1024, "31x31/rows_o=30/cols_o=32", 1381),
    (2048, "44x44/rows_o=61/cols_o=32", 1072),
    (4096, "63x63/rows_o=62/cols_o=64", 818),
]


@pytest.mark.parametrize("M, tiles, millions", STATED)
def test_standard_attention_with_square_tiles_moves_what_is_stated(M, tiles, millions):
    args = dict(M=f"{M}el", schedules=["standard-square", "small-cache"])
    stated = iosim.count(8192, 128, tiles=tiles, **args)["standard-square"]
    best = iosim.count(8192, 128, **args)
    assert stated.fits and round(stated.total / 1e6) == millions
    assert best["standard-square"].total <= stated.total
    assert best["standard-square"].total - best["small-cache"].total > 2 * 8192**2, "softmax needs no pass of its own"


@pytest.mark.parametrize("M, millions", [(1024, 1381), (2048, 1072), (4096, 818), (8192, 546), (16384, 409)])
def test_three_kernels_each_at_its_best(M, millions):
    """The source states these as well. Each product has its best tile, and S is read once if a row of it fits, else
    twice. The source's column tiles of O divide d. Without that rule two of the five are a little less."""
    names = ["standard-square", "small-cache-q"]
    square, queries = (iosim.count(8192, 128, f"{M}el", schedules=[name]).results[0].steps for name in names)
    words = [sum(step.values()) for step in (square[0], queries[0], square[2])]
    softmax = (2 if M >= 8192 else 3) * 8192**2
    found = (min(words[:2]) + softmax + words[2]) / 1e6
    assert round(found) == millions or (0.98 * millions < found < millions and M in (2048, 4096))


def test_the_search_is_quick():
    """The fastest of three runs takes less than a tenth of a second, whatever the sizes."""
    for N, M in ((8192, "2048el"), (2**20, "2048el"), (2**48, "1GB")):
        times = []
        for _ in range(3):
            start = time.process_time()
            iosim.count(N, 128, M, schedules=["small-cache", "small-cache-q", "flash2"])
            times.append(time.process_time() - start)
        assert min(times) < 0.1
