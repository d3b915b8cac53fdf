"""The time of launches: for each, the largest of DRAM time, L2 time and the blocks' own time, plus its fixed cost.

DRAM time and L2 time are bytes over measured rates. The blocks' own time has two parts:

- `BlockTimer` says how long one block takes among the others on its multiprocessor.
- predict/last_wave.py says when the last block ends, if blocks start in grid order wherever a place is free. That gives
  the cost of a last wave that is not full, and of blocks that a mask makes unequal.

Every rate is a property of the GPU that `iosim calibrate` measures. None is fitted to a shape.

A tuned kernel loads the next tiles ahead and holds its operands in registers. Its matrix products, other operations and
exponentials follow one another, each at the rate of its unit. With warpgroup products (wgmma) two warpgroups take
turns. Nothing else runs during its first loads and its last stores.

A generated kernel holds its tiles in shared memory and runs one step after another:

- A step has a fixed time and a rate. Both are measured twice: for one warp alone, and for as many blocks as fit.
- The warps of a block run a step at the same time, and queue for the multiprocessor.
- Then the blocks of a multiprocessor queue for its units. A block of fewer than 4 warps uses only the quarters of the
  multiprocessor that its warps are in.
- A step takes longer in a real loop than repeated alone, by a ratio that is measured on a tile of flash2.
- While a warp asks for copies, the other warps of its quarter wait.
- If a load comes from DRAM, all blocks that need it wait.
- All blocks make their first loads at the same time, and their last stores.
- A step takes longer the first time in a launch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ...errors import InputError
from ...occupancy import SUBPARTITIONS
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

WARPGROUPS = 2
BESIDE_STEPS = (LOAD, STORE, STORE_SCALAR)  # copies that run beside the steps of other blocks


class StepRates(NamedTuple):
    """The speed of one step. Work is flops of a product, bytes of a copy, else words."""

    warp_seconds: float
    """The fixed time of one warp alone."""
    warp_work_per_second: float
    """The rate of one warp alone, beyond its fixed time."""
    block_seconds: float
    """The fixed time in which a block keeps its multiprocessor busy, with as many blocks as fit."""
    gpu_work_per_second: float
    """The rate of the whole GPU with as many blocks as fit, beyond their fixed time."""


@dataclass(frozen=True)
class Rates:
    """The rates of a GPU, all multiprocessors together; the keys of `[measured]` in a hardware file."""

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
    """Seconds until a tile of a generated kernel has come from DRAM. A tile takes longer than one line: it waits for
    its last line."""
    wgmma_flops_per_second: float = 0.0
    steps: dict[StepKey, StepRates] = field(default_factory=dict)
    loop_ratios: dict[LoopKey, float] = field(default_factory=dict)
    """The time of products and steps over rows in a real loop, over their time repeated alone. 1 where it was not
    measured. Where it was measured only for known tile sizes, unknown ones have the same ratio."""
    first_seconds: dict[Unit, float] = field(default_factory=dict)
    """The extra seconds of a step the first time in a launch; 0 if not measured."""
    asking_ratio: float = 0.0
    """While a warp asks for a copy, the other warps of its quarter wait for this share of the time. It is measured with
    as many blocks as fit: with it the model's tile of flash2 is as slow as the real one, in the median of nine tile
    shapes (calibrate/loop.py)."""

    def of_step(self, key: StepKey, timed_as: str = "") -> StepRates:
        """The rates of a step. `timed_as` names another step, which was measured in its place.

        A step that was not measured on ragged tiles is assumed to be as fast as on whole ones. A step that was not
        measured in a kernel with tensor cores (copies of single words) is assumed to be as fast as without them. Raises
        InputError if there are no rates.
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
        """The time of a step in a real loop, over its time repeated alone."""
        known = self.loop_ratios.get(LoopKey(key.unit), 1.0)
        return self.loop_ratios.get(LoopKey(key.unit, key.sized), known)


