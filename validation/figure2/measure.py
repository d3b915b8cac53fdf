"""FlashAttention's Fig. 2, middle and right, with generated kernels on this GPU: from the root of the repository

    PYTHONPATH=. python3 validation/figure2/measure.py FOLDER           # on the GPU: FOLDER/figure2.csv
    PYTHONPATH=. python3 validation/figure2/measure.py FOLDER --jobs    # no GPU: what would run
    PYTHONPATH=. python3 validation/figure2/measure.py FOLDER --page    # no GPU: two pages in validation/sources

Middle: forward passes of GPT-2 medium against the block size that decides the words. Right: forward and backward passes
against the share of active tiles. Times are medians of ten launches with the L2 emptied before each (backward: of
three, one after another); the output of every forward kernel is compared with float64, and so are the gradients of a
small problem for every backward schedule. Exit code 1 if a kernel failed.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

from iosim import grid, tables
from iosim.core.problem import DENSE, Attention
from iosim.core.tiling import Tiling
from iosim.counting.passes import COMBINATIONS
from iosim.errors import IosimError
from iosim.gpu.jobs import ScheduleJob, runner
from iosim.gpu.moved import moved
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.search.best import footprint
from validation.figure2 import page

SHARED_BYTES = 232_448  # what a block may use (NVIDIA, compute capability 9.0)
BLOCKS = (16, 32, 64, 128, 256, 512)
OTHER = (64, 32, 16)  # the block that leaves the words as they are: the largest that fits
BACKWARD_TILES = Tiling(64, 128)  # 64x256, as in configs/sweeps/fig2-right.toml, do not fit backward in fp32
BACKWARD_REPEATS = 3  # their products are not on tensor cores, so they take long
CHECKED = {"N": 512, "d": 64, "heads": 2, "dtype": "fp16", "acc_dtype": "fp32"}  # gradients, against float64
Row = dict[str, Any]


def jobs() -> Iterator[tuple[str, ScheduleJob, ScheduleJob | None]]:
    """(panel, forward pass, backward pass or None)."""
    for name, acc, size in product(("flash1", "flash2"), ("fp32", "fp16"), BLOCKS):
        p = Attention(1024, 64, heads=16, batch=64, dtype="fp16", acc_dtype=acc)
        tiling = next(filter(lambda t: fits(name, p, t), shapes(name, size)), None)
        if tiling:
            yield "middle", ScheduleJob(name, p, tiling), None
    pairs = [c for c in COMBINATIONS if c.name.startswith("block-sparse")]
    for c, mask in product(pairs, densities()):
        p = Attention(4096, 64, heads=16, batch=8, dtype="fp16", acc_dtype="fp32", mask=mask, lse="LSE" in c.stored)
        yield "right", *(ScheduleJob(name, p, BACKWARD_TILES) for name in (c.forward, c.backward))


def shapes(name: str, size: int) -> list[Tiling]:
    """Tilings whose outer block, which decides the words, has this size."""
    return [Tiling(other, size) if find(name).outer == "keys" else Tiling(size, other) for other in OTHER]


def fits(name: str, p: Attention, tiling: Tiling) -> bool:
    return bool(footprint(find(name), p, tiling).peak_bytes <= SHARED_BYTES)


def densities() -> list[Any]:
    """The masks of the shipped sweep."""
    file = Path(__file__).parents[2] / "configs" / "sweeps" / "fig2-right.toml"
    return [parse_mask(text) for text in tomllib.loads(file.read_text(encoding="utf-8"))["sweep"]["mask"]]


def density(job: ScheduleJob) -> float:
    """The share of active tiles."""
    p = job.problem
    if p.mask is DENSE:
        return 1.0
    bound = p.mask.bind(p, job.tiling)
    return float(bound.active_tiles / (bound.Tr * bound.Tc))


def described(panel: str, job: ScheduleJob) -> Row:
    """What is known of a job without a GPU: words over all heads, and bytes between SM and L2."""
    p, t = job.problem, job.tiling
    found = moved(find(job.name), p, t)
    return {
        "panel": panel, "schedule": job.name, "Br": t.rows_q, "Bc": t.rows_k,
        **{name: getattr(p, name) for name in ("N", "d", "heads", "batch", "dtype", "acc_dtype")},
        "mask": str(p.mask), "density": density(job),
        "words": sum(map(sum, found.tensors.values())), "sm_bytes": found.read_bytes + found.write_bytes,
        "flops": found.flops, "smem_bytes": max(launch["smem_bytes"] for launch in runner(job).launches),
        "ms": None, "error": None, "allowed_error": None, "failed": "", "device": "", "date": "",
    }  # fmt: skip


def described_all() -> Iterator[Row]:
    """All rows, without what is measured."""
    return (described(panel, job) for panel, *passes in jobs() for job in filter(None, passes))


# ---------------------------------------------------------------- on the GPU


def measure() -> Iterator[Row]:
    """The row of each kernel, one after another as they are measured."""
    from iosim.gpu import device, worker

    common = {"device": device.name(), "date": date.today().isoformat()}
    checks: dict[str, Row] = {}
    for panel, forward, backward in jobs():
        inputs = worker.inputs_of(forward)
        yield {**described(panel, forward), **common, **forward_pass(forward, inputs)}
        if backward:
            name = backward.name
            checks[name] = checks.get(name) or gradients(backward)
            yield {**described(panel, backward), **common, **checks[name],
                   **backward_pass(forward, backward, inputs)}  # fmt: skip
        del inputs
        device.cupy().get_default_memory_pool().free_all_blocks()


def forward_pass(job: ScheduleJob, inputs: Row) -> Row:
    """Time and output error of a forward kernel."""
    from iosim.gpu import worker

    try:
        ms = 1e3 * worker.seconds(runner(job).call(inputs))
        found = worker.output_errors(job, 1.0)
    except Exception as error:  # one kernel must not hide the others
        return {"failed": worker.one_line(error)}
    wrong = found["unwritten"] or not found["error"] <= found["allowed_error"]
    return {"ms": ms, **{name: found[name] for name in ("error", "allowed_error")}, "failed": "output" if wrong else ""}


def backward_pass(forward: ScheduleJob, job: ScheduleJob, inputs: Row) -> Row:
    """Time of a backward kernel on what the forward one left, and a random dO."""
    from iosim.gpu import device, worker

    try:
        left = runner(forward).run(inputs)[0]
        xp = device.cupy()
        do = xp.random.default_rng(1).standard_normal(inputs["Q"].shape, dtype=xp.float32)
        return {"ms": device.milliseconds(runner(job).call({**inputs, **left, "dO": do}), BACKWARD_REPEATS)}
    except Exception as error:  # as above
        return {"failed": worker.one_line(error)}


def gradients(job: ScheduleJob) -> Row:
    """The error, words and shared memory of a backward schedule with these tiles on a small problem."""
    from iosim.gpu import worker
    from validation.examples import Case
    from validation.selftest import run_case

    try:
        found = run_case(Case(job.name, f"{job.tiling.rows_q}x{job.tiling.rows_k}", CHECKED, "strided:2b"))
    except Exception as error:  # as above
        return {"failed": worker.one_line(error)}
    return {name: found[name] for name in ("error", "allowed_error", "failed")}


# ---------------------------------------------------------------- the command


def shown(row: Row) -> Row:
    """The columns that fit a terminal."""
    names = (
        "schedule",
        "Br",
        "Bc",
        "acc_dtype",
        "mask",
        "density",
        "sm_bytes",
        "ms",
        "error",
        "failed",
    )
    return {name: f"{row[name]:.4g}" if isinstance(row[name], float) else row[name] for name in names}


def write(folder: Path, found: Iterator[Row]) -> int:
    """Write figure2.csv. This is done again after each row, so that what was measured stays if a later kernel fails."""
    rows: list[Row] = []
    for row in found:
        rows.append(row)
        (folder / "figure2.csv").write_text(tables.to_csv(rows), encoding="utf-8")
        print(*shown(row).values(), flush=True)
    return int(any(row["failed"] for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", action="store_true", help="no GPU: what would run")
    parser.add_argument("--page", action="store_true", help="no GPU: the tables of the pages from figure2.csv")
    given = parser.parse_args()
    if given.page:
        page.write(given.folder)
        return 0
    if given.jobs:
        print(grid.table(list(map(shown, described_all()))))
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    return write(given.folder, measure())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except IosimError as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
