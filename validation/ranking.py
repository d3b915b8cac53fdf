"""Writes configs/measured/ranking.json, how good the ranking of `iosim tune --by time` is against kept measurements:
from the root of the repository, without a GPU

    PYTHONPATH=. python3 validation/ranking.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import correlation, median

from tiles_by_time import FLASH2, measured, problem

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling, parse_tiles
from iosim.hardware import Hardware, configs_folder, load
from iosim.schedules import find
from iosim.studies.bound_tiles import Goodness, at_least, in_order
from iosim.studies.ideal_roofline import rows_of, work_by_kind
from iosim.studies.roofline import kept

FOLDER = Path(__file__).parent / "h200-2026-11-22"
FILE = configs_folder() / "measured" / "ranking.json"
FUSED = ("torch-flash", "torch-cudnn", "torch-efficient")
TILES = Tiling(128, 128)  # of the bound of PyTorch's kernels


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(found(), indent=1) + "\n", encoding="utf-8")


def found() -> Goodness:
    """The figures."""
    chip, shares, correlations, kernels = load("h200"), list[float](), list[float](), 0
    for shape, times in measured(FOLDER).items():
        names = [*times]
        kernels += len(names)
        ranked = [
            one.tiles for one in in_order([at_least(FLASH2, problem(*shape), parse_tiles(n), chip) for n in names])
        ]
        shares.append(times[ranked[0]] / min(times.values()))
        fastest = sorted(names, key=times.__getitem__)
        correlations.append(correlation(*([order.index(name) for name in names] for order in (ranked, fastest))))
    calls = over_bound()
    return {
        "gpu": chip.name, "shapes": len(shares), "kernels": kernels, "first_over_fastest": spread(shares),
        "rank_correlation": round(median(correlations), 4), "calls": len(calls), "time_over_bound": spread(calls),
    }  # fmt: skip


def over_bound() -> list[float]:
    """The times of PyTorch's fused kernels over the bound of flash2 for their problems."""
    every = [one for one in kept() if one.kernel in FUSED]
    return [one.seconds / bound(one.problem, load(one.gpu)) for one in every]


def bound(p: Attention, chip: Hardware) -> float:
    """The bound of flash2, without whole blocks: some of the kernels share a head's keys among blocks."""
    flash2, launches = find("flash2"), work_by_kind(find("flash2"), p.packed, TILES).launches
    return rows_of(flash2, TILES, p, TILES, launches, chip, chip.sram_bytes)[-1].bound_seconds


def spread(shares: list[float]) -> list[float]:
    """The least, the median and the most."""
    return [round(share, 4) for share in (min(shares), median(shares), max(shares))]


if __name__ == "__main__":
    main()
