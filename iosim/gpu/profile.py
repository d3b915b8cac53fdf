"""Which schedule, with which tiles, explains the counters of an attention kernel that somebody else wrote?

A search: every schedule of attention x tile sizes, for the ones that predict the bytes that were loaded. Of a call of
several kernels that are passes of attention (`passes.py`) each is explained; of any other, the one that loads most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from ..cuts import LANES
from ..errors import InputError, IosimError, MissingError
from ..experiment import parse_mask
from ..hardware import Hardware, load
from ..problem import DENSE, Attention
from ..schedules import SCHEDULES
from ..tiling import Tiling
from ..works import Occupancy
from .counters import DRAM_READ, DRAM_WRITE, Kernel
from .passes import CLOSE, NAME_LENGTH, TILES, UNKNOWN_BLOCKS_PER_SM, explain_passes, pass_rows
from .predict import DECIMALS, Prediction, in_whole_tiles, launch_words, predict
from .spills import block_bytes

MOST_SPLITS = 128
SPLIT_TILES = Tiling(64, 128)  # a query tile for decoding; reads do not depend on the key tile
LEAST_SHARE = 0.5  # of what a call loads, by a kernel that explains it
WRITES = 0.75, 3.0  # of what is predicted: a log-sum-exp less or more, words that take sectors. Not S, nor parts of O
BACKWARDS = "flash_fwd"  # FlashAttention-2 walks keys from the last tile to the first (its flash_fwd_kernel.h)


@dataclass(frozen=True)
class Explanation:
    """A schedule and its tiles, with what they predict; tiles that predict the same are `alike`. `whole_tiles`: ragged
    tiles are loaded whole, as bulk copies (TMA) do, whose boxes have one size. `splits`: the first launch of a schedule
    that shares the keys of a head among so many blocks. `share`: of what its call loads, by kernels of this name."""

    schedule: str
    tiling: Tiling
    read_bytes: int
    write_bytes: int
    read_ratio: float
    write_ratio: float | None
    alike: tuple[str, ...] = ()
    whole_tiles: bool = False
    splits: int | None = None
    share: float = 1.0

    @property
    def explains(self) -> bool:
        """Whether it predicts the loads, contradicts no stores, and its kernel is most of the call."""
        least, most = WRITES
        stores = least <= (self.write_ratio or 1) <= most
        return abs(self.read_ratio - 1) <= CLOSE and stores and self.share >= LEAST_SHARE


def explain(
    kernels: list[Kernel], problem: Attention, masked_tiles: bool = True, most: int = 3
) -> tuple[Kernel, list[Explanation]]:
    """The kernel (the one that loads most) and the best explanations of it, best first.

    Ordered by the distance in bytes read; then whether the grid has a block for each query tile; then by the bytes
    written. Reads do not depend on the inner tile in every order, so among equals stand the largest tiles of the least
    exotic kind (powers of two, no more keys than queries), and the others are listed as `alike`.
    """
    kernel = max(kernels, key=lambda k: k.load_bytes)
    share = sum(k.load_bytes for k in kernels if k.name == kernel.name) / max(1, sum(k.load_bytes for k in kernels))
    found = [replace(e, share=share) for e in candidates(kernel, problem, masked_tiles) if e is not None]
    found.sort(key=lambda e: (not e.explains, round(abs(e.read_ratio - 1), 6), *_unlikely(e, kernel, problem)))
    merged: dict[tuple[str, int, int], list[Explanation]] = {}
    for e in found:
        merged.setdefault((e.schedule, e.read_bytes, e.write_bytes), []).append(e)
    best = list(merged.values())[:most]
    return kernel, [replace(group[0], alike=_alike(group)) for group in best]


def _alike(group: list[Explanation]) -> tuple[str, ...]:
    """Other tiles, once each."""
    names = dict.fromkeys(_tiles(e.tiling) for e in group)
    return tuple(name for name in names if name != _tiles(group[0].tiling))


def _unlikely(e: Explanation, kernel: Kernel, problem: Attention) -> tuple[Any, ...]:
    rows_q, rows_k = e.tiling.rows_q, e.tiling.rows_k
    other_grid = prod(kernel.grid) != -(-problem.N // rows_q) * problem.instances * (e.splits or 1)
    odd = sum(n & (n - 1) != 0 for n in (rows_q, rows_k))
    registered = list(SCHEDULES).index(e.schedule)  # the core schedules come first
    return other_grid, abs((e.write_ratio or 1) - 1), odd, registered, rows_k > rows_q, -rows_k, -rows_q


def _tiles(t: Tiling) -> str:
    return f"{t.rows_q}x{t.rows_k}"


def candidates(kernel: Kernel, problem: Attention, masked_tiles: bool) -> Any:
    """Every attention schedule with every pair of tile sizes, and what it predicts."""
    for schedule in SCHEDULES.values():
        if schedule.family != "attention" or "ideal" in schedule.rules:
            continue
        launches = launches_of(schedule, problem)
        if launches == 2 and problem.mask is DENSE:
            yield from _split(schedule, problem, kernel)
        if (schedule.skips and not masked_tiles) or launches != 1:
            continue
        for rows_q, rows_k in product(TILES, TILES):
            yield _candidate(schedule, problem, Tiling(rows_q, rows_k), kernel)


def _split(schedule: Any, problem: Attention, kernel: Kernel) -> Any:
    """The first launch of a schedule that shares keys among blocks, for every number of shares in use."""
    if _first_launch(schedule, problem, 2) == _first_launch(schedule, problem, 3):
        return  # `splits` is no option of this schedule
    for splits in range(2, min(MOST_SPLITS, problem.Nk) + 1):
        reads, writes = _first_launch(schedule, problem, splits)
        read_bytes, write_bytes = reads * problem.word_bytes, writes * problem.acc_bytes
        ratios = kernel.load_bytes / read_bytes, kernel.store_bytes / write_bytes
        yield Explanation(schedule.name, SPLIT_TILES, read_bytes, write_bytes, *ratios, splits=splits)


def _first_launch(schedule: Any, problem: Attention, splits: int) -> tuple[int, int]:
    """Words read and written, over all heads."""
    reads, writes = launch_words(schedule, replace(problem, splits=splits), SPLIT_TILES)[0]
    return reads * problem.instances, writes * problem.instances


def launches_of(schedule: Any, problem: Attention) -> int:
    """Kernels that a schedule takes; 0 where it is for other problems."""
    try:
        return len(launch_words(schedule, replace(problem, mask=DENSE), Tiling(16, 16)))
    except (IosimError, AttributeError, TypeError):
        return 0


def _candidate(schedule: Any, problem: Attention, tiling: Tiling, kernel: Kernel) -> Explanation | None:
    try:
        predicted = predict(schedule, problem, tiling)
        loaded = predict(schedule, in_whole_tiles(problem, tiling), tiling) if kernel.through_tma else predicted
    except (IosimError, AttributeError, TypeError):  # a schedule for other problems (decoding, pages)
        return None
    measured = kernel.store_bytes if not kernel.stores_unseen else None
    return Explanation(
        schedule.name,
        tiling,
        loaded.read_bytes,
        predicted.write_bytes,
        kernel.load_bytes / max(1, loaded.read_bytes),
        None if measured is None else measured / max(1, predicted.write_bytes),
        whole_tiles=loaded.read_bytes != predicted.read_bytes,
    )


def occupancy(kernel: Kernel, predicted: Prediction, problem: Attention, splits: int) -> Occupancy:
    """How a kernel sits on the GPU. One that loads a row of Q again for each tile of keys does not keep its operands in
    registers: its tiles go through shared memory, step by step, as those of a generated kernel."""
    held = predicted.tensors["Q"][0] <= splits * problem.N * problem.d * problem.instances
    return Occupancy(
        kernel.blocks_per_sm or UNKNOWN_BLOCKS_PER_SM,
        loads_ahead=held,
        warps=-(-prod(kernel.block) // LANES) or Occupancy.warps,
        asynchronous=kernel.through_tma,
        generated=False,
    )


def spills(kernel: Kernel, predicted: Prediction, tiling: Tiling, problem: Attention, places: int) -> dict[str, int]:
    """Registers that have no room, as arguments of `predict`: what the blocks that run together keep in the L2 beside
    tensors, and what each block writes once. Where the instructions are not known, all is written in each tile of
    keys (FlashAttention-2: 15 KB, d = 128)."""
    tiles = predicted.tensors["K"][0] / (tiling.rows_k * problem.d)
    once, again = block_bytes(kernel) or (0, (kernel.spilled_bytes or 0) / tiles)
    return {"block_bytes": once, "taken_bytes": round(again * min(places, prod(kernel.grid)))}


def rows(
    label: str, kernel: Kernel, explanations: list[Explanation], problem: Attention, hardware: Hardware | None = None
) -> list[dict[str, Any]]:
    """One row an explanation; with `hardware` also what it says of DRAM and time, for the best one."""
    found = []
    once, again = block_bytes(kernel) or (None, None)
    for number, e in enumerate(explanations):
        known = hardware if number == 0 and e.explains else None
        shared = replace(problem, splits=e.splits) if e.splits else problem
        plain = predict(SCHEDULES[e.schedule], shared, e.tiling)
        sit = occupancy(kernel, plain, shared, e.splits or 1)
        sits, backwards = [sit] * (2 if e.splits else 1), BACKWARDS in kernel.name
        spilled = spills(kernel, plain, e.tiling, shared, known.sms * sit.blocks_per_sm) if known else {}
        chosen = predict(SCHEDULES[e.schedule], shared, e.tiling, known, sits, cold=True, backwards=backwards,
                         taken_bytes=spilled.get("taken_bytes", 0),
                         block_bytes=spilled.get("block_bytes", 0))  # fmt: skip
        dram, read, written = chosen.dram, kernel.get(DRAM_READ), kernel.get(DRAM_WRITE)
        found.append(
            {
                "kernel": label,
                "schedule": e.schedule,
                "tiles": _tiles(e.tiling) + (f"/splits={e.splits}" if e.splits else ""),
                "read_predicted": e.read_bytes,
                "read_measured": kernel.load_bytes,
                "read_ratio": round(e.read_ratio, 6),
                "write_predicted": e.write_bytes,
                "write_measured": None if kernel.stores_unseen else kernel.store_bytes,
                "write_ratio": None if e.write_ratio is None else round(e.write_ratio, 6),
                "spilled_bytes": kernel.spilled_bytes,
                "block_once_bytes": once,
                "block_again_bytes": again,
                "dram_predicted": dram and dram.total_bytes,
                "dram_measured": read + written,
                "dram_ratio": dram and read + written and round(dram.total_bytes / (read + written), 4),
                "seconds_predicted": chosen.time and round(chosen.time.seconds, DECIMALS),
                "seconds": round(kernel.seconds, DECIMALS),
                "time_ratio": chosen.time and kernel.seconds and round(chosen.time.seconds / kernel.seconds, 4),
                "explains": e.explains,
                "whole_tiles": e.whole_tiles,
                "alike": " ".join(e.alike),
            }
        )
    return found


def explained(
    label: str | None, kernels: list[Kernel], problem: Attention, hardware: Hardware | None = None
) -> list[dict[str, Any]]:
    """Rows of one call: of its passes where it has them, else of the best explanations, best first."""
    found = explain_passes(kernels, problem)
    if found:
        return pass_rows(label or "call", kernels, found, hardware)
    kernel, explanations = explain(kernels, problem)
    return rows(label or kernel.name[:NAME_LENGTH], kernel, explanations, problem, hardware)


def run(
    name: str | None, values: dict[str, Any], from_ncu: str | None, keep: str | None, lse: bool, hardware: str | None
) -> list[Any]:
    """Profile one of PyTorch's kernels, or read a kept profile, and explain it."""
    import tempfile
    from pathlib import Path

    from . import counters, ncu
    from .jobs import problem_of, torch_job

    values = {"acc_dtype": "fp32", "lse": lse, **values}
    problem = Attention(**{**values, "mask": parse_mask(values.get("mask", "dense"))})
    if from_ncu:
        jobs = counters.read(from_ncu).jobs
    elif name is None:
        raise InputError("kernel", "nothing", "torch-flash, torch-cudnn, torch-efficient, torch-math", "or --from-ncu")
    else:
        from . import device

        job = torch_job(name, problem)
        problem = problem_of(job)
        device.cupy()
        with tempfile.TemporaryDirectory() as folder:
            found = ncu.profile([job], keep or str(Path(folder, "ncu.csv")))
        failed = [note["failed"] for note in found.notes if "failed" in note]
        if failed:
            raise MissingError(f"{name}: {failed[0]}")
        jobs = found.jobs
    every: list[Any] = []
    for number, kernels in enumerate(jobs, 1):
        if not kernels:
            raise InputError("--from-ncu", from_ncu or "a profile", "a profile with a kernel in it")
        found_rows = explained(name, kernels, problem, load(hardware) if hardware else None)
        mark = f" #{number}" if len(jobs) > 1 else ""
        every += [{**row, "kernel": row["kernel"] + mark} for row in found_rows]
    names = dict.fromkeys(column for row in every for column in row)
    return [{column: row.get(column) for column in names} for row in every]
