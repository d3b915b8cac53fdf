"""Measures the generated flash2 with all candidate tiles: on a GPU, from the root of the repository

    PYTHONPATH=. python3 validation/tiles_by_time.py FOLDER

FOLDER gets tiles_time.csv, with the time of every candidate. Times are medians between events, with an empty L2 before
each launch.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from iosim import tables
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.cuda.machine import generate
from iosim.hardware import load
from iosim.schedules import find

FLASH2 = find("flash2")
REPEATS = 15
SIZES = (16, 32, 48, 64, 80, 96, 128, 192, 256)  # rows of a candidate's tiles
SHAPES = (  # N, d, heads, dtype
    (4096, 64, 16, "fp16"), (1024, 64, 32, "fp16"), (2048, 128, 16, "fp16"), (1000, 64, 48, "fp16"),
    (4096, 128, 8, "fp16"), (512, 128, 66, "bf16"), (1024, 64, 64, "fp32"), (3000, 80, 10, "fp16"),
    (2048, 32, 32, "fp16"), (1024, 256, 8, "fp16"),
)  # fmt: skip


def problem(N: int, d: int, heads: int, dtype: str) -> Attention:
    return Attention(N, d, heads=heads, dtype=dtype, acc_dtype="fp32")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further shape after so long")
    parser.add_argument("--first", type=int, help="only so many tiles of each shape (a trial)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    measure(given.folder, given.seconds, given.first)
    return 0


def sizes_up_to(length: int) -> tuple[int, ...]:
    """The sizes below the length of an axis, and the first that holds it all."""
    return SIZES[: sum(size < length for size in SIZES) + 1]


def candidates(p: Attention) -> list[Tiling]:
    """The tiles whose kernel fits the shared memory of a block of a Hopper GPU."""
    room, every = load("h200").shared_memory_per_block_bytes, product(sizes_up_to(p.N), sizes_up_to(p.Nk))
    return [t for t in (Tiling(*pair) for pair in every) if generate(FLASH2, p, t).smem_bytes <= room]


def measure(folder: Path, limit_seconds: float, first: int | None) -> None:
    """Time every candidate of every shape; write the file after each shape."""
    begin, rows = time.perf_counter(), list[dict[str, Any]]()
    for shape in SHAPES:
        if time.perf_counter() - begin > limit_seconds:
            print(f"# no time for {shape}", flush=True)
            continue
        tilings = candidates(problem(*shape))[:first]
        found = timed(problem(*shape), tilings)
        rows += found
        (folder / "tiles_time.csv").write_text(tables.to_csv(rows), encoding="utf-8")
        best = min((row for row in found if row["seconds"]), key=lambda row: row["seconds"], default={})
        print(f"# {shape}: {len(found)} tiles, {time.perf_counter() - begin:.0f} s; fastest {best.get('tiles')}, "
              f"{best.get('seconds')} s", flush=True)  # fmt: skip


def timed(p: Attention, tilings: list[Tiling]) -> list[dict[str, Any]]:
    """A row for each tiling. One that fails has its reason in place of a time."""
    import numpy as np

    from iosim.gpu import device
    from iosim.gpu.jobs import ScheduleJob
    from iosim.gpu.run import launch_all, prepare
    from iosim.gpu.worker import FLUSH_BYTES, inputs_of, one_line

    programs = [generate(FLASH2, p, tiling) for tiling in tilings]
    device.compile_all(programs)
    flush = device.cupy().empty(FLUSH_BYTES, np.uint8)
    inputs = inputs_of(ScheduleJob("flash2", p, tilings[0]))
    rows = []
    for tiling, program in zip(tilings, programs, strict=True):
        label = {"N": p.N, "d": p.d, "heads": p.heads, "dtype": p.dtype, "tiles": f"{tiling.rows_q}x{tiling.rows_k}"}
        try:
            arrays, table, counts = prepare(program, inputs)

            def start(ready: Any = (program, arrays, table, counts)) -> None:
                launch_all(*ready)

            rows.append({**label, "seconds": device.milliseconds(start, REPEATS, flush) / 1e3, "failed": ""})
        except Exception as error:
            rows.append({**label, "seconds": None, "failed": one_line(error)})
    return rows


# ---------------------------------------------------------------- without a GPU


def measured(folder: Path) -> dict[tuple[int, int, int, str], dict[str, float]]:
    """{shape: {tiles: seconds}} of the kept measurement."""
    found: dict[tuple[int, int, int, str], dict[str, float]] = {}
    with open(folder / "tiles_time.csv", newline="") as file:
        for row in csv.DictReader(file):
            shape = int(row["N"]), int(row["d"]), int(row["heads"]), row["dtype"]
            if row["seconds"]:
                found.setdefault(shape, {})[row["tiles"]] = float(row["seconds"])
    return found


if __name__ == "__main__":
    sys.exit(main())
