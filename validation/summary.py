"""Tables and plots of a measurement, from the CSVs that `measure.py --rows` and `tuned.py` wrote: from the root

    PYTHONPATH=. python3 validation/summary.py validation/FOLDER            # docs/hardware.md, validation/README.md
    PYTHONPATH=. python3 validation/summary.py validation/FOLDER --plots    # and validation/*.png (needs matplotlib)

What stands between `<!-- NAME -->` and `<!-- end NAME -->` in the two pages is replaced; the rest is prose. claims.json
in the folder gets the errors of the predictions, rounded up to a percent: tests hold today's model to them. A folder
without all parts (no sweep.csv) gets only that, and stands in the pages of one that has them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import shapes
from l2_tables import buffers, edge, spilled
from page_text import Row, mega, read, shown, table
from speeds import speed

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "hardware.md", ROOT / "validation" / "README.md")
FAR = 0.2
LEAST_DRAM_BYTES = 1_000_000  # below, what is fetched beside the tensors (code, constants) is most of it


def device(folder: Path) -> str:
    about = json.loads((folder / "about.json").read_text())
    return (f"{about['name']}, driver {about['driver']}, SM clock {about['sm_clock']}, memory clock "
            f"{about['memory_clock']}, {about['date']}; raw files in `validation/{folder.name}/`.")  # fmt: skip


def label(row: Row) -> dict[str, str]:
    return {"schedule": row["schedule"], "N": row["N"], "d": row["d"], "heads": row["heads"], "tiles": row["tiles"],
            "type": row["dtype"], "mask": row["mask"]}  # fmt: skip


def three_way(folder: Path) -> str:
    """Words and bytes, one row a shape."""
    return table([{**label(r), "words simulated": r["words"], "on device": r["device_words"],
                   "SM read": r["hw_read_bytes"], "x simulated": shown(r["read_ratio"], 5),
                   "SM written": r["hw_write_bytes"], "x simulated ": shown(r["write_ratio"], 5),
                   "error": f"{float(r['error']):.1e}", "allowed": f"{float(r['allowed_error']):.1e}", "ok": r["ok"]}
                  for r in read(folder, "rows.csv")])  # fmt: skip


def agreement(folder: Path) -> str:
    rows = read(folder, "rows.csv")
    equal = sum(r["words"] == r["device_words"] for r in rows)
    exact = sum(r["read_ratio"] == "1.0" and r["write_ratio"] in ("1.0", "") for r in rows)
    good = sum(r["ok"] == "True" for r in rows)
    return (
        f"{len(rows)} shapes: words counted on the device equal the simulated ones in {equal}; bytes counted by the "
        f"hardware equal the simulated bytes exactly in {exact}; everything, the bound of partial sectors and the "
        f"output included, agrees in {good}."
    )


def errors(rows: list[Row], name: str) -> list[float]:
    return [abs(float(row[name]) - 1) for row in rows if row.get(name)]


def big(rows: list[Row]) -> list[Row]:
    """Rows whose DRAM traffic is worth a ratio."""
    return [r for r in rows if dram_measured(r) >= LEAST_DRAM_BYTES]


def dram_measured(r: Row) -> float:
    """Bytes read and written."""
    return sum(float(r.get(name) or 0) for name in ("dram_read_bytes", "dram_write_bytes", "dram_measured"))


def groups(folder: Path) -> dict[str, list[Row]]:
    mine = read(folder, "rows.csv")
    theirs = [r for r in read(folder, "torch_rows.csv") if r["best"] == "True"]
    found = {
        "generated, looked at": [r for r in mine if r["part"] == "generated" and r["held_out"] == "False"],
        "generated, held out": [r for r in mine if r["part"] == "generated" and r["held_out"] == "True"],
        **{label: [r for r in mine if r["part"] == name] for name, (_, label) in shapes.DRAWS.items()},
        "tuned": [r for r in mine if r["part"] == "tuned"],
    }
    for name in dict.fromkeys(r["kernel"] for r in theirs):
        found[name] = [r for r in theirs if r["kernel"] == name]
    return {name: rows for name, rows in found.items() if rows}


def prediction_errors(folder: Path) -> str:
    rows, found = [], groups(folder)
    ours = [row for name, part in found.items() if not name.startswith("torch") for row in part]
    for name, part in [*found.items(), ("all of ours", ours)]:
        dram, time = errors(big(part), "dram_ratio"), errors(part, "time_ratio")
        rows.append({"kernels": name, "shapes": len(part), "with DRAM": len(dram), **spread("DRAM", dram),
                     **spread("time", time)})  # fmt: skip
    return table(rows)


def spread(name: str, found: list[float]) -> dict[str, str]:
    if not found:
        return {f"{name} median": "", f"{name} worst": ""}
    return {f"{name} median": f"{median(found):.1%}", f"{name} worst": f"{max(found):.1%}"}


def worst(folder: Path) -> str:
    """The ten worst predictions of time of our kernels, and of DRAM bytes."""
    rows = read(folder, "rows.csv")
    slow = sorted((r for r in rows if r["time_ratio"]), key=lambda r: -abs(float(r["time_ratio"]) - 1))[:10]
    moved = sorted((r for r in big(rows) if r["dram_ratio"]), key=lambda r: -abs(float(r["dram_ratio"]) - 1))[:5]
    time = [{**label(r), "us": shown(str(float(r["seconds"]) * 1e6), 1), "time pred / meas": shown(r["time_ratio"])}
            for r in slow]  # fmt: skip
    dram = [{**label(r), "MB": mega(str(float(r["dram_read_bytes"]) + float(r["dram_write_bytes"]))),
             "DRAM predicted / measured": shown(r["dram_ratio"])} for r in moved]  # fmt: skip
    return table(time) + "\n\n" + table(dram)


def pytorch(folder: Path) -> str:
    rows = [r for r in read(folder, "torch_rows.csv") if r["best"] == "True"]
    return table([{"kernel": r["kernel"], "batch": r["batch"], "heads": r["heads"], "N": r["N"], "d": r["d"],
                   "mask": r["mask"], "explained by": f"{r['schedule']} {r['tiles'] or ''}",
                   "whole tiles": {"True": "yes"}.get(r["whole_tiles"], ""), "SM read": r["read_measured"],
                   "x predicted": shown(r["read_ratio"], 5), "SM written": r["write_measured"],
                   "x predicted ": shown(r["write_ratio"], 5), "DRAM pred / meas": shown(r["dram_ratio"]),
                   "time pred / meas": shown(r["time_ratio"])} for r in rows])  # fmt: skip


def math(folder: Path) -> str:
    """A row a pass of PyTorch's attention without a fused kernel; where none is found, the kernel that loads most."""
    rows = [r if r["explains"] == "True" else {**r, "read_ratio": "", "write_ratio": "", "schedule": "", "tiles": ""}
            for r in read(folder, "math_rows.csv") if r["best"] == "True"]  # fmt: skip
    return table([{"inputs": r["inputs"], "batch": r["batch"], "heads": r["heads"], "N": r["N"], "d": r["d"],
                   "mask": r["mask"], "pass": r["pass"] or "the largest kernel, not explained",
                   "explained by": " ".join([r["schedule"], r["tiles"]]).strip(),
                   "words": r["dtype"], "SM read": r["read_measured"], "x predicted": shown(r["read_ratio"], 5),
                   "SM written": r["write_measured"], "x predicted ": shown(r["write_ratio"], 5),
                   "DRAM pred / meas": shown(r["dram_ratio"])} for r in rows])  # fmt: skip


