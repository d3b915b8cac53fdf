"""The parts of tiles-by-time.md: what `iosim tune --by time` picks, beside all measured tiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages.text import Row, about, link, read, table

CLOSE = 1.05  # times the best


def rows_of(folder: Path) -> list[Row]:
    return read(folder, "tiles_rows.csv")


def claim(folder: Path) -> str:
    """How often the pick is close to the best, and where it is not."""
    rows = rows_of(folder)
    best = sum(r["pick"] == r["best"] for r in rows)
    far = [f"N = {r['N']}, d = {r['d']}" for r in rows if float(r["pick_over_best"]) > CLOSE]
    worst = max(float(r["pick_over_best"]) for r in rows)
    kernels = sum(int(r["tiles_measured"]) for r in rows)
    wide = f" Not within 5 %: {'; '.join(far)}." if far else ""
    return (f"**{about(folder)['name']}, {len(rows)} shapes, {kernels} kernels.** The pick is within 5 % of the best "
            f"of all measured tiles in {len(rows) - len(far)} of them, and is the best itself in {best}. At worst it "
            f"takes {worst:.3f} times as long as the best.{wide}")  # fmt: skip


def shapes(folder: Path) -> str:
    """A row a shape."""
    return table([{"N": r["N"], "d": r["d"], "heads": r["heads"], "type": r["dtype"], "tiles": r["tiles_measured"],
                   "best": r["best"], "us": r["best_us"], "pick": r["pick"], "us of the pick": r["pick_us"],
                   "predicted us": r["pick_predicted_us"], "pick / best": f"{float(r['pick_over_best']):.3f}",
                   "worst / best": r["worst_over_best"], "least traffic": r["least_traffic"],
                   "its us / best": r["least_traffic_over_best"] and f"{float(r['least_traffic_over_best']):.2f}"}
                  for r in rows_of(folder)])  # fmt: skip


def files(folder: Path) -> str:
    return f"All times are in {link(folder, 'tiles_time.csv')}, the rows above in {link(folder, 'tiles_rows.csv')}."


PARTS: dict[str, Callable[[Path], str]] = {"claim": claim, "shapes": shapes, "files": files}
