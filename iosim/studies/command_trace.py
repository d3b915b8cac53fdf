"""`iosim trace`."""

from __future__ import annotations

from ..commands.answer import say
from ..commands.command import D, N, Need, named_command
from ..commands.options import (
    format_option,
    memory_options,
    problem_asked,
    problem_options,
    row_outputs,
    schedule_option,
    tiles_option,
    variant_options,
)
from ..counting.given import Asked


@named_command(
    "trace",
    needs=(N, D, Need("tiles", ("M", "hardware"))),
    usual="flash2",
    first="heads causal mask schedules tiles M hardware kind",
)
@problem_options
@memory_options
@tiles_option("Br x Bc as 16x16; or paper, best with --M.")
@schedule_option("Schedules, as a,b or repeated; iosim schedules lists them (default: flash2).")
@variant_options
@format_option("csv, jsonl, parquet, perfetto (default: from the file's name).")
@row_outputs
@problem_asked
def command(asked: Asked, kind: str | None, as_json: bool, as_csv: bool, path: str | None) -> None:
    """Every load, step and store of a schedule, in order, with the words moved and those resident.

    Perfetto files open in ui.perfetto.dev; their clock is words moved.

    Example: iosim trace --N 64 --d 16 --tiles 16x16 --schedule flash1 -o trace.json
    """
    import sys

    from ..core.event_count import check_length, count_events
    from ..event_file import RUN_COLUMNS, event_format, write_events
    from ..progress import under_way
    from ..schedules import find_all
    from .events import MOST_WRITTEN, emit_runs, one_head_run

    p, choice, M_bytes, under = asked.problem, asked.choice, asked.M_bytes, asked.under
    kind = event_format(kind, path, as_json, as_csv)
    schedules = find_all(choice.schedules or "flash2")
    runs = [one_head_run(s, p, choice.rule, M_bytes, under.multiple) for s in schedules]
    for run in runs:  # before anything is on stdout
        check_length(count_events(*run).total, MOST_WRITTEN)
    columns = (*(["schedule"] if len(runs) > 1 else []), *RUN_COLUMNS)
    say(under.notes)
    seen = path in (None, "-") and sys.stdout.isatty()  # the events themselves show the progress
    with under_way(quiet=seen) as progress:
        write_events(lambda emit: emit_runs(runs, emit, progress), path, kind, columns)