@dataclass(frozen=True)
class Time:
    """Seconds of all launches together, and the sums of the parts of which each launch takes the largest."""

    seconds: float
    dram_seconds: float
    l2_seconds: float
    block_seconds: float
    launch_seconds: float
    """The fixed cost."""

    @property
    def bound_by(self) -> str:
        """The part that takes longest: DRAM, L2 or blocks."""
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
    """The time of the launches of a schedule, which follow one another.

    `launches`: for each launch the work of the blocks of one head. There are `instances` heads in all batches together.
    `dram`: for each launch (bytes read from DRAM, bytes written to DRAM), over all heads.
    """
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
    """Mean seconds until a load has come, if the share `late` of all loads waits for DRAM and the others for the L2."""
    far = rates.latency_seconds if occupancy.loads_ahead else rates.tile_latency_seconds or rates.latency_seconds
    return rates.l2_latency_seconds + late * (far - rates.l2_latency_seconds)


def late_share(share: float, blocks: int, instances: int, occupancy: Occupancy, rates: Rates) -> float:
    """The share of a block's loads that wait for DRAM, if a `share` of all loaded bytes comes from there.

    The blocks of a head load the same tiles at about the same time. If one of them loads a tile from DRAM, the others
    wait for it as well. This does not hold for blocks on the same multiprocessor, which are at different tiles, nor for
    kernels that were not generated or that load ahead.
    """
    together = places(blocks * instances, occupancy, rates)
    waits_alike = occupancy.generated and not occupancy.loads_ahead
    alike = max(1.0, min(blocks / together, rates.sms)) if waits_alike else 1.0
    return min(1.0, share * alike)


