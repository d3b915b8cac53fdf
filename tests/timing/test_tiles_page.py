"""The page on tiles: its table is made from kept counters, and its numbers from the tests of the choice."""

import csv
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS, ROOT
from test_tiles_on_a_gpu import FLASH2, GENERATED, TRITON, over_fastest, rank_correlation

from iosim import Attention, Tiling
from iosim.hardware import load
from iosim.timing.tiles import AT_ONCE, TIE, timed

PAGE = (DOCS / "tiles.md").read_text()
ROWS = [r for r in csv.DictReader((ROOT / "tests" / "data" / "shared_reads.csv").open()) if r["run"] == "1"]


def line_of(row):
    """A row of the table: the rule and the counter in words of 4 bytes, the bound and the measured time."""
    p = Attention(int(row["N"]), int(row["d"]), heads=int(row["heads"]), dtype=row["dtype"], acc_dtype="fp32")
    bound = timed(FLASH2, p, Tiling(*map(int, row["tiles"].split("x"))), load(row["gpu"])).bound
    rule, seen, took = bound.work.smem_read_bytes // 4, int(row["counter_words"]), float(row["microseconds"])
    least = bound.seconds * 1e6
    return (
        f"| {row['d']} | {row['tiles']} | {rule:,} | {seen:,} | {seen / rule - 1:.1%} | {bound.binds} | {least:,.0f} | {took:,.0f} |"
    ).replace("%", " %")


def test_the_table_is_that_of_the_kept_counters():
    (table,) = re.findall(r"<!-- counters -->\n\n(.*?)\n\n<!-- counters -->", PAGE, re.S)
    assert table.splitlines()[2:] == [line_of(row) for row in ROWS] and len(ROWS) >= 10


def test_the_rule_is_below_the_counter_and_the_bound_below_the_time():
    """The page says by how much, for all rows but the two that it names."""
    flat, excess, shares = " ".join(PAGE.split()), {}, []
    for row in ROWS:
        d, tiles, rule, seen, _, _, least, took = line_of(row).replace(",", "").strip("| ").split(" | ")
        assert int(rule) <= int(seen) and float(least) < float(took)
        excess[d, tiles] = int(seen) / int(rule) - 1
        shares.append(float(took) / float(least))
    named = [excess.pop(("64", tiles)) for tiles in ("128x16", "256x16")]
    most = max(excess.values())
    assert f"at most {most:.1%}".replace("%", " %") in flat and min(named) > most
    assert f"took {min(shares):.1f} to {max(shares):.1f} times as long" in flat


def test_what_the_page_says_of_the_choice():
    """How far from the fastest it is, and how well the bound orders tiles."""
    triton = max(over_fastest(*each) for each in TRITON)
    near = sum(over_fastest(*each) <= 1.10 for each in GENERATED)
    of_16_bits = [each for each in (*TRITON, *GENERATED) if each[0].dtype != "fp32"]
    middle = statistics.median(rank_correlation(*each) for each in of_16_bits)
    flat = " ".join(PAGE.split())
    assert f"{near} of {len(GENERATED)} shapes it is within 10 % of the fastest" in flat
    assert f"at most {triton - 1:.0%}".replace("%", " %") + f" over the fastest of {len(TRITON)} runs" in flat
    assert f"is {middle:.2f} in the median" in flat
    assert f"within {TIE - 1:.0%}".replace("%", " %") + " of the least" in flat and AT_ONCE == 2
