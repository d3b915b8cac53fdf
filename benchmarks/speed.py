"""Speeds, as ratios in one run: `python benchmarks/speed.py` prints a Markdown table. `--quick` shows that it runs."""

import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np

from iosim import Attention, Folded, Machine, Numeric, Tiling, Trace, Traffic
from iosim.core.arrays import keep_freed_memory
from iosim.core.loop_paths import run_together
from iosim.core.row_blocks import RowBlocks
from iosim.counting import sweep
from iosim.counting.columns import COLUMNS
from iosim.counting.sweep_axes import build
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.search.best import best_tiles
from iosim.studies.accesses import record
from iosim.sweeps.parts import Work
from iosim.sweeps.run import write_file
from iosim.tuning.least import curve

MASKS = ("causal", "window:1024", "global:64", "strided:128")


class Clock:
    """Median seconds of a call; a quick one calls it once."""

    def __init__(self, quick=False):
        self.quick = quick

    def __call__(self, work, repeat=7):
        times = []
        for _ in range(1 if self.quick else repeat):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def cpu_seconds(*args):
    """CPU seconds of a Python process, which finds its compiled files."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=env)
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before


def count(N, mask="dense"):
    """One count from its texts: the mask is parsed, bound and counted."""
    problem = Attention(N, 128, mask=parse_mask(mask))
    Folded(problem, Traffic()).run(find("block-sparse-q"), Tiling(128, 64))


def fresh(N, mask="dense"):
    """Counts that were never made before, so that no cache helps."""
    sizes = iter(range(N, 2 * N, 2**12))
    return lambda: count(next(sizes), mask)


COUNT = "iosim count --N 8192 --d 128 --M 100KB"
LINKS = "iosim links --ranks 1024 --N 1048576 --d 128 --heads 32 --kv-heads 8 --causal --hardware h100"


def counts(clock):
    commands = ("-m", *COUNT.split()), ("-m", *LINKS.split()), ("-c", "import click")
    times = [[cpu_seconds(*command) for command in commands] for _ in range(1 if clock.quick else 40)]
    count_seconds, links_seconds, click_seconds = map(statistics.median, zip(*times, strict=True))
    yield "`iosim count`, whole process / `import click`, CPU seconds", count_seconds / click_seconds, "at most 1.7"
    yield (
        "`iosim links` for 2^20 tokens on 1,024 GPUs / `iosim count`, CPU seconds",
        links_seconds / count_seconds,
        "at most 2",
    )
    small, large = clock(lambda: count(2**12), 301), clock(lambda: count(2**24), 301)
    yield "dense count, N = 2^24 / N = 2^12", large / small, "about 1"
    for mask in MASKS:
        ratio = clock(fresh(2**24, mask), 301) / clock(fresh(2**24), 301)
        yield f"count with {mask}, N = 2^24 / dense", ratio, "at most 3"


def closed_form(N, d, rows):
    tiles = -(-N // rows)
    return N * d + 2 * N * d * tiles, N * d


def arrays(clock, points):
    keep_freed_memory()  # as a sweep does
    rng = np.random.default_rng(0)
    N, d, rows_q, rows_k = (rng.integers(1, high, points) for high in (10**5, 256, 512, 512))
    tiling = Tiling(rows_q, rows_k)
    folded = clock(lambda: Folded(Attention(N, d), Traffic()).run(find("flash2"), tiling), 51)
    closed = clock(lambda: closed_form(N, d, rows_q), 51)
    yield "folded walk over arrays / closed form in NumPy", folded / closed, "at most 5"
    yield "million configurations a second", points / folded / 1e6, "more than 3"
    causal, schedule = Attention(N, d, mask=parse_mask("causal")), find("block-sparse-q")
    masked = clock(lambda: Folded(causal, Traffic()).run(schedule, tiling), 11)
    yield "million causal configurations a second", points / masked / 1e6, ""


def best(clock):
    dense = Attention(8192, 128)
    sizes = iter(range(102400, 204800, 2))  # of M, none asked twice
    found = clock(lambda: best_tiles(find("flash2"), dense, next(sizes)), 51)
    yield "`--tiles best`, milliseconds", found * 1e3, "under 10"
    for mask, name in (("causal", "block-sparse-q"), ("window:1024", "block-sparse")):
        found = clock(partial(best_tiles, find(name), Attention(8192, 128, mask=parse_mask(mask)), 102400), 1)
        yield f"`--tiles best` with {mask}, first time, milliseconds", found * 1e3, "under 10"


def curves(clock):
    """Curves that were never searched before, so that no cache helps."""
    curve(64, 8)  # so that all is imported
    lengths = iter(range(8192, 2**14))
    dense, causal = (clock(lambda mask=mask: curve(next(lengths), 128, mask=mask), 5) for mask in ("dense", "causal"))
    yield "`tune --curve` with causal / dense", causal / dense, "at most 10"


def csv_by_pandas(frame):
    return frame.to_csv(io.StringIO(), index=False, lineterminator="\n")


def json_by_json(frame):
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [json.dumps(row, separators=(",", ":")) for row in rows]


def sweeps(clock, most):
    axes = {"N": list(range(1000, 1000 + most)), "d": [64, 128]}
    plan = build({**axes, "M": list(range(16384, 16384 + most // 2 * 512, 512))}, ["flash1", "flash2"], "128x64")
    frames = [rows.to_frame() for rows in sweep.Chunks(plan)]
    assert all(tuple(frame.columns) == COLUMNS for frame in frames)
    counted = clock(lambda: list(sweep.Chunks(plan)), 3)
    for kind, before in (("csv", csv_by_pandas), ("jsonl", json_by_json)):
        now = clock(lambda kind=kind: write_file(Work(plan, kind), io.BytesIO()), 3)
        others = clock(lambda before=before: [before(frame) for frame in frames], 1)
        what, aim = {"csv": ("CSV: pandas", "at least 1.5"), "jsonl": ("JSON lines: `json`", "at least 2")}[kind]
        yield f"a sweep of half a million rows to {what} writing / iosim writing", (counted + others) / now, aim
    axes["M"] = list(range(65536, 65536 + most // 10 * 512, 512))
    dense, causal = (build({**axes, "mask": mask}, ["block-sparse-q"], "128x64") for mask in ("dense", "causal"))
    ratio = clock(lambda: list(sweep.Chunks(causal)), 3) / clock(lambda: list(sweep.Chunks(dense)), 3)
    yield "a row of a causal sweep / of a dense one", ratio, ""
    for mask, aim in (("~(causal&window:100)", "at least 20"), ("strided:300&causal", "at least 20")):
        for tiles in ("128x64", "best"):
            yield f"a row with {mask}, {tiles}: by itself / in a sweep over M", alone(clock, most, mask, tiles), aim


def alone(clock, most, mask, tiles):
    """How much longer a row takes that is counted by itself. The two sweeps share no size: nothing is known before."""

    def seconds(N, rows):
        M = list(range(65536, 65536 + 512 * rows, 512))
        axes = {"N": N, "d": [64, 128], "M": M, "mask": mask}
        plan = build(axes, ["block-sparse-q"], tiles)
        return clock(lambda: list(sweep.Chunks(plan)), 1) / (2 * len(N) * rows)

    together, in_arrays = seconds(list(range(2000, 2010)), most), sweep.in_arrays
    sweep.in_arrays = lambda *run: False
    try:
        return seconds([3000, 3001], 2) / together
    finally:
        sweep.in_arrays = in_arrays


def runs(clock, rows):
    standard, flash1 = find("standard"), find("flash1")
    p, tiles, rng = Attention(rows, 64), Tiling(1, 1), np.random.default_rng(0)
    inputs = standard.example(rng, p, None)
    single = clock(lambda: Numeric(p, inputs, Traffic()).run(standard, tiles), 1)
    blocks = clock(lambda: run_together(lambda: RowBlocks(p, inputs, Traffic()), standard, tiles), 3)
    yield "numeric run of `standard`, row by row / in blocks of rows", single / blocks, "at least 50"
    p, tiles = Attention(16 * rows, 128), Tiling(64, 64)
    single = clock(lambda: Machine(p, Trace(lambda event: None)).run(flash1, tiles), 1)
    at_once = clock(lambda: record(flash1, p, tiles), 5)
    yield "tile moves of flash1, traced one by one / recorded for a cache", single / at_once, "at least 10"


def table(quick=False):
    """The rows (what, measured, aim)."""
    clock = Clock(quick)
    yield from counts(clock)
    yield from arrays(clock, 2_048 if quick else 32_768)
    yield from best(clock)
    yield from curves(clock)
    yield from sweeps(clock, 10 if quick else 500)
    yield from runs(clock, 64 if quick else 512)


if __name__ == "__main__":
    print("| what | measured | aim |\n|---|---|---|")
    for what, value, aim in table(sys.argv[1:] == ["--quick"]):
        print(f"| {what} | {value:.2f} | {aim} |")
