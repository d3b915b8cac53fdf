"""The rows of `iosim schedules`: the fields of a schedule, and the result of running it on a small problem."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING

from ..answer import Answer, Column, Table, numbered
from ..core.machine import Machine
from ..core.problem import Attention, Tensor
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..masks import parse_mask
from ..schedules import SCHEDULES, Schedule
from ..schedules.registry import LATENT_FAMILIES, LETTERS, narrowed

if TYPE_CHECKING:
    from ..answer import Columns
    from ..grid import Pieces
    from ..tables import Row

SMALL, TILES = Attention(16, 8, dtype="fp32", page_size=4, key_block=4, top_k=2), Tiling(8, 8)
TRIED: dict[str, tuple[str, object]] = {  # {option: (field of the problem, a value that may change the traffic)}
    "--lse": ("lse", True),
    "--keep-p": ("keep_p", True),
    "--elementwise": ("elementwise", 1),
    "--splits": ("splits", 3),
    "--page-size": ("page_size", 6),
    "--top-k": ("top_k", 3),
    "--key-block": ("key_block", 2),
    "--latent": ("latent", True),
    "--mask": ("mask", parse_mask("window:0")),
}


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
    read, ignored = options_that_matter(schedule, problem, traffic)
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


def options_that_matter(schedule: Schedule, problem: Attention, traffic: Traffic) -> tuple[list[str], list[str]]:
    """(the options that a schedule reads, the options that it ignores). Ignored options may be given, and change
    nothing.

    `traffic` is its traffic without options. A mask that changes no word is in neither list, because it hides scores.
    """
    read: list[str] = []
    ignored: list[str] = []
    for option, (field, value) in TRIED.items():
        asked, changed = narrowed(problem, **{field: value}), Traffic()
        if field == "latent" and schedule.family not in LATENT_FAMILIES:
            continue
        if getattr(schedule.about(asked), field) is value:
            Machine(asked, changed).run(schedule, TILES)
            (ignored if changed.tensors == traffic.tensors else read).append(option)
    (read if schedule.initialised else ignored).append("--count-init")
    read += ["--kv-dtype", "--kv-scales"] if schedule.scales else []
    return read + (["--dropout"] if schedule.drops else []), [option for option in ignored if option != "--mask"]


def tensor_text(name: str, tensor: Tensor, reads: int, writes: int) -> str:
    """A tensor as `Q (N, d) read`: its axes, and whether the schedule reads and writes it."""
    done = " and ".join(["read"] * bool(reads) + ["written"] * bool(writes))
    return f"{name} ({', '.join(map(str, tensor.axes))}) {done}"


def cuda_answer(schedule: Schedule) -> str:
    """`yes` if kernels can be generated from the schedule, else `no` with the reason."""
    from ..cuda.machine import why_not

    reason = why_not(schedule)
    return "no: " + reason.partition(":")[0] if reason else "yes"


def text_of(row: Row, width: int = 80) -> str:
    """The row of one schedule as text: a line or more for each column that is not empty."""
    lines = [f"{row['schedule']}: {row['summary']}"]
    formula = str(row["formula"])
    used = [f"{letter} = {text}" for letter, text in LETTERS.items() if re.search(rf"\b{letter}\b", formula)]
    for name, value in row.items():
        if name not in ("schedule", "summary") and value != "":
            lines += indented(name, str(value), width)
        if name == "formula" and value:
            lines += indented("", "; ".join(["words of one head, dense", *used]), width)
    return "\n".join(lines)


def indented(name: str, text: str, width: int) -> list[str]:
    """The lines of a text, with a name before the first one. A line ends where a part of the text ends (`; `, or `, `
    before `W = `). A part that is longer than a line is also broken between words."""
    room = width - 13
    parts = re.split(r"(?<=;) |(?<=,) (?=W = )", text)
    kept = " ".join(part.replace(" ", "\0") if len(part) <= room else part for part in parts)
    lines = wrap(kept, room, break_long_words=False, break_on_hyphens=False)
    return [(name if k == 0 else "").ljust(13) + line.replace("\0", " ") for k, line in enumerate(lines)]
