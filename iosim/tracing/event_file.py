"""Writes the tile events of a run as they happen: as CSV, JSON lines or Parquet, or as a timeline for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from ..answer import Column, Columns
from ..core.folded import Folded
from ..core.loop_paths import run_together
from ..core.watchers import Watcher
from ..errors import NO_PYARROW, FoldingError, InputError, MissingError
from ..files import check_file, check_form, form_of
from ..tables import csv_cell

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine, ScheduleLike, ScheduleText
    from ..core.problem import Attention
    from ..core.tiling import Rule, Tiling
    from ..core.typing import Size, Step
    from ..core.watchers import Event
    from ..schedules import Schedule
    from .turns import EventsOfTurns

EVENT_COLUMNS = ("event", "name", "row", "rows", "column", "columns", "words", "resident_words", "launch")
TEXTS = ("schedule", "event", "name")
EVENTS: Columns[Event] = [Column(name, "string" if name in TEXTS else "integer") for name in EVENT_COLUMNS]
MOST_EVENTS = 5_000_000  # that are kept in memory
MOST_WRITTEN = 100_000_000
BATCH = 100_000  # events of a row group of Parquet

if TYPE_CHECKING:
    Emit = Callable[[Event], object]  # takes the events of a run, one by one


def one_head_run(
    schedule: Schedule, given: Attention, tiles: Rule | None, M_bytes: int | None, multiple: int = 1
) -> tuple[Schedule, Attention, Tiling]:
    """The schedule, problem and tiling of a run that visits every tile.

    Raises InputError if the problem has more than one head, or if the tiles need M and it is not given.
    """
    from ..counting.count import one_tiling
    from ..schedules import require

    problem = given.packed
    require(schedule, problem)
    if problem.instances != 1:
        raise InputError("--heads, --batch", problem.instances, "1 in all: every head leaves the same trace")
    if problem.count_init:
        raise InputError("--count-init", "given", "iosim count", "these writes come before the run, and are no event")
    return schedule, problem, one_tiling(schedule, tiles, 0, problem, M_bytes, multiple)


# ---------------------------------------------------------------- the number of events, and the events


class EventCount(Watcher):
    """The number of events of a run, from a folded walk. `moves` counts loads and stores, `total` steps as well."""

    def __init__(self) -> None:
        self.moves, self.total = 0, 0

    def start(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def turns(self) -> int:
        """The number of visits for which the current one stands."""
        return cast("int", self.machine.total(()))

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self.moves += self.turns
        self.total += self.turns

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self.load(block, tensor, words)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.total += self.turns


def count_events(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> EventCount:
    """The number of events of a run, known before it starts; 0 if the schedule cannot be folded.

    Under a mask a run may have fewer, because here loads for an empty line of the mask are counted too.
    """
    watcher = EventCount()
    try:
        Folded(problem, watcher).run(schedule, tiling)
    except FoldingError:
        return EventCount()
    return watcher


def check_length(events: int, most: int = MOST_EVENTS) -> None:
    """InputError for too many events."""
    if events > most:
        raise InputError(
            "events of this run",
            events,
            f"at most {most}",
            "try larger --tiles or a smaller --N; iosim count has no limit",
        )


def emit_events(
    schedule: ScheduleLike | ScheduleText,
    problem: Attention,
    tiling: Tiling,
    emit: Emit,
    most: int = MOST_EVENTS,
    progress: Callable[[str], None] = lambda done: None,
) -> int:
    """Visit every tile, hand every event to `emit`, and return the number of events. Now and then `progress` gets
    a text about the progress. A `Writer` gets the events of an innermost loop together."""
    from .turns import Turns, TurnTrace

    total = count_events(schedule, problem, tiling).total
    check_length(total, most)
    sender = Sender(emit, total, most, progress)

    def machine() -> Turns:
        sender.begin()
        return Turns(problem, TurnTrace(sender.one, sender.many))

    run_together(machine, schedule, tiling)
    return sender.sent


class Sender:
    """Hands the events of a run on, each once. A run that starts anew (core/loop_paths.py) repeats the first ones."""

    def __init__(self, emit: Emit, total: int, most: int, progress: Callable[[str], None]) -> None:
        self.emit, self.total, self.most, self.progress = emit, total, most, progress
        self.sent = self.met = 0

    def begin(self) -> None:
        """The run starts, or starts anew."""
        self.met = 0

    def one(self, event: Event) -> None:
        """Hand an event on, unless it was before."""
        self.met += 1
        if self.met > self.sent:
            self._count(1)
            self.emit(event)

    def many(self, turns: EventsOfTurns) -> None:
        """Hand the events of a loop on, except those that were before."""
        if self.met < self.sent or not isinstance(self.emit, Writer):
            for event in turns:
                self.one(event)
            return
        self.met += len(turns)
        self._count(len(turns))
        self.emit.turns(turns)

    def _count(self, more: int) -> None:
        before, self.sent = self.sent, self.sent + more
        check_length(self.sent, self.most)
        if self.sent // BATCH > before // BATCH:
            self.progress(f"{self.sent:,} of {self.total:,} events")


# ---------------------------------------------------------------- writers: a file in, `emit` out, closed at the end


class Writer:
    """Writes events: one by one, or those of all turns of a loop together."""

    def __call__(self, event: Event) -> object:
        raise NotImplementedError

    def turns(self, turns: EventsOfTurns) -> None:
        """Write the events of a loop."""
        for event in turns:
            self(event)


class LineWriter(Writer):
    """Writes a line for each event: JSON, or plain text."""

    def __init__(self, file: TextIO, line_of: Callable[[Event], str], as_json: bool) -> None:
        self.file, self.line_of, self.as_json = file, line_of, as_json

    def __call__(self, event: Event) -> object:
        return self.file.write(self.line_of(event))

    def turns(self, turns: EventsOfTurns) -> None:
        from .turns import MARK_IN_JSON, MARK_IN_TEXT

        self.file.write(turns.text(self.line_of, MARK_IN_JSON if self.as_json else MARK_IN_TEXT))


@contextmanager
def csv_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as CSV with a header."""
    import csv
    import io

    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")

    def line_of(event: Event) -> str:
        writer.writerow(map(csv_cell, event.values()))
        text = line.getvalue()
        line.seek(0)
        line.truncate()
        return text

    file.write(",".join(columns) + "\n")
    yield LineWriter(file, line_of, as_json=False)


