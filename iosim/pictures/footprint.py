"""What is in SRAM at its fullest, as bars: the picture `footprint`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from ..answer import Row, rounded
from ..core.folded import Folded
from ..core.problem import DENSE
from ..core.tiling import Rule, Tiling, tiles_text
from ..core.watchers import Capacity
from ..counting import asked as question
from ..counting.count import choose_tiling, default_schedules, rules_of
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import size
from ..drawing.colours import GREY, INK, ink_on, tensor_colours
from ..drawing.picture import Picture
from ..drawing.svg import SHEET_WIDTH, head_svg, label, legend, segment, svg_file, text_width
from ..errors import InputError
from ..schedules import Schedule, find_all, require
from ..units import binary, format_bytes, parse_bytes

if TYPE_CHECKING:
    from ..core.typing import Attention, Block

MOST_SCHEDULES = 8
LONGEST = 3  # times M; a longer bar is cut off
CUT_NOTE = "a bar with a jagged end is cut off"
BAR, GAP = 26, 36


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
        return (
            text if self.limit is None or bar.bytes <= self.limit else f"{text}, {rounded(bar.bytes / self.limit)} x M"
        )

    def rows(self) -> list[Row]:
        """A row for each block of each bar."""
        return [{"schedule": bar.name, "block": name, "bytes": part} for bar in self.bars for name, part in bar.parts]

    def svg(self) -> str:
        """The text of an SVG file: a bar for each schedule, and M as a line across them."""
        palette = tensor_colours(dict.fromkeys(name for bar in self.bars for name, _ in bar.parts))
        parts, top = head_svg(self.title)
        keys, top = legend(palette, top)
        parts += keys
        room = SHEET_WIDTH - 28 - max(text_width(self.note(bar)) for bar in self.bars) - 12
        scale = room / self.longest
        for k, bar in enumerate(self.bars):
            drawn = "".join(bar_svg(bar, self.note(bar), scale, room, palette))
            parts.append(f'<g transform="translate(14 {top + 34 + k * (BAR + GAP):g})">{drawn}</g>')
        bottom = top + 24 + len(self.bars) * (BAR + GAP)
        if self.limit is not None:
            x, text = 14 + self.limit * scale, f"M = {size(self.limit)}"
            place = min(max(x, 14 + text_width(text) / 2), SHEET_WIDTH - 14 - text_width(text) / 2)
            parts.append(segment(x, top + 16, x, bottom, "mark") + label(place, bottom + 16, text, "middle", INK))
        notes = [CUT_NOTE] * any(bar.bytes > self.longest for bar in self.bars)
        parts += [label(14, bottom + 38, note, "start", GREY) for note in notes]
        return svg_file(SHEET_WIDTH, bottom + 26 + 20 * len(notes), self.title, "".join(parts))


def footprint(
    p: Attention, M: int | str | None, schedules: Sequence[str], rule: Rule | None, multiple: int
) -> Footprint:
    """The blocks in SRAM at its fullest, of each schedule with its tiles, without the mask."""
    M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
    bars = []
    for schedule in chosen(schedules, default_schedules(p), p):
        for own_rule in rules_of(schedule, rule, p):
            tiling = tiling_of(schedule, own_rule, p, M_bytes, multiple)
            bars.append(Bar(name_of(schedule, own_rule, tiling), merged(fullest(schedule, p, tiling))))
    about = question.asked(p, M_bytes) if M_bytes is not None else question.asked(p)
    return Footprint(f"What is in SRAM at its fullest: {about}", bars, M_bytes)


def fullest(schedule: Schedule, p: Attention, tiling: Tiling) -> list[tuple[str, int]]:
    """(name, bytes) of each block in SRAM when it is at its fullest, without the mask."""
    room = Residents()
    Folded(replace(p.packed, mask=DENSE), room).run(schedule, tiling)
    return room.parts


class Residents(Capacity):
    """A watcher that keeps which blocks are in SRAM at its fullest: `parts`, as (name, bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[Block, int] = {}
        self.parts: list[tuple[str, int]] = []

    def allocate(self, block: Block) -> None:
        before = self.peak_bytes
        super().allocate(block)
        self.now[block] = int(block.words * self._width(block.tensor))
        if self.peak_bytes > before:
            self.parts = [(b.name, block_bytes) for b, block_bytes in self.now.items()]

    def free(self, block: Block) -> None:
        super().free(block)
        del self.now[block]


def chosen(names: Sequence[str], usual: Sequence[Schedule], p: Attention) -> list[Schedule]:
    """The named schedules, or the usual ones. Raises InputError for too many."""
    found = list(find_all(names) or usual)
    if len(found) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(found)} schedules", f"at most {MOST_SCHEDULES}")
    for schedule in found:
        require(schedule, p)
    return found


def tiling_of(schedule: Schedule, rule: Rule, p: Attention, M_bytes: int | None, multiple: int) -> Tiling:
    """The tiles of a schedule. Raises InputError if they need M and it is not given, or if none fits."""
    if M_bytes is None and rule in ("paper", "best"):
        raise InputError("--tiles", "nothing", "Br x Bc as in 64x64", f"or give --M for {rule} tiles")
    tiling = choose_tiling(schedule, rule, p.packed, M_bytes, multiple)
    if tiling is None:
        raise InputError("--M", format_bytes(M_bytes or 0), f"an SRAM in which {schedule.name} fits", "or give --tiles")
    return tiling


def name_of(schedule: Schedule, rule: Rule, t: Tiling) -> str:
    """A schedule with its tiles: `flash1 paper 100x100`."""
    if rule == "ideal":
        return schedule.name
    sizes = "" if isinstance(rule, Tiling) else f" {t.rows_q}x{t.rows_k}"
    return f"{schedule.name} {tiles_text(rule)}{sizes}"


def merged(parts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The parts with those of the same name added up."""
    found: dict[str, int] = {}
    for name, part in parts:
        found[name] = found.get(name, 0) + part
    return list(found.items())


def bar_svg(bar: Bar, note: str, scale: float, room: float, palette: dict[str, str]) -> list[str]:
    """A bar at 0 0, with its name above it and its note on the right. It is cut off after `room` pixels."""
    found, start = [label(0, -6, bar.name, "start", INK, bold=True)], 0.0
    for name, part in bar.parts:
        wide = min(part * scale, room - start)
        if wide > 0:
            box = f'x="{start:.1f}" y="0" width="{wide:.1f}" height="{BAR}" fill="{palette[name]}"'
            tip = f"<title>{escape(name)}: {part:,} B</title>"
            found.append(f'<rect {box} stroke="#fff" stroke-width="0.8">{tip}</rect>')
            if wide > text_width(name) + 6:
                found.append(label(start + wide / 2, 17, name, "middle", ink_on(palette[name]), bold=True))
        start += max(wide, 0.0)
    if bar.bytes * scale > room + 0.5:
        edge = "".join(f"L{start - 5 * (k % 2):.1f} {BAR * k / 6:.1f}" for k in range(7))
        found.append(f'<path d="M{start + 1:.1f} 0{edge}L{start + 1:.1f} {BAR}Z" fill="#fff"/>')
    return [*found, label(start + 8, 17, note, "start", INK)]


def of_footprint(asked: Asked) -> Picture:
    """The picture of the problem with its schedules and tiles."""
    choice = asked.choice
    return Picture(footprint(asked.problem, asked.memory, choice.schedules, choice.rule, asked.multiple))


FOOTPRINT = PictureKind(of_footprint)