def second(folder: Path) -> str:
    """The same of GPUs that no model was made from: folders beside this one, with fewer parts."""
    others = [path.parent for path in sorted(folder.parent.glob("*/rows.csv")) if not whole(path.parent)]
    return "\n\n".join(part(other) for other in others for part in (device, agreement, prediction_errors))


def whole(folder: Path) -> bool:
    """Whether all parts were measured: such a folder fills the pages."""
    return (folder / "sweep.csv").exists()


def sweep(folder: Path) -> str:
    rows = [{"schedule": r["schedule"], "M (bytes)": r["M_bytes"], "tiles": r["tiles"],
             "SM bytes simulated": int(r["sm_read_bytes"]) + int(r["sm_write_bytes"]),
             "measured": int(r["hw_read_bytes"]) + int(r["hw_write_bytes"]),
             "x N^2 d^2 / M": shown(str(constant(r)), 3)} for r in read(folder, "sweep_rows.csv")]  # fmt: skip
    return table(rows) + "\n\n" + table(read(folder, "slopes.csv"))


def constant(r: Row) -> float:
    """Measured words over N^2 d^2 / M, M in words of 2 bytes (the sweep is in fp16)."""
    words = (int(r["hw_read_bytes"]) + int(r["hw_write_bytes"])) / 2 / int(r["heads"])
    return float(words * int(r["M_bytes"]) / 2 / (int(r["N"]) ** 2 * int(r["d"]) ** 2))


