"""The verdict: simulated words, words counted on the device, bytes counted by the hardware; then DRAM, time, output.

Takes what the worker and the profiler found, as values: nothing here needs a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from ..hardware import Hardware
from ..schedules import find
from ..timing import Occupancy, blocks_on
from .counters import SECTOR_BYTES, Kernel
from .jobs import Job, problem_of, runner, tiling_of
from .predict import DECIMALS, Prediction, in_whole_tiles, predict

TMA_TOLERANCE = 0.0005  # of bytes that are seen only at the crossbar, which carries a little more than loads
TUNED_REGISTERS = 168  # 65536 / 384 threads, rounded down to 8: one block a multiprocessor
Row = dict[str, Any]


@dataclass
class Evidence:
    """What is known of one job: the worker's note (without the profiler), and the profiled kernels."""

    job: Job
    note: dict[str, Any] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)


def verify(evidence: Evidence, hardware: Hardware | None) -> Row:
    """One row: predicted and measured side by side, `ok`, and in `faults` what does not agree. Without `hardware`
    nothing is said of DRAM and time, which takes seconds."""
    job, problem = evidence.job, problem_of(evidence.job)
    schedule, tiling = find(job["run"]), tiling_of(job)
    faults = [evidence.note["failed"]] if "failed" in evidence.note else []
    sits = occupancies(evidence, hardware) if hardware else None
    predicted = predict(schedule, problem, tiling, hardware, sits, cold=bool(evidence.kernels), with_range=True)
    row: Row = {
        "schedule": job["run"] + (" (tuned)" if job.get("tuned") else ""),
        "tiles": f"{tiling.rows_q}x{tiling.rows_k}",
        **{name: getattr(problem, name) for name in ("N", "Nk", "d", "batch", "heads", "dtype", "acc_dtype")},
        "mask": str(problem.mask),
        **words(predicted, evidence.note, faults),
        **hardware_bytes(predicted, evidence, faults),
        **dram(predicted, evidence.kernels),
        **times(predicted, evidence),
        **output(evidence.note, faults),
    }
    return {**row, "ok": not faults, "faults": "; ".join(faults)}


