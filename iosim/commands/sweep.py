"""`iosim sweep`."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..options import memory_options, problem_options, row_outputs, text_option, tile_options, variant_options


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
def command(config: Any, as_json: bool, as_csv: bool, path: Any, dry_run: bool, kind: Any, **given: Any) -> None:
    """A grid of counts, one tidy row a run, to CSV, JSON lines or Parquet.

    Axes: 1024,4096 or 16KB:256KB:x2 or 64:256:+64, ends included, for --N, --Nk, --d, --batch, --heads, --kv-heads,
    --M, --splits, --page-size, --tile-multiple; lists with commas for --dtype, --acc-dtype, --gqa, --tiles,
    --schedule; masks with semicolons, as 'causal;window:64'. Or a TOML file with the same names.

    Example: iosim sweep --N 1024,8192 --d 64,128 --M 16KB:256KB:x2 -o out.csv
    """
    from .. import config as configs

    kind = configs.kind_of(kind, path, as_json, as_csv, dry_run)
    plan = configs.sweep_of(config, given)
    if dry_run:
        from ..options import form
        from ..output import answer

        row = {"rows": plan.rows}
        answer([row], row, **form(path, as_json, as_csv), path=path, text=str(plan.rows))
        return
    configs.write_sweep(plan, path, kind, sys.argv[1:])
