"""The parts of docs/hardware/words-and-bytes.md: words and bytes between SM and L2, and the sweep over M."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages.text import Row, about, by_schedule, device, extent, link, most, others, read, shown, table


def agreement(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {agreement_of(one)}" for one in (folder, *others(folder)))


def agreement_of(folder: Path) -> str:
    rows = every(folder)
    words = sum(r["words"] == r["device_words"] for r in rows)
    exact = sum(map(is_exact, rows))
    good = sum(r["ok"] == "True" for r in rows)
    return (
        f"**{about(folder)['name']}, {len(rows)} shapes.** The kernel counted exactly the simulated words in {words}. "
        f"The hardware counted exactly the simulated bytes in {exact}. In {good} everything agrees: the words, the "
        "bytes within the bound for partial sectors, and the output."
    )


def every(folder: Path) -> list[Row]:
    """The rows of all shapes: of the schedules on chosen and drawn shapes, and of the others."""
    more = read(folder, "family_rows.csv") if (folder / "family_rows.csv").exists() else []
    return [*read(folder, "rows.csv"), *more]


def is_exact(r: Row) -> bool:
    """Whether the hardware counted the simulated bytes, read and written."""
    return r["read_ratio"] == "1.0" and r["write_ratio"] in ("1.0", "")


def schedules(folder: Path) -> str:
    """A row a schedule."""
    return table([{"schedule": name, "shapes": len(rows),
                   "words equal": sum(r["words"] == r["device_words"] for r in rows),
                   "bytes exact": sum(map(is_exact, rows)), "within the bound": sum(r["ok"] == "True" for r in rows),
                   "most read / simulated": most((float(r["read_ratio"]) for r in rows), ".3f"),
                   "most written / simulated": most((float(r["write_ratio"]) for r in rows if r["write_ratio"]), ".3f"),
                   "largest error / allowed": most(map(of_allowed, rows), ".2f")}
                  for name, rows in by_schedule(every(folder)).items()])  # fmt: skip


def of_allowed(r: Row) -> float:
    """The output's error against float64, over what is allowed."""
    return float(r["error"]) / float(r["allowed_error"])


def sweep(folder: Path) -> str:
    """A row a schedule: bytes against M, with the best tiles for each M."""
    slopes = {r["schedule"]: r for r in read(folder, "slopes.csv")}
    rows: list[dict[str, object]] = []
    for name, found in by_schedule(read(folder, "sweep_rows.csv")).items():
        exact = sum(r["read_ratio"] == r["write_ratio"] == "1.0" for r in found)
        large = [r for r in found if int(r["M_bytes"]) >= 48 * 1024]
        sizes = extent((int(r["M_bytes"]) / 1024 for r in found), ".0f")
        rows.append({"schedule": name, "M, KB": sizes, "sizes": len(found), "bytes exact": exact,
                     "slope simulated": shown(slopes[name]["slope_simulated"]),
                     "slope measured": shown(slopes[name]["slope_measured"]),
                     "c at the smallest M": f"{constant(found[0]):.2f}",
                     "c from 48 KB on": extent(map(constant, large)),
                     "measured / floor from 48 KB on": extent(map(over_floor, large))})  # fmt: skip
    return table(rows)


def constant(r: Row) -> float:
    """Measured words over N^2 d^2 / M, M in words of 2 bytes (the sweep is in fp16)."""
    words = (int(r["hw_read_bytes"]) + int(r["hw_write_bytes"])) / 2 / int(r["heads"])
    return float(words * int(r["M_bytes"]) / 2 / (int(r["N"]) ** 2 * int(r["d"]) ** 2))


def over_floor(r: Row) -> float:
    """Measured bytes over the floor at this M."""
    return float(r["measured_ratio_to_floor"])


def closest(folder: Path) -> str:
    """Which schedule comes closest to the floor, and at which M."""
    best = min(read(folder, "sweep_rows.csv"), key=over_floor)
    moved, size = int(best["hw_read_bytes"]) + int(best["hw_write_bytes"]), int(best["M_bytes"]) // 1024
    return (f"The closest is `{best['schedule']}` with {best['tiles']} at {size} KB: the hardware counted {moved:,} "
            f"bytes, {over_floor(best):.3f} times the floor of {int(best['floor_bytes']):,}.")  # fmt: skip


def rows(folder: Path) -> str:
    return (f"Every shape has a row in {link(folder, 'rows.csv')} or {link(folder, 'family_rows.csv')}, "
            f"every M in {link(folder, 'sweep_rows.csv')}. "
            f"Measured on {device(folder)}")  # fmt: skip


PARTS: dict[str, Callable[[Path], str]] = {
    "agreement": agreement,
    "schedules": schedules,
    "sweep": sweep,
    "closest": closest,
    "rows": rows,
}
