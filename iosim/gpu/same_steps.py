"""The slope of a kernel's outputs on those of the same run in NumPy, where every step rounds as the kernel does.

Both runs round in the same places, so their outputs are nearly equal to the bit. A factor that does not belong there
shows in the slope, however coarse the types are. It takes arrays of NumPy; nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.event_count import count_events
from ..core.loop_paths import run_together
from ..core.machine import Block
from ..core.numeric import value_of
from ..core.problem import TENSORS, Attention
from ..core.row_blocks import RowBlocks
from ..core.tiling import MMA
from ..core.watchers import Watcher
from ..oracles.accuracy import DEVIATIONS, FLOOR, UNIT
from ..schedules import find
from .cuda.plan import mark_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.machine import Input
    from ..core.typing import Array, Arrays, Size, Step
    from .jobs import ScheduleJob

    Doubles = NDArray[np.float64]

MOST_HEADS = 16  # that are run in NumPy
MOST_TILES = 5_000  # visits of a tile of scores, in all of them
CUT = 2.0**-24  # the most that tensor cores lose of a sum with each product, because they truncate it


class Slope(NamedTuple):
    """The slope of an output on that of the same steps, less 1, and the largest that is allowed."""

    bias: float
    allowed_bias: float


Met = Callable[[str, int, "Array"], None]
"""Takes the output (name, head) of the same steps."""


class AsKernel(RowBlocks):
    """The numeric machine with the roundings of a kernel: tensor cores take all operands in the type of Q. `cores` says
    which launches use them."""

    def __init__(self, problem: Attention, hbm: Arrays, cores: Sequence[bool]) -> None:
        self.launches, self.cores = Launches(), cores
        super().__init__(problem, hbm, self.launches, double=False)

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        if mark_of(step).tensor_inputs and self.cores[self.launches.ended]:
            inputs = tuple([self._narrow(x) if isinstance(x, Block) else x for x in inputs])
        super()._apply(step, outputs, inputs)

    def _narrow(self, block: Block) -> Block:
        narrow = Block(block.name, block.shape, block.tensor, block.depth)
        narrow.value = self._rounded(value_of(block), self.p.dtype).copy()
        return narrow


class Launches(Watcher):
    """Counts the launches that have ended. A launch without a step is none."""

    def __init__(self) -> None:
        self.ended, self.busy = 0, False

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self.busy = True

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.busy = True

    def launch_ended(self) -> None:
        self.ended, self.busy = self.ended + self.busy, False


def compared_heads(job: ScheduleJob) -> list[int]:
    """The heads of the packed problem that are run in NumPy; none if even one has too many tiles."""
    p, t = job.problem.packed, job.tiling
    pairs = -(-p.N // t.rows_q) * -(-p.Nk // t.rows_k)
    visits = min(pairs, count_events(find(job.name), p, t).total or pairs)  # fewer where no keys are looped over
    count = min(MOST_HEADS, p.instances, MOST_TILES // visits)
    return sorted({round(x) for x in np.linspace(0, p.instances - 1, count)})


def slope_of_job(
    job: ScheduleJob,
    cores: Sequence[bool],
    names: Sequence[str],
    hbm_of: Callable[[int], Arrays],
    output_of: Callable[[str, int, Array], Array],
    met: Met = lambda name, head, same: None,
) -> Slope | None:
    """The slope of the output that is farthest off; None if the run in NumPy would take too long.

    `names` are the outputs to judge. `hbm_of` gives the inputs of a head, and `output_of` the output (name, head) in
    the shape of an array. `met` gets the outputs of the same steps.
    """
    p, schedule, heads = job.problem.packed, find(job.name), compared_heads(job)
    tensors = {**TENSORS, **schedule.tensors}
    names = [name for name in names if tensors[name].kind != "index"]  # whole numbers have no slope
    pairs: dict[str, list[tuple[Array, Array]]] = {name: [] for name in names}
    for head in heads:
        hbm = hbm_of(head)
        machine = run_together(partial(as_kernel, p, hbm, cores), schedule, job.tiling)
        for name in names:
            same = machine.array(name)
            pairs[name].append((output_of(name, head, same), same))
            met(name, head, same)
    units = {name: (UNIT[p.hbm_type(tensors[name])], UNIT[str(p.acc_dtype)]) for name in names}
    cut = CUT * -(-max(p.N, p.Nk) // MMA) if any(cores) else 0.0
    found = [slope(in_rows(pairs[name], 0), in_rows(pairs[name], 1), *units[name], cut) for name in names if heads]
    return max(found, key=lambda each: each.bias - each.allowed_bias, default=None)


def as_kernel(p: Attention, hbm: Arrays, cores: Sequence[bool]) -> AsKernel:
    """The machine, with copies of its inputs."""
    return AsKernel(p, {name: array.copy() for name, array in hbm.items()}, cores)


def in_rows(pairs: list[tuple[Array, Array]], which: int) -> Doubles:
    """One array of each pair, all below each other, with as many rows as the first axes have."""
    parts = [np.asarray(pair[which], np.float64) for pair in pairs]
    return np.concatenate([part.reshape(-1, part.shape[-1] if part.ndim > 1 else 1) for part in parts])


def slope(found: Doubles, same: Doubles, unit: float, acc_unit: float, cut: float = 0.0) -> Slope:
    """The slope of `found` on `same`, both (rows, words), and what chance explains.

    Errors of a row may be correlated, those of two rows are independent. Where few words differ, their spread says
    little. So one word may be rounded the other way (`unit`), and one sum of a row (`acc_unit`), and tensor cores may
    lose `cut` of a sum.
    """
    known = np.isfinite(same)
    if not np.isfinite(found[known]).all():
        return Slope(float("inf"), FLOOR)
    x = np.where(known, same, 0.0)
    error, square = np.where(known, found - same, 0.0) * x, x * x
    total = float(square.sum())
    if not total:
        return Slope(float(np.abs(np.where(known, found, 0.0)).max(initial=0.0)), FLOOR)
    off, rows = float(error.sum()) / total, square.sum(axis=1)
    rest = error - square * off
    deviation = max(norm(rest), norm(rest.sum(axis=1)) if len(rows) > 1 else 0.0) / total
    flips = (unit * norm(square) + acc_unit * norm(rows)) / total
    return Slope(abs(off), DEVIATIONS * deviation + flips + FLOOR + cut)


def norm(x: Doubles) -> float:
    """The root of the sum of squares."""
    return float((x * x).sum()) ** 0.5
