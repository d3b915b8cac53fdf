"""Verdicts: what `iosim verify` finds for each job, its columns, and the summary of many as a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..answer import Column, Columns, Table, columns_of, in_order, rounded


class TensorWords(TypedDict):
    """Words [read, written] of one tensor."""

    simulated: list[int]
    device: list[int] | None
    equal: bool | None


class WordRow(TypedDict):
    """Words of all tensors: simulated, and counted on the device."""

    words: int
    device_words: int | None
    tensors: dict[str, TensorWords]


class SmRow(TypedDict):
    """Bytes between SM and L2: simulated (sm_), counted by the hardware (hw_), and counted / simulated. What is loaded
    from the tables of a mask (mask_) is simulated too, and is beside the words of the schedule."""

    sm_read_bytes: int
    mask_read_bytes: int | None
    hw_read_bytes: int | None
    read_ratio: float | None
    sm_write_bytes: int
    hw_write_bytes: int | None
    write_ratio: float | None


class SmemRow(TypedDict):
    """Bytes read from shared memory: those of the products, counted (smem_), all that left the banks (hw_smem_), and
    what is left for prologue, epilogue, softmax and accumulators."""

    smem_read_bytes: int | None
    hw_smem_read_bytes: int | None
    smem_rest_bytes: int | None


class DramRow(TypedDict):
    """Bytes between L2 and DRAM, measured, and between which totals they lie; the bytes that the launches cannot but
    load, and how many times as many they loaded.

    The measured bytes are the mean over places of the arrays in memory.
    """

    dram_compulsory_bytes: int | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    dram_ratio: float | None
    dram_places: int | None
    dram_least_bytes: int | None
    dram_most_bytes: int | None


class TimeRow(TypedDict):
    """The measured seconds, the least that are possible, and the rates achieved."""

    seconds: float | None
    at_least_seconds: float | None
    binds: str | None
    time_ratio: float | None
    event_seconds: float | None
    sm_bytes_per_second: float | None
    flops_per_second: float | None


class OutputRow(TypedDict):
    """The largest error and bias of the output, and the largest that are allowed. The bias is the slope against the
    answer less 1."""

    error: float | None
    allowed_error: float | None
    bias: float | None
    allowed_bias: float | None


class FloorRow(TypedDict):
    """The floor (docs/floors.md) at `floor_M_bytes`, and SM bytes over it: simulated, and counted by the hardware.

    M is the size that tiles were chosen for, else the SRAM that the given tiles need. Values are None
    without a floor, or without a counter of all bytes.
    """

    floor_M_bytes: int
    floor_bytes: int | None
    ratio_to_floor: float | None
    measured_ratio_to_floor: float | None


class Verdict(WordRow, SmRow, SmemRow, DramRow, TimeRow, OutputRow, FloorRow):
    """The row of a job: simulated and measured side by side. `ok` says whether all agree, and `faults` which do not."""

    schedule: str
    tiles: str
    N: int
    Nk: int
    d: int
    batch: int
    heads: int
    dtype: str
    acc_dtype: str
    mask: str
    ok: bool
    faults: str


class SweepVerdict(Verdict):
    """A verdict in a sweep over M."""

    M_bytes: int


class Summary(TypedDict, total=False):
    """Many rows in one: how many agree, and how many times the compulsory bytes they load from DRAM."""

    rows: int
    ok: int
    dram_least_ratio: float
    dram_most_ratio: float


def times(value: float | None, factor: float, digits: int) -> str | None:
    """A number times a factor, with so many digits after the point."""
    return None if value is None else f"{value * factor:.{digits}f}"


def over_floor(row: SweepVerdict) -> str | None:
    """The bytes that the hardware counted over the floor; the simulated ones without a counter."""
    return times(row["measured_ratio_to_floor"] or row["ratio_to_floor"], 1, 3)


VERDICT: Columns[SweepVerdict] = columns_of(
    SweepVerdict,
    Column("schedule", "string", "schedule"),
    Column("N", heading="N"),
    Column("Nk", heading="Nk"),
    Column("d", heading="d"),
    Column("batch", heading="batch"),
    Column("heads", heading="heads"),
    Column("dtype", "string", "dtype"),
    Column("acc_dtype", "string", "acc_dtype"),
    Column("mask", "string", "mask"),
    Column("tiles", "string", "tiles"),
    Column("words", heading="words", spare=8),
    Column("device_words", heading="on device", spare=5),
    Column("mask_read_bytes", heading="mask read", spare=11),
    Column("hw_read_bytes", heading="SM read", spare=6),
    Column("read_ratio", "number", "x simulated", ".5f"),
    Column("hw_write_bytes", heading="SM written", spare=7),
    Column("write_ratio", "number", "x simulated ", ".5f"),
    Column("smem_read_bytes", heading="products read", spare=10),
    Column("hw_smem_read_bytes", heading="banks read", spare=9),
    Column("ratio_to_floor", "number", "x floor", over_floor),
    Column("dram_ratio", "number", "DRAM x compulsory", ".3f"),
    Column("seconds", "number", "us", lambda row: times(row["seconds"], 1e6, 1)),
    Column("time_ratio", "number", "x at least", ".2f"),
    Column("flops_per_second", "number", "TFLOP/s", lambda row: times(row["flops_per_second"], 1e-12, 1), 4),
    Column("sm_bytes_per_second", "number", "TB/s", lambda row: times(row["sm_bytes_per_second"], 1e-12, 2), 3),
    Column("error", "number", "error", ".1e", 2),
    Column("allowed_error", "number", "allowed", ".1e", 1),
    Column("ok", "boolean", "ok", "yes or NO"),
)
OF_PROBLEM = ("N", "Nk", "d", "mask", "batch", "heads", "dtype", "acc_dtype")
SHOWN = (
    "tiles", "words", "device_words", "mask_read_bytes", "hw_read_bytes", "read_ratio", "hw_write_bytes", "write_ratio",
    "smem_read_bytes", "hw_smem_read_bytes", "ratio_to_floor", "dram_ratio", "seconds", "time_ratio",
    "flops_per_second", "sm_bytes_per_second", "error", "allowed_error", "ok",
)  # fmt: skip


def verdict_table(rows: Sequence[Verdict]) -> Table:
    """The verdicts. People see the columns of a problem if rows have several: its sizes and mask, and what differs."""
    names = [name for name in (rows[0] if rows else ()) if name != "tensors"]
    vary = [name for name in OF_PROBLEM if len({str(dict(row)[name]) for row in rows}) > 1]
    of_problem = [name for name in OF_PROBLEM if name in ("N", "Nk", "d", "mask", *vary)] if vary else []
    masked = any(row.get("mask_read_bytes") is not None for row in rows)
    shown = ("schedule", *of_problem, *(name for name in SHOWN if masked or name != "mask_read_bytes"))
    return Table(in_order(VERDICT, names), rows, shown=in_order(VERDICT, shown), tall=True)


def in_words(found: Summary) -> str:
    """A summary as a line of text."""
    agree = f"{found['ok']} of {found['rows']} agree"
    if "dram_least_ratio" not in found:
        return agree
    least, most = (rounded(found[name]) for name in ("dram_least_ratio", "dram_most_ratio"))
    times = least if least == most else f"{least} to {most}"
    return f"{agree}; DRAM reads are {times} times the compulsory ones"
