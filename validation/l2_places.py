"""What launches move to and from DRAM when their arrays lie elsewhere. On a GPU with PyTorch, from the root

    PYTHONPATH=. python3 validation/l2_places.py FOLDER    # runs itself under Nsight Compute: FOLDER/l2_places.csv

A few of the measured shapes, whose tensors just about fill the L2, or do not. The arrays are allocated anew, elsewhere
each time: one by one, or as one piece of memory. In each place the launch is repeated, which tells apart what a
repetition changes and what the place changes. No model of sizes and order alone can know the places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from l2_buffers import MIB, Rows, jobs_by, run_as_a_script
from shapes import jobs_of

from iosim.gpu import device
from iosim.gpu.jobs import GeneratedJob, KernelJob, TorchJob
from iosim.gpu.run import apart, launch_all, prepare
from iosim.gpu.worker import inputs_of, profiled, torch_call

SHAPES = (  # set, schedule, N, mask
    ("seventh", "flash1", 2078, "dense"), ("seventh", "flash1", 1097, "dense"),
    ("redrawn", "block-sparse", 4959, "causal"), ("torch", "torch-flash", 4097, "causal"),
    ("drawn", "flash1", 3400, "dense"), ("seventh", "standard-tiled", 681, "dense"),
)  # fmt: skip
WAYS = (*("apart",) * 3, *("one piece",) * 3)
REPEATS = 2
ALIGNED = 512
LABELS = ("run", "N", "d", "heads", "dtype", "mask")


def chosen() -> list[KernelJob]:
    return [next(job for job in jobs_of(part) if (job.name, job.problem.N, str(job.problem.mask)) == tuple(shape))
            for part, *shape in SHAPES]  # fmt: skip


def launches() -> Iterator[tuple[KernelJob, int, int]]:
    """(job, place, repetition) in the order in which they run. PyTorch allocates its arrays itself: one by one, and
    where, it does not say."""
    for job, place, repeat in product(chosen(), range(len(WAYS)), range(REPEATS)):
        if not isinstance(job, TorchJob) or WAYS[place] == WAYS[0]:
            yield job, place, repeat


def launch() -> None:
    """All of them once, each after a marker."""
    pool = device.cupy().get_default_memory_pool()
    for job, place, repeat in launches():
        if not repeat:
            start = None  # frees what the last place took
            pool.free_all_blocks()
            start = placed(job, place)
            start()
        profiled(start)


def placed(job: KernelJob, place: int) -> Callable[[], None]:
    """A launch whose arrays lie elsewhere than those of other places."""
    xp = device.cupy()
    pad = xp.zeros((3 + 7 * place) * MIB, xp.uint8)
    if isinstance(job, TorchJob):
        import torch

        torch.cuda.empty_cache()  # else it has the same memory again
        call, pads = torch_call(job), [pad]
    else:
        program = GeneratedJob(job).program
        arrays, tables, counts = prepare(program, inputs_of(job))
        arrays, pads = apart(arrays, place + 1) if WAYS[place] == "apart" else in_one_piece(arrays), [pad]
        call = lambda: launch_all(program, arrays, tables, counts)  # noqa: E731

    def start() -> None:
        assert pads is not None  # they keep their places as long as this is called
        call()

    return start


def in_one_piece(arrays: dict[str, Any]) -> dict[str, Any]:
    """Copies of arrays, one after another."""
    xp, found, first = device.cupy(), {}, 0
    room = {name: -(-array.nbytes // ALIGNED) * ALIGNED for name, array in arrays.items()}
    piece = xp.empty(sum(room.values()), xp.uint8)
    for name, array in arrays.items():
        found[name] = piece[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        found[name][...] = array
        first += room[name]
    return found


def measure(log: Path) -> Rows:
    """A row for each launch of a schedule, all of its kernels together; `log` is where the profiler writes."""
    rows = []
    for (job, place, repeat), kernels in zip(launches(), jobs_by(__file__, log), strict=True):
        bytes_ = {name: sum(dram[name] for _, dram in kernels) for name in ("dram_read_bytes", "dram_write_bytes")}
        label = {name: job.to_json()[name] for name in LABELS}
        rows.append({**label, "way": WAYS[place], "place": place, "repeat": repeat, **bytes_})
    return rows


if __name__ == "__main__":
    sys.exit(run_as_a_script(str(__doc__), "l2_places", launch, measure))
