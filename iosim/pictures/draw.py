"""Draws sheets and masks to files. SVG needs no library; PNG and PDF need matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..files import written_whole
from . import matplotlib_chart
from .svg_chart import mask_svg, sheet_svg

if TYPE_CHECKING:
    from ..masks.picture import TileMap
    from .chart import Sheet


def draw_sheet(sheet: Sheet, path: str, option: str = "-o") -> None:
    """Draw a sheet to the file that `option` names. The file's name gives the format."""
    kind = matplotlib_chart.format_of(path)
    if kind == "svg":
        write_svg(sheet_svg(sheet), path, option)
    else:
        matplotlib_chart.draw_sheet(sheet, path, kind, option)


def draw_mask(tiles: TileMap, path: str) -> None:
    """Draw a mask to a file. The file's name gives the format."""
    if matplotlib_chart.format_of(path) == "svg":
        write_svg(mask_svg(tiles), path)
    else:
        matplotlib_chart.draw_mask(tiles, path)


def write_svg(text: str, path: str, option: str = "-o") -> None:
    """Write the text of an SVG file, whole or not at all, to the file that `option` names."""
    with written_whole(path, option) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
