"""`iosim sweep`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

import click

from ..counting.given import memory, names_of
from ..errors import InputError, suggestion
from ..files import form_of
from .answer import Output, answer, say
from .options import (
    AXES,
    VARIANT_FIELDS,
    Need,
    check_read,
    chip_options,
    flag_option,
    format_option,
    memory_options,
    named_command,
    problem_options,
    row_outputs,
    text_option,
    tile_options,
    variant_options,
)

if TYPE_CHECKING:
    from ..counting.sweep_axes import Sweep


NEEDS = (Need("n", ("config",)), Need("d", ("config",)), Need("m", ("m_elements", "hardware", "tiles", "config")))


@named_command("sweep", needs=NEEDS, axes=AXES, usual=None)
@click.argument("config", required=False)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@text_option("--columns", "Only these columns, in this order, as in N,schedule,total.", metavar="NAMES")
@flag_option("--dry-run", "Print the number of rows and stop.")
@format_option("csv, jsonl or parquet (default: from the file's name).")
@row_outputs
def command(
    config: str | None, as_json: bool, as_csv: bool, path: str | None, dry_run: bool, kind: str | None, m: str | None,
    m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tile_multiple: str,
    **given: str | bool | None,
) -> None:  # fmt: skip
    """A grid of counts, one tidy row a run, to CSV, JSON lines or Parquet.

    Axes: 1024,4096 or 16KB:256KB:x2 or 64:256:+64, ends included, for --N, --Nk, --d, --batch, --heads, --kv-heads,
    --dv, --M, --splits, --page-size, --tile-multiple; lists with commas for --dtype, --acc-dtype, --gqa, --tiles,
    --schedule, --hardware; masks with semicolons, as 'causal;window:64'. Or a TOML file with the same names.

    Example: iosim sweep --N 1024,8192 --d 64,128 --M 16KB:256KB:x2 -o out.csv
    """
    from ..counting.sweep_file import sweep_of

    kind = kind_of(kind, path, as_json, as_csv, dry_run)
    chips = names_of(hardware)
    size = memory(m, m_elements, chips[0] if chips else None)
    if len(chips) > 1:
        size, given = None, {**given, "hardware": hardware}
    plan = sweep_of(config, given, size, schedules, tile_multiple)
    asked = [n for n in VARIANT_FIELDS if any(point.get(n) not in (None, False, 0) for point in plan.options)]
    check_read(asked, plan.schedules, multiple_of=plan.tiles if plan.multiples != [1] else None)
    if dry_run:
        row = {"rows": plan.rows}
        answer([row], row, Output.asked(as_json, as_csv, path), text=str(plan.rows))
        return
    say(notes_on_masks(plan))
    write_sweep(plan, path, kind, sys.argv[1:])


def notes_on_masks(plan: Sweep) -> list[str]:
    """What to know of schedules that skip nothing under the masks of a sweep."""
    from ..core.problem import Attention
    from ..counting.skipping import mask_notes

    problems = [(Attention(1, 1, mask=mask), plan.runs(mask)) for mask in plan.masks]
    return [note for problem, runs in problems for note in mask_notes(problem, (s.name for s, _ in runs))]


TABLE_KINDS = ("csv", "jsonl", "parquet")


def kind_of(kind: str | None, path: str | None, as_json: bool, as_csv: bool, dry_run: bool = False) -> str:
    """The kind of file asked for, else the kind that the file's name asks for: csv, jsonl or parquet."""
    if as_json and as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if kind is None:
        kind = "csv" if as_csv else "jsonl" if as_json else form_of(path, "sweep")
    if kind not in TABLE_KINDS:
        raise InputError("--format", kind, ", ".join(TABLE_KINDS), suggestion(kind, TABLE_KINDS))
    if kind == "parquet" and path in (None, "-") and not dry_run:
        raise InputError("-o", path or "nothing", "a file, for Parquet")
    return kind


def write_sweep(plan: Sweep, path: str | None, kind: str, argv: list[str]) -> None:
    """Write a sweep to stdout, or to a file with a second file that describes it. A progress bar is shown if stderr is
    a terminal."""
    from ..counting import write_sweep as writers

    if path in (None, "-"):
        writers.WRITERS[kind](plan, Stdout(), lambda rows: None)
        return
    assert path is not None
    if not sys.stderr.isatty():
        writers.write(plan, path, kind)
    else:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rows", total=plan.rows)
            writers.write(plan, path, kind, lambda rows: progress.advance(task, rows))
    from ..counting.sweep import in_int64
    from ..files import passes_through
    from ..tables import to_json
    from .answer import emit

    about = {**CONVENTIONS, "decimals": DECIMALS} if kind == "parquet" and not in_int64(plan) else CONVENTIONS
    say([DECIMALS] if about is not CONVENTIONS else [])
    if not passes_through(path):
        emit(to_json({"rows": plan.rows, "format": kind, "conventions": about}, argv), path + ".meta.json")


class Stdout(AbstractContextManager[TextIO]):
    """stdout as a file that is flushed but not closed."""

    def __enter__(self) -> TextIO:
        return sys.stdout

    def __exit__(self, *error: object) -> None:
        sys.stdout.flush()


DECIMALS = "counts may be above 2^63, so they are decimals of 38 digits in Parquet"
CONVENTIONS = {
    "words": "scalars, exact integers, over all heads and batches",
    "bytes": "words times the width of their tensor in HBM",
    "M": "bytes; K, KB, KiB = 1024",
    "footprint": "tiles resident together, clipped to the axes, without the mask",
    "ragged": "the last tile counts at its true size",
    "initialisation": "writing O, l, m before Algorithm 1 is not counted unless count_init",
}
