"""The text of a schedule line by line, with the words that each line moves, as `iosim schedules NAME` prints it.

The words come from a folded run, and so do the formulas. The sizes of that run are primes, so the prime factors of a
number of words say which sizes were multiplied.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from os.path import basename
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

from ..answer import Row, Table
from ..core.folded import Folded
from ..core.machine import Machine
from ..core.problem import Attention, as_moved
from ..core.text_lines import LineTraffic, box
from ..core.tiling import Rule, Tiling, read_tiles, tiles_text
from ..errors import FoldingError, InputError
from ..grid import grouped
from ..masks import parse_mask
from ..schedules import Schedule, find_all, require
from ..schedules.registry import LETTERS
from ..units import parse_bytes
from .about_schedules import ABOUT, SMALL, TILES, Schedules, schedule_row, text_of
from .asked import asked
from .conditions import conditions
from .given import memory
from .names import takes_options
from .run import one_tiling

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked

Moved = Mapping[str, tuple[int, int]]
RUNS = (  # each size that a formula may name, and each number of tiles, is a different prime
    (Attention(1009, 101, 2003, 131, splits=7, page_size=49, top_k=5, key_block=3),
     Tiling(44, 66, depth=10, rows_o=55, cols_o=8, kept=43)),
    (Attention(1013, 107, 2011, 109, splits=5, page_size=47, top_k=7, key_block=2),
     Tiling(36, 55, depth=10, rows_o=45, cols_o=9, kept=41)),
)  # fmt: skip
SIZES = ("N", "Nk", "d", "dv", "splits", "page_size", "top_k", "key_block")
ALWAYS = "N Nk d dv Tr Tc"  # letters for every line, beside those of the schedule's own formula
WIDTH = 80


class TextLine(NamedTuple):
    """A line of a schedule's text. A line that calls a function has the words that the function moves."""

    function: str
    """The name of the function that has the line."""
    file: str
    """The name of the function's file."""
    code: str
    """The line, with its indentation."""
    words: Moved
    """{tensor: (words read, words written)}."""
    formulas: Mapping[str, tuple[str, str]]
    """The words as products of sizes, for one head without a mask. `?` stands for words that are not such a product."""

    def row(self) -> Row:
        """The line as the keys of its JSON."""
        tensors = {name: {"reads": r, "writes": w} for name, (r, w) in self.words.items()}
        formulas = {name: {"reads": r, "writes": w} for name, (r, w) in self.formulas.items()}
        return {
            "function": self.function,
            "file": self.file,
            "code": self.code,
            "tensors": tensors,
            "formulas": formulas,
        }


class Sizes(NamedTuple):
    """The problem and the tiles that a schedule is run with."""

    problem: Attention
    tiling: Tiling

    def row(self) -> Row:
        """The sizes as the keys of their JSON."""
        p, t = self.problem, self.tiling
        return {
            "N": p.N,
            "Nk": p.Nk,
            "d": p.d,
            "dv": p.dv,
            "batch": p.batch,
            "heads": p.heads,
            "mask": str(p.mask),
            "Br": t.rows_q,
            "Bc": t.rows_k,
        }

    def __str__(self) -> str:
        return f"{asked(self.problem)}, tiles {tiles_text(self.tiling)}"


