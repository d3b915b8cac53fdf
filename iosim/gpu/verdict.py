"""The verdict on a job: words and SM bytes, simulated beside measured, and DRAM bytes, time and output error.

It takes what the worker and the profiler found as values. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from ..core.problem import bytes_of
from ..counting.bounds import floor_of
from ..hardware import SECTOR_BYTES, Hardware
from ..schedules import find
from ..search.best import footprint
from ..timing.bound import RESOURCES, time_at_least
from ..timing.products import MATRIX_BYTES, UNITS, MatrixUnit
from ..timing.work import Work, work_of
from .compulsory import compulsory_bytes
from .cuda.mask_reads import mask_reads
from .cuda.sectors import PartialSectors, partial_sectors
from .jobs import Job, Note, OutputErrors, ScheduleJob
from .moved import DECIMALS, Moved, in_whole_tiles, moved
from .ncu.counters import ProfiledKernel
from .verdict_rows import DramRow, FloorRow, OutputRow, SmemRow, SmRow, Summary, TensorWords, TimeRow, Verdict, WordRow

TMA_TOLERANCE = 0.0005  # for bytes counted at the crossbar, which carries a little more than loads
LSE_ROWS = 8  # of a request of a tuned kernel
BARRIER_BYTES = 80  # of a block of a tuned kernel, read from shared memory


@dataclass
class Evidence:
    """The evidence on one job: the worker's note, made without the profiler, and the profiled kernels.

    `M_bytes` is the SRAM for which its tiles were chosen; None if they were given.
    """

    job: Job
    note: Note = field(default_factory=lambda: Note())
    kernels: list[ProfiledKernel] = field(default_factory=list)
    M_bytes: int | None = None

    @property
    def scheduled(self) -> ScheduleJob:
        """The job; TypeError if it is not a schedule's."""
        if not isinstance(self.job, ScheduleJob):
            raise TypeError(f"{self.job.name} is not a schedule")
        return self.job


def verify(evidence: Evidence, hardware: Hardware | None) -> Verdict:
    """The verdict on a job, which ran on this hardware, if it is known."""
    job = evidence.scheduled
    p, tiling = job.problem, job.tiling
    faults = [evidence.note["failed"]] if "failed" in evidence.note else []
    simulated = moved(find(job.name), p.packed, tiling)
    words = word_row(simulated, evidence.note, faults)
    sm = sm_row(simulated, evidence, faults)
    output = output_row(evidence.note, faults)
    return {
        "schedule": job.name + (" (tuned)" if job.tuned else ""),
        "tiles": f"{tiling.rows_q}x{tiling.rows_k}",
        "N": p.N,
        "Nk": p.Nk,
        "d": p.d,
        "batch": p.batch,
        "heads": p.heads,
        "dtype": p.dtype,
        "acc_dtype": str(p.acc_dtype),
        "mask": str(p.mask),
        **words,
        **sm,
        **smem_row(evidence, faults),
        **dram_row(evidence),
        **time_row(simulated, evidence, hardware, faults),
        **output,
        "ok": not faults,
        "faults": "; ".join(faults),
        **floor_row(evidence, sm),
    }


# ---------------------------------------------------------------- words and bytes


def word_row(simulated: Moved, note: Note, faults: list[str]) -> WordRow:
    """Simulated words beside those that the instrumented kernel counted. They must be equal for every tensor."""
    words = sum(map(sum, simulated.tensors.values()))
    counted = note.get("words")
    if counted is None:
        return {"words": words, "device_words": None, "tensors": by_tensor(simulated.tensors, None)}
    for name in sorted({*simulated.tensors, *counted}):
        mine, theirs = simulated.tensors.get(name, (0, 0)), tuple(counted.get(name, (0, 0)))
        if tuple(mine) != theirs:
            faults.append(f"{name}: simulated {mine} words (read, written), the device counted {theirs}")
    found = by_tensor(simulated.tensors, counted)
    return {"words": words, "device_words": sum(map(sum, counted.values())), "tensors": found}


def by_tensor(
    simulated: Mapping[str, Sequence[int]], counted: Mapping[str, Sequence[int]] | None
) -> dict[str, TensorWords]:
    """The words of each tensor, simulated and counted on the device."""
    rows: dict[str, TensorWords] = {}
    for name in sorted({*simulated, *(counted or {})}):
        mine = list(simulated.get(name, (0, 0)))
        theirs = None if counted is None else list(counted.get(name, (0, 0)))
        rows[name] = {"simulated": mine, "device": theirs, "equal": None if theirs is None else mine == theirs}
    return rows


