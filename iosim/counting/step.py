"""A training step of attention: forward and backward pass together, and the tensors kept in HBM between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ..answer import Answer, Column, Columns, Pieces, Row, Table, in_order, numbered, rounded
from ..core.problem import Attention, narrowed
from ..grid import ByteCell
from ..schedules import SCHEDULES
from ..tables import excess
from ..units import binary
from .asked import asked, header
from .columns import problem_columns, problem_row
from .conditions import PAPER, Conditions
from .given import without_memory
from .passes import COMBINATIONS, UNFUSED, Combination, known_names
from .result import RESULT, Result
from .run import TILE_RULES, rules_of, run
from .sentence import BASELINE

if TYPE_CHECKING:
    from ..core.tiling import Rule


@dataclass(frozen=True)
class BothPasses:
    """The cost of a training step over all heads and batches; None where no tiles fit.

    `reads`, `writes` and `total` are words. They leave out the dropout mask of an unfused pass, which only
    `total_bytes` counts.
    """

    combination: str
    source: str
    tiling: str
    forward: Result
    backward: Result
    recomputed: bool
    unfused: tuple[str, ...]
    stored: dict[str, int]
    stored_bytes: int
    fits: bool | None
    dropout_mask_bytes: int = 0
    reads: int | None = None
    writes: int | None = None
    total: int | None = None
    total_bytes: int | None = None
    flops: int | None = None
    ratio_to_standard: float | None = None


@dataclass(frozen=True, repr=False)
class Step(Answer):
    """The answer of `count` with both passes: a step for each combination and tile rule."""

    problem: Attention
    M_bytes: int | None
    steps: list[BothPasses]
    notes: tuple[str, ...] = ()

    @property
    def M_words(self) -> int | None:
        """M in words of the problem's dtype."""
        return None if self.M_bytes is None else self.M_bytes // self.problem.word_bytes

    def table(self) -> Table:
        cells = {**problem_row(self.problem), "M_bytes": self.M_bytes, "M_words": self.M_words}
        return Table((*problem_columns(cells), *STEP, *of_pass("forward"), *of_pass("backward")), self.steps)

    def pieces(self) -> Pieces:
        above, (first, *more) = header(self.problem, self.M_bytes), answer_lines(self)
        return [first, above, self.table(), *unfused_lines(self), *([""] if more else []), *more]

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.problem),
            "sram": {"M_bytes": self.M_bytes, "M_words": self.M_words},
            "results": [asdict(step) for step in self.steps],
            "answer": " ".join(answer_lines(self)),
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)}; {numbered(len(self.steps), 'step')}"


# ---------------------------------------------------------------- columns and texts


def schedule_and_tiles(result: Result) -> str:
    """A pass as `flash2 128x64`."""
    return result.schedule + (f" {result.Br}x{result.Bc}" if result.Br else "")


def bytes_moved(result: Result, after: str = "") -> ByteCell | str:
    """The bytes that a pass moves, for people; or `nothing fits`."""
    return "nothing fits" if result.total_bytes is None else ByteCell(result.total_bytes, after)


STEP: Columns[BothPasses] = (
    Column("combination", "string", "combination"),
    Column("tiling", "string"),
    Column("forward", None, "forward", lambda step: schedule_and_tiles(step.forward)),
    Column("backward", None, "backward", lambda step: schedule_and_tiles(step.backward), spare=6),
    Column("fits", "boolean", "fits", "yes or NO"),
    Column("recomputed", "boolean"),
    Column("tensors", None, "stored", lambda step: ", ".join(step.stored) or "nothing", spare=5),
    Column("stored_bytes", heading="stored bytes", spare=2),
    Column("reads"),
    Column("writes"),
    Column("total"),
    Column("dropout_mask_bytes"),
    Column(
        "forward_bytes",
        None,
        "forward bytes",
        lambda step: bytes_moved(step.forward, " twice" if step.recomputed else ""),
        spare=4,
    ),
    Column("backward_bytes", None, "backward bytes", lambda step: bytes_moved(step.backward), spare=3),
    Column("total_bytes", heading="total bytes", cell="bytes"),
    Column("flops"),
    Column("gflop", None, "GFLOP", ".1f", spare=1, of=lambda step: step.flops and step.flops / 1e9),
    Column("ratio_to_standard", "number", "x standard", ".3f"),
    Column("unfused", "string", of=lambda step: ",".join(step.unfused)),
    Column("stored", "string", of=lambda step: "+".join(step.stored)),
)
PASS = ("schedule", "Br", "Bc", "fits", "sram_peak_bytes", "reads", "writes", "total_bytes")


