"""What an L2 keeps of one array, and of four that are allocated apart. On a GPU, from the repository's root

    PYTHONPATH=. python3 validation/l2_arrays.py FOLDER    # runs itself under Nsight Compute: FOLDER/l2_arrays.csv

Every multiprocessor goes through a part of its own, as flash1 does through Q, O, l and m: it reads 45 % of the bytes,
and reads or reads and writes the rest. All lie in one piece of memory, or in four arrays that are allocated anew,
elsewhere each time. The model (`iosim/lru.py`) knows sizes and order, but no addresses: to it all arrays that
lie apart are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from l2_buffers import MIB, ONE_PIECE, Rows, measured_by, run_as_a_script

from iosim.l2 import places_on_sides
from iosim.lru import APART, SIDES, Cache, rooms_of

SIZES_MIB = (28, 31, 34, 36, 38, 40, 42, 44, 48)
ROUNDS, THREADS, TILES = 5, 256, 32
SHARES = (0.45, 0.45, 0.05, 0.05)  # of the bytes: Q, O, l, m
READ_ONLY = 1  # of these arrays
WAYS = ("one", *("apart",) * 3)  # in one piece, or four arrays
ACCESSES = ("read", "both")  # `both`: all but the first of the four are written, too
KERNEL = r"""
extern "C" __global__ void touch(const unsigned long long* arrays, const long long* counts, int number, int tiles,
                                 int rounds, int read_only) {
    unsigned sum = 0;
    for (int round = 0; round < rounds; round++)
        for (int tile = 0; tile < tiles; tile++) {
            for (int a = 0; a < number; a++) {
                uint4* mine = reinterpret_cast<uint4*>(arrays[a]) + blockIdx.x * counts[a];
                long long first = counts[a] * tile / tiles, end = counts[a] * (tile + 1) / tiles;
                for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
                    uint4 v = __ldcg(mine + i);
                    sum += v.x + v.y + v.z + v.w;
                    v.x += round;
                    if (a >= read_only) mine[i] = v;
                }
            }
            __syncthreads();
        }
    if (sum == 123457) reinterpret_cast<uint4*>(arrays[0])[0].x = sum;  // so that no load can be left out
}
"""


def launches() -> Iterator[tuple[str, str, int]]:
    """(way, access, MiB) of each kernel, in the order in which they run."""
    return product(WAYS, ACCESSES, SIZES_MIB)


def launch() -> None:
    """All kernels once; only they are profiled."""
    from iosim.gpu import device

    xp = device.cupy()
    kernel, blocks = xp.RawKernel(KERNEL, "touch"), xp.cuda.Device().attributes["MultiProcessorCount"]
    whole, pool = xp.zeros(max(SIZES_MIB) * MIB, xp.uint8), xp.get_default_memory_pool()
    kernel.compile()
    for number, (way, access, size) in enumerate(launches()):
        counts = [int(size * MIB * share) // 16 // blocks for share in SHARES]
        starts = [int(whole.data.ptr) + 16 * blocks * sum(counts[:a]) for a in range(len(counts))]
        elsewhere = xp.zeros((1 + number) * MIB, xp.uint8)
        apart = [xp.zeros(16 * blocks * count, xp.uint8) for count in counts] if way == "apart" else []
        arrays = xp.array([int(each.data.ptr) for each in apart] or starts, xp.uint64)
        counted, written_from = xp.array(counts, xp.int64), READ_ONLY if access == "both" else len(SHARES)
        numbers = xp.int32(len(SHARES)), xp.int32(TILES), xp.int32(ROUNDS), xp.int32(written_from)
        xp.cuda.Device().synchronize()
        xp.cuda.profiler.start()
        kernel((blocks,), (THREADS,), (arrays, counted, *numbers))
        xp.cuda.Device().synchronize()
        xp.cuda.profiler.stop()
        del apart, elsewhere
        pool.free_all_blocks()


def measure(log: Path) -> Rows:
    """A row for each kernel; `log` is where the profiler writes."""
    return [
        {"way": way, "access": access, "blocks": kernel.grid[0], "arrays_mib": size, "rounds": ROUNDS, **dram}
        for (way, access, size), (kernel, dram) in zip(launches(), measured_by(__file__, log), strict=True)
    ]


CELLS = TILES  # of each array, of each block


def modelled(row: Mapping[str, Any], capacity_bytes: int, sides: Mapping[str, str]) -> tuple[int, int]:
    """What lru.py says of a row, DRAM bytes read and written. Needs no GPU. `capacity_bytes`: of a
    partition; `sides`: `l2_sides` of the hardware file."""
    blocks, size = int(row["blocks"]), int(row["arrays_mib"]) * MIB
    sizes = np.repeat([share * size / blocks / CELLS for share in SHARES], blocks * CELLS)
    rooms = rooms_of(ONE_PIECE if row["way"] == "one" else APART)
    cache, side = Cache(sizes, capacity_bytes, rooms), places_on_sides(sides, blocks)
    none, place = np.zeros(0, np.int64), np.arange(blocks)
    for _, cell, array in product(range(int(row["rounds"])), range(CELLS), range(len(SHARES))):
        every = (array * CELLS + cell) * blocks + place
        parts = [every[side == s] for s in range(SIDES)]
        written = row["access"] == "both" and array >= READ_ONLY
        cache.touch(parts, parts if written else [none] * SIDES, every)
    return cache.read_bytes, cache.write_bytes


if __name__ == "__main__":
    sys.exit(run_as_a_script(str(__doc__), "l2_arrays", launch, measure))
