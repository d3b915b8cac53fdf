"""Tables of how fast the tuned kernels are: of attention as a whole, and of the passes of `standard`."""

from __future__ import annotations

from pathlib import Path

from page_text import Row, read, shown, table


def speed(folder: Path) -> str:
    """Of the tuned kernels: attention by the profiler, beside PyTorch's on the same GPU; passes by tuned.py."""
    rows = read(folder, "tuned_time.csv")
    sizes = ("kernel", "heads", "N", "d")
    passes = [{**{name: r[name] for name in sizes}, "TB/s": shown(r["TB_per_s"], 2),
               "of the copy": shown(r["share_of_copy"], 2),
               "x cuBLAS": shown(r.get("ratio_to_cublas"), 2)} for r in rows if r.get("share_of_copy")]  # fmt: skip
    copy = [f"Copy: {shown(r['TB_per_s'], 2)} TB/s. The passes of `standard`:" for r in rows if r["kernel"] == "copy"]
    every = [table(attention(folder)), *copy, table(passes), "All three passes against flash2:", table(fused(folder))]
    return "\n\n".join(every)


def attention(folder: Path) -> list[dict[str, str]]:
    names, rows = ("heads", "N", "d", "mask"), []
    theirs = {(r["kernel"], *(r[name] for name in names)): float(r["seconds"])
              for r in read(folder, "torch_rows.csv") if r["best"] == "True" and r["batch"] == "1"}  # fmt: skip
    for r in read(folder, "rows.csv"):
        if r["part"] == "tuned" and not r["schedule"].startswith("standard"):
            key, seconds = tuple(r[name] for name in names), float(r["seconds"])
            others = {kernel: theirs.get((kernel, *key)) for kernel in ("torch-flash", "torch-cudnn")}
            flash, cudnn = (f"{found / seconds:.2f}" if found else "" for found in others.values())
            rows.append({"kernel": r["schedule"], **dict(zip(names, key, strict=True)),
                         "TFLOP/s": f"{float(r['flops_per_second']) / 1e12:.0f}",
                         "x PyTorch FlashAttention-2": flash, "x cuDNN": cudnn})  # fmt: skip
    return rows


def fused(folder: Path) -> list[dict[str, str]]:
    """Times of a head, of the profiler, where both tuned kernels ran on the same N and d: words, and how they pay."""
    mine = {(r["schedule"].split()[0], r["N"], r["d"]): r for r in read(folder, "rows.csv")
            if r["part"] == "tuned" and r["mask"] == "dense"}  # fmt: skip
    rows = []
    for (name, N, d), r in mine.items():
        other = mine.get(("flash2", N, d))
        if name == "standard-tiled" and other:
            (words, us), (fewer, less) = each(r), each(other)
            rows.append(
                {
                    "N": N,
                    "d": d,
                    "words of standard / flash2": f"{words / fewer:.2f}",
                    "us a head, standard": f"{us:.1f}",
                    "flash2": f"{less:.1f}",
                    "faster": f"{us / less:.2f}",
                }
            )
    return rows


def each(row: Row) -> tuple[float, float]:
    """Words and microseconds of a head."""
    heads = int(row["heads"]) * int(row["batch"])
    return int(row["words"]) / heads, float(row["seconds"]) * 1e6 / heads
