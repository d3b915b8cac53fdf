"""What an L2 keeps: DRAM bytes of kernels that go through a buffer five times. On a GPU, from the repository's root

    PYTHONPATH=. python3 validation/l2_buffers.py FOLDER    # runs itself under Nsight Compute: FOLDER/l2_buffers.csv

1, 16 or all multiprocessors read, read and write, or write a part of the buffer each (`own`), or all of them read all
of it (`shared`). The profiler empties the L2 before each kernel. `iosim/gpu/predict/l2.py` is a model of what was seen.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from iosim import grid, tables
from iosim.errors import IosimError, MissingError
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu
from iosim.gpu.predict.l2 import SIDES, Cache, Touched, room_of

Rows = list[dict[str, Any]]
MIB = 2**20
SIZES_MIB = (16, 20, 24, 28, 30, 32, 34, 36, 40, 44, 48, 52, 56, 60, 64, 72)
FEW_SIZES_MIB = (16, 24, 28, 32, 40, 48, 56, 64)  # one multiprocessor takes long
ACCESSES = ("read", "both", "write")
ROUNDS, THREADS, ALL = 5, 1024, 0
KERNEL = r"""
enum { READ, BOTH, WRITE };

extern "C" __global__ void touch(uint4* buffer, long long stride, long long count, int rounds, int access) {
    uint4* mine = buffer + blockIdx.x * stride;  // all of it where the stride is 0
    unsigned sum = 0;
    for (int round = 0; round < rounds; round++) {
        for (long long i = threadIdx.x; i < count; i += blockDim.x) {
            uint4 v = make_uint4(round, round, round, round);
            if (access != WRITE) v = __ldcg(mine + i);
            sum += v.x + v.y + v.z + v.w;
            v.x += round;
            if (access != READ) mine[i] = v;
        }
        __syncthreads();
    }
    if (sum == 123457) buffer[0].x = sum;  // so that no load can be left out
}
"""


def launches() -> Iterator[tuple[str, int, str, int]]:
    """(pattern, blocks, access, MiB) of each kernel, in the order in which they run."""
    for blocks, access, size in product((ALL, 16), ACCESSES, SIZES_MIB):
        yield "own", blocks, access, size
    for size in FEW_SIZES_MIB:
        yield "own", 1, "read", size
    for size in SIZES_MIB:
        yield "shared", ALL, "read", size


def launch() -> None:
    """Launch all kernels once; only they are profiled. Parts are whole KiB, so the last may end before the buffer."""
    from iosim.gpu import device

    xp = device.cupy()
    kernel, buffer = xp.RawKernel(KERNEL, "touch"), xp.zeros(max(SIZES_MIB) * MIB, xp.uint8)
    every = xp.cuda.Device().attributes["MultiProcessorCount"]
    kernel.compile()
    xp.cuda.Device().synchronize()
    xp.cuda.profiler.start()
    for pattern, some, access, size in launches():
        blocks, vectors = some or every, size * MIB // 16
        part = vectors // blocks // 64 * 64
        stride, count = (part, part) if pattern == "own" else (0, vectors)
        numbers = xp.int64(stride), xp.int64(count), xp.int32(ROUNDS), xp.int32(ACCESSES.index(access))
        kernel((blocks,), (THREADS,), (buffer, *numbers))
    xp.cuda.Device().synchronize()
    xp.cuda.profiler.stop()


def measure(log: Path) -> Rows:
    """A row for each kernel; `log` is where the profiler writes."""
    return [
        {"pattern": pattern, "blocks": kernel.grid[0], "access": access, "buffer_mib": size, "rounds": ROUNDS, **dram}
        for (pattern, _, access, size), (kernel, dram) in zip(launches(), measured_by(__file__, log), strict=True)
    ]


def measured_by(script: str, log: Path) -> list[tuple[counters.ProfiledKernel, dict[str, float]]]:
    """The kernels that a script launches, each with its bytes of DRAM and its time."""
    worker = [sys.executable, script, "--launch", str(log.parent)]
    done = subprocess.run(ncu.command(ncu.find_ncu(), str(log), worker), check=False)
    if done.returncode or not log.exists():
        raise MissingError(f"ncu ended with exit code {done.returncode}; see {log}")
    names = {"dram_read_bytes": counters.DRAM_READ, "dram_write_bytes": counters.DRAM_WRITE}
    return [
        (kernel, {**{name: kernel.get(metric) for name, metric in names.items()},
                  "seconds": kernel.get(counters.TIME) / 1e9})
        for job in counters.read_profile(log).jobs for kernel in job
    ]  # fmt: skip


CELLS = {1: 128, 16: 64, 132: 16}  # of each block; four times as many of one block give the same bytes
SHARED_CELLS = 64


def modelled(row: Mapping[str, Any], capacity_bytes: int) -> tuple[int, int]:
    """DRAM bytes read and written, by the model (`predict/l2.py`), where a step is a cell of each block. Needs no GPU.

    `capacity_bytes`: of a partition."""
    own, number = row["pattern"] == "own", int(row["blocks"])
    blocks, cells = (number, CELLS[number]) if own else (1, SHARED_CELLS)
    sizes = np.full(blocks * cells, int(row["buffer_mib"]) * MIB / (blocks * cells))
    blocks_by_side = np.argsort(np.arange(blocks) % SIDES, kind="stable")
    side = blocks_by_side % SIDES if own else np.arange(SIDES)  # both sides ask for a shared buffer
    first = blocks_by_side * cells if own else np.zeros(SIDES, np.int64)
    cell = first + np.array([*range(cells)] * int(row["rounds"]))[:, None, None]
    writes = [way for way, without in ((False, "write"), (True, "read")) if row["access"] != without]
    touched = np.broadcast_arrays(np.arange(len(cell))[:, None, None], np.array(writes)[:, None], side, cell)
    cache = Cache(sizes, room_of(capacity_bytes))
    cache.play(Touched(*(each.ravel() for each in touched)))
    return cache.read_bytes, cache.write_bytes


def main() -> int:
    """Write FOLDER/l2_buffers.csv from what the profiler saw, and return the exit code. Under the profiler only
    launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--launch", action="store_true", help="only run the kernels, as under the profiler")
    given = parser.parse_args()
    try:
        if given.launch:
            launch()
            return 0
        given.folder.mkdir(parents=True, exist_ok=True)
        rows = measure(given.folder / "l2_buffers.ncu.csv")
    except IosimError as fault:
        print(fault, file=sys.stderr)
        return fault.exit_code
    (given.folder / "l2_buffers.csv").write_text(tables.to_csv(rows), encoding="utf-8")
    print(grid.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
