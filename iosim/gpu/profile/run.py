"""`iosim profile`: takes kernels that are profiled here, or those of a kept profile, to rows that explain them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.problem import Attention
from ...errors import InputError, MissingError
from ...hardware import load
from ..jobs import PYTORCHS, torch_job
from ..ncu import counters
from ..ncu import run as ncu
from ..ncu.counters import ProfiledKernel
from .explain import explained


def explain_kernel(
    name: str | None, problem: Attention, from_ncu: str | None, keep: str | None, hardware: str | None
) -> list[dict[str, object]]:
    """The rows of one of PyTorch's kernels, which is profiled here, or of all calls of a kept profile."""
    if from_ncu:
        calls = counters.read_profile(from_ncu).jobs
    elif name is None:
        raise InputError("kernel", "nothing", ", ".join(PYTORCHS), "or --from-ncu")
    else:
        problem, calls = profile_kernel(name, problem, keep)
    if not all(calls):
        raise InputError("--from-ncu", from_ncu or "a profile", "a profile with a kernel in it")
    chip = load(hardware) if hardware else None
    every: list[dict[str, object]] = []
    for number, kernels in enumerate(calls, 1):
        mark = f" #{number}" if len(calls) > 1 else ""
        every += [{**row, "kernel": row["kernel"] + mark} for row in explained(name, kernels, problem, chip)]
    return in_the_same_columns(every)


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


def in_the_same_columns(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The rows, each with the columns of all; None in a column that a row lacks."""
    names = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column) for column in names} for row in rows]
