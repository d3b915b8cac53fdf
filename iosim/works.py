"""What the blocks of a launch do, as the kernels do it: the work of timing.py, counted while a text is run.

Words and bytes are those of the text. A product is counted as it is computed: on tensor cores in whole tiles of 16,
without them in groups of words, one for each lane of a team, some of which have nothing to do in the last turn. A copy
that is asynchronous takes its warps the time to ask for its pieces; that it lands is waited for where its block is met.
Tiles that do not use all of their room go through loops of their own: the names of such steps end in `_ragged`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .cuts import LANES, MMA, busiest_rows, full, passes, row_parts, uneven, unsized, whole, words_of_lanes
from .machine import Block, Tile
from .shapes import product
from .watchers import Watcher

MEASURED_WARPS = {"tensor": 4, "simt": 8}  # of a block among many (gpu/step_rates.py)
OUTPUT = "_output"  # after the name of a product: the words of its output, which it reads and writes in shared memory
MEASURED_TURNS = {"tensor": 2, "simt": 1}  # of a step on rows: a warp has 8 rows of 64 words at a time

# SIMT operations a word of each argument, from the text of the step: online_softmax (Dao 2023, Algorithm 1, lines 9
# and 10) takes for each score a maximum, a multiply-add before the exponential, a sum and a conversion, and rescales O.
OPERATIONS: dict[str, tuple[int, ...]] = {"scores": (1,), "online_softmax": (4, 0, 0, 1), "softmax_rows": (5,)}
UNDER_WAY = 6  # requests of a warp that copies single words: its loop is unrolled, and two meet in a line of the L2
RAGGED = "_ragged"  # after the name of a step on a tile whose room is not all in use: in a loop of its own
UNSIZED = "_unsized"  # after the name of a product or a step on rows in a loop whose sizes the compiler does not know
ROW_STEPS = ("online_softmax", "softmax_rows", "add_maximum_and_sum", "add_maximum", "add_sum")
LOOPED_STEPS = (*ROW_STEPS, "exponentials")  # take longer in a loop than repeated by themselves, as products do
# Those that take as long for 16 bytes, whatever their words; they were measured on words of 4 bytes.
OF_PIECES, MEASURED_BYTES = ("normalise", "denormalise", "rescale", "zeros", "minus_infinity"), 4
FILLS = ("zeros", "minus_infinity")
EXPONENTIALS = ("online_softmax", "softmax_rows")


@dataclass(frozen=True)
class Occupancy:
    """How a launch sits on the GPU: blocks a multiprocessor, warps a block; whether it loads ahead of its arithmetic,
    and whether its products are asynchronous (wgmma); its unit; whether it was generated from a text, step by step."""

    blocks_per_sm: int
    loads_ahead: bool = False
    tensor_cores: bool = True
    warps: int = 4
    asynchronous: bool = False
    generated: bool = True

    @property
    def kind(self) -> str:
        return "tensor" if self.tensor_cores else "simt"


@dataclass
class Work:
    """What one block does. `operations` are SIMT instructions of one lane (a multiply-add is one). By name of a step:
    `steps` holds the work, `chain` what it would be if all warps had as much as the busiest, and products that are
    narrow as many under way as others; `times` the number. `waits`: for loads; `first_bytes` are loaded before the
    first step on them, `last_bytes` stored after the last one; `stalls`: where loads go through registers, which wait
    for them on the spot, all that have no step between them at once."""

    flops: int = 0
    operations: int = 0
    exponentials: int = 0
    loads: int = 0
    waits: float = 0
    load_bytes: int = 0
    first_bytes: int = 0
    store_bytes: int = 0
    last_bytes: int = 0
    stalls: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    chain: Counter[str] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=dict)

    def add(self, step: str, work: Any, times: float = 1, chain: Any = None) -> None:
        self.steps[step] += work
        self.chain[step] += work if chain is None else chain
        self.times[step] = self.times.get(step, 0) + times


@dataclass
class Works(Watcher):
    """The work of each block of each launch, of one head. For a machine that knows its `block`. `sits`: of the
    launches; one that is not given is on tensor cores."""

    sits: Sequence[Occupancy] = ()
    machine: Any = None
    launches: list[dict[int, Work]] = field(default_factory=lambda: [{}])
    copies: set[Block] = field(default_factory=set)  # that are under way
    stalled: bool = False  # a load was waited for, and no step since
    seen: Counter[Any] = field(default_factory=Counter)  # key tiles, by block and first row

    def start(self, machine: Any) -> None:
        self.machine = machine

    def launch_ended(self) -> None:
        self.launches.append({})
        self.seen.clear()
        self.copies.clear()
        self.stalled = False

    @property
    def blocks(self) -> list[list[Work]]:
        """For each launch the blocks of one head, in grid order."""
        return [[work for _, work in sorted(launch.items())] for launch in self.launches if launch]

    @property
    def here(self) -> Work:
        return self.launches[-1].setdefault(self.machine.block, Work())

    @property
    def sit(self) -> Occupancy:
        number = sum(map(bool, self.launches[:-1]))
        return self.sits[number] if number < len(self.sits) else Occupancy(1)

    # ------------------------------------------------------------------ copies

    def load(self, block: Block, tensor: str, words: Any) -> None:
        if not words:
            return
        here, (hbm, sram) = self.here, self._widths(tensor)
        vector, aligned = len(block.shape) == 1, self._aligned(tensor)
        here.loads += 1
        here.load_bytes += words * hbm
        name = "load_l" if vector else "load" if aligned and hbm == sram else "load_O" if aligned else "load_scalar"
        if name == "load":  # nothing is converted on the way: asynchronous
            self.copies.add(block)
            self.stalled = False
        elif not self.stalled:
            here.waits += 1
            here.stalls += 1
            self.stalled = True
        if name == "load_scalar":
            here.waits += words / LANES / self.sit.warps / UNDER_WAY
        elif name == "load_O" and not self._is_whole(block):  # each turn of its loop over pieces waits for itself
            turns = -(-self._room(block) * hbm // 16 // (LANES * self.sit.warps))
            here.waits += turns - 1
            here.stalls += turns - 1
        if name == "load" and not self._is_whole(block):
            tensor_cores = self.sit.tensor_cores  # which want the margins filled, too
            moved = (self._room(block) if tensor_cores else words) * hbm
            here.add(name + RAGGED, moved, 0, moved * (1 if tensor_cores else self._busiest(block)))
        else:
            here.add(name, words * hbm, times=name != "load")

    def store(self, block: Block, tensor: str, words: Any) -> None:
        moved = words * self._widths(tensor)[0]
        self.here.store_bytes += moved
        self.here.last_bytes += moved
        name = "store" + self._ragged(block)
        self.here.add(name if self._aligned(tensor) else "store_scalar", moved, chain=moved * self._busiest(block))

    def _aligned(self, tensor: str) -> bool:
        """Whether rows start at 16 bytes: else they are copied word by word."""
        return bool(self.machine.p.shape(self.machine.tensors[tensor])[-1] * self._widths(tensor)[0] % 16 == 0)

    def _widths(self, tensor: str) -> tuple[int, int]:
        """Bytes of a word in HBM, and on chip."""
        p, kind = self.machine.p, self.machine.tensors[tensor]
        return p.hbm_bytes(kind), p.sram_bytes(kind)

    def _wait(self, blocks: list[Block]) -> None:
        """A copy is waited for where its block is first met; the others that are under way have landed then, and all
        where loads through registers were waited for after them."""
        if any((block.base or block) in self.copies for block in blocks):
            if not self.stalled:
                self.here.waits += 1
                self.here.add("load", 0)
            self.copies.clear()

    def _room(self, block: Block) -> int:
        """Words of a block of a kernel: on tensor cores whole tiles of 16, whose margins are filled."""
        step = MMA if self.sit.tensor_cores else 1
        return int(product(-(-full(x) // step) * step if isinstance(x, Tile) else x for x in block.shape))

    def _ragged(self, block: Block) -> str:
        """What comes after the name of a step."""
        return "" if len(block.shape) == 1 or self._is_whole(block) else RAGGED

    def _is_whole(self, block: Block) -> bool:
        """Whether all of the room is in use. Copies of other tiles take a turn of a loop for each piece of 16 bytes."""
        return self._room(block) == product(x.size if isinstance(x, Tile) else x for x in block.shape)

    # ------------------------------------------------------------------ steps

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        name = getattr(step, "__name__", "")
        self._wait([x for x in (*outputs, *inputs) if isinstance(x, Block)])
        self.stalled = False
        if name not in FILLS:
            self.here.first_bytes = self.here.first_bytes or self.here.load_bytes
            self.here.last_bytes = 0
        self._units(name, outputs, flops)
        if flops:
            self._product(name, outputs[0], inputs, flops)
        elif not (name == "hide" and inputs[0].array().all()):  # a tile in which nothing is hidden is left alone
            self._go_over(name, outputs, inputs)
        if name == "online_softmax":
            self._rescale(outputs[0], outputs[-1])

    def _go_over(self, name: str, outputs: tuple[Any, ...], inputs: tuple[Any, ...]) -> None:
        """Every word of a tile: of the first output, or of what is reduced to it where that is a vector. Steps on rows
        take turns, in which a warp has some rows at a time, and lanes beyond the row only wait."""
        blocks = [x for x in (*outputs, *inputs) if isinstance(x, Block)]
        tile = next((x for x in blocks if len(x.shape) > 1), outputs[0])
        how = self._ragged(tile) + (UNSIZED if name in LOOPED_STEPS and unsized(*blocks) else "")
        at_once, columns = row_parts(tile, self._words_together(tile)) if name in ROW_STEPS else (1, 1)
        rows, busiest = self.machine.total(tile.shape[:1]), self._busiest(tile, at_once)
        if name in ROW_STEPS:
            turns = max(1.0, rows / at_once / self.sit.warps / MEASURED_TURNS[self.sit.kind])
            self.here.add(name + how, rows * columns, turns, rows * columns * busiest)
            return
        words = rows * product(full(x) for x in tile.shape[1:])  # all pieces of a row take turns
        if name in FILLS:  # all of the room
            how, words, busiest = "", self._room(tile), uneven(tile, self.sit.warps, self.sit.tensor_cores)
        words *= self._width(tile) / MEASURED_BYTES if name in OF_PIECES else 1
        self.here.add(name + how, words, chain=words * busiest)

    def _busiest(self, block: Block, at_once: int = 1) -> float:
        """What the warp with most rows has of a block, over an even share."""
        warps, rows = self.sit.warps, self.machine.total(block.shape[:1])
        return busiest_rows(block, warps, self.sit.tensor_cores, at_once) * warps / rows

    def _width(self, block: Block) -> int:
        return int(self.machine.p.sram_bytes(block.tensor))

    def _words_together(self, block: Block) -> int:
        """Words that a thread reads at once: those of 16 bytes, where rows are made of them."""
        width = self._width(block)
        return 1 if full(block.shape[1]) * width % 16 else 16 // width

    def _units(self, name: str, outputs: tuple[Any, ...], flops: Any) -> None:
        """Operations and exponentials; a kernel that loads ahead has ragged tiles in registers, and computes all."""
        words = [self.machine.total(block.shape) for block in outputs]
        if self.sit.loads_ahead:
            ratios = [whole(1, block) for block in outputs]
            words = [n * up // down for n, (up, down) in zip(words, ratios, strict=True)]
        per_word = OPERATIONS.get(name, () if flops else (1,) * len(outputs))
        self.here.operations += sum(n * w for n, w in zip(per_word, words, strict=False))
        self.here.exponentials += words[0] if name in EXPONENTIALS else 0

    def _product(self, name: str, output: Block, inputs: tuple[Any, ...], flops: int) -> None:
        """A product as it is computed; its output is read and written in every pass over the keys that are held."""
        here, sit, words = self.here, self.sit, self.machine.total(output.shape)
        name, narrow = name if name == "scores" else "accumulate", 1
        if sit.tensor_cores:
            up, down = whole(1 if sit.loads_ahead else MMA, output, *inputs)
            flops = flops * up // down
            narrow = 2 if full(output.shape[-1]) % (2 * MMA) else 1  # half as many products are under way
            words = product(-(-full(x) // MMA) * MMA for x in output.shape)
            words *= passes(full(inputs[0].shape[-1])) if name == "accumulate" else 1
            chain = narrow * flops
        else:
            busy, waited = words_of_lanes(output, name == "scores", sit.warps)
            flops, chain = flops * busy // words, flops * waited * uneven(output, sit.warps, False) // words
        here.flops += flops
        sizes = UNSIZED if unsized(output, *inputs) else ""
        here.add(name + sizes, flops, chain=chain)
        here.add(name + OUTPUT + sizes, words, 0, words * uneven(output, sit.warps, sit.tensor_cores))

    def _rescale(self, scores: Block, output: Block) -> None:
        """O is rescaled where a maximum grows: in a row, among j tiles in any order, with the j-th at odds of 1 / j; a
        warp does it where one of the rows that it has at a time needs it."""
        row = self.machine.block, getattr(scores.shape[0], "start", 0)
        self.seen[row] += 1
        odds = 1 - (1 - 1 / self.seen[row]) ** row_parts(scores, self._words_together(scores))[0]
        words = self.machine.total(output.shape) * self._width(output) / MEASURED_BYTES
        self.here.add("rescale", odds * words, odds, odds * words * self._busiest(scores))