def sm_row(simulated: Moved, evidence: Evidence, faults: list[str]) -> SmRow:
    """Bytes between SM and L2, simulated beside counted: loads by op_ld (by the crossbar for TMA), stores by op_st and
    op_red. What the kernel loads of a mask's tables is no word of the schedule, and is counted by itself."""
    kernels = evidence.kernels
    row: SmRow = {
        "sm_read_bytes": simulated.read_bytes,
        "mask_read_bytes": None,
        "hw_read_bytes": None,
        "read_ratio": None,
        "sm_write_bytes": simulated.write_bytes,
        "hw_write_bytes": None,
        "write_ratio": None,
    }
    if not kernels:
        return row
    job, partial = evidence.scheduled, partial_sectors_of(evidence.scheduled)
    of_mask = None if job.tuned else mask_reads(find(job.name), job.problem, job.tiling)
    mask_bytes = of_mask.read_bytes if of_mask else 0
    certain = mask_bytes if of_mask and of_mask.exact else 0
    extra = table_bytes(evidence) + mask_bytes - certain
    read, written = sum(k.load_bytes for k in kernels), sum(k.store_bytes for k in kernels)
    tma = any(k.through_tma for k in kernels)
    if tma:
        boxes = moved(find(job.name), in_whole_tiles(job.problem.packed, job.tiling), job.tiling).read_bytes
        extra += boxes - simulated.read_bytes
    _judge("read", simulated.read_bytes + certain, read, partial.read_bytes + extra, tma, faults)
    if not any(k.stores_unseen for k in kernels):
        _judge("written", simulated.write_bytes, written, partial.write_bytes, False, faults)
    else:
        written = 0
    return {
        **row,
        "mask_read_bytes": of_mask and of_mask.read_bytes,
        "hw_read_bytes": read,
        "read_ratio": quotient(read, simulated.read_bytes + mask_bytes),
        "hw_write_bytes": written or None,
        "write_ratio": quotient(written, simulated.write_bytes),
    }


