"""How long launches take: the largest of DRAM, L2 and the blocks' own time, plus launch overhead.

Blocks are dealt in grid order to the places that are free, which gives the tail of the last wave and the imbalance of
masks. What a block takes is a sum over its steps, which depend on each other (scores, then softmax, then the product
with V). Every constant is a property of the GPU, measured by `iosim calibrate`; none is fitted to a shape.

A kernel that loads ahead keeps its operands in registers: its products, other operations and exponentials take their
turns at the rates of the units; warpgroup products (wgmma) run beside the others. A generated kernel keeps its tiles in
shared memory, and its steps are no faster than their instructions, accesses and barriers: each has two rates, of one
warp alone and of a full GPU, whichever takes longer.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .watchers import Watcher

RESERVED_BYTES = 1024  # shared memory that the system takes of each block (CUDA programming guide, cc 8.0 and later)
MOST_BLOCKS, MOST_THREADS, REGISTERS = 32, 2048, 65536  # a multiprocessor of cc 9.0


@dataclass(frozen=True)
class Rates:
    """What a GPU can do, all multiprocessors together; the keys of `[measured]` in a hardware file.

    `steps`: {"tensor_scores": (work a second of one warp alone, of a full GPU), ...}, flops of products, else words.
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
    steps: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class Work:
    """What one block does. `operations` are SIMT instructions of one lane (a multiply-add is one); `steps` holds flops
    of products, else words, by the name of the step."""

    flops: int = 0
    operations: int = 0
    exponentials: int = 0
    loads: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    steps: Counter[str] = field(default_factory=Counter)


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
            here, spec = self.here, self.machine.tensors[tensor]
            here.loads += 1
            here.load_bytes += words * self._width(tensor)
            here.steps["load_l" if len(block.shape) == 1 else "load" if spec.kind == "input" else "load_O"] += words

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self.here.store_bytes += words * self._width(tensor)
        self.here.steps["store"] += words

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
        here.steps[name] += flops or words[0]

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
        own = blocks_seconds(blocks, instances, dtype, sit, rates, latency)
        total += max(slow, l2, own) + rates.launch_seconds
        dram_total, l2_total, blocks_total = dram_total + slow, l2_total + l2, blocks_total + own
    return Time(total, dram_total, l2_total, blocks_total, rates.launch_seconds * len(works))


def blocks_seconds(
    works: list[Work], instances: int, dtype: str, sit: Occupancy, rates: Rates, latency: float
) -> float:  # fmt: skip
    """All blocks of a launch: whole waves of them, then the last one, in which fewer share a multiprocessor."""
    total = len(works) * instances
    together = min(sit.blocks_per_sm, -(-total // rates.sms))
    costs = [block_seconds(work, together, dtype, sit, rates, latency) for work in works]
    if max(costs) - min(costs) > 1e-12 * max(costs):
        return makespan(costs, instances, rates.sms * together)
    waves, left = divmod(total, rates.sms * together)
    last = block_seconds(works[0], -(-left // rates.sms), dtype, sit, rates, latency) if left else 0.0
    return waves * costs[0] + last


def block_seconds(work: Work, together: int, dtype: str, sit: Occupancy, rates: Rates, latency: float) -> float:
    """One block of those that are `together` on a multiprocessor, and have their share of its units each."""
    if sit.loads_ahead or not rates.steps:
        first = latency if sit.loads_ahead else work.loads * latency  # the first load has nothing to hide behind
        return arithmetic_seconds(work, dtype, sit, rates) * rates.sms * together + first
    return stepwise_seconds(work, together, sit, rates, latency)


def stepwise_seconds(work: Work, together: int, sit: Occupancy, rates: Rates, latency: float) -> float:
    """A generated kernel: step after step, each as long as a warp alone needs for its part, or as the multiprocessor
    needs for those of all blocks."""
    kind = "tensor" if sit.tensor_cores else "simt"
    alone, full = work.loads * latency, 0.0
    for name, amount in work.steps.items():
        one, all_of_them = rates.steps.get(f"{kind}_{name}") or rates.steps[f"{kind}_normalise"]
        alone += amount / sit.warps / one
        full += amount * rates.sms / all_of_them
    return max(alone, full * together)


def arithmetic_seconds(work: Work, dtype: str, sit: Occupancy, rates: Rates) -> float:
    """Tensor (or SIMT) products, other operations and exponentials one after another, on the whole GPU; asynchronous
    products beside the others."""
    products = work.flops / 2 / rates.simt_operations_per_second
    others = work.operations / rates.simt_operations_per_second + work.exponentials / rates.exponentials_per_second
    if sit.asynchronous and rates.wgmma_flops_per_second:
        return max(work.flops / rates.wgmma_flops_per_second, others)
    if sit.tensor_cores and dtype in rates.tensor_flops_per_second:
        products = work.flops / rates.tensor_flops_per_second[dtype]
    return products + others


def makespan(costs: list[float], instances: int, places: int) -> float:
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
