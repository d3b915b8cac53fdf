"""The columns of a verdict: what `iosim verify --json` writes for each job."""

from __future__ import annotations

from typing import TypedDict


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
    """Bytes between SM and L2: simulated (sm_), counted by the hardware (hw_), and counted / simulated."""

    sm_read_bytes: int
    hw_read_bytes: int | None
    read_ratio: float | None
    sm_write_bytes: int
    hw_write_bytes: int | None
    write_ratio: float | None


class DramRow(TypedDict):
    """Bytes between L2 and DRAM, predicted and measured, and between which totals they lie.

    The measured bytes are the mean over places of the arrays in memory. `dram_at_the_edge`: what is used again about
    fills the L2, so a range is predicted.
    """

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
    """Seconds, predicted and measured, and the rates achieved in the measured time."""

    seconds_predicted: float | None
    bound_by: str | None
    seconds: float | None
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


class Verdict(WordRow, SmRow, DramRow, TimeRow, OutputRow, FloorRow):
    """The row of a job: predicted and measured side by side. `ok` says whether all agree, and `faults` which do not."""

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
    """Many rows in one: how many agree, and the relative errors of the predictions."""

    rows: int
    ok: int
    dram_median_error: float
    dram_worst_error: float
    time_median_error: float
    time_worst_error: float
