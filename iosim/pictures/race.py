"""An animated picture: schedules load and store tile by tile, in lock step of the words that they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.event_count import check_length, count_events
from ..core.machine import Machine
from ..core.tiling import Rule, Tiling
from ..counting import asked as question
from ..counting.run import one_tiling
from ..drawing.asked import Asked, PictureKind
from ..drawing.colours import GREY, INK, tensor_colours
from ..drawing.picture import Picture
from ..drawing.player import Played
from ..drawing.svg import SHEET_WIDTH, broken, head_svg, label, svg_file
from ..errors import InputError
from ..schedules import Schedule, find_all, require
from ..units import parse_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.watchers import Event
    from ..tables import Row

USUAL = ("standard-tiled", "flash2")
MOST_SCHEDULES, MOST_EVENTS, MOST_TILES = 2, 5000, 16
SECONDS, END = 14, 88  # seconds of a round, and the percentage of it that the longest run takes
CELL, GAP = 15, 13
NOTE = (
    "A tile is bright while it is loaded, and has a dark edge while it is stored. Dashed tiles are never in HBM. All "
    "schedules move words at the same speed."
)
SQUARES = ("S", "P", "dS", "dP")
ORDER = ("Q", "K", "V", "S", "P", "O", "l", "m", "LSE")
Span = tuple[int, int]
"""(start, end) in words moved."""


@dataclass(frozen=True)
class Runner:
    """A schedule in the picture: the spans in which each tile moves, and in which each block is in SRAM."""

    name: str
    total: int
    """The number of words moved."""
    loads: dict[tuple[str, int, int], list[Span]]
    """The spans in which a tile (tensor, row of tiles, column of tiles) is loaded."""
    stores: dict[tuple[str, int, int], list[Span]]
    """The spans in which a tile is stored."""
    resident: dict[str, list[Span]]
    """The spans in which a block is in SRAM."""


@dataclass(frozen=True)
class Race:
    """The animated picture. `tiles` are the numbers of query tiles and of key tiles."""

    title: str
    runners: list[Runner]
    tiles: tuple[int, int]

    def rows(self) -> list[Row]:
        """A row for each tile that moves: how often it is loaded and stored."""
        found: list[Row] = []
        for one in self.runners:
            for cell in dict.fromkeys([*one.loads, *one.stores]):
                name, i, j = cell
                moves = {"loads": len(one.loads.get(cell, [])), "stores": len(one.stores.get(cell, []))}
                found.append({"schedule": one.name, "tensor": name, "i": i, "j": j, **moves})
        return found

    def svg(self) -> str:
        """The text of an SVG file. Its style sheet animates it, so a reader whose system asks for reduced motion sees
        the final state."""
        moved = dict.fromkeys(key[0] for one in self.runners for key in (*one.loads, *one.stores))
        names = [*(name for name in ORDER if name in moved), *(name for name in moved if name not in ORDER)]
        blocks = dict.fromkeys(name for one in self.runners for name in one.resident)
        palette = tensor_colours([*dict.fromkeys([*names, *blocks])])
        styles = Styles(max(one.total for one in self.runners))
        parts, top = head_svg(self.title)
        wide = SHEET_WIDTH / len(self.runners)
        for k, one in enumerate(self.runners):
            parts += Lane(one, self.tiles, 14 + k * wide, top + 22, wide - 28).svg(names, palette, styles)
        bottom = top + 22 + max(self.tiles) * CELL + 130
        notes = broken(NOTE, SHEET_WIDTH - 28)
        parts += [label(14, bottom + 16 * k, line, "start", GREY) for k, line in enumerate(notes)]
        sheet = f"<style>{''.join(styles.rules)}</style>"
        return svg_file(SHEET_WIDTH, bottom + 16 * len(notes), self.title, sheet + "".join(parts))


def race(p: Attention, M: int | str | None, schedules: Sequence[str], rule: Rule | None, multiple: int) -> Race:
    """The animated picture of two schedules with the same tiles: standard-tiled and flash2, if none are named.

    Raises InputError for a run that is too long to watch, or for more than one head.
    """
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    if p.instances != 1:
        raise InputError("--heads, --batch", p.instances, "1 in all: every head moves the same tiles")
    found = find_all(schedules or USUAL)
    if len(found) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(found)} schedules", f"at most {MOST_SCHEDULES}")
    for schedule in found:
        require(schedule, p)
    sizes = [one_tiling(schedule, rule, -1, p, M_bytes, multiple) for schedule in found]
    grid = (-(-p.N // min(t.rows_q for t in sizes)), -(-p.Nk // min(t.rows_k for t in sizes)))
    if max(grid) > MOST_TILES:
        raise InputError("--tiles", f"{grid[0]} x {grid[1]} tiles", f"at most {MOST_TILES} a side", "try larger tiles")
    runners = [runner(p, *one, sizes[0]) for one in zip(found, sizes, strict=True)]
    return Race(f"Words moved, tile by tile: {question.asked(p)}", runners, grid)


def runner(p: Attention, schedule: Schedule, tiling: Tiling, cells: Tiling) -> Runner:
    """The Runner of a schedule. Tiles of the picture are `cells`; an event lights all those that it touches."""
    check_length(count_events(schedule, p.packed, tiling).total, MOST_EVENTS)
    played = Played()
    Machine(p.packed, played).run(schedule, tiling)
    loads: dict[tuple[str, int, int], list[Span]] = {}
    stores: dict[tuple[str, int, int], list[Span]] = {}
    moves: list[tuple[Span, dict[str, int]]] = []
    moved = 0
    for frame in played.frames:
        event, words = frame.event, int(frame.event["words"])  # type: ignore[call-overload]
        if words:
            span = moved, moved + words
            for cell in touched(event, cells):
                add((loads if event["event"] == "load" else stores).setdefault(cell, []), span)
            moves.append((span, frame.inside))
            moved += words
        elif moves and sum(frame.inside.values()) > sum(moves[-1][1].values()):
            moves[-1] = (moves[-1][0], frame.inside)  # SRAM at its fullest until the next load or store
    tiles = "" if "ideal" in schedule.rules else f" {tiling.rows_q}x{tiling.rows_k}"
    return Runner(schedule.name + tiles, moved, loads, stores, resident(moves))


def touched(event: Event, cells: Tiling) -> list[tuple[str, int, int]]:
    """The tiles of the picture that an event touches. Only S, P and their gradients have several columns of tiles."""
    name = str(event["name"])
    row, rows, column, columns = (int(event[key]) for key in ("row", "rows", "column", "columns"))  # type: ignore[arg-type]
    high = cells.rows_k if name.lstrip("d") in ("K", "V") else cells.rows_q
    down = range(row // high, (row + rows - 1) // high + 1)
    across = range(column // cells.rows_k, (column + columns - 1) // cells.rows_k + 1) if name in SQUARES else range(1)
    return [(name, i, j) for i in down for j in across]


def add(spans: list[Span], span: Span) -> None:
    """Add a span. If it begins where the last one ends, the last one is extended."""
    if spans and spans[-1][1] == span[0]:
        spans[-1] = (spans[-1][0], span[1])
    else:
        spans.append(span)


def resident(moves: Iterable[tuple[Span, dict[str, int]]]) -> dict[str, list[Span]]:
    """The spans in which each block is in SRAM, from the spans of loads and stores and the blocks in each."""
    found: dict[str, list[Span]] = {}
    for span, inside in moves:
        for name in inside:
            add(found.setdefault(name, []), span)
    return found


class Styles:
    """The rules of the style sheet: an animation for each element that changes. Words become percentages of a round."""

    def __init__(self, longest: int):
        self.longest = longest
        self.rules = [
            f".a{{animation:{SECONDS}s step-end infinite}}",
            f".w{{animation:{SECONDS}s linear infinite}}",
            "@media (prefers-reduced-motion:reduce){.a,.w{animation:none}}",
        ]

    def at(self, words: int) -> str:
        """The percentage of a round at which `words` have moved."""
        return f"{words * END / self.longest:.2f}".rstrip("0").rstrip(".") + "%"

    def states(self, changes: Iterable[tuple[int, str]], first: str) -> str:
        """The name of an animation that begins with the state `first`. Each other state begins at its number of
        words."""
        frames = {"0%": first} | {self.at(words): state for words, state in changes}
        return self.add("".join(f"{when}{{{state}}}" for when, state in frames.items()))

    def add(self, frames: str) -> str:
        """The name of an animation with these frames."""
        name = f"k{len(self.rules)}"
        self.rules.append(f"@keyframes {name}{{{frames}}}")
        return name


class Lane:
    """One schedule in a picture: its tensors in HBM, its blocks in SRAM, and a bar of the words moved.

    It stands at `x`, `y` and is `wide`. `tiles` are the numbers of query tiles and of key tiles.
    """

    def __init__(self, one: Runner, tiles: tuple[int, int], x: float, y: float, wide: float):
        self.one, self.tiles, self.x, self.y, self.wide = one, tiles, x, y, wide
        self.low = y + 44 + max(tiles) * CELL  # the upper edge of SRAM

    def svg(self, names: Sequence[str], palette: dict[str, str], styles: Styles) -> list[str]:
        """The lane with these tensors."""
        head = [label(self.x, self.y, self.one.name, "start", INK, bold=True)]
        return [*head, *self.hbm(names, palette, styles), *self.sram(palette, styles), *self.bar(styles)]

    def hbm(self, names: Sequence[str], palette: dict[str, str], styles: Styles) -> list[str]:
        """The tensors, tile by tile."""
        parts, place = [label(self.x, self.y + 20, "HBM", "start", GREY)], self.x + 42
        for name in names:
            rows = self.tiles[1 if name.lstrip("d") in ("K", "V") else 0]
            columns = self.tiles[1] if name in SQUARES else 1
            parts.append(label(place + columns * CELL / 2, self.y + 20, name, "middle", INK))
            for i in range(rows):
                for j in range(columns):
                    x, y = place + j * CELL, self.y + 28 + i * CELL
                    parts.append(tile_svg(self.one, (name, i, j), palette[name], styles, x, y))
            place += columns * CELL + GAP
        return parts

    def sram(self, palette: dict[str, str], styles: Styles) -> list[str]:
        """The blocks, each bright while it is in SRAM."""
        parts = [label(self.x, self.low + 16, "SRAM", "start", GREY)]
        for k, (name, spans) in enumerate(self.one.resident.items()):
            here = f"fill:{palette[name]};fill-opacity:1"
            gone = f"fill:{palette[name]};fill-opacity:.15"
            rule = styles.states(on_and_off(spans, here, gone), gone)
            left = self.x + 42 + k * 34
            place = f'x="{left:.1f}" y="{self.low + 3:.1f}" width="30" height="18" rx="3"'
            parts.append(f'<rect class="a" style="{gone};animation-name:{rule}" {place}/>')
            parts.append(label(left + 15, self.low + 16, name, "middle", INK, bold=True))
        return parts

    def bar(self, styles: Styles) -> list[str]:
        """The bar of the words moved, which grows, and their number."""
        one, x, y, room = self.one, self.x, self.low + 32, self.wide - 6
        grows = styles.add(f"0%{{transform:scaleX(0)}}{styles.at(one.total)},100%{{transform:scaleX(1)}}")
        long = room * one.total / styles.longest
        style = f"transform-origin:{x:.1f}px 0;animation-name:{grows}"
        return [
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{room:.1f}" height="10" fill="#eef2f5"/>',
            f'<rect class="w" style="{style}" x="{x:.1f}" y="{y:.1f}" width="{long:.1f}" height="10" fill="{INK}"/>',
            label(x, y + 26, f"{one.total:,} words moved in all", "start", INK),
        ]


def tile_svg(one: Runner, cell: tuple[str, int, int], colour: str, styles: Styles, x: float, y: float) -> str:
    """A tile in HBM: empty until it moves, bright while it does, and pale afterwards. It never moves if the schedule
    does not use it."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{CELL - 2}" height="{CELL - 2}"'
    loads, stores = one.loads.get(cell, []), one.stores.get(cell, [])
    if not loads and not stores:
        return f'<rect {place} fill="none" stroke="#c8c8c8" stroke-dasharray="2 2"/>'
    pale = f"fill:{colour};fill-opacity:.3;stroke:none"
    bright, stored = (f"fill:{colour};fill-opacity:1;stroke:{edge};stroke-width:2" for edge in (colour, INK))
    changes = sorted([*on_and_off(loads, bright, pale), *on_and_off(stores, stored, pale)], key=lambda x: x[0])
    last = {when: state for when, state in changes if state == pale} | {
        when: state for when, state in changes if state != pale
    }
    rule = styles.states(sorted(last.items()), "fill:#eef2f5;fill-opacity:1;stroke:none")
    return f'<rect class="a" style="{pale};animation-name:{rule}" {place}/>'


def on_and_off(spans: Iterable[Span], on: str, off: str) -> list[tuple[int, str]]:
    """(words moved, state) at each end of each span."""
    return [change for start, end in spans for change in ((start, on), (end, off))]


def of_race(asked: Asked) -> Picture:
    """The picture of the problem with its schedules and tiles."""
    choice = asked.choice
    return Picture(race(asked.problem, asked.memory, choice.schedules, choice.rule, asked.multiple))


RACE = PictureKind(of_race)
