"""The player of a page: what a run does, event by event, and the section of the page in which player.js shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from ..core.problem import DENSE
from ..core.text_lines import LineTrace, lines_now
from ..masks import parse_mask

if TYPE_CHECKING:
    from ..core.machine import Block
    from ..core.mask_types import Mask
    from ..core.watchers import Event


class Played(LineTrace):
    """Records each event, the words of each block in SRAM after it, and its lines of the schedule."""

    def __init__(self) -> None:
        self.now: dict[Block, int] = {}
        self.frames: list[Frame] = []
        super().__init__(self.keep)

    def allocate(self, block: Block) -> None:
        super().allocate(block)
        self.now[block] = int(block.words)

    def free(self, block: Block) -> None:
        super().free(block)
        del self.now[block]

    def keep(self, event: Event) -> None:
        """Add a frame."""
        inside: dict[str, int] = {}
        for block, words in self.now.items():
            inside[block.name] = inside.get(block.name, 0) + words
        self.frames.append(Frame(event, inside, [(line.function, line.number) for line in lines_now()]))


@dataclass(frozen=True)
class Frame:
    """An event, the words of each block in SRAM after it, and its lines as (function, number)."""

    event: Event
    inside: dict[str, int]
    lines: list[tuple[str, int]]


def small_mask(mask: Mask, by: float) -> Mask:
    """The mask with its lengths divided by `by`."""
    if mask is DENSE:
        return mask
    return parse_mask(re.sub(r"\d+", lambda found: str(max(1, round(int(found[0]) / by))), str(mask)))


def section_of(words: str, data: Mapping[str, object]) -> str:
    """The section of the player as HTML: `words` in small print, and the data of player.js."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    script = files("iosim.drawing").joinpath("player.js").read_text(encoding="utf-8")
    return (
        '\n<section id="player"><h2>Watch it move</h2>'
        f'<p class="small">{escape(words)}</p><div class="stage"></div></section>'
        f'\n<script type="application/json" id="play">{text}</script>\n<script>{script}</script>'
    )


def style() -> str:
    """The style sheet of the player."""
    return files("iosim.drawing").joinpath("player.css").read_text(encoding="utf-8")
