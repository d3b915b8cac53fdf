"""How long launches take: the largest of DRAM, L2 and the blocks' own time, plus launch overhead.

Blocks are dealt in grid order to the places that are free (dealing.py), which gives the tail of the last wave and the
imbalance of masks. What a block takes is a sum over its steps, which depend on each other (scores, then softmax, then
the product with V). Every constant is a property of the GPU, measured by `iosim calibrate`; none is fitted to a shape.

A kernel that loads ahead keeps its operands in registers: its products, other operations and exponentials take their
turns at the rates of the units; with warpgroup products (wgmma) two warpgroups take turns. Before its first product
and after its last a block only moves what it needs and what it leaves. A generated kernel keeps its tiles in shared
memory, and its steps are no faster than their instructions, accesses and barriers: each has a fixed time and a rate of
one warp by itself, and as much of a full GPU. The warps of a block go through a step together and queue for the
multiprocessor; then blocks that share it queue for its units, those of fewer warps than it has parts for what is left
of their part. Among other steps a step takes longer than when it is repeated by itself: by as much as those of a tile
of flash2 do; and while a warp asks for copies, others wait. What comes from DRAM late is late for all blocks of a head.
The first loads of all blocks, and their last stores, come together; and in a launch a step takes longer the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from .cuts import LANES
from .dealing import last_end
from .works import LOOPED_STEPS, MEASURED_WARPS, OUTPUT, RAGGED, UNSIZED, Occupancy, Work

RESERVED_BYTES = 1024  # shared memory that the system takes of each block (CUDA programming guide, cc 8.0 and later)
MOST_BLOCKS, MOST_THREADS, REGISTERS = 32, 2048, 65536  # a multiprocessor of cc 9.0
WARPGROUPS = 2
STATIONS = ("steps", "copies")
LIGHT_STEPS = ("rescale", "zeros", "minus_infinity")  # as long as `denormalise`: of each word of O, and no division
# Products, and steps on rows: repeated by themselves, they find in registers what they were given before.
LOOPED = ("scores", "accumulate", *LOOPED_STEPS)
LIGHTER = 2  # times as fast as `normalise`, where `denormalise` was not measured: all accesses, a third of the rest
PARTS = 4  # of a multiprocessor, with a scheduler and a quarter of the registers each


@dataclass(frozen=True)
class Rates:
    """What a GPU can do, all multiprocessors together; the keys of `[measured]` in a hardware file.

    `steps`: {"tensor_scores": (seconds and work a second of one warp, seconds a block and work a second of the GPU)};
    work is flops of products, bytes of copies, else words.
    """

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
    """Until a tile of a generated kernel comes from DRAM: longer than that of one line, as its last line comes last."""
    wgmma_flops_per_second: float = 0.0
    steps: dict[str, tuple[float, ...]] = field(default_factory=dict)
    loop_ratios: dict[str, float] = field(default_factory=dict)
    """{"tensor": how much longer the steps of LOOPED take in a loop}; 1 where it was not measured. "tensor_unsized":
    in a loop whose sizes the compiler does not know; as in others where it was not measured."""
    first_seconds: dict[str, float] = field(default_factory=dict)
    """{"tensor": how much longer a step takes the first time in a launch}; 0 where it was not measured."""
    asking_ratio: float = 0.0
    """For how much of the time in which a warp asks for a copy no other of its part of the multiprocessor gets on."""


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


def predict(
    works: list[list[Work]],
    instances: int,
    dtype: str,
    dram: list[tuple[int, int]],
    sits: list[Occupancy],
    rates: Rates,
) -> Time:
    """The time of the launches of a schedule. `works` are the blocks of one head, `dram` the bytes that
    each launch reads and writes."""
    total = blocks_total = dram_total = l2_total = 0.0
    for blocks, sit, (read, written) in zip(works, sits, dram, strict=True):
        loaded, stored = (instances * sum(getattr(w, name) for w in blocks) for name in ("load_bytes", "store_bytes"))
        slow, l2 = (read + written) / rates.dram_bytes_per_second, (loaded + stored) / rates.l2_bytes_per_second
        share = min(1.0, read / max(1, loaded))
        far = rates.latency_seconds if sit.loads_ahead else rates.tile_latency_seconds or rates.latency_seconds
        late = late_share(share, len(blocks), instances, sit, rates)
        latency = rates.l2_latency_seconds + late * (far - rates.l2_latency_seconds)
        own = blocks_seconds(blocks, instances, dtype, sit, rates, Memory(latency, slow / len(blocks) / instances))
        if rates.steps and not sit.loads_ahead:
            own += together_seconds(blocks, instances, share, sit, rates) + first_times_seconds(blocks, sit, rates)
        total += max(slow, l2, own) + rates.launch_seconds
        dram_total, l2_total, blocks_total = dram_total + slow, l2_total + l2, blocks_total + own
    return Time(total, dram_total, l2_total, blocks_total, rates.launch_seconds * len(works))


@dataclass(frozen=True)
class Memory:
    """How long a load of a launch takes, between L2 and DRAM, and how long a block of it keeps the DRAM busy."""

    latency: float
    dram_seconds: float = 0.0


def blocks_seconds(
    works: list[Work], instances: int, dtype: str, sit: Occupancy, rates: Rates, memory: Memory
) -> float:
    """All blocks of a launch. Those that do the same are of one kind, whose time is worked out once. Of kernels that
    load ahead it was not measured how much faster they are with fewer others."""
    numbers: dict[str, int] = {}
    kinds = [numbers.setdefault(repr(work), len(numbers)) for work in works]
    of_kind, most = dict(zip(kinds, works, strict=True)), places(len(works) * instances, sit, rates)

    @cache
    def seconds(kind: int, together: int) -> float:
        return block_seconds(of_kind[kind], most if sit.loads_ahead else together, dtype, sit, rates, memory)

    return last_end(kinds, instances, rates.sms, most, seconds)


def places(blocks: int, sit: Occupancy, rates: Rates) -> int:
    """Of a multiprocessor, for so many blocks in all."""
    return min(sit.blocks_per_sm, -(-blocks // rates.sms))


def late_share(share: float, blocks: int, instances: int, sit: Occupancy, rates: Rates) -> float:
    """How many of a block's loads have to wait for the DRAM, where a `share` of all bytes comes from there. The blocks
    of a head, which go through the same tiles, wait for one together, whoever of them asked first. But those that share
    a multiprocessor are at different tiles; and kernels that were not generated ask for some of the next before."""
    together = places(blocks * instances, sit, rates)
    alike = max(1.0, min(blocks / together, rates.sms)) if sit.generated and not sit.loads_ahead else 1.0
    return min(1.0, share * alike)


def block_seconds(work: Work, together: int, dtype: str, sit: Occupancy, rates: Rates, memory: Memory) -> float:
    """One of the blocks `together` on a multiprocessor. One that loads ahead keeps its units busy by itself, but for
    its first loads and its stores."""
    if rates.steps and not sit.loads_ahead:
        return stepwise_seconds(work, together, sit, rates, memory)
    ends = (work.first_bytes + work.last_bytes) * rates.sms / rates.l2_bytes_per_second
    waits = memory.latency + ends if sit.loads_ahead else memory.latency * work.loads
    return arithmetic_seconds(work, dtype, sit, rates) * rates.sms * together + waits


def stepwise_seconds(work: Work, together: int, sit: Occupancy, rates: Rates, memory: Memory) -> float:
    """A generated kernel: step after step. The measured loads came from the L2; those through registers were not waited
    for one by one."""
    chain = work.stalls * rates.l2_latency_seconds + work.waits * (memory.latency - rates.l2_latency_seconds)
    demands = dict.fromkeys(STATIONS, 0.0)
    for name, amount in work.steps.items():
        fixed, one, each, full = step_rates(name, sit.kind, rates)
        alone = work.times[name] * fixed + work.chain[name] / sit.warps / one
        share = work.times[name] * each * sit.warps / MEASURED_WARPS[sit.kind] + amount * rates.sms / full
        demands[station(name)] += share
        if station(name) == "copies" and sit.generated:
            asking = rates.asking_ratio * work.chain[name] / one / PARTS
            demands["steps"] += asking
            share = max(share, asking)
        chain += loop_ratio(name, sit, rates) * cycle_seconds(alone, [share / sit.warps], sit.warps)
    demands["steps"] *= fullest(together * sit.warps)
    turns = min(together, -(-together * sit.warps // PARTS))
    shared = [*demands.values(), memory.dram_seconds * rates.sms]
    return cycle_seconds(chain, [demand * together / turns for demand in shared], turns)


def loop_ratio(step: str, sit: Occupancy, rates: Rates) -> float:
    sized = step.removesuffix(UNSIZED)
    if sized.removesuffix(RAGGED).removesuffix(OUTPUT) not in LOOPED or not sit.generated:
        return 1.0
    known = rates.loop_ratios.get(sit.kind, 1.0)
    return known if step == sized else rates.loop_ratios.get(sit.kind + UNSIZED, known)


def first_times_seconds(works: list[Work], sit: Occupancy, rates: Rates) -> float:
    """Once for each step of a block, as all multiprocessors begin at once: probably its instructions have to come."""
    steps = ({name.removesuffix(UNSIZED) for name in work.steps if OUTPUT not in name} for work in works)
    return rates.first_seconds.get(sit.kind, 0.0) * max(map(len, steps)) if sit.generated else 0.0


def fullest(warps: int) -> float:
    """Warps are dealt to the parts of a multiprocessor in turn: what the fullest has, over an even share."""
    return -(-warps // PARTS) * PARTS / warps


def step_rates(name: str, kind: str, rates: Rates) -> tuple[float, float, float, float]:
    """As measured; other steps on words are as fast as those that were."""
    key = step_key(name, kind, rates)
    fixed, one, each, full = rates.steps[key]
    if key.removesuffix(RAGGED).endswith("_normalise") and name in (*LIGHT_STEPS, "denormalise"):
        return fixed / LIGHTER, one * LIGHTER, each / LIGHTER, full * LIGHTER
    return fixed, one, each, full


def step_key(name: str, kind: str, rates: Rates) -> str:
    """What was measured of a step, or of the step that is most like it."""
    name = name.removesuffix(UNSIZED)
    whole = name.removesuffix(RAGGED)
    alike = ["denormalise", "normalise"] if whole in LIGHT_STEPS else ["normalise"]
    alike = [step + RAGGED for step in alike if name != whole] + alike
    keys = [f"{unit}_{step}" for steps in ((name, whole), alike) for unit in (kind, "simt") for step in steps]
    return next(key for key in keys if key in rates.steps)


def together_seconds(works: list[Work], instances: int, share: float, sit: Occupancy, rates: Rates) -> float:
    """The blocks that run at the same time begin with their loads, of which a `share` comes from DRAM, and end with
    their stores: then nothing else is under way."""
    count = min(len(works) * instances, rates.sms * sit.blocks_per_sm) / len(works)
    first, last = (count * sum(each) for each in zip(*((w.first_bytes, w.last_bytes) for w in works), strict=True))
    slowest = max(1 / rates.l2_bytes_per_second, share / rates.dram_bytes_per_second)
    return first * slowest + last / rates.l2_bytes_per_second


def station(step: str) -> str:
    """What of a multiprocessor a step keeps busy, while other blocks may use the rest. Loads that convert words wait
    for them in registers, as steps do."""
    return "copies" if step in ("load", "load" + RAGGED) or step.startswith("store") else "steps"


def cycle_seconds(chain: float, demands: list[float], blocks: int) -> float:
    """How long a block takes when so many run together: a closed network of one queue for each unit, and a delay for
    the rest of the chain, where nothing is shared. Mean value analysis (Reiser and Lavenberg 1980)."""
    delay, queued = max(chain - sum(demands), 0.0), [0.0] * len(demands)
    total = chain
    for number in range(1, blocks + 1):
        waits = [demand * (1 + ahead) for demand, ahead in zip(demands, queued, strict=True)]
        total = delay + sum(waits)
        queued = [number * wait / total if total else 0.0 for wait in waits]
    return total


def arithmetic_seconds(work: Work, dtype: str, sit: Occupancy, rates: Rates) -> float:
    """Tensor (or SIMT) products, other operations and exponentials one after another, on the whole GPU. With
    asynchronous products the two warpgroups of a block take turns: one's products run beside the other's rest."""
    products = work.flops / 2 / rates.simt_operations_per_second
    others = work.operations / rates.simt_operations_per_second + work.exponentials / rates.exponentials_per_second
    if sit.asynchronous and rates.wgmma_flops_per_second:
        halves = [work.flops / rates.wgmma_flops_per_second / WARPGROUPS, others / WARPGROUPS]
        return cycle_seconds(sum(halves), halves, WARPGROUPS)
    if sit.tensor_cores and dtype in rates.tensor_flops_per_second:
        products = work.flops / rates.tensor_flops_per_second[dtype]
    return products + others
