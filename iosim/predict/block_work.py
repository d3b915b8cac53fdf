"""The work of each thread block of a launch, counted while a schedule's text is run over every tile.

What is counted is what the kernel does, which is more than the text says:

- A product on tensor cores is computed in whole tiles of 16. Without them, lanes go over groups of words in turns, and
  in the last turn some lanes have nothing to do.
- An asynchronous copy takes its warps only the time to ask for its pieces. It is waited for where a step first uses its
  block.
- A tile that does not use all of its room runs through other loops than a whole one, so its work is kept apart.

The work of a step is kept under a `StepKey`, beside the mark (`softmax.Cost`) that says how the step is timed. Launch
times (predict/launch_time.py) are made of these numbers and of rates that `iosim calibrate` measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..core.machine import Block, Tile
from ..core.shapes import product
from ..core.unrolled import Unrolled
from ..core.watchers import Watcher
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
    words_of_lanes,
)
from ..errors import ScheduleError
from ..steps.softmax import Cost

Unit = Literal["tensor", "simt"]

MEASURED_WARPS: dict[Unit, int] = {"tensor": 4, "simt": 8}  # of a block among many (calibrate/steps.py)
MEASURED_TURNS: dict[Unit, int] = {"tensor": 2, "simt": 1}  # of a step on rows: 8 rows of 64 words a turn of a warp
MEASURED_BYTES = 4  # of a word, where steps that go over pieces of 16 bytes were measured

# Requests of a warp under way at once where it copies single words. Fitted: on the times of generated kernels on an
# H200 whose tiles have unaligned rows (8 at first, 6 since their waits are counted by turns). Its loop is unrolled, and
# two requests meet in a line of the L2.
UNDER_WAY = 6

# Copies are timed as steps, too. `load` is asynchronous. The other loads go through registers: `load_O` converts words,
# `load_l` is a vector, `load_scalar` goes word by word where rows start anywhere.
LOAD, LOAD_CONVERTED, LOAD_VECTOR, LOAD_SCALAR = "load", "load_O", "load_l", "load_scalar"
STORE, STORE_SCALAR = "store", "store_scalar"
COPY = Cost()

RESCALE = Cost(timed_as="denormalise", pieces=True)  # what online_softmax does to O where a maximum grows

_OUTPUT, _RAGGED, _UNSIZED = "_output", "_ragged", "_unsized"


@dataclass(frozen=True)
class StepKey:
    """A tile step on one unit, in one setting. Its text is its name in [measured.steps] of a hardware file."""

    unit: Unit
    step: str
    output: bool = False
    """The words of a product's output, which are read and written in shared memory; else the step itself."""
    ragged: bool = False
    """On a tile that does not use all of its room."""
    sized: bool = True
    """In a loop whose tile sizes the compiler knows."""

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
    """The mark of a step. ScheduleError if it has none: no rate is taken for it in silence."""
    cost, name = getattr(step, "cost", None), getattr(step, "__name__", repr(step))
    if isinstance(cost, Cost):
        return cost
    raise ScheduleError(
        f"step {name!r} does not say how a kernel runs it, so its time cannot be predicted: mark it with "
        f'@Cost(operations=(1,), timed_as="normalise") or what fits it (iosim.steps.softmax.Cost, docs/adding-a-schedule.md)'
    )


@dataclass(frozen=True)
class Occupancy:
    """How the blocks of a launch occupy the GPU, and what kind of kernel they run."""

    blocks_per_sm: int
    loads_ahead: bool = False
    """Loads the next tiles while it computes, and holds its operands in registers."""
    tensor_cores: bool = True
    warps: int = 4
    """Warps of a block."""
    asynchronous: bool = False
    """Its products are warpgroup products (wgmma)."""
    generated: bool = True
    """Generated from a text, step by step."""

    @property
    def unit(self) -> Unit:
        return "tensor" if self.tensor_cores else "simt"


@dataclass
class StepWork:
    """What one block does in one step: flops of a product, bytes of a copy, else words."""

    cost: Cost
    work: float = 0
    chain: float = 0
    """The work if every warp had as much as the busiest one. A narrow product, of which half as many are under way,
    counts twice."""
    times: float = 0
    """How often the fixed time of the step passes."""


