"""The tile events of a run, as `iosim.trace` answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from ..answer import Answer, Pieces, Row, Table, numbered
from ..core.event_count import MOST_EVENTS, check_length, count_events
from ..core.machine import Machine
from ..core.problem import Attention
from ..core.tiling import Tiling, read_tiles, tiles_text
from ..core.watchers import Trace
from ..counting.asked import asked
from ..counting.conditions import conditions
from ..counting.given import memory
from ..counting.names import takes_options
from ..counting.run import one_tiling
from ..errors import InputError
from ..event_file import BATCH, EVENTS, event_format, write_events
from ..masks import parse_mask
from ..schedules import Schedule, find, require
from ..timing.products import SharedReads, unit_of
from ..units import parse_bytes

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.machine import Block, Input
    from ..core.mask_types import Mask
    from ..core.tiling import Rule, TilesAsked
    from ..core.typing import Size, Step
    from ..core.watchers import Event
    from ..event_file import Emit

SHOWN = 20  # events that are printed
MOST_WRITTEN = 100_000_000


def one_head_run(
    schedule: Schedule, given: Attention, tiles: Rule | None, M_bytes: int | None, multiple: int = 1
) -> tuple[Schedule, Attention, Tiling]:
    """The schedule, problem and tiling of a run that visits every tile.

    Raises InputError if the problem has more than one head, or if the tiles need M and it is not given.
    """
    problem = given.packed
    require(schedule, problem)
    if problem.instances != 1:
        raise InputError("--heads, --batch", problem.instances, "1 in all: every head leaves the same trace")
    if problem.count_init:
        raise InputError("--count-init", "given", "iosim count", "these writes come before the run, and are no event")
    return schedule, problem, one_tiling(schedule, tiles, 0, problem, M_bytes, multiple)


def emit_events(
    schedule: Schedule,
    problem: Attention,
    tiling: Tiling,
    emit: Emit,
    most: int = MOST_EVENTS,
    progress: Callable[[str], None] = lambda done: None,
) -> int:
    """Visit every tile, hand every event to `emit`, and return the number of events. Now and then `progress` gets
    a text about the progress."""
    total, sent = count_events(schedule, problem, tiling).total, 0
    check_length(total, most)

    def send(event: Event) -> None:
        nonlocal sent
        sent += 1
        check_length(sent, most)
        if sent % BATCH == 0:
            progress(f"{sent:,} of {total:,} events")
        emit(event)

    Machine(problem, TraceWithReads(send, problem.dtype)).run(schedule, tiling)
    return sent


class TraceWithReads(Trace):
    """Events with the words that each product reads from shared memory, by the rule of wgmma; 0 for others."""

    def __init__(self, emit: Emit, dtype: str) -> None:
        super().__init__(self.send)
        self.emit_with, self.reads, self.now = emit, SharedReads(unit_of(None, dtype)), 0

    def send(self, event: Event) -> None:
        """Hand on an event with the words of its product."""
        self.emit_with({**event, "smem_read_words": self.now})

    def start(self, machine: Machine) -> None:
        self.reads.start(machine)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self.reads.load(block, tensor, words)
        super().load(block, tensor, words)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        before = self.reads.total
        self.reads.step(step, outputs, inputs, flops)
        self.now = int(self.reads.total - before)
        super().step(step, outputs, inputs, flops)
        self.now = 0


def emit_runs(runs: Sequence[tuple[Schedule, Attention, Tiling]], emit: Emit, progress: Callable[[str], None]) -> int:
    """Emit the events of some runs, and return their number. If there are several runs, each event names its
    schedule."""
    if len(runs) == 1:
        return emit_events(*runs[0], emit, MOST_WRITTEN, progress)

    def labelled(name: str) -> Emit:
        return lambda event: emit({"schedule": name, **event})

    return sum(emit_events(*run, labelled(run[0].name), MOST_WRITTEN, progress) for run in runs)


@dataclass(frozen=True, repr=False)
class Events(Answer):
    """The answer of `trace`. The schedule is run again whenever its events are asked for."""

    schedule: Schedule
    """The schedule that is run."""
    problem: Attention
    """The problem, of one head."""
    tiling: Tiling
    """The tiles of the run."""
    notes: tuple[str, ...] = ()
    """Notes on what a GPU implies."""

    def __iter__(self) -> Iterator[Event]:
        """The events, in their order."""
        return iter(self.to_rows())

    def to_rows(self) -> list[Event]:
        found: list[Event] = []
        emit_events(self.schedule, self.problem, self.tiling, lambda event: found.append(event.copy()))
        return found

    def to_dict(self) -> Row:
        return {"schedule": self.schedule.name, "events": self.to_rows()}

    def table(self) -> Table:
        return Table(EVENTS, self.to_rows())

    def write(
        self, path: str | None, format: str | None = None, progress: Callable[[str], None] = lambda done: None
    ) -> int:
        """Write the events to a file, whole or not at all, and return their number. `format` is csv, jsonl, parquet or
        perfetto; by default the file's name decides. Now and then `progress` gets a text about the progress."""
        kind = event_format(format, path, False, False)
        run = (self.schedule, self.problem, self.tiling)
        check_length(count_events(*run).total, MOST_WRITTEN)  # before anything is on stdout
        return write_events(lambda emit: emit_events(*run, emit, MOST_WRITTEN, progress), path, kind)

    def pieces(self) -> Pieces:
        events = self.to_rows()
        more = [f"... and {numbered(len(events) - SHOWN, 'event')} more"] if len(events) > SHOWN else []
        return [self.summary(), "", Table(EVENTS, events[:SHOWN]), *more]

    def summary(self) -> str:
        tiles = f"tiles {tiles_text(self.tiling)}"
        return f"{self.schedule.name}, {asked(self.problem)}, {tiles}"


@takes_options()
def trace(
    N: int,
    d: int,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    paper_model: bool = False,
    tiles: TilesAsked | None = None,
    schedule: str | Schedule = "flash2",
    path: str | None = None,
    format: str | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Events:
    """Every load, step and store of a schedule, in order, with the words moved and those resident: an Events.

    `to_frame()` has a row for each event. With a `path` they are written to a file as well: `format` is csv, jsonl,
    parquet or perfetto, and by default the file's name decides. Perfetto files open in ui.perfetto.dev. `tiles` are
    Br x Bc, or paper or best with an M. Other options are those of `count`. Raises InputError for whatever is not
    allowed.
    """
    rule = read_tiles(tiles)
    under = conditions(hardware, options, None, paper_model, tiles)
    p = Attention(N, d, mask=parse_mask(mask), **under.options)
    size = memory(M, hardware)
    M_bytes = None if size is None else parse_bytes(size, p.word_bytes)
    found = Events(*one_head_run(find(schedule), p, rule, M_bytes, under.multiple), under.notes)
    total = count_events(found.schedule, found.problem, found.tiling).total
    check_length(total, MOST_EVENTS if path is None else MOST_WRITTEN)
    if path is not None:
        found.write(path, format)
    return found
