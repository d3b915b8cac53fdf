"""`iosim profile`: takes kernels that are profiled here, or those of a kept profile, to rows that explain them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...core.problem import Attention
from ...errors import InputError, MissingError
from ...hardware import load
from ..jobs import PYTORCHS, WaitJob, kept_jobs, torch_job
from ..ncu import counters
from ..ncu import run as ncu
from ..ncu.counters import ProfiledKernel
from .explain import explained

Rows = list[dict[str, object]]


def explain_kernel(
    name: str | None,
    problem: Attention | None,
    from_ncu: str | None,
    keep: str | None,
    hardware: str | None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Rows, list[str]]:
    """The rows of one of PyTorch's kernels, which is profiled here, or of all calls of a kept profile; and notes.

    Without a problem, each call of the profile has the one that the file names. `tell` gets a text on what is done
    next.
    """
    tell("reading the profile" if from_ncu else "profiling on the GPU")
    problems, calls, notes = calls_of(name, problem, from_ncu, keep)
    if not all(calls):
        raise InputError("--from-ncu", from_ncu or "a profile", "a profile with a kernel in it")
    chip = load(hardware) if hardware else None
    every: Rows = []
    for number, (p, kernels) in enumerate(zip(problems, calls, strict=True), 1):
        tell(f"call {number} of {len(calls)}")
        mark = f" #{number}" if len(calls) > 1 else ""
        shape = {} if problem else shape_of(p)
        every += [{**row, "kernel": row["kernel"] + mark, **shape} for row in explained(name, kernels, p, chip)]
    return in_the_same_columns(every), notes


def calls_of(
    name: str | None, problem: Attention | None, from_ncu: str | None, keep: str | None
) -> tuple[list[Attention], list[list[ProfiledKernel]], list[str]]:
    """(the problem of each call, the kernels of each, notes)."""
    if not from_ncu:
        if name is None or problem is None:
            raise InputError("kernel", "nothing", ", ".join(PYTORCHS), "or --from-ncu")
        problem, calls = profile_kernel(name, problem, keep)
        return [problem], calls, []
    profile = counters.read_profile(from_ncu)
    named = [
        (job.problem, kernels)
        for job, kernels in zip(kept_jobs(profile), profile.jobs, strict=False)
        if kernels and not isinstance(job, WaitJob)
    ]
    if problem is None:
        if not named:
            allowed = "a value for each, and the other options of the profile"
            raise InputError("--N, --d", "nothing", allowed, "this profile does not name its shapes")
        return [p for p, _ in named], [kernels for _, kernels in named], []
    return [problem] * len(profile.jobs), profile.jobs, other_shapes(problem, [p for p, _ in named], len(profile.jobs))


def other_shapes(problem: Attention, named: Sequence[Attention], calls: int) -> list[str]:
    """A note if several calls are explained with one problem although they may have others."""
    others = sum(shape_of(p) != shape_of(problem) for p in named)
    if others:
        return [
            f"--N, --d and the other options are taken for all {calls} calls, but {others} of these calls had "
            "other shapes; without these options each has its own"
        ]
    if calls > 1 and not named:
        return [f"--N, --d and the other options are taken for all {calls} calls: the file does not name their shapes"]
    return []


def shape_of(p: Attention) -> dict[str, object]:
    """The columns that tell the problems of a profile from each other."""
    names = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype")
    return {**{name: getattr(p, name) for name in names}, "mask": str(p.mask)}


def profile_kernel(name: str, problem: Attention, keep: str | None) -> tuple[Attention, list[list[ProfiledKernel]]]:
    """(the problem as this kernel has it, the kernels of its one call). The profiler's CSV is kept at `keep`."""
    from .. import device

    job = torch_job(name, problem)
    device.cupy()
    with tempfile.TemporaryDirectory() as folder:
        found = ncu.profile([job], keep or str(Path(folder, "ncu.csv")))
    failed = [note["failed"] for note in found.notes if "failed" in note]
    if failed:
        raise MissingError(f"{name}: {failed[0]}")
    return job.problem, found.jobs


def in_the_same_columns(rows: Sequence[Mapping[str, object]]) -> Rows:
    """The rows, each with the columns of all; None in a column that a row lacks."""
    names = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column) for column in names} for row in rows]
