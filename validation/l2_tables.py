"""Tables of DRAM bytes: what an L2 keeps of buffers (l2_buffers.py), shapes at its edge, registers that are spilled."""

from __future__ import annotations

from pathlib import Path

from page_text import Row, mega, read, shown, table

from iosim.gpu.predict import l2_capacity_bytes
from iosim.hardware import read as read_hardware

VERBS = {"read": "read", "both": "read and write"}
SHOWN_MIB = ("24", "28", "32", "36", "40", "48", "56", "64")
SHAPE = ("N", "d", "heads", "mask")


def buffers(folder: Path) -> str:
    """What an L2 keeps of buffers that are gone through five times: DRAM bytes in buffers, measured / by the model."""
    from l2_buffers import modelled

    capacity_bytes = l2_capacity_bytes(read_hardware(folder / "hardware.toml"))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for r in read(folder, "l2_buffers.csv"):
        if r["buffer_mib"] not in SHOWN_MIB or (r["blocks"] == "16" and r["access"] != "both"):
            continue
        alone = {"1": "one SM"}.get(r["blocks"], f"{r['blocks']} SMs, a part each")
        name = "all SMs, the same" if r["pattern"] == "shared" else alone
        size, model = int(r["buffer_mib"]) * 2**20, modelled(r, capacity_bytes)
        for number, what in enumerate(("read", "write")):
            if r["access"] in (what, "both"):
                verb = VERBS.get(r["access"], r["access"])
                row = rows.setdefault((name, verb, what), {"who": name, "does": verb, "DRAM": what})
                row[f"{r['buffer_mib']} MiB"] = beside(r, what, model[number], size)
    names = ["who", "does", "DRAM", *(f"{mib} MiB" for mib in SHOWN_MIB)]
    return table([{name: row.get(name, "") for name in names} for row in rows.values()])


def beside(row: Row, what: str, predicted: float, size: int) -> str:
    """Measured / predicted, both in so many bytes."""
    return f"{int(row[f'dram_{what}_bytes']) / size:.1f} / {predicted / size:.1f}"


def edge(folder: Path) -> str:
    """MB of DRAM of the shapes that were measured in several places."""
    rows = [r for r in read(folder, "rows.csv") if int(r["dram_places"] or 1) > 1]
    return table([{"kernel": r["schedule"], **{name: r[name] for name in SHAPE},
                   "predicted": f"{mb(r, 'read_predicted', 'write_predicted'):.0f}",
                   "with less or more room": f"{mb(r, 'least_predicted'):.0f}-{mb(r, 'most_predicted'):.0f}",
                   "at the edge": {"True": "yes"}.get(r["dram_at_the_edge"], ""), "places": r["dram_places"],
                   "measured": f"{mb(r, 'least_bytes'):.0f}-{mb(r, 'most_bytes'):.0f}",
                   "mean": f"{mb(r, 'read_bytes', 'write_bytes'):.0f}",
                   "predicted / mean": shown(r["dram_ratio"], 2)} for r in rows])  # fmt: skip


def mb(row: Row, *names: str) -> float:
    return sum(int(row[f"dram_{name}"]) for name in names) / 1e6


def spilled(folder: Path) -> str:
    """What FlashAttention-2 spills: of all blocks, and a block, once and in each tile."""
    rows, known = [], set()
    for r in read(folder, "torch_rows.csv"):
        key = tuple(r[name] for name in SHAPE)
        if r["best"] != "True" or not r["block_once_bytes"] or r["kernel"] != "torch-flash" or key in known:
            continue
        known.add(key)
        rows.append({**{name: r[name] for name in SHAPE}, "spilled, MB": mega(r["spilled_bytes"]),
                     "a block once, bytes": r["block_once_bytes"], "in each tile": r["block_again_bytes"],
                     "DRAM pred / meas": shown(r["dram_ratio"])})  # fmt: skip
    return table(rows)
