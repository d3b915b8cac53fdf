"""The columns of a verdict: what `iosim verify --json` writes for each job."""

from __future__ import annotations

from typing import TypedDict


class TensorWords(TypedDict):
    """Words [read, written] of one tensor."""

    simulated: list[int]
    device: list[int] | None
    equal: bool | None


class WordRow(TypedDict):
    words: int
    device_words: int | None
    tensors: dict[str, TensorWords]


class SmRow(TypedDict):
    """Bytes between SM and L2: simulated (sm_), counted by the hardware (hw_), and counted / simulated."""

    sm_read_bytes: int
    hw_read_bytes: int | None
    read_ratio: float | None
    sm_write_bytes: int
    hw_write_bytes: int | None
    write_ratio: float | None


class DramRow(TypedDict):
    """Bytes between L2 and DRAM. Predicted: the mean of the model's caches, and between which totals they lie.
    Measured: the mean of the places of the arrays, and between which totals they lie."""

    dram_read_predicted: int | None
    dram_write_predicted: int | None
    dram_least_predicted: int | None
    dram_most_predicted: int | None
    dram_at_the_edge: bool | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    dram_ratio: float | None
    dram_places: int | None
    dram_least_bytes: int | None
    dram_most_bytes: int | None


class TimeRow(TypedDict):
    seconds_predicted: float | None
    bound_by: str | None
    seconds: float | None
    time_ratio: float | None
    event_seconds: float | None
    sm_bytes_per_second: float | None
    flops_per_second: float | None


class OutputRow(TypedDict):
    error: float | None
    allowed_error: float | None


class Verdict(WordRow, SmRow, DramRow, TimeRow, OutputRow):
    """One row: a job, predicted and measured side by side, `ok`, and in `faults` what does not agree."""

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
    """Over many rows: how many agree, and the relative errors of the predictions."""

    rows: int
    ok: int
    dram_median_error: float
    dram_worst_error: float
    time_median_error: float
    time_worst_error: float
