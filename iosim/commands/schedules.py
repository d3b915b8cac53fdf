"""`iosim schedules`."""

from __future__ import annotations

import click

from ..counting.given import Asked, Fields, counts
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
    from ..counting.schedule_text import schedules

    fields = {option: value for option, value in counts(asked.given, required=()).items() if value is not False}
    choice = asked.choice
    place: Fields = {
        "M": choice.M,
        "hardware": choice.hardware,
        "tiles": choice.tiles,
        "paper_model": choice.paper_model,
    }
    answer_all([({}, schedules(name, **place, **fields))], output)
