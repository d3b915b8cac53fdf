"""What `iosim schedules` says: what a schedule says of itself, and what a run of it on a small problem shows."""

from __future__ import annotations

import re
from dataclasses import replace
from textwrap import wrap
from typing import Any

from ..core.machine import Machine
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..masks.mask import parse
from ..schedules import SCHEDULES, Schedule, find
from ..schedules.registry import LETTERS

SMALL, TILES = Attention(16, 8, dtype="fp32"), Tiling(8, 8)
OPTIONS: dict[str, dict[str, Any]] = {
    "--lse": {"lse": True},
    "--keep-p": {"keep_p": True},
    "--elementwise": {"elementwise": 1},
    "--splits": {"splits": 3},
    "--page-size": {"page_size": 5},
    "--mask": {"mask": parse("window:0")},
}


def rows(name: str | None = None) -> list[dict[str, Any]]:
    """All that is known of all schedules, or of one."""
    return [row(schedule) for schedule in (SCHEDULES.values() if name is None else [find(name)])]


def listed(narrow: bool) -> list[dict[str, Any]]:
    """All schedules, with what they say of themselves; `narrow` for 80 columns."""
    names = ("summary",) if narrow else ("summary", "source", "formula", "state")
    return [{"schedule": s.name, **{name: getattr(s, name) for name in names}} for s in SCHEDULES.values()]


def row(schedule: Schedule) -> dict[str, Any]:
    """One schedule; texts only, but for the number of launches."""
    problem = schedule.about(SMALL)
    traffic = Traffic()
    machine = Machine(problem, traffic).run(schedule, TILES)
    return {
        "schedule": schedule.name,
        "summary": schedule.summary,
        "family": schedule.family,
        "source": schedule.source,
        "formula": schedule.formula,
        "state": schedule.state,
        "launches": len(traffic.steps),
        "outer": schedule.outer,
        "tiles": ", ".join(schedule.rules),
        "more tiles": ", ".join(schedule.more_tiles),
        "skips tiles": "yes" if schedule.skips else "no",
        "options": ", ".join(options(schedule, problem, traffic)),
        "tensors": "; ".join(
            described(name, machine.tensors[name], *map(int, words)) for name, words in traffic.tensors.items()
        ),
        "CUDA": cuda(schedule),
    }


def options(schedule: Schedule, problem: Attention, traffic: Traffic) -> list[str]:
    """The options that change what it moves."""
    found = []
    for option, fields in OPTIONS.items():
        asked, changed = replace(problem, **fields), Traffic()
        nearest = schedule.about(asked)
        if all(getattr(nearest, name) is value for name, value in fields.items()):
            Machine(asked, changed).run(schedule, TILES)
            found += [option] if changed.tensors != traffic.tensors else []
    return found + (["--count-init"] if schedule.initialised else []) + (["--dropout"] if schedule.drops else [])


def described(name: str, tensor: Any, reads: int, writes: int) -> str:
    """`Q (N, d) read`."""
    done = " and ".join(["read"] * bool(reads) + ["written"] * bool(writes))
    return f"{name} ({', '.join(map(str, tensor.axes))}) {done}"


def cuda(schedule: Schedule) -> str:
    """Whether the machine that writes CUDA can write it."""
    from ..cuda.machine import why_not

    reason = why_not(schedule)
    return "no: " + reason.partition(":")[0] if reason else "yes"


def text_of(found: dict[str, Any], width: int = 80) -> str:
    """One schedule in full, a line for each thing that there is to say."""
    lines = [f"{found['schedule']}: {found['summary']}"]
    used = [f"{letter} = {text}" for letter, text in LETTERS.items() if re.search(rf"\b{letter}\b", found["formula"])]
    for name, value in found.items():
        if name not in ("schedule", "summary") and value != "":
            lines += indented(name, str(value), width)
        if name == "formula" and value:
            lines += indented("", "; ".join(["words of one head, dense", *used]), width)
    return "\n".join(lines)


def indented(name: str, text: str, width: int) -> list[str]:
    """Lines of `width` that are broken where a part ends, or between words where a part is longer than a line."""
    room = width - 13
    parts = re.split(r"(?<=;) |(?<=,) (?=W = )", text)
    kept = " ".join(part.replace(" ", "\0") if len(part) <= room else part for part in parts)
    lines = wrap(kept, room, break_long_words=False, break_on_hyphens=False)
    return [(name if k == 0 else "").ljust(13) + line.replace("\0", " ") for k, line in enumerate(lines)]
