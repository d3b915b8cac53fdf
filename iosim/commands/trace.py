"""`iosim trace`."""

from __future__ import annotations

from typing import Any

import click

from ..options import counts, memory, memory_options, problem_options, row_outputs, text_option, variant_options


@click.command("trace")
@problem_options
@memory_options
@text_option("--tiles", "Br x Bc as 16x16; or paper, best with --M.")
@click.option("--schedule", "name", default="flash2", show_default=True, metavar="NAME")
@variant_options
@click.option("--format", "kind", metavar="KIND", help="csv, jsonl, parquet, perfetto (default: from the file's name).")
@row_outputs
def command(m: Any, m_elements: Any, hardware: Any, tiles: Any, name: str, kind: Any, as_json: bool, as_csv: bool,
            path: Any, **given: Any) -> None:  # fmt: skip
    """Every load, step and store of a schedule, in order, with the words moved and those resident.

    Perfetto files open in ui.perfetto.dev; their clock is words moved.

    Example: iosim trace --N 64 --d 16 --tiles 16x16 --schedule flash1 -o trace.json
    """
    from .. import trace

    values = counts(given)
    size = memory(m, m_elements, hardware)
    kind = trace.kind_of(kind, path, as_json, as_csv)
    schedule, problem, tiling = trace.plan(values, name, tiles, size)
    trace.check_length(trace.visits(schedule, problem, tiling).total)  # before anything is on stdout
    trace.write(lambda emit: trace.run(schedule, problem, tiling, emit), path, kind)
