"""How fast the tuned kernels are: attention beside PyTorch's kernels, and the passes of `standard` beside a copy."""

from __future__ import annotations

from pathlib import Path

from validation.pages.text import Row, by, explained, extent, read, table

SHAPE = ("heads", "N", "d", "mask")


def beside(folder: Path) -> list[tuple[Row, float | None, float | None]]:
    """Tuned attention kernels, and how many times as fast they are as PyTorch's FlashAttention-2 and as cuDNN on the
    same shape. Times are those of the profiler, which launches one kernel at a time."""
    theirs = {(r["kernel"], *(r[name] for name in SHAPE)): float(r["seconds"])
              for r in explained(folder) if r["batch"] == "1"}  # fmt: skip
    found = []
    for r in read(folder, "rows.csv"):
        if r["part"] == "tuned" and not r["schedule"].startswith("standard"):
            seconds = (theirs.get((name, *(r[x] for x in SHAPE))) for name in ("torch-flash", "torch-cudnn"))
            flash, cudnn = (one / float(r["seconds"]) if one else None for one in seconds)
            found.append((r, flash, cudnn))
    return found


def attention(folder: Path) -> str:
    """A row a tuned attention kernel."""
    found: dict[str, list[tuple[Row, float | None, float | None]]] = {}
    for one in beside(folder):
        found.setdefault(one[0]["schedule"], []).append(one)
    return table([{"kernel": name, "shapes": len(part),
                   "TFLOP/s": extent((float(r["flops_per_second"]) / 1e12 for r, _, _ in part), ".0f"),
                   "x FlashAttention-2": extent(flash for _, flash, _ in part if flash),
                   "x cuDNN": extent(cudnn for _, _, cudnn in part if cudnn)}
                  for name, part in found.items()])  # fmt: skip


def passes(folder: Path) -> str:
    """A row a tuned pass of `standard`."""
    found = by((r for r in read(folder, "tuned_time.csv") if r["share_of_copy"]), "kernel")
    return table([{"pass": name, "shapes": len(part), "TB/s": extent(float(r["TB_per_s"]) for r in part),
                   "of a copy": extent(float(r["share_of_copy"]) for r in part),
                   "x cuBLAS": extent(float(r["ratio_to_cublas"]) for r in part if r["ratio_to_cublas"])}
                  for name, part in found.items()])  # fmt: skip


def three_passes(folder: Path) -> str:
    """Words and times of a head, of the profiler, where both tuned kernels ran on the same N and d."""
    mine = {(r["schedule"].split()[0], r["N"], r["d"]): r for r in read(folder, "rows.csv")
            if r["part"] == "tuned" and r["mask"] == "dense"}  # fmt: skip
    rows: list[dict[str, object]] = []
    for (name, N, d), r in mine.items():
        other = mine.get(("flash2", N, d))
        if name == "standard-tiled" and other:
            (many, us), (fewer, less) = each(r), each(other)
            rows.append({"N": N, "d": d, "words, three passes / flash2": f"{many / fewer:.2f}",
                         "us a head, three passes": f"{us:.1f}", "us a head, flash2": f"{less:.1f}",
                         "time, three passes / flash2": f"{us / less:.2f}"})  # fmt: skip
    words, times = (extent(float(str(row[f"{what}, three passes / flash2"])) for row in rows)
                    for what in ("words", "time"))  # fmt: skip
    return (
        f"The three passes move {words} times the words of `flash2`, and take {times} times as long:\n\n{table(rows)}"
    )


def each(row: Row) -> tuple[float, float]:
    """Words and microseconds of a head."""
    heads = int(row["heads"]) * int(row["batch"])
    return int(row["words"]) / heads, float(row["seconds"]) * 1e6 / heads
