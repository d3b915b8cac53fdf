"""Runs of Nsight Compute on a worker process. One run profiles many jobs, and its CSV is kept.

`gpu/ncu/counters.py` reads the CSV.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import MissingError
from ..jobs import Job, Note
from .counters import (
    DENIED,
    GRANT,
    LAUNCH_METRICS,
    METRICS,
    NOTE,
    Profile,
    ProfiledKernel,
    read_profile,
)

LIMIT_SECONDS = 540


def find_ncu() -> str:
    """The profiler, from PATH or where CUDA puts it."""
    found = shutil.which("ncu")
    if found:
        return found
    for pattern in ("usr/local/cuda*/bin/ncu", "opt/nvidia/nsight-compute/*/ncu"):
        for path in sorted(Path("/").glob(pattern), reverse=True):
            return str(path)
    raise MissingError(
        "Nsight Compute (ncu) is not on PATH, so hardware counters cannot be read; install it with the CUDA toolkit. "
        "Without it --no-counters still compares words, output and time, and --from-ncu FILE replays a profile"
    )


def command(ncu: str, csv_path: str, worker: list[str]) -> list[str]:
    """The profiler's command line. It leaves clocks as they are, and profiles only between the worker's profilerStart
    and profilerStop."""
    metrics = ",".join((*METRICS, *LAUNCH_METRICS))
    options = ["--clock-control", "none", "--csv", "--print-units", "base", "--profile-from-start", "off"]
    return [ncu, *options, "--metrics", metrics, "--force-overwrite", "--log-file", csv_path, *worker]


def profile(jobs: Sequence[Job], csv_path: str, load: Sequence[str] = ()) -> Profile:
    """The profile of the jobs, which run once under the profiler. Its CSV is kept, with the worker's notes at the end.
    `load` are Python files that register schedules."""
    ncu = find_ncu()
    notes_path = Path(csv_path + ".notes")
    worker = worker_command(jobs, notes_path, True, load)
    done = _run(command(ncu, csv_path, worker), "the profiler")
    log = Path(csv_path).read_text(encoding="utf-8", errors="replace") if Path(csv_path).exists() else ""
    _explain(log + done.stdout + done.stderr, done.returncode)
    append_notes(csv_path, taken(notes_path))
    found = read_profile(csv_path)
    if len(found.jobs) != len(jobs):
        raise MissingError(f"{len(jobs)} jobs were launched and {len(found.jobs)} profiled; see {csv_path}")
    return found


def taken(notes_path: Path) -> list[Note]:
    """The notes of a worker. Its files are removed."""
    lines = notes_path.read_text(encoding="utf-8").splitlines() if notes_path.exists() else []
    for path in (notes_path, Path(f"{notes_path}.jobs")):
        path.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def append_notes(csv_path: str, notes: Sequence[Note]) -> None:
    """Write notes to the end of the profiler's file."""
    with open(csv_path, "a", encoding="utf-8") as file:
        file.writelines(f"{NOTE}{json.dumps(note)}\n" for note in notes)


def notes_of_jobs(jobs: Sequence[Job], notes_path: str | Path, load: Sequence[str] = ()) -> list[Note]:
    """The notes on jobs that run without the profiler: words counted by the kernels, output errors, times.

    A kernel that faults ends its process; the jobs after it get a new one.
    """
    path, notes = Path(notes_path), list[Note]()
    while len(notes) < len(jobs):
        done = _run(worker_command(jobs[len(notes) :], path, False, load), "the worker")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not text:
            raise MissingError(last_line(done.stderr) or f"the worker ended with exit code {done.returncode}")
        notes += [json.loads(line) for line in text.splitlines()]
    return notes


def profile_what_ran(
    jobs: Sequence[Job], notes: Sequence[Note], csv_path: str, load: Sequence[str] = ()
) -> list[list[ProfiledKernel]]:
    """The kernels of every job, profiled; none for jobs that failed before. The notes are kept in the profiler's
    file."""
    ran = [job for job, note in zip(jobs, notes, strict=True) if "failed" not in note]
    found = iter(profile(ran, csv_path, load).jobs if ran else [])
    append_notes(csv_path, notes)
    return [[] if "failed" in note else next(found) for note in notes]


def worker_command(jobs: Sequence[Job], notes_path: Path, counters: bool, load: Sequence[str] = ()) -> list[str]:
    """The command line of `python -m iosim.gpu.worker`. The jobs are written to a file beside the notes."""
    jobs_path = Path(f"{notes_path}.jobs")
    jobs_path.write_text(json.dumps([job.to_json() for job in jobs]), encoding="utf-8")
    notes_path.unlink(missing_ok=True)
    mode = "profile" if counters else "measure"
    return [sys.executable, "-m", "iosim.gpu.worker", mode, str(jobs_path), str(notes_path), *load]


def _run(arguments: list[str], who: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MissingError(f"{who} did not end in {LIMIT_SECONDS} s; try fewer or smaller shapes") from None


def _explain(log: str, code: int) -> None:
    """Raise MissingError if the profiler failed, with the reason and a remedy."""
    if DENIED in log:
        raise MissingError(
            f"the driver does not let this user read hardware counters ({DENIED}); {GRANT}. --no-counters still "
            "compares words, output and time"
        )
    errors = [line for line in log.splitlines() if line.startswith("==ERROR==")]
    if errors or code:
        raise MissingError("ncu could not profile: " + " ".join(errors[:2] or [last_line(log)]))


def last_line(text: str) -> str:
    """The last line of a text that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
