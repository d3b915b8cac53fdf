"""Spilled registers: the bytes that each instruction of a kernel stores to the stacks of its threads.

Counters say how many bytes a kernel spills, not how often a thread writes the same bytes. Bytes that are written in
every tile stay in the L2. Bytes that are written once a block are next written by the next block; meanwhile they may go
to DRAM. Nsight Compute's page of instructions (`--page source`) tells the two apart: it
lists every store to the stack, with its offset and the number of warps that ran it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import groupby
from math import prod

from ...cuda.warp_split import LANES
from .counters import MARKERS, ProfiledKernel, StoreInstruction

COUNT = "inst_executed"  # the metric: warps that ran an instruction
STORE_INSTRUCTION = re.compile(r"\bSTL((?:\.\w+)*) \[R1(?:\+0x([0-9a-f]+))?\]")  # R1 is the stack's pointer
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # bytes a thread
WORD_BYTES = 4
SPILL_TOLERANCE = 0.01  # relative difference to the bytes that the counters say are spilled


def parse_stores(text: str) -> list[list[list[StoreInstruction]]]:
    """The stores of each kernel of each job, from pages of instructions as CSV. A page may be listed twice in a row."""
    jobs: list[list[list[StoreInstruction]]] = []
    for (name, _, stores), _ in groupby(_listings(text)):
        if MARKERS[0] in name:
            jobs.append([])
        elif jobs:
            jobs[-1].append(stores)
    return jobs


def _listings(text: str) -> Iterator[tuple[str, str, list[StoreInstruction]]]:
    """(kernel name, first address, stores) of each page."""
    lines = [row for row in csv.reader(text.splitlines()) if row]
    starts = [n for n, row in enumerate(lines) if row[0] == "Kernel Name"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        header, *body = lines[start + 1 : end]
        rows = [dict(zip(header, row, strict=False)) for row in body if row[0].startswith("0x")]
        stores = [store for row in rows for store in _store(row["Source"], row[COUNT])]
        yield lines[start][1], body[0][0] if body else "", stores


def _store(instruction: str, warps: str) -> Iterator[StoreInstruction]:
    found = STORE_INSTRUCTION.search(instruction)
    if found:
        width = [WIDTHS[part] for part in found[1].split(".") if part in WIDTHS]
        yield int(found[2] or "0", 16), sum(width) or WORD_BYTES, int(warps.replace(",", ""))


def block_bytes(kernel: ProfiledKernel) -> tuple[int, int] | None:
    """(bytes written once, bytes written repeatedly) by a block to the stacks of its threads.

    Bytes are written repeatedly if an instruction that stores them runs more than once in a warp. None if the stores
    are not known, or do not add up to the spilled bytes that the counters say.
    """
    threads = prod(kernel.block)
    warps = -(-threads // LANES) * prod(kernel.grid)
    seen = sum(width * runs * LANES for _, width, runs in kernel.stack_stores)
    if not seen or abs(seen - (kernel.spilled_bytes or 0)) > SPILL_TOLERANCE * seen:
        return None
    most: dict[int, int] = {}
    for first, width, runs in kernel.stack_stores:
        for place in range(first, first + width):
            most[place] = max(runs, most.get(place, 0))
    once = sum(runs <= warps for runs in most.values())
    return once * threads, (len(most) - once) * threads
