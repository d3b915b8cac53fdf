"""Explanations as text: a short table, and a sentence on the meaning of each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...grid import Grid, Piece

MOST_TILES = 10  # tiles that are named as alike; JSON and CSV have all
SHOWN = {  # columns of the table, and their titles; those without a value in any row are left out
    "kernel": "kernel", "N": "N", "Nk": "Nk", "d": "d", "heads": "heads", "mask": "mask", "answer": "answer",
    "pass": "pass", "dtype": "type", "schedule": "schedule", "tiles": "tiles",
    "read_measured": "loaded B", "read_ratio": "loaded/predicted", "write_measured": "stored B",
    "write_ratio": "stored/predicted",
    "dram_measured": "DRAM B", "dram_ratio": "predicted DRAM/DRAM", "seconds": "seconds",
    "time_ratio": "predicted seconds/seconds", "spilled_bytes": "spilled B",
}  # fmt: skip
LESS_IMPORTANT = (  # columns, left out first to last
    "spilled B", "predicted DRAM/DRAM", "predicted seconds/seconds", "seconds", "DRAM B", "type", "stored B",
    "loaded B", "stored/predicted", "pass", "Nk", "heads",
)  # fmt: skip
Row = Mapping[str, object]


def explanations_pieces(rows: Sequence[Row]) -> list[Piece]:
    """The rows of `iosim profile` for people."""
    shown = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    explaining = [k for k, row in enumerate(rows) if row["explains"]]
    cells = [{SHOWN[name]: row.get(name) for name in shown} for row in rows]
    lines: list[Piece] = [Grid(cells, LESS_IMPORTANT, explaining), ""]
    several = len({row["kernel"] for row in rows}) > 1
    for row in rows:
        mark = f"{row['kernel']}, " if several else ""
        if row.get("says"):
            others = alike(row) if row["answer"] == 1 and row["explains"] else ""
            lines.append(f"{mark}answer {row['answer']}, {row['schedule']} {row['tiles']}: {row['says']}{others}")
        elif row.get("alike"):
            lines.append(f"{mark}{row['pass']}, {row['tiles']}{alike(row)}")
    return lines


def alike(row: Row) -> str:
    """The other tiles that predict the same, ten at most."""
    names = str(row.get("alike") or "").split()
    more = f" and {len(names) - MOST_TILES} more" if len(names) > MOST_TILES else ""
    return f"; as would {', '.join(names[:MOST_TILES])}{more}" if names else ""
