"""Notes of the worker process, one for each job: the JSON that is kept in a profile beside the counters."""

from __future__ import annotations

from typing import Any, TypedDict

from ..predict.generated import LaunchShape

JobJson = dict[str, Any]  # as `to_json` of a job writes it


class OutputErrors(TypedDict, total=False):
    """The largest error of an output, that of the baseline, what is allowed, and words that are not numbers."""

    error: float
    baseline_error: float
    allowed_error: float
    unwritten: int


class KernelSizes(TypedDict, total=False):
    """Shared memory of the tiles, and tables of a mask, which the kernels load too."""

    footprint_bytes: int
    tables: int


class Note(OutputErrors, KernelSizes, total=False):
    """What is known of one job; `failed` is the reason why the rest is missing."""

    job: JobJson
    failed: str
    words: dict[str, list[int]]  # read and written, by tensor, counted by the kernels
    launches: list[LaunchShape]
    large_logits: OutputErrors  # the same check with larger Q and K
    seconds: float  # between events, without the profiler
    number: int  # of the job in the profile, for `stack_stores`
    stack_stores: list[list[int]]  # of the kernel that loads most: offset in the stack, bytes, warps that ran it
