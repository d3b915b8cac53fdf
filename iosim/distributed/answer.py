"""The answer of `links`: a row for each scheme of attention across GPUs, what is best, and where that changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..answer import Answer, Column, Columns, Pieces, Row, Table, columns_of, in_order, numbered
from ..core.problem import DENSE, Attention
from ..counting.asked import asked, header
from ..counting.columns import problem_columns, problem_row
from ..counting.conditions import conditions
from ..counting.given import head_dimension
from ..counting.given import memory as sram
from ..counting.names import takes_options
from ..errors import InputError, suggestion
from ..hardware import load
from ..masks import parse_mask
from ..tables import at_most
from ..timing.bound import rates_of
from ..units import binary, format_rate, parse_bytes, parse_count, parse_rate
from ..verdict import Way, about, best_of, verdict
from .by_heads import by_heads, line_on_heads
from .counted import STATISTICS, LinkResult, Machines, Split, best_split, counted
from .crossings import Crossing, crossings
from .floors import IN_WORDS
from .room import least_room, room_note
from .schedules import PASSES, Scheme, find_schemes

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from .across import Across

BALANCED = 0.9  # mean work over the largest, below which an answer says so
FEW_ROWS = 8  # queries from which on decoding is not meant
SHARES = "decoding implies --gqa pack: the query heads of a KV head share its keys; --gqa repeat reads them for each"


class Pair(NamedTuple):
    """What one GPU sends to another with one scheme, over all heads and sequences."""

    schedule: str
    split: str
    sender: int
    receiver: int
    words: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Links(Answer):
    """The answer of `links`: a result for each scheme that the problem allows, with its best split.

    `left_out` says why the others are not there. `pairs` are filled in if `detail` is asked for.
    """

    problem: Attention
    machines: Machines
    results: list[LinkResult]
    crossings: list[Crossing]
    left_out: dict[str, str]
    pairs: list[Pair]
    detail: bool = False
    implied: tuple[str, ...] = ()
    passes: str = "forward"
    by_heads: LinkResult | None = None
    """The row of heads that are split over all GPUs; None if the schemes were named or the heads do not divide."""

    @property
    def rows(self) -> list[LinkResult]:
        """The results, and below them the row of split heads, which no scheme that divides tokens competes with."""
        return [*self.results, *([self.by_heads] if self.by_heads else [])]

    def __getitem__(self, name: str) -> LinkResult:
        """The result of a scheme, by its name."""
        return next(result for result in self.results if result.schedule == name)

    @property
    def best(self) -> LinkResult:
        """Of the results that fit, and whose GPUs do not wait if there is one, that whose busiest GPU receives the
        fewest bytes, with nodes those over the network first; of equal ones, that of the best balance, then of the
        smallest mean. If none fits, the one that needs least memory."""
        if all(r.fits is False for r in self.results):
            return least_room(self.results)
        return min(
            (r for r in self.results if r.fits is not False),
            key=lambda r: (waits(r), *most(r), -r.balance, r.mean_received_bytes, r.memory_bytes),
        )

    @property
    def fastest(self) -> LinkResult | None:
        """The result that fits and takes least time at the peaks, of equal ones that of the fewest bytes; None if the
        rates are not known."""
        timed = [
            (r.seconds, r.mean_received_bytes, r.memory_bytes, k)
            for k, r in enumerate(self.results)
            if r.seconds and r.fits is not False
        ]
        return self.results[min(timed)[-1]] if timed else None

    def table(self) -> Table:
        m = self.machines
        cells = {**problem_row(self.problem), "ranks": m.ranks, "nodes": m.nodes, "M_bytes": m.M_bytes}
        above = [*problem_columns(cells), Column("pass", "string").always(self.passes)]
        if self.detail:
            return Table((*above, *OF_PAIR), self.pairs)
        return Table((*above, *RESULT), self.rows)

    def counts(self) -> Table:
        """A row for each result, with the columns of which something is known. If a result does not fit, a narrow
        terminal keeps the memory."""
        shown = [name for name in SHOWN if any(column_of(name).value(r) is not None for r in self.results)]
        unfit = any(r.fits is False for r in self.results)
        columns = [replace(c, spare=12) if unfit and c.name == "memory_bytes" else c for c in in_order(RESULT, shown)]
        best = [k for k, r in enumerate(self.results) if r is self.best and r.fits is not False]
        return Table(RESULT, self.rows, shown=columns, best=best, tall=True)

    def pieces(self) -> Pieces:
        left_out = [f"not for this problem: {name}: {why}" for name, why in self.left_out.items()]
        tables: Pieces = ["", Table(OF_CROSSING, self.crossings), "", Table(OF_PAIR, self.pairs)] if self.detail else []
        first, *others = answer_lines(self)
        said = [text for end, text in ENDINGS.items() if any(r.schedule.endswith(end) for r in self.results)]
        return [first, self.header(), self.counts(), *said, *left_out, *tables, *([""] if others else []), *others]

    def header(self) -> str:
        """The lines above the table: the problem, the GPUs and their rates."""
        m = self.machines
        first = header(self.problem, m.M_bytes).rstrip("\n")
        what = {"forward": "", "backward": "backward pass, ", "step": "forward and backward pass, "}[self.passes]
        gpus = what + numbered(m.ranks, "GPU") + (f", {m.nodes} nodes of {m.node}" if m.nodes > 1 else "")
        rates = [
            f"{name} {format_rate(rate)}"
            for name, rate in (("link", m.link_bytes_per_second), ("network", m.network_bytes_per_second))
            if rate and (name == "link" or m.nodes > 1)
        ]
        room = [f"memory {binary(m.memory_bytes)}"] if m.memory_bytes else []
        return "\n".join([first, ", ".join([gpus, *rates, *room]) + ("; one direction" if rates else ""), ""])

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.problem),
            "pass": self.passes,
            "machines": {**self.machines._asdict(), "nodes": self.machines.nodes},
            "results": [{**asdict(r), "seconds": r.seconds} for r in self.results],
            "by_heads": {**asdict(self.by_heads), "seconds": self.by_heads.seconds} if self.by_heads else None,
            "left_out": self.left_out,
            "crossovers": [{**one._asdict(), "text": one.text} for one in self.crossings],
            **({"pairs": [pair._asdict() for pair in self.pairs]} if self.detail else {}),
            "answer": " ".join(answer_lines(self)),
            "notes": self.notes,
        }

    def summary(self) -> str:
        least = "nothing fits" if self.best.fits is False else f"{self.best.schedule} receives least"
        return f"{asked(self.problem)}, {numbered(self.machines.ranks, 'GPU')}; {least}"

    @property
    def notes(self) -> Sequence[str]:
        found = list(self.implied)
        if any(name in r.tensors and r.ratio_to_floor for r in self.results for name in STATISTICS):
            found.append("x floor leaves out the statistics of rows (LSE, D), which the floors have for free")
        m = self.machines
        if m.nodes > 1 and m.link_bytes_per_second and not m.network_bytes_per_second:
            found.append("times need the rate between nodes as well: --network, as 50GB")
        if any(r.fits is False for r in self.results):
            found.append("memory is that of attention alone: Q, K, V, O and what comes, for one layer")
        if self.best.fits is False:
            found.append(room_note(self.problem, m, self.results, self.passes))
        return found


# ---------------------------------------------------------------- columns


def seconds_text(seconds: float | None) -> str | None:
    """A time as people read it: `1.25 ms`."""
    if seconds is None:
        return None
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


OF_FIELDS: Columns[LinkResult] = columns_of(
    LinkResult,
    Column("schedule", "string", "schedule"),
    Column("split", "string", "split"),
    Column("layout", "string", "layout", spare=7),
    Column("mean_received_words", "number", "words a GPU", lambda r: round(r.mean_received_words)),
    Column("mean_received_bytes", "number", "bytes a GPU", lambda r: binary(round(r.mean_received_bytes)), spare=6),
    Column("largest_received_bytes", heading="most bytes", cell="bytes", spare=11),
    Column("ratio_to_floor", "number", "x floor", ".3f"),
    Column("theorem", "string", "floor for", lambda r: IN_WORDS.get(r.theorem or "", r.theorem), spare=10),
    Column("needed_to_sent", "number", "share needed", ".3f", spare=4),
    Column("hbm_bytes", "number", "HBM bytes inside", lambda r: r.hbm_bytes and binary(round(r.hbm_bytes)), spare=5),
    Column("memory_bytes", heading="memory", cell="bytes", spare=3),
    Column("fits", "boolean", "fits", "yes or NO"),
    Column("balance", "number", "balance", ".3f", spare=2),
    Column("node_words", heading="words between nodes"),
    Column("ratio_to_node_floor", "number", "x floor of nodes", ".3f"),
    Column("link_seconds", "number", "links", lambda r: seconds_text(r.link_seconds), spare=8),
    Column("arithmetic_seconds", "number", "arithmetic", lambda r: seconds_text(r.arithmetic_seconds), spare=9),
    Column("hbm_seconds", "number", "HBM", lambda r: seconds_text(r.hbm_seconds), spare=10),
    Column("hides_from_tokens", heading="hides from S/P", spare=1),
)
TIME: Column[LinkResult] = Column(
    "seconds", "number", "time", lambda r: seconds_text(r.seconds), of=lambda r: r.seconds
)
RESULT: Columns[LinkResult] = (*OF_FIELDS, TIME)
OF_PAIR: Columns[Pair] = columns_of(Pair)
OF_CROSSING: Columns[Crossing] = columns_of(Crossing, Column("text", "string"))
OF_GPUS: Columns[object] = (Column("ranks"), Column("nodes"), Column("M_bytes"), Column("pass", "string"))
ENDINGS = {
    "-needed": "-needed: sends only the rows that a GPU it passes still needs",
    "-coded": "-coded: keys and values go round once more and come home, as rings are often coded",
}
"""{ending of a scheme's name: the line below the table that says what it means}."""
SHOWN = tuple(column.name for column in RESULT if column.heading is not None)


def column_of(name: str) -> Column[LinkResult]:
    """The column of a name."""
    return in_order(RESULT, [name])[0]


# ---------------------------------------------------------------- the sentences


def answer_lines(found: Links) -> list[str]:
    """What receives least in its busiest GPU, and how far that is from the floor; what is next; and what is fastest."""
    best = found.best
    if found.machines.ranks == 1:
        return ["One GPU receives nothing."]
    working = [r for r in found.results if waits(r) <= waits(best)]
    ways = [as_way(r) for r in sorted(working, key=lambda r: (r is not best, -r.balance))]
    lines = verdict(ways, "receive", found.machines.memory_bytes)
    least = best_of(map(as_way, found.results))
    if least is not None and least.cost < ways[0].cost:
        lines[0] = f"Of those that share the work evenly, {lines[0]}"
    heads = [line_on_heads(found.problem, found.machines)] if found.by_heads else []
    return [*lines, *time_lines(found.fastest, found.problem.N // found.machines.ranks), *heads]


def as_way(r: LinkResult) -> Way:
    """A result as the verdict compares it: by the bytes of the GPU that receives most, with nodes those over the
    network before all."""
    far, all_bytes = most(r)
    amount = about(all_bytes) if r.network_bytes is None else f"{about(far)} over the network, of {about(all_bytes)},"
    wait = f"; its GPUs wait, their mean work is {r.balance:.3f} of the largest" if waits(r) else ""
    cost = far + all_bytes / 2**100  # of equal ones the fewest in all
    shown = f"{amount} in the busiest GPU{floor_text(r)}{wait}"
    return Way(named(r), cost if far else all_bytes, r.fits, r.memory_bytes, shown=shown)


def waits(result: LinkResult) -> bool:
    """Whether GPUs wait for the one with most work."""
    return result.balance < BALANCED


def floor_text(result: LinkResult) -> str:
    """How far the mean of a result is from its floor, with the decimals of the table, or more if these show 1.

    With nodes the floor is that of the words between them, as the bytes before it are.
    """
    share, of = result.ratio_to_floor, ""
    if result.network_bytes is not None:
        share, of = result.ratio_to_node_floor, " of nodes"
    if share is None:
        return ""
    ratio = f"{share:.3f}" if share >= 1.0005 else at_most(share)
    return f"; the mean over GPUs is {'' if share == 1 else f'{ratio} times '}the floor{of}"


def time_lines(fast: LinkResult | None, tokens: int) -> list[str]:
    """The sentence on the result that is fastest at the peaks, where a GPU has so many tokens; none without rates."""
    if fast is None:
        return []
    least = fast.hides_from_tokens
    hides = "" if least is None else f"; a hop hides behind arithmetic from {least:,} tokens a GPU on, here {tokens:,}"
    least_time = f"{seconds_text(fast.seconds)} at least, without the latency of collectives"
    return [f"At the peaks {named(fast)} is fastest, {least_time}{hides}."]


def named(result: LinkResult) -> str:
    """A result as `usp (heads 4 x ring 2)`."""
    return f"{result.schedule} ({result.split})"


def most(result: LinkResult) -> tuple[int, int]:
    """The bytes of the GPU that receives most: over the network, which is slower, and all."""
    return result.network_bytes or 0, result.largest_received_bytes


# ---------------------------------------------------------------- the function


@takes_options()
def links(
    N: int,
    d: int | None = None,
    ranks: int | str | None = None,
    *,
    model: str | None = None,
    nodes: str | None = None,
    M: int | str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: str | Iterable[str] = (),
    mask: str | Mask = "dense",
    tile_multiple: int | None = None,
    link: int | str | None = None,
    network: int | str | None = None,
    memory: int | str | None = None,
    passes: str = "forward",
    detail: bool = False,
    **options: Unpack[ProblemOptions],
) -> Links:
    """The words that GPUs receive from one another with each scheme of attention across GPUs: Links.

    `ranks` is the number of GPUs, and `nodes` how they stand, as `4x8` for 4 nodes of 8. `hardware` gives M, the memory
    of a GPU and the rates; `memory` (bytes), `link` and `network` (bytes a second that a GPU receives, one
    direction, as 450GB) win where they are given. `schedules` are names of schemes. `passes` is forward, backward, or
    step: both in one run, which keeps what it can. With `detail` the answer has the
    words of each pair of GPUs. `model` is a config.json, as in `iosim.count`, and other options are those of
    `iosim.count` too. Raises InputError for whatever is not allowed.
    """
    under = conditions(hardware, options, tile_multiple, paper_model)
    problem = Attention(N, head_dimension(d), mask=parse_mask(mask), **under.options)
    check_problem(problem, passes)
    implied = [*under.notes]
    if decoding_shares(problem) and options.get("gqa") is None:
        problem = replace(problem, gqa="pack")
        implied.append(SHARES)
    gpus = known(machines_of(ranks, nodes), hardware, M, problem, under.multiple)
    given = {
        "memory_bytes": None if memory is None else parse_bytes(memory, problem.word_bytes, "--memory"),
        "link_bytes_per_second": None if link is None else parse_rate(link, "--link"),
        "network_bytes_per_second": None if network is None else parse_rate(network, "--network"),
    }
    gpus = gpus._replace(**{name: value for name, value in given.items() if value is not None})
    chosen, left_out = schemes_of(problem, gpus, schedules, passes)
    best, results = counts_of(chosen, gpus, left_out if not schedules else None)
    pairs = [Pair(one.scheme.name, one.scheme.split(one.t), *pair) for one in best if detail for pair in one.pairs()]
    crossed = crossings(problem, gpus.ranks, passes)
    heads = None if schedules else by_heads(problem, gpus, passes)
    return Links(problem, gpus, results, crossed, left_out, pairs, detail, tuple(implied), passes, heads)


def check_problem(p: Attention, passes: str) -> None:
    """Raise InputError for what no text across GPUs reads."""
    if passes not in PASSES:
        raise InputError("--pass", passes, ", ".join(PASSES), suggestion(passes, PASSES))
    if p.latent and passes != "forward":
        raise InputError("--latent", "given", f"not with --pass {passes}", "for attention's forward pass")
    if p.kv_scales != "none":
        raise InputError("--kv-scales", p.kv_scales, "none with iosim links", "scales would be sent as well")
    if p.mask.tile_units:
        raise InputError("--mask", str(p.mask), "a mask of tokens with iosim links", "GPUs have no tiles in common")


def machines_of(ranks: int | str | None, nodes: str | None) -> Machines:
    """The GPUs of --ranks and --nodes."""
    count = None if ranks is None else parse_count(ranks, "--ranks")
    if nodes is None:
        if count is None:
            raise InputError("--ranks", "nothing", "a number of GPUs", "as in --ranks 8; or --nodes 4x8")
        return Machines(count, count)
    sides = str(nodes).lower().split("x")
    if len(sides) != 2:
        raise InputError("--nodes", nodes, "nodes x GPUs of a node, as 4x8")
    many, each = (parse_count(side, f"--nodes {nodes}") for side in sides)
    if count not in (None, many * each):
        raise InputError("--ranks", count, f"{many * each}, the GPUs of --nodes {nodes}", "leave one of the two out")
    return Machines(many * each, each)


def known(gpus: Machines, hardware: str | None, M: int | str | None, p: Attention, multiple: int) -> Machines:
    """The GPUs with what a preset says of them, and with M."""
    size = sram(M, hardware)
    gpus = gpus._replace(M_bytes=None if size is None else parse_bytes(size, p.word_bytes), multiple=multiple)
    if hardware is None:
        return gpus
    chip = load(hardware)
    rates = rates_of(chip, p.dtype)
    return gpus._replace(
        memory_bytes=chip.hbm_bytes,
        link_bytes_per_second=chip.link_bytes_per_second,
        network_bytes_per_second=chip.network_bytes_per_second,
        flops_per_second=rates.get("matrix"),
        hbm_bytes_per_second=rates.get("memory"),
        exps_per_second=rates.get("exp"),
        l2_bytes_per_second=rates.get("l2"),
    )


def schemes_of(
    p: Attention, gpus: Machines, names: str | Iterable[str], passes: str
) -> tuple[list[tuple[Scheme, list[Across]]], dict[str, str]]:
    """The schemes with their splits, and why others are left out. Those that are named must be possible."""
    given = find_schemes(names, passes) if names else []
    check_decoding(p, gpus.ranks, [scheme.name for scheme in given if not scheme.decodes], passes)
    if given:
        return [(scheme, scheme.splits(p, gpus.ranks)) for scheme in given], {}
    usual = [scheme for scheme in PASSES[passes].values() if meant(scheme, p)]
    found, refused = [], {}
    for scheme in usual:
        try:
            found.append((scheme, scheme.splits(p, gpus.ranks)))
        except InputError as error:
            refused[scheme] = error
    if not found:
        raise refused[usual[-1 if few_rows(p) else 0]]
    own = {scheme.name: reason_of(error) for scheme, error in refused.items() if scheme.decodes == few_rows(p)}
    return found, own


def check_decoding(p: Attention, ranks: int, others: Sequence[str], passes: str) -> None:
    """Raise InputError for decoding with fewer queries than GPUs, backward or in schemes that divide the queries."""
    if not few_rows(p) or ranks <= p.N:
        return
    if passes != "forward":
        raise InputError("--pass", f"{passes} with N = {p.N}", "forward", "decoding is forward only")
    if others:
        allowed = ", ".join(name for name, scheme in PASSES[passes].items() if scheme.decodes)
        raise InputError(
            "--schedule", f"{others[0]} with N = {p.N}", allowed, "others divide the queries among the GPUs"
        )


def counts_of(
    chosen: list[tuple[Scheme, list[Across]]], gpus: Machines, left_out: dict[str, str] | None
) -> tuple[list[Split], list[LinkResult]]:
    """The best split of each scheme, and its count. A scheme whose layout allows no count under the mask goes to
    `left_out`, with the reason; without `left_out`, or if there is no other one, it raises InputError."""
    best: list[Split] = []
    results: list[LinkResult] = []
    for scheme, splits in chosen:
        try:
            split = best_split(scheme, splits, gpus)
            results.append(counted(split))
            best.append(split)
        except InputError as error:
            last = scheme is chosen[-1][0] and not results
            if left_out is None or error.where not in ("--mask", "--ranks") or last:
                raise
            left_out[scheme.name] = reason_of(error)
    return best, results


def few_rows(p: Attention) -> bool:
    """Whether a problem is decoding: few queries, and more keys."""
    return p.N <= FEW_ROWS and p.Nk > p.N


def decoding_shares(p: Attention) -> bool:
    """Whether a problem is decoding in which the query heads of a KV head can share what they read."""
    return few_rows(p) and p.heads > p.kv_heads and (p.mask is DENSE or p.N == 1)


def meant(scheme: Scheme, p: Attention) -> bool:
    """Whether a scheme has a row if none is named: decoding for few queries, and what a mask needs under a mask."""
    masked = scheme.name.endswith("-needed") or scheme.layout in ("zigzag", "striped")
    return (few_rows(p) or not scheme.decodes) and (p.mask is not DENSE or not masked)


def reason_of(error: InputError) -> str:
    """Why a scheme has no row."""
    return f"{error.where} {error.found}: {error.allowed}"
