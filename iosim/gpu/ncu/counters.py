"""The counters of Nsight Compute, read from its CSV.

The worker launches a marker before each job, so the CSV alone says which kernels belong to which job. The worker's
notes (words, errors, times) are in the same file, on lines `==IOSIM== {json}` beside the profiler's own `==PROF==`
lines. So one file is enough to repeat a verdict.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError
from ...hardware import SECTOR_BYTES
from ...reading import Unreadable, read_text
from ..jobs import Note

LOADS = "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"
REDUCTIONS = "l1tex__t_bytes_pipe_lsu_mem_global_op_red.sum"
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
TO_L2 = "l1tex__m_l1tex2xbar_write_bytes.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
TIME = "gpu__time_duration.sum"
L2_WRITES = "lts__t_sectors_srcunit_tex_op_write.sum"
BANK_READS = "l1tex__data_bank_reads.sum"  # words of 4 bytes that leave the banks of shared memory and L1
METRICS = (LOADS, STORES, REDUCTIONS, FROM_L2, TO_L2, L2_WRITES, DRAM_READ, DRAM_WRITE, TIME, BANK_READS)
BANK_BYTES = 4
LAUNCH_METRICS = (
    "launch__registers_per_thread",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
)
MARKERS = ("iosim_marker", "spin_kernel")  # before each job: ours, and PyTorch's torch.cuda._sleep
ELSEWHERE = "iosim_elsewhere"  # a marker before the same job with its arrays in other memory
NOTE = "==IOSIM== "
DENIED, GRANT = "ERR_NVGPUCTRPERM", "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"


@dataclass(frozen=True)
class ProfiledKernel:
    """A profiled launch. Metrics are in base units (bytes, ns).

    `elsewhere` has the DRAM bytes (read, written) with the arrays in other places.
    """

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    elsewhere: tuple[tuple[int, int], ...] = ()

    def get(self, metric: str) -> int:
        """A counter; 0 if the profiler has none, as for kernels without atomics."""
        return round(self.metrics.get(metric, 0))

    @property
    def dram_places(self) -> tuple[tuple[int, int], ...]:
        """DRAM bytes (read, written) in each place of the arrays."""
        return ((self.get(DRAM_READ), self.get(DRAM_WRITE)), *self.elsewhere)

    @property
    def load_bytes(self) -> int:
        """Bytes from L2 to SM: as the load/store unit counts them, or the crossbar if the unit sees less than half
        (TMA)."""
        return self.get(LOADS) if 2 * self.get(LOADS) >= self.get(FROM_L2) else self.get(FROM_L2)

    @property
    def through_tma(self) -> bool:
        """Whether most loads are bulk copies (TMA), which do not pass the load/store unit."""
        return 2 * self.get(LOADS) < self.get(FROM_L2)

    @property
    def store_bytes(self) -> int:
        """Bytes from SM to L2: stores and reductions, as the load/store unit counts them.

        The unit does not see bulk stores (TMA). For a kernel that has them, these are the sectors that the L2 was asked
        to write. They include spilled registers, as the crossbar's count does.
        """
        through_lsu, all_sectors = self.get(STORES) + self.get(REDUCTIONS), SECTOR_BYTES * self.get(L2_WRITES)
        return all_sectors if self.through_tma and 2 * through_lsu < all_sectors else through_lsu

    @property
    def smem_read_bytes(self) -> int | None:
        """Bytes that leave the banks of shared memory and of the L1; None if they were not counted."""
        return BANK_BYTES * self.get(BANK_READS) if BANK_READS in self.metrics else None

    @property
    def spilled_bytes(self) -> int | None:
        """Bytes from SM to L2 of spilled registers, which the compiler keeps in local memory. None if they were not
        counted, or if bulk stores hide them."""
        if TO_L2 not in self.metrics or self.through_tma or self.stores_unseen:
            return None
        return max(0, self.get(TO_L2) - self.store_bytes)

    @property
    def stores_unseen(self) -> bool:
        """Whether bytes were written that neither the load/store unit nor a counter of the L2 saw."""
        return self.store_bytes == 0 and self.get(TO_L2) > 0

    @property
    def seconds(self) -> float:
        """The time of the kernel by itself."""
        return self.metrics.get(TIME, 0.0) / 1e9


@dataclass(frozen=True)
class Profile:
    """The kernels of each job in order of launch, and the worker's notes."""

    jobs: list[list[ProfiledKernel]]
    notes: list[Note] = field(default_factory=list)


