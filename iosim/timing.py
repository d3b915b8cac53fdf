"""How long launches take: the largest of DRAM, L2 and the blocks' own time, plus launch overhead.

Blocks are dealt in grid order to the places that are free, which gives the tail of the last wave and the imbalance of
masks. What a block takes is a sum over its steps, which depend on each other (scores, then softmax, then the product
with V). Every constant is a property of the GPU, measured by `iosim calibrate`; none is fitted to a shape.

A kernel that loads ahead keeps its operands in registers: its products, other operations and exponentials take their
turns at the rates of the units; with warpgroup products (wgmma) two warpgroups take turns. A generated kernel keeps its
tiles in shared memory, and its steps are no faster than their instructions, accesses and barriers: each has a fixed
time and a rate of one warp that has its part of a multiprocessor for itself, and as much of a full GPU. Blocks that
share a multiprocessor queue for its units.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .watchers import Watcher

RESERVED_BYTES = 1024  # shared memory that the system takes of each block (CUDA programming guide, cc 8.0 and later)
MOST_BLOCKS, MOST_THREADS, REGISTERS = 32, 2048, 65536  # a multiprocessor of cc 9.0
STEP_WORDS = 64 * 64  # of the output of a product where its fixed time was measured
LANES, WARPGROUPS = 32, 2
STATIONS = ("steps", "copies")
MEASURED_WARPS = {"tensor": 4, "simt": 8}  # of a block, where step_rates.py measured many together
ALONE_WARPS = 4  # a multiprocessor has 4 parts with a scheduler each: as many warps do not share one


@dataclass(frozen=True)
class Rates:
    """What a GPU can do, all multiprocessors together; the keys of `[measured]` in a hardware file.

    `steps`: {"tensor_scores": (seconds and work a second of one warp, seconds a block and work a second of the GPU)};
    work is flops of products, bytes of copies, else words.
    """

    sms: int
    dram_bytes_per_second: float
    l2_bytes_per_second: float
    l2_effective_bytes: int
    tensor_flops_per_second: dict[str, float]
    simt_operations_per_second: float
    exponentials_per_second: float
    launch_seconds: float
    latency_seconds: float
    shared_memory_per_sm_bytes: int
    l2_latency_seconds: float = 0.0
    wgmma_flops_per_second: float = 0.0
    steps: dict[str, tuple[float, float, float, float]] = field(default_factory=dict)


@dataclass
class Work:
    """What one block does. `operations` are SIMT instructions of one lane (a multiply-add is one); `steps` holds the
    work and `times` the number of each step by name; products count by the words of their output, which they read and
    write in shared memory. `scalar_words` are loaded word by word, in `scalar_loads`: none is under way at once."""

    flops: int = 0
    operations: int = 0
    exponentials: int = 0
    loads: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=dict)
    scalar_loads: int = 0
    scalar_words: int = 0

    def add(self, step: str, work: int, times: float = 1) -> None:
        self.steps[step] += work
        self.times[step] = self.times.get(step, 0) + times


# SIMT operations a word of each argument, from the text of the step: online_softmax (Dao 2023, Algorithm 1, lines 9
# and 10) takes for each score a maximum, a multiply-add before the exponential, a sum and a conversion, and rescales O.
OPERATIONS: dict[str, tuple[int, ...]] = {"scores": (1,), "online_softmax": (4, 0, 0, 1), "softmax_rows": (5,)}
EXPONENTIALS = ("online_softmax", "softmax_rows")


@dataclass
class Works(Watcher):
    """The work of each block of each launch, of one head. For a machine that knows its `block`."""

    machine: Any = None
    launches: list[dict[int, Work]] = field(default_factory=lambda: [{}])

    def start(self, machine: Any) -> None:
        self.machine = machine

    @property
    def here(self) -> Work:
        return self.launches[-1].setdefault(self.machine.block, Work())

    def load(self, block: Any, tensor: str, words: Any) -> None:
        if words:
            here, moved = self.here, words * self._width(tensor)
            here.loads += 1
            here.load_bytes += moved
            plain = "load" if self.machine.tensors[tensor].kind == "input" else "load_O"
            vector, aligned = len(block.shape) == 1, self._aligned(tensor)
            here.add("load_l" if vector else plain if aligned else "load_scalar", moved)
            if vector or not aligned:
                here.scalar_loads += 1
                here.scalar_words += words

    def store(self, block: Any, tensor: str, words: Any) -> None:
        moved = words * self._width(tensor)
        self.here.store_bytes += moved
        self.here.add("store" if self._aligned(tensor) else "store_scalar", moved)

    def _aligned(self, tensor: str) -> bool:
        """Whether rows start at 16 bytes: else they are copied word by word."""
        return bool(self.machine.p.shape(self.machine.tensors[tensor])[-1] * self._width(tensor) % 16 == 0)

    def _width(self, tensor: str) -> int:
        return self.machine.p.hbm_bytes(self.machine.tensors[tensor])  # type: ignore[no-any-return]

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        name = getattr(step, "__name__", "")
        per_word = OPERATIONS.get(name, () if flops else (1,) * len(outputs))
        words = [self.machine.total(block.shape) for block in outputs]
        here = self.here
        here.flops += flops
        here.operations += sum(n * w for n, w in zip(per_word, words, strict=False))
        here.exponentials += words[0] if name in EXPONENTIALS else 0
        if not (name == "hide" and inputs[0].array().all()):  # a tile in which nothing is hidden is left alone
            here.add(name, flops or words[0], words[0] / STEP_WORDS if flops else 1)

    def launch_ended(self) -> None:
        self.launches.append({})

    @property
    def blocks(self) -> list[list[Work]]:
        """For each launch the blocks of one head, in grid order."""
        return [[work for _, work in sorted(launch.items())] for launch in self.launches if launch]


@dataclass(frozen=True)
class Occupancy:
    """How a launch sits on the GPU: blocks a multiprocessor, warps a block; whether it loads ahead of its arithmetic,
    and whether its products are asynchronous (wgmma); its unit."""

    blocks_per_sm: int
    loads_ahead: bool = False
    tensor_cores: bool = True
    warps: int = 4
    asynchronous: bool = False


def blocks_on(shared_bytes: int, smem_bytes: int, threads: int, registers: int | None = None) -> int:
    """Blocks on a multiprocessor: the least that shared memory, threads, registers and the scheduler allow, at least
    one. `shared_bytes`: what the multiprocessor has."""
    limits = [shared_bytes // (smem_bytes + RESERVED_BYTES), MOST_THREADS // max(1, threads), MOST_BLOCKS]
    if registers:
        limits.append(REGISTERS // (-(-registers // 8) * 8 * max(1, threads)))
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
    dram: list[int],
    sits: list[Occupancy],
    rates: Rates,
) -> Time:
    """The time of the launches of a schedule. `works` are the blocks of one head, `dram` the bytes of each launch."""
    total = blocks_total = dram_total = l2_total = 0.0
    for blocks, sit, dram_bytes in zip(works, sits, dram, strict=True):
        moved = instances * sum(w.load_bytes + w.store_bytes for w in blocks)
        slow, l2 = dram_bytes / rates.dram_bytes_per_second, moved / rates.l2_bytes_per_second
        share = min(1.0, dram_bytes / max(1, moved))
        latency = rates.l2_latency_seconds + share * (rates.latency_seconds - rates.l2_latency_seconds)
        own = blocks_seconds(blocks, instances, dtype, sit, rates, Memory(latency, slow / len(blocks) / instances))
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
) -> float:  # fmt: skip
    """All blocks of a launch, in waves; where they are alike, a multiprocessor has fewer of them in the last one."""
    total = len(works) * instances
    together = min(sit.blocks_per_sm, -(-total // rates.sms))
    costs = [block_seconds(work, together, dtype, sit, rates, memory) for work in works]
    if max(costs) - min(costs) > 1e-12 * max(costs):
        return makespan(costs, instances, rates.sms * together)
    waves, left = divmod(total, rates.sms * together)
    return waves * costs[0] + block_seconds(works[0], -(-left // rates.sms), dtype, sit, rates, memory)


def block_seconds(work: Work, together: int, dtype: str, sit: Occupancy, rates: Rates, memory: Memory) -> float:
    """One of the blocks `together` on a multiprocessor. One that loads ahead keeps its units busy by itself."""
    if not together:
        return 0.0
    if rates.steps and not sit.loads_ahead:
        return stepwise_seconds(work, together, sit, rates, memory)
    waits = memory.latency * (1 if sit.loads_ahead else work.loads)  # the first load has nothing to hide behind
    return arithmetic_seconds(work, dtype, sit, rates) * rates.sms * together + waits


def stepwise_seconds(work: Work, together: int, sit: Occupancy, rates: Rates, memory: Memory) -> float:
    """A generated kernel: step after step. The measured loads came from the L2, those of single words from the L1."""
    kind = "tensor" if sit.tensor_cores else "simt"
    requests = max(work.scalar_loads, work.scalar_words / LANES / sit.warps)
    chain = requests * rates.l2_latency_seconds + work.loads * (memory.latency - rates.l2_latency_seconds)
    demands = dict.fromkeys(STATIONS, 0.0)
    uneven = -(-sit.warps // ALONE_WARPS) * ALONE_WARPS / sit.warps  # some of its 4 parts have more warps than others
    for name, amount in work.steps.items():
        found = (rates.steps.get(f"{unit}_{step}") for step in (name, "normalise") for unit in (kind, "simt"))
        fixed, one, each, full = next(step for step in found if step)
        chain += work.times[name] * fixed + amount / sit.warps / one
        share = work.times[name] * each * sit.warps / MEASURED_WARPS[kind] + amount * rates.sms / full
        demands[station(name)] += share
    alone = max(chain, sum(demands.values()) * uneven)
    return cycle_seconds(alone, [*demands.values(), memory.dram_seconds * rates.sms], together)


def station(step: str) -> str:
    """What of a multiprocessor a step keeps busy, while other blocks may use the rest."""
    return "copies" if step.startswith(("load", "store")) else "steps"


def cycle_seconds(chain: float, demands: list[float], blocks: int) -> float:
    """How long a block takes when so many run together: a closed network of one queue for each unit, and a delay for
    the rest of the chain, where nothing is shared. Mean value analysis (Reiser and Lavenberg 1980)."""
    delay, queued = max(chain - sum(demands), 0.0), [0.0] * len(demands)
    total = chain
    for number in range(1, blocks + 1):
        waits = [demand * (1 + ahead) for demand, ahead in zip(demands, queued, strict=True)]
        total = delay + sum(waits)
        queued = [number * wait / total for wait in waits]
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


def makespan(costs: Sequence[float], instances: int, places: int) -> float:
    """When the last block ends: blocks in grid order (all of a head, then the next), each to the first free place."""
    if not costs:
        return 0.0
    if max(costs) - min(costs) <= 1e-12 * max(costs):
        return -(-len(costs) * instances // places) * max(costs)
    ends = [0.0] * min(places, len(costs) * instances)
    for _ in range(instances):
        for cost in costs:
            heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)
