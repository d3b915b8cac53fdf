"""JSON that travels between processes: jobs, and the notes of the worker, one for each job.

A kept profile has the notes in its file, beside the counters.
"""

from __future__ import annotations

from typing import TypedDict

from ..predict.generated import LaunchShape


class JobJson(TypedDict, total=False):
    """A job as its `to_json` writes it: the options of its problem by name, and these. `run` is the name of a schedule,
    of a kernel of PyTorch, or `wait`."""

    run: str
    mask: str
    tiles: list[int]
    tuned: bool
    places: int
    milliseconds: int


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
    """Shared memory of the tiles, and the number of mask tables, which the kernels load too."""

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
    number: int  # of the job in the profile, for `stack_stores`
    stack_stores: list[list[int]]  # of the kernel that loads most: offset in the stack, bytes, warps that ran it
