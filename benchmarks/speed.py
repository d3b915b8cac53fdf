"""Speeds, as ratios in one run: `python benchmarks/speed.py` prints a Markdown table."""

import io
import statistics
import subprocess
import sys
import time

import numpy as np

from iosim import Attention, Folded, Tiling, Traffic, grid, writers
from iosim.experiment import parse_mask
from iosim.report import COLUMNS
from iosim.schedules import find
from iosim.tiling import best_tiles


def seconds(work, repeat=7):
    """Median time of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def process(*args):
    return seconds(lambda: subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True), 15)


def walk(N, mask="dense", name="flash2"):
    problem = Attention(N, 128, mask=parse_mask(mask))
    return lambda: Folded(problem, Traffic()).run(find(name), Tiling(128, 64))


def cold(N, mask, name="block-sparse-q"):
    """A masked count whose mask was never seen: parsing and counting included."""
    sizes = iter(range(N, 2 * N, 8192))
    return lambda: walk(next(sizes), mask, name)()


def closed_form(N, d, rows):
    tiles = -(-N // rows)
    return N * d + 2 * N * d * tiles, N * d


def vectorised(count=32_768):
    rng = np.random.default_rng(0)
    N, d, rows_q, rows_k = (rng.integers(1, high, count) for high in (10**5, 256, 512, 512))
    problem, tiling, schedule = Attention(N, d), Tiling(rows_q, rows_k), find("flash2")
    folded = seconds(lambda: Folded(problem, Traffic()).run(schedule, tiling), 51)
    return folded, seconds(lambda: closed_form(N, d, rows_q), 51), count


def table():
    rows = []
    count = process("-m", "iosim", "count", "--N", "8192", "--d", "128", "--M", "100KB")
    click = process("-c", "import click")
    rows.append(("`iosim count`, whole process / `import click`", count / click, "at most 2.5"))
    small, large = seconds(walk(2**12), 301), seconds(walk(2**24), 301)
    rows.append(("dense count, N = 2^24 / N = 2^12", large / small, "about 1"))
    for mask in ("causal", "window:1024", "global:64", "strided:128"):
        rows.append((f"count with {mask}, N = 2^24 / dense", seconds(cold(2**24, mask), 51) / large, "at most 3"))
    folded, closed, points = vectorised()
    rows.append(("folded walk over arrays / closed form in NumPy", folded / closed, "at most 5"))
    rows.append(("million configurations a second", points / folded / 1e6, "more than 3"))
    best = seconds(lambda: best_tiles(find("flash2"), Attention(8192, 128), 102400), 51)
    rows.append(("`--tiles best`, milliseconds", best * 1e3, "under 10"))
    axes = {"N": list(range(1000, 1500)), "d": [64, 128], "M": list(range(16384, 16384 + 512 * 250, 512))}
    plan = grid.build(axes, ["flash1", "flash2"], "128x64")
    frames = list(grid.chunks(plan))
    whole = seconds(lambda: writers.write_csv(plan, io.StringIO(), lambda rows: None), 1)
    pandas = seconds(lambda: [frame.to_csv(io.StringIO(), index=False) for frame in frames], 1)
    rows.append((f"a sweep of {plan.rows} rows to CSV / pandas writing it", whole / pandas, "at most 2"))
    assert all(tuple(frame.columns) == COLUMNS for frame in frames)
    return rows


if __name__ == "__main__":
    print("| what | measured | aim |\n|---|---|---|")
    for what, value, aim in table():
        print(f"| {what} | {value:.2f} | {aim} |")
