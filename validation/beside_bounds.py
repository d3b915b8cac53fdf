"""Writes configs/measured/kernels.csv, the times of PyTorch's kernels that stand beside the bounds of `iosim roofline`:
from the root of the repository, without a GPU

    PYTHONPATH=. python3 validation/beside_bounds.py

A row has the kernels of one call, whose times under the profiler are added up. They run alone, and the L2 is emptied
before each. Of a call that was measured twice the shorter time is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measure import evidence

from iosim import tables
from iosim.core.problem import Attention
from iosim.gpu.jobs import TorchJob
from iosim.hardware import configs_folder, load

FILE = configs_folder() / "measured" / "kernels.csv"
FOLDERS = sorted(Path(__file__).parent.glob("*-20*"))
PARTS = ("tuned", "torch", "math", "serving")
SIZES = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype")


def main() -> None:
    """Write the file."""
    FILE.write_text(tables.to_csv(kept_rows()), encoding="utf-8")


def kept_rows() -> list[dict[str, Any]]:
    """A row for each GPU, kernel and problem."""
    found: dict[tuple[Any, ...], float] = {}
    for folder in FOLDERS:
        gpu = load(folder.name.partition("-")[0]).name
        for one in (each for part in PARTS for each in evidence(folder, part)):
            if isinstance(one.job, TorchJob) and one.kernels:
                key = gpu, one.job.name, *sizes(one.job.problem), str(one.job.problem.mask)
                found[key] = min(round(sum(k.seconds for k in one.kernels), 9), found.get(key, 1.0))
    names = ("gpu", "kernel", *SIZES, "mask", "seconds")
    return [dict(zip(names, (*key, seconds), strict=True)) for key, seconds in found.items()]


def sizes(p: Attention) -> tuple[Any, ...]:
    """The sizes and the type of a problem."""
    return tuple(getattr(p, name) for name in SIZES)


if __name__ == "__main__":
    main()
