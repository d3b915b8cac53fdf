"""An animated picture: schedules load and store tile by tile, in lock step of the words that they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.machine import Machine
from ..core.watchers import Trace
from ..counting.asked import asked
from ..counting.count import rules_of
from ..errors import InputError
from ..schedules import SCHEDULES
from ..tracing.event_file import check_length, count_events
from ..units import parse_bytes
from .chart import INK, tensor_colours
from .draw import write_svg
from .matplotlib_chart import format_of
from .occupancy import Fullest, chosen, name_of, tiling_of
from .svg_chart import MUTED, SHEET_WIDTH, broken, head_svg, label, svg_file

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.watchers import Event
    from ..schedules import Schedule
    from ..tables import Row

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


def race(p: Attention, M: int | str | None, schedules: Sequence[str], tiles: str | None, multiple: int) -> Race:
    """The animated picture of two schedules with the same tiles: standard-tiled and flash2, if none are named.

    Raises InputError for a run that is too long to watch, or for more than one head.
    """
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    if p.instances != 1:
        raise InputError("--heads, --batch", p.instances, "1 in all: every head moves the same tiles")
    found = chosen(schedules, [SCHEDULES[name] for name in ("standard-tiled", "flash2")], p)
    if len(found) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(found)} schedules", f"at most {MOST_SCHEDULES}")
    rules = [rules_of(schedule, tiles, p)[-1] for schedule in found]
    sizes = [tiling_of(schedule, rule, p, M_bytes, multiple) for schedule, rule in zip(found, rules, strict=True)]
    grid = (-(-p.N // min(t.rows_q for t in sizes)), -(-p.Nk // min(t.rows_k for t in sizes)))
    if max(grid) > MOST_TILES:
        raise InputError("--tiles", f"{grid[0]} x {grid[1]} tiles", f"at most {MOST_TILES} a side", "try larger tiles")
    runners = [runner(p, *one, sizes[0]) for one in zip(found, rules, sizes, strict=True)]
    return Race(f"Words moved, tile by tile: {asked(p)}", runners, grid)


def runner(p: Attention, schedule: Schedule, rule: str, tiling: Tiling, cells: Tiling) -> Runner:
    """The Runner of a schedule. Tiles of the picture are `cells`; an event lights all those that it touches."""
    check_length(count_events(schedule, p.packed, tiling).total, MOST_EVENTS)
    trace, fullest = Trace(), Fullest()
    Machine(p.packed, trace, fullest).run(schedule, tiling)
    loads: dict[tuple[str, int, int], list[Span]] = {}
    stores: dict[tuple[str, int, int], list[Span]] = {}
    moved = 0
    for event in trace.events:
        words = int(event["words"])  # type: ignore[arg-type]
        if event["event"] in ("load", "store"):
            for cell in touched(event, cells):
                add((loads if event["event"] == "load" else stores).setdefault(cell, []), (moved, moved + words))
            moved += words
    kept = fullest.run(schedule.name)
    spans = {
        name: [(kept.x[k], kept.x[k + 1]) for k, now in enumerate(words) if now] for name, words in kept.words.items()
    }
    return Runner(name_of(schedule, rule, tiling), moved, loads, stores, {name: joined(x) for name, x in spans.items()})


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


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans, with adjacent ones joined."""
    found: list[Span] = []
    for span in spans:
        add(found, span)
    return found


def race_rows(found: Race) -> list[Row]:
    """A row for each tile that moves: how often it is loaded and stored."""
    cells = [(one, cell) for one in found.runners for cell in dict.fromkeys([*one.loads, *one.stores])]
    return [{"schedule": one.name, "tensor": cell[0], "i": cell[1], "j": cell[2], "loads": len(one.loads.get(cell, [])),
             "stores": len(one.stores.get(cell, []))} for one, cell in cells]  # fmt: skip


def draw_race(found: Race, path: str) -> None:
    """Write the picture to a file, which must be SVG: other formats do not move."""
    if format_of(path) != "svg":
        raise InputError("-o", path, "a file that ends in .svg", "the picture moves")
    write_svg(race_svg(found), path)


# ---------------------------------------------------------------- SVG


