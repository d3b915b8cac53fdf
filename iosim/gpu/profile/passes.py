"""The three passes of attention among the kernels of a call that is not fused, and their tiles.

Each product, S = Q K^T and O = P V, is the schedule `matmul-tiled`, and the softmax is that of `standard-tiled`. A pass
explains a kernel if it predicts both its reads and its writes within 0.05 %. All three must occur in this order, in
words of one type: that of the inputs, that of the sums, or fp32, to which PyTorch converts. All other kernels (scaling,
conversions, masks, a search for rows without a key) are added up in one row. If rows do not start at sectors of 32
bytes, whole sectors are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import gcd, prod
from typing import TypedDict

from ...core.problem import DENSE, Attention, narrowed
from ...core.tiling import Tiling, parse_tiles
from ...hardware import SECTOR_BYTES
from ...schedules import find
from ...schedules.ways import PROFILE_TILES
from ..compulsory import compulsory_bytes
from ..moved import DECIMALS, launch_words
from ..ncu.counters import DRAM_READ, DRAM_WRITE, ProfiledKernel

PRODUCT = "matmul-tiled"
RATIO_TOLERANCE = 0.0005  # a prediction within 0.05 % explains
NAME_LENGTH = 60
DEPTH = 128  # parts of a sum that are loaded together, where only the words of whole tiles matter
WHOLE_ROWS = Tiling(128, 128, rows_s=16)
REQUEST_BYTES = 128  # what a warp asks for at a time: 4 bytes a lane, or a row of a quarter of its lanes
DEPTHS = (8, 16, 32)  # of a product's tiles, in words of the sum


@dataclass(frozen=True)
class Pass:
    """A pass of attention: launch number `launch` of a schedule, on a separate problem.

    For a product, N, Nk and d are its rows, its columns and the axis that is summed over. `called` is a part of its
    kernel's name. It decides between kernels that move the same bytes, such as a scaling of S in place.
    """

    name: str
    schedule: str
    problem: Attention
    launch: int = 0
    called: str = ""

    @property
    def in_tiles(self) -> bool:
        """Whether it is a product. A softmax takes whole rows."""
        return self.schedule == PRODUCT

    def moved_bytes(self, tiling: Tiling) -> list[tuple[int, int]]:
        """Bytes (read, written) over all heads. If rows are not whole sectors, there is a pair for each possible depth
        of a product's tiles, because the schedule does not fix it."""
        p = self.problem
        reads, writes = launch_words(find(self.schedule), p, tiling)[self.launch]
        read, written = (words * p.instances * p.word_bytes for words in (reads, writes))
        written += sectors_beyond(p, p.Nk, REQUEST_BYTES)
        if not self.in_tiles:
            return [(read + sectors_beyond(p, p.Nk, REQUEST_BYTES), written)]
        times = -(-p.Nk // tiling.rows_k)  # times that the left factor is read
        pieces = [max(SECTOR_BYTES, depth * p.word_bytes) for depth in DEPTHS]
        beyond = dict.fromkeys(sectors_beyond(p, p.d, piece) for piece in pieces)
        return [(read + times * more, written) for more in beyond]

    def blocks(self, tiling: Tiling) -> int:
        """The blocks of a library's product: one for each tile of the result."""
        p = self.problem
        return -(-p.N // tiling.rows_q) * -(-p.Nk // tiling.rows_k) * p.instances


@dataclass(frozen=True)
class ExplainedPass:
    """A kernel of a call, and the pass that explains it. `alike` are other tiles that predict the same."""

    part: Pass
    kernel: ProfiledKernel
    tiles: str  # empty for whole rows
    alike: tuple[str, ...]
    read_bytes: int
    write_bytes: int

    @property
    def compulsory_bytes(self) -> int:
        """The bytes that the kernel cannot but load from DRAM."""
        tiling = replace(parse_tiles(self.tiles), depth=DEPTH) if self.tiles else WHOLE_ROWS
        return compulsory_bytes(find(self.part.schedule), self.part.problem, tiling)[self.part.launch]


# A pass beside the counters of its kernel. The row of all other kernels of a call has their counters only.
PassRow = TypedDict(
    "PassRow",
    {
        "kernel": str,
        "pass": str,
        "dtype": str | None,
        "schedule": str | None,
        "tiles": str | None,
        "read_predicted": int | None,
        "read_measured": int,
        "read_ratio": float | None,
        "write_predicted": int | None,
        "write_measured": int,
        "write_ratio": float | None,
        "dram_compulsory_bytes": int | None,
        "dram_measured": int,
        "dram_ratio": float | None,
        "seconds": float,
        "explains": bool,
        "alike": str | None,
        "function": str | None,
    },
)


def sectors_beyond(p: Attention, row_words: int, request_bytes: int) -> int:
    """The bytes that whole sectors add to the words themselves, for the rows of one matrix for each head.

    All rows lie one after the other. Each is requested in pieces from its start, and a piece takes whole sectors.
    """
    row_bytes, rows = row_words * p.word_bytes, p.N * p.instances
    period = SECTOR_BYTES // gcd(SECTOR_BYTES, row_bytes)  # rows after which the places in a sector repeat
    touched = [_touched(n * row_bytes % SECTOR_BYTES, row_bytes, request_bytes) for n in range(period)]
    whole, rest = divmod(rows, period)
    return whole * sum(touched) + sum(touched[:rest]) - rows * row_bytes


def _touched(start: int, length: int, piece: int) -> int:
    """Bytes of the sectors that a run touches, piece by piece."""
    pieces, rest = divmod(length, piece)
    sizes = [piece] * pieces + [rest] * (rest > 0)
    ends = [start + n * piece + size for n, size in enumerate(sizes)]
    sectors = (-(-end // SECTOR_BYTES) - (end - size) // SECTOR_BYTES for end, size in zip(ends, sizes, strict=True))
    return SECTOR_BYTES * sum(sectors)


def passes(problem: Attention, dtype: str) -> list[Pass]:
    """The three passes over all N x Nk scores: masks skip no tile here, so they change no count."""
    p = narrowed(problem, dtype=dtype, mask=DENSE, lse=False, elementwise=0)
    return [
        Pass("S = Q K^T", PRODUCT, p),
        Pass("P = softmax(S)", "standard-tiled", p, launch=1, called="softmax"),
        Pass("O = P V", PRODUCT, replace(p, Nk=p.dv, d=p.Nk)),
    ]


def explain_passes(kernels: Sequence[ProfiledKernel], problem: Attention) -> list[ExplainedPass]:
    """The kernels that are passes of attention, in order, three for each call; none if a pass is missing."""
    types = dict.fromkeys((problem.dtype, str(problem.acc_dtype), "fp32"))
    return max((_calls(kernels, passes(problem, dtype)) for dtype in types), key=len)


def _calls(kernels: Sequence[ProfiledKernel], wanted: list[Pass]) -> list[ExplainedPass]:
    """The passes of each call in turn. A profile that somebody else made may have several calls."""
    found, start = list[ExplainedPass](), 0
    while True:
        call = list[ExplainedPass]()
        for part in wanted:
            matching = [(n, one) for n in range(start, len(kernels)) if (one := _explained(kernels[n], part))]
            if not matching:
                return found
            named = (pair for pair in matching if part.called in pair[1].kernel.name.lower())
            number, one = next(named, matching[0])
            call.append(one)
            start = number + 1
        found += call


def _explained(kernel: ProfiledKernel, part: Pass) -> ExplainedPass | None:
    """The pass with the tiles that predict the bytes that the kernel read and wrote, powers of two first; None if none
    do. A product must have a block for each tile of its result."""
    same = [(t, moved) for t, moved in _candidates(part) if _close(kernel, *moved)]
    if part.in_tiles:
        same = [one for one in same if part.blocks(one[0]) == prod(kernel.grid)]
    if not same:
        return None
    same.sort(key=lambda one: sum(n & (n - 1) != 0 for n in (one[0].rows_q, one[0].rows_k)))
    names = list(dict.fromkeys(f"{t.rows_q}x{t.rows_k}" for t, _ in same)) if part.in_tiles else [""]
    return ExplainedPass(part, kernel, names[0], tuple(names[1:]), *same[0][1])


@cache
def _candidates(part: Pass) -> list[tuple[Tiling, tuple[int, int]]]:
    """(tiles, bytes that they move). Tiles of a product are not longer than the smallest that holds the axis."""
    if not part.in_tiles:
        return [(WHOLE_ROWS, moved) for moved in part.moved_bytes(WHOLE_ROWS)]
    sizes = [_up_to(axis) for axis in (part.problem.N, part.problem.Nk)]
    return [(t, moved) for t in (Tiling(*pair) for pair in product(*sizes)) for moved in part.moved_bytes(t)]


def _up_to(axis: int) -> list[int]:
    least = next((n for n in PROFILE_TILES if n >= axis), PROFILE_TILES[-1])
    return [n for n in PROFILE_TILES if n <= least]


def _close(kernel: ProfiledKernel, read_bytes: int, write_bytes: int) -> bool:
    pairs = (kernel.load_bytes, read_bytes), (kernel.store_bytes, write_bytes)
    return all(abs(measured - predicted) <= RATIO_TOLERANCE * predicted for measured, predicted in pairs)


def pass_rows(label: str, kernels: Sequence[ProfiledKernel], found: Sequence[ExplainedPass]) -> list[PassRow]:
    """A row for each pass, and one for all other kernels of the call."""
    rows = [_row(label, one.part.name, [one.kernel], one) for one in found]
    others = [kernel for kernel in kernels if all(kernel is not one.kernel for one in found)]
    name = f"{len(others)} other kernel" + "s" * (len(others) != 1)
    return [*rows, _row(label, name, others)] if others else rows


def _row(label: str, name: str, kernels: list[ProfiledKernel], one: ExplainedPass | None = None) -> PassRow:
    read, written = (sum(k.load_bytes for k in kernels), sum(k.store_bytes for k in kernels))
    dram_read, dram_written = (sum(k.get(way) for k in kernels) for way in (DRAM_READ, DRAM_WRITE))
    least = one.compulsory_bytes if one else None
    return {
        "kernel": label,
        "pass": name,
        "dtype": one.part.problem.dtype if one else None,
        "schedule": one.part.schedule if one else None,
        "tiles": (one.tiles or None) if one else None,
        "read_predicted": one.read_bytes if one else None,
        "read_measured": read,
        "read_ratio": round(read / one.read_bytes, 6) if one else None,
        "write_predicted": one.write_bytes if one else None,
        "write_measured": written,
        "write_ratio": round(written / one.write_bytes, 6) if one else None,
        "dram_compulsory_bytes": least,
        "dram_measured": dram_read + dram_written,
        "dram_ratio": round(dram_read / least, 4) if least else None,
        "seconds": round(sum(k.seconds for k in kernels), DECIMALS),
        "explains": one is not None,
        "alike": " ".join(one.alike) if one else None,
        "function": one.kernel.name[:NAME_LENGTH] if one else None,
    }
