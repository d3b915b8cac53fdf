"""The time of a launch of a kernel that `iosim explain` read: the largest of three parts, plus a start.

The parts follow from rates that `iosim calibrate` measured.

- DRAM: each distinct word of the launch moves to or from DRAM once.
- L2: all sectors that requests touch pass through the L2.
- Programs: each computes products, exponentials and other operations one after another. It waits for its first reads
  from DRAM, and then in each iteration for the L2. Programs that share a multiprocessor queue for its units. They start
  in the order of the grid, wherever a place is free.

No rate is fitted to a kernel. The waits are the least known part: loads ahead hide some of them, but an iteration also
waits for its own results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol, SupportsInt

from ...occupancy import SUBPARTITIONS
from .last_wave import last_end
from .launch_time import Rates, Time, cycle_seconds
from .predict import rates_of

if TYPE_CHECKING:
    from ...hardware import Hardware


class Work(Protocol):
    """The operations of one program, and its waits for words that it reads. Equal ones are one kind."""

    @property
    def flops(self) -> int: ...
    @property
    def tensor_flops(self) -> int: ...
    @property
    def exponentials(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def waits(self) -> int: ...
    def __hash__(self) -> int: ...


class Works(Protocol):
    """The operations of all programs: {kind: number of programs}, and the kind of each in the order of the grid, or
    None for too many programs."""

    @property
    def counts(self) -> Mapping[Work, int]: ...
    @property
    def order(self) -> Iterable[Iterable[SupportsInt]] | None: ...
    @property
    def programs(self) -> int: ...


class Resources(Protocol):
    """What a program is: its warps, and the instructions of its products (`wgmma`, `mma` or `simt`)."""

    @property
    def num_warps(self) -> int: ...
    @property
    def products(self) -> str: ...


def predicted(
    works: Works, resources: Resources, blocks_per_sm: int, dram_bytes: int, l2_bytes: int, gpu: Hardware
) -> Time | None:
    """The time of a launch on a GPU; None if its rates were not measured."""
    rates = rates_of(gpu)
    return None if rates is None else time_of(works, resources, blocks_per_sm, dram_bytes, l2_bytes, rates)


def time_of(
    works: Works, resources: Resources, blocks_per_sm: int, dram_bytes: int, l2_bytes: int, rates: Rates
) -> Time:
    """The time of a launch. `l2_bytes` are the bytes that requests touch in the L2; `dram_bytes` those of distinct
    words."""
    dram, l2 = dram_bytes / rates.dram_bytes_per_second, l2_bytes / rates.l2_bytes_per_second
    places = min(blocks_per_sm, -(-works.programs // rates.sms))
    each = dram / works.programs * rates.sms

    @cache
    def seconds(kind: Work, together: int) -> float:
        return program_seconds(kind, resources, each, together, rates)

    own = programs_seconds(works, rates.sms, places, seconds)
    return Time(max(dram, l2, own) + rates.launch_seconds, dram, l2, own, rates.launch_seconds)


def programs_seconds(works: Works, sms: int, places: int, seconds: Callable[[Work, int], float]) -> float:
    """Seconds until the last program ends. For very many programs of several kinds all places are assumed to be
    busy."""
    kinds = list(works.counts)
    if len(kinds) == 1:
        return -(-works.programs // (sms * places)) * seconds(kinds[0], places)
    if works.order is None:
        full = {kind: seconds(kind, places) for kind in kinds}
        return sum(full[kind] * n for kind, n in works.counts.items()) / (sms * places) + max(full.values())
    numbers = [int(number) for some in works.order for number in some]
    return last_end(numbers, 1, sms, places, lambda number, together: seconds(kinds[number], together))


def program_seconds(work: Work, resources: Resources, dram_seconds: float, together: int, rates: Rates) -> float:
    """Seconds of one program while `together` programs share its multiprocessor. Its share of DRAM takes
    `dram_seconds`.

    A program of fewer than 4 warps reaches only its own quarters of the multiprocessor.
    """
    units = [part * rates.sms for part in arithmetic_seconds(work, resources.products, rates)]
    alone = sum(units) * SUBPARTITIONS / min(SUBPARTITIONS, resources.num_warps)
    waits = rates.l2_latency_seconds * max(0, work.waits - 1) + (rates.latency_seconds if work.waits else 0.0)
    return cycle_seconds(alone + waits + dram_seconds, [*units, dram_seconds], together)


def arithmetic_seconds(work: Work, products: str, rates: Rates) -> list[float]:
    """Seconds of products, exponentials and other operations, each at the rate of the whole GPU."""
    if products == "simt":
        matrix = work.flops / 2 / rates.simt_operations_per_second
    else:
        rate = rates.wgmma_flops_per_second if products == "wgmma" else 0.0
        matrix = work.tensor_flops / (rate or rates.tensor_flops_per_second["fp16"])
    return [
        matrix,
        work.exponentials / rates.exponentials_per_second,
        work.operations / rates.simt_operations_per_second,
    ]
