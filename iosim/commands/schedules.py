"""`iosim schedules`."""

from __future__ import annotations

from dataclasses import replace

import click

from ..counting.given import Asked
from ..errors import InputError
from .answer import Output, answer_all
from .command import named_command
from .options import memory_options, outputs, problem_asked, problem_options, tiles_option, visit_option


@named_command("schedules")
@click.argument("name", required=False)
@problem_options
@memory_options
@tiles_option("With a NAME, --N and --d: Br x Bc as 128x64; or paper, best with --M.")
@visit_option
@outputs
@problem_asked
def command(name: str | None, asked: Asked, output: Output) -> None:
    """All schedules, or with a NAME one of them: its source, formula, state, options, tensors and text.

    Formulas are the dense traffic in words of one head: R read, W written. The options listed are those that change the
    words moved. Options that the schedule ignores may be given, and change nothing. The text shows the words that each
    line moves: as formulas, or as numbers with --N, --d and --tiles or --M.

    Example: iosim schedules flash2 --N 8192 --d 128 --M 100KB
    """
    from ..counting.about_schedules import Schedules
    from ..counting.schedule_text import schedule_answer, sizes_of
    from ..schedules import find

    sized = any(value not in (None, False) for value in (*asked.given.values(), asked.memory, asked.choice.tiles))
    if name is None:
        if sized:
            hint = "as in iosim schedules flash2 --N 8192 --d 128"
            raise InputError("NAME", "nothing", "a schedule, with sizes", hint)
        answer_all([({}, Schedules())], output)
        return
    schedule = find(name)
    if not sized:
        answer_all([({}, schedule_answer(schedule))], output)
        return
    under = asked.under
    sizes = sizes_of(schedule, asked.problem, asked.choice.rule, asked.M_bytes, under.multiple)
    answer_all([({}, replace(schedule_answer(schedule, sizes), notes=under.notes))], output)
