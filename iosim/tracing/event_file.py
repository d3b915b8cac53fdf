"""The tile events of one run, written as they happen: CSV, JSON lines, Parquet, or a timeline for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..core.folded import Folded
from ..core.machine import Machine
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..core.watchers import Trace, Watcher
from ..errors import FoldingError, InputError, MissingError, suggestion

if TYPE_CHECKING:
    from ..schedules import Schedule

COLUMNS = (
    "event", "name", "row", "rows", "column", "columns", "words", "resident_words", "launch",
)  # fmt: skip
MOST_EVENTS = 5_000_000
BATCH = 100_000

Emit = Callable[[dict[str, Any]], None]


def plan(given: Attention, name: str, tiles: str | None, M: str | None) -> tuple[Schedule, Attention, Tiling]:
    """Schedule, problem (one head) and tiling of a run that visits every tile."""
    from ..counting.count import choose, rules_of
    from ..schedules import find, require
    from ..units import parse_bytes

    schedule, problem = find(name), given.packed
    require(schedule, problem)
    if problem.instances != 1:
        raise InputError("--heads, --batch", problem.instances, "1 in all: every head leaves the same trace")
    if problem.count_init:
        raise InputError("--count-init", "given", "iosim count", "these writes come before the run, and are no event")
    M_bytes = None if M is None else parse_bytes(M, problem.word_bytes)
    rule = rules_of(schedule, tiles, problem)[0]
    if M_bytes is None and rule in ("paper", "best"):
        raise InputError("--tiles", tiles or "nothing", "Br x Bc as in 64x64", f"or give --M for {rule} tiles")
    tiling = choose(schedule, rule, problem, M_bytes, 1)
    if tiling is None:
        raise InputError("--M", M, "an SRAM in which some tile fits", "give --tiles as 64x64")
    return schedule, problem, tiling


class Visits(Watcher):
    """How many events a run has, from a folded walk: each stands for as many as there are visits."""

    def __init__(self) -> None:
        self.moves, self.total = 0, 0

    def start(self, machine: Any) -> None:
        self.machine = machine

    def load(self, block: Any, tensor: str, words: Any) -> None:
        self.moves += self.machine.total(())
        self.total += self.machine.total(())

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self.load(block, tensor, words)

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        self.total += self.machine.total(())


def visits(schedule: Any, problem: Attention, tiling: Tiling) -> Visits:
    """The number of events, before they happen (at most: loads under an empty line of a mask count as well).
    Nothing where folding cannot know."""
    watcher = Visits()
    try:
        Folded(problem, watcher).run(schedule, tiling)
    except FoldingError:
        return Visits()
    return watcher


def check_length(events: int, most: int = MOST_EVENTS) -> None:
    if events > most:
        raise InputError(
            "events of this run",
            events,
            f"at most {most}",
            "try larger --tiles or a smaller --N; iosim count has no limit",
        )


def run(schedule: Any, problem: Attention, tiling: Tiling, emit: Emit, most: int = MOST_EVENTS) -> int:
    """Visit every tile, hand every event to `emit`, and return how many there were."""
    check_length(visits(schedule, problem, tiling).total, most)
    seen = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        check_length(seen, most)
        emit(event)

    Machine(problem, Trace(count)).run(schedule, tiling)
    return seen


# ---------------------------------------------------------------- writers: a file in, `emit` out, closed at the end


@contextmanager
def to_csv(file: Any) -> Any:
    import csv

    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    yield writer.writerow


@contextmanager
def to_jsonl(file: Any) -> Any:
    yield lambda event: file.write(json.dumps(event) + "\n")


@contextmanager
def to_parquet(path: str) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    schema = pa.schema([(name, pa.string() if name in ("event", "name") else pa.int64()) for name in COLUMNS])
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, schema) as writer:

        def add(event: dict[str, Any]) -> None:
            rows.append(event)
            if len(rows) == BATCH:
                flush()

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        yield add
        flush()


TRACKS = ("loads", "stores", "steps")


@contextmanager
def to_perfetto(file: Any) -> Any:
    """Chrome's trace-event format: the clock is words moved (1 us a word); steps are instants, residency a counter."""
    now = 0

    def put(record: dict[str, Any]) -> None:
        file.write(",\n" + json.dumps({"pid": 1, **record}))

    def add(event: dict[str, Any]) -> None:
        nonlocal now
        words, kind = event["words"], event["event"]
        track = {"load": 1, "store": 2}.get(kind, 3)
        name = event["name"] if track < 3 else f"{kind} {event['name']}"
        args = {key: event[key] for key in COLUMNS[2:]}
        shape = {"ph": "X", "dur": words} if track < 3 else {"ph": "i", "s": "t"}
        put({"name": name, "cat": kind, "tid": track, "ts": now, "args": args, **shape})
        put({"name": "resident words", "ph": "C", "ts": now, "args": {"words": event["resident_words"]}})
        now += words

    process = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "iosim: 1 us = 1 word moved"}}
    file.write('{"displayTimeUnit": "ms", "otherData": {"clock": "words moved"}, "traceEvents": [\n')
    file.write(json.dumps(process))
    for number, track in enumerate(TRACKS, 1):
        put({"name": "thread_name", "ph": "M", "tid": number, "args": {"name": track}})
    yield add
    file.write("\n]}\n")


WRITERS: dict[str, Any] = {"csv": to_csv, "jsonl": to_jsonl, "parquet": to_parquet, "perfetto": to_perfetto}
ENDINGS = {"jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "json": "perfetto", "perfetto-trace": "perfetto"}


def kind_of(kind: str | None, path: str | None, as_json: bool, as_csv: bool) -> str:
    """csv, jsonl, parquet or perfetto: as asked for, or from the file's name."""
    if as_json and as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    asked = "jsonl" if as_json else "csv" if as_csv else None
    if kind and asked and kind != asked:
        raise InputError("--format", kind, f"{asked}, as --json or --csv says, or one of them alone")
    kind = kind or asked or ENDINGS.get((path or "").rpartition(".")[2].lower(), "csv")
    if kind not in WRITERS:
        raise InputError("--format", kind, ", ".join(WRITERS), suggestion(kind, WRITERS))
    if kind == "parquet" and path in (None, "-"):
        raise InputError("-o", path or "nothing", "a file, for Parquet")
    return kind


def write(work: Callable[[Emit], int], path: str | None, kind: str) -> int:
    """Write what `work` emits to stdout, or to a file that is written whole or not at all."""
    if path is None or path == "-":
        import sys

        with WRITERS[kind](sys.stdout) as emit:
            return work(emit)
    from ..counting.write_sweep import written_whole

    with written_whole(path) as temporary, opened(temporary, kind) as file, WRITERS[kind](file) as emit:
        return work(emit)


def opened(path: str, kind: str) -> AbstractContextManager[Any]:
    return nullcontext(path) if kind == "parquet" else open(path, "w", newline="")
