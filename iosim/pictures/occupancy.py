"""The contents of SRAM as plain values: at its fullest, as bars (`footprint`), and during a run (`timeline`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.folded import Folded
from ..core.machine import Machine
from ..core.problem import DENSE, Attention
from ..core.watchers import Watcher
from ..counting.asked import asked
from ..counting.count import choose_tiling, default_schedules, rules_of
from ..errors import InputError
from ..schedules import SCHEDULES, Schedule, find_all, require
from ..tracing.event_file import check_length, count_events
from ..units import binary, format_bytes, parse_bytes
from .page import Residents

if TYPE_CHECKING:
    from ..core.machine import Block
    from ..core.tiling import Tiling
    from ..core.typing import Size
    from ..tables import Row

MOST_EVENTS = 200_000  # most events of a run that a timeline shows
MOST_SCHEDULES = 8
COLUMNS = 240  # moments that a timeline shows
LONGEST = 3  # times M; a longer bar is cut off


@dataclass(frozen=True)
class Bar:
    """A schedule with its tiles, and the bytes of each block in SRAM at its fullest."""

    name: str
    parts: list[tuple[str, int]]

    @property
    def bytes(self) -> int:
        """The bytes of all blocks."""
        return sum(part for _, part in self.parts)


@dataclass(frozen=True)
class Footprint:
    """The picture of the blocks that fill the SRAM. `limit` is M in bytes; None if there is none."""

    title: str
    bars: list[Bar]
    limit: int | None

    @property
    def longest(self) -> int:
        """The bytes that the picture has room for. Longer bars are cut off."""
        widest = max(bar.bytes for bar in self.bars)
        return widest if self.limit is None else max(min(widest, LONGEST * self.limit), self.limit)

    def note(self, bar: Bar) -> str:
        """The text beside a bar: its bytes, and their ratio to M if it does not fit."""
        text = binary(bar.bytes)
        return text if self.limit is None or bar.bytes <= self.limit else f"{text}, {bar.bytes / self.limit:.3g} x M"


@dataclass(frozen=True)
class Run:
    """The contents of SRAM during a run: `words[name][k]` words of a block from x[k] to x[k + 1] words moved."""

    name: str
    x: list[int]
    words: dict[str, list[int]]

    @property
    def peak(self) -> int:
        """The most words in SRAM at one time."""
        return max(map(sum, zip(*self.words.values(), strict=True)), default=0)


@dataclass(frozen=True)
class Timeline:
    """The picture of the SRAM of several schedules against the words moved. `limit` is M in words."""

    title: str
    runs: list[Run]
    limit: int | None


def footprint(
    p: Attention, M: int | str | None, schedules: Sequence[str], tiles: str | None, multiple: int
) -> Footprint:
    """The blocks in SRAM at its fullest, of each schedule with its tiles, without the mask."""
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    bars = []
    for schedule in chosen(schedules, default_schedules(p), p):
        for rule in rules_of(schedule, tiles, p):
            tiling = tiling_of(schedule, rule, p, M_bytes, multiple)
            room = Residents()
            Folded(replace(p.packed, mask=DENSE), room).run(schedule, tiling)
            bars.append(Bar(name_of(schedule, rule, tiling), merged(room.parts)))
    about = asked(p, M_bytes) if M_bytes is not None else asked(p)
    return Footprint(f"What is in SRAM at its fullest: {about}", bars, M_bytes)


def timeline(p: Attention, M: int | str | None, schedules: Sequence[str], tiles: str | None, multiple: int) -> Timeline:
    """The contents of SRAM against the words moved, for each schedule with its tiles. Raises InputError for too long a
    run."""
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    if p.instances != 1:
        raise InputError("--heads, --batch", p.instances, "1 in all: every head leaves the same picture")
    runs = []
    for schedule in chosen(schedules, [SCHEDULES[name] for name in ("standard-tiled", "flash1", "flash2")], p):
        rule = rules_of(schedule, tiles, p)[-1]
        tiling = tiling_of(schedule, rule, p, M_bytes, multiple)
        check_length(count_events(schedule, p.packed, tiling).total, MOST_EVENTS)
        watcher = Fullest()
        Machine(p.packed, watcher).run(schedule, tiling)
        runs.append(watcher.run(name_of(schedule, rule, tiling)))
    limit = None if M_bytes is None else M_bytes // p.word_bytes
    last = max(run.x[-1] for run in runs)
    return Timeline(f"What is in SRAM while words move: {asked(p)}", [thinned(run, last) for run in runs], limit)


def chosen(names: Sequence[str], usual: Sequence[Schedule], p: Attention) -> list[Schedule]:
    """The named schedules, or the usual ones. Raises InputError for too many."""
    found = list(find_all(names) or usual)
    if len(found) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(found)} schedules", f"at most {MOST_SCHEDULES}")
    for schedule in found:
        require(schedule, p)
    return found


def tiling_of(schedule: Schedule, rule: str, p: Attention, M_bytes: int | None, multiple: int) -> Tiling:
    """The tiles of a schedule. Raises InputError if they need M and it is not given, or if none fits."""
    if M_bytes is None and rule in ("paper", "best"):
        raise InputError("--tiles", "nothing", "Br x Bc as in 64x64", f"or give --M for {rule} tiles")
    tiling = choose_tiling(schedule, rule, p.packed, M_bytes, multiple)
    if tiling is None:
        raise InputError("--M", format_bytes(M_bytes or 0), f"an SRAM in which {schedule.name} fits", "or give --tiles")
    return tiling


def name_of(schedule: Schedule, rule: str, t: Tiling) -> str:
    """A schedule with its tiles: `flash1 paper 100x100`."""
    if rule == "ideal":
        return schedule.name
    return f"{schedule.name} {rule} {t.rows_q}x{t.rows_k}" if rule in ("paper", "best") else f"{schedule.name} {rule}"


def merged(parts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The parts with those of the same name added up."""
    found: dict[str, int] = {}
    for name, part in parts:
        found[name] = found.get(name, 0) + part
    return list(found.items())


