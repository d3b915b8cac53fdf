"""Writes configs/measured/over_bounds.json, what measured kernels took over the least time on their GPU: from the root
of the repository, without a GPU

    PYTHONPATH=. python3 validation/over_bounds.py

PyTorch's fused kernels (configs/measured/kernels.csv), whose tiles are not known, stand beside what any kernel needs
for their problem; Triton kernels (tests/data/shared_reads.csv) beside the bound of their tiles.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from iosim import Attention
from iosim.core.tiling import parse_tiles
from iosim.counting.needed import problem_times
from iosim.hardware import configs_folder, load
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.timing.bound import time_at_least
from iosim.timing.measured import LEAST_SECONDS

FILE = configs_folder() / "measured" / "over_bounds.json"
KERNELS = configs_folder() / "measured" / "kernels.csv"
TRITON = Path(__file__).parent.parent / "tests" / "data" / "shared_reads.csv"
NOT_FUSED = "torch-math"
Measured = Iterator[tuple[str, float, float]]
"""The GPU, the measured seconds and the bound."""


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


def text() -> str:
    """The text of the file."""
    kinds = {"PyTorch's fused kernels": of_pytorch(), "plain Triton kernels": of_triton()}
    found = {"least_bound_seconds": LEAST_SECONDS, "kinds": [figures(name, every) for name, every in kinds.items()]}
    return json.dumps(found, indent=1) + "\n"


def figures(kind: str, every: Measured) -> dict[str, object]:
    """The range and the median of one kind."""
    seen = [(gpu, seconds / bound) for gpu, seconds, bound in every if bound >= LEAST_SECONDS]
    over = [round(ratio, 4) for _, ratio in seen]
    gpus = sorted({gpu for gpu, _ in seen})
    return {
        "kind": kind,
        "gpus": gpus,
        "kernels": len(over),
        "least": min(over),
        "median": round(median(over), 4),
        "most": max(over),
    }


def of_pytorch() -> Measured:
    """The kept times of fused kernels, beside the least of their problem."""
    for row in read(KERNELS):
        if row["kernel"] != NOT_FUSED:
            bound = max(problem_times(problem_of(row), load(row["gpu"])).values())
            yield row["gpu"], float(row["seconds"]), bound


def of_triton() -> Measured:
    """The kept times of Triton kernels, beside the bound of their tiles."""
    for row in read(TRITON):
        chip = load(row["gpu"])
        bound = time_at_least(find("flash2"), problem_of(row), parse_tiles(row["tiles"]), chip)
        yield chip.name, float(row["microseconds"]) * 1e-6, bound.seconds


def problem_of(row: dict[str, str]) -> Attention:
    """The problem of a row."""
    sizes = {name: int(row[name]) for name in ("Nk", "batch", "heads", "kv_heads", "dv") if row.get(name)}
    types = {name: row[name] for name in ("dtype", "acc_dtype") if row.get(name)}
    return Attention(int(row["N"]), int(row["d"]), mask=parse_mask(row.get("mask") or "dense"), **sizes, **types)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