@contextmanager
def jsonl_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as one JSON object a line."""
    yield LineWriter(file, lambda event: json.dumps(event) + "\n", as_json=True)


@contextmanager
def parquet_writer(path: str, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events as Parquet, in row groups of BATCH or a little more. MissingError without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    schema = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in columns])

    class Rows(Writer):
        """Keeps the columns of events until they fill a row group."""

        def __init__(self) -> None:
            self.columns: dict[str, list[object]] = {name: [] for name in columns}

        def __call__(self, event: Event) -> None:
            for name, values in self.columns.items():
                values.append(event.get(name))
            self.written(BATCH)

        def turns(self, turns: EventsOfTurns) -> None:
            for name, values in self.columns.items():
                values += turns.column(name)
            self.written(BATCH)

        def written(self, least: int) -> None:
            """Write what is kept, if it has at least so many rows."""
            if len(self.columns[columns[0]]) < least:
                return
            try:
                writer.write_table(pa.table(self.columns, schema))
            except OverflowError:
                raise InputError("--format", "parquet", "words below 2^63 in Parquet", "CSV has no limit") from None
            self.columns = {name: [] for name in columns}

    with parquet.ParquetWriter(path, schema) as writer:
        rows = Rows()
        yield rows
        rows.written(0)


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


class PerfettoWriter(Writer):
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

    def turns(self, turns: EventsOfTurns) -> None:
        import numpy as np

        from .turns import MARK_IN_JSON

        if turns.events[0].get("schedule") != self.running:
            self.begin(turns.events[0]["schedule"])
        moved = np.array([np.broadcast_to(cast("int", event["words"]), turns.turns) for event in turns.events]).T
        begins = self.now + np.cumsum(moved).reshape(moved.shape) - moved
        self.now += int(moved.sum())
        timed = turns.with_columns(lambda k, event: {**event, "ts": begins[:, k]})
        self.file.write(timed.text(self.records, MARK_IN_JSON))

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
    kind = kind or asked or form_of(path, "trace")
    check_form(kind, "trace")
    check_file(kind, path)
    return kind


def emit_runs(runs: Sequence[tuple[Schedule, Attention, Tiling]], emit: Emit, progress: Callable[[str], None]) -> int:
    """Emit the events of some runs, and return their number. If there are several runs, each event names its
    schedule."""
    if len(runs) == 1:
        return emit_events(*runs[0], emit, MOST_WRITTEN, progress)

    return sum(emit_events(*run, Labelled(emit, run[0].name), MOST_WRITTEN, progress) for run in runs)


class Labelled(Writer):
    """Hands events on with the name of their schedule."""

    def __init__(self, emit: Emit, schedule: str) -> None:
        self.emit, self.schedule = emit, schedule

    def __call__(self, event: Event) -> None:
        self.emit({"schedule": self.schedule, **event})

    def turns(self, turns: EventsOfTurns) -> None:
        labelled = turns.with_columns(lambda _, event: {"schedule": self.schedule, **event})
        if isinstance(self.emit, Writer):
            self.emit.turns(labelled)
        else:
            super().turns(turns)


def write_events(
    work: Callable[[Emit], int], path: str | None, kind: str, columns: tuple[str, ...] = EVENT_COLUMNS
) -> int:
    """Write what `work` emits, to stdout (None or `-`) or to a file that is written whole or not at all.

    Returns what `work` returns. `columns` are those of the events.
    """
    if path is None or path == "-":
        import sys

        with TEXT_WRITERS[kind](sys.stdout, columns) as emit:
            return work(emit)
    from ..files import written_whole

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