class Styles:
    """The rules of the style sheet: an animation for each element that changes. Words become percentages of a round."""

    def __init__(self, longest: int):
        self.longest, self.rules = longest, [
            f".a{{animation:{SECONDS}s step-end infinite}}", f".w{{animation:{SECONDS}s linear infinite}}",
            "@media (prefers-reduced-motion:reduce){.a,.w{animation:none}}",
        ]  # fmt: skip

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


def race_svg(found: Race) -> str:
    """The picture as the text of an SVG file. Its style sheet animates it, so a reader whose system asks for reduced
    motion sees the final state."""
    names = [name for name in ORDER if any(key[0] == name for r in found.runners for key in (*r.loads, *r.stores))]
    names += [*dict.fromkeys(key[0] for r in found.runners for key in (*r.loads, *r.stores) if key[0] not in ORDER)]
    blocks = dict.fromkeys(name for r in found.runners for name in r.resident)
    palette = tensor_colours([*dict.fromkeys([*names, *blocks])])
    longest = max(r.total for r in found.runners)
    styles, wide = Styles(longest), SHEET_WIDTH / len(found.runners)
    parts, top = head_svg(found.title)
    high = max(found.tiles) * CELL + 130
    for k, one in enumerate(found.runners):
        parts += lane(one, found, names, palette, styles, 14 + k * wide, top + 22, wide - 28, longest)
    bottom = top + 22 + high
    notes = broken(NOTE, SHEET_WIDTH - 28)
    parts += [label(14, bottom + 16 * k, line, "start", MUTED) for k, line in enumerate(notes)]
    sheet = f"<style>{''.join(styles.rules)}</style>"
    return svg_file(SHEET_WIDTH, bottom + 16 * len(notes), found.title, sheet + "".join(parts))


def lane(
    one: Runner, found: Race, names: list[str], palette: dict[str, str], styles: Styles, x: float, y: float,
    wide: float, longest: int,
) -> list[str]:  # fmt: skip
    """One schedule: its tensors in HBM, its blocks in SRAM, and a bar of the words moved."""
    parts, place = [label(x, y, one.name, "start", INK, bold=True), label(x, y + 20, "HBM", "start", MUTED)], x + 42
    low = y + 44 + max(found.tiles) * CELL
    for name in names:
        rows, columns = (
            found.tiles[1 if name.lstrip("d") in ("K", "V") else 0],
            found.tiles[1] if name in SQUARES else 1,
        )
        parts.append(label(place + columns * CELL / 2, y + 20, name, "middle", INK))
        parts += [tile_svg(one, (name, i, j), palette[name], styles, place + j * CELL, y + 28 + i * CELL)
                  for i in range(rows) for j in range(columns)]  # fmt: skip
        place += columns * CELL + GAP
    parts.append(label(x, low + 16, "SRAM", "start", MUTED))
    for k, (name, spans) in enumerate(one.resident.items()):
        here = f"fill:{palette[name]};fill-opacity:1"
        gone = f"fill:{palette[name]};fill-opacity:.15"
        rule = styles.states(on_and_off(spans, here, gone), gone)
        left = x + 42 + k * 34
        place_of = f'x="{left:.1f}" y="{low + 3:.1f}" width="30" height="18" rx="3"'
        parts.append(f'<rect class="a" style="{gone};animation-name:{rule}" {place_of}/>')
        parts.append(label(left + 15, low + 16, name, "middle", INK, bold=True))
    share = one.total / longest
    grows = styles.add(f"0%{{transform:scaleX(0)}}{styles.at(one.total)},100%{{transform:scaleX(1)}}")
    room = wide - 6
    parts.append(f'<rect x="{x:.1f}" y="{low + 32:.1f}" width="{room:.1f}" height="10" fill="#eef2f5"/>')
    parts.append(f'<rect class="w" style="transform-origin:{x:.1f}px 0;animation-name:{grows}" x="{x:.1f}" '
                 f'y="{low + 32:.1f}" width="{room * share:.1f}" height="10" fill="{INK}"/>')  # fmt: skip
    return [*parts, label(x, low + 58, f"{one.total} words moved in all", "start", INK)]


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
