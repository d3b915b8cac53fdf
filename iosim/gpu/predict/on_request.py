"""Predicted times of generated kernels, where they were compared with measured ones. The commands have them on request.

The kernels are those that iosim writes from a schedule, not those that a GPU's user runs, so `iosim roofline` and
`iosim tune --by time` predict them only with `--predict generated`. `iosim verify` compares predictions with a GPU, and
asks nothing here.

A prediction visits every tile of one head, and follows the cells of all heads through the L2. With tiny tiles that
takes minutes. A command that makes many predictions skips those, by an estimate that costs one folded walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, prod
from typing import TYPE_CHECKING

from ...core.folded import Folded
from ...core.machine import Block
from ...core.problem import as_moved
from ...core.shapes import Tile
from ...core.tiling import MMA
from ...core.watchers import Watcher
from ...errors import IosimError
from ...hardware import Hardware
from ...progress import State, under_way
from ..cuda.machine import generate
from ..cuda.program import Program
from .blocks import LEAST_CELL_COLUMNS, LEAST_CELL_ROWS
from .generated import check_room, launch_shapes, occupancies, predict_generated
from .predict import DECIMALS

if TYPE_CHECKING:
    from ...core.machine import Input, ScheduleLike
    from ...core.problem import Attention
    from ...core.tiling import Rule, Tiling
    from ...core.typing import Size, Step
    from ...schedules import Schedule
    from .predict import Prediction


# Seconds on one core of a server of 2026, rounded.
EVENT_SECONDS = 20e-6  # a load, a store or a step of one head
TURN_SECONDS = 80e-6  # one touch by each of the blocks that run together
TOUCH_SECONDS = 0.1e-6  # a cell that a block touches


@dataclass
class TensorPart:
    """The part of a tensor that a load or store names: its shape, and how often one head loads or stores it."""

    tensor: str
    extents: tuple[int, int]
    steps: tuple[int, int]
    """Distances of its rows and of its columns from one visit to the next; 0 where all lie at the start."""
    visits: int


@dataclass
class Effort(Watcher):
    """Counts what a prediction goes through for one head: loads, stores and steps (`events`), and the parts of tensors
    that each launch loads and stores. It watches a folded machine."""

    events: int = 0
    launches: list[list[TensorPart]] = field(default_factory=lambda: [[]])

    def start(self, machine: Folded) -> None:  # type: ignore[override]  # it needs a machine that sums
        self.machine = machine

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self._visit(block, tensor)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._visit(block, tensor)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.events += int(self.machine.total(()))

    def launch_ended(self) -> None:
        self.launches.append([])

    def _visit(self, block: Block, tensor: str) -> None:
        visits = int(self.machine.total(()))
        self.events += visits
        (rows, row_step), (columns, column_step) = [*map(part_of, block.shape), (1, 0), (1, 0)][:2]
        self.launches[-1].append(TensorPart(tensor, (rows, columns), (row_step, column_step), visits))

    def touches(self) -> list[int]:
        """About how many cells one head touches, by launch (predict/blocks.py). Tiles may begin inside a cell."""
        cells = {name: self._cell(name) for name in {part.tensor for parts in self.launches for part in parts}}
        return [
            sum(part.visits * prod(map(ceil_div, part.extents, cells[part.tensor])) for part in parts)
            for parts in self.launches
            if parts
        ]

    def _cell(self, tensor: str) -> tuple[int, int]:
        """Rows and columns of a cell of a tensor."""
        parts = [part for launch in self.launches for part in launch if part.tensor == tensor]
        rows, columns = (gcd(*(part.steps[axis] for part in parts)) for axis in (0, 1))
        tall, wide = (max(part.extents[axis] for part in parts) for axis in (0, 1))
        return max(rows or tall, LEAST_CELL_ROWS), max(columns or wide, LEAST_CELL_COLUMNS)


def part_of(axis: Tile | Size) -> tuple[int, int]:
    """(positions, distance from one visit to the next) of one axis of a block. The distance is 0 for a whole axis."""
    if not isinstance(axis, Tile):
        return int(axis), 0
    extent = int(axis.extent)
    return extent, extent if extent < int(axis.length) else 0


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def seconds_to_predict(schedule: ScheduleLike, program: Program, hardware: Hardware) -> float:
    """About how many seconds `predict_generated` would take, from one folded walk."""
    p = program.problem
    seen = as_moved(schedule, p)
    hidden = seen is not p  # then every tile is visited once more to hide words
    effort = Effort()
    Folded(seen, effort).run(schedule, program.tiling)
    seconds = EVENT_SECONDS * effort.events * (1 + hidden)
    sits = occupancies(launch_shapes(program), hardware)
    for touches, kernel, sit in zip(effort.touches(), program.kernels, sits, strict=True):
        together = min(hardware.sms * sit.blocks_per_sm, prod(kernel.grid))
        seconds += p.instances * touches * (TURN_SECONDS / together + TOUCH_SECONDS)
    return seconds


COMPARED = (  # schedules of whose predicted times validation/*/rows.csv has at least two on a GPU
    "standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q", "memory-efficient",
    "flash2-one-room", "attention-2pass",
)  # fmt: skip
LEAST_QUERIES = 32  # with fewer, decoding, predictions were 0.45 to 0.54 of the measured time
PROGRESS_SECONDS = 1.0  # predictions that take longer say so


def check_compared(schedule: Schedule, p: Attention) -> None:
    """Raise IosimError, with the reason, where predictions were not compared with measurements or differ much."""
    if schedule.name not in COMPARED:
        raise IosimError("the time model was not compared with measurements of this schedule; iosim verify does that")
    if p.N < LEAST_QUERIES:
        raise IosimError(f"the time model is wrong by half for fewer than {LEAST_QUERIES} queries")
    if p.divided:
        raise IosimError(
            "the generated kernels keep their tiles in shared memory, and load one tile at a time; leave "
            "out --registers and --stages"
        )
    if p.kv_dtype or p.latent:
        raise IosimError("the time model was not compared with measurements of such a cache")


def predict_compared(schedule: Schedule, program: Program, chip: Hardware) -> Prediction:
    """The prediction of a program made from a schedule. A long one says on stderr how long it takes."""
    check_room(program, chip)
    seconds, tiling = seconds_to_predict(schedule, program, chip), program.tiling
    with under_way(quiet=seconds < PROGRESS_SECONDS or State.busy or not State.wanted) as tell:
        tell(f"predicting {schedule.name} {tiling.rows_q}x{tiling.rows_k}: about {seconds:.0f} s")
        return predict_generated(schedule, program, chip)


def predicted_times(schedule: Schedule, rule: Rule, p: Attention, tiling: Tiling, chip: Hardware) -> dict[str, object]:
    """The fields of a row of `iosim roofline` that are predicted for generated kernels on a GPU whose rates were
    measured, and `on_cuda_cores`. An IosimError gives the reason if there is no prediction."""
    if rule == "ideal":
        raise IosimError("an ideal schedule has no tiles")
    check_compared(schedule, p)
    program = generate(schedule, p, tiling)
    found = predict_compared(schedule, program, chip)
    assert found.time is not None and found.dram is not None
    return {
        "predicted_seconds": round(found.time.seconds, DECIMALS),
        "predicted_binds": found.time.bound_by,
        "predicted_dram_read_bytes": found.dram.read_bytes,
        "predicted_dram_write_bytes": found.dram.write_bytes,
        "on_cuda_cores": without_tensor_cores(program, p.packed, tiling, schedule.name),
    }


def without_tensor_cores(program: Program, p: Attention, tiling: Tiling, name: str) -> list[str]:
    """One sentence on why no launch of a generated kernel uses tensor cores; nothing if one does, or has no product."""
    rows, keys = min(tiling.rows_q, p.N), min(tiling.rows_k, p.Nk)
    reasons = {
        f"{p.dtype} has more than 16 bits": p.dtype == "fp32",
        f"a tile of {rows} queries has fewer than {MMA}": rows < MMA,
        f"a tile of {keys} keys has fewer than {MMA}": keys < MMA,
        f"d = {p.d} is not a multiple of {MMA}": p.d % MMA != 0,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    if why is None or any(kernel.tensor_cores for kernel in program.kernels):
        return []
    return [f"{name} {tiling.rows_q}x{tiling.rows_k}: {why}, so its products run on CUDA cores"]
