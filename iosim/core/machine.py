"""THE FILE TO READ FIRST. A schedule is one plain function; a machine decides what its six primitives do.

    def schedule(chip, p, t):                      # chip: a Machine, p: the problem, t: the tiling
        for i in chip.tiles(p.N, t.rows_q):        # a loop over tiles
            q = chip.load("Q", i)                  # HBM -> SRAM, counted as a read
            o = chip.compute("O", (i, p.dv), step, q)   # a new block in SRAM
            chip.update(o, step, q)                # in place, no new words
            chip.store(o, "O", i)                  # SRAM -> HBM, counted as a write
                                                   # chip.free(q): before the end of the loop body

This machine visits every tile and carries no values. `core/folded.py` visits every loop body once, for all of its
tiles. `core/numeric.py` carries arrays. Watchers (`core/watchers.py`) see the same events from all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeAlias, cast

from ..errors import ScheduleError
from . import blame
from .problem import TENSORS, Attention, Tensor, skips_tiles
from .shapes import Tile, described, product, selected, stored_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from .mask_types import MaskLine
    from .shapes import Own, Shape, Visits
    from .tiling import Tiling
    from .typing import Array, Size, Step, Values

    Input: TypeAlias = "Block | Values"
    """An input of a step."""
    ScheduleText = Callable[["Machine", Attention, Tiling], None]
    """The function of a schedule, written for one problem. `Folded` runs it for arrays of problems too."""

    class ScheduleLike(Protocol):
        """The fields of a Schedule that machines and searches read. schedules/registry.py says what they mean."""

        @property
        def text(self) -> ScheduleText: ...

        @property
        def outer(self) -> str: ...

        @property
        def skips(self) -> bool: ...

        @property
        def tensors(self) -> Mapping[str, Tensor]: ...

        def __hash__(self) -> int: ...


EVENTS = ("load", "store", "allocate", "free", "step", "launch_ended")


class Block:
    """Words in SRAM. `shape` holds tiles and lengths. `block[tile]` is a part of the block and takes no more SRAM.

    `own` and `sender` are those of the load or store that is under way (`Machine.load`).
    """

    __slots__ = ("alive", "base", "depth", "name", "own", "sender", "shape", "tensor", "value")

    def __init__(self, name: str, shape: Shape, tensor: Tensor | None, depth: int, base: Block | None = None):
        self.name, self.shape, self.tensor, self.depth, self.base = name, shape, tensor, depth, base
        self.alive = True
        self.own: Own = False
        self.sender: Tile | None = None
        self.value: Array | None = None

    def __getitem__(self, tile: Tile) -> Block:
        return Block(self.name, (tile, *self.shape[1:]), self.tensor, self.depth, self.base or self)

    @property
    def words(self) -> Size:
        """The words that the block takes in SRAM."""
        return product([x.extent if isinstance(x, Tile) else x for x in self.shape])


class Machine:
    """Visits every tile and tells its watchers. Call `run` once. A schedule that breaks a rule gets a ScheduleError."""

    folded = False

    def __init__(self, problem: Attention[Size], *watchers: Watcher):
        self.problem, self.watchers = problem, watchers
        self._at_load, self._at_store = hearing("load", watchers), hearing("store", watchers)
        self._at_allocate, self._at_free = hearing("allocate", watchers), hearing("free", watchers)
        self._at_step, self._at_end = hearing("step", watchers), hearing("launch_ended", watchers)
        self._resident: dict[Block, None] = {}
        self._axes: dict[str, tuple[Size, ...]] = {}
        self._depth = 0
        self._broken = ""
        self.adds = frozenset[str]()
        """The tensors that change by atomic adds only, so that iterations of a parallel loop may share them."""

    def run(self, schedule: ScheduleLike | ScheduleText, tiling: Tiling[Size]) -> Self:
        """Run a Schedule, or the function of one, and return this machine. ScheduleError if a block is never freed."""
        self.tensors: dict[str, Tensor] = {**TENSORS, **getattr(schedule, "tensors", {})}
        self.adds = frozenset[str](getattr(schedule, "adds", ()))
        self.p = self.problem.tiled(tiling, skips_tiles(schedule, self.problem))
        for watcher in self.watchers:
            watcher.start(self)
        text = cast("ScheduleText", getattr(schedule, "text", schedule))
        blame.read_text(text, self, cast("Attention", self.p), cast("Tiling", tiling))
        self._check()
        if self._resident:
            names = ", ".join(block.name for block in self._resident)
            raise ScheduleError(f"blocks left in SRAM at the end: {names}; free them")
        return self

    # ------------------------------------------------------------------ the six primitives

    def tiles(
        self, length: Size | Tile, size: Size, where: MaskLine | None = None, parallel: bool = False
    ) -> Iterator[Tile]:
        """Tiles of at most `size` positions of an axis; with `where`, only the active tiles of that line of the mask.
        `parallel` claims that the iterations are independent. Blocks that an iteration makes are freed at its end."""
        self._check()
        for tile in self._walk(length, size, where, parallel):
            self._depth += 1
            try:
                yield tile
            except GeneratorExit:
                self._broken = "a loop over tiles was left by break or return; let it run out"
                raise
            self._release([block for block in self._resident if block.depth == self._depth])
            self._depth -= 1
        self._end_of_launch()

    def load(
        self,
        tensor: str,
        *tiles: Tile,
        where: MaskLine | None = None,
        own: Own = False,
        sender: Tile | None = None,
    ) -> Block:
        """A new block, read from HBM. Axes without a tile are whole. Nothing is read if the line `where` is empty.

        Where the fast memory is that of a GPU among others, `own` says that the words lie there already: all of them,
        or those that a tuple of tiles selects. They take room, and do not move. An empty tuple says that words come
        although they lie here. `sender` is the GPU that the words come from, if it is not the one that has them at
        home.
        """
        block = self._allocate(tensor, self.shape_of(tensor, tiles))
        block.own, block.sender = own, sender
        words = self._moving(tensor, block.shape, where, own)
        for watcher in self._at_load:
            watcher.load(block, tensor, words)
        self._fetch(block, tensor, where)
        return block

    def compute(self, name: str, shape: Shape, step: Step, *inputs: Input) -> Block:
        """A new block in SRAM, filled by a step."""
        block = self._allocate(name, shape)
        self._apply(step, (block,), inputs)
        return block

    def update(self, blocks: Block | tuple[Block, ...], step: Step, *inputs: Input | None) -> None:
        """Change blocks in place. If an input is None (the part of a dense mask), nothing is done."""
        given = tuple(x for x in inputs if x is not None)
        if len(given) == len(inputs):
            self._apply(step, blocks if isinstance(blocks, tuple) else (blocks,), given)

    def store(self, block: Block, tensor: str, *tiles: Tile, own: Own = False) -> None:
        """Write a block to HBM, into the part of a tensor that the tiles select. Both must have the same shape, or a
        tile of the block is `Moved` there, as that of a state is into one of many slots. With `own` the words stay in
        this GPU's memory, as those of `load`."""
        self._check(block)
        shape = self.shape_of(tensor, tiles)
        if len(shape) != len(block.shape) or not all(map(stored_at, shape, block.shape)):
            raise ScheduleError(f"block {block.name} has not the shape of {tensor}{described(shape)}")
        block.own, words = own, self._moving(tensor, shape, None, own)
        own_shape, block.shape = block.shape, shape  # those who watch see where it lies
        for watcher in self._at_store:
            watcher.store(block, tensor, words)
        self._put(block, tensor)
        block.shape = own_shape

    def free(self, *blocks: Block) -> None:
        """Free blocks before the end of the loop body that made them."""
        self._check(*blocks)
        self._release(list(blocks))
        self._end_of_launch()

    # ------------------------------------------------------------------ what other machines replace

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        start, total = (length.start, length.size) if isinstance(length, Tile) else (0, length)
        axis = length.length if isinstance(length, Tile) else length
        lead = -total % size if isinstance(length, Tile) and length.from_end else 0
        offsets: Iterable[tuple[int, int]] = enumerate(range(-lead, total, size))
        if isinstance(length, Tile) and length.backwards:
            offsets = reversed([*offsets])
        for index, offset in offsets:
            first, stop = max(0, offset), min(offset + size, total)
            tile = Tile(axis, stop - first, start + first, index)  # type: ignore[arg-type]
            if where is None or where.active(tile):
                yield tile

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        """The words of a shape, summed over all visits that this one stands for."""
        if where is not None and not where.any:
            return 0
        return product(x.size if isinstance(x, Tile) else x for x in shape)

    def shape_of(self, tensor: str, tiles: tuple[Tile, ...]) -> Shape:
        """The shape of the part of a tensor that tiles select."""
        axes = self._axes.get(tensor)
        if axes is None:
            axes = self._axes[tensor] = axes_of(tensor, self.tensors, self.p)
        return selected(tensor, axes, tiles)

    def _moving(self, tensor: str, shape: Shape, where: MaskLine | None, own: Own) -> Size:
        """The words of a shape that move: those that do not lie here already."""
        if own is True:
            return 0
        words = self.total(shape, where)
        return words - self.total(self.shape_of(tensor, own)) if own else words

    def occurrences(self, *tiles: Tile) -> Visits:
        """What this event stands for: how often it happens, and with which sizes of these tiles."""
        return [(1, {tile: tile.size for tile in tiles})]

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None: ...

    def _put(self, block: Block, tensor: str) -> None: ...

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        self._check(*outputs, *inputs)
        if not self._at_step:
            return
        factors = getattr(step, "flops", None)
        shapes = [x.shape for x in (*outputs, *inputs) if isinstance(x, Block)] if factors else []
        flops = self.total(factors(*shapes)) if factors else 0
        for watcher in self._at_step:
            watcher.step(step, outputs, inputs, flops)

    # ------------------------------------------------------------------ bookkeeping

    def _allocate(self, name: str, shape: Shape) -> Block:
        if self._broken:
            raise ScheduleError(self._broken)
        block = Block(name, tuple(shape), self.tensors.get(name), self._depth)
        self._resident[block] = None
        for watcher in self._at_allocate:
            watcher.allocate(block)
        return block

    def _release(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.alive = False
            del self._resident[block]
            for watcher in self._at_free:
                watcher.free(block)

    def _check(self, *blocks: Input) -> None:
        if self._broken:
            raise ScheduleError(self._broken)
        for block in blocks:
            if isinstance(block, Block) and not (block.base or block).alive:
                raise ScheduleError(f"block {block.name} is used after it was freed")

    def _end_of_launch(self) -> None:
        """Report the end of a kernel launch if no loop is open and SRAM is empty."""
        if self._depth == 0 and not self._resident:
            for watcher in self._at_end:
                watcher.launch_ended()


class Watcher:
    """The base of all watchers. A machine calls its watchers at every event.

    Words and operations are exact integers (or arrays of them), of one head. An event of the folded machine stands for
    many visits, and its words are their sum.
    """

    hears: ClassVar[frozenset[str]] = frozenset()
    """The events at which a class does something. It is not called at others."""

    def __init_subclass__(cls) -> None:
        cls.hears = frozenset(name for name in EVENTS if getattr(cls, name) is not getattr(Watcher, name))

    def start(self, machine: Machine) -> None:
        """Called once, before the first event. `machine.p` is the problem with its mask bound to the tiles."""

    def load(self, block: Block, tensor: str, words: Size) -> None:
        """Called when `words` words of a tensor are read from HBM into a block."""

    def store(self, block: Block, tensor: str, words: Size) -> None:
        """Called when `words` words of a block are written to a tensor in HBM."""

    def allocate(self, block: Block) -> None:
        """Called when a block takes `block.words` in SRAM, before anything is loaded into it."""

    def free(self, block: Block) -> None:
        """Called when a block is freed and gives back its words of SRAM."""

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        """Called when a step writes its outputs. `flops` are the operations of its matrix product; 0 if it is none."""

    def launch_ended(self) -> None:
        """Called where a kernel may end: outside all loops, with nothing in SRAM."""


def axes_of(tensor: str, tensors: Mapping[str, Tensor], p: Attention[Size]) -> tuple[Size, ...]:
    """The lengths of a tensor's axes. Raises ScheduleError for an unknown tensor."""
    if tensor not in tensors:
        raise ScheduleError(f"tensor {tensor!r} is unknown; known: {', '.join(tensors)}")
    return p.shape(tensors[tensor])


def hearing(event: str, watchers: tuple[Watcher, ...]) -> list[Watcher]:
    """The watchers that do something at an event. One that is no `Watcher` does not say, and hears all of them."""
    return [watcher for watcher in watchers if event in getattr(watcher, "hears", (event,))]