def occupancies(evidence: Evidence, hardware: Hardware) -> list[Occupancy]:
    """How each launch sits on the GPU: from the profiler, else from the launch's threads and shared memory."""
    launches = evidence.note.get("launches") or runner(evidence.job).launches
    shared = hardware.shared_memory_per_sm_bytes
    tuned = bool(evidence.job.get("tuned"))
    found = []
    for number, launch in enumerate(launches):
        blocks = blocks_on(shared, launch["smem_bytes"], launch["threads"], TUNED_REGISTERS if tuned else None)
        if len(evidence.kernels) == len(launches):
            blocks = evidence.kernels[number].blocks_per_sm or blocks
        warps = -(-launch["threads"] // 32)
        found.append(Occupancy(blocks, tuned, launch["tensor_cores"], warps, asynchronous=tuned))
    return found


def words(predicted: Prediction, note: dict[str, Any], faults: list[str]) -> Row:
    """Simulated words against those that the instrumented kernel counted: equal, tensor by tensor."""
    simulated = sum(map(sum, predicted.tensors.values()))
    counted = note.get("words")
    if counted is None:
        return {"words": simulated, "device_words": None, "tensors": by_tensor(predicted.tensors, None)}
    for name in sorted({*predicted.tensors, *counted}):
        mine, theirs = predicted.tensors.get(name, (0, 0)), tuple(counted.get(name, (0, 0)))
        if tuple(mine) != theirs:
            faults.append(f"{name}: simulated {mine} words (read, written), the device counted {theirs}")
    found = by_tensor(predicted.tensors, counted)
    return {"words": simulated, "device_words": sum(map(sum, counted.values())), "tensors": found}


def by_tensor(simulated: dict[str, Any], counted: dict[str, Any] | None) -> dict[str, Row]:
    """Words (read, written) of each tensor: simulated, counted on the device, and whether they are equal."""
    rows: dict[str, Row] = {}
    for name in sorted({*simulated, *(counted or {})}):
        mine = list(simulated.get(name, (0, 0)))
        theirs = None if counted is None else list(counted.get(name, (0, 0)))
        rows[name] = {"simulated": mine, "device": theirs, "equal": None if theirs is None else mine == theirs}
    return rows


def hardware_bytes(predicted: Prediction, evidence: Evidence, faults: list[str]) -> Row:
    """SM <-> L2: loads by op_ld (or the crossbar, for TMA), stores by op_st and op_red."""
    kernels = evidence.kernels
    row: Row = {"sm_read_bytes": predicted.read_bytes, "hw_read_bytes": None, "read_ratio": None,
                "sm_write_bytes": predicted.write_bytes, "hw_write_bytes": None, "write_ratio": None}  # fmt: skip
    if not kernels:
        return row
    extra = table_bytes(evidence)
    read, written = sum(k.load_bytes for k in kernels), sum(k.store_bytes for k in kernels)
    tma = any(k.through_tma for k in kernels)
    if tma:
        p, tiling = problem_of(evidence.job), tiling_of(evidence.job)
        boxes = predict(find(evidence.job["run"]), in_whole_tiles(p, tiling), tiling).read_bytes
        extra += boxes - predicted.read_bytes
    _judge("read", predicted.read_bytes, read, predicted.read_slack_bytes + extra, tma, faults)
    if not any(k.stores_unseen for k in kernels):
        _judge("written", predicted.write_bytes, written, predicted.write_slack_bytes, False, faults)
    else:
        written = 0
    return {**row, "hw_read_bytes": read, "read_ratio": ratio(read, predicted.read_bytes),
            "hw_write_bytes": written or None, "write_ratio": ratio(written, predicted.write_bytes)}  # fmt: skip


def _judge(what: str, simulated: int, found: int, slack: int, tma: bool, faults: list[str]) -> None:
    room = slack + (round(simulated * TMA_TOLERANCE) if tma else 0)
    if not simulated <= found <= simulated + room:
        bound = f", sectors may add {room} B" if room else ""
        faults.append(f"{what}: simulated {simulated} B, the hardware counted {found} B{bound}")


def table_bytes(evidence: Evidence) -> int:
    """A mask's tables are loaded too, which the model has free: at most a sector a warp, table and pair of tiles."""
    tables = evidence.note.get("tables", 0)
    if not tables:
        return 0
    p, t = problem_of(evidence.job), tiling_of(evidence.job)
    pairs = (-(-p.N // t.rows_q) + 1) * (-(-p.Nk // t.rows_k) + 1)
    warps = max(-(-launch["threads"] // 32) for launch in evidence.note["launches"])
    return int(SECTOR_BYTES * warps * tables * pairs * p.instances)


def dram(predicted: Prediction, kernels: list[Kernel]) -> Row:
    """Predicted (the mean of caches with a little less and a little more room, and between which it lies) and measured
    (the mean of the places where the arrays lay, and between which it lies)."""
    found = predicted.dram
    row: Row = {"dram_read_predicted": found and found.read_bytes, "dram_write_predicted": found and found.write_bytes,
                "dram_least_predicted": found and found.least_bytes, "dram_most_predicted": found and found.most_bytes,
                "dram_at_the_edge": found and found.at_the_edge,
                "dram_read_bytes": None, "dram_write_bytes": None, "dram_ratio": None, "dram_places": None,
                "dram_least_bytes": None, "dram_most_bytes": None}  # fmt: skip
    if not kernels or found is None:
        return row
    by_place = zip(*(kernel.dram_places for kernel in kernels), strict=True)
    places = [(sum(read for read, _ in launches), sum(written for _, written in launches)) for launches in by_place]
    read, written = (round(mean(kind)) for kind in zip(*places, strict=True))
    totals = [sum(place) for place in places]
    return {**row, "dram_read_bytes": read, "dram_write_bytes": written,
            "dram_ratio": ratio(found.total_bytes, read + written), "dram_places": len(places),
            "dram_least_bytes": min(totals), "dram_most_bytes": max(totals)}  # fmt: skip


def times(predicted: Prediction, evidence: Evidence) -> Row:
    """Time by the profiler (kernels alone, cold L2), else by events; the rates that were achieved with it."""
    found = sum(k.seconds for k in evidence.kernels) or evidence.note.get("seconds")
    time = predicted.time
    return {
        "seconds_predicted": time and round(time.seconds, DECIMALS),
        "bound_by": time and time.bound_by,
        "seconds": found and round(found, DECIMALS),
        "time_ratio": ratio(time.seconds, found) if time and found else None,
        "event_seconds": evidence.note.get("seconds"),
        "sm_bytes_per_second": found and (predicted.read_bytes + predicted.write_bytes) / found,
        "flops_per_second": found and predicted.flops / found,
    }


def output(note: dict[str, Any], faults: list[str]) -> Row:
    row: Row = {"error": note.get("error"), "allowed_error": note.get("allowed_error")}
    for label, part in (("", note), (" with large logits", note.get("large_logits") or {})):
        error, allowed, unwritten = (part.get(key) for key in ("error", "allowed_error", "unwritten"))
        if error is not None and allowed is not None and not error <= allowed:
            faults.append(f"output error{label} {error:.3g}, allowed {allowed:.3g}")
        if unwritten:
            faults.append(f"{unwritten} output words{label} are not numbers")
    return row


def ratio(a: float, b: float | None) -> float | None:
    return a / b if b else None


def summary(rows: list[Row]) -> Row:
    """Over many rows: how many agree, and the errors of the predictions."""
    result: Row = {"rows": len(rows), "ok": sum(row["ok"] for row in rows)}
    for name in ("dram_ratio", "time_ratio"):
        errors = [abs(row[name] - 1) for row in rows if row.get(name)]
        if errors:
            result |= {f"{name[:-6]}_median_error": median(errors), f"{name[:-6]}_worst_error": max(errors)}
    return result


def in_words(found: Row) -> str:
    """A summary as a line."""
    parts = [f"{found['ok']} of {found['rows']} agree"]
    for name, label in (("dram", "DRAM"), ("time", "time")):
        if f"{name}_median_error" in found:
            median_error, worst = (100 * found[f"{name}_{which}_error"] for which in ("median", "worst"))
            parts.append(f"{label} predicted {median_error:.1f} % off in the median, {worst:.1f} % at worst")
    return "; ".join(parts)


# ---------------------------------------------------------------- a row for people


def short(rows: list[Row]) -> list[Row]:
    """The columns that fit a page."""
    return [
        {
            "schedule": row["schedule"],
            "tiles": row["tiles"],
            "words": row["words"],
            "on device": row["device_words"],
            "SM read": row["hw_read_bytes"],
            "x simulated": shown(row["read_ratio"], 5),
            "SM written": row["hw_write_bytes"],
            "x simulated ": shown(row["write_ratio"], 5),
            "DRAM pred/meas": shown(row["dram_ratio"], 3),
            "time pred/meas": shown(row["time_ratio"], 3),
            "us": row["seconds"] and shown(row["seconds"] * 1e6, 1),
            "TFLOP/s": row["flops_per_second"] and shown(row["flops_per_second"] * 1e-12, 1),
            "TB/s": row["sm_bytes_per_second"] and shown(row["sm_bytes_per_second"] * 1e-12, 2),
            "error": row["error"] and f"{row['error']:.1e}",
            "allowed": row["allowed_error"] and f"{row['allowed_error']:.1e}",
            "ok": "yes" if row["ok"] else "NO",
        }
        for row in rows
    ]


def flat(rows: list[Row]) -> list[Row]:
    """Rows for a table or a CSV: without the words of each tensor."""
    return [{name: value for name, value in row.items() if name != "tensors"} for row in rows]


def shown(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
