"""Which side of an L2 of two partitions the blocks of a launch sit on, as calibrate measures it.

An atomic is done at the home of its line, so its time tells whether that is on the side of who asks. Multiprocessors of
one side agree on which lines are near. Few blocks do not sit on both sides alike: on an H200 all of 8 blocks were on
one, and 12 of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import device

LINES, STRIDE_WORDS = 512, 1056  # 4 KiB and a line: all sets of both partitions
FEW = (8, 16, 32, 64)  # blocks of a launch; and as many as there are multiprocessors
STAY_CLOCKS = 200_000
LEAST_MULTIPROCESSORS = 4  # of fewer, what differs from their mean agrees by itself
LEAST_AGREEMENT = 0.5  # of the distances of two multiprocessors on one side; of one partition there is none


def measure_sides(module: Any, sms: int, most_shared_bytes: int) -> dict[str, str]:
    """{"8": "00000000", ...}: the side of each block of a launch of so many, in grid order; the last entry is of as
    many blocks as there are multiprocessors. Empty where no sides are found. `module`: calibrate.cu."""
    xp = device.cupy()
    distances, placed = module.get_function("distances"), module.get_function("placed")
    for kernel in (distances, placed):
        kernel.max_dynamic_shared_size_bytes = most_shared_bytes  # one block on a multiprocessor
    buffer, where = xp.zeros(LINES * STRIDE_WORDS, xp.uint32), xp.zeros(sms, xp.uint32)
    clocks, arguments = xp.zeros((sms, LINES), xp.uint32), (xp.int32(LINES), xp.int32(STRIDE_WORDS))
    for _ in range(2):  # the first time warms up
        distances((sms,), (32,), (buffer, *arguments, clocks, where), shared_mem=most_shared_bytes)
    side = sides_of_multiprocessors(clocks.get(), where.get())
    found: dict[str, str] = {}
    if len(side) < sms:  # none, or two blocks sat on the same
        return found
    for blocks in (*(few for few in FEW if few < sms), sms):
        placed((blocks,), (32,), (where, xp.int64(STAY_CLOCKS)), shared_mem=most_shared_bytes)
        found[str(blocks)] = "".join(str(side[int(sm)]) for sm in where.get()[:blocks])
    return found


def sides_of_multiprocessors(clocks: Any, where: Any) -> dict[int, int]:
    """{multiprocessor: side}; side 0 is that of the first. `clocks`: of each block (rows) to each line."""
    if len(clocks) < LEAST_MULTIPROCESSORS:
        return {}
    near = clocks - clocks.mean(axis=0)
    with np.errstate(invalid="ignore"):
        agreement = np.corrcoef(near)[0]
    if not np.abs(agreement).min() >= LEAST_AGREEMENT:  # nor where it is no number, all distances being the same
        return {}
    return {int(sm): int(each < 0) for sm, each in zip(where, agreement, strict=True)}
