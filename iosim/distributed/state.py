"""Attention with a state across GPUs: what each scheme receives, beside the floor of a cut sequence.

Each GPU has an equal run of the tokens of all heads. The floor is X of docs/floors-state.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..answer import Column, Columns, Pieces, Table, numbered
from ..core.problem import Attention
from ..counting.conditions import conditions
from ..counting.given import head_dimension
from ..counting.names import takes_options
from ..counting.state_bounds import DOCS
from ..counting.state_floors import FIXED, cut_words, one_round_words
from ..counting.state_heads import StateHeads, check_read, heads_of_problem, transition_of
from ..errors import InputError, suggestion
from ..hardware import load
from ..masks import parse_mask
from ..schedules.state import FEATURES, NORMALISE, RULE
from ..units import binary, parse_count, parse_rate
from ..verdict import Way, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.keywords import ProblemOptions


class StateScheme(NamedTuple):
    """A way to divide the tokens of a layer with a state among GPUs."""

    sent: str
    """What a GPU receives."""
    received: Callable[[StateHeads, int, int], list[int]]
    """`received(heads, N, ranks)`: the bytes of each GPU, for all heads. InputError if heads do not divide."""
    rounds: Callable[[int], int]
    """Messages that wait for each other."""


def handed_on(heads: StateHeads, N: int, ranks: int) -> list[int]:
    """Each GPU but the first receives the state before its run."""
    return [heads.instances * heads.state_bytes * (rank > 0) for rank in range(ranks)]


def gathered(heads: StateHeads, N: int, ranks: int) -> list[int]:
    """Each GPU receives of every other one the state of its run, from 0, and the product of its A_t, for each
    value head, which has gates of its own. Without gates and delta the product is 1."""
    one = heads.problem(N)._replace(dv=heads.dv)
    words = heads.values * one_round_words(one, transition_of(heads.rule))
    return [heads.instances * (ranks - 1) * words * heads.state_word_bytes] * ranks


def exchanged(heads: StateHeads, N: int, ranks: int) -> list[int]:
    """Each GPU receives the other GPUs' tokens of its share of the heads, and the outputs of its own tokens."""
    if heads.instances % ranks:
        raise InputError("--ranks", ranks, f"a divisor of {numbered(heads.instances, 'key head')}", "each goes whole")
    return [heads.instances // ranks * (ranks - 1) * (N // ranks) * sum(heads.own_bytes)] * ranks


SCHEMES = {
    "state-hand-on": StateScheme("the state, from GPU to GPU", handed_on, lambda ranks: ranks - 1),
    "state-all-gather": StateScheme("states and transitions of all runs", gathered, lambda ranks: 1),
    "ulysses": StateScheme("all tokens of some heads, and O back", exchanged, lambda ranks: 2),
}


class StateLink(NamedTuple):
    """What GPUs receive with one scheme, over all heads and sequences."""

    schedule: str
    sent: str
    received_bytes: int
    """Of all GPUs together."""
    largest_received_bytes: int
    ratio_to_floor: float
    rounds: int
    link_seconds: float | None
    """Of the GPU that receives most, in a chain of all of them, at the peak; None without a rate."""


COLUMNS: Columns[StateLink] = (
    Column("schedule", "string", "schedule"),
    Column("sent", "string", "what is received", spare=2),
    Column("received_bytes", heading="bytes of all", cell="bytes"),
    Column("largest_received_bytes", heading="most bytes", cell="bytes"),
    Column("ratio_to_floor", "number", "x X", ".3f"),
    Column("rounds", heading="rounds"),
    Column(
        "link_seconds", "number", "us at least", lambda r: r.link_seconds and f"{1e6 * r.link_seconds:,.1f}", spare=1
    ),
)


def floor_bytes(heads: StateHeads, N: int, ranks: int) -> int:
    """The least bytes that all GPUs receive together (X): each run the state before it, of the tokens that it has."""
    run, one = N // ranks, heads.problem(N)
    words = sum(cut_words(one, rank * run, run) for rank in range(1, ranks))
    return heads.instances * words * heads.state_word_bytes


@takes_options()
def state_links(
    N: int,
    d: int | None = None,
    ranks: int | str | None = None,
    *,
    model: str | None = None,
    schedules: Sequence[str] = (),
    hardware: str | None = None,
    link: int | str | None = None,
    **options: Unpack[ProblemOptions],
) -> Table:
    """The bytes that GPUs receive from one another in a layer with a state: a Table with a row for each scheme.

    `ranks` GPUs have equal runs of the N tokens. `options` are those of `count`, with `rule`, `key_heads` and
    `state_dtype`; `link` or the `hardware` gives the rate. Raises InputError for whatever is not allowed.
    """
    given = {**conditions(hardware, options).options, "mask": parse_mask(str(options.get("mask", "dense")))}
    p = Attention(N, head_dimension(d), **given)  # type: ignore[arg-type]  # what its options are
    many = parse_count(ranks if ranks is not None else "", "--ranks")
    if not p[RULE] or p[FEATURES] or p[NORMALISE]:
        raise InputError("--rule", p[RULE] or "nothing", "the rule of a state, without --features and --normalise")
    check_read(p, {"gqa": "the value heads of a key head hand on one state: leave it out"})
    if p.N % many:
        raise InputError("--ranks", many, f"a divisor of --N {p.N}", "GPUs have equal runs of tokens")
    for name in schedules:
        if name not in SCHEMES:
            raise InputError("--schedule", name, ", ".join(SCHEMES), suggestion(name, SCHEMES))
    rate = (
        parse_rate(link, "--link") if link is not None else load(hardware).link_bytes_per_second if hardware else None
    )
    return answered(p, many, list(schedules), rate)


def answered(p: Attention, ranks: int, names: list[str], rate: float | None) -> Table:
    """The table of some schemes, by default those that are possible."""
    heads, least = heads_of_problem(p), floor_bytes(heads_of_problem(p), p.N, ranks)
    rows, left_out = list[StateLink](), list[str]()
    for name in names or SCHEMES:
        scheme = SCHEMES[name]
        try:
            each = scheme.received(heads, p.N, ranks)
        except InputError as error:
            if names:
                raise
            left_out.append(f"not for this problem: {name}: {error.where} {error.found} is not {error.allowed}")
            continue
        chain = sum(each) if name == "state-hand-on" else max(each)
        seconds = chain / rate if rate else None
        ratio = sum(each) / least if least else 1.0
        rows.append(StateLink(name, scheme.sent, sum(each), max(each), ratio, scheme.rounds(ranks), seconds))
    lines = lines_of(heads, rows, least, ranks)
    head = (
        f"\n{p[RULE]}: N = {p.N:,}, d = {p.d}, {heads.values} x {p.dv} columns, "
        f"{numbered(heads.instances, 'key head')}, {numbered(ranks, 'GPU')}; a state {binary(heads.state_bytes)}\n"
    )
    best = [k for k, r in enumerate(rows) if r.received_bytes == min(row.received_bytes for row in rows)]
    table = Table(COLUMNS, rows, best=best)
    json = {"floor_bytes": least, "answer": " ".join(lines), "results": table.to_rows()}
    text: Pieces = [lines[0], head, table, *left_out, *([""] if lines[1:] else []), *lines[1:]]
    return Table(COLUMNS, rows, f"{p[RULE]} across {ranks} GPUs", json, text, best=best)


def lines_of(heads: StateHeads, rows: list[StateLink], least: int, ranks: int) -> list[str]:
    """The sentences of the answer: what receives least, and the floor; then what comes next."""
    if ranks == 1:
        return ["One GPU receives nothing."]
    shown = {r.schedule: f"{binary(r.received_bytes)} in all GPUs" for r in rows}
    ways = [
        Way(r.schedule, r.received_bytes, over_floor=r.received_bytes / least, floor=f"less than {binary(least)} (X)",
            shown=shown[r.schedule], none=f"{FIXED},")
        for r in rows
    ]  # fmt: skip
    first, *others = verdict(ways, "receive")
    return [f"{first[:-1]} ({DOCS}, X)." if ways and min(w.over_floor or 0 for w in ways) == 1 else first, *others]
