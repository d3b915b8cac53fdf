"""Nsight Compute: run it on a worker, keep its CSV, read one back.

One process profiles many kernels. The worker launches a marker before each job, so that the CSV alone says which
kernels belong to which; and what the worker itself found (words, errors, times) is kept in the same file, on lines
`==IOSIM== {json}` beside the profiler's own `==PROF==` lines. So one file replays a whole verdict.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, MissingError

LOADS = "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"
REDUCTIONS = "l1tex__t_bytes_pipe_lsu_mem_global_op_red.sum"
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
TO_L2 = "l1tex__m_l1tex2xbar_write_bytes.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
TIME = "gpu__time_duration.sum"
L2_WRITES = "lts__t_sectors_srcunit_tex_op_write.sum"
METRICS = (LOADS, STORES, REDUCTIONS, FROM_L2, TO_L2, L2_WRITES, DRAM_READ, DRAM_WRITE, TIME)
SECTOR_BYTES = 32
LAUNCH_METRICS = (
    "launch__registers_per_thread",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
)
MARKERS = ("iosim_marker", "spin_kernel")  # ours, and PyTorch's torch.cuda._sleep
NOTE = "==IOSIM== "
DENIED, GRANT = "ERR_NVGPUCTRPERM", "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
LIMIT_SECONDS = 540


@dataclass(frozen=True)
class Kernel:
    """One profiled launch: `grid` and `block` as the profiler writes them, metrics in base units (bytes, ns)."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)

    def get(self, metric: str) -> int:
        """A counter; 0 where the profiler had none (no atomics, say)."""
        return round(self.metrics.get(metric, 0))

    @property
    def load_bytes(self) -> int:
        """SM <- L2. Loads through the LSU; a kernel that loads through TMA shows only at the crossbar."""
        return self.get(LOADS) if 2 * self.get(LOADS) >= self.get(FROM_L2) else self.get(FROM_L2)

    @property
    def through_tma(self) -> bool:
        return 2 * self.get(LOADS) < self.get(FROM_L2)

    @property
    def store_bytes(self) -> int:
        """SM -> L2: stores and reductions of the LSU. It does not see those in bulk (TMA): there, the sectors that the
        L2 was asked to write, spilled registers included, as they are in the crossbar's own count."""
        through_lsu, all_sectors = self.get(STORES) + self.get(REDUCTIONS), SECTOR_BYTES * self.get(L2_WRITES)
        return all_sectors if self.through_tma and 2 * through_lsu < all_sectors else through_lsu

    @property
    def spilled_bytes(self) -> int | None:
        """SM -> L2 beside stores: registers that the compiler had no room for, written to local memory. None where it
        was not counted, or is not told from stores in bulk."""
        if TO_L2 not in self.metrics or self.through_tma or self.stores_unseen:
            return None
        return max(0, self.get(TO_L2) - self.store_bytes)

    @property
    def stores_unseen(self) -> bool:
        """Whether bytes were written, but none through the LSU, and the L2 was not asked."""
        return self.store_bytes == 0 and self.get(TO_L2) > 0

    @property
    def seconds(self) -> float:
        return self.metrics.get(TIME, 0.0) / 1e9

    @property
    def blocks_per_sm(self) -> int | None:
        """The occupancy that the profiler derived from registers, shared memory, warps; None if not asked for."""
        limits = [self.metrics[name] for name in LAUNCH_METRICS if "limit" in name and name in self.metrics]
        return int(min(limits)) if limits else None


@dataclass(frozen=True)
class Profile:
    """Kernels of each job in order of launch, and what the worker said of each job."""

    jobs: list[list[Kernel]]
    notes: list[dict[str, Any]] = field(default_factory=list)
    empty: list[Kernel] = field(default_factory=list)  # our markers between the jobs, which do nothing


def read(path: str | Path) -> Profile:
    """A CSV that Nsight Compute wrote (`ncu --csv`, metrics in rows or in columns), with or without our notes."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError("--from-ncu", str(path), "a CSV written by ncu --csv", error.strerror or "") from None
    return parse(text, str(path))


def parse(text: str, where: str = "--from-ncu") -> Profile:
    lines = text.splitlines()
    notes = [json.loads(line[len(NOTE) :]) for line in lines if line.startswith(NOTE)]
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"') and '"Kernel Name"' in line), None)
    if start is None:
        hint = GRANT if DENIED in text else "give ncu --csv --print-units base"
        raise InputError(where, first_error(lines), "a CSV written by ncu --csv", hint)
    body = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(body))
    kernels = _from_rows(rows, where) if rows and "Metric Name" in rows[0] else _from_columns(rows, where)
    return Profile(_split(kernels), notes, [kernel for kernel in kernels if MARKERS[0] in kernel.name])


def _from_rows(rows: list[dict[str, str]], where: str) -> list[Kernel]:
    """The long form: one row for each kernel and metric."""
    kernels: dict[tuple[str, str], Kernel] = {}
    for row in rows:
        key = row.get("Process ID", ""), row["ID"]
        if key not in kernels:
            kernels[key] = Kernel(row["Kernel Name"], _shape(row.get("Grid Size")), _shape(row.get("Block Size")))
        name, value = row.get("Metric Name"), row.get("Metric Value")
        if name and value:
            _set(kernels[key].metrics, name, value, row.get("Metric Unit") or "", where)
    return list(kernels.values())


def _from_columns(rows: list[dict[str, str]], where: str) -> list[Kernel]:
    """The wide form of `--page raw`: a row of units, then one row a kernel."""
    kernels = []
    units = rows[0] if rows and not rows[0]["ID"] else {}
    for row in rows[1:] if units else rows:
        kernel = Kernel(row["Kernel Name"], _shape(row.get("Grid Size")), _shape(row.get("Block Size")))
        for name, value in row.items():
            if name and "__" in name and value:
                _set(kernel.metrics, name, value, units.get(name) or "", where)
        kernels.append(kernel)
    return kernels


SCALES = {
    **{f"{prefix}{unit}": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T")) for unit in ("byte",)},
    **{"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
}


def _set(metrics: dict[str, float], name: str, text: str, unit: str, where: str) -> None:
    """One value, in base units. `n/a` is no value; thousands may be separated."""
    plain = text.replace(",", "").replace("\N{NO-BREAK SPACE}", "").strip()
    if plain.lower() in ("", "n/a", "nan", "no data"):
        return
    try:
        value = float(plain)
    except ValueError:
        if name in METRICS:
            raise InputError(f"{where}: {name}", text, "a number") from None
        return
    metrics[name] = value * SCALES.get(unit, 1)


def _shape(text: str | None) -> tuple[int, ...]:
    """`(8, 1, 32)` -> (8, 1, 32)."""
    parts = (text or "").strip("()").split(",")
    return tuple(int(part) for part in parts if part.strip().isdigit())


def _split(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Kernels by job: a marker starts one. Without markers all belong to one job."""
    jobs: list[list[Kernel]] = [[]]
    for kernel in kernels:
        if any(marker in kernel.name for marker in MARKERS):
            jobs.append([])
        else:
            jobs[-1].append(kernel)
    return jobs[1:] if len(jobs) > 1 else jobs


