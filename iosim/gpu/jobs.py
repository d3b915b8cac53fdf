"""A job: one run of a schedule or of one of PyTorch's attention kernels, as plain JSON for another process."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..errors import InputError, suggestion
from ..experiment import parse_mask
from ..problem import Attention
from ..schedules import find
from ..tiling import Tiling

TORCH = {
    "torch-flash": "FLASH_ATTENTION",
    "torch-cudnn": "CUDNN_ATTENTION",
    "torch-efficient": "EFFICIENT_ATTENTION",
    "torch-math": "MATH",
}
WAIT = "wait"  # a kernel that touches nothing: what the counters see of everybody else
SIZES = ("N", "d", "Nk", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "lse", "keep_p", "splits", "gqa")
Job = dict[str, Any]


def schedule_job(name: str, problem: Attention, tiling: Tiling, tuned: bool = False, places: int = 1) -> Job:
    sizes = {key: getattr(problem, key) for key in SIZES}
    tiles = [tiling.rows_q, tiling.rows_k, tiling.rows_s]
    job = {"run": name, "mask": str(problem.mask), "tiles": tiles, "tuned": tuned, **sizes}
    return {**job, "places": places} if places > 1 else job


def torch_job(name: str, problem: Attention) -> Job:
    """Of PyTorch's kernels only `torch-flash` stores a log-sum-exp when nothing is trained."""
    if name not in TORCH:
        raise InputError("kernel", name, ", ".join(TORCH), suggestion(name, TORCH))
    sizes = {key: getattr(problem, key) for key in SIZES}
    return {"run": name, "mask": str(problem.mask), **sizes, "lse": problem.lse and name == "torch-flash"}


def wait_job(milliseconds: int) -> Job:
    """One thread that looks at the clock."""
    return {"run": WAIT, "milliseconds": milliseconds}


def problem_of(job: Job) -> Attention:
    return Attention(mask=parse_mask(job["mask"]), **{key: job[key] for key in SIZES if key in job})


def tiling_of(job: Job) -> Tiling:
    return Tiling(*job["tiles"])


class Generated:
    """A job as the kernels that its schedule's text generates."""

    def __init__(self, job: Job):
        from .cuda import generate

        self.parts = find(job["run"]), problem_of(job), tiling_of(job)
        self.program = generate(*self.parts)

    @property
    def launches(self) -> list[Job]:
        """Threads and shared memory of each launch, and whether it uses tensor cores."""
        return [{"smem_bytes": k.smem_bytes, "threads": prod(k.block), "tensor_cores": k.tensor_cores}
                for k in self.program.kernels]  # fmt: skip

    @property
    def sizes(self) -> Job:
        return {"footprint_bytes": self.program.footprint_bytes, "tables": len(self.program.tables)}

    def run(self, inputs: Any, count: bool = False) -> tuple[Any, Any]:
        """-> (outputs, words counted)."""
        from .cuda import generate
        from .run import run_on_device

        return run_on_device(generate(*self.parts, count=True) if count else self.program, inputs)

    def call(self, inputs: Any, place: int = 0) -> Callable[[], None]:
        """All launches, ready to be started again and again. In another `place` the arrays lie in other memory."""
        from .run import apart, launch_all, prepare

        arrays, *ready = prepare(self.program, inputs)
        arrays = apart(arrays, place)
        return lambda: launch_all(self.program, arrays, *ready)


class Tuned:
    """A job as tuned kernels."""

    def __init__(self, job: Job):
        from .tuned import tuned

        self.kernel = tuned(job["run"], problem_of(job))
        if self.kernel.tiling != tiling_of(job):
            own = f"{self.kernel.tiling.rows_q}x{self.kernel.tiling.rows_k}"
            raise InputError("--tuned --tiles", f"{job['tiles'][0]}x{job['tiles'][1]}", f"{own} for {job['run']}")

    @property
    def launches(self) -> list[Job]:
        names = ["flash2"] if self.kernel.one_launch else ["scores", "softmax_rows", "output"]
        threads = {"softmax_rows": self.kernel.row[1]}
        return [{"smem_bytes": self.kernel.smem_bytes[name], "threads": threads.get(name, 384), "tensor_cores": True}
                for name in names]  # fmt: skip

    @property
    def sizes(self) -> Job:
        return {"tables": 0}

    def run(self, inputs: Any, count: bool = False) -> tuple[Any, Any]:
        from .tuned import run_tuned

        return run_tuned(self.kernel, inputs, count)

    def call(self, inputs: Any, place: int = 0) -> Callable[[], None]:
        from . import device
        from .run import apart
        from .tuned import COUNTERS, launches, make_arrays

        counts = device.cupy().zeros(len(COUNTERS), "uint64")
        ready = launches(self.kernel, apart(make_arrays(self.kernel, inputs), place), counts)

        def start() -> None:
            for launch in ready:
                launch()

        return start


def runner(job: Job) -> Generated | Tuned:
    return Tuned(job) if job.get("tuned") else Generated(job)
