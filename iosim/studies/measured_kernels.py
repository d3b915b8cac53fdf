"""Kept times of PyTorch's kernels, which stand beside bounds: configs/measured/kernels.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from ..core.problem import Attention
from ..hardware import Hardware, configs_folder
from ..masks import parse_mask

SIZES = ("N", "Nk", "d", "batch", "heads", "kv_heads")


@dataclass(frozen=True)
class MeasuredKernel:
    """The time of one of PyTorch's kernels on a GPU, alone and with an empty L2."""

    gpu: str
    kernel: str
    problem: Attention
    seconds: float


@cache
def kept() -> tuple[MeasuredKernel, ...]:
    """All kept times."""
    with open(configs_folder() / "measured" / "kernels.csv", newline="", encoding="utf-8") as file:
        return tuple(map(read, csv.DictReader(file)))


def read(row: dict[str, str]) -> MeasuredKernel:
    """A row of the file."""
    N, Nk, d, batch, heads, kv_heads = (int(row[name]) for name in SIZES)
    p = Attention(
        N, d, Nk=Nk, batch=batch, heads=heads, kv_heads=kv_heads, dtype=row["dtype"], mask=parse_mask(row["mask"])
    )
    return MeasuredKernel(row["gpu"], row["kernel"], p, float(row["seconds"]))


def measured_beside(chip: Hardware, p: Attention) -> list[MeasuredKernel]:
    """The kept times for a problem of these sizes, type and mask on a GPU, the fastest first."""
    own = [getattr(p, name) for name in (*SIZES, "dtype", "mask")]
    found = [
        one
        for one in kept()
        if one.gpu == chip.name and [getattr(one.problem, name) for name in (*SIZES, "dtype", "mask")] == own
    ]
    return sorted(found, key=lambda one: one.seconds)
