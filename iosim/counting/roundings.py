"""Where a schedule of attention rounds, found by watching it: the baseline of its output error rounds there as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..core.folded import Folded
from ..core.machine import Block, Tile
from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..core.watchers import Traffic, Watcher

if TYPE_CHECKING:
    from ..core.typing import Input, Size, Step
    from ..schedules import Schedule


class Roundings(NamedTuple):
    """Where a schedule rounds. It is the same for every mask."""

    travels: set[str]
    """The tensors that it both stores and loads."""
    divided: bool
    """Whether it divides tiles of scores by their sums before the product with V, instead of O after it."""
    keys: int
    """The keys after which O is rounded: the rows of the smallest tile of V in a product."""
    sums: int
    """The keys after which the sums of rows are rounded: the smallest tile of scores that l is updated with."""
    depth: int
    """The products after which a score is rounded: the smallest part of d that is added to scores."""


class Products(Watcher):
    """A watcher of the steps that use scores: how they divide, and how many keys one product takes."""

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
    """The positions of an axis of a block, in a run for one problem."""
    return int(axis.extent if isinstance(axis, Tile) else axis)


def roundings(schedule: Schedule, problem: Attention, tiling: Tiling) -> Roundings:
    """Where a schedule of attention rounds with these tiles."""
    traffic, products = Traffic(), Products()
    Folded(replace(problem, mask=DENSE), traffic, products).run(schedule, tiling)
    travels = {name for name, (reads, writes) in traffic.tensors.items() if reads and writes}
    keys = min(products.keys, default=min(tiling.rows_k, problem.Nk))
    sums, depth = min(products.sums, default=problem.Nk), min(products.depth, default=problem.d)
    return Roundings(travels, products.divided, keys, sums, depth)
