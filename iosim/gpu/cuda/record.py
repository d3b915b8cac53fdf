"""The symbolic walk of a schedule: each launch becomes a tree of statements, with every loop body once.

Nothing is computed. The sizes of one problem are known; where a tile lies is known only while a kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.machine import Block, Machine
from ...core.shapes import Tile
from ...errors import ScheduleError

if TYPE_CHECKING:
    from ...core.machine import Input
    from ...core.mask_types import MaskLine
    from ...core.problem import Attention
    from ...core.shapes import Shape
    from ...core.typing import Size
    from ...core.typing import Step as TileStep


class SymbolicTile(Tile):
    """A tile of a loop that a kernel will run, over an axis of `length` or over a `parent` tile.

    `step` is the size of all tiles but the last. `extent` is the most positions that one has: less than `step` if the
    axis is shorter. `depth` counts the loops around it. A schedule that asks for its place or its size gets a
    ScheduleError.
    """

    __slots__ = ("_extent", "depth", "parent", "step")

    def __init__(self, length: int, step: int, extent: int, parent: Tile | None, depth: int):
        self.length, self.step, self._extent, self.parent, self.depth = length, step, extent, parent, depth

    @property
    def extent(self) -> int:
        return self._extent

    @property
    def lead(self) -> int:
        """The positions that the first tile lacks, if tiles end at the end of the axis."""
        return -int(self.length) % self.step

    def __getattribute__(self, name: str) -> object:
        if name in ("index", "start", "size"):
            raise ScheduleError(f"this schedule looks at a tile's {name}, which a kernel only knows while it runs")
        return object.__getattribute__(self, name)


@dataclass(eq=False)
class LoopNode:
    """A loop: `body` for every tile of an axis; with `where`, only for the active tiles of that line of the mask."""

    tile: SymbolicTile
    where: MaskLine | None
    parallel: bool
    body: Body = field(default_factory=list)


@dataclass(eq=False)
class NewNode:
    """A block comes into SRAM."""

    block: Block


@dataclass(eq=False)
class FreeNode:
    """A block leaves SRAM."""

    block: Block


@dataclass(eq=False)
class LoadNode:
    """HBM -> SRAM; `where`: only if that line of the mask is not empty."""

    block: Block
    tensor: str
    where: MaskLine | None

    @property
    def place(self) -> Shape:
        """Where the words lie in the tensor."""
        return self.block.shape


@dataclass(eq=False)
class StoreNode:
    """SRAM -> HBM. `place` says where the words go in the tensor: a tile of the block may be moved there."""

    block: Block
    tensor: str
    place: Shape
    adds: bool = False
    """Whether it stands for atomic adds."""


@dataclass(eq=False)
class StepNode:
    """A step changes its outputs."""

    step: TileStep
    outputs: tuple[Block, ...]
    inputs: tuple[Input, ...]

    @property
    def arguments(self) -> tuple[Input, ...]:
        """All arguments, outputs first: the order in which the step takes them."""
        return (*self.outputs, *self.inputs)


Statement = LoopNode | NewNode | FreeNode | LoadNode | StoreNode | StepNode
Body = list[Statement]
"""The statements of a launch or of a loop, in order."""


class Recorder(Machine):
    """Keeps the statements of each launch in `launches`. Takes no watchers, because it visits no tile."""

    def __init__(self, problem: Attention):
        super().__init__(problem)
        self.launches: list[Body] = []
        self._body: Body = []

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        parent = length if isinstance(length, Tile) else None
        axis, extent = map(int, (length.length, length.extent) if isinstance(length, Tile) else (length, length))
        if extent == 0:
            return  # a part of an axis that is empty for these sizes
        size = int(size)
        loop = LoopNode(SymbolicTile(axis, size, min(size, extent), parent, self._depth), where, parallel)
        self._body.append(loop)
        outer, self._body = self._body, loop.body
        yield loop.tile
        self._body = outer

    def total(self, shape: Shape, where: MaskLine | None = None) -> int:
        return 0

    def _allocate(self, name: str, shape: Shape) -> Block:
        block = super()._allocate(name, shape)
        self._body.append(NewNode(block))
        return block

    def _release(self, blocks: list[Block]) -> None:
        self._body += [FreeNode(block) for block in blocks]
        super()._release(blocks)

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None:
        self._body.append(LoadNode(block, tensor, where))

    def _put(self, block: Block, tensor: str) -> None:
        self._body.append(StoreNode(block, tensor, block.shape, tensor in self.adds))

    def _apply(self, step: TileStep, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        self._check(*outputs, *inputs)
        self._body.append(StepNode(step, outputs, inputs))

    def _end_of_launch(self) -> None:
        if self._depth == 0 and not self._resident and self._body:
            self.launches.append(self._body)
            self._body = []


def statements(body: Body) -> Iterator[Statement]:
    """All statements of a launch, each loop before its body."""
    for node in body:
        yield node
        if isinstance(node, LoopNode):
            yield from statements(node.body)
