"""What docs/explain-kernels.md says of predicted times follows from what an H200 measured, and from what was predicted."""

import csv
import re
from itertools import groupby
from statistics import median

from paths import DOCS, VALIDATION

PAGE = (DOCS / "explain-kernels.md").read_text()
(SECTION,) = re.findall(r"## How long does it take\?\n(.*?)\n## ", PAGE, re.S)
KEY = ("package", "file", "kernel", "sizes", "configuration", "num_warps", "num_stages")
RANKED = ("predicted_seconds", "block_seconds", "l2_seconds")


def rows(name):
    with open(VALIDATION / "kernels" / name) as file:
        return {tuple(row[key] for key in KEY): row for row in csv.DictReader(file)}


SAID = rows("predicted.csv")
MEASURED = {key: row for key, row in rows("on_gpu.csv").items() if row["nanoseconds"]}
RATIOS = {key: float(SAID[key]["predicted_seconds"]) * 1e9 / float(row["nanoseconds"]) for key, row in MEASURED.items()}
LONG = {key: ratio for key, ratio in RATIOS.items() if float(MEASURED[key]["nanoseconds"]) > 10_000}


def test_every_launch_that_was_measured_is_predicted():
    assert MEASURED.keys() <= SAID.keys()
    for row in SAID.values():
        parts = {"DRAM": "dram_seconds", "L2": "l2_seconds", "blocks": "block_seconds"}
        most = max(float(row[part]) for part in parts.values())
        assert float(row[parts[row["predicted_binds"]]]) == most < float(row["predicted_seconds"])


def test_how_far_predictions_are_from_what_was_measured():
    within = sum(abs(ratio - 1) < 0.3 for ratio in LONG.values())
    assert f"Of {len(LONG)} launches that take more than 10 us, {within} are" in SECTION
    (half,) = re.findall(r"half of them within (\d+) %", SECTION)
    assert int(half) - 1 < 100 * median(abs(ratio - 1) for ratio in LONG.values()) <= int(half)
    assert sum(ratio < 1 for ratio in LONG.values()) > len(LONG) * 0.6


def test_what_is_far_too_short():
    worst = sorted(RATIOS, key=RATIOS.get)
    assert {key[2] for key in worst[:2]} == {"histogram"} and f"{RATIOS[worst[0]]:.2f} of the time" in SECTION
    assert MEASURED[worst[0]]["atomic_words"] != "0"
    split = RATIOS[next(key for key in worst if key[3] == "M=1000, N=1000, K=1000")]
    assert f"multiples of 16 bytes ({split:.1g})" in SECTION


def places():
    """{(kernel, sizes): (configurations, first and last place of the fastest among equal ones)}."""
    found = {}
    for name, group in groupby(MEASURED.items(), key=lambda pair: pair[0][:4]):
        some = dict(group)
        if len(some) > 3:
            ranks = {key: tuple(float(SAID[key][part]) for part in RANKED) for key in some}
            fastest = ranks[min(some, key=lambda key: float(some[key]["milliseconds"]))]
            before = sum(rank < fastest for rank in ranks.values())
            last = before + sum(rank == fastest for rank in ranks.values())
            found[name[2:]] = len(some), before + 1, last
    return found


def test_the_place_of_the_fastest_configuration():
    shown = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+)(?: or (\d+))? \|$", SECTION, re.M)
    names = [("matmul_kernel", ""), ("_attn_fwd", "STAGE=1"), ("_attn_fwd", ""), ("_dyt_fwd_kernel", "")]
    found = places()
    assert set(found) == set(names)
    for name, (_, number, first, last) in zip(names, shown, strict=True):
        assert found[name] == (int(number), int(first), int(last or first))
        assert found[name][2] <= int(number) / 4, "among the first quarter"


def test_pairs_of_the_same_program_differ():
    pairs = {}
    for key, row in MEASURED.items():
        if key[2] == "_dyt_fwd_kernel":
            pairs.setdefault(key[4:6], []).append(float(row["milliseconds"]))
    most = max(max(pair) / min(pair) for pair in pairs.values())
    assert all(len(pair) == 2 for pair in pairs.values()) and f"by up to {100 * (most - 1):.0f} %" in SECTION
