"""Notes on tiles that tensor cores cannot use as they are, and on the options that find others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.folded import Unsummed
from ..core.machine import Block, Tile
from ..core.problem import with_mask
from ..core.tiling import MMA, Tiling
from ..core.watchers import Watcher
from ..schedules import SCHEDULES
from .sentence import joined

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from ..core.problem import Attention
    from ..core.typing import Input, Size, Step

    class Found(Protocol):
        """A schedule with the rule that chose its tiles, and their sizes."""

        @property
        def schedule(self) -> str: ...

        @property
        def tiling(self) -> str: ...

        @property
        def Br(self) -> int | None: ...

        @property
        def Bc(self) -> int | None: ...


TENSOR_DTYPES = ("fp16", "bf16", "fp8")


class Products(Watcher):
    """The tiles along the sides of matrix products. A product with a single row is one of a vector: it is left out."""

    def __init__(self) -> None:
        self.sides: set[Tile] = set()

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        if getattr(step, "flops", None):
            tiles = {x for b in (*outputs, *inputs) if isinstance(b, Block) for x in b.shape if isinstance(x, Tile)}
            if all(tile.length != 1 for tile in tiles):
                self.sides |= tiles


def suits_tensor_cores(problem: Attention, schedule: str, Br: int, Bc: int) -> bool:
    """Whether each of Br and Bc is a multiple of 16 or covers its axis, where it is a side of a matrix product."""
    p, watcher = with_mask(problem.packed), Products()
    Unsummed(p, watcher).run(SCHEDULES[schedule], Tiling(Br, Bc))
    sizes = {tile.extent for tile in watcher.sides}
    return not any(size % MMA and size < axis and size in sizes for size, axis in ((Br, p.N), (Bc, p.Nk)))


def on_tensor_cores(p: Attention) -> bool:
    """Whether kernels compute the products of a problem on tensor cores: its type is one of theirs, and rows are long
    enough."""
    return p.dtype in TENSOR_DTYPES and min(p.d, p.dv) >= MMA


def tile_notes(found: Iterable[tuple[Attention, Found]], instead: str = "") -> list[str]:
    """A note if the best tiles of some problems are of no use to tensor cores, though these suit the problem; else
    nothing. `instead` names other options beside --tile-multiple."""
    odd = [
        f"{one.schedule} ({one.Br}x{one.Bc})"
        for problem, one in found
        if one.tiling == "best" and one.Br and one.Bc and on_tensor_cores(problem)
        and not suits_tensor_cores(problem, one.schedule, one.Br, one.Bc)
    ]  # fmt: skip
    if not odd:
        return []
    return [
        f"tensor cores take multiples of {MMA}, unlike the tiles of {joined(odd)}: try --tile-multiple {MMA}{instead}"
    ]
