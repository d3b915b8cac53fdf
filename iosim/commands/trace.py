"""`iosim trace`."""

from __future__ import annotations

import click

from ..counting.given import memory, problem
from .options import memory_options, problem_options, row_outputs, text_option, variant_options


@click.command("trace")
@problem_options
@memory_options
@text_option("--tiles", "Br x Bc as 16x16; or paper, best with --M.")
@click.option("--schedule", "name", default="flash2", show_default=True, metavar="NAME")
@variant_options
@click.option("--format", "kind", metavar="KIND", help="csv, jsonl, parquet, perfetto (default: from the file's name).")
@row_outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, tiles: str | None, name: str, kind: str | None,
    as_json: bool, as_csv: bool, path: str | None, **given: str | bool | None,
) -> None:  # fmt: skip
    """Every load, step and store of a schedule, in order, with the words moved and those resident.

    Perfetto files open in ui.perfetto.dev; their clock is words moved.

    Example: iosim trace --N 64 --d 16 --tiles 16x16 --schedule flash1 -o trace.json
    """
    from ..tracing import event_file

    p = problem(given)
    size = memory(m, m_elements, hardware)
    kind = event_file.event_format(kind, path, as_json, as_csv)
    schedule, head, tiling = event_file.one_head_run(p, name, tiles, size)
    event_file.check_length(event_file.count_events(schedule, head, tiling).total)  # before anything is on stdout
    event_file.write_events(lambda emit: event_file.emit_events(schedule, head, tiling, emit), path, kind)
