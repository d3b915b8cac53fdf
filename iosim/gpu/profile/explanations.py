"""The answer of `iosim profile`: explanations of kernels, their columns, and a sentence on the meaning of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...answer import Answer, Column, Columns, Piece, Pieces, Row, Table, columns_of, in_order, numbered
from .explain import ExplanationRow
from .passes import PassRow

MOST_TILES = 10  # tiles that are named as alike; JSON and CSV have all
SEEN: Columns[Row] = (
    Column("kernel", "string", "kernel"),
    Column("N", heading="N"),
    Column("Nk", heading="Nk", spare=11),
    Column("d", heading="d"),
    Column("heads", heading="heads", spare=12),
    Column("mask", "string", "mask"),
    Column("answer", heading="answer"),
    Column("pass", "string", "pass", spare=10),
    Column("dtype", "string", "type", spare=6),
    Column("schedule", "string", "schedule"),
    Column("tiles", "string", "tiles"),
    Column("read_measured", heading="loaded B", spare=8),
    Column("read_ratio", "number", "loaded/predicted"),
    Column("write_measured", heading="stored B", spare=7),
    Column("write_ratio", "number", "stored/predicted", spare=9),
    Column("dram_measured", heading="DRAM B", spare=5),
    Column("dram_ratio", "number", "predicted DRAM/DRAM", spare=2),
    Column("seconds", "number", "seconds", spare=4),
    Column("time_ratio", "number", "predicted seconds/seconds", spare=3),
    Column("spilled_bytes", heading="spilled B", spare=1),
)
SHAPE: Columns[Row] = (Column("batch"), Column("kv_heads"))
OF_EXPLANATION: Columns[Row] = columns_of(ExplanationRow)
OF_PASS: Columns[Row] = columns_of(PassRow)
EVERY = (*OF_EXPLANATION, *OF_PASS, *SHAPE, *SEEN)


@dataclass(frozen=True, repr=False)
class Explanations(Answer):
    """The answer of `iosim profile`: rows of explanations and of passes. All have the columns of the first."""

    rows: Sequence[Mapping[str, object]]

    def table(self) -> Table:
        shown = [column for column in SEEN if any(row.get(column.name) is not None for row in self.rows)]
        best = [k for k, row in enumerate(self.rows) if row["explains"]]
        return Table(in_order(EVERY, self.rows[0]), self.rows, shown=shown, best=best)

    def pieces(self) -> Pieces:
        lines: list[Piece] = [self.table(), ""]
        several = len({row["kernel"] for row in self.rows}) > 1
        for row in self.rows:
            mark = f"{row['kernel']}, " if several else ""
            if row.get("says"):
                others = alike(row) if row["answer"] == 1 and row["explains"] else ""
                lines.append(f"{mark}answer {row['answer']}, {row['schedule']} {row['tiles']}: {row['says']}{others}")
            elif row.get("alike"):
                lines.append(f"{mark}{row['pass']}, {row['tiles']}{alike(row)}")
        return lines

    def to_dict(self) -> Row:
        return {"explanations": self.rows}

    def summary(self) -> str:
        return numbered(len(self.rows), "explanation")


def alike(row: Mapping[str, object]) -> str:
    """The other tiles that predict the same, ten at most."""
    names = str(row.get("alike") or "").split()
    more = f" and {len(names) - MOST_TILES} more" if len(names) > MOST_TILES else ""
    return f"; as would {', '.join(names[:MOST_TILES])}{more}" if names else ""
