"""A picture as `iosim.plot` answers it: what is drawn, with notes."""

from __future__ import annotations

from dataclasses import dataclass

from ..answer import Answer, Column, Pieces, Row, Table, numbered, type_of
from . import draw
from .draw import Drawn
from .sheet import Sheet


@dataclass(frozen=True, repr=False)
class Picture(Answer):
    """The answer of `plot`: charts, a mask tile by tile, or tiles that move. A notebook shows it as SVG."""

    drawn: Drawn
    """The drawing, as plain values."""
    remarks: tuple[str, ...] = ()
    """Notes on the answer that is drawn."""
    said: Table | None = None
    """The answer in text, where a picture has one: of a mask, its tiles as letters, and their counts."""

    @property
    def notes(self) -> list[str]:
        """Notes on the answer that is drawn, which the command writes to stderr."""
        return [*self.remarks]

    def save(self, path: str) -> None:
        """Draw it to a file whose name ends in .svg, .png or .pdf. The last two need vl-convert (extra `plot`)."""
        draw.save(self.drawn, path)

    def svg(self) -> str:
        """The picture as SVG text."""
        return self.drawn.svg()

    def _repr_html_(self) -> str:
        svg = self.svg()
        return svg[svg.index("<svg") :]

    def table(self) -> Table:
        """A row for each point of each line. Of a mask, its counts."""
        if self.said:
            return self.said
        rows = self.drawn.rows()
        cells = {name: cell for row in rows for name, cell in row.items()}  # charts may have columns of their own
        return Table([Column(name, type_of(cell)) for name, cell in cells.items()], rows)

    def to_dict(self) -> Row:
        return self.said.to_dict() if self.said else {"title": self.drawn.title, "points": self.drawn.rows()}

    def pieces(self) -> Pieces:
        return self.said.pieces() if self.said else [self.drawn.title]

    def summary(self) -> str:
        lines = f"; {numbered(len(self.drawn.lines), 'line')}" if isinstance(self.drawn, Sheet) else ""
        return self.drawn.title + lines