def read_profile(path: str | Path) -> Profile:
    """The profile in a CSV of Nsight Compute (`ncu --csv`, metrics in rows or in columns), with or without our
    notes."""
    try:
        text = read_text(path, errors="replace")
    except Unreadable as error:
        raise InputError("--from-ncu", str(path), "a CSV written by ncu --csv", str(error)) from None
    return parse_profile(text, str(path))


def parse_profile(text: str, where: str = "--from-ncu") -> Profile:
    """The profile in the text of a CSV of Nsight Compute. Error messages name the file as `where`."""
    lines = text.splitlines()
    notes = [json.loads(line[len(NOTE) :]) for line in lines if line.startswith(NOTE)]
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"') and '"Kernel Name"' in line), None)
    if start is None:
        hint = GRANT if DENIED in text else "give ncu --csv --print-units base"
        raise InputError(where, first_error(lines), "a CSV written by ncu --csv", hint)
    body = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(body))
    kernels = _from_rows(rows, where) if rows and "Metric Name" in rows[0] else _from_columns(rows, where)
    return Profile(_split(kernels), notes)


def _from_rows(rows: list[dict[str, str]], where: str) -> list[ProfiledKernel]:
    """Kernels from the long form: one row for each kernel and metric."""
    kernels: dict[tuple[str, str], ProfiledKernel] = {}
    for row in rows:
        key = row.get("Process ID", ""), row["ID"]
        if key not in kernels:
            kernels[key] = ProfiledKernel(
                row["Kernel Name"], _shape(row.get("Grid Size")), _shape(row.get("Block Size"))
            )
        name, value = row.get("Metric Name"), row.get("Metric Value")
        if name and value:
            _set(kernels[key].metrics, name, value, row.get("Metric Unit") or "", where)
    return list(kernels.values())


def _from_columns(rows: list[dict[str, str]], where: str) -> list[ProfiledKernel]:
    """Kernels from the wide form of `--page raw`: a row of units, then one row a kernel."""
    kernels = []
    units = rows[0] if rows and not rows[0]["ID"] else {}
    for row in rows[1:] if units else rows:
        kernel = ProfiledKernel(row["Kernel Name"], _shape(row.get("Grid Size")), _shape(row.get("Block Size")))
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
    """Set one value, in base units. `n/a` is not a value; thousands may be separated."""
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
    """The numbers of a text as `(8, 1, 32)`."""
    parts = (text or "").strip("()").split(",")
    return tuple(int(part) for part in parts if part.strip().isdigit())


def _split(kernels: list[ProfiledKernel]) -> list[list[ProfiledKernel]]:
    """The kernels of each job. A marker starts a job; without markers all kernels are of one job."""
    jobs: list[list[list[ProfiledKernel]]] = [[[]]]
    for kernel in kernels:
        if any(marker in kernel.name for marker in MARKERS):
            jobs.append([[]])
        elif ELSEWHERE in kernel.name:
            jobs[-1].append([])
        else:
            jobs[-1][-1].append(kernel)
    return [_merged(places) for places in (jobs[1:] if len(jobs) > 1 else jobs)]


def _merged(places: list[list[ProfiledKernel]]) -> list[ProfiledKernel]:
    """The kernels of the first place, with their DRAM bytes in the others."""
    first, *others = places
    if any([k.name for k in kernels] != [k.name for k in first] for kernels in others):
        raise InputError("--from-ncu", "other kernels after iosim_elsewhere than before", "the same ones in all places")
    return [replace(k, elsewhere=tuple(kernels[n].dram_places[0] for kernels in others)) for n, k in enumerate(first)]


def first_error(lines: list[str]) -> str:
    """The first error of the profiler, or the first line."""
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or ["nothing"])[0]
