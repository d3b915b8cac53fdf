"""The places where a schedule of attention rounds, found by watching a run. The error's baseline rounds there too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..core.folded import Folded
from ..core.machine import Block
from ..core.problem import DENSE, Attention
from ..core.shapes import Tile
from ..core.watchers import Traffic, Watcher

if TYPE_CHECKING:
    from ..core.machine import Input
    from ..core.tiling import Tiling
    from ..core.typing import Size, Step
    from ..schedules import Schedule


class Roundings(NamedTuple):
    """The places where a schedule rounds. They are the same for every mask."""

    travels: set[str]
    """The tensors that it both stores and loads."""
    divided: bool
    """Whether it divides tiles of scores by their sums before the product with V, instead of O after it."""
    tile: int
    """The number of keys after which O is rounded: the rows of the smallest tile of V in a product."""
    sums: int
    """The number of keys after which row sums are rounded: the columns of the smallest tile of scores that updates
    l."""
    depth: int
    """The number of products after which a score is rounded: the smallest part of d that is added to scores."""


class Products(Watcher):
    """A watcher of the steps that use scores: where they divide, and how many keys each product takes."""

    def __init__(self) -> None:
        self.divided = False
        self.keys: list[int] = []
        self.sums: list[int] = []
        self.depth: list[int] = []

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        name, shape = getattr(step, "__name__", ""), outputs[0].shape
        self.divided |= name == "normalise" and len(shape) == 2 and not isinstance(shape[-1], int)
        if name == "accumulate" and isinstance(inputs[-1], Block):
            self.keys.append(extent(inputs[-1].shape[0]))
        if name == "add_scores" and isinstance(inputs[-1], Block):
            self.depth.append(extent(inputs[-1].shape[-1]))
        blocks = {block.name: block for block in (*outputs, *inputs) if isinstance(block, Block)}
        if "S" in blocks and any(block.name == "l" for block in outputs):
            self.sums.append(extent(blocks["S"].shape[-1]))


def extent(axis: Tile | Size) -> int:
    """The number of positions of an axis of a block, in a run for one problem."""
    return int(axis.extent if isinstance(axis, Tile) else axis)


def roundings(schedule: Schedule, problem: Attention, tiling: Tiling) -> Roundings:
    """The places where a schedule of attention rounds with these tiles."""
    traffic, products = Traffic(), Products()
    Folded(replace(problem, mask=DENSE), traffic, products).run(schedule, tiling)
    travels = {name for name, (reads, writes) in traffic.tensors.items() if reads and writes}
    keys, sums, depth = (
        filter(None, some) for some in (products.keys, products.sums, products.depth)
    )  # not of no keys
    least = min(keys, default=min(tiling.rows_k, problem.Nk)), min(sums, default=problem.Nk)
    return Roundings(travels, products.divided, *least, min(depth, default=problem.d))
