"""Jobs: runs of a schedule's kernels, or of PyTorch's attention kernels, in another process.

Jobs travel as JSON, and so do the notes of the worker, one for each job. A kept profile has the notes in its file,
beside the counters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypedDict, cast

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..errors import InputError, suggestion
from ..masks import parse_mask
from ..schedules import SCHEDULES, find
from .arrays import DeviceArrays

if TYPE_CHECKING:
    from ..counting.given import Fields


class LaunchShape(TypedDict):
    """Shared memory and threads of a block of one launch, and whether the launch uses tensor cores."""

    smem_bytes: int
    threads: int
    tensor_cores: bool


class JobJson(TypedDict, total=False):
    """A job as its `to_json` writes it: the options of its problem by name, and these. `run` is the name of a schedule
    or of a kernel of PyTorch."""

    run: str
    mask: str
    tiles: list[int]
    tuned: bool
    places: int


class OutputErrors(TypedDict, total=False):
    """The largest error of an output, that of the baseline, and the allowed error; the same three of the bias; and the
    number of words that are NaN. The bias is the slope against the answer less 1. Older profiles lack it."""

    error: float
    baseline_error: float
    allowed_error: float
    bias: float
    allowed_bias: float
    unwritten: int


class KernelSizes(TypedDict, total=False):
    """Shared memory of the tiles, and the number of tables of a mask's tiles, which the kernels load too."""

    footprint_bytes: int
    tables: int


class Note(OutputErrors, KernelSizes, total=False):
    """The note of one job. `failed` is the reason why the rest is missing."""

    job: JobJson
    failed: str
    words: dict[str, list[int]]  # read and written, by tensor, counted by the kernels
    launches: list[LaunchShape]
    large_logits: OutputErrors  # the same check with larger Q and K
    seconds: float  # between events, without the profiler


TORCH = {
    "torch-flash": "FLASH_ATTENTION",
    "torch-cudnn": "CUDNN_ATTENTION",
    "torch-efficient": "EFFICIENT_ATTENTION",
    "torch-math": "MATH",
}
FLEX = "torch-flex"  # PyTorch's FlexAttention, compiled by Triton for each problem
PYTORCHS = (*TORCH, FLEX)
STORES_LSE = "torch-flash"  # the only one that stores a log-sum-exp when nothing is trained
THREADS = 384  # a block of a tuned product
# Jobs are pickled as JSON, because a pickled copy of DENSE would not be DENSE.
Pickled = tuple[Callable[[JobJson], object], tuple[JobJson]]


@dataclass(frozen=True)
class ScheduleJob:
    """A schedule with its tiles, as generated or as tuned kernels. A kept profile may have it with its arrays at
    several addresses, `places`."""

    name: str
    problem: Attention
    tiling: Tiling
    tuned: bool = False
    places: int = 1

    def to_json(self) -> JobJson:
        """The job as JSON, which `job_from_json` reads."""
        own: JobJson = {"run": self.name, "mask": str(self.problem.mask), "tiles": _tiles(self.tiling)}
        return {**own, "tuned": self.tuned, **_sizes(self.problem), **_places(self.places)}

    def __reduce__(self) -> Pickled:
        return job_from_json, (self.to_json(),)


@dataclass(frozen=True)
class TorchJob:
    """One of PyTorch's attention kernels, by its name in PYTORCHS."""

    name: str
    problem: Attention
    places: int = 1

    def to_json(self) -> JobJson:
        """The job as JSON, which `job_from_json` reads."""
        own: JobJson = {"run": self.name, "mask": str(self.problem.mask)}
        return {**own, **_sizes(self.problem), **_places(self.places)}

    def __reduce__(self) -> Pickled:
        return job_from_json, (self.to_json(),)


Job = ScheduleJob | TorchJob


ALWAYS_KEPT = (
    "N",
    "d",
    "Nk",
    "batch",
    "heads",
    "kv_heads",
    "dtype",
    "acc_dtype",
    "lse",
    "keep_p",
    "splits",
    "gqa",
    "visit_all",
)


def _sizes(problem: Attention) -> JobJson:
    """The options of a problem that a job keeps: these, and all others that are not at their defaults, except the
    mask."""
    kept = {name: getattr(problem, name) for name in ALWAYS_KEPT} | problem.unusual()
    kept |= {"choice_rows": problem.choice_rows} if problem.choice_rows > 1 else {}
    return cast("JobJson", {name: value for name, value in kept.items() if name != "mask"})


def _tiles(t: Tiling) -> list[int]:
    """The sizes of a tiling, in the order of its fields, without the last ones if they are usual. 0 is None."""
    sizes = [t.rows_q, t.rows_k, t.rows_s, t.depth, t.rows_o or 0, t.cols_o or 0, *([t.kept] if t.kept else [])]
    return sizes[:3] if sizes[3:] == [1, 0, 0] else sizes


def _tiling(sizes: list[int]) -> Tiling:
    """The tiling that `_tiles` wrote."""
    return Tiling(*sizes[:4], *(size or None for size in sizes[4:]))


def _places(places: int) -> JobJson:
    return {"places": places} if places > 1 else {}