def of_pass(side: str) -> list[Column[BothPasses]]:
    """The columns of the `forward` or the `backward` pass of a step."""

    def column(own: Column[Result]) -> Column[BothPasses]:
        return Column(f"{side}_{own.name}", own.type, of=lambda step: own.value(getattr(step, side)))

    return list(map(column, in_order(RESULT, PASS)))


def unfused_lines(found: Step) -> list[str]:
    """A line for each step with unfused passes: which, and the bytes of their dropout masks."""
    lines = [
        f"{step.combination}: unfused {', '.join(step.unfused)}"
        + (f"; dropout masks {binary(step.dropout_mask_bytes)} more" if step.dropout_mask_bytes else "")
        for step in found.steps
        if step.unfused
    ]
    return ["", *lines] if lines else []


def answer_lines(found: Step) -> list[str]:
    """The sentences on the step that fits and moves the fewest bytes: its advantage, and what it stores and computes
    for it."""
    fitting = [step for step in found.steps if step.fits is not False and step.total_bytes]
    if not fitting:
        return ["Nothing that was counted fits in this SRAM."]
    best, *others = sorted(fitting, key=lambda step: step.total_bytes or 0)
    if best.ratio_to_standard is None or best.combination == BASELINE:
        lines = [f"{named(best)} moves the fewest bytes of what {beside_unfit(found.steps, best)}."]
    else:
        beside = f"bytes {'as' if best.ratio_to_standard == 1 else 'than'} {BASELINE}"
        lines = [f"{named(best)} moves {less_or_more(best.ratio_to_standard)} {beside}."]
    standard = next((step for step in found.steps if step.combination == BASELINE), best)
    if standard is not best and standard.flops and standard.stored_bytes and best.flops:
        stored = less_or_more(best.stored_bytes / standard.stored_bytes) if best.stored_bytes else "no"
        lines.append(
            f"It stores {stored} bytes between the passes, and computes {as_many(best.flops, standard.flops)} FLOPs."
        )
    after = next((step for step in others if step.combination != best.combination), None)
    if after is not None:
        share = (after.total_bytes or 0) / (best.total_bytes or 1)
        lines.append(f"{named(after)} is next, with {rounded(share)} times the bytes.")
    return lines if found.M_bytes else [*lines, "Whether it fits is not known without M."]


def named(step: BothPasses) -> str:
    """A step with the tiles of both passes: `flash2 (410x15, backward 6x216)`."""
    tiles = [f"{r.Br}x{r.Bc}" for r in (step.forward, step.backward) if r.Br]
    return step.combination + (f" ({tiles[0]}, backward {tiles[1]})" if len(tiles) == 2 else "")


def less_or_more(share: float) -> str:
    """The text `3.48x fewer` for 0.287, `2x more` for 2, and `as many` for 1."""
    if share == 1:
        return "as many"
    return f"{excess(1 / share)}x fewer" if share < 1 else f"{excess(share)}x more"


# ---------------------------------------------------------------- the count


def count_steps(
    p: Attention,
    M_bytes: int | None,
    chosen: list[Combination],
    rules: tuple[Rule | None, Rule | None],
    unfused: str | Iterable[str],
    under: Conditions,
) -> Step:
    """The steps of these combinations. `rules` are the tiles of the forward and the backward pass; the second are the
    first unless given. `unfused` are names of UNFUSED: operations that standard attention does in separate passes."""
    rule, backward_rule = rules
    passes = tuple(dict.fromkeys(known_names("--unfused", unfused, UNFUSED))) if unfused != () else ()
    if M_bytes is None and needs_memory(chosen, {rule, backward_rule or rule}):
        raise without_memory()
    steps = [
        count_step(c, forward_rule, backward_rule, p, M_bytes, under, passes)
        for c in chosen
        for forward_rule in rules_of(SCHEDULES[c.forward], rule, p)
    ]
    base = count_step(COMBINATIONS[0], "ideal", None, p, M_bytes, PAPER, passes).total_bytes
    return Step(p, M_bytes, [with_ratio(step, base) for step in steps], under.notes)


