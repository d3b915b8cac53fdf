"""Sweeps from TOML files and options, and where sweeps are written. Messages name file, key, found and allowed."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO, cast

from .errors import InputError, suggestion
from .given import FIELDS, Given

if TYPE_CHECKING:
    from .variants import Sweep

KEYS = (
    "N", "Nk", "d", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M", "tiles", "tile_multiple",
    "schedule", "count_init", "lse", "keep_p", "elementwise", "splits", "page_size", "gqa", "columns",
)  # fmt: skip
KINDS = ("csv", "jsonl", "parquet")

Table = dict[str, object]
"""Values by key, as TOML has them."""


def read_toml(file: str) -> Table:
    """The keys of a TOML file; InputError if it cannot be read."""
    import tomllib

    try:
        with open(file, "rb") as handle:
            return tomllib.load(handle)
    except (OSError, ValueError) as error:
        raise InputError("config", file, "a TOML file that can be read", str(error)) from None


def read_sweep(file: str) -> Table:
    """The keys of the `[sweep]` table of a file, or of its top level if it has none."""
    whole = read_toml(file)
    table = whole.get("sweep", whole)
    if not isinstance(table, dict):
        raise InputError(f"{file}: sweep", table, "a table")
    for key, value in table.items():
        if key not in KEYS:
            raise InputError(f"{file}: key", key, ", ".join(KEYS), suggestion(key, KEYS))
        if key in ("count_init", "lse", "keep_p") and not isinstance(value, bool):
            raise InputError(f"{file}: {key}", value, "true or false")
        if not isinstance(value, str | int | bool | list) or (
            isinstance(value, list) and not all(isinstance(v, str | int) for v in value)
        ):
            raise InputError(f"{file}: {key}", value, "a whole number, a text, or a list of these")
    return table


def sweep_of(file: str | None, given: Given, M: str | None, schedules: tuple[str, ...], tile_multiple: str) -> Sweep:
    """The sweep of a file and options together; an option wins over the file."""
    from .units import parse_count
    from .variants import OPTION_AXES, build

    values = {} if file is None else read_sweep(file)
    chosen = schedules or values.pop("schedule", ())
    multiple = values.pop("tile_multiple", 1) if tile_multiple == "1" else tile_multiple
    values |= {FIELDS.get(k, k): v for k, v in given.items() if v not in (None, False)}
    if M is not None:
        values["M"] = M
    tiles, columns = values.pop("tiles", None), columns_of(values.pop("columns", None))
    options: Table = {k: values.pop(k) for k in ("count_init", "lse", "keep_p") if k in values}
    options["elementwise"] = parse_count(
        cast("str", values.pop("elementwise", 0)), "--elementwise", least=0, most=10_000
    )
    options |= {name: values.pop(name) for name in OPTION_AXES if name in values}
    return build(values, chosen, tiles, multiple, columns, **options)


def columns_of(names: object) -> tuple[str, ...]:
    """The columns of `N,total`, or of a list of such texts."""
    from .report import EVERY_COLUMN
    from .variants import split

    columns = tuple(split(names))
    for name in columns:
        if name not in EVERY_COLUMN:
            raise InputError("--columns", name, ", ".join(EVERY_COLUMN), suggestion(name, EVERY_COLUMN))
    return columns


def kind_of(kind: str | None, path: str | None, as_json: bool, as_csv: bool, dry_run: bool = False) -> str:
    """The kind of file that is asked for, or that the file's name says: csv, jsonl or parquet."""
    if as_json and as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if kind is None:
        ending = (path or "").rpartition(".")[2].lower()
        kind = "jsonl" if as_json or ending in ("jsonl", "json", "ndjson") else ending if ending == "parquet" else "csv"
        kind = "csv" if as_csv else kind
    if kind not in KINDS:
        raise InputError("--format", kind, ", ".join(KINDS), suggestion(kind, KINDS))
    if kind == "parquet" and path in (None, "-") and not dry_run:
        raise InputError("-o", path or "nothing", "a file, for Parquet")
    return kind


def write_sweep(plan: Sweep, path: str | None, kind: str, argv: list[str]) -> None:
    """Write a sweep to stdout, or to a file with a second one that describes it. A terminal's stderr gets a progress
    bar."""
    from . import writers

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
    from .files import passes_through
    from .output import emit
    from .report import to_json

    if not passes_through(path):
        emit(to_json({"rows": plan.rows, "format": kind, "conventions": CONVENTIONS}, argv), path + ".meta.json")


class Stdout(AbstractContextManager[TextIO]):
    """stdout as a file that is flushed but not closed."""

    def __enter__(self) -> TextIO:
        return sys.stdout

    def __exit__(self, *error: object) -> None:
        sys.stdout.flush()


CONVENTIONS = {
    "words": "scalars, exact integers, over all heads and batches",
    "bytes": "words times the width of their tensor in HBM",
    "M": "bytes; K, M, G are 1024s",
    "footprint": "tiles resident together, clipped to the axes, without the mask",
    "ragged": "the last tile counts at its true size",
    "initialisation": "writing O, l, m before Algorithm 1 is not counted unless count_init",
}
