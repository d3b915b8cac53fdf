"""Writes the tile events of a run as they happen: as CSV, JSON lines or Parquet, or as a timeline for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from ..answer import Column
from ..core.folded import Folded
from ..core.machine import Machine
from ..core.watchers import Trace, Watcher
from ..errors import FoldingError, InputError, MissingError
from ..files import check_file, check_form, form_of
from ..tables import csv_cell

if TYPE_CHECKING:
    from ..answer import Columns
    from ..core.machine import Block
    from ..core.problem import Attention
    from ..core.tiling import Rule, Tiling
    from ..core.typing import Input, ScheduleLike, ScheduleText, Size, Step
    from ..core.watchers import Event
    from ..schedules import Schedule

EVENT_COLUMNS = ("event", "name", "row", "rows", "column", "columns", "words", "resident_words", "launch")
TEXTS = ("schedule", "event", "name")
EVENTS: Columns[Event] = [Column(name, "string" if name in TEXTS else "integer") for name in EVENT_COLUMNS]
MOST_EVENTS = 5_000_000
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
    a text about the progress."""
    total = count_events(schedule, problem, tiling).total
    check_length(total, most)
    seen = 0

    def count(event: Event) -> None:
        nonlocal seen
        seen += 1
        check_length(seen, most)
        if not seen % BATCH:
            progress(f"{seen:,} of {total:,} events")
        emit(event)

    Machine(problem, Trace(count)).run(schedule, tiling)
    return seen


# ---------------------------------------------------------------- writers: a file in, `emit` out, closed at the end


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
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    schema = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in columns])
    rows: list[Event] = []
    with parquet.ParquetWriter(path, schema) as writer:

        def add(event: Event) -> None:
            rows.append(event)
            if len(rows) == BATCH:
                flush()

        def flush() -> None:
            try:
                writer.write_table(pa.Table.from_pylist(rows, schema))
            except OverflowError:
                raise InputError("--format", "parquet", "words below 2^63 in Parquet", "CSV has no limit") from None
            rows.clear()

        yield add
        flush()


TRACKS = ("loads", "stores", "steps")


@contextmanager
def perfetto_writer(file: TextIO, columns: tuple[str, ...]) -> Iterator[Emit]:
    """Write events in Chrome's trace-event format, which Perfetto opens.

    The clock is words moved, 1 us a word. Loads and stores are slices, steps are instants, residency is a counter. Each
    of several schedules is a separate process, whose clock starts at 0.
    """
    now, pid, between = 0, 0, ""
    running: object = None

    def put(record: dict[str, object]) -> None:
        nonlocal between
        file.write(between + json.dumps({"pid": pid, **record}))
        between = ",\n"

    def begin(schedule: object) -> None:
        nonlocal now, pid, running
        now, pid, running = 0, pid + 1, schedule
        title = f"iosim {schedule}: " if schedule else "iosim: "
        put({"name": "process_name", "ph": "M", "args": {"name": f"{title}1 us = 1 word moved"}})
        for number, track in enumerate(TRACKS, 1):
            put({"name": "thread_name", "ph": "M", "tid": number, "args": {"name": track}})

    def add(event: Event) -> None:
        nonlocal now
        if event.get("schedule") != running:
            begin(event["schedule"])
        words, kind = cast("int", event["words"]), cast("str", event["event"])
        track = {"load": 1, "store": 2}.get(kind, 3)
        name = event["name"] if track < 3 else f"{kind} {event['name']}"
        args = {key: event[key] for key in EVENT_COLUMNS[2:]}
        shape: dict[str, object] = {"ph": "X", "dur": words} if track < 3 else {"ph": "i", "s": "t"}
        put({"name": name, "cat": kind, "tid": track, "ts": now, "args": args, **shape})
        if event["resident_words"] is not None:  # it is not known for other people's kernels
            put({"name": "resident words", "ph": "C", "ts": now, "args": {"words": event["resident_words"]}})
        now += words

    file.write('{"displayTimeUnit": "ms", "otherData": {"clock": "words moved"}, "traceEvents": [\n')
    if "schedule" not in columns:
        begin(None)
    yield add
    file.write("\n]}\n")


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
        return emit_events(*runs[0], emit, progress=progress)

    def labelled(name: str) -> Emit:
        return lambda event: emit({"schedule": name, **event})

    return sum(emit_events(*run, labelled(run[0].name), progress=progress) for run in runs)


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
