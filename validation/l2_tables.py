"""Tables of what an L2 keeps, from what l2_buffers.py, l2_arrays.py, l2_strides.py and l2_places.py measured."""

from __future__ import annotations

from pathlib import Path

from page_text import Row, mega, read, shown, table

from iosim.gpu.predict import l2_capacity_bytes, l2_sides
from iosim.hardware import read as read_hardware

VERBS = {"read": "read", "both": "read and write"}
SHOWN_MIB = ("24", "28", "32", "36", "40", "48", "56", "64")
STRIDED_MIB, SHOWN_STRIDES = ("24", "28", "32", "36", "40", "44", "48", "56"), ("0", "361", "723", "1024")
SHAPE = ("N", "d", "heads", "mask")


def l2_of(folder: Path) -> tuple[int, dict[str, str]]:
    """What the model of an L2 takes of a hardware file: the size of a partition, and where blocks sit."""
    hardware = read_hardware(folder / "hardware.toml")
    return l2_capacity_bytes(hardware), l2_sides(hardware)


def buffers(folder: Path) -> str:
    """What an L2 keeps of buffers that are gone through five times: DRAM bytes in buffers, measured / by the model."""
    from l2_buffers import modelled

    l2 = l2_of(folder)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for r in read(folder, "l2_buffers.csv"):
        if r["buffer_mib"] not in SHOWN_MIB or (r["blocks"] == "16" and r["access"] != "both"):
            continue
        alone = {"1": "one SM"}.get(r["blocks"], f"{r['blocks']} SMs, a part each")
        name = "all SMs, the same" if r["pattern"] == "shared" else alone
        size, model = int(r["buffer_mib"]) * 2**20, modelled(r, *l2)
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


def arrays(folder: Path) -> str:
    """The same for bytes in one piece of memory, and in four arrays that were allocated three times: DRAM bytes over
    those of the arrays, least and most measured / by the model."""
    from l2_arrays import modelled

    l2 = l2_of(folder)
    found: dict[tuple[str, ...], list[Row]] = {}
    for r in read(folder, "l2_arrays.csv"):
        found.setdefault((r["access"], r["way"], r["arrays_mib"]), []).append(r)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for (access, way, mib), same in found.items():
        model = modelled(same[0], *l2)
        for what, predicted in zip(("read", "write"), model, strict=True):
            if what == "read" or access == "both":
                times = sorted(int(r[f"dram_{what}_bytes"]) / int(mib) / 2**20 for r in same)
                label = {"memory": {"one": "one piece"}.get(way, "four arrays"), "does": VERBS[access], "DRAM": what}
                row = rows.setdefault((way, access, what), label)
                seen = "-".join(dict.fromkeys(f"{x:.1f}" for x in (times[0], times[-1])))
                row[f"{mib} MiB"] = f"{seen} / {predicted / int(mib) / 2**20:.1f}"
    return table(list(rows.values()))


def strides(folder: Path) -> str:
    """The same for pieces, one of each SM, that lie side by side or in larger memory: DRAM bytes over those of the
    pieces, measured / by the model."""
    from l2_strides import modelled

    l2 = l2_of(folder)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for r in read(folder, "l2_strides.csv"):
        if r["pieces_mib"] in STRIDED_MIB and r["stride_kib"] in SHOWN_STRIDES:
            size, model = int(r["piece_bytes"]) * int(r["blocks"]), modelled(r, *l2)
            for number, what in enumerate(("read", "write")[: 1 + (r["access"] == "both")]):
                stride = f"{r['stride_kib']} KiB" if r["stride_kib"] != "0" else "side by side"
                label = {"one piece each": stride, "does": VERBS[r["access"]], "DRAM": what}
                row = rows.setdefault((stride, r["access"], what), label)
                row[f"{r['pieces_mib']} MiB"] = beside(r, what, model[number], size)
    names = ["one piece each", "does", "DRAM", *(f"{mib} MiB" for mib in STRIDED_MIB)]
    return table([{name: row.get(name, "") for name in names} for row in rows.values()])


def places(folder: Path) -> str:
    """MB of DRAM that shapes move where their arrays are allocated anew: least and most; and what repeating changes."""
    measured: dict[tuple[str, ...], dict[str, list[list[float]]]] = {}
    for r in read(folder, "l2_places.csv"):
        same = measured.setdefault((r["run"], *(r[name] for name in SHAPE)), {}).setdefault(r["way"], [])
        if r["repeat"] == "0":
            same.append([])
        same[-1].append((int(r["dram_read_bytes"]) + int(r["dram_write_bytes"])) / 1e6)
    rows, known = [], dram_of_shapes(folder)
    for key, ways in measured.items():
        row: dict[str, object] = {"kernel": key[0], **dict(zip(SHAPE, key[1:], strict=True))}
        row |= dict(zip(("predicted", "in its set"), (f"{mb:.0f}" for mb in known[key]), strict=True))
        for way in ("apart", "one piece"):
            times = [mb for place in ways.get(way, []) for mb in place]
            row[way] = f"{min(times):.0f}-{max(times):.0f}" if times else ""
        row["repeated"] = f"{max(max(place) / min(place) - 1 for same in ways.values() for place in same):.1%}"
        rows.append(row)
    return table(rows)


def edge(folder: Path) -> str:
    """MB of DRAM of the shapes that were measured in several places."""
    rows = [r for r in read(folder, "rows.csv") if int(r["dram_places"] or 1) > 1]
    return table([{"kernel": r["schedule"], **{name: r[name] for name in SHAPE},
                   "predicted": f"{mb(r, 'read_predicted', 'write_predicted'):.0f}",
                   "by the caches": f"{mb(r, 'least_predicted'):.0f}-{mb(r, 'most_predicted'):.0f}",
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


def dram_of_shapes(folder: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """{(kernel, *SHAPE): MB of DRAM predicted and measured} of all shapes of the sets."""
    found = {}
    for r in read(folder, "torch_rows.csv"):
        if r["best"] == "True" and r["dram_predicted"]:
            found[r["kernel"], *(r[name] for name in SHAPE)] = int(r["dram_predicted"]), int(r["dram_measured"])
    for r in read(folder, "rows.csv"):
        sums = (sum(int(r[f"dram_{what}_{how}"]) for what in ("read", "write")) for how in ("predicted", "bytes"))
        found[r["schedule"], *(r[name] for name in SHAPE)] = tuple(sums)
    return {key: (predicted / 1e6, counted / 1e6) for key, (predicted, counted) in found.items()}