@takes_options()
def schedules(
    name: str | Schedule | None = None,
    N: int | None = None,
    d: int | None = None,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    paper_model: bool = False,
    tiles: TilesAsked | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Schedules | Table:
    """All schedules; or with a name one of them: its source, formula, state, options, tensors and text.

    The text shows the words that each line moves: as formulas, or as numbers with N, d, and tiles or M. Other options
    are those of `count`. Raises InputError for whatever is not allowed.
    """
    sized = any(value is not None for value in (N, d, M, hardware, tiles)) or mask != "dense" or options
    if name is None:
        if sized:
            hint = "as in iosim schedules flash2 --N 8192 --d 128"
            raise InputError("NAME", "nothing", "a schedule, with sizes", hint)
        return Schedules()
    (schedule,) = find_all(name)
    if not sized:
        return schedule_answer(schedule)
    for option, value in (("--N", N), ("--d", d)):
        if value is None:
            raise InputError(option, "nothing", "a whole number from 1", f"give {option}")
    under = conditions(hardware, options, None, paper_model, tiles)
    p = Attention(cast("int", N), cast("int", d), mask=parse_mask(mask), **under.options)
    size = memory(M, hardware)
    M_bytes = None if size is None else parse_bytes(size, p.word_bytes)
    sizes = sizes_of(schedule, p, read_tiles(tiles), M_bytes, under.multiple)
    return replace(schedule_answer(schedule, sizes), notes=under.notes)


def schedule_answer(schedule: Schedule, sizes: Sizes | None = None) -> Table:
    """The answer of `iosim schedules NAME`: all that is known of one schedule, and its text."""
    row, lines = schedule_row(schedule), text_lines(schedule, sizes)
    run: Row = {"run": sizes.row()} if sizes else {}
    json = {**row, **run, "text": [line.row() for line in lines]}
    text = "\n\n".join(filter(None, [text_of(row), box_text(lines, sizes)]))
    return Table(ABOUT, [row], schedule.name, {"schedules": [json]}, [text])


def sizes_of(schedule: Schedule, p: Attention, tiles: Rule | None, M_bytes: int | None, multiple: int = 1) -> Sizes:
    """The problem and the tiles of a schedule: the tiles given, or those of the schedule's rule, which needs M.

    Raises InputError if M is needed and not given, or if nothing fits.
    """
    require(schedule, p)
    return Sizes(p.packed, one_tiling(schedule, tiles, -1, p, M_bytes, multiple))


def text_lines(schedule: Schedule, sizes: Sizes | None = None) -> list[TextLine]:
    """The lines of a schedule, first those of its own function, then those of the functions that it calls.

    Lines have words, of all heads, if `sizes` are given.
    """
    formulas = formulas_of(schedule)
    if sizes is None:
        try:
            ran = traffic_of(schedule, schedule.about(RUNS[0][0]), RUNS[0][1])
        except FoldingError:
            ran = LineTraffic()
            Machine(schedule.about(SMALL), ran).run(schedule, TILES)
        times = 0
    else:
        ran, times = traffic_of(schedule, as_moved(schedule, sizes.problem), sizes.tiling), sizes.problem.instances
    found = []
    for line, code in box(ran.words):
        moved = {name: (times * int(r), times * int(w)) for name, (r, w) in ran.words.get(line, {}).items()}
        key = (line.function, line.number)
        file = basename(line.code.co_filename)
        found.append(TextLine(line.function, file, code, moved if times else {}, formulas.get(key, {})))
    return without_docstrings(found)


def traffic_of(schedule: Schedule, problem: Attention, tiling: Tiling) -> LineTraffic:
    """The words of each line of a folded run, of one head."""
    watcher = LineTraffic()
    Folded(problem, watcher).run(schedule, tiling)
    return watcher


# ---------------------------------------------------------------- formulas


def formulas_of(schedule: Schedule) -> dict[tuple[str, int], dict[str, tuple[str, str]]]:
    """{(function, line): {tensor: (words read, words written)}} as products of sizes. Two runs must agree on each."""
    try:
        first, second = (factored(schedule, *run) for run in RUNS)
    except FoldingError:
        return {}
    return {
        key: {name: agreed(texts, second.get(key, {}).get(name)) for name, texts in tensors.items()}
        for key, tensors in first.items()
    }


def agreed(texts: tuple[str, str], others: tuple[str, str] | None) -> tuple[str, str]:
    """The texts, each replaced by `?` if it differs from the other run's text."""
    read, written = others or ("?", "?")
    return texts[0] if texts[0] == read else "?", texts[1] if texts[1] == written else "?"


def factored(schedule: Schedule, given: Attention, t: Tiling) -> dict[tuple[str, int], dict[str, tuple[str, str]]]:
    """The formulas that one run suggests."""
    p = schedule.about(given)
    known = letters_of(schedule, p, t)
    return {
        (line.function, line.number): {
            name: (product_text(int(r), known), product_text(int(w), known)) for name, (r, w) in moved.items()
        }
        for line, moved in traffic_of(schedule, p, t).words.items()
    }


def letters_of(schedule: Schedule, p: Attention, t: Tiling) -> dict[str, int]:
    """The values of the letters that formulas of a schedule may have."""
    sizes = (
        {name: getattr(p, name) for name in SIZES}
        | vars(t)
        | {"Br": t.rows_q, "Bc": t.rows_k, **steps_of_state(schedule, p)}
    )
    used = re.findall(r"[A-Za-z_]+", f"{ALWAYS} {schedule.formula}")
    tiles = {
        letter: eval(re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", text), {"ceil": ceil}, sizes)
        for letter, text in LETTERS.items()
    }
    known = {**sizes, **tiles}
    return {letter: known[letter] for letter in dict.fromkeys(used) if letter in known}


def steps_of_state(schedule: Schedule, p: Attention) -> dict[str, int]:
    """L of a schedule with a ring of rows, or 1; and the drafts of a step, and those that are accepted."""
    if not schedule.reads("ring"):
        return {"L": 1, "drafts": 0, "accepted": 0}
    from ..schedules.state_decode import ring_rows
    from ..schedules.state_verify import kept, verified, writes_every

    if not schedule.reads("drafts"):
        return {"L": cast("int", ring_rows(p)), "drafts": 0, "accepted": 0}
    L, T, A = cast("tuple[int, int, int]", (writes_every(p), verified(p), kept(p)))
    return {"L": L, "drafts": T - 1, "accepted": A - 1}


def product_text(words: int, sizes: Mapping[str, int]) -> str:
    """A number of words as a product of sizes, as `2 Nk d Tr`; empty for 0, and `?` if it is no such product. If two
    sizes are equal, the first one is used."""
    if not words:
        return ""
    letters: list[str] = []
    for letter, size in sizes.items():
        while words % size == 0 and size > 1:
            words //= size
            letters.append(letter)
    return " ".join([*[str(words)] * (words != 1), *letters]) or "1" if words < 10 else "?"


# ---------------------------------------------------------------- text


def without_docstrings(lines: list[TextLine]) -> list[TextLine]:
    """The lines that are no part of a docstring."""
    kept = []
    for function in dict.fromkeys((line.file, line.function) for line in lines):
        own = [line for line in lines if (line.file, line.function) == function]
        hidden = docstring([line.code for line in own])
        kept += [line for number, line in enumerate(own) if number not in hidden]
    return kept


def docstring(lines: Sequence[str]) -> range:
    """The indices of the lines of a function's docstring."""
    try:
        (function,) = ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError):
        return range(0)
    first = function.body[0] if isinstance(function, ast.FunctionDef) else function
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return range(first.lineno - 1, first.end_lineno or 0) if is_text else range(0)


def box_text(lines: list[TextLine], sizes: Sizes | None = None) -> str:
    """The lines in a box of 80 characters: code on the left, its words on the right or below.

    Functions from other files than the first are only named. The text is empty if there is no line.
    """
    if not lines:
        return ""
    near = [line for line in lines if line.file == lines[0].file]
    edge = "+" + "-" * (WIDTH - 2) + "+"
    found = wrap(f"words moved by each line: {sizes}" if sizes else legend(near), WIDTH)
    function = ""
    for line in near:
        found += [edge] * (line.function != function)
        function = line.function
        found += [f"| {text.ljust(WIDTH - 4)} |" for text in beside(line, sizes is not None, WIDTH - 4)]
    return "\n".join([*found, edge, *not_shown([line for line in lines if line not in near])])


def legend(lines: list[TextLine]) -> str:
    """The legend of the formulas: what they count, and the meaning of their letters."""
    used = {letter for line in lines for pair in line.formulas.values() for text in pair for letter in text.split()}
    letters = [f"{letter} = {text}" for letter, text in LETTERS.items() if letter in used]
    return "; ".join(["words moved by each line, of one head, dense", *letters])


def not_shown(lines: list[TextLine]) -> list[str]:
    """The names of functions that are not shown, and of their files, in lines."""
    if not lines:
        return []
    files, names = (", ".join(dict.fromkeys(name)) for name in zip(*((x.file, x.function) for x in lines), strict=True))
    return wrap(f"Functions of {files} are not shown: {names}. --json has them.", WIDTH)


def beside(line: TextLine, counted: bool, room: int) -> list[str]:
    """The code of a line, and its words: on the right if there is room, else on lines of their own."""
    depth = " " * (len(line.code) - len(line.code.lstrip()))
    code = wrap(
        line.code.strip(),
        room,
        initial_indent=depth,
        subsequent_indent=depth + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
    words = words_text(line, counted)
    if len(code[-1]) + 2 + len(words) <= room:
        return [*code[:-1], code[-1] + words.rjust(room - len(code[-1]))]
    return [*code, *(text.rjust(room) for text in wrap(words, room - 4, break_on_hyphens=False))]


def words_text(line: TextLine, counted: bool) -> str:
    """The words that a line moves: `read K: Nk d Tr, V: Nk dv Tr; write O: N dv`, or the numbers of words."""
    parts = []
    for side, verb in enumerate(("read", "write")):
        texts = {name: pair[side] for name, pair in (line.words if counted else line.formulas).items() if pair[side]}
        parts += [f"{verb} " + ", ".join(f"{name}: {grouped(text)}" for name, text in texts.items())] * bool(texts)
    return "; ".join(parts)