@dataclass
class BlockWork:
    """What one block does."""

    flops: int = 0
    operations: int = 0
    """SIMT instructions of one lane; a multiply-add is one."""
    exponentials: int = 0
    loads: int = 0
    waits: float = 0
    """How often the block waits for a load."""
    load_bytes: int = 0
    first_bytes: int = 0
    """Loaded before the first step that reads anything."""
    store_bytes: int = 0
    last_bytes: int = 0
    """Stored after the last step."""
    stalls: int = 0
    """Waits for loads through registers; consecutive loads without a step between them wait once."""
    steps: dict[StepKey, StepWork] = field(default_factory=dict)

    def add(self, key: StepKey, cost: Cost, work: float, times: float = 1, chain: float | None = None) -> None:
        """Add work of a step; without `chain` all warps have the same share."""
        found = self.steps.setdefault(key, StepWork(cost))
        found.work += work
        found.chain += work if chain is None else chain
        found.times += times


@dataclass
class WorkCounter(Watcher):
    """Counts the work of each block of each launch, of one head, on a machine that knows its current block.

    `occupancies` are those of the launches, in order. A launch without one runs on tensor cores.
    """

    occupancies: Sequence[Occupancy] = ()
    launches: list[dict[int, BlockWork]] = field(default_factory=lambda: [{}])
    copies: set[Block] = field(default_factory=set)  # asynchronous, under way
    stalled: bool = False  # a load was waited for, and no step ran since
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)  # key tiles met, by block and first row

    def start(self, machine: Unrolled) -> None:
        self.machine = machine

    def launch_ended(self) -> None:
        self.launches.append({})
        self.seen.clear()
        self.copies.clear()
        self.stalled = False

    @property
    def blocks(self) -> list[list[BlockWork]]:
        """For each launch the blocks of one head, in grid order."""
        return [[work for _, work in sorted(launch.items())] for launch in self.launches if launch]

    @property
    def here(self) -> BlockWork:
        """The work of the current block."""
        return self.launches[-1].setdefault(self.machine.block, BlockWork())

    @property
    def occupancy(self) -> Occupancy:
        """That of the current launch."""
        number = sum(map(bool, self.launches[:-1]))
        return self.occupancies[number] if number < len(self.occupancies) else Occupancy(1)

    def _key(self, step: str, output: bool = False, ragged: bool = False, sized: bool = True) -> StepKey:
        return StepKey(self.occupancy.unit, step, output, ragged, sized)

    # ------------------------------------------------------------------ copies

    def load(self, block: Block, tensor: str, words: int) -> None:
        if not words:
            return
        here, step, moved = self.here, self._load_step(block, tensor), words * self._widths(tensor)[0]
        here.loads += 1
        here.load_bytes += moved
        if step != LOAD:
            self._stall(block, tensor, step, words)
            here.add(self._key(step), COPY, moved)
            return
        self.copies.add(block)
        self.stalled = False
        if self._is_whole(block):
            here.add(self._key(LOAD), COPY, moved, times=0)
        elif self.occupancy.tensor_cores:  # the margins are filled, too
            here.add(self._key(LOAD, ragged=True), COPY, self._room(block) * self._widths(tensor)[0], times=0)
        else:
            here.add(self._key(LOAD, ragged=True), COPY, moved, 0, moved * self._busiest(block))

    def _load_step(self, block: Block, tensor: str) -> str:
        hbm, sram = self._widths(tensor)
        if len(block.shape) == 1:
            return LOAD_VECTOR
        if not self._aligned(tensor):
            return LOAD_SCALAR
        return LOAD if hbm == sram else LOAD_CONVERTED

    def _stall(self, block: Block, tensor: str, step: str, words: int) -> None:
        """Waits of a load through registers."""
        here, warps = self.here, self.occupancy.warps
        if not self.stalled:
            here.waits += 1
            here.stalls += 1
            self.stalled = True
        if step == LOAD_SCALAR:
            here.waits += words / LANES / warps / UNDER_WAY
        elif step == LOAD_CONVERTED and not self._is_whole(block):  # each turn of its loop over pieces waits for itself
            turns = -(-self._room(block) * self._widths(tensor)[0] // 16 // (LANES * warps))
            here.waits += turns - 1
            here.stalls += turns - 1

    def store(self, block: Block, tensor: str, words: int) -> None:
        moved = words * self._widths(tensor)[0]
        self.here.store_bytes += moved
        self.here.last_bytes += moved
        aligned = self._aligned(tensor)
        key = self._key(STORE, ragged=self._ragged(block)) if aligned else self._key(STORE_SCALAR)
        self.here.add(key, COPY, moved, chain=moved * self._busiest(block))

    def _aligned(self, tensor: str) -> bool:
        """Whether rows start at 16 bytes: else they are copied word by word."""
        return bool(self.machine.p.shape(self.machine.tensors[tensor])[-1] * self._widths(tensor)[0] % 16 == 0)

    def _widths(self, tensor: str) -> tuple[int, int]:
        """Bytes of a word in HBM, and on chip."""
        p, kind = self.machine.p, self.machine.tensors[tensor]
        return p.hbm_bytes(kind), p.sram_bytes(kind)

    def _wait(self, blocks: list[Block]) -> None:
        """Wait for a copy where its block is first used. All other copies under way have landed then, too. If loads
        through registers were waited for after they began, there is nothing left to wait for."""
        if any((block.base or block) in self.copies for block in blocks):
            if not self.stalled:
                self.here.waits += 1
                self.here.add(self._key(LOAD), COPY, 0)
            self.copies.clear()

    def _room(self, block: Block) -> int:
        """Words that a kernel reserves for a block: on tensor cores whole tiles of 16, whose margins are filled."""
        step = MMA if self.occupancy.tensor_cores else 1
        return int(product(-(-full(x) // step) * step if isinstance(x, Tile) else x for x in block.shape))

    def _ragged(self, block: Block) -> bool:
        return len(block.shape) > 1 and not self._is_whole(block)

    def _is_whole(self, block: Block) -> bool:
        """Whether all of the room is in use. Copies of other tiles take a turn of a loop for each piece of 16 bytes."""
        return bool(self._room(block) == product(x.size if isinstance(x, Tile) else x for x in block.shape))

    # ------------------------------------------------------------------ steps

    def step(self, step: Callable[..., None], outputs: tuple[Block, ...], inputs: tuple[Any, ...], flops: int) -> None:
        cost = cost_of(step)
        self._wait([x for x in (*outputs, *inputs) if isinstance(x, Block)])
        self.stalled = False
        if not cost.fills:
            self.here.first_bytes = self.here.first_bytes or self.here.load_bytes
            self.here.last_bytes = 0
        self._units(cost, outputs)
        if cost.product:
            self._product(cost, outputs[0], inputs, flops)
        elif not (cost.hides and inputs[0].array().all()):  # a tile in which nothing is hidden is left alone
            self._go_over(step.__name__, cost, outputs, inputs)
        if cost.rescales:
            self._rescale(outputs[0], outputs[-1])

    def _go_over(self, name: str, cost: Cost, outputs: tuple[Block, ...], inputs: tuple[Any, ...]) -> None:
        """Add a step that goes over every word of a tile: of its first output, or of what it reduces to a vector."""
        blocks = [x for x in (*outputs, *inputs) if isinstance(x, Block)]
        tile = next((x for x in blocks if len(x.shape) > 1), outputs[0])
        sized = not (cost.looped and unsized(*blocks))
        if cost.fills:
            self._fill(name, cost, tile)
        elif cost.rows:
            self._go_over_rows(self._key(name, ragged=self._ragged(tile), sized=sized), cost, tile)
        else:  # all pieces of a row take turns
            words = self.machine.total(tile.shape[:1]) * product(full(x) for x in tile.shape[1:])
            words *= self._width(tile) / MEASURED_BYTES if cost.pieces else 1
            key = self._key(name, ragged=self._ragged(tile), sized=sized)
            self.here.add(key, cost, words, chain=words * self._busiest(tile))

    def _fill(self, name: str, cost: Cost, tile: Block) -> None:
        """Add a fill, which goes over all of the room."""
        words = self._room(tile) * (self._width(tile) / MEASURED_BYTES if cost.pieces else 1)
        occupancy = self.occupancy
        self.here.add(self._key(name), cost, words, chain=words * uneven(tile, occupancy.warps, occupancy.tensor_cores))

    def _go_over_rows(self, key: StepKey, cost: Cost, tile: Block) -> None:
        """Add a step on rows. A warp has some rows at a time; lanes beyond the end of a row wait."""
        at_once, columns = row_parts(tile, self._words_together(tile))
        rows = self.machine.total(tile.shape[:1])
        turns = max(1.0, rows / at_once / self.occupancy.warps / MEASURED_TURNS[key.unit])
        self.here.add(key, cost, rows * columns, turns, rows * columns * self._busiest(tile, at_once))

    def _busiest(self, block: Block, at_once: int = 1) -> float:
        """Rows of the busiest warp, over an even share."""
        warps, rows = self.occupancy.warps, self.machine.total(block.shape[:1])
        return float(busiest_rows(block, warps, self.occupancy.tensor_cores, at_once) * warps / rows)

    def _width(self, block: Block) -> int:
        """Bytes of a word on chip."""
        return int(self.machine.p.sram_bytes(block.tensor))

    def _words_together(self, block: Block) -> int:
        """Words that a thread reads at once: those of 16 bytes, where rows are made of them."""
        width = self._width(block)
        return 1 if full(block.shape[1]) * width % 16 else 16 // width

    def _units(self, cost: Cost, outputs: tuple[Block, ...]) -> None:
        """Count operations and exponentials. A kernel that loads ahead has ragged tiles in registers, and computes
        them whole."""
        words = [self.machine.total(block.shape) for block in outputs]
        if self.occupancy.loads_ahead:
            ratios = [padded(1, block) for block in outputs]
            words = [n * up // down for n, (up, down) in zip(words, ratios, strict=True)]
        self.here.operations += sum(n * w for n, w in zip(cost.operations, words, strict=False))
        self.here.exponentials += cost.exponentials * words[0]

    def _product(self, cost: Cost, output: Block, inputs: tuple[Any, ...], flops: int) -> None:
        """Add a product as it is computed, and the words of its output. `accumulate` reads and writes its output once
        for each group of keys that it holds; `scores` writes it once."""
        here, occupancy, words = self.here, self.occupancy, self.machine.total(output.shape)
        chain: float
        if occupancy.tensor_cores:
            up, down = padded(1 if occupancy.loads_ahead else MMA, output, *inputs)
            flops = flops * up // down
            narrow = full(output.shape[-1]) % (2 * MMA) != 0  # half as many products are under way
            words = product(-(-full(x) // MMA) * MMA for x in output.shape)
            words *= times_read(full(inputs[0].shape[-1])) if cost.product == "accumulate" else 1
            chain = 2 * flops if narrow else flops
        else:
            busy, waited = words_of_lanes(output, cost.product == "scores", occupancy.warps)
            flops, chain = flops * busy // words, flops * waited * uneven(output, occupancy.warps, False) // words
        here.flops += flops
        sized = not unsized(output, *inputs)
        here.add(self._key(cost.product, sized=sized), cost, flops, chain=chain)
        chain = words * uneven(output, occupancy.warps, occupancy.tensor_cores)
        here.add(self._key(cost.product, output=True, sized=sized), cost, words, 0, chain)

    def _rescale(self, scores: Block, output: Block) -> None:
        """Add what rescaling O takes where the maximum of a row grows.

        Among j tiles in any order the j-th has the largest score of a row at odds of 1 / j. A warp rescales where one
        of the rows that it has at a time needs it.
        """
        row = self.machine.block, getattr(scores.shape[0], "start", 0)
        self.seen[row] += 1
        odds = 1 - (1 - 1 / self.seen[row]) ** row_parts(scores, self._words_together(scores))[0]
        words = self.machine.total(output.shape) * self._width(output) / MEASURED_BYTES
        self.here.add(self._key("rescale"), RESCALE, odds * words, odds, odds * words * self._busiest(scores))
