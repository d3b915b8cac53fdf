"""`iosim profile`: takes kernels that are profiled here, or those of a kept profile, to rows that explain them.

Its answer has the explanations of the kernels, their columns, and a sentence on the meaning of each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...answer import Answer, Column, Columns, Piece, Pieces, Row, Table, columns_of, in_order, numbered
from ...core.problem import Attention
from ...errors import InputError, MissingError
from ..jobs import PYTORCHS, kept_jobs, torch_job
from ..ncu import counters
from ..ncu import run as ncu
from ..ncu.counters import ProfiledKernel
from .explain import ExplanationRow, explained
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
    Column("dram_ratio", "number", "DRAM read/compulsory", spare=2),
    Column("seconds", "number", "seconds", spare=4),
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


Rows = list[dict[str, object]]


def explain_kernel(
    name: str | None,
    problem: Attention | None,
    from_ncu: str | None,
    keep: str | None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Rows, list[str]]:
    """The rows of one of PyTorch's kernels, which is profiled here, or of all calls of a kept profile; and notes.

    Without a problem, each call of the profile has the one that the file names. `tell` gets a text on what is done
    next.
    """
    tell("reading the profile" if from_ncu else "profiling on the GPU")
    problems, calls, notes = calls_of(name, problem, from_ncu, keep)
    if not all(calls):
        raise InputError("--from-ncu", from_ncu or "a profile", "a profile with a kernel in it")
    every: Rows = []
    for number, (p, kernels) in enumerate(zip(problems, calls, strict=True), 1):
        tell(f"call {number} of {len(calls)}")
        mark = f" #{number}" if len(calls) > 1 else ""
        shape = {} if problem else shape_of(p)
        every += [{**row, "kernel": row["kernel"] + mark, **shape} for row in explained(name, kernels, p)]
    return in_the_same_columns(every), notes


def calls_of(
    name: str | None, problem: Attention | None, from_ncu: str | None, keep: str | None
) -> tuple[list[Attention], list[list[ProfiledKernel]], list[str]]:
    """(the problem of each call, the kernels of each, notes)."""
    if not from_ncu:
        if name is None or problem is None:
            raise InputError("kernel", "nothing", ", ".join(PYTORCHS), "or --from-ncu")
        problem, calls = profile_kernel(name, problem, keep)
        return [problem], calls, []
    profile = counters.read_profile(from_ncu)
    named = [
        (job.problem, kernels)
        for job, kernels in zip(kept_jobs(profile.notes, len(profile.jobs)), profile.jobs, strict=False)
        if kernels
    ]
    if problem is None:
        if not named:
            allowed = "a value for each, and the other options of the profile"
            raise InputError("--N, --d", "nothing", allowed, "this profile does not name its shapes")
        return [p for p, _ in named], [kernels for _, kernels in named], []
    return [problem] * len(profile.jobs), profile.jobs, other_shapes(problem, [p for p, _ in named], len(profile.jobs))


def other_shapes(problem: Attention, named: Sequence[Attention], calls: int) -> list[str]:
    """A note if several calls are explained with one problem although they may have others."""
    others = sum(p.computed != problem.computed for p in named)
    if others:
        return [
            f"--N, --d and the other options are taken for all {calls} calls, but {others} of these calls had "
            "other shapes; without these options each has its own"
        ]
    if calls > 1 and not named:
        return [f"--N, --d and the other options are taken for all {calls} calls: the file does not name their shapes"]
    return []


def shape_of(p: Attention) -> dict[str, object]:
    """The columns that tell the problems of a profile from each other."""
    names = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype")
    return {**{name: getattr(p, name) for name in names}, "mask": str(p.mask)}


def profile_kernel(name: str, problem: Attention, keep: str | None) -> tuple[Attention, list[list[ProfiledKernel]]]:
    """(the problem as this kernel has it, the kernels of its one call). The profiler's CSV is kept at `keep`."""
    from .. import device

    job = torch_job(name, problem)
    device.cupy()
    with tempfile.TemporaryDirectory() as folder:
        found = ncu.profile([job], keep or str(Path(folder, "ncu.csv")))
    failed = [note["failed"] for note in found.notes if "failed" in note]
    if failed:
        raise MissingError(f"{name}: {failed[0]}")
    return job.problem, found.jobs


def in_the_same_columns(rows: Sequence[Mapping[str, object]]) -> Rows:
    """The rows, each with the columns of all; None in a column that a row lacks."""
    names = dict.fromkeys(column for row in rows for column in row)
    return [{column: row.get(column) for column in names} for row in rows]
