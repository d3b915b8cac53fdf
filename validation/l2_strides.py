"""What an L2 keeps of pieces that lie in larger memory, each a stride from the next. On a GPU, from the root

    PYTHONPATH=. python3 validation/l2_strides.py FOLDER    # runs itself under Nsight Compute: FOLDER/l2_strides.csv

Every multiprocessor goes five times through a piece of its own, which it reads, or reads and writes, as block-sparse
does with a window of a head's Q and O. The fewer of a page's bytes are used, the less evenly do they fill the sets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from l2_buffers import ACCESSES, KERNEL, MIB, ONE_PIECE, ROUNDS, THREADS, Rows, measured_by, run_as_a_script

from iosim.l2 import places_on_sides
from iosim.lru import SIDES, Cache, pages_of, rooms_of

KIB = 2**10
STRIDES_KIB = (0, 361, 723, 1001, 1024)  # 0: pieces lie side by side
SIZES_MIB = (20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60)  # of all pieces
CELLS = 16  # of a piece


def launches(blocks: int) -> Iterator[tuple[int, str, int, int]]:
    """(stride, access, MiB, bytes of a piece) of each kernel, in the order in which they run."""
    for stride in STRIDES_KIB:
        for access in ACCESSES[:2]:
            for size in SIZES_MIB:
                piece = size * MIB // blocks // 512 * 512
                if not stride or piece < stride * KIB:
                    yield stride, access, size, piece


def launch() -> None:
    """All kernels once; only they are profiled."""
    from iosim.gpu import device

    xp = device.cupy()
    blocks = xp.cuda.Device().attributes["MultiProcessorCount"]
    kernel, memory = xp.RawKernel(KERNEL, "touch"), xp.zeros(blocks * max(STRIDES_KIB) * KIB, xp.uint8)
    kernel.compile()
    xp.cuda.Device().synchronize()
    xp.cuda.profiler.start()
    for stride, access, _, piece in launches(blocks):
        numbers = xp.int64((stride * KIB or piece) // 16), xp.int64(piece // 16)
        kernel((blocks,), (THREADS,), (memory, *numbers, xp.int32(ROUNDS), xp.int32(ACCESSES.index(access))))
    xp.cuda.Device().synchronize()
    xp.cuda.profiler.stop()


def measure(log: Any) -> Rows:
    """A row for each kernel; `log` is where the profiler writes."""
    found = measured_by(__file__, log)
    blocks = found[0][0].grid[0]
    return [
        {"blocks": blocks, "stride_kib": stride, "access": access, "pieces_mib": size, "piece_bytes": piece,
         "rounds": ROUNDS, **dram}
        for (stride, access, size, piece), (_, dram) in zip(launches(blocks), found, strict=True)
    ]  # fmt: skip


def modelled(row: Mapping[str, Any], capacity_bytes: int, sides: Mapping[str, str]) -> tuple[int, int]:
    """What lru.py says of a row, DRAM bytes read and written: a step is a cell of each piece. Needs no GPU.
    `capacity_bytes`: of a partition; `sides`: `l2_sides` of the hardware file."""
    blocks, piece = int(row["blocks"]), int(row["piece_bytes"])
    unused = int(row["stride_kib"]) * KIB - piece if int(row["stride_kib"]) else 0
    sizes = np.tile(np.repeat([piece / CELLS, unused / CELLS], CELLS), blocks)
    cache, side = Cache(sizes, capacity_bytes, rooms_of(ONE_PIECE), pages_of(sizes)), places_on_sides(sides, blocks)
    first, none = np.arange(blocks) * 2 * CELLS, np.zeros(0, np.int64)
    for _ in range(int(row["rounds"])):
        for cell in range(CELLS):
            parts = [first[side == s] + cell for s in range(SIDES)]
            cache.touch(parts, parts if row["access"] == "both" else [none] * SIDES, first + cell)
    return cache.read_bytes, cache.write_bytes


if __name__ == "__main__":
    sys.exit(run_as_a_script(str(__doc__), "l2_strides", launch, measure))