def needs_memory(chosen: list[Combination], rules: set[Rule | None]) -> bool:
    """Whether M decides the tiles of any combination."""
    return bool(rules & {None, *TILE_RULES}) and any("ideal" not in SCHEDULES[c.forward].rules for c in chosen)


def count_step(
    c: Combination,
    rule: Rule,
    asked_rule: Rule | None,
    p: Attention,
    M_bytes: int | None,
    under: Conditions,
    unfused: tuple[str, ...],
) -> BothPasses:
    """The step of one combination with one tile rule; the backward pass has the one that is asked for, if any is."""
    passes = [UNFUSED[name] for name in unfused] if c.unfused else []
    ahead = narrowed(p, lse="LSE" in c.stored, elementwise=sum(x.forward for x in passes))
    back = narrowed(p, elementwise=sum(x.backward for x in passes))
    backward_schedule = SCHEDULES[c.backward]
    (backward_rule,) = rules_of(backward_schedule, asked_rule or rule, p)
    forward = run(SCHEDULES[c.forward], rule, ahead, M_bytes, under.multiple, under.chip)
    backward = run(backward_schedule, backward_rule, back, M_bytes, under.multiple, under.chip)
    mask_bytes = p.instances * p.N * p.Nk * sum(x.mask_bytes for x in passes)
    stored = c.stored_bytes(p)
    if mask_bytes and c.stored:
        stored["dropout mask"] = mask_bytes
    step = BothPasses(
        c.name,
        c.source,
        forward.tiling,
        forward,
        backward,
        c.recomputed,
        unfused if c.unfused else (),
        stored,
        sum(stored.values()),
        None if M_bytes is None else bool(forward.fits and backward.fits),
    )
    return add_up(step, mask_bytes)


def add_up(step: BothPasses, mask_bytes: int) -> BothPasses:
    """The step with the words, bytes and operations of all its passes. A recomputed forward pass counts twice."""
    times = 2 if step.recomputed else 1
    if step.forward.total is None or step.backward.total is None:
        return step

    def both(name: str) -> int:
        return int(times * getattr(step.forward, name) + getattr(step.backward, name))

    moved = (times + 1) * mask_bytes
    return replace(
        step,
        dropout_mask_bytes=moved,
        reads=both("reads"),
        writes=both("writes"),
        total=both("total"),
        total_bytes=both("total_bytes") + moved,
        flops=both("flops"),
    )


def with_ratio(step: BothPasses, standard_bytes: int | None) -> BothPasses:
    """The step with its bytes as a multiple of standard attention's, if both are known."""
    if step.total_bytes is None or not standard_bytes:
        return step
    return replace(step, ratio_to_standard=step.total_bytes / standard_bytes)


def beside_unfit(steps: Iterable[BothPasses], best: BothPasses) -> str:
    """What the best step is compared with: all that was counted, or what fits, beside a step that would move less."""
    less = [step for step in steps if step.fits is False and 0 < (step.total_bytes or 0) < (best.total_bytes or 0)]
    if not less:
        return "was counted"
    least = min(less, key=lambda step: step.total_bytes or 0)
    share = less_or_more((least.total_bytes or 0) / (best.total_bytes or 1))
    return f"fits; {named(least)} moves {share} and does not fit"


def as_many(some: int, others: int) -> str:
    """A number beside another one, as `1.25 times as many`, in more digits where three would show 1."""
    if some == others:
        return "as many"
    ratio = next(text for digits in range(3, 18) if (text := f"{some / others:.{digits}g}") != "1")
    return f"{ratio} times as many"