def unexplained(folder: Path) -> str:
    """What lies outside of what was aimed at, by name."""
    mine = read(folder, "rows.csv")
    theirs = [r for r in read(folder, "torch_rows.csv") if r["best"] == "True"]
    rows = [problem(r, r["faults"]) for r in mine if r["ok"] != "True"]
    rows += [problem(r, "no schedule predicts its reads") for r in theirs if r.get("explains") != "True"]
    rows += [problem(r, f"DRAM bytes {shown(r['dram_ratio'])} of the measured") for r in big([*mine, *theirs])
             if r["dram_ratio"] and abs(float(r["dram_ratio"]) - 1) > FAR]  # fmt: skip
    return table(rows + [problem(r, f"time {shown(r['time_ratio'])} of the measured") for r in [*mine, *theirs]
                         if r["time_ratio"] and abs(float(r["time_ratio"]) - 1) > FAR])  # fmt: skip


def problem(r: Row, what: str) -> dict[str, str]:
    name, dtype = r.get("kernel") or f"{r['schedule']} {r['tiles']}", r.get("dtype") or "fp16"
    return {
        "kernel": name,
        "N": r["N"],
        "d": r["d"],
        "heads": r["heads"],
        "type": dtype,
        "mask": r["mask"],
        "what": what,
    }


PARTS: dict[str, Callable[[Path], str]] = {
    "device": device, "agreement": agreement, "three-way": three_way, "errors": prediction_errors, "worst": worst,
    "pytorch": pytorch, "math": math, "second": second, "sweep": sweep, "speed": speed, "l2": buffers,
    "edge": edge, "spills": spilled,
    "unexplained": unexplained,
}  # fmt: skip


def filled(text: str, folder: Path) -> str:
    """A page with its parts made anew."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{PARTS[name](folder)}\n<!-- end {name} -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end \1 -->", part, text, flags=re.S)


def claims(folder: Path) -> dict[str, Any]:
    """Errors by group of kernels, rounded up to a percent; and what did not agree."""
    found: dict[str, Any] = {"faults": [r["faults"] for r in read(folder, "rows.csv") if r["faults"]]}
    for name, part in groups(folder).items():
        pairs = {"dram_ratio": errors(big(part), "dram_ratio"), "time_ratio": errors(part, "time_ratio")}
        found[name] = {key: {"median": ceil(median(e) * 100) / 100, "worst": ceil(max(e) * 100) / 100}
                       for key, e in pairs.items() if e}  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plots", action="store_true")
    given = parser.parse_args()
    for page in PAGES if whole(given.folder) else ():
        page.write_text(filled(page.read_text(encoding="utf-8"), given.folder), encoding="utf-8")
    (given.folder / "claims.json").write_text(json.dumps(claims(given.folder), indent=1) + "\n", encoding="utf-8")
    if given.plots:
        import plots

        plots.draw(given.folder)


if __name__ == "__main__":
    main()
