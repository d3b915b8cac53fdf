"""The M or the N at which one schedule moves less than another, as `iosim.crossover` answers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil
from typing import TYPE_CHECKING, TypeVar, Unpack, cast

import numpy as np

from ..answer import Column, Columns, Pieces, Row, Table, in_order, numbered, rounded
from ..core.problem import DENSE, Attention
from ..counting.asked import asked as asked_text
from ..counting.columns import option_columns, type_of
from ..counting.conditions import conditions
from ..counting.count import run
from ..counting.given import Given, Place, counts, memories, several
from ..counting.names import takes_options
from ..counting.notes import mask_notes
from ..counting.sentence import comparison, distance_to_floor, joined
from ..errors import InputError
from ..masks import parse_mask
from ..schedules import find_all
from ..units import format_bytes, parse_axis, parse_bytes, parse_count
from .every_M import answer_lines
from .least import curve_of
from .sides import OverM, OverN, Question, Side, over_M, over_N, questions_about, questions_of_papers
from .stretches import Interval, Stretch, where_true, where_true_in_M

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..counting.result import Result
    from ..schedules.registry import SchedulesAsked

    Counts = int | str | Sequence[int]
    One = TypeVar("One", bound=OverM | OverN)

EVERY_N = "1:4096:+1"
SOME_N = "64:4096:+64"  # under a mask, where each length may take milliseconds


@takes_options()
def crossover(
    N: Counts | None = None,
    d: Counts | None = None,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    detail: bool = False,
    **options: Unpack[ProblemOptions],
) -> Table:
    """The M or the N at which one schedule moves less than another, exact to the byte: a Table.

    - `schedules`: two of them. By default six questions that papers raise are answered; four of them if there are
      registers or stages.
    - Without `M` the answer is about every M. `d` and `dtype` may be several, as `[64, 128]` and `"fp16,fp32"`.
    - With `M` or a `hardware` the answer is about every N of the axis `N`. An axis is a text as `"64:8192:+64"`; by
      default it has every N up to 4096.
    - What is printed are the stretches of M or N, longest first, in a few lines. With `detail` it is the table of the
      rows, and sentences that compare both sides where the longest stretch begins.
    - A row has the longest stretch of M or N, and the least one from which on it is always so. The keys of the JSON
      have all intervals.
    - Other options are those of `count`.

    Raises InputError for whatever is not allowed.
    """
    given, size = {**cast("Given", options)}, None if M is None else str(M)
    places = [] if size is None and hardware is None else memories(given, size, hardware)
    if N is None and not places:
        raise InputError("--N", "nothing", "a whole number from 1", "give --N, or --M for a crossover over N")
    if d is None:
        raise InputError("--d", "nothing", "head dimensions as in 64,128", "give --d")
    under = conditions(hardware, given, tile_multiple, paper_model)
    chosen = find_all(schedules)
    questions = questions_about(chosen) if chosen else questions_of_papers()
    types = dict.fromkeys(part.strip() for part in str(given.pop("dtype", None) or "fp16").split(","))
    sizes = parse_axis(axis_text(d), "--d", lambda text: parse_count(text, "--d"))
    length = lengths_of(N, mask) if places else parse_count(axis_text(N), "--N")
    fields = {**counts(given, required=()), "mask": parse_mask(mask)}
    each = [under.of(dtype, fields) for dtype in types]
    problems = [Attention(length, size, **fields) for size, fields in product(sizes, each)]
    found = answer(questions, problems, places, under.multiple, bool(chosen), detail)
    notes = [*under.notes, *found.notes]
    return replace(found, notes=notes, json={**found.json, "notes": notes})


def axis_text(values: Counts | None) -> str:
    """An axis as a text."""
    return str(values) if isinstance(values, int | str) else ",".join(map(str, values or ()))


def lengths_of(N: Counts | None, mask: str | Mask) -> NDArray[np.int64]:
    """The lengths of a crossover over N, in rising order. By default they are every N up to 4096, or every 64th under a
    mask, where each may take milliseconds."""
    text = axis_text(N) or (EVERY_N if parse_mask(mask) is DENSE else SOME_N)
    if not several(text):
        raise InputError("--N", text, "an axis as 64:8192:+64, or none", "with --M the crossover is over N")
    return np.array(sorted(parse_axis(text, "--N", lambda part: parse_count(part, "--N"))))


def answer(
    questions: Sequence[Question],
    problems: Sequence[Attention],
    places: Sequence[Place],
    multiple: int,
    named: bool,
    detail: bool,
) -> Table:
    """The crossovers over M of some problems. If there are `places`, crossovers over N at each of them, of problems
    whose N is an array. `named` says whether the schedules were named, and `detail` whether all is printed."""
    divided = problems[0].divided
    left_out = [question.text for question in questions if divided and question.of_one_sram and not named]
    asked = [question for question in questions if question.text not in left_out]
    if places:
        at = [one for p, place in product(problems, places) for one in answers_at(place, asked, p, multiple)]
        table, said = table_of(at, OVER_N, list(places[0].label)), list(map(line_over_N, at))
        where = [intervals_json(one, "N") for one in at]
        lead, brief = lead_over_N(at), brief_over_N(at)
    else:
        found = [over_M(question, p, multiple) for p in problems for question in asked]
        table, said = table_of(found, OVER_M), lines_over_M(asked, found, multiple)
        where = [intervals_json(one, "M_bytes") for one in found]
        lead, brief = lead_over_M(asked, found), brief_over_M(asked, found)
    if len(problems) == 1 and not (named or places or divided):
        said += gap_lines(problems[0], multiple)
    unasked = f"Not asked with registers or stages: {', '.join(left_out)}. Those tiles are known for one SRAM only."
    beyond = [unasked] if left_out else []
    said += beyond
    said = said if said[0].startswith(lead) else [lead, *said]
    notes = mask_notes(problems[0], [schedule.name for question in asked for schedule in question.schedules])
    title = " or ".join(question.text for question in asked) if named else "questions of papers"
    rows = [{**row, "intervals": own} for row, own in zip(table, where, strict=True)]
    json: Row = {"crossovers": rows, "answer": " ".join(said), "notes": notes}
    about = f"{asked_text(problems[0])}: " if len(problems) == 1 and not places else ""
    text: Pieces = [about + said[0], "", table, "", *said[1:]] if detail else [about + lead, brief, *beyond]
    return replace(table, title=title, json=json, text=text, notes=notes)


def intervals_json(found: OverM | OverN, unit: str) -> list[Row]:
    """All intervals in which the statement of a question is true, in order, in `unit`: M_bytes or N."""
    return [{f"from_{unit}": one.first, f"to_{unit}": found.end_of(one)} for one in found.intervals]


def answers_at(place: Place, asked: Sequence[Question], p: Attention, multiple: int) -> Iterator[OverN]:
    """The crossovers over N in one SRAM."""
    M_bytes = parse_bytes(str(place.M), p.word_bytes)
    hardware = cast("str | None", place.label.get("hardware"))
    return (replace(found, hardware=hardware) for found in over_N(asked, p, M_bytes, multiple))


def gap_lines(p: Attention, multiple: int) -> list[str]:
    """Sentences on where the least traffic of all schedules is farthest above the floor. None under a mask, where this
    takes long."""
    return [] if p.mask is not DENSE else answer_lines(curve_of(p, tile_multiple=multiple))


# ---------------------------------------------------------------- columns


def of_problem(name: str, spare: int = 0) -> Column[OverM | OverN]:
    """The column of an option of the problem."""
    return Column(name, type_of(name), spare=spare, of=lambda found: getattr(found.problem, name))


def as_text(name: str) -> Column[OverM | OverN]:
    """The column of an option that is not at its default."""
    return Column(name, type_of(name), of=lambda found: str(getattr(found.problem, name)))


def longest(unit: str) -> Columns[OverM | OverN]:
    """The ends of the longest stretch in `unit`, M_bytes or N, and the number of its gaps."""

    def first(found: OverM | OverN) -> int | None:
        return found.stretches[0].whole.first if found.stretches else None

    def last(found: OverM | OverN) -> int | None:
        return found.end_of(found.stretches[0].whole) if found.stretches else None

    def gaps(found: OverM | OverN) -> int | None:
        return len(found.stretches[0].gaps) if found.stretches else None

    def to_where(found: OverM | OverN) -> object:
        return "no end" if found.stretches and last(found) is None else last(found)

    letter = unit[0]
    return (
        Column(f"from_{unit}", heading=f"from {letter}", of=first),
        Column(f"to_{unit}", heading=f"to {letter}", cell=to_where, of=last),
        Column("gaps", of=gaps),
    )


OF_LONGEST = {column.name for unit in ("M_bytes", "N") for column in longest(unit)}
LABEL: Column[OverM | OverN] = Column("question", "string", of=lambda found: found.question.label)
SHAPE = (of_problem("d"), of_problem("dtype", 4), of_problem("acc_dtype", 1))
MOVED: Columns[OverM | OverN] = (Column("below_bytes", spare=6), Column("above_bytes", spare=5))
OVER_M: Columns[OverM] = (
    LABEL,
    of_problem("N"),
    of_problem("Nk", 2),
    *SHAPE,
    *longest("M_bytes"),
    Column("M_bytes", heading="always from M"),
    Column("M_words", spare=3),
    Column("M_over_d2", "number", spare=7),
    *MOVED,
)
OVER_N: Columns[OverN] = (
    LABEL,
    *longest("N"),
    Column("N", heading="always from N"),
    Column("N_last"),
    *SHAPE,
    Column("M_bytes"),
    *MOVED,
)


def table_of(found: Sequence[One], columns: Columns[One], first: Sequence[str] = ()) -> Table:
    """A row for each answer. `first` are columns that stand before all others. In CSV those of the longest stretch come
    last."""
    unusual: dict[str, None] = dict.fromkeys(name for one in found for name in unusual_options(one.problem))
    known: list[Column[One]] = [Column("hardware", "string"), *columns, *map(as_text, unusual)]
    names = dict.fromkeys([*first, *(column.name for column in columns), *unusual])
    shown = [replace(column, heading=column.heading or column.name) for column in in_order(known, names)]
    in_csv = sorted(names, key=lambda name: name in OF_LONGEST)
    return Table(in_order(known, in_csv), found, shown=shown)


def unusual_options(p: Attention) -> list[str]:
    """The options of a problem that are not at their defaults, without its lengths and types."""
    unusual = p.unusual()
    return [name for name in ("dv", "batch", "heads", "kv_heads", "mask", *option_columns()) if name in unusual]


# ---------------------------------------------------------------- in a few lines

BELOW = Column[dict[str, str]]("below", "string", "moves less")
ABOVE = Column[dict[str, str]]("above", "string", "than", folds=True)


def brief_over_M(asked: Sequence[Question], found: Sequence[OverM]) -> Table:
    """A row for each question: the stretches of M; for several problems the range from which on, in d^2 words."""
    alone = len(found) == len(asked)
    heading = "M in bytes, longest first (--detail)" if alone else "from M in d^2 words on (--detail)"
    cells = [
        stretches_text(answers[0].stretches, answers[0].most) if alone else shares_text(answers)
        for question in asked
        if (answers := [one for one in found if one.question == question])
    ]
    return brief_table(asked, cells, heading)


def brief_over_N(found: Sequence[OverN]) -> Table:
    """A row for each answer: the stretches of N."""
    cells = [stretches_text(one.stretches, None) for one in found]
    return brief_table([one.question for one in found], cells, "N, longest first (--detail)", told_apart(found))


def brief_table(
    asked: Sequence[Question], cells: Sequence[str], heading: str, about: Sequence[str] | None = None
) -> Table:
    """A row for each answer: both sides, and where the first moves less. `about` tells the problems apart."""
    columns = [
        *([Column[dict[str, str]]("about", "string", "problem")] if about else []),
        BELOW,
        ABOVE,
        Column[dict[str, str]]("where", "string", heading, folds=True),
    ]
    rows = [
        {"about": of, "below": question.below.brief, "above": question.above.brief, "where": cell}
        for question, cell, of in zip(asked, cells, about or [""] * len(cells), strict=True)
    ]
    return Table(columns, rows, tall=True)


def stretches_text(found: Sequence[Stretch], most: int | None) -> str:
    """Stretches in a few words, longest first: `from 18,124; 1,030 to 16,383; 1 more`. An M of `most` is no end."""
    if not found:
        return "nowhere"
    shown = found[:1] if found[0].gaps else found[:2]
    more = len(found) - len(shown)
    text = "; ".join(stretch_text(part, most) for part in shown) + (f"; {more} more" if more else "")
    return text if text.startswith("from") else f"at {text}"


def stretch_text(part: Stretch, most: int | None) -> str:
    """A stretch in a few words, with the number of its gaps."""
    first, last = part.whole
    text = f"from {first:,}" if last == most else f"{first:,}" + f" to {last:,}" * (last != first)
    return text + (f", {numbered(len(part.gaps), 'gap')}" if part.gaps else "")


def shares_text(found: Sequence[OverM]) -> str:
    """From which M on one side moves less, in d^2 words over several problems: `1.01 to 1.05`."""
    shares, gaps = endless(found)
    if not shares:
        return "none"
    low, high = rounded(min(shares)), rounded(max(shares))
    text = low if low == high else f"{low} to {high}"
    text += f", gaps in {gaps} of {len(found)}" if gaps else ""
    return text + (f", none in {len(found) - len(shares)}" if len(shares) < len(found) else "")


def endless(found: Sequence[OverM]) -> tuple[list[float], int]:
    """Where stretches without an end begin, in d^2 words, and how many of them have gaps."""
    ends = [(one.problem, part) for one in found for part in one.stretches if one.end_of(part.whole) is None]
    shares = [part.whole.first // p.word_bytes / p.d**2 for p, part in ends]
    return shares, sum(bool(part.gaps) for _, part in ends)


def lead_over_M(asked: Sequence[Question], found: Sequence[OverM]) -> str:
    """The sentence that leads: from which M on the side that most questions ask about moves less than all others. For
    two schedules, or where there is no such M, it is the sentence of the first question that is ever true."""
    ones, names = asked_most(found)
    if names is None or any(one.M_bytes is None for one in ones):
        first = next((one.question for one in found if one.stretches), asked[0])
        answers = [one for one in found if one.question == first]
        return about_several(first, answers) if len(answers) > 1 else f"{first.text} {where_in_M(answers[0])}"
    if len(found) == len(asked):
        one = max(ones, key=lambda one: one.M_bytes or 0)
        return f"{names} from M = {one.M_bytes:,} B ({rounded(one.M_over_d2 or 0)} d^2 words) on."
    share = max(ceil(1000 * (one.M_words or 0) / one.problem.d**2) for one in ones) / 1000
    return f"{names} from M = {share:,.9g} d^2 words on, in each of {len(found) // len(asked)} problems."


def lead_over_N(found: Sequence[OverN]) -> str:
    """The sentence that leads, over N: from which N on the side that most questions ask about moves less than all
    others. For two schedules, or where there is no such N, it is the sentence of the first answer that is ever true."""
    ones, names = asked_most(found)
    starts = [one.N for one in ones if one.N is not None]
    if names is None or len(starts) < len(ones):
        return line_over_N(next((one for one in found if one.stretches), found[0]))
    about = {place_of(one) for one in found}
    case = f"({about.pop()})" if len(about) == 1 else f"in each of {len(about)} cases"
    return f"{names} from N = {max(starts):,} to {ones[0].N_last:,} {case}."


def asked_most(found: Sequence[One]) -> tuple[list[One], str | None]:
    """The answers about the side that most questions ask about, and the statement of all of them; None if it is one
    question."""
    sides = [one.question.below.brief for one in found]
    most = max(sides, key=sides.count)
    ones = [one for one in found if one.question.below.brief == most]
    if len({one.question.label for one in ones}) == 1:
        return ones, None
    others = dict.fromkeys(name for one in ones for name in one.question.above.each)
    return ones, f"{most} moves less than {joined(others)}"


def places_of(found: OverN) -> list[str]:
    """What an answer over N is about, in parts: `M = 102,400 B`, `d = 128`, `fp16`."""
    named = [found.hardware] if found.hardware else []
    return [*named, f"M = {found.M_bytes:,} B", f"d = {found.problem.d}", found.problem.dtype]


def place_of(found: OverN) -> str:
    """What an answer over N is about: `M = 102,400 B, d = 128, fp16`."""
    return ", ".join(places_of(found))


def told_apart(found: Sequence[OverN]) -> list[str] | None:
    """What differs between answers over N, for each of them: of two GPUs their names; None if nothing does."""
    kinds = [kind for kind in zip(*map(places_of, found), strict=True) if len({*kind}) > 1]
    return [", ".join(kind[k] for kind in kinds) for k in range(len(found))] if kinds else None


# ---------------------------------------------------------------- sentences


def lines_over_M(asked: Sequence[Question], found: Sequence[OverM], multiple: int = 1) -> list[str]:
    """A sentence for each question. For several problems it gives the range of M in units of d^2 words."""
    lines = []
    for question in asked:
        answers = [one for one in found if one.question == question]
        lines.append(about_one(answers[0], multiple) if len(answers) == 1 else about_several(question, answers))
    return lines


def about_one(found: OverM, multiple: int) -> str:
    """The sentences about one problem: the M at which this is so, and the comparison where that begins."""
    p, question, where = found.problem, found.question, f"{found.question.text} {where_in_M(found)}"
    if not found.stretches:
        return where
    M = found.stretches[0].whole.first
    below, above = (least_of(p, side, M, multiple) for side in (question.below, question.above))
    if below is None:
        return where
    distance = distance_to_floor(below.ratio_to_floor, M)
    compared = f"nothing of {question.above.name} fits." if above is None else comparison(p, below, above, M)
    return " ".join(part for part in (where, f"At M = {M:,} B {compared}", distance) if part)


def where_in_M(found: OverM) -> str:
    """The predicate that says at which M the statement of a question is true, with its full stop."""
    if not found.stretches:
        return "at no M."
    text = where_true_in_M(found.problem, found.stretches, found.most)
    if found.intervals[0].first >= found.above_from:
        return text
    other = found.question.above
    return f"{text} Below {format_bytes(found.above_from)} nothing of {other.name} fits."


def least_of(p: Attention, side: Side, M_bytes: int, multiple: int) -> Result | None:
    """The result of least bytes of a side at an M; None if it has no tiles there."""
    results = [run(schedule, side.rule, p, M_bytes, multiple) for schedule in side.schedules]
    return min((r for r in results if r.total_bytes is not None), key=lambda r: r.total_bytes or 0, default=None)


def about_several(question: Question, found: Sequence[OverM]) -> str:
    """The sentence about several problems: the range of M over all of them."""
    shares, some = endless(found)
    if not shares:
        return f"There is no M from which on {question.text}, in any of the {len(found)} problems."
    size = f"M = {rounded(min(shares))} d^2 words"
    if max(shares) > min(shares):
        size = f"an M of {rounded(min(shares))} to {rounded(max(shares))} d^2 words (by problem)"
    never = len(found) - len(shares)
    gaps = f", but for gaps in {some} of {len(found)} problems" if some else ""
    text = f"{question.text} at {size} and at every larger M{gaps}"
    return text + (f"; in {never} of {len(found)} problems there is no such M." if never else ".")


def line_over_N(found: OverN) -> str:
    """The sentence about one answer: the N of the axis at which this is so."""
    text, about = found.question.text, f"({place_of(found)})"
    if not found.stretches:
        return f"{text} at no N up to {found.N_last} {about}."
    first, alone = longest_in_N(found)
    said, _, others = where_true(first, alone, found.stretches, brief_in_N, gap_in_N).partition(".")
    return f"{text} {said} {about}.{others}"


def longest_in_N(found: OverN) -> tuple[str, str]:
    """The longest stretch of N in words, and the clause that says that there is no other."""
    first, last = found.stretches[0].whole
    if last != found.N_last:
        return f"from N = {first} to {last}" if first != last else f"at N = {first} alone", ", and at no other N"
    if first == found.problem.N:
        return f"at every N of the axis, from {first} to {last}", ""
    larger = ", the largest one" if first == last else f" and at every larger N up to {last}"
    return f"at N = {first}{larger}", ", but at no smaller one"


def brief_in_N(one: Interval) -> str:
    """An interval of N in a few words."""
    return f"at N = {one.first}" if one.first == one.last else f"from N = {one.first} to {one.last}"


def gap_in_N(one: Interval) -> str:
    """A gap: `N = 300`, or `N = 300 to 310`."""
    return f"N = {one.first}" if one.first == one.last else f"N = {one.first} to {one.last}"