Moment = tuple[int, dict[str, int]]
"""(words moved before, words in SRAM by block)."""


class Fullest(Watcher):
    """Records SRAM at its fullest between the start of each load or store and the start of the next one."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.moved = 0
        self.kept: list[Moment] = []
        self._before: tuple[Block, Moment] | None = None  # the last new block, and the last moment without it

    def allocate(self, block: Block) -> None:
        self._before = (block, self.kept[-1]) if self.kept else None
        self.now[block.name] = self.now.get(block.name, 0) + int(block.words)
        if self.kept and sum(self.now.values()) > sum(self.kept[-1][1].values()):
            self.kept[-1] = (self.kept[-1][0], dict(self.now))

    def free(self, block: Block) -> None:
        self.now[block.name] -= int(block.words)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if self._before is not None and self._before[0] is block:  # this load made the block
            self.kept[-1] = self._before[1]
        if words:
            self.kept.append((self.moved, dict(self.now)))
            self.moved += int(words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._before = None
        self.load(block, tensor, words)

    def run(self, name: str) -> Run:
        """The recorded run."""
        names = dict.fromkeys(name for _, words in self.kept for name in words)
        words = {block: [now.get(block, 0) for _, now in self.kept] for block in names}
        return Run(name, [*(x for x, _ in self.kept), self.moved], words)


def thinned(run: Run, last: int) -> Run:
    """The run with at most one moment in each of COLUMNS equal parts of `last` words: the fullest one. A run with
    fewer moments stays as it is."""
    if len(run.x) <= COLUMNS:
        return run
    totals = [sum(column) for column in zip(*run.words.values(), strict=True)]
    fullest: dict[int, int] = {}  # column -> number of the moment
    for k, x in enumerate(run.x[:-1]):
        column = x * COLUMNS // last
        if column not in fullest or totals[k] > totals[fullest[column]]:
            fullest[column] = k
    words = {name: [values[k] for k in fullest.values()] for name, values in run.words.items()}
    return Run(run.name, [*(-(-column * last // COLUMNS) for column in fullest), run.x[-1]], words)


def block_rows(found: Footprint | Timeline) -> list[Row]:
    """A row for each block of each bar. For a timeline, a row for each block and moment."""
    if isinstance(found, Footprint):
        return [{"schedule": bar.name, "block": name, "bytes": part} for bar in found.bars for name, part in bar.parts]
    return [{"schedule": run.name, "words_moved": x, "block": name, "words": words[k]} for run in found.runs
            for k, x in enumerate(run.x[:-1]) for name, words in run.words.items() if words[k]]  # fmt: skip
