"""The symbolic walk: every loop body once, kept as a tree of statements for each launch. Nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core.machine import Block, Machine, Tile
from ..errors import ScheduleError


class SymbolicTile(Tile):
    """A tile of a loop that a kernel will walk; `step` is its size where it is not the last."""

    __slots__ = ("_extent", "depth", "parent", "step")

    def __init__(self, length: Any, step: int, extent: int, parent: Tile | None, depth: int):
        self.length, self.step, self._extent, self.parent, self.depth = length, step, extent, parent, depth

    @property
    def extent(self) -> Any:
        return self._extent

    def __getattribute__(self, name: str) -> Any:
        if name in ("index", "start", "size"):
            raise ScheduleError(f"this schedule looks at a tile's {name}, which a kernel only knows while it runs")
        return object.__getattribute__(self, name)


@dataclass(eq=False)
class Loop:
    tile: SymbolicTile
    where: Any
    parallel: bool
    body: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class New:
    block: Block


@dataclass(eq=False)
class Free:
    block: Block


@dataclass(eq=False)
class Load:
    block: Block
    tensor: str
    where: Any


@dataclass(eq=False)
class Store:
    block: Block
    tensor: str


@dataclass(eq=False)
class Step:
    step: Callable[..., None]
    outputs: tuple[Block, ...]
    inputs: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (*self.outputs, *self.inputs)


class Recorder(Machine):
    """Keeps the statements of each launch in `launches`. Takes no watchers: it visits no tile."""

    def __init__(self, problem: Any):
        super().__init__(problem)
        self.launches: list[list[Any]] = []
        self._body: list[Any] = []

    def _walk(self, length: Any, size: Any, where: Any, parallel: bool) -> Iterator[Any]:
        parent = length if isinstance(length, Tile) else None
        axis, extent = (parent.length, parent.extent) if parent else (length, length)
        loop = Loop(SymbolicTile(axis, size, min(size, extent), parent, self._depth), where, parallel)
        self._body.append(loop)
        outer, self._body = self._body, loop.body
        yield loop.tile
        self._body = outer

    def total(self, shape: tuple[Any, ...], where: Any = None) -> Any:
        return 0

    def _allocate(self, name: str, shape: tuple[Any, ...]) -> Block:
        block = super()._allocate(name, shape)
        self._body.append(New(block))
        return block

    def _release(self, blocks: list[Block]) -> None:
        self._body += [Free(block) for block in blocks]
        super()._release(blocks)

    def _fetch(self, block: Block, tensor: str, where: Any) -> None:
        self._body.append(Load(block, tensor, where))

    def _put(self, block: Block, tensor: str) -> None:
        self._body.append(Store(block, tensor))

    def _apply(self, step: Callable[..., None], outputs: tuple[Block, ...], inputs: tuple[Any, ...]) -> None:
        self._check(*outputs, *inputs)
        self._body.append(Step(step, outputs, inputs))

    def _end_of_launch(self) -> None:
        if self._depth == 0 and not self._resident and self._body:
            self.launches.append(self._body)
            self._body = []


def statements(body: list[Any]) -> Iterator[Any]:
    """All statements of a launch, loops before what is in them."""
    for node in body:
        yield node
        if isinstance(node, Loop):
            yield from statements(node.body)
