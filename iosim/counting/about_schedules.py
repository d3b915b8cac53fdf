"""The rows of `iosim schedules`: the fields of a schedule, and the result of running it on a small problem."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, cast

from ..answer import Answer, Column, Columns, Pieces, Row, Table, numbered
from ..core.machine import Machine
from ..core.options import OF_EVERY_PROBLEM, flag, option_names
from ..core.problem import Attention, Tensor, narrowed
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..schedules import SCHEDULES, Schedule
from ..schedules.registry import LATENT_FAMILIES, LETTERS
from ..wings import offered

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL, TILES = Attention(16, 8, dtype="fp32", page_size=4, key_block=4, top_k=2), Tiling(8, 8)
NEVER_IGNORED = ("kv_dtype", "kv_scales", "dropout")  # a schedule that does not read them refuses them


ABOUT: Columns[Row] = (
    Column("schedule", "string", "schedule"),
    Column("summary", "string", "summary"),
    Column("family", "string"),
    Column("source", "string", "source", spare=2),
    Column("formula", "string", "formula", spare=1),
    Column("state", "string", "state", spare=3),
    Column("launches"),
    Column("outer", "string"),
    Column("tiles", "string"),
    Column("more tiles", "string"),
    Column("skips tiles", "string"),
    Column("options", "string"),
    Column("ignores", "string"),
    Column("tensors", "string"),
    Column("CUDA", "string"),
)


class Schedules(Answer):
    """The answer of `iosim schedules`: all schedules. People see a few of the columns, which need no run."""

    def table(self) -> Table:
        return Table(ABOUT, list(map(schedule_row, SCHEDULES.values())))

    def pieces(self) -> Pieces:
        return [Table(ABOUT, [{**vars(schedule), "schedule": schedule.name} for schedule in SCHEDULES.values()])]

    def to_dict(self) -> Row:
        return {"schedules": self.to_rows()}

    def summary(self) -> str:
        return numbered(len(SCHEDULES), "schedule")


def schedule_row(schedule: Schedule) -> Row:
    """The row of one schedule. All its values are strings, except the number of launches."""
    problem = schedule.about(SMALL)
    traffic = Traffic()
    machine = Machine(problem, traffic).run(schedule, TILES)
    read, ignored = options_that_matter(schedule, problem)
    return {
        "schedule": schedule.name,
        "summary": schedule.summary,
        "family": schedule.family,
        "source": schedule.source,
        "formula": schedule.formula,
        "state": schedule.state,
        "launches": len(traffic.launches),
        "outer": schedule.outer,
        "tiles": ", ".join(schedule.rules),
        "more tiles": ", ".join(schedule.more_tiles),
        "skips tiles": "yes" if schedule.skips else "no",
        "options": ", ".join(read),
        "ignores": ", ".join(ignored),
        "tensors": "; ".join(
            tensor_text(name, machine.tensors[name], *map(int, words)) for name, words in traffic.tensors.items()
        ),
        "CUDA": cuda_answer(schedule),
    }


def options_that_matter(schedule: Schedule, problem: Attention) -> tuple[list[str], list[str]]:
    """(the options that a schedule reads, the options that it ignores). Ignored options may be given, and change
    nothing; those that it refuses are in neither list."""
    family = [other for other in SCHEDULES.values() if other.family == schedule.family]
    own = [name for name in option_names() if name not in OF_EVERY_PROBLEM and any(s.reads(name) for s in family)]
    latent = ["latent"] * (schedule.family in LATENT_FAMILIES)
    given = ["lse", "keep_p", "visit_all", *own, *latent, "mask", "count_init", *NEVER_IGNORED]
    read = [name for name in given if schedule.reads(name)]
    ignored = [name for name in given if name not in (*read, "visit_all", "mask", *NEVER_IGNORED)]
    return list(map(flag, read)), [flag(name) for name in ignored if not refused(schedule, problem, name)]


def refused(schedule: Schedule, problem: Attention, name: str) -> bool:
    """Whether a flag may not be given with the schedule."""
    if name not in OF_EVERY_PROBLEM:
        return False
    return getattr(schedule.about(narrowed(problem, **{name: True})), name) is not True


def tensor_text(name: str, tensor: Tensor, reads: int, writes: int) -> str:
    """A tensor as `Q (N, d) read`: its axes, and whether the schedule reads and writes it."""
    done = " and ".join(["read"] * bool(reads) + ["written"] * bool(writes))
    axes = ", ".join(axis.__name__ if callable(axis) else str(axis) for axis in tensor.axes)
    return f"{name} ({axes}) {done}"


def cuda_answer(schedule: Schedule) -> str:
    """`yes` if kernels can be generated from the schedule, else `no` with the reason; empty without the wing that
    generates them."""
    why_not = offered("why_not_generated")
    if why_not is None:
        return ""
    reason = cast("Callable[[Schedule], str | None]", why_not)(schedule)
    return "no: " + reason.partition(":")[0] if reason else "yes"


def text_of(row: Row) -> str:
    """The row of one schedule as text: a line or more for each column that is not empty."""
    lines = [f"{row['schedule']}: {row['summary']}"]
    formula = str(row["formula"])
    used = [f"{letter} = {text}" for letter, text in LETTERS.items() if re.search(rf"\b{letter}\b", formula)]
    for name, value in row.items():
        if name not in ("schedule", "summary") and value != "":
            lines += indented(name, str(value))
        if name == "formula" and value:
            lines += indented("", "; ".join(["words of one head, dense", *used]))
    return "\n".join(lines)


def indented(name: str, text: str) -> list[str]:
    """The lines of a text, with a name before the first one. A line ends where a part of the text ends (`; `, or `, `
    before `W = `). A part that is longer than a line is also broken between words."""
    room = 80 - 13
    parts = re.split(r"(?<=;) |(?<=,) (?=W = )", text)
    kept = " ".join(part.replace(" ", "\0") if len(part) <= room else part for part in parts)
    lines = wrap(kept, room, break_long_words=False, break_on_hyphens=False)
    return [(name if k == 0 else "").ljust(13) + line.replace("\0", " ") for k, line in enumerate(lines)]
