"""The parts of serving.md: grouped queries in decoding, FlexAttention, and ragged sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages.kernels import PASSES, ratios
from validation.pages.text import Row, read, table


def serving(folder: Path) -> str:
    """A row a kernel, mask or not, and schedule, of what servers run."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for r in read(folder, "serving_rows.csv"):
        if r["best"] == "True" and not r["pass"]:
            what = "decoding" if int(r["N"]) < 16 else "grouped" if r["N"] == "2048" else "masked"
            what = "dense" if what == "masked" and r["mask"] == "dense" else what
            by_whom = r["schedule"] + (", packed" if r["tiles"].endswith("/pack") else "")
            found.setdefault((r["kernel"], what, by_whom if r["explains"] == "True" else "none"), []).append(r)
    return table([{"kernel": kernel, "what": what, "explained by": by_whom, "shapes": len(rows),
                   "read, measured / predicted": ratios(rows, "read_ratio") if by_whom != "none" else "",
                   "DRAM read / compulsory": ratios(rows, "dram_ratio", ".2f")}
                  for (kernel, what, by_whom), rows in found.items()])  # fmt: skip


def ragged(folder: Path) -> str:
    """Passes of PyTorch without a fused kernel whose rows are no whole sectors."""
    rows = [r for r in read(folder, "serving_rows.csv") if r["pass"] in PASSES]
    exact = sum(r["read_ratio"] == r["write_ratio"] == "1.0" for r in rows)
    sizes = ", ".join(dict.fromkeys(r["N"] for r in rows))
    return f"With N = {sizes}, the bytes of {exact} of the {len(rows)} passes of `torch-math` are predicted exactly."


PARTS: dict[str, Callable[[Path], str]] = {"serving": serving, "ragged": ragged}
