"""The best ring for decoding with a state: how many rows (k, u) of tokens to keep before the state is written again."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..answer import Column, Columns, Table, numbered
from ..core.problem import Attention
from ..counting.given import head_dimension
from ..counting.names import takes_options
from ..counting.state_bounds import DOCS
from ..counting.state_floors import best_ring, ring_step
from ..counting.state_heads import StateHeads, check_read, heads_of_problem
from ..errors import InputError
from ..masks import parse_mask
from ..schedules import SCHEDULES, require
from ..schedules.state import FEATURES, NORMALISE, RULE
from ..verdict import times
from .drafts import drafts

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions


INSTEAD = {
    "ring": "the best ring is looked for; iosim count --schedule state-ring counts a given one",
    "rollback": "both ways are compared; iosim count --schedule state-verify counts one",
    "gqa": "the value heads of a key head share its rows: leave it out",
}


class RingRow(NamedTuple):
    """A mean step of decoding with a ring of `rows` rows, over all heads, beside its own inputs and outputs."""

    rows: int
    words: float
    read_bytes: float
    write_bytes: float
    append_bytes: float
    """Bytes of its own row, where the step appends it."""
    ratio_to_plain: float
    """The bytes of a step that reads and writes the state, over those of this one."""
    ratio_to_least: float
    """The bytes over the least of any scheme of a state and rows (D2)."""

    @property
    def total_bytes(self) -> float:
        return self.read_bytes + self.write_bytes


def shown(name: str) -> Column[RingRow]:
    """A column of bytes of a mean step."""
    heading = name.removesuffix("_bytes").replace("total", "bytes")
    return Column(name, "number", heading, lambda r: f"{getattr(r, name):,.0f}", of=lambda r: getattr(r, name))


COLUMNS: Columns[RingRow] = (
    Column("rows", heading="rows"),
    shown("read_bytes"),
    shown("write_bytes"),
    shown("total_bytes"),
    Column("ratio_to_plain", "number", "times less than 1 row", ".3f"),
    Column("ratio_to_least", "number", "x least", ".4f"),
    shown("append_bytes"),
    shown("words"),
)


def row_of(heads: StateHeads, rows: int, best: int) -> RingRow:
    """The row of one ring."""
    state, row, many = heads.state_bytes, heads.row_bytes, heads.instances
    step, least = ring_step(rows, state, row), ring_step(best, state, row)
    written = Fraction(state, rows)
    append = Fraction(row * (rows - 1), rows)
    one = heads.problem(1)
    words = ring_step(rows, one.state, one.d + one.dv)
    words, read, written, append = (many * size for size in (words, step - written, written, append))
    sizes = float(words), float(read), float(written), float(append)
    return RingRow(rows, *sizes, float(2 * state / step), float(step / least))


def lengths(best: int) -> list[int]:
    """The rings that are shown: powers of two, the best one and its neighbours."""
    powers = [2**k for k in range((2 * best).bit_length())]
    return sorted({*powers, *range(max(1, best - 1), best + 2)})


@takes_options()
def ring(d: int | None = None, **options: Unpack[ProblemOptions]) -> Table:
    """The best ring for decoding token by token with a state: a Table with a row for some lengths.

    A step reads the state and the rows (k, u) of the tokens since it was written; every so many steps the state is
    written. No scheme of a state and rows moves fewer bytes than the best ring (docs/floors-state.md, D2). `options`
    are those of `count`, with `rule`, `key_heads` and `state_dtype`. With `drafts` a step verifies drafts, and the rows
    are its ways to forget rejected ones. Raises InputError for whatever is not allowed.
    """
    given = {**options, "mask": parse_mask(str(options.get("mask", "dense")))}
    p = Attention(1, head_dimension(d), **given)  # type: ignore[arg-type]  # no causal
    if not p[RULE]:
        raise InputError("--rule", "nothing", "the rule of a state, as gdn", "attention has a cache and no state")
    if p[FEATURES] or p[NORMALISE]:
        raise InputError("--decode", "--features or --normalise as well", "a rule alone", "D2 is not proved for them")
    verifies = bool({"drafts", "accepted", "rollback"} & {*options})
    check_read(p, INSTEAD, *(("drafts", "accepted") if verifies else ()))
    if verifies:
        require(SCHEDULES["state-verify"], p)
        return drafts(p)
    heads = heads_of_problem(p)
    best = best_ring(heads.state_bytes, heads.row_bytes)
    rows = [row_of(heads, length, best) for length in lengths(best)]
    marked = next(k for k, row in enumerate(rows) if row.rows == best)
    lines, title = lines_of(heads, rows[marked]), f"ring of {best} rows for {p[RULE]}, d = {p.d}, dv = {p.dv}"
    table = Table(COLUMNS, rows, best=[marked])
    asked = (
        f"\nd = {heads.d}, {heads.values} x {heads.dv} columns, {numbered(heads.instances, 'key head')}; a state "
        f"{heads.state_bytes:,} B, a row {heads.row_bytes:,} B\n"
        "bytes of a mean step beside its own q, k, v, gates and o\n"
    )
    json = {"rows": best, "answer": " ".join(lines), "results": table.to_rows()}
    return Table(COLUMNS, rows, title, json, [lines[0], asked, table, "", *lines[1:]], best=[marked])


def lines_of(heads: StateHeads, best: RingRow) -> list[str]:
    """The sentences of the answer."""
    state, row, gates = heads.state_bytes, heads.row_bytes, heads.decay_bytes
    plain = best.total_bytes * best.ratio_to_plain
    lines = [
        f"A ring of {best.rows} rows, the key and the update of each token since the state was written, moves "
        f"{best.total_bytes:,.0f} B ({best.words:,.0f} words) a step where reading and writing the state moves "
        f"{plain:,.0f} B, {times(best.ratio_to_plain, 1)} times as much; no scheme of a state and such rows moves less "
        f"({DOCS}).",
        f"Where a step appends its own row, it writes {best.append_bytes:,.0f} B more, which leaves "
        f"{times(plain, best.total_bytes + best.append_bytes)} times.",
    ]
    if not gates:
        return lines
    raw = best_ring(state, row + gates)
    less = times(2 * state / float(ring_step(raw, state, row + gates)), 1)
    return [*lines, f"Rows hold decayed keys; with raw gates in them a ring of {raw} is best, {less} times."]
