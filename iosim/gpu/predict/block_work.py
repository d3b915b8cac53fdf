"""The work of each thread block of a launch, counted while a schedule is run over every tile.

The counts include work of the kernel that the schedule does not show:

- On tensor cores a product is computed in whole tiles of 16 x 16. Without them lanes take groups of words in turns, and
  in the last turn some lanes are idle.
- An asynchronous copy costs its warps only the time to issue it. The block waits for it where a step first uses the
  copied words.
- A tile is ragged if it does not use all the room that the kernel reserves for it. The kernel has separate loops for
  ragged tiles, so their work is counted separately.

The work of a step is kept under a `StepKey`, beside the mark (`steps.softmax.Cost`) that says how the step is timed.
predict/launch_time.py turns these numbers into seconds, with rates that `iosim calibrate` measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...core.machine import Block
from ...core.shapes import Tile, product
from ...core.unrolled import BlockWatcher
from ...errors import ScheduleError
from ...steps.softmax import Cost
from ..cuda.warp_split import (
    LANES,
    MMA,
    busiest_rows,
    full,
    padded,
    row_parts,
    times_read,
    uneven,
    unsized,
    used,
    words_of_lanes,
)

if TYPE_CHECKING:
    from ...core.machine import Input
    from ...core.shapes import Shape
    from ...core.typing import Size, Step

Unit = Literal["tensor", "simt"]

# How steps were measured, with many blocks on a multiprocessor (calibrate/steps.py).
MEASURED_WARPS: dict[Unit, int] = {"tensor": 4, "simt": 8}  # warps of a block
MEASURED_TURNS: dict[Unit, int] = {
    "tensor": 2,
    "simt": 1,
}  # turns of a warp in a step over rows of 64 words, 8 rows each
MEASURED_BYTES = 4  # bytes of a word in steps that work on pieces of 16 bytes

# Requests of a warp that are under way at once while it copies single words. Its loop is unrolled, and two requests may
# ask for the same line of the L2. Fitted to the times of generated kernels with unaligned rows on an H200.
UNDER_WAY = 6

# Copies are timed as steps. `load` is asynchronous; the other loads go through registers. `load_O` converts words,
# `load_l` copies a vector, `load_scalar` copies word by word, because the rows in HBM may start anywhere.
LOAD, LOAD_CONVERTED, LOAD_VECTOR, LOAD_SCALAR = "load", "load_O", "load_l", "load_scalar"
STORE, STORE_SCALAR = "store", "store_scalar"
COPY = Cost()

RESCALE = Cost(timed_as="denormalise", pieces=True)  # of O, by online_softmax where the maximum of a row grows

_OUTPUT, _RAGGED, _UNSIZED = "_output", "_ragged", "_unsized"


class StepKey(NamedTuple):
    """A tile step on one unit, in one setting. Its text is its name in [measured.steps] of a hardware file."""

    unit: Unit
    step: str
    output: bool = False
    """The time that a product needs to read and write its output in shared memory, apart from its flops."""
    ragged: bool = False
    """The tile does not use all the room that is reserved for it."""
    sized: bool = True
    """The compiler knows the tile sizes of the loop."""

    @staticmethod
    def parse(name: str) -> StepKey:
        """The key with this text. ValueError if the text does not begin with a unit."""
        unit, _, step = name.partition("_")
        found = {}
        for suffix in (_UNSIZED, _RAGGED, _OUTPUT):
            found[suffix] = step.endswith(suffix)
            step = step.removesuffix(suffix)
        return StepKey(parse_unit(unit), step, found[_OUTPUT], found[_RAGGED], not found[_UNSIZED])

    def __str__(self) -> str:
        ends = (_OUTPUT, self.output), (_RAGGED, self.ragged), (_UNSIZED, not self.sized)
        return f"{self.unit}_{self.step}" + "".join(end for end, here in ends if here)


@dataclass(frozen=True)
class LoopKey:
    """A loop on one unit. Its text is its name in [measured.loop_ratios] of a hardware file."""

    unit: Unit
    sized: bool = True
    """The compiler knows the sizes of its tiles."""

    @staticmethod
    def parse(name: str) -> LoopKey:
        """The key with this text. ValueError if the text does not begin with a unit."""
        return LoopKey(parse_unit(name.removesuffix(_UNSIZED)), not name.endswith(_UNSIZED))

    def __str__(self) -> str:
        return self.unit + ("" if self.sized else _UNSIZED)


def parse_unit(text: str) -> Unit:
    """The unit with this name, or ValueError."""
    if text == "tensor":
        return "tensor"
    if text == "simt":
        return "simt"
    raise ValueError(f"{text!r} is no unit: tensor, simt")


def cost_of(step: object) -> Cost:
    """The mark of a step. ScheduleError if it has none, because any rate would be a guess."""
    cost, name = getattr(step, "cost", None), getattr(step, "__name__", repr(step))
    if isinstance(cost, Cost):
        return cost
    raise ScheduleError(
        f"step {name!r} does not say how a kernel runs it, so its time cannot be predicted: mark it with "
        '@Cost(operations=(1,), timed_as="normalise") or what fits it '
        "(iosim.steps.softmax.Cost, docs/adding-a-schedule.md)"
    )


@dataclass(frozen=True)
class Occupancy:
    """The way the blocks of a launch occupy the GPU, and the kind of their kernel."""

    blocks_per_sm: int
    """Blocks that a multiprocessor holds at the same time."""
    loads_ahead: bool = False
    """The kernel loads the next tiles while it computes, and holds its operands in registers."""
    tensor_cores: bool = True
    warps: int = 4
    """Warps of a block."""
    asynchronous: bool = False
    """Matrix products are warpgroup products (wgmma)."""
    generated: bool = True
    """Whether the kernel was generated from a schedule, and runs it step by step."""

    @property
    def unit(self) -> Unit:
        """The units that compute matrix products."""
        return "tensor" if self.tensor_cores else "simt"


@dataclass
class StepWork:
    """The work of one block in all its runs of one step."""

    cost: Cost
    work: float = 0
    """Flops of a product, bytes of a copy, else words."""
    chain: float = 0
    """The work if every warp had as much as the busiest one. Narrow products on tensor cores count twice, because a
    warp works on one at a time instead of two."""
    times: float = 0
    """The number of times that the step's fixed time is spent."""


