"""The tiles that allow the least time on a GPU, as its kernels have them: accumulators in registers, copies ahead.

Of times within TIE of the least, which differ by less than a bound can say, those tiles are taken that keep most
multiprocessors busy, then those of which at least two blocks have room on a multiprocessor: one takes exponentials
while the other multiplies. Of these the fewest bytes from HBM win, then the fewest of shared memory, then the fewest
exponentials. Where more may be read from shared memory than is counted, as by CUDA cores, its bytes come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ..core.problem import Attention, narrowed
from ..core.tiling import MMA, Tiling
from ..search.best import best_tiles, footprint, kept
from .bound import TimeBound, time_at_least
from .products import instruction_rows, unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.watchers import Footprint
    from ..hardware import Hardware
    from ..schedules import Schedule
    from .products import MatrixUnit

SIZES = (16, 32, 64, 128, 256)  # sides of tiles that compilers of kernels take: powers of two
TIE = 1.02
STAGES = 2  # tiles of keys and values in flight: copies run ahead of products
PARTS_OF_M = 4  # least traffic is searched in M, and in so many parts of it
AT_ONCE = 2  # blocks on a multiprocessor, of which one computes while the other waits


@dataclass(frozen=True)
class TimedTiles:
    """Tiles of a schedule on a GPU: their bound, and what a block needs, with copies that run ahead and without."""

    tiling: Tiling
    bound: TimeBound
    need: Footprint
    least: Footprint

    def in_registers(self, chip: Hardware) -> bool:
        """Whether all that is computed has room in the registers that a block has for tiles."""
        need = self.need
        alone = int(need.smem_bytes) == int(need.least_smem_bytes)
        return alone and int(need.register_bytes) <= chip.tile_register_bytes

    def room(self, chip: Hardware) -> bool:
        """Whether AT_ONCE blocks fit a multiprocessor. Then the copies of one run while another computes."""
        registers = AT_ONCE * int(self.least.register_bytes) <= chip.tile_register_bytes
        return registers and AT_ONCE * int(self.least.smem_bytes) <= chip.shared_memory_per_sm_bytes


def on_chip(problem: Attention, chip: Hardware, stages: int = STAGES) -> Attention:
    """The problem as kernels of a GPU run it: tiles may live in registers, and copies run ahead. What was given for
    either stays."""
    return problem if problem.divided else narrowed(problem, register_bytes=chip.register_bytes, stages=stages)


@kept
def fastest_tiles(
    schedule: Schedule, problem: Attention, chip: Hardware, M_bytes: int, multiple: int = MMA
) -> TimedTiles | None:
    """The tiles of a schedule that allow the least time on a chip; None if none fits an SRAM of M.

    Tiles with all accumulators in registers come before others.
    """
    smaller = [M_bytes * part // PARTS_OF_M for part in range(PARTS_OF_M - 1, 0, -1)]  # copies ahead need room too
    rooms = [(M_bytes, instruction_rows(chip, problem.dtype)), *((room, 1) for room in (M_bytes, *smaller))]
    for room, rows in rooms if schedule.more_tiles else rooms[:2]:
        found = fitting(schedule, problem, chip, M_bytes, candidates(schedule, problem, room, multiple, rows))
        if found:
            as_kernels = [one for one in found if one.in_registers(chip)]
            return in_order(as_kernels or found, chip, unit_of(chip, problem.dtype))[0]
    return None


def fitting(
    schedule: Schedule, problem: Attention, chip: Hardware, M_bytes: int, tiles: Sequence[Tiling]
) -> list[TimedTiles]:
    """Those of some tiles that fit an SRAM of M, with their bounds."""
    return [one for t in tiles if (one := timed(schedule, problem, t, chip)).need.smem_bytes <= M_bytes]


def timed(schedule: Schedule, problem: Attention, tiling: Tiling, chip: Hardware) -> TimedTiles:
    """The bound of given tiles, with what a block needs."""
    bound = time_at_least(schedule, problem, tiling, chip)
    need, least = (footprint(schedule, on_chip(problem.packed, chip, n), tiling) for n in (STAGES, 1))
    return TimedTiles(tiling, bound, need, least)


def candidates(
    schedule: Schedule, problem: Attention, M_bytes: int, multiple: int, least_rows: int = 1
) -> list[Tiling]:
    """The tiles that are compared: all pairs of SIZES up to the lengths, of no fewer query rows than an instruction has
    where there are as many; for a schedule with further sizes those of least traffic and those of products as kernels
    have them, or all of SIZES where it has few and says their lengths."""
    p = problem.packed
    if few_further_sizes(schedule):
        return every_size(schedule, p, multiple)
    if schedule.more_tiles:
        least = best_tiles(schedule, p, M_bytes, multiple)
        return [*([] if least is None else [least]), *products(schedule, p, multiple)]
    together = min(p.Nk, schedule.keys_in_a_row(p))  # a larger tile of keys is that of a page or share
    rows, keys = sizes_up_to(p.N, multiple), sizes_up_to(int(together), multiple)
    whole = [size for size in rows if size >= least_rows]
    return [Tiling(*pair) for pair in product(whole or rows[-1:], keys)]


def products(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """Tiles of products as kernels of a GPU have them: pairs of SIZES, a tile of O with the same rows and all columns,
    and sums over `multiple` or all positions at a time. None for a schedule with other sizes."""
    further = {"depth", "rows_o", "cols_o"} & {*schedule.more_tiles}
    if further != {*schedule.more_tiles}:
        return []
    width = -(-p.dv // multiple) * multiple
    found = []
    for rows, keys, depth in product(
        sizes_up_to(p.N, multiple), sizes_up_to(p.Nk, multiple), {multiple, -(-p.d // multiple) * multiple}
    ):
        sizes = {"depth": depth, "rows_o": rows, "cols_o": width}
        found.append(Tiling(rows, keys, **{name: sizes[name] for name in further}))
    return found


def few_further_sizes(schedule: Schedule) -> bool:
    """Whether a schedule has so few sizes beside rows that all of SIZES are compared."""
    return schedule.axes is not None and 0 < len(schedule.more_tiles) <= 2


def every_size(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """Tiles with rows of queries and further sizes from SIZES, each up to the length that it divides. Where that is
    less than the whole axis, it was asked for."""
    assert schedule.axes is not None
    whole = {"rows_q": p.N, "cols_o": p.dv}
    axes = {name: max(found) for name, found in schedule.axes(p).items() if name in ("rows_q", *schedule.more_tiles)}
    sizes = (
        [length] if length < whole.get(name, 0) else sizes_up_to(length, multiple) for name, length in axes.items()
    )
    return [Tiling(**{"rows_k": multiple, **dict(zip(axes, one, strict=True))}) for one in product(*sizes)]


def sizes_up_to(length: int, multiple: int = 1) -> list[int]:
    """The sizes below the length of an axis, and the first that holds it all, each a multiple of `multiple`."""
    found = sorted({-(-size // multiple) * multiple for size in SIZES})
    return found[: sum(size < length for size in found) + 1]


def in_order(found: Sequence[TimedTiles], chip: Hardware, unit: MatrixUnit) -> list[TimedTiles]:
    """Tiles, the best first: ties with the least time, then the others by time."""
    least = min((one.bound.seconds for one in found), default=0.0)

    def place(one: TimedTiles) -> tuple[float, int, bool, int, int, int, int]:
        work, tie = one.bound.work, one.bound.seconds <= least * TIE
        busy = min(one.bound.blocks, chip.sms)
        moved = work.total_bytes, work.smem_read_bytes + work.smem_write_bytes
        return (
            0.0 if tie else one.bound.seconds,
            -busy,
            not one.room(chip),
            *(moved[::-1] if unit.at_least else moved),
            work.exps,
            -one.tiling.rows_k,
        )

    return sorted(found, key=place)
