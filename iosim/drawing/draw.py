"""Writes pictures to files: SVG as it is, and PNG and PDF made from it by vl-convert (extra `plot`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ..errors import InputError, MissingError
from ..files import form_of, written_whole

if TYPE_CHECKING:
    from ..tables import Row

PIXELS = 2  # of a PNG, for each pixel of the SVG
POINTS = 0.75  # of a PDF, for each pixel: 96 pixels and 72 points are an inch
MISSING = "PNG and PDF need vl-convert: pip install 'iosim[plot]'; SVG and iosim report work without it"


class Drawn(Protocol):
    """A picture as plain values."""

    @property
    def title(self) -> str:
        """The text above the picture."""
        ...

    def svg(self) -> str:
        """The text of an SVG file."""
        ...

    def rows(self) -> list[Row]:
        """The values that are drawn, as rows."""
        ...


def save(drawn: Drawn, path: str, option: str = "-o") -> None:
    """Draw a picture to the file that `option` names, whole or not at all. The file's name gives the format."""
    form, svg = format_of(path), drawn.svg()
    if form != "svg" and "@keyframes" in svg:
        raise InputError(option, path, "a file that ends in .svg", "the picture moves")
    with written_whole(path, option) as temporary:
        Path(temporary).write_bytes(FORMS[form](svg))


def format_of(path: str | None) -> str:
    """The format that a file's name asks for; InputError for any other name."""
    return form_of(path, "picture", required=True)


def converter() -> ModuleType:
    """The module that renders SVG, with its own fonts. Raises MissingError if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise MissingError(MISSING) from None
    return vl_convert


def png_of(svg: str) -> bytes:
    """A PNG of an SVG file."""
    return bytes(converter().svg_to_png(raised(svg), scale=PIXELS))


SIZE = re.compile('(?<= )(width|height)="([0-9.]+)"')


def pdf_of(svg: str) -> bytes:
    """A PDF of an SVG file, of the size that a browser prints it in."""
    head, body = svg.split(" viewBox", 1)
    smaller = SIZE.sub(lambda found: f'{found[1]}="{float(found[2]) * POINTS:g}"', head)
    return bytes(converter().svg_to_pdf(raised(f"{smaller} viewBox{body}")))


EXPONENT = re.compile("([⁰¹²³⁴-⁹⁻]+)</text>")
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−")


def raised(svg: str) -> str:
    """The SVG with exponents at the ends of texts as raised digits, which every font has."""
    tag = '<tspan dy="-4" font-size="9">{}</tspan></text>'
    return EXPONENT.sub(lambda found: tag.format(found[1].translate(DIGITS)), svg)


FORMS: dict[str, Callable[[str], bytes]] = {"svg": str.encode, "png": png_of, "pdf": pdf_of}
