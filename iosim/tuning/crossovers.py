"""The M or the N from which on one schedule moves less than another, as `iosim.crossover` answers it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Unpack, cast

from ..core.problem import DENSE
from ..counting.count import check_names
from ..counting.given import counts, memories, problem, several
from ..counting.notes import mask_notes
from ..errors import InputError
from ..grid import Grid
from ..notebook import Table
from ..schedules import find_all
from ..units import parse_axis, parse_count
from . import crossover_sentence, gap
from .crossover import crossover_of, crossover_rows, questions_of
from .crossover_over_N import answers_over_N
from .least import curve_of

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.problem import Attention
    from ..core.typing import Mask
    from ..counting.given import Given, Place
    from ..schedules.registry import SchedulesAsked
    from ..tables import Row
    from .crossover import Question
    from .crossover_over_N import OverN

    Counts = int | str | Sequence[int]

EVERY_N = "1:4096:+1"
SOME_N = "64:4096:+64"  # under a mask, where each length may take milliseconds
LESS_IMPORTANT = ("acc_dtype", "Nk", "M_words", "dtype", "above_bytes", "below_bytes")  # left out first to last
TAKEN = ("N", "d", "M", "hardware", "schedules", "tile_multiple", "mask")


def crossover(
    N: Counts | None = None,
    d: Counts | None = None,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    schedules: SchedulesAsked = (),
    tile_multiple: int = 1,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Table:
    """The M or the N from which on one schedule moves less than another, exact to the byte: a Table.

    - `schedules`: two of them. By default six questions that papers raise are answered; four of them if there are
      registers or stages.
    - Without `M` the answer is an M. `d` and `dtype` may be several, as `[64, 128]` and `"fp16,fp32"`.
    - With `M` or a `hardware` the answer is an N: the first of the axis `N` such that one schedule moves less at it and
      at every later one. An axis is a text as `"64:8192:+64"`; by default it has every N up to 4096.
    - Other options are those of `count`.

    Raises InputError for whatever is not allowed.
    """
    check_names("crossover", options, TAKEN)
    given = cast("Given", {**options, "N": axis_text(N), "d": axis_text(d), "mask": mask})
    size = None if M is None else str(M)
    places = [] if size is None and hardware is None else memories(given, size, hardware)
    names = [schedule.name for schedule in find_all(schedules)]
    return crossovers_of(given, places, names, tile_multiple)


def axis_text(values: Counts | None) -> str | None:
    """An axis as a text; None stays None."""
    if values is None or isinstance(values, str):
        return values
    return str(values) if isinstance(values, int) else ",".join(map(str, values))


def crossovers_of(given: Given, places: Sequence[Place], schedules: Sequence[str], tile_multiple: str | int) -> Table:
    """The crossovers over M for the options of a problem. If there are `places`, crossovers over N at each of them."""
    if given["N"] is None and not places:
        raise InputError("--N", "nothing", "a whole number from 1", "give --N, or --M for a crossover over N")
    if given["d"] is None:
        raise InputError("--d", "nothing", "head dimensions as in 64,128", "give --d")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    asked = questions_of(schedules)
    left_out = [q.text for q in asked if q.of_one_sram] if divided(given) and not schedules else []
    asked = [q for q in asked if q.text not in left_out]
    cases = cases_of(given)
    rows, said = answers_at(cases, places, asked, multiple) if places else answers_of(cases, asked, multiple)
    if len(cases) == 1 and not (schedules or places or divided(given)):
        said += gap_lines(problem(cases[0]), multiple)
    if left_out:
        said.append(
            f"Not asked with registers or stages: {', '.join(left_out)}. Those tiles are known for one SRAM only."
        )
    names = [name for q in asked for name in (*q.below[0], *q.above[0])]
    notes = mask_notes(problem({**cases[0], "N": "1"} if places else cases[0]), names)
    title = " or ".join(dict.fromkeys(question.text for question in asked)) if schedules else "questions of papers"
    json: Row = {"crossovers": rows, "answer": " ".join(said), "notes": notes}
    return Table(title, rows, json, [Grid(rows, LESS_IMPORTANT), "", *said], notes)


def cases_of(given: Given) -> list[Given]:
    """The options of each problem: of every head dimension with every type."""
    sizes = parse_axis(str(given["d"]), "--d", lambda text: parse_count(text, "--d"))
    types = dict.fromkeys(part.strip() for part in str(given.get("dtype") or "fp16").split(","))
    return [{**given, "d": str(d), "dtype": dtype} for d, dtype in product(sizes, types)]


def answers_of(cases: Sequence[Given], asked: list[Question], multiple: int) -> tuple[list[Row], list[str]]:
    """(rows, sentences) of the crossovers over M."""
    found = [crossover_of(question, problem(one), multiple) for one in cases for question in asked]
    return crossover_rows(found), crossover_sentence.answer_lines(asked, found, multiple)


def answers_at(
    cases: Sequence[Given], places: Sequence[Place], asked: list[Question], multiple: int
) -> tuple[list[Row], list[str]]:
    """(rows, sentences) of the crossovers over N, at each M."""
    rows: list[Row] = []
    said: list[str] = []
    for one, (label, M) in product(cases, places):
        found = over_N(one, str(M), asked, multiple)
        rows += [{**label, **answer.row} for answer in found]
        said += crossover_sentence.lines_over_N(found)
    return rows, said


def divided(given: Given) -> bool:
    """Whether the options give registers, or more than one stage."""
    fields = counts({name: given.get(name) for name in ("register_bytes", "stages")}, required=())
    return fields.get("register_bytes", 0) > 0 or fields.get("stages", 1) > 1


def gap_lines(p: Attention, multiple: int) -> list[str]:
    """Sentences on where the least traffic of all schedules is farthest above the floor. None under a mask, where this
    takes long."""
    return [] if p.mask is not DENSE else gap.answer_lines(curve_of(p, tile_multiple=multiple))


def over_N(given: Given, M: str, asked: list[Question], multiple: int) -> list[OverN]:
    """The answers of the crossovers over N at one M. The default is every N up to 4096, or every 64th
    under a mask."""
    masked = given.get("causal") or str(given.get("mask") or "dense").strip() != "dense"
    lengths = given["N"] or (SOME_N if masked else EVERY_N)
    if not several(str(lengths)):
        raise InputError("--N", lengths, "an axis as 64:8192:+64, or none", "with --M the crossover is over N")
    return answers_over_N({**given, "N": lengths}, M, asked, multiple)
