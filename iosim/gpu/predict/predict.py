"""Predicts a schedule on a GPU: words, bytes that its multiprocessors move, DRAM bytes, seconds. Needs no GPU.

Words come from the folded machine. DRAM bytes need to know how the launches occupy the GPU (predict/dram.py). Seconds
also need what `iosim calibrate` measured on it (predict/block_work.py, predict/launch_time.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ...core.folded import Folded
from ...core.problem import Attention, as_moved, narrowed
from ...core.unrolled import Unrolled
from ...core.watchers import Flops, Traffic
from ...errors import InputError
from ...hardware import MEASURED_KEYS, Hardware
from .block_work import LoopKey, Occupancy, StepKey, WorkCounter
from .blocks import touches_of
from .dram import WARM, Conditions, Dram, dram_bytes
from .launch_time import Rates, StepRates, Time, time_of_launches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...core.machine import ScheduleLike, ScheduleText
    from ...core.tiling import S, Tiling
    from ...core.typing import Size

Key = TypeVar("Key", StepKey, LoopKey)

DECIMALS = 12  # of seconds that are shown; the profiler counts nanoseconds
# Dirty bytes in an L2 that the profiler has emptied. Fitted on one card, an H200: these bytes are written to DRAM while
# kernels only read buffers, whatever the size of these (`l2_buffers.csv`). `iosim calibrate` does not measure it.
PROFILER_BYTES = 2_400_000
STEP_NUMBERS = 4  # of a StepRates


@dataclass(frozen=True)
class Prediction:
    """The traffic and the operations of a schedule, over all heads."""

    tensors: dict[str, tuple[int, int]]
    """{tensor: (words read, words written)} by the multiprocessors."""
    read_bytes: int
    write_bytes: int
    flops: int
    dram: Dram | None = None
    time: Time | None = None


def rates_of(hardware: Hardware, profiled: bool = False) -> Rates | None:
    """The values that `iosim calibrate` measured on this GPU; None for a preset that was not measured.

    `profiled`: use the overhead of an empty launch under the profiler, which runs launches one at a time.
    """
    table = hardware.measured
    if table is None:
        return None
    more = ("l2_latency_seconds", "tile_latency_seconds", "wgmma_flops_per_second", "asking_ratio")
    values = {name: table[name] for name in (*MEASURED_KEYS, *more) if name in table}
    if profiled and "profiled_launch_seconds" in table:
        values["launch_seconds"] = table["profiled_launch_seconds"]
    return Rates(
        sms=hardware.sms,
        shared_memory_per_sm_bytes=hardware.shared_memory_per_sm_bytes,
        steps=steps_of(table.get("steps", {})),
        loop_ratios={parsed(LoopKey, name): ratio for name, ratio in table.get("loop_ratios", {}).items()},
        first_seconds=dict(table.get("first_seconds", {})),
        **values,
    )


def steps_of(table: Mapping[str, list[float]]) -> dict[StepKey, StepRates]:
    """The rates of [measured.steps]. Raises InputError if an older iosim measured them, because they had another
    meaning there."""
    again = "measure this GPU again: iosim calibrate"
    steps = {parsed(StepKey, name): rates for name, rates in table.items()}
    for key, rates in steps.items():
        if not isinstance(rates, list) or len(rates) != STEP_NUMBERS:
            found = f"{key} = {rates} in [measured.steps]"
            raise InputError("--hardware", found, f"{STEP_NUMBERS} numbers", again)
        output = key._replace(output=True)
        if key.step == "scores" and output not in steps:
            raise InputError("--hardware", f"{key} without {output} in [measured.steps]", "both", again)
    if steps and StepKey("simt", "normalise") not in steps:
        raise InputError("--hardware", "[measured.steps] without simt_normalise", "what iosim calibrate writes", again)
    return {key: StepRates(*rates) for key, rates in steps.items()}


def parsed(kind: type[Key], name: str) -> Key:
    """The key with this name in a hardware file, or InputError."""
    try:
        return kind.parse(name)
    except ValueError as error:
        raise InputError("--hardware", str(error), "names that iosim calibrate writes") from None


def partition_bytes(hardware: Hardware) -> int:
    """The size of a partition of the L2: half of the L2. It holds `HELD` times that (predict/l2.py).

    From the A100 on the L2 has two partitions, and each keeps a copy of what its own side reads. So data that all
    multiprocessors share have room in one of them only. Older GPUs have one partition; predictions were not compared
    with measurements on any of them.
    """
    return hardware.l2_bytes // 2


def launch_words(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> list[tuple[int, int]]:
    """(words read, words written) of each launch, of one head."""
    traffic = Traffic()
    Folded(problem, traffic).run(schedule, tiling)
    return [(int(reads), int(writes)) for reads, writes in traffic.launches]


def moved_bytes(
    schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]
) -> tuple[Size, Size]:
    """(bytes read, bytes written), of all heads. Sizes and tiles may be arrays."""
    traffic = Traffic()
    tensors = Folded(as_moved(schedule, problem), traffic).run(schedule, tiling).tensors
    width = {name: problem.hbm_bytes(tensors[name]) for name in traffic.tensors}
    reads, writes = (
        problem.instances * sum(words * width[name] for name, words in moved.items())
        for moved in (traffic.reads, traffic.writes)
    )
    return reads, writes


def in_whole_tiles(p: Attention[S], t: Tiling[S]) -> Attention[S]:
    """The problem with both lengths rounded up to whole tiles: bulk copies (TMA) always load a whole one."""
    return narrowed(p, N=-(-p.N // t.rows_q) * t.rows_q, Nk=-(-p.Nk // t.rows_k) * t.rows_k)


def predict(
    schedule: ScheduleLike | ScheduleText,
    problem: Attention,
    tiling: Tiling,
    hardware: Hardware | None = None,
    occupancies: list[Occupancy] | None = None,
    conditions: Conditions = WARM,
    with_range: bool = False,
) -> Prediction:
    """The prediction of a schedule with one tiling.

    With `hardware` and the `occupancies` of the launches it has DRAM bytes, and seconds if that GPU was measured.

    `with_range`: also find the DRAM bytes with a little less and a little more room in the L2.
    """
    dense = as_moved(schedule, problem)
    traffic, flops = Traffic(), Flops()
    machine = Folded(dense, traffic, flops).run(schedule, tiling)
    n = problem.instances
    width = {name: problem.hbm_bytes(machine.tensors[name]) for name in traffic.tensors}
    plain = Prediction(
        {name: (n * int(reads), n * int(writes)) for name, (reads, writes) in traffic.tensors.items()},
        n * sum(int(reads) * width[name] for name, (reads, _) in traffic.tensors.items()),
        n * sum(int(writes) * width[name] for name, (_, writes) in traffic.tensors.items()),
        n * int(flops.total),
    )
    if hardware is None or not occupancies:
        return plain
    cold = conditions.cold
    rates, work = rates_of(hardware, profiled=cold), WorkCounter(occupancies)
    watchers = [work] if rates and dense is problem else []
    found = touches_of(schedule, dense, tiling, *watchers, backwards=conditions.backwards)
    if rates and dense is not problem:  # but hiding takes time
        Unrolled(problem, work).run(schedule, tiling)
    places = [hardware.sms * occupancy.blocks_per_sm for occupancy in occupancies]
    capacity_bytes = max(0, partition_bytes(hardware) - conditions.taken_bytes)
    profiled = replace(conditions, left_bytes=PROFILER_BYTES) if cold else conditions
    dram = dram_bytes(found, dense, places, capacity_bytes, profiled, with_range)
    if rates is None:
        return replace(plain, dram=dram)
    time = time_of_launches(work.blocks, n, problem.dtype, list(dram.by_launch), occupancies, rates)
    if cold:
        dram = dram.beside(round((hardware.measured or {}).get("idle_bytes_per_second", 0) * time.seconds))
    return replace(plain, dram=dram, time=time)
