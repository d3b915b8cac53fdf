"""`iosim crossover`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ..counting.given import Given, memories, problem, several
from ..errors import InputError
from .answer import Output, answer
from .options import (
    SIZES,
    D,
    Need,
    memory_options,
    multiple_option,
    named_command,
    outputs,
    problem_options,
    schedule_option,
    variant_options,
)

if TYPE_CHECKING:
    from ..tables import Row
    from ..tuning.crossover import Crossover, Question

EVERY_N = "1:4096:+1"
LESS_IMPORTANT = ("acc_dtype", "Nk", "below_bytes", "above_bytes", "M_words", "dtype")  # columns, the first to go first


@named_command(
    "crossover",
    needs=(Need("n", SIZES), D),
    axes=("n", "d", "dtype", *SIZES),
    usual="standard,standard-tiled,flash1,flash2,small-cache,small-cache-q",
)
@problem_options
@memory_options
@schedule_option("Two schedules, as flash2,standard (default: six questions that papers raise).")
@multiple_option
@variant_options
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tile_multiple: str,
    output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """The M or the N from which on one schedule moves less than another, exact to the byte.

    Without --M the answer is an M, for each of the head dimensions --d 64,128 and types --dtype fp16,fp32. With --M or
    --hardware it is an N, the first of the axis --N (default: every N up to 4096) from which on to the last of them one
    schedule moves less.

    Example: iosim crossover --N 8192 --d 64,128,256
    """
    from ..grid import Grid
    from ..tuning import crossover, crossover_sentence
    from ..units import parse_axis, parse_count

    if given["n"] is None and (m, m_elements, hardware) == (None, None, None):
        raise InputError("--N", "nothing", "a whole number from 1", "give --N, or --M for a crossover over N")
    if given["d"] is None:
        raise InputError("--d", "nothing", "head dimensions as in 64,128", "give --d")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    asked = crossover.questions_of(schedules)
    sizes = parse_axis(str(given["d"]), "--d", lambda text: parse_count(text, "--d"))
    types = dict.fromkeys(part.strip() for part in str(given["dtype"] or "fp16").split(","))
    rows: list[Row] = []
    answers: list[Crossover] = []
    for d, dtype in product(sizes, types):
        one = {**given, "d": str(d), "dtype": dtype}
        if (m, m_elements, hardware) == (None, None, None):
            found = [crossover.crossover_of(question, problem(one), multiple) for question in asked]
            answers += found
            rows += crossover.crossover_rows(found)
        else:
            for label, M in memories(one, m, m_elements, hardware):
                rows += [{**label, **row} for row in over_N(one, str(M), asked, multiple)]
    said = crossover_sentence.answer_lines(asked, answers, multiple) or crossover_sentence.lines_over_N(rows)
    answer(rows, {"crossovers": rows, "answer": " ".join(said)}, output, [Grid(rows, LESS_IMPORTANT), "", *said])


def over_N(given: Given, M: str, asked: list[Question], multiple: int) -> list[Row]:
    """The rows of the crossovers over N at one M."""
    from ..tuning.crossover_over_N import rows_over_N

    lengths = given["n"] or EVERY_N
    if not several(str(lengths)):
        raise InputError("--N", lengths, "an axis as 64:8192:+64, or none", "with --M the crossover is over N")
    return rows_over_N({**given, "n": lengths}, M, asked, multiple)