def places(blocks: int, occupancy: Occupancy, rates: Rates) -> int:
    """The number of blocks that run at a time on a multiprocessor, for a launch of `blocks` blocks in all."""
    return min(occupancy.blocks_per_sm, -(-blocks // rates.sms))


@dataclass(frozen=True)
class Memory:
    """The conditions for the loads of one launch."""

    latency: float
    """The mean time in seconds until a load has come."""
    dram_seconds: float = 0.0
    """Seconds for which one block keeps the DRAM busy."""


@dataclass(frozen=True)
class BlockTimer:
    """The times of the blocks of one launch on a GPU."""

    rates: Rates
    occupancy: Occupancy
    memory: Memory
    dtype: str = "fp16"

    @property
    def stepwise(self) -> bool:
        """Whether the steps are timed one by one: those of kernels that do not load ahead, if rates were measured."""
        return bool(self.rates.steps) and not self.occupancy.loads_ahead

    def launch_seconds(self, blocks: list[BlockWork], instances: int) -> float:
        """Seconds from the start of a launch to the end of its last block. Blocks of the same work are timed once.

        Kernels that load ahead are timed as if all places were in use, because it was not measured how much faster they
        are when fewer are.
        """
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault(fingerprint(work), len(numbers)) for work in blocks]
        of_kind = dict(zip(kinds, blocks, strict=True))
        most = places(len(blocks) * instances, self.occupancy, self.rates)

        @cache
        def seconds(kind: int, together: int) -> float:
            return self.seconds(of_kind[kind], most if self.occupancy.loads_ahead else together)

        return last_end(kinds, instances, self.rates.sms, most, seconds)

    def seconds(self, work: BlockWork, together: int) -> float:
        """Seconds of a block with `together` blocks on its multiprocessor, itself included."""
        if self.stepwise:
            return self.stepwise_seconds(work, together)
        return self.arithmetic_seconds(work) * self.rates.sms * together + self._waits(work)

    def _waits(self, work: BlockWork) -> float:
        """Seconds of a block without arithmetic. A kernel that loads ahead waits only for its first loads and its last
        stores."""
        if not self.occupancy.loads_ahead:
            return self.memory.latency * work.loads
        ends = (work.first_bytes + work.last_bytes) * self.rates.sms / self.rates.l2_bytes_per_second
        return self.memory.latency + ends

    def arithmetic_seconds(self, work: BlockWork) -> float:
        """Seconds of a block's products, other operations and exponentials, one after another, if it had the whole GPU.

        With asynchronous products two warpgroups take turns: one computes products while the other does the rest.
        """
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
        """Seconds of a block of a generated kernel, step after step, with `together` blocks on its multiprocessor.

        The rates of loads were measured with data in the L2, so waiting for DRAM comes on top. Loads through registers
        were repeated without waiting for each, so their waits come on top as well.
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
        turns = min(together, -(-together * occupancy.warps // SUBPARTITIONS))
        shared = [steps, copies, self.memory.dram_seconds * self.rates.sms]
        return cycle_seconds(chain, [demand * together / turns for demand in shared], turns)

    def _step_seconds(self, key: StepKey, step: StepWork) -> tuple[float, float, float]:
        """(seconds of all runs of a step in a block alone, seconds in which it keeps its multiprocessor busy, seconds
        in which its requests for copies keep other warps waiting)."""
        rates, warps = self.rates.of_step(key, step.cost.timed_as), self.occupancy.warps
        alone = step.times * rates.warp_seconds + step.chain / warps / rates.warp_work_per_second
        fixed = step.times * rates.block_seconds * warps / MEASURED_WARPS[key.unit]
        share = fixed + step.work * self.rates.sms / rates.gpu_work_per_second
        asks = key.step in BESIDE_STEPS and self.occupancy.generated
        asking = self.rates.asking_ratio * step.chain / rates.warp_work_per_second / SUBPARTITIONS if asks else 0.0
        return alone, share, asking

    def ends_seconds(self, blocks: list[BlockWork], instances: int, share: float) -> float:
        """Seconds of first loads and last stores, during which no steps run, because blocks begin and end at the same
        time. A `share` of the loads comes from DRAM."""
        rates = self.rates
        count = min(len(blocks) * instances, rates.sms * self.occupancy.blocks_per_sm) / len(blocks)
        first, last = (count * sum(getattr(w, name) for w in blocks) for name in ("first_bytes", "last_bytes"))
        slowest = max(1 / rates.l2_bytes_per_second, share / rates.dram_bytes_per_second)
        return first * slowest + last / rates.l2_bytes_per_second

    def first_times_seconds(self, blocks: list[BlockWork]) -> float:
        """Extra seconds of a launch because each of its steps runs for the first time, on all multiprocessors at once.
        The likely cause is instruction fetch."""
        if not self.occupancy.generated:
            return 0.0
        steps = ({(key.step, key.ragged) for key in work.steps if not key.output} for work in blocks)
        return self.rates.first_seconds.get(self.occupancy.unit, 0.0) * max(map(len, steps))


def fingerprint(work: BlockWork) -> Hashable:
    """A value that is equal for blocks that do the same work."""
    plain = tuple(value for name, value in vars(work).items() if name != "steps")
    return plain, tuple((key, step.work, step.chain, step.times) for key, step in work.steps.items())


def fullest(warps: int) -> float:
    """Warps in the fullest quarter of a multiprocessor, over an even share. Quarters get warps in turn."""
    return -(-warps // SUBPARTITIONS) * SUBPARTITIONS / warps


def cycle_seconds(chain: float, demands: Sequence[float], blocks: int) -> float:
    """Seconds of a block, if `blocks` blocks run together and queue for shared units.

    Alone it takes `chain` seconds, of which it spends `demands` at the units. The model is mean value analysis (Reiser
    and Lavenberg 1980): blocks are the customers of a closed network with a queue for each unit. The rest of the chain
    is a delay without a queue.
    """
    delay, queued = max(chain - sum(demands), 0.0), [0.0] * len(demands)
    total = chain
    for number in range(1, blocks + 1):
        waits = [demand * (1 + ahead) for demand, ahead in zip(demands, queued, strict=True)]
        total = delay + sum(waits)
        queued = [number * wait / total if total else 0.0 for wait in waits]
    return total