@dataclass
class BlockWork:
    """The work of one block."""

    flops: int = 0
    operations: int = 0
    """Instructions of single lanes, without matrix products; a multiply-add is one."""
    exponentials: int = 0
    loads: int = 0
    """Tiles loaded."""
    waits: float = 0
    """The number of times that the block waits for a load."""
    load_bytes: int = 0
    first_bytes: int = 0
    """Bytes loaded before the first step that reads anything."""
    store_bytes: int = 0
    last_bytes: int = 0
    """Bytes stored after the last step."""
    stalls: int = 0
    """Waits for loads through registers. Consecutive loads without a step between them wait once."""
    steps: dict[StepKey, StepWork] = field(default_factory=dict)

    def add(self, key: StepKey, cost: Cost, work: float, times: float = 1, chain: float | None = None) -> None:
        """Add one run of a step; without `chain` all warps have the same share of its work."""
        found = self.steps.get(key)
        if found is None:
            found = self.steps[key] = StepWork(cost)
        found.work += work
        found.chain += work if chain is None else chain
        found.times += times

    def add_all(self, one: BlockWork) -> None:
        """Add the work of one run of a step."""
        self.flops += one.flops
        self.operations += one.operations
        self.exponentials += one.exponentials
        for key, done in one.steps.items():
            self.add(key, done.cost, done.work, done.times, done.chain)


