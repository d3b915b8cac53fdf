"""What a step that verifies drafts moves with a state: snapshots after each token, or rows (k, u) that are replayed."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, cast

from ..answer import Column, Columns, Table, numbered
from ..counting.state_floors import best_ring
from ..counting.state_heads import StateHeads, heads_of_problem
from ..errors import InputError
from ..schedules.state import REPLAY, SNAPSHOTS
from ..schedules.state_verify import kept, verified
from ..verdict import times

if TYPE_CHECKING:
    from ..core.problem import Attention


class DraftRow(NamedTuple):
    """A mean step that verifies drafts, over all heads, beside its own inputs and outputs."""

    rollback: str
    steps: int
    """The steps from one write of the state to the next."""
    read_bytes: float
    write_bytes: float
    ratio_to_snapshots: float
    """The bytes of a step with snapshots, over those of this one."""

    @property
    def total_bytes(self) -> float:
        return self.read_bytes + self.write_bytes


def shown(name: str, heading: str) -> Column[DraftRow]:
    """A column of bytes of a mean step."""
    return Column(name, "number", heading, lambda r: f"{getattr(r, name):,.0f}", of=lambda r: getattr(r, name))


COLUMNS: Columns[DraftRow] = (
    Column("rollback", "string", "rollback"),
    Column("steps", heading="written every"),
    shown("read_bytes", "read"),
    shown("write_bytes", "write"),
    shown("total_bytes", "bytes"),
    Column("ratio_to_snapshots", "number", "times less than snapshots", ".3f"),
)


def row_of(heads: StateHeads, T: int, A: int, steps: int | None) -> DraftRow:
    """The row of snapshots, or of a replay that writes the state every so many steps."""
    state, row = heads.state_bytes, heads.row_bytes + heads.decay_bytes
    read, written = Fraction(state), Fraction(T * state)
    if steps is not None:
        read, written = state + Fraction(row * A * (steps - 1), 2), Fraction(state, steps) + T * row
    less, many = float((1 + T) * state / (read + written)), heads.instances
    return DraftRow(REPLAY if steps else SNAPSHOTS, steps or 1, float(many * read), float(many * written), less)


def drafts(p: Attention) -> Table:
    """The Table of a problem with --rule: snapshots, and a replay with a row for some numbers of steps."""
    heads, T, A = heads_of_problem(p), cast("int", verified(p)), cast("int", kept(p))
    if T == 1:
        raise InputError("--drafts", 0, "at least 1", "without --drafts it is a step of one token, with a ring")
    best = best_ring(heads.state_bytes, A * (heads.row_bytes + heads.decay_bytes))
    steps = sorted({1, 2, 4, 8, 16, *range(max(1, best - 1), best + 2)})
    rows = [row_of(heads, T, A, each) for each in (None, *steps)]
    marked = min(range(len(rows)), key=lambda k: rows[k].total_bytes)
    lines, table = lines_of(heads, T, A, rows, rows[marked]), Table(COLUMNS, rows, best=[marked])
    asked = (
        f"\nd = {heads.d}, {heads.values} x {heads.dv} columns, {numbered(heads.instances, 'key head')}; a state "
        f"{heads.state_bytes:,} B, a row {heads.row_bytes + heads.decay_bytes:,} B\n"
        f"bytes of a mean step of {numbered(T, 'token')} beside its own q, k, v, gates and o\n"
    )
    json = {"rollback": rows[marked].rollback, "steps": rows[marked].steps, "answer": " ".join(lines)}
    title = f"verification of {T - 1} drafts"
    return Table(COLUMNS, rows, title, json | {"results": table.to_rows()}, [lines[0], asked, table, "", *lines[1:]],
                 best=[marked])  # fmt: skip


def lines_of(heads: StateHeads, T: int, A: int, rows: list[DraftRow], best: DraftRow) -> list[str]:
    """The sentences of the answer."""
    replays = min(rows[1:], key=lambda row: row.total_bytes)
    other = replays if best.rollback == SNAPSHOTS else rows[0]
    drafts = f"{numbered(T - 1, 'draft')}, of which {A - 1:,} {'is' if A == 2 else 'are'} accepted"
    later = heads.instances * A * (heads.row_bytes + heads.decay_bytes)
    return [
        f"To verify {drafts}, {told(best)} {best.total_bytes:,.0f} B a step where {told(other)} "
        f"{other.total_bytes:,.0f} B, {times(other.total_bytes, best.total_bytes)} times as much.",
        f"A layer that learns only in the next step which drafts were accepted reads their rows once more in a "
        f"replay: {later:,.0f} B more a step.",
    ]


def told(row: DraftRow) -> str:
    """The subject and the verb of a sentence about a row."""
    if row.rollback == SNAPSHOTS:
        return "snapshots of the state after each token move"
    every = "in every step" if row.steps == 1 else f"every {row.steps} steps"
    return f"a replay that writes the state {every} moves"
