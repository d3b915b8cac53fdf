"""Writes tile events as they happen: as CSV, JSON lines or Parquet, or in the format of Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from .answer import Column, Columns
from .errors import NO_PYARROW, InputError, MissingError
from .files import check_file, check_form, form_of, written_whole
from .tables import csv_cell

if TYPE_CHECKING:
    from .core.watchers import Event

    Emit = Callable[[Event], object]  # takes the events of a run, one by one

EVENT_COLUMNS = ("event", "name", "row", "rows", "column", "columns", "words", "resident_words", "launch")
RUN_COLUMNS = (*EVENT_COLUMNS, "smem_read_words")  # of the run of a schedule
TEXTS = ("schedule", "event", "name")
EVENTS: Columns[Event] = [Column(name, "string" if name in TEXTS else "integer") for name in RUN_COLUMNS]
BATCH = 100_000  # events of a row group of Parquet


@contextmanager
def csv_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as CSV with a header."""
    import csv

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    yield lambda event: writer.writerow(map(csv_cell, event.values()))


@contextmanager
def jsonl_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as one JSON object a line."""
    yield lambda event: file.write(json.dumps(event) + "\n")


@contextmanager
def parquet_writer(path: str, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as Parquet, in row groups of BATCH. MissingError without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    schema = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in columns])

    kept: dict[str, list[object]] = {name: [] for name in columns}

    def write() -> None:
        """Write what is kept as a row group."""
        try:
            writer.write_table(pa.table(kept, schema))
        except OverflowError:
            raise InputError("--format", "parquet", "words below 2^63 in Parquet", "CSV has no limit") from None
        for values in kept.values():
            values.clear()

    def keep(event: Event) -> None:
        """Keep an event until there are as many as a row group has."""
        for name, values in kept.items():
            values.append(event.get(name))
        if len(values) == BATCH:
            write()

    with parquet.ParquetWriter(path, schema) as writer:
        yield keep
        write()


TRACKS = ("loads", "stores", "steps")


@contextmanager
def perfetto_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events in Chrome's trace-event format, which Perfetto opens.

    The clock is words moved, 1 us a word. Loads and stores are slices, steps are instants, residency is a counter. Each
    of several schedules is a separate process, whose clock starts at 0.
    """
    file.write('{"displayTimeUnit": "ms", "otherData": {"clock": "words moved"}, "traceEvents": [\n')
    writer = PerfettoWriter(file)
    if "schedule" not in columns:
        writer.begin(None)
    yield writer
    file.write("\n]}\n")


class PerfettoWriter:
    """Writes the records of events, each after a comma. `now` is the clock."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.now, self.pid, self.running = file, 0, 0, cast("object", "")

    def begin(self, schedule: object) -> None:
        """Start a process for a schedule."""
        between = ",\n" if self.pid else ""
        self.now, self.pid, self.running = 0, self.pid + 1, schedule
        title = f"iosim {schedule}: " if schedule else "iosim: "
        records: list[dict[str, object]] = [
            {"name": "process_name", "ph": "M", "args": {"name": f"{title}1 us = 1 word moved"}},
            *({"name": "thread_name", "ph": "M", "tid": k, "args": {"name": x}} for k, x in enumerate(TRACKS, 1)),
        ]
        self.file.write(between + ",\n".join(json.dumps({"pid": self.pid, **record}) for record in records))

    def __call__(self, event: Event) -> None:
        if event.get("schedule") != self.running:
            self.begin(event["schedule"])
        self.file.write(self.records({**event, "ts": self.now}))
        self.now += cast("int", event["words"])

    def records(self, event: Event) -> str:
        """The records of an event that begins at `ts`."""
        kind, begins = cast("str", event["event"]), {"ts": event["ts"]}
        track = {"load": 1, "store": 2}.get(kind, 3)
        name = event["name"] if track < 3 else f"{kind} {event['name']}"
        args = {key: event[key] for key in EVENT_COLUMNS[2:]}
        shape: dict[str, object] = {"ph": "X", "dur": event["words"]} if track < 3 else {"ph": "i", "s": "t"}
        records = [{"name": name, "cat": kind, "tid": track, **begins, "args": args, **shape}]
        if event["resident_words"] is not None:  # it is not known for other people's kernels
            words = {"words": event["resident_words"]}
            records.append({"name": "resident words", "ph": "C", **begins, "args": words})
        return "".join(",\n" + json.dumps({"pid": self.pid, **record}) for record in records)


TEXT_WRITERS: dict[str, Callable[[TextIO, tuple[str, ...]], AbstractContextManager[Emit]]] = {
    "csv": csv_writer,
    "jsonl": jsonl_writer,
    "perfetto": perfetto_writer,
}


def event_format(kind: str | None, path: str | None, as_json: bool, as_csv: bool) -> str:
    """The format of an event file: the one asked for, else that of the file's ending, else csv."""
    if as_json and as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    asked = "perfetto" if as_json else "csv" if as_csv else None
    both = (kind, asked) == ("jsonl", "perfetto")  # JSON lines may be asked for as --json --format jsonl
    if kind and asked and kind != asked and not both:
        raise InputError("--format", kind, f"{asked}, as --json or --csv says, or one of them alone")
    kind = kind or asked or form_of(path, "events")
    check_form(kind, "events")
    check_file(kind, path)
    return kind


def write_events(
    work: Callable[[Emit], int], path: str | None, kind: str, columns: tuple[str, ...] = RUN_COLUMNS
) -> int:
    """Write what `work` emits, to stdout (None or `-`) or to a file that is written whole or not at all.

    Returns what `work` returns. `columns` are those of the events.
    """
    if path is None or path == "-":
        import sys

        with TEXT_WRITERS[kind](sys.stdout, columns) as emit:
            return work(emit)
    with written_whole(path) as temporary, file_writer(temporary, kind, columns) as emit:
        return work(emit)


@contextmanager
def file_writer(path: str, kind: str, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events to a file."""
    if kind == "parquet":
        with parquet_writer(path, columns) as emit:
            yield emit
        return
    with open(path, "w", newline="") as file, TEXT_WRITERS[kind](file, columns) as emit:
        yield emit
