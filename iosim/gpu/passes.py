"""Attention without a fused kernel is a call of many: which of them are its three passes, with which tiles?

Each product, S = Q K^T and O = P V, is the schedule `matmul-tiled`, and the softmax is that of `standard-tiled`. A pass
explains a kernel whose reads and writes it predicts, both, within 0.05 %. All three stand in this order, in words of
one type: that of the inputs, of the sums, or fp32, to which PyTorch converts. What is no pass (scaling, conversions,
masks, a search for rows without a key) is added up in one row. Time is not predicted: products of a library are no
steps of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod
from typing import Any

from ..hardware import Hardware
from ..problem import DENSE, Attention
from ..schedules import find
from ..tiling import Tiling, parse_tiles
from ..works import Occupancy
from .counters import DRAM_READ, DRAM_WRITE, Kernel
from .predict import DECIMALS, launch_words, predict

PRODUCT = "matmul-tiled"
CLOSE = 0.0005  # a prediction within 0.05 % explains
NAME_LENGTH = 60
UNKNOWN_BLOCKS_PER_SM = 2
# Parts of a sum, and rows of a softmax, that are followed together through the L2: an SM moves as much with any.
DEPTH = 128
WHOLE_ROWS = Tiling(128, 128, rows_s=16)
TILES = (16, 32, 48, 64, 80, 96, 112, 128, 160, 176, 192, 224, 256)


@dataclass(frozen=True)
class Pass:
    """Launch `launch` of a schedule, on a problem of its own: of a product N, Nk, d are rows, columns and the axis that
    is summed over. `called`: in its kernel's name, where others move as many bytes (scaling S in place, say)."""

    name: str
    schedule: str
    problem: Attention
    launch: int = 0
    called: str = ""

    @property
    def in_tiles(self) -> bool:
        """A product; a softmax is of whole rows."""
        return self.schedule == PRODUCT

    def moved_bytes(self, tiling: Tiling) -> tuple[int, int]:
        """Read and written, over all heads."""
        each = self.problem.instances * self.problem.word_bytes
        reads, writes = launch_words(find(self.schedule), self.problem, tiling)[self.launch]
        return reads * each, writes * each

    def dram_bytes(self, tiling: Tiling, hardware: Hardware, blocks_per_sm: int) -> int:
        """Read and written in a launch by itself, which starts with an empty L2."""
        schedule, sit = find(self.schedule), Occupancy(blocks_per_sm, loads_ahead=True, generated=False)
        sits = [sit] * len(launch_words(schedule, self.problem, tiling))
        found = predict(schedule, self.problem, tiling, hardware, sits, cold=True).dram
        return sum(found.by_launch[self.launch]) if found else 0

    def blocks(self, tiling: Tiling) -> int:
        """One for each tile of the result, in the grid of a library's product."""
        p = self.problem
        return -(-p.N // tiling.rows_q) * -(-p.Nk // tiling.rows_k) * p.instances


@dataclass(frozen=True)
class Found:
    """A kernel of a call, and the pass that explains it; tiles that predict the same are `alike`."""

    part: Pass
    kernel: Kernel
    tiles: str  # empty: of whole rows
    alike: tuple[str, ...]
    read_bytes: int
    write_bytes: int

    def dram_bytes(self, hardware: Hardware) -> int:
        tiling = replace(parse_tiles(self.tiles), depth=DEPTH) if self.tiles else WHOLE_ROWS
        return self.part.dram_bytes(tiling, hardware, self.kernel.blocks_per_sm or UNKNOWN_BLOCKS_PER_SM)


def passes(problem: Attention, dtype: str) -> list[Pass]:
    """Of the whole square: no tile is skipped, and a mask that hides moves no word of these."""
    p = replace(problem, dtype=dtype, mask=DENSE, lse=False, elementwise=0)
    return [
        Pass("S = Q K^T", PRODUCT, p),
        Pass("P = softmax(S)", "standard-tiled", p, launch=1, called="softmax"),
        Pass("O = P V", PRODUCT, replace(p, Nk=p.dv, d=p.Nk)),
    ]


def explain_passes(kernels: list[Kernel], problem: Attention) -> list[Found]:
    """The kernels that are passes of attention: three a call, in order; none where one of them is missing."""
    types = dict.fromkeys((problem.dtype, str(problem.acc_dtype), "fp32"))
    return max((_calls(kernels, passes(problem, dtype)) for dtype in types), key=len)


def _calls(kernels: list[Kernel], wanted: list[Pass]) -> list[Found]:
    """Of one call after another, as a profile of somebody else may have them."""
    found, start = list[Found](), 0
    while True:
        call = list[Found]()
        for part in wanted:
            matching = [(n, one) for n in range(start, len(kernels)) if (one := _explained(kernels[n], part))]
            if not matching:
                return found
            named = (pair for pair in matching if part.called in pair[1].kernel.name.lower())
            number, one = next(named, matching[0])
            call.append(one)
            start = number + 1
        found += call


def _explained(kernel: Kernel, part: Pass) -> Found | None:
    """The tiles that predict what a kernel read and wrote, powers of two first; a product has a block for each tile of
    its result."""
    same = [(t, moved) for t, moved in _candidates(part) if _close(kernel, *moved)]
    if part.in_tiles:
        same = [one for one in same if part.blocks(one[0]) == prod(kernel.grid)]
    if not same:
        return None
    same.sort(key=lambda one: sum(n & (n - 1) != 0 for n in (one[0].rows_q, one[0].rows_k)))
    names = [f"{t.rows_q}x{t.rows_k}" for t, _ in same] if part.in_tiles else [""]
    return Found(part, kernel, names[0], tuple(names[1:]), *same[0][1])


@cache
def _candidates(part: Pass) -> list[tuple[Tiling, tuple[int, int]]]:
    """Tiles, each with what it moves: of a product, none longer than the least that holds an axis."""
    if not part.in_tiles:
        return [(WHOLE_ROWS, part.moved_bytes(WHOLE_ROWS))]
    sizes = [_up_to(axis) for axis in (part.problem.N, part.problem.Nk)]
    return [(t, part.moved_bytes(t)) for t in (Tiling(*pair) for pair in product(*sizes))]


def _up_to(axis: int) -> list[int]:
    least = next((n for n in TILES if n >= axis), TILES[-1])
    return [n for n in TILES if n <= least]


def _close(kernel: Kernel, read_bytes: int, write_bytes: int) -> bool:
    pairs = (kernel.load_bytes, read_bytes), (kernel.store_bytes, write_bytes)
    return all(abs(measured - predicted) <= CLOSE * predicted for measured, predicted in pairs)


def pass_rows(
    label: str, kernels: list[Kernel], found: list[Found], hardware: Hardware | None = None
) -> list[dict[str, Any]]:
    """A row for each pass (with `hardware` also what DRAM should move), and one for all other kernels of the call."""
    rows = [_row(label, one.part.name, [one.kernel], one, hardware) for one in found]
    others = [kernel for kernel in kernels if all(kernel is not one.kernel for one in found)]
    name = f"{len(others)} other kernel" + "s" * (len(others) != 1)
    return [*rows, _row(label, name, others)] if others else rows


def _row(
    label: str, name: str, kernels: list[Kernel], one: Found | None = None, hardware: Hardware | None = None
) -> dict[str, Any]:
    read, written = (sum(k.load_bytes for k in kernels), sum(k.store_bytes for k in kernels))
    moved = sum(k.get(DRAM_READ) + k.get(DRAM_WRITE) for k in kernels)
    dram = one.dram_bytes(hardware) if one and hardware else None
    return {
        "kernel": label,
        "pass": name,
        "dtype": one and one.part.problem.dtype,
        "schedule": one and one.part.schedule,
        "tiles": one and (one.tiles or None),
        "read_predicted": one and one.read_bytes,
        "read_measured": read,
        "read_ratio": one and round(read / one.read_bytes, 6),
        "write_predicted": one and one.write_bytes,
        "write_measured": written,
        "write_ratio": one and round(written / one.write_bytes, 6),
        "dram_predicted": dram,
        "dram_measured": moved,
        "dram_ratio": round(dram / moved, 4) if dram and moved else None,
        "seconds": round(sum(k.seconds for k in kernels), DECIMALS),
        "explains": one is not None,
        "alike": one and " ".join(one.alike),
        "function": one and one.kernel.name[:NAME_LENGTH],
    }
