"""THE FILE TO READ FIRST. A schedule is one plain function; a machine decides what its six primitives do.

    def text(chip, p, t):                          # chip: a Machine, p: the problem, t: the tiling
        for i in chip.tiles(p.N, t.rows_q):        # a loop over tiles
            q = chip.load("Q", i)                  # HBM -> SRAM, counted as a read
            o = chip.compute("O", (i, p.dv), step, q)   # a new block in SRAM
            chip.update(o, step, q)                # in place, no new words
            chip.store(o, "O", i)                  # SRAM -> HBM, counted as a write
                                                   # free(block): earlier than the end of the loop body

This machine visits every tile (`unrolled`) and carries no values. `folded.py` visits every loop body once, with the
sums of all its tiles; `numeric.py` carries arrays. Watchers (`watchers.py`) see the same events from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from . import mistakes
from .errors import IosimError, ScheduleError
from .problem import TENSORS, Attention


class Tile:
    """`size` consecutive positions of an axis of `length`, from `start`: what one turn of a loop works on."""

    __slots__ = ("index", "length", "size", "start")

    def __init__(self, length: Any, size: Any, start: int, index: int):
        self.length, self.size, self.start, self.index = length, size, start, index

    @property
    def extent(self) -> Any:
        """The room that the tile takes in SRAM."""
        return self.size


class Block:
    """A tile in SRAM. `shape` holds tiles and numbers; `block[tile]` is a part of it, without new words."""

    __slots__ = ("alive", "base", "depth", "name", "shape", "tensor", "value")

    def __init__(self, name: str, shape: tuple[Any, ...], tensor: Any, depth: int, base: Block | None = None):
        self.name, self.shape, self.tensor, self.depth, self.base = name, shape, tensor, depth, base
        self.alive = True
        self.value: Any = None

    def __getitem__(self, tile: Tile) -> Block:
        return Block(self.name, (tile, *self.shape[1:]), self.tensor, self.depth, self.base or self)

    @property
    def words(self) -> Any:
        """Room in SRAM."""
        return product(x.extent if isinstance(x, Tile) else x for x in self.shape)


class Machine:
    """Visits every tile, and tells its watchers. `run` is the only door: it may be used once."""

    folded = False

    def __init__(self, problem: Attention, *watchers: Any):
        self.problem, self.watchers = problem, watchers
        self._resident: dict[Block, None] = {}
        self._depth = 0
        self._broken = ""

    def run(self, schedule: Any, tiling: Any) -> Self:
        """Run a Schedule (or a bare text) and check that it left nothing behind."""
        self.tensors = {**TENSORS, **getattr(schedule, "tensors", {})}
        self.p = self.problem.tiled(tiling, getattr(schedule, "skips", True))
        for watcher in self.watchers:
            watcher.start(self)
        self._read(getattr(schedule, "text", schedule), tiling)
        self._check()
        if self._resident:
            names = ", ".join(block.name for block in self._resident)
            raise ScheduleError(f"blocks left in SRAM at the end: {names}; free them")
        return self

    def _read(self, text: Callable[..., None], tiling: Any) -> None:
        try:
            text(self, self.p, tiling)
        except Exception as error:
            if mistakes.ours(text) or (isinstance(error, IosimError) and not isinstance(error, ScheduleError)):
                raise
            raise mistakes.as_schedule_error(error, text) from error

    # ------------------------------------------------------------------ the six primitives

    def tiles(self, length: Any, size: Any, where: Any = None, parallel: bool = False) -> Iterator[Any]:
        """Tiles of at most `size` positions of an axis. `where`: only the active ones of a line of the mask.
        `parallel` claims that the turns are independent. What a turn makes dies with it."""
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

    def load(self, tensor: str, *tiles: Any, where: Any = None) -> Block:
        """HBM -> SRAM. Missing trailing tiles mean the whole axis; `where`: only if that line is not empty."""
        block = self._allocate(tensor, self._shape_of(tensor, tiles))
        words = self.total(block.shape, where)
        for watcher in self.watchers:
            watcher.load(block, tensor, words)
        self._fetch(block, tensor, where)
        return block

    def compute(self, name: str, shape: tuple[Any, ...], step: Callable[..., None], *inputs: Any) -> Block:
        """A new block in SRAM, filled by a step."""
        block = self._allocate(name, shape)
        self._apply(step, (block,), inputs)
        return block

    def update(self, blocks: Block | tuple[Block, ...], step: Callable[..., None], *inputs: Any) -> None:
        """Change blocks in place. An input that is None (the part of a dense mask) leaves nothing to do."""
        if all(x is not None for x in inputs):
            self._apply(step, blocks if isinstance(blocks, tuple) else (blocks,), inputs)

    def store(self, block: Block, tensor: str, *tiles: Any) -> None:
        """SRAM -> HBM."""
        self._check(block)
        shape = self._shape_of(tensor, tiles)
        if len(shape) != len(block.shape) or not all(map(same, shape, block.shape)):
            raise ScheduleError(f"block {block.name} has not the shape of {tensor}{describe(shape)}")
        words = self.total(shape)
        for watcher in self.watchers:
            watcher.store(block, tensor, words)
        self._put(block, tensor)

    def free(self, *blocks: Block) -> None:
        """Give the room back before the end of the loop body."""
        self._check(*blocks)
        self._release(list(blocks))
        self._end_of_launch()

    # ------------------------------------------------------------------ what other machines replace

    def _walk(self, length: Any, size: Any, where: Any, parallel: bool) -> Iterator[Any]:
        start, total = (length.start, length.size) if isinstance(length, Tile) else (0, length)
        axis = length.length if isinstance(length, Tile) else length
        for index, offset in enumerate(range(0, total, size)):
            tile = Tile(axis, min(size, total - offset), start + offset, index)
            if where is None or where.active(tile):
                yield tile

    def total(self, shape: tuple[Any, ...], where: Any = None) -> Any:
        """Words of this shape that move in all the visits that this one stands for."""
        if where is not None and not where.any:
            return 0
        return product(x.size if isinstance(x, Tile) else x for x in shape)

    def _fetch(self, block: Block, tensor: str, where: Any) -> None: ...

    def _put(self, block: Block, tensor: str) -> None: ...

    def _apply(self, step: Callable[..., None], outputs: tuple[Block, ...], inputs: tuple[Any, ...]) -> None:
        self._check(*outputs, *inputs)
        factors = getattr(step, "flops", None)
        flops = self.total(factors(*(x.shape for x in (*outputs, *inputs)))) if factors else 0
        for watcher in self.watchers:
            watcher.step(step, outputs, inputs, flops)

    # ------------------------------------------------------------------ bookkeeping

    def _allocate(self, name: str, shape: tuple[Any, ...]) -> Block:
        self._check()
        block = Block(name, tuple(shape), self.tensors.get(name), self._depth)
        self._resident[block] = None
        for watcher in self.watchers:
            watcher.allocate(block)
        return block

    def _release(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.alive = False
            del self._resident[block]
            for watcher in self.watchers:
                watcher.free(block)

    def _shape_of(self, tensor: str, tiles: tuple[Any, ...]) -> tuple[Any, ...]:
        if tensor not in self.tensors:
            raise ScheduleError(f"tensor {tensor!r} is unknown; known: {', '.join(self.tensors)}")
        axes = self.p.shape(self.tensors[tensor])
        if len(tiles) > len(axes):
            raise ScheduleError(f"{tensor} has {len(axes)} axes; {len(tiles)} tiles were given")
        for tile, axis in zip(tiles, axes, strict=False):
            if not isinstance(tile, Tile):
                raise ScheduleError(f"{tensor} is indexed by tiles of chip.tiles, not by {tile!r}")
            if not same(tile.length, axis):
                raise ScheduleError(f"a tile of an axis of {tile.length} cannot index {tensor}'s axis of {axis}")
        return (*tiles, *axes[len(tiles) :])

    def _check(self, *blocks: Any) -> None:
        if self._broken:
            raise ScheduleError(self._broken)
        for block in blocks:
            if isinstance(block, Block) and not (block.base or block).alive:
                raise ScheduleError(f"block {block.name} is used after it was freed")

    def _end_of_launch(self) -> None:
        """Outside all loops with empty SRAM nothing lives on: there a kernel may end."""
        if self._depth == 0 and not self._resident:
            for watcher in self.watchers:
                watcher.launch_ended()


def product(factors: Any) -> Any:
    """Of any number of factors; arrays are not multiplied by 1 first."""
    result: Any = None
    for factor in factors:
        result = factor if result is None else result * factor
    return 1 if result is None else result


def same(a: Any, b: Any) -> bool:
    """Whether two dimensions are the same: the same tile, or the same length (numbers or arrays)."""
    if a is b:
        return True
    if isinstance(a, Tile) or isinstance(b, Tile):
        return False
    equal = a == b
    return equal if isinstance(equal, bool) else bool(equal.all())


def describe(shape: tuple[Any, ...]) -> str:
    return "(" + ", ".join("tile" if isinstance(x, Tile) else str(x) for x in shape) + ")"