def partial_sectors_of(job: ScheduleJob) -> PartialSectors:
    """The most bytes that partial sectors can add. A tuned kernel stores its LSE in requests of 8 words."""
    read, written = partial_sectors(find(job.name), job.problem, job.tiling)
    if job.tuned and job.problem.lse:
        written += SECTOR_BYTES * -(-job.problem.N // LSE_ROWS) * job.problem.instances
    return PartialSectors(read, written)


def _judge(what: str, simulated: int, found: int, slack: int, tma: bool, faults: list[str]) -> None:
    room = slack + (round(simulated * TMA_TOLERANCE) if tma else 0)
    if not simulated <= found <= simulated + room:
        bound = f", sectors may add {room:,} B" if room else ""
        faults.append(f"{what}: simulated {simulated:,} B, the hardware counted {found:,} B{bound}")


def floor_row(evidence: Evidence, sm: SmRow) -> FloorRow:
    """The floor, and the ratio of the bytes of `sm` to it. A word of the floor has the narrowest of the types."""
    job = evidence.scheduled
    schedule, p = find(job.name), job.problem
    M_bytes = evidence.M_bytes or int(footprint(schedule, p.packed, job.tiling).peak_bytes)
    words = floor_of(p, M_bytes, schedule.family)
    least = words and words * min(p.word_bytes, p.acc_bytes, bytes_of(p.cache_dtype))
    read, written = sm["hw_read_bytes"], sm["hw_write_bytes"]
    moved = None if read is None or written is None else read + written
    return {
        "floor_M_bytes": M_bytes,
        "floor_bytes": least,
        "ratio_to_floor": quotient(sm["sm_read_bytes"] + sm["sm_write_bytes"], least),
        "measured_ratio_to_floor": None if moved is None else quotient(moved, least),
    }


def table_bytes(evidence: Evidence) -> int:
    """An upper bound on the bytes loaded from the tables of a mask's tiles: a sector for each warp, table and pair of
    tiles. Entries of tokens are counted (cuda/mask_reads.py)."""
    tables = evidence.note.get("tables", 0)
    if not tables:
        return 0
    p, t = evidence.scheduled.problem, evidence.scheduled.tiling
    pairs = (-(-p.N // t.rows_q) + 1) * (-(-p.Nk // t.rows_k) + 1)
    warps = max(-(-launch["threads"] // 32) for launch in evidence.note["launches"])
    return int(SECTOR_BYTES * warps * tables * pairs * p.instances)


def smem_row(evidence: Evidence, faults: list[str]) -> SmemRow:
    """Bytes that products read from shared memory, and all that left its banks. Tuned kernels copy and multiply whole
    tiles; what their loop reads is exact, and beside it O leaves the banks at most twice (`epilogue_bytes`)."""
    job, kernels = evidence.scheduled, evidence.kernels
    seen = [k.smem_read_bytes for k in kernels]
    found = None if not kernels or None in seen else sum(many or 0 for many in seen)
    unit = unit_of_kernel(job)
    p = in_whole_tiles(job.problem.packed, job.tiling) if job.tuned else job.problem
    works = () if unit is None else work_of(find(job.name), p, job.tiling, unit)
    counted = sum(work.smem_read_bytes for work in works) if works else None
    rest = None if found is None or counted is None else found - counted
    most = epilogue_bytes(job, works) if job.tuned and len(works) == 1 else None
    if rest is not None and (rest < 0 or (most is not None and rest > most)):
        room = "" if most is None else f", the epilogue may add {most:,} B"
        faults.append(f"products read {counted:,} B from shared memory, the hardware counted {found:,} B{room}")
    return {"smem_read_bytes": counted, "hw_smem_read_bytes": found, "smem_rest_bytes": rest}


def epilogue_bytes(job: ScheduleJob, works: Sequence[Work]) -> int:
    """The most bytes that leave the banks beside the loop of a tuned kernel of one launch: O, which is put into shared
    memory and copied from there, and the barriers of each block."""
    p = job.problem
    return 2 * p.N * p.dv * p.instances * p.word_bytes + BARRIER_BYTES * works[0].blocks


def unit_of_kernel(job: ScheduleJob) -> MatrixUnit | None:
    """How the products of a kernel read shared memory: tuned ones by wgmma; generated ones by mma.sync, a warp of 16
    rows at a time, which reads Q again for each key tile. None of products on CUDA cores."""
    if job.tuned:
        return UNITS["wgmma"]
    return UNITS["mma.sync"]._replace(held=False) if job.problem.word_bytes == MATRIX_BYTES else None


# ---------------------------------------------------------------- DRAM, time, output


def dram_row(evidence: Evidence) -> DramRow:
    """DRAM bytes: those that were measured, and those that the launches cannot but load."""
    row: DramRow = {
        "dram_compulsory_bytes": None,
        "dram_read_bytes": None,
        "dram_write_bytes": None,
        "dram_ratio": None,
        "dram_places": None,
        "dram_least_bytes": None,
        "dram_most_bytes": None,
    }
    kernels, job = evidence.kernels, evidence.scheduled
    if not kernels:
        return row
    by_place = zip(*(kernel.dram_places for kernel in kernels), strict=True)
    places = [(sum(read for read, _ in launches), sum(written for _, written in launches)) for launches in by_place]
    read, written = (round(mean(kind)) for kind in zip(*places, strict=True))
    totals = [sum(place) for place in places]
    least = sum(compulsory_bytes(find(job.name), job.problem.packed, job.tiling))
    return {
        "dram_compulsory_bytes": least,
        "dram_read_bytes": read,
        "dram_write_bytes": written,
        "dram_ratio": quotient(read, least),
        "dram_places": len(places),
        "dram_least_bytes": min(totals),
        "dram_most_bytes": max(totals),
    }


def time_row(simulated: Moved, evidence: Evidence, hardware: Hardware | None, faults: list[str]) -> TimeRow:
    """The measured time beside the least one, and the rates achieved in it. The profiler times each kernel alone, with
    a cold L2. Without the profiler, events time them in the same way. A time below the least one is a fault."""
    found, job = sum(k.seconds for k in evidence.kernels) or evidence.note.get("seconds"), evidence.scheduled
    bound = None if hardware is None else time_at_least(find(job.name), job.problem, job.tiling, hardware)
    if bound and found and found < bound.seconds:
        faults.append(f"took {found * 1e6:,.1f} us, at least {bound.seconds * 1e6:,.1f} us: {RESOURCES[bound.binds]}")
    return {
        "seconds": found and round(found, DECIMALS),
        "at_least_seconds": bound.seconds if bound else None,
        "binds": bound.binds if bound else None,
        "time_ratio": quotient(found, bound.seconds) if found and bound else None,
        "event_seconds": evidence.note.get("seconds"),
        "sm_bytes_per_second": found and (simulated.read_bytes + simulated.write_bytes) / found,
        "flops_per_second": found and simulated.flops / found,
    }


def output_row(note: Note, faults: list[str]) -> OutputRow:
    """The errors of the plain check. Faults come from both checks, the plain one and that with large logits."""
    large: OutputErrors = note.get("large_logits") or {}
    for label, part in (("", note), (" with large logits", large)):
        error, allowed, unwritten = part.get("error"), part.get("allowed_error"), part.get("unwritten")
        if error is not None and allowed is not None and not error <= allowed:
            faults.append(f"output error{label} {error:.3g}, allowed {allowed:.3g}")
        bias, allowed_bias = part.get("bias"), part.get("allowed_bias")
        if bias is not None and allowed_bias is not None and not bias <= allowed_bias:
            faults.append(f"output bias{label} {bias:.3g}, allowed {allowed_bias:.3g}")
        if unwritten:
            faults.append(f"{unwritten} output words{label} are not numbers")
    return {
        "error": note.get("error"),
        "allowed_error": note.get("allowed_error"),
        "bias": note.get("bias"),
        "allowed_bias": note.get("allowed_bias"),
    }


def quotient(a: float, b: float | None) -> float | None:
    """a / b, or None without a b."""
    return a / b if b else None


def summary(rows: Sequence[Verdict]) -> Summary:
    """The summary of many verdicts."""
    dram = [row["dram_ratio"] for row in rows if row["dram_ratio"]]
    result: Summary = {"rows": len(rows), "ok": sum(row["ok"] for row in rows)}
    return result | {"dram_least_ratio": min(dram), "dram_most_ratio": max(dram)} if dram else result
