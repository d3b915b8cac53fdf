"""How the launches of generated kernels occupy a GPU. It needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NotRequired, TypedDict

from ...hardware import Hardware
from ...occupancy import blocks_on
from ..cuda.program import Program
from ..cuda.warp_split import LANES
from .block_work import Occupancy


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
