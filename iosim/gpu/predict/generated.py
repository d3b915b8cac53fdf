"""The predicted DRAM bytes and seconds of the kernels that are generated from a schedule. It needs no GPU.

`iosim roofline` and `iosim tune --by time` call `predict_generated`, which calls `predict` with the occupancies that
`occupancies` finds. `iosim verify` calls these two itself, and gives `occupancies` what the profiler reports. So for a
profiled run both predict the same time, unless the profiler reports another occupancy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NotRequired, TypedDict

from ...errors import CapacityError
from ...hardware import Hardware
from ...occupancy import blocks_on
from ..cuda.program import Program
from ..cuda.warp_split import LANES
from .block_work import Occupancy
from .dram import Conditions
from .predict import Prediction, predict

if TYPE_CHECKING:
    from ...core.machine import ScheduleLike


class LaunchShape(TypedDict):
    """Shared memory and threads of a block of one launch, and whether the launch uses tensor cores.

    `blocks_per_sm`: the blocks of a multiprocessor that a generated kernel is compiled for.
    """

    smem_bytes: int
    threads: int
    tensor_cores: bool
    blocks_per_sm: NotRequired[int]


def launch_shapes(program: Program) -> list[LaunchShape]:
    """The shapes of a program's launches, in order."""
    return [
        {
            "smem_bytes": k.smem_bytes,
            "threads": prod(k.block),
            "tensor_cores": k.tensor_cores,
            "blocks_per_sm": k.blocks_per_sm,
        }
        for k in program.kernels
    ]


def occupancies(
    launches: Sequence[LaunchShape],
    hardware: Hardware,
    registers: int | None = None,
    profiled: Sequence[int | None] = (),
) -> list[Occupancy]:
    """The occupancy of each launch: the blocks of an SM that threads and shared memory allow, but no more than the
    launch was compiled for.

    The `registers` of a thread limit them too, if they are known. `profiled` has the blocks of an SM that the profiler
    found, or None, for each launch. It is ignored if it has another length.
    """
    known = profiled if len(profiled) == len(launches) else [None] * len(launches)
    found = []
    for launch, blocks in zip(launches, known, strict=True):
        smem_bytes, threads = launch["smem_bytes"], launch["threads"]
        if not blocks:
            blocks = blocks_on(hardware.shared_memory_per_sm_bytes, smem_bytes, threads, registers)
            blocks = min(blocks, launch.get("blocks_per_sm", blocks))
        found.append(Occupancy(blocks, tensor_cores=launch["tensor_cores"], warps=-(-threads // LANES)))
    return found


def predict_generated(schedule: ScheduleLike, program: Program, hardware: Hardware) -> Prediction:
    """Words, SM bytes, DRAM bytes and (where rates were measured) time of a program made from a schedule.

    They hold under a profiler that empties the L2 before every launch. Registers are not known without a compiler, so
    a multiprocessor is assumed to hold the blocks that a kernel is compiled for. Raises ScheduleError for a step
    without a mark of its cost.
    """
    sits = occupancies(launch_shapes(program), hardware)
    return predict(schedule, program.problem, program.tiling, hardware, sits, Conditions(cold=True))


def check_room(program: Program, hardware: Hardware) -> None:
    """Raise CapacityError where a block needs more shared memory than this GPU can give it."""
    room = hardware.shared_memory_per_block_bytes
    if program.smem_bytes > room:
        raise CapacityError(f"a block needs {program.smem_bytes} B of shared memory, and {room} B is the most")
