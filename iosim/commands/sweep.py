"""`iosim sweep`."""

from __future__ import annotations

import sys

import click

from ..given import memory
from ..options import memory_options, problem_options, row_outputs, text_option, tile_options, variant_options
from ..output import Output, answer


@click.command("sweep")
@click.argument("config", required=False)
@problem_options
@memory_options
@tile_options
@variant_options
@text_option("--columns", "Only these columns, in this order, as in N,schedule,total.", metavar="NAMES")
@click.option("--dry-run", is_flag=True, help="Print the number of rows and stop.")
@click.option("--format", "kind", metavar="KIND", help="csv, jsonl or parquet (default: from the file's name).")
@row_outputs
def command(
    config: str | None, as_json: bool, as_csv: bool, path: str | None, dry_run: bool, kind: str | None, m: str | None,
    m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tile_multiple: str,
    **given: str | bool | None,
) -> None:  # fmt: skip
    """A grid of counts, one tidy row a run, to CSV, JSON lines or Parquet.

    Axes: 1024,4096 or 16KB:256KB:x2 or 64:256:+64, ends included, for --N, --Nk, --d, --batch, --heads, --kv-heads,
    --M, --splits, --page-size, --tile-multiple; lists with commas for --dtype, --acc-dtype, --gqa, --tiles,
    --schedule; masks with semicolons, as 'causal;window:64'. Or a TOML file with the same names.

    Example: iosim sweep --N 1024,8192 --d 64,128 --M 16KB:256KB:x2 -o out.csv
    """
    from .. import config as configs

    kind = configs.kind_of(kind, path, as_json, as_csv, dry_run)
    size = memory(m, m_elements, hardware)
    plan = configs.sweep_of(config, given, size, schedules, tile_multiple)
    if dry_run:
        row = {"rows": plan.rows}
        answer([row], row, Output.asked(as_json, as_csv, path), text=str(plan.rows))
        return
    configs.write_sweep(plan, path, kind, sys.argv[1:])
