"""What is in SRAM while words move: the picture `timeline`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ..core.machine import Machine
from ..core.watchers import Watcher
from ..counting import asked as question
from ..counting.count import rules_of
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import number, round_steps
from ..drawing.colours import GREY, INK, ink_on, tensor_colours
from ..drawing.picture import Picture
from ..drawing.svg import SHEET_WIDTH, broken, head_svg, label, legend, segment, svg_file, text_width
from ..errors import InputError
from ..schedules import SCHEDULES
from ..tracing.event_file import check_length, count_events
from ..units import parse_bytes
from .footprint import chosen, name_of, tiling_of

if TYPE_CHECKING:
    from ..core.typing import Attention, Block, Rule, Size
    from ..tables import Row

MOST_EVENTS = 200_000  # most events of a run that a timeline shows
COLUMNS = 240  # moments that a timeline shows
LEFT, RIGHT = 66, 22
HIGH, BETWEEN = 130, 40
TIMELINE_NOTE = (
    "Height: words in SRAM. Width: words moved. Between the start of a load or store and that of the next one, SRAM is "
    "shown at its fullest."
)


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

    def rows(self) -> list[Row]:
        """A row for each block and moment."""
        return [
            {"schedule": run.name, "words_moved": x, "block": name, "words": words[k]}
            for run in self.runs
            for k, x in enumerate(run.x[:-1])
            for name, words in run.words.items()
            if words[k]
        ]

    def svg(self) -> str:
        """The text of an SVG file: a panel for each schedule, with the same axes: words in SRAM, stacked by block,
        against the words moved."""
        palette = tensor_colours(dict.fromkeys(name for run in self.runs for name in run.words))
        parts, top = head_svg(self.title)
        keys, top = legend(palette, top)
        parts += keys
        last = max(run.x[-1] for run in self.runs)
        high = max([*(run.peak for run in self.runs), *([self.limit] if self.limit else [])]) * 1.06
        for k, run in enumerate(self.runs):
            parts += Panel(run, top + 34 + k * (HIGH + BETWEEN), last, high, palette).svg(self.limit)
        bottom = top + 34 + len(self.runs) * (HIGH + BETWEEN) + 16
        parts.append(label((LEFT + SHEET_WIDTH - RIGHT) / 2, bottom - BETWEEN + 16, "words moved", "middle"))
        notes = broken(TIMELINE_NOTE, SHEET_WIDTH - 28)
        parts += [label(14, bottom + 16 * k, line, "start", GREY) for k, line in enumerate(notes)]
        return svg_file(SHEET_WIDTH, bottom + 16 * len(notes), self.title, "".join(parts))


def timeline(p: Attention, M: int | str | None, schedules: Sequence[str], rule: Rule | None, multiple: int) -> Timeline:
    """The contents of SRAM against the words moved, for each schedule with its tiles. Raises InputError for too long a
    run."""
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    if p.instances != 1:
        raise InputError("--heads, --batch", p.instances, "1 in all: every head leaves the same picture")
    runs = []
    for schedule in chosen(schedules, [SCHEDULES[name] for name in ("standard-tiled", "flash1", "flash2")], p):
        own_rule = rules_of(schedule, rule, p)[-1]
        tiling = tiling_of(schedule, own_rule, p, M_bytes, multiple)
        check_length(count_events(schedule, p.packed, tiling).total, MOST_EVENTS)
        watcher = Fullest()
        Machine(p.packed, watcher).run(schedule, tiling)
        runs.append(watcher.run(name_of(schedule, own_rule, tiling)))
    limit = None if M_bytes is None else M_bytes // p.word_bytes
    last = max(run.x[-1] for run in runs)
    return Timeline(
        f"What is in SRAM while words move: {question.asked(p)}", [thinned(run, last) for run in runs], limit
    )


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


class Panel:
    """The panel of one run below `top`. Its axes end at `last` words moved and `high` words in SRAM."""

    def __init__(self, run: Run, top: float, last: int, high: float, palette: dict[str, str]):
        self.run, self.palette, self.last, self.high = run, palette, last, high
        self.top, self.bottom, self.right = top, top + HIGH, SHEET_WIDTH - RIGHT
        self.places = [self.across(x) for x in run.x]

    def across(self, words: float) -> float:
        """The pixel of so many words moved."""
        return LEFT + words * (self.right - LEFT) / self.last

    def up(self, words: float) -> float:
        """The pixel of so many words in SRAM."""
        return self.bottom - words * HIGH / self.high

    def svg(self, limit: int | None) -> list[str]:
        """The title, the grid, the areas, the line of M = `limit` words, and the ticks."""
        title = f"{self.run.name}: {self.run.x[-1]:,} words moved"
        found = [label(LEFT, self.top - 8, title, "start", INK, bold=True)]
        for value in round_steps(0, self.high)[::2]:
            y = self.up(value)
            found.append(segment(LEFT, y, self.right, y, "grid") + label(LEFT - 7, y + 4, number(value), "end"))
        found += self.areas()
        if limit is not None:
            y, name = self.up(limit), f"M = {limit:,} words"
            found.append(segment(LEFT, y, self.right, y, "mark") + label(self.right, y - 4, name, "end", INK))
        for value in round_steps(0, self.last):
            text = number(value)
            place = min(self.across(value), self.right + RIGHT - 2 - text_width(text) / 2)
            found.append(label(place, self.bottom + 16, text, "middle"))
        return found

    def areas(self) -> list[str]:
        """An area for each block, stacked on the blocks before it."""
        found, names, floor = list[str](), list[str](), [0] * (len(self.run.x) - 1)
        for name, words in self.run.words.items():
            roof = [low + more for low, more in zip(floor, words, strict=True)]
            upper, lower = (corners(self.places, map(self.up, heights)) for heights in (roof, floor))
            where = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
            look = f'fill="{self.palette[name]}" stroke="#fff" stroke-width="0.6"'
            found.append(f'<polygon points="{where}" {look}><title>{escape(name)}</title></polygon>')
            names += self.name_in_area(name, list(zip(floor, roof, strict=True)))
            floor = roof
        return found + names

    def name_in_area(self, name: str, edges: Sequence[tuple[int, int]]) -> list[str]:
        """The name of a block in the widest part of its area that has room for it; empty if none has."""
        stretches: list[tuple[float, float, int, int]] = []
        for (low, high), left, right in zip(edges, self.places, self.places[1:], strict=False):
            if stretches and stretches[-1][1:] == (left, low, high):
                stretches[-1] = (stretches[-1][0], right, low, high)
            else:
                stretches.append((left, right, low, high))
        fitting = [x for x in stretches if self.up(x[2]) - self.up(x[3]) >= 14 and x[1] - x[0] >= text_width(name) + 4]
        if not fitting:
            return []
        left, right, low, high = max(fitting, key=lambda x: x[1] - x[0])
        middle = self.up((low + high) / 2) + 4
        return [label((left + right) / 2, middle, name, "middle", ink_on(self.palette[name]), bold=True)]


def corners(places: Sequence[float], heights: Iterable[float]) -> list[tuple[float, float]]:
    """The corners of stairs whose height is the k-th one from the k-th place to the next."""
    found: list[tuple[float, float]] = []
    for left, right, y in zip(places, places[1:], heights, strict=False):
        if found and found[-1][1] == y:
            found[-1] = (right, y)
        else:
            found += [(left, y), (right, y)]
    return found


def of_timeline(asked: Asked) -> Picture:
    """The picture of the problem with its schedules and tiles."""
    choice = asked.choice
    return Picture(timeline(asked.problem, asked.memory, choice.schedules, choice.rule, asked.multiple))


TIMELINE = PictureKind(of_timeline)