@dataclass
class WorkCounter(BlockWatcher):
    """Counts the work of each block of each launch, of one head.

    `occupancies` are those of the launches, in order. A launch without one is taken to run on tensor cores.
    """

    occupancies: Sequence[Occupancy] = ()
    launches: list[dict[int, BlockWork]] = field(default_factory=lambda: [{}])
    copies: set[Block] = field(default_factory=set)  # blocks whose asynchronous copies are under way
    stalled: bool = False  # the block waited for a load through registers, and no step ran since
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)  # {(block, first row): score tiles so far}

    def __post_init__(self) -> None:
        self._launch_starts()

    def _launch_starts(self) -> None:
        number = sum(map(bool, self.launches[:-1]))
        self.occupancy = self.occupancies[number] if number < len(self.occupancies) else Occupancy(1)
        """The way the blocks of the current launch occupy the GPU."""
        self._known: dict[Hashable, BlockWork] = {}  # the work of steps of this launch, by `_alike`

    def launch_ended(self) -> None:
        self.launches.append({})
        self.seen.clear()
        self.copies.clear()
        self.stalled = False
        self._launch_starts()

    @property
    def blocks(self) -> list[list[BlockWork]]:
        """The blocks of one head in grid order, for each launch that has any."""
        return [[work for _, work in sorted(launch.items())] for launch in self.launches if launch]

    @property
    def here(self) -> BlockWork:
        """The work of the current block."""
        launch, block = self.launches[-1], self.machine.thread_block
        if block not in launch:
            launch[block] = BlockWork()
        return launch[block]

    def _key(self, step: str, output: bool = False, ragged: bool = False, sized: bool = True) -> StepKey:
        return StepKey(self.occupancy.unit, step, output, ragged, sized)

    # ------------------------------------------------------------------ copies

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if not words:
            return
        here, kind = self.here, (LOAD, tensor, words, alike([block]))
        one = self._known.get(kind)
        if one is None:
            one = self._known[kind] = self._load_work(block, tensor, int(words))
        here.loads += 1
        here.load_bytes += one.load_bytes
        if one.stalls:
            self._stall(block, tensor, self._load_step(block, tensor), int(words))
        else:
            self.copies.add(block)
            self.stalled = False
        here.add_all(one)

    def _load_work(self, block: Block, tensor: str, words: int) -> BlockWork:
        """The work of one load. It has stalls if the load goes through registers."""
        step, width = self._load_step(block, tensor), self._widths(tensor)[0]
        moved = words * width
        work = BlockWork(load_bytes=moved, stalls=int(step != LOAD))
        if step != LOAD:
            work.add(self._key(step), COPY, moved)
        elif self._is_whole(block):
            work.add(self._key(LOAD), COPY, moved, times=0)
        elif self.occupancy.tensor_cores:  # zeros are written into the rest of the room
            work.add(self._key(LOAD, ragged=True), COPY, self._room(block) * width, times=0)
        else:
            work.add(self._key(LOAD, ragged=True), COPY, moved, 0, moved * self._busiest(block))
        return work

    def _load_step(self, block: Block, tensor: str) -> str:
        """The name of the kind of copy that a load is timed as."""
        hbm, sram = self._widths(tensor)
        if len(block.shape) == 1:
            return LOAD_VECTOR
        if not self._aligned(tensor):
            return LOAD_SCALAR
        return LOAD if hbm == sram else LOAD_CONVERTED

    def _stall(self, block: Block, tensor: str, step: str, words: int) -> None:
        """Count the waits of a load through registers."""
        here, warps = self.here, self.occupancy.warps
        if not self.stalled:
            here.waits += 1
            here.stalls += 1
            self.stalled = True
        if step == LOAD_SCALAR:
            here.waits += words / LANES / warps / UNDER_WAY
        elif step == LOAD_CONVERTED and not self._is_whole(block):  # each turn of the loop over pieces waits
            turns = -(-self._room(block) * self._widths(tensor)[0] // 16 // (LANES * warps))
            here.waits += turns - 1
            here.stalls += turns - 1

    def store(self, block: Block, tensor: str, words: Size) -> None:
        here, kind = self.here, (STORE, tensor, words, alike([block]))
        one = self._known.get(kind)
        if one is None:
            one = self._known[kind] = self._store_work(block, tensor, int(words))
        here.store_bytes += one.store_bytes
        here.last_bytes += one.store_bytes
        here.add_all(one)

    def _store_work(self, block: Block, tensor: str, words: int) -> BlockWork:
        """The work of one store."""
        moved = words * self._widths(tensor)[0]
        work = BlockWork(store_bytes=moved)
        key = self._key(STORE, ragged=self._ragged(block)) if self._aligned(tensor) else self._key(STORE_SCALAR)
        work.add(key, COPY, moved, chain=moved * self._busiest(block))
        return work

    def _aligned(self, tensor: str) -> bool:
        """Whether every row in HBM starts at a multiple of 16 bytes. Otherwise rows are copied word by word."""
        axes = self.machine.p.shape(self.machine.tensors[tensor])
        return int(axes[-1]) * self._widths(tensor)[0] % 16 == 0

    def _widths(self, tensor: str) -> tuple[int, int]:
        """Bytes of a word in HBM, and on chip."""
        p, kind = self.machine.p, self.machine.tensors[tensor]
        return p.hbm_bytes(kind), p.sram_bytes(kind)

    def _wait(self, blocks: list[Block]) -> None:
        """Count the wait for asynchronous copies, where a step first uses one of their blocks.

        The kernel waits for all copies that are under way. The wait is free if the block has already waited for a load
        through registers that was issued later.
        """
        if any((block.base or block) in self.copies for block in blocks):
            if not self.stalled:
                self.here.waits += 1
                self.here.add(self._key(LOAD), COPY, 0)
            self.copies.clear()

    def _room(self, block: Block) -> int:
        """Words that a kernel reserves for a block: with tensor cores, tiles are rounded up to multiples of 16."""
        step = MMA if self.occupancy.tensor_cores else 1
        return product(-(-full(x) // step) * step if isinstance(x, Tile) else full(x) for x in block.shape)

    def _words(self, shape: Shape) -> int:
        """Words of this shape that are in use."""
        return product(map(used, shape))

    def _ragged(self, block: Block) -> bool:
        """Whether a tile does not use all the room that is reserved for it. A vector is never timed as ragged."""
        return len(block.shape) > 1 and not self._is_whole(block)

    def _is_whole(self, block: Block) -> bool:
        """Whether a block uses all the room that is reserved for it."""
        return self._room(block) == self._words(block.shape)

    # ------------------------------------------------------------------ steps

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        cost, blocks, here = cost_of(step), [x for x in (*outputs, *inputs) if isinstance(x, Block)], self.here
        self._wait(blocks)
        self.stalled = False
        if not cost.fills:
            here.first_bytes = here.first_bytes or here.load_bytes
            here.last_bytes = 0
        hidden = cost.hides and hides_nothing(inputs[0])
        kind = step, hidden, flops, len(outputs), alike(blocks)
        one = self._known.get(kind)
        if one is None:
            one = self._known[kind] = self._work_of(step.__name__, cost, outputs, blocks, int(flops), hidden)
        here.add_all(one)
        if cost.rescales:
            self._rescale(outputs[0], outputs[-1])

    def _work_of(
        self, name: str, cost: Cost, outputs: tuple[Block, ...], blocks: list[Block], flops: int, hidden: bool
    ) -> BlockWork:
        """The work of one run of a step, without the rescaling of O. `blocks` are its outputs, then its inputs."""
        work = BlockWork()
        self._units(work, cost, outputs)
        if cost.product:
            self._product(work, cost, outputs[0], blocks[len(outputs) :], flops)
        elif not hidden:
            self._go_over(work, name, cost, blocks)
        return work

    def _go_over(self, work: BlockWork, name: str, cost: Cost, blocks: list[Block]) -> None:
        """Add a step that works on every word of a tile: its first output, or the tile that it reduces to a vector."""
        tile = next((x for x in blocks if len(x.shape) > 1), blocks[0])
        sized = not (cost.looped and unsized(*blocks))
        if cost.fills:
            self._fill(work, name, cost, tile)
        elif cost.rows:
            self._go_over_rows(work, self._key(name, ragged=self._ragged(tile), sized=sized), cost, tile)
        else:  # the loop runs over all words of a row that there is room for
            words = self._words(tile.shape[:1]) * product(full(x) for x in tile.shape[1:]) * self._share(cost, tile)
            key = self._key(name, ragged=self._ragged(tile), sized=sized)
            work.add(key, cost, words, chain=words * self._busiest(tile))

    def _fill(self, work: BlockWork, name: str, cost: Cost, tile: Block) -> None:
        """Add a step that writes all the room of a tile."""
        words = self._room(tile) * self._share(cost, tile)
        occupancy = self.occupancy
        work.add(self._key(name), cost, words, chain=words * uneven(tile, occupancy.warps, occupancy.tensor_cores))

    def _go_over_rows(self, work: BlockWork, key: StepKey, cost: Cost, tile: Block) -> None:
        """Add a step over rows. A warp works on some rows at a time; its lanes wait for the end of a turn."""
        at_once, columns = row_parts(tile, self._words_together(tile))
        rows = self._words(tile.shape[:1])
        turns = max(1.0, rows / at_once / self.occupancy.warps / MEASURED_TURNS[key.unit])
        work.add(key, cost, rows * columns, turns, rows * columns * self._busiest(tile, at_once))

    def _busiest(self, block: Block, at_once: int = 1) -> float:
        """Rows of the busiest warp, over an even share."""
        warps, rows = self.occupancy.warps, self._words(block.shape[:1])
        return busiest_rows(block, warps, self.occupancy.tensor_cores, at_once) * warps / rows

    def _share(self, cost: Cost, block: Block) -> float:
        """Measured words that one word counts as: steps over pieces of 16 bytes take half as long for 2-byte words."""
        return self._width(block) / MEASURED_BYTES if cost.pieces else 1

    def _width(self, block: Block) -> int:
        """Bytes of a word on chip."""
        return self.machine.p.sram_bytes(block.tensor)

    def _words_together(self, block: Block) -> int:
        """Words that a thread reads at once: 16 bytes if rows are multiples of that, else one word."""
        width = self._width(block)
        return 1 if full(block.shape[1]) * width % 16 else 16 // width

    def _units(self, work: BlockWork, cost: Cost, outputs: tuple[Block, ...]) -> None:
        """Count operations and exponentials. A kernel that loads ahead computes ragged tiles as if they were whole."""
        words = [self._words(block.shape) for block in outputs]
        if self.occupancy.loads_ahead:
            ratios = [padded(1, block) for block in outputs]
            words = [n * up // down for n, (up, down) in zip(words, ratios, strict=True)]
        work.operations += sum(n * w for n, w in zip(cost.operations, words, strict=False))
        work.exponentials += cost.exponentials * words[0]

    def _product(self, work: BlockWork, cost: Cost, output: Block, inputs: Sequence[Block], flops: int) -> None:
        """Add a product as it is computed, and the words of its output that are read and written in shared memory.

        `accumulate` reads and writes its output once for each part of P that it holds in registers; `scores` writes it
        once.
        """
        occupancy, words = self.occupancy, self._words(output.shape)
        chain: float
        if occupancy.tensor_cores:
            up, down = padded(1 if occupancy.loads_ahead else MMA, output, *inputs)
            flops = flops * up // down
            narrow = full(output.shape[-1]) % (2 * MMA) != 0  # a warp works on one product at a time, not on two
            words = product(-(-full(x) // MMA) * MMA for x in output.shape)
            words *= times_read(full(inputs[0].shape[-1])) if cost.product == "accumulate" else 1
            chain = 2 * flops if narrow else flops
        else:
            busy, waited = words_of_lanes(output, cost.product == "scores", occupancy.warps)
            flops, chain = flops * busy // words, flops * waited * uneven(output, occupancy.warps, False) // words
        work.flops += flops
        sized = not unsized(output, *inputs)
        work.add(self._key(cost.product, sized=sized), cost, flops, chain=chain)
        chain = words * uneven(output, occupancy.warps, occupancy.tensor_cores)
        work.add(self._key(cost.product, output=True, sized=sized), cost, words, 0, chain)

    def _rescale(self, scores: Block, output: Block) -> None:
        """Add the work of rescaling O where the maximum of a row grows.

        If the tiles of a row come in random order, the j-th has the largest score so far with probability 1 / j. A warp
        rescales if any of the rows that it works on at a time needs it.
        """
        row = self.machine.thread_block, getattr(scores.shape[0], "start", 0)
        self.seen[row] += 1
        probability = 1 - (1 - 1 / self.seen[row]) ** row_parts(scores, self._words_together(scores))[0]
        words = probability * (self._words(output.shape) * self._width(output) / MEASURED_BYTES)
        self.here.add(self._key("rescale"), RESCALE, words, probability, words * self._busiest(scores))


def alike(blocks: Sequence[Block]) -> Hashable:
    """The same for all blocks of the same tensors and sizes, if the same dimensions share a tile."""
    number: dict[Tile, int] = {}
    found: list[object] = []
    for block in blocks:
        found.append(block.tensor)
        for side in block.shape:
            if isinstance(side, Tile):
                found.append((number.setdefault(side, len(number)), side.length, full(side), side.size))
            else:
                found.append(side)
    return tuple(found)


def hides_nothing(part: Input) -> bool:
    """Whether a part of a mask lets every query see every key. Kernels skip the step then."""
    return not isinstance(part, Block) and bool(part.array().all())
