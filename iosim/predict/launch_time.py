"""The time of launches: the largest of DRAM time, L2 time and the blocks' own time, plus the cost of a launch.

DRAM time and L2 time are bytes over measured rates. The blocks' own time is found in two steps. The first is how long
one block takes among others on its multiprocessor (`BlockTimer`). The second is when the last block ends, if blocks are
dealt in grid order to free places (predict/last_wave.py): this gives the tail of the last wave and the imbalance of masks. Every
rate is a property of the GPU, measured by `iosim calibrate`. None is fitted to a shape.

A kernel that loads ahead holds its operands in registers. Its products, other operations and exponentials follow one
another at the rates of their units. With warpgroup products (wgmma) two warpgroups take turns. Its first loads and its
last stores have nothing beside them.

A generated kernel holds its tiles in shared memory, and goes through its steps one after another:

- A step has a fixed time and a rate, measured twice: for one warp alone, and for as many blocks as fit.
- The warps of a block go through a step together, and queue for the multiprocessor.
- Then the blocks of a multiprocessor queue for its units; a block of fewer than 4 warps reaches only its own quarters.
- A step takes longer in a real loop than repeated alone, by a ratio measured on a tile of flash2.
- While a warp asks for copies, other warps of its quarter wait.
- A load that comes from DRAM is late for all blocks of a head.
- The first loads of all blocks come together, and so do their last stores.
- A step takes longer the first time in a launch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ..cuda.warp_split import LANES
from ..errors import InputError
from .block_work import (
    LOAD,
    MEASURED_WARPS,
    STORE,
    STORE_SCALAR,
    BlockWork,
    LoopKey,
    Occupancy,
    StepKey,
    StepWork,
    Unit,
)
from .last_wave import last_end

RESERVED_BYTES = 1024  # shared memory that the system takes of each block (CUDA programming guide, cc 8.0 and later)
MOST_BLOCKS, MOST_THREADS, REGISTERS = 32, 2048, 65536  # a multiprocessor of cc 9.0
WARPGROUPS = 2
PARTS = 4  # of a multiprocessor, with a scheduler and a quarter of the registers each
BESIDE_STEPS = (LOAD, STORE, STORE_SCALAR)  # copies that leave a multiprocessor's other units to other blocks


class StepRates(NamedTuple):
    """How fast one step is: by one warp alone, then among as many blocks as fit. Work is flops of products, bytes of
    copies, else words."""

    warp_seconds: float
    """Fixed."""
    warp_work_per_second: float
    block_seconds: float
    """Fixed, of a block's time on its multiprocessor."""
    gpu_work_per_second: float


@dataclass(frozen=True)
class Rates:
    """What a GPU can do, all multiprocessors together; the keys of `[measured]` in a hardware file."""

    sms: int
    dram_bytes_per_second: float
    l2_bytes_per_second: float
    tensor_flops_per_second: dict[str, float]
    simt_operations_per_second: float
    exponentials_per_second: float
    launch_seconds: float
    latency_seconds: float
    shared_memory_per_sm_bytes: int
    l2_latency_seconds: float = 0.0
    tile_latency_seconds: float = 0.0
    """Until a tile of a generated kernel comes from DRAM: longer than for one line, as its last line comes last."""
    wgmma_flops_per_second: float = 0.0
    steps: dict[StepKey, StepRates] = field(default_factory=dict)
    loop_ratios: dict[LoopKey, float] = field(default_factory=dict)
    """How much longer products and steps on rows take in a real loop. 1 where it was not measured; a loop of unknown
    sizes is as one of known sizes where only that was measured."""
    first_seconds: dict[Unit, float] = field(default_factory=dict)
    """How much longer a step takes the first time in a launch; 0 where it was not measured."""
    asking_ratio: float = 0.0
    """Part of the time in which a warp asks for a copy that other warps of its quarter of the multiprocessor wait.
    `iosim calibrate` finds it: the part that makes the model's tile of flash2 as slow as the measured one, with as many
    blocks as fit, in the median of nine tile shapes (calibrate/loop.py)."""

    def of_step(self, key: StepKey, timed_as: str = "") -> StepRates:
        """The rates of a step, or of the measured step whose rates it takes.

        A step that was not measured on ragged tiles is as fast as on whole ones. One that was not measured beside
        tensor cores (copies of single words) is as fast as without.
        """
        step = timed_as or key.step
        units: tuple[Unit, ...] = (key.unit, "simt")
        keys = [StepKey(unit, step, key.output, ragged) for unit in units for ragged in (key.ragged, False)]
        found = next((self.steps[each] for each in keys if each in self.steps), None)
        if found is None:
            missing = f"no {keys[1]} in [measured.steps]"
            hint = f"measure this GPU again (iosim calibrate), or mark {key.step} with another timed_as"
            raise InputError("--hardware", missing, "rates of every step that a kernel runs", hint)
        return found

    def loop_ratio(self, key: StepKey) -> float:
        """How much longer a step takes in a real loop on its unit."""
        known = self.loop_ratios.get(LoopKey(key.unit), 1.0)
        return self.loop_ratios.get(LoopKey(key.unit, key.sized), known)