def job_from_json(job: JobJson) -> Job:
    """The job that `to_json` wrote. Options that an older profile lacks have their defaults."""
    sizes = {name: value for name, value in job.items() if name not in ("run", "tiles", "tuned", "places")}
    problem = as_measured(job["run"], Attention(**cast("Fields", {**sizes, "mask": parse_mask(job["mask"])})), job)
    places = job.get("places", 1)
    if job["run"] in PYTORCHS:
        return TorchJob(job["run"], problem, places)
    return ScheduleJob(job["run"], problem, _tiling(job["tiles"]), job.get("tuned", False), places)


def as_measured(name: str, problem: Attention, job: JobJson) -> Attention:
    """The problem of a kept job. Before there was a `visit_all`, the schedules that read it visited hidden tiles."""
    older = "visit_all" not in job and problem.mask is not DENSE and name in SCHEDULES
    return replace(problem, visit_all=True) if older and "visit_all" in SCHEDULES[name].options else problem


def kept_jobs(notes: Iterable[Note], number: int) -> list[Job]:
    """The jobs of a kept profile of so many, in order: its first notes name them. None if another program wrote it."""
    jobs = [job_from_json(note["job"]) for note in notes if "job" in note][:number]
    return jobs if len(jobs) == number else []


OF_TOKENS = ("file", "document")  # how the names of a mask's tables of tokens begin; cuda/mask_reads.py counts them


def key_of(job: Job) -> str:
    """A string that is equal for equal jobs, at any number of addresses."""
    return json.dumps({key: value for key, value in job.to_json().items() if key != "places"}, sort_keys=True)


def torch_job(name: str, problem: Attention) -> TorchJob:
    """The job of a kernel of PyTorch; Raises InputError for a name that is not in PYTORCHS."""
    if name not in PYTORCHS:
        raise InputError("kernel", name, ", ".join(PYTORCHS), suggestion(name, PYTORCHS))
    return TorchJob(name, replace(problem, lse=problem.lse and name == STORES_LSE))


class GeneratedJob:
    """The kernels that are generated from a job's schedule."""

    def __init__(self, job: ScheduleJob):
        from .cuda.machine import generate

        self.parts = find(job.name), job.problem, job.tiling
        self.program = generate(*self.parts)

    @property
    def launches(self) -> list[LaunchShape]:
        """The shape of each launch."""
        return [
            {"smem_bytes": k.smem_bytes, "threads": prod(k.block), "tensor_cores": k.tensor_cores}
            for k in self.program.kernels
        ]

    @property
    def sizes(self) -> KernelSizes:
        """Shared memory of the tiles (generated kernels only), and the number of tables of the mask's tiles."""
        of_tiles = [name for name in self.program.tables if not name.startswith(OF_TOKENS)]
        return {"footprint_bytes": self.program.footprint_bytes, "tables": len(of_tiles)}

    def run(self, inputs: DeviceArrays, count: bool = False) -> tuple[DeviceArrays, dict[str, tuple[int, int]]]:
        """(outputs, words read and written by tensor) of one run. Without `count` no words are counted."""
        from .cuda.machine import generate
        from .run import run_on_device

        return run_on_device(generate(*self.parts, count=True) if count else self.program, inputs)

    def call(self, inputs: DeviceArrays) -> Callable[[], None]:
        """A function that starts all launches; it may be called often."""
        from .run import launch_all, prepare

        arrays, tables, counts = prepare(self.program, inputs)
        return lambda: launch_all(self.program, arrays, tables, counts)


class TunedJob:
    """The tuned kernels of a job."""

    def __init__(self, job: ScheduleJob):
        from .tuned.launch import tuned

        self.kernel = tuned(job.name, job.problem)
        own, asked = self.kernel.tiling, job.tiling
        if own != asked:
            raise InputError(
                "--tuned --tiles", f"{asked.rows_q}x{asked.rows_k}", f"{own.rows_q}x{own.rows_k} for {job.name}"
            )

    @property
    def launches(self) -> list[LaunchShape]:
        """The shape of each launch."""
        names = ["flash2"] if self.kernel.one_launch else ["scores", "softmax_rows", "output"]
        threads = {"softmax_rows": self.kernel.row[1]}
        return [
            {"smem_bytes": self.kernel.smem_bytes[name], "threads": threads.get(name, THREADS), "tensor_cores": True}
            for name in names
        ]

    @property
    def sizes(self) -> KernelSizes:
        """Shared memory of the tiles (generated kernels only), and the number of mask tables."""
        return {"tables": 0}

    def run(self, inputs: DeviceArrays, count: bool = False) -> tuple[DeviceArrays, dict[str, tuple[int, int]]]:
        """(outputs, words read and written by tensor) of one run, as for `GeneratedJob`."""
        from .tuned.launch import run_tuned

        return run_tuned(self.kernel, inputs, count)

    def call(self, inputs: DeviceArrays) -> Callable[[], None]:
        """A function that starts all launches, as for `GeneratedJob`."""
        from . import device
        from .tuned.launch import COUNTERS, launches, tuned_arrays

        counts = device.cupy().zeros(len(COUNTERS), "uint64")
        ready = launches(self.kernel, tuned_arrays(self.kernel, inputs), counts)

        def start() -> None:
            for launch in ready:
                launch()

        return start


def runner(job: ScheduleJob) -> GeneratedJob | TunedJob:
    """The kernels of a job, ready to run."""
    return TunedJob(job) if job.tuned else GeneratedJob(job)
