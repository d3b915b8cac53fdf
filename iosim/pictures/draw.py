"""Draws a sheet to a file. SVG needs no library; PNG and PDF need matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..files import written_whole
from . import matplotlib_chart
from .svg_chart import sheet_svg

if TYPE_CHECKING:
    from .chart import Sheet


def draw_sheet(sheet: Sheet, path: str, option: str = "-o") -> None:
    """Draw a sheet to the file that `option` names. The file's name gives the format."""
    kind = matplotlib_chart.format_of(path)
    if kind != "svg":
        matplotlib_chart.draw_sheet(sheet, path, kind, option)
        return
    with written_whole(path, option) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(sheet_svg(sheet))