def blocks_on(shared_bytes: int, smem_bytes: int, threads: int, registers: int | None = None) -> int:
    """Blocks on a multiprocessor: the least that shared memory, threads, registers and the scheduler allow, at least
    one. `shared_bytes`: what the multiprocessor has."""
    warps = -(-max(1, threads) // LANES)
    limits = [shared_bytes // (smem_bytes + RESERVED_BYTES), MOST_THREADS // (warps * LANES), MOST_BLOCKS]
    if registers:
        limits.append(REGISTERS // PARTS // (-(-registers // 8) * 8 * LANES) * PARTS // warps)
    return max(1, min(limits))


@dataclass(frozen=True)
class Time:
    """Seconds of all launches, and what each part alone would take."""

    seconds: float
    dram_seconds: float
    l2_seconds: float
    block_seconds: float
    launch_seconds: float

    @property
    def bound_by(self) -> str:
        parts = {"DRAM": self.dram_seconds, "L2": self.l2_seconds, "blocks": self.block_seconds}
        return max(parts, key=lambda name: parts[name])


def time_of_launches(
    launches: list[list[BlockWork]],
    instances: int,
    dtype: str,
    dram: list[tuple[int, int]],
    occupancies: list[Occupancy],
    rates: Rates,
) -> Time:
    """The time of the launches of a schedule. `launches` holds the blocks of one head, `dram` the bytes that each
    launch reads and writes."""
    total = blocks_total = dram_total = l2_total = 0.0
    for blocks, occupancy, (read, written) in zip(launches, occupancies, dram, strict=True):
        loaded, stored = (instances * sum(getattr(w, name) for w in blocks) for name in ("load_bytes", "store_bytes"))
        slow, l2 = (read + written) / rates.dram_bytes_per_second, (loaded + stored) / rates.l2_bytes_per_second
        share = min(1.0, read / max(1, loaded))
        latency = mean_latency(late_share(share, len(blocks), instances, occupancy, rates), occupancy, rates)
        timer = BlockTimer(rates, occupancy, Memory(latency, slow / len(blocks) / instances), dtype)
        own = timer.launch_seconds(blocks, instances)
        if timer.stepwise:
            own += timer.ends_seconds(blocks, instances, share) + timer.first_times_seconds(blocks)
        total += max(slow, l2, own) + rates.launch_seconds
        dram_total, l2_total, blocks_total = dram_total + slow, l2_total + l2, blocks_total + own
    return Time(total, dram_total, l2_total, blocks_total, rates.launch_seconds * len(launches))


def mean_latency(late: float, occupancy: Occupancy, rates: Rates) -> float:
    """Seconds until a load comes, if the share `late` of all loads waits for the DRAM, and the others for the L2."""
    far = rates.latency_seconds if occupancy.loads_ahead else rates.tile_latency_seconds or rates.latency_seconds
    return rates.l2_latency_seconds + late * (far - rates.l2_latency_seconds)


def late_share(share: float, blocks: int, instances: int, occupancy: Occupancy, rates: Rates) -> float:
    """The share of a block's loads that wait for the DRAM, where a `share` of all bytes comes from there.

    The blocks of a head go through the same tiles, and wait for one together, whoever of them asked first. But blocks
    that share a multiprocessor are at different tiles. Kernels that were not generated ask for some of the next tiles
    before.
    """
    together = places(blocks * instances, occupancy, rates)
    waits_alike = occupancy.generated and not occupancy.loads_ahead
    alike = max(1.0, min(blocks / together, rates.sms)) if waits_alike else 1.0
    return min(1.0, share * alike)


def places(blocks: int, occupancy: Occupancy, rates: Rates) -> int:
    """Places for blocks that are in use on a multiprocessor, of so many blocks in all."""
    return min(occupancy.blocks_per_sm, -(-blocks // rates.sms))


@dataclass(frozen=True)
class Memory:
    """Seconds until a load of a launch comes, between L2 and DRAM, and seconds that a block keeps the DRAM busy."""

    latency: float
    dram_seconds: float = 0.0


@dataclass(frozen=True)
class BlockTimer:
    """How long the blocks of one launch take on a GPU."""

    rates: Rates
    occupancy: Occupancy
    memory: Memory
    dtype: str = "fp16"

    @property
    def stepwise(self) -> bool:
        """Whether the steps are timed one by one: in generated kernels, where their rates were measured."""
        return bool(self.rates.steps) and not self.occupancy.loads_ahead

    def launch_seconds(self, blocks: list[BlockWork], instances: int) -> float:
        """Seconds until the last block ends. Blocks that do the same work are timed once.

        How much faster kernels that load ahead are with fewer others was not measured: they are timed as if all places
        were in use.
        """
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault(fingerprint(work), len(numbers)) for work in blocks]
        of_kind, most = (
            dict(zip(kinds, blocks, strict=True)),
            places(len(blocks) * instances, self.occupancy, self.rates),
        )

        @cache
        def seconds(kind: int, together: int) -> float:
            return self.seconds(of_kind[kind], most if self.occupancy.loads_ahead else together)

        return last_end(kinds, instances, self.rates.sms, most, seconds)

    def seconds(self, work: BlockWork, together: int) -> float:
        """Seconds of one of the blocks `together` on a multiprocessor."""
        if self.stepwise:
            return self.stepwise_seconds(work, together)
        return self.arithmetic_seconds(work) * self.rates.sms * together + self._waits(work)

    def _waits(self, work: BlockWork) -> float:
        """Seconds beside the arithmetic. A block that loads ahead keeps its units busy by itself, but for its first
        loads and its last stores."""
        if not self.occupancy.loads_ahead:
            return self.memory.latency * work.loads
        ends = (work.first_bytes + work.last_bytes) * self.rates.sms / self.rates.l2_bytes_per_second
        return self.memory.latency + ends

    def arithmetic_seconds(self, work: BlockWork) -> float:
        """Seconds of products, other operations and exponentials, one after another, on the whole GPU. With
        asynchronous products two warpgroups take turns: the products of one run beside the rest of the other."""
        rates, occupancy = self.rates, self.occupancy
        products = work.flops / 2 / rates.simt_operations_per_second
        others = work.operations / rates.simt_operations_per_second + work.exponentials / rates.exponentials_per_second
        if occupancy.asynchronous and rates.wgmma_flops_per_second:
            halves = [work.flops / rates.wgmma_flops_per_second / WARPGROUPS, others / WARPGROUPS]
            return cycle_seconds(sum(halves), halves, WARPGROUPS)
        if occupancy.tensor_cores and self.dtype in rates.tensor_flops_per_second:
            products = work.flops / rates.tensor_flops_per_second[self.dtype]
        return products + others

    def stepwise_seconds(self, work: BlockWork, together: int) -> float:
        """Seconds of a block of a generated kernel, step after step.

        Measured loads came from the L2. Those through registers were repeated without waiting for each; the text of a
        kernel waits.
        """
        l2_latency, occupancy = self.rates.l2_latency_seconds, self.occupancy
        chain = work.stalls * l2_latency + work.waits * (self.memory.latency - l2_latency)
        steps = copies = 0.0
        for key, step in work.steps.items():
            alone, share, asking = self._step_seconds(key, step)
            if key.step in BESIDE_STEPS:
                copies += share
                steps += asking
            else:
                steps += share
            ratio = self.rates.loop_ratio(key) if step.cost.looped and occupancy.generated else 1.0
            chain += ratio * cycle_seconds(alone, [max(share, asking) / occupancy.warps], occupancy.warps)
        steps *= fullest(together * occupancy.warps)
        turns = min(together, -(-together * occupancy.warps // PARTS))
        shared = [steps, copies, self.memory.dram_seconds * self.rates.sms]
        return cycle_seconds(chain, [demand * together / turns for demand in shared], turns)

    def _step_seconds(self, key: StepKey, step: StepWork) -> tuple[float, float, float]:
        """(seconds of its warps if nothing is shared, seconds that it keeps its units busy, seconds of these in which
        asking for copies keeps other warps waiting)."""
        rates, warps = self.rates.of_step(key, step.cost.timed_as), self.occupancy.warps
        alone = step.times * rates.warp_seconds + step.chain / warps / rates.warp_work_per_second
        fixed = step.times * rates.block_seconds * warps / MEASURED_WARPS[key.unit]
        share = fixed + step.work * self.rates.sms / rates.gpu_work_per_second
        asks = key.step in BESIDE_STEPS and self.occupancy.generated
        asking = self.rates.asking_ratio * step.chain / rates.warp_work_per_second / PARTS if asks else 0.0
        return alone, share, asking

    def ends_seconds(self, blocks: list[BlockWork], instances: int, share: float) -> float:
        """Seconds of first loads and last stores, while nothing else is under way: blocks that run at the same time
        begin and end together. A `share` of the loads comes from DRAM."""
        rates = self.rates
        count = min(len(blocks) * instances, rates.sms * self.occupancy.blocks_per_sm) / len(blocks)
        first, last = (count * sum(getattr(w, name) for w in blocks) for name in ("first_bytes", "last_bytes"))
        slowest = max(1 / rates.l2_bytes_per_second, share / rates.dram_bytes_per_second)
        return first * slowest + last / rates.l2_bytes_per_second

    def first_times_seconds(self, blocks: list[BlockWork]) -> float:
        """Extra seconds of a launch because its steps run for the first time: once for each step of a block, on all
        multiprocessors at once. The likely cause is instruction fetch."""
        if not self.occupancy.generated:
            return 0.0
        steps = ({(key.step, key.ragged) for key in work.steps if not key.output} for work in blocks)
        return self.rates.first_seconds.get(self.occupancy.unit, 0.0) * max(map(len, steps))


def fingerprint(work: BlockWork) -> Hashable:
    """A value that is the same for blocks that do the same work."""
    plain = tuple(value for name, value in vars(work).items() if name != "steps")
    return plain, tuple((key, step.work, step.chain, step.times) for key, step in work.steps.items())


def fullest(warps: int) -> float:
    """Warps of the fullest quarter of a multiprocessor, over an even share; they are dealt to the quarters in turn."""
    return -(-warps // PARTS) * PARTS / warps


def cycle_seconds(chain: float, demands: Sequence[float], blocks: int) -> float:
    """Seconds of a block when so many run together: a closed network with one queue for each of `demands`, and a delay
    for the rest of the chain, where nothing is shared. Mean value analysis (Reiser and Lavenberg 1980)."""
    delay, queued = max(chain - sum(demands), 0.0), [0.0] * len(demands)
    total = chain
    for number in range(1, blocks + 1):
        waits = [demand * (1 + ahead) for demand, ahead in zip(demands, queued, strict=True)]
        total = delay + sum(waits)
        queued = [number * wait / total if total else 0.0 for wait in waits]
    return total
