"""How many thread blocks share a multiprocessor."""

from __future__ import annotations

LANES = 32  # threads of a warp
RESERVED_BYTES = 1024  # shared memory that each block costs extra (CUDA programming guide, cc 8.0 and later)
MOST_BLOCKS, MOST_THREADS, REGISTERS = 32, 2048, 65536  # of a multiprocessor of cc 9.0
SUBPARTITIONS = 4  # the quarters of a multiprocessor: each has a scheduler and a quarter of the registers


def blocks_on(
    shared_bytes: int,
    smem_bytes: int,
    threads: int,
    registers: int | None = None,
    most_threads: int | None = None,
    most_blocks: int | None = None,
) -> int:
    """The blocks that a multiprocessor holds at the same time: as many as its shared memory, threads, registers and its
    limit of blocks allow, at least one.

    `shared_bytes` is the shared memory of the multiprocessor, `smem_bytes` that of a block. `registers` are those of a
    thread; with None they are not a limit. `most_threads` and `most_blocks` are those of a multiprocessor; with None,
    those of compute capability 8.0 and 9.0.
    """
    warps = -(-max(1, threads) // LANES)
    limits = [
        shared_bytes // (smem_bytes + RESERVED_BYTES),
        (most_threads or MOST_THREADS) // (warps * LANES),
        most_blocks or MOST_BLOCKS,
    ]
    if registers:
        limits.append(REGISTERS // SUBPARTITIONS // (-(-registers // 8) * 8 * LANES) * SUBPARTITIONS // warps)
    return max(1, min(limits))