def first_error(lines: list[str]) -> str:
    """What the profiler complained of, or the first line."""
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or ["nothing"])[0]


# ---------------------------------------------------------------- running it


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
    """The profiler's command line. Clocks are left as they are; only what the worker brackets is profiled."""
    metrics = ",".join((*METRICS, *LAUNCH_METRICS))
    options = ["--clock-control", "none", "--csv", "--print-units", "base", "--profile-from-start", "off"]
    return [ncu, *options, "--metrics", metrics, "--force-overwrite", "--log-file", csv_path, *worker]


def profile(jobs: list[dict[str, Any]], csv_path: str, load: Sequence[str] = ()) -> Profile:
    """Run the jobs once under the profiler and keep its CSV, with the worker's notes at its end. `load`: Python files
    that register schedules, here as in `measure`."""
    ncu = find_ncu()
    notes_path = Path(csv_path + ".notes")
    worker = worker_command(jobs, notes_path, True, load)
    done = _run(command(ncu, csv_path, worker), "the profiler")
    log = Path(csv_path).read_text(encoding="utf-8", errors="replace") if Path(csv_path).exists() else ""
    _explain(log + done.stdout + done.stderr, done.returncode)
    if notes_path.exists():
        append_notes(csv_path, [json.loads(line) for line in notes_path.read_text(encoding="utf-8").splitlines()])
    found = read(csv_path)
    if len(found.jobs) != len(jobs):
        raise MissingError(f"{len(jobs)} jobs were launched and {len(found.jobs)} profiled; see {csv_path}")
    return found


def append_notes(csv_path: str, notes: list[dict[str, Any]]) -> None:
    """Keep what the worker found in the profiler's file."""
    with open(csv_path, "a", encoding="utf-8") as file:
        file.writelines(f"{NOTE}{json.dumps(note)}\n" for note in notes)


def measure(jobs: list[dict[str, Any]], notes_path: str | Path, load: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run the jobs without the profiler: words counted by the kernels, output errors, times.

    A kernel that faults takes its process with it: the jobs after it get a new one.
    """
    path, notes = Path(notes_path), list[dict[str, Any]]()
    while len(notes) < len(jobs):
        done = _run(worker_command(jobs[len(notes) :], path, False, load), "the worker")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not text:
            raise MissingError(last_line(done.stderr) or f"the worker ended with exit code {done.returncode}")
        notes += [json.loads(line) for line in text.splitlines()]
    return notes


def profile_what_ran(
    jobs: list[dict[str, Any]], notes: list[dict[str, Any]], csv_path: str, load: Sequence[str] = ()
) -> list[list[Kernel]]:
    """The kernels of every job, none for those that failed without the profiler; keeps the notes in its file."""
    ran = [job for job, note in zip(jobs, notes, strict=True) if "failed" not in note]
    found = iter(profile(ran, csv_path, load).jobs if ran else [])
    append_notes(csv_path, notes)
    return [[] if "failed" in note else next(found) for note in notes]


def worker_command(jobs: list[dict[str, Any]], notes_path: Path, counters: bool, load: Sequence[str] = ()) -> list[str]:
    """`python -m iosim.gpu.worker`, with the jobs in a file beside the notes."""
    jobs_path = Path(f"{notes_path}.jobs")
    jobs_path.write_text(json.dumps(jobs), encoding="utf-8")
    notes_path.unlink(missing_ok=True)
    mode = "profile" if counters else "measure"
    return [sys.executable, "-m", "iosim.gpu.worker", mode, str(jobs_path), str(notes_path), *load]


def _run(arguments: list[str], who: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MissingError(f"{who} did not end in {LIMIT_SECONDS} s; try fewer or smaller shapes") from None


def _explain(log: str, code: int) -> None:
    """Turn the profiler's ways of failing into one message."""
    if DENIED in log:
        raise MissingError(
            f"the driver does not let this user read hardware counters ({DENIED}); {GRANT}. --no-counters still "
            "compares words, output and time"
        )
    errors = [line for line in log.splitlines() if line.startswith("==ERROR==")]
    if errors or code:
        raise MissingError("ncu could not profile: " + " ".join(errors[:2] or [last_line(log)]))


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
