"""A picture of traffic, of rows, of a roofline or of a mask, as `iosim.plot` answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ..answer import Answer, Column, Pieces, Row, Table, numbered, type_of
from ..core.tiling import parse_tiles, tiles_text
from ..counting.given import Choice, Given, memories, problem
from ..counting.names import takes_options
from ..counting.sweep_axes import AXES, AxisValue, schedule_names
from ..errors import InputError, suggestion
from ..studies.roofline import roofline
from ..tuning.least import curve
from . import draw
from .asked import Asked, check_asked, is_axis
from .draw import Drawn
from .footprint import footprint
from .mask import tile_map
from .race import Race, race
from .roofline import roofline_sheet, time_sheet
from .sheet import Sheet
from .timeline import timeline
from .traffic import read_rows, sheet_of_rows, traffic_chart
from .tune_curve import curve_sheet

if TYPE_CHECKING:
    import pandas as pd

    from ..core.typing import Attention, Rule, TilesAsked
    from ..schedules.registry import SchedulesAsked

    Blocks = Callable[[Attention, str | None, Sequence[str], Rule | None, int], Drawn]


@dataclass(frozen=True, repr=False)
class Picture(Answer):
    """The answer of `plot`: charts, a mask tile by tile, or the contents of SRAM. A notebook shows it as SVG."""

    drawn: Drawn
    """The drawing, as plain values."""
    remarks: tuple[str, ...] = ()
    """Notes on the answer that is drawn."""

    @property
    def notes(self) -> list[str]:
        """Notes on the answer that is drawn, which the command writes to stderr."""
        return [*self.remarks]

    def save(self, path: str) -> None:
        """Draw it to a file whose name ends in .svg, .png or .pdf. The last two need vl-convert (extra `plot`)."""
        if isinstance(self.drawn, Race) and draw.format_of(path) != "svg":
            raise InputError("-o", path, "a file that ends in .svg", "the picture moves")
        draw.save(self.drawn, path)

    def svg(self) -> str:
        """The picture as SVG text."""
        return self.drawn.svg()

    def _repr_html_(self) -> str:
        svg = self.svg()
        return svg[svg.index("<svg") :]

    def table(self) -> Table:
        """A row for each point of each line. A mask has a row for each tile, with the share of it that is visible. SRAM
        has a row for each block and moment."""
        rows = self.drawn.rows()
        cells = {name: cell for row in rows for name, cell in row.items()}  # charts may have columns of their own
        return Table([Column(name, type_of(cell)) for name, cell in cells.items()], rows)

    def to_dict(self) -> Row:
        return {"title": self.drawn.title, "points": self.drawn.rows()}

    def pieces(self) -> Pieces:
        return [self.drawn.title]

    def summary(self) -> str:
        lines = f"; {numbered(len(self.drawn.lines), 'line')}" if isinstance(self.drawn, Sheet) else ""
        return self.drawn.title + lines


@takes_options(*AXES)
def plot(
    rows: str | pd.DataFrame | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    by: str | Sequence[str] = (),
    steps: bool = False,
    picture: str = "traffic",
    ranks: AxisValue = None,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | str | None = None,
    path: str | None = None,
    **values: AxisValue,
) -> Picture:
    """A picture, which a notebook shows: traffic against M or N, columns of a table, a roofline, or a mask.

    - `plot(N=8192, d=128)`: the words that schedules move against M; against N if `N` is an axis and `M` is given. Axes
      and options are those of `sweep`.
    - `plot(rows, x="M_bytes", y="total", by="schedule")`: columns of a DataFrame, or of a file of `iosim sweep`, `tune`
      or `cache`. With `steps`, a value holds until the next x.
    - `plot(picture="gap", N=8192, d=128)`: the gap between the least traffic and the floor, against every M.
    - `plot(picture="roofline", N=8192, d=128, hardware="H100")`: the launches of a roofline on a GPU.
    - `plot(picture="footprint", N=8192, d=128, M="100KB")`: what fills the SRAM at its fullest, as bars.
    - `plot(picture="timeline", N=64, d=16, M="4KB")`: what is in SRAM over the words moved, for one head.
    - `plot(picture="race", N=64, d=16, tiles=(16, 16))`: two schedules in motion, tile by tile, as SVG.
    - `plot(picture="time", N="1024:8192:x2", d=128, heads=32, hardware="H100")`: the least times, and kept ones.
    - `plot(picture="predicted", N="1024:4096:x2", d=128, tiles=(128, 64), hardware="H100")`: by the model.
    - `plot(picture="mask", mask="causal&window:64", N=512, tiles=(32, 32))`: a mask, tile by tile.
    - `plot(picture="links", N=131072, d=128, heads=32, ranks="2:64:x2")`: the words that a GPU receives from others.
    - `path`: a file to draw to as well: .svg, .png or .pdf.

    Raises InputError for whatever is not allowed.
    """
    if path is not None:
        draw.format_of(path)
    M, names = values.pop("M", None), tuple(schedule_names(schedules))
    if picture == "links":
        from .links import links_sheet

        return drawn_to(Picture(links_sheet(ranks, names, values)), path)
    size, text = None if M is None else axis_text(M), None if tiles is None else tiles_text(tiles)
    choice = Choice(size, hardware, names, text, tile_multiple, paper_model)
    if rows is not None:
        check_rows(picture, bool(values) or choice[:-2] != Choice()[:-2])
        found = of_rows(rows, x, y, by or (), steps)
    else:
        if x or y or by or steps:
            allowed = "a file of rows with them, as iosim plot sweep.csv -x M_bytes -y total"
            raise InputError("-x, -y, --by, --steps", "given", allowed)
        under = (Choice() if picture == "mask" else choice).under(values)
        found = of_problem(Asked(picture, under.options, choice._replace(tile_multiple=under.multiple)))
        found = replace(found, remarks=(*under.notes, *found.remarks))
    return drawn_to(found, path)


def drawn_to(found: Picture, path: str | None) -> Picture:
    """A picture, drawn to a file as well if there is a path."""
    if path is not None:
        found.save(path)
    return found


def check_rows(picture: str, with_problem: bool) -> None:
    """Raise InputError for options of a problem, or of another picture, beside a file of rows."""
    if with_problem:
        hint = "rows, as iosim plot sweep.csv -x M_bytes -y total --by schedule, or --N and --d"
        raise InputError("rows", "rows and options of a problem", "one of the two", hint)
    if picture != "traffic":
        raise InputError("--picture", picture, "no --picture with a file of rows", "-x and -y name its columns")


def of_problem(asked: Asked) -> Picture:
    """A picture of a problem: one of PICTURES."""
    if asked.picture not in PICTURES:
        raise InputError("--picture", asked.picture, ", ".join(PICTURES), suggestion(asked.picture, PICTURES))
    check_asked(asked)
    return PICTURES[asked.picture](asked)


def of_rows(rows: str | pd.DataFrame, x: str | None, y: str | None, by: str | Sequence[str], steps: bool) -> Picture:
    """The picture of columns of a table or of a file."""
    if x is None or y is None:
        raise InputError("-x, -y", "not both", "columns of the file, as -x M_bytes -y total")
    columns = tuple(filter(None, by.split(","))) if isinstance(by, str) else tuple(by)
    return Picture(sheet_of_rows(read_rows(rows) if isinstance(rows, str) else rows, x, y, columns, steps=steps))


def axis_text(value: AxisValue) -> str:
    """An axis as the command line takes it: a list has commas."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple | range) else str(value)


def of_traffic(asked: Asked) -> Picture:
    """The picture of traffic against M or N. Several GPUs are an axis of M."""
    choice = asked.choice
    if choice.hardware is not None:
        places = memories({}, choice.M, choice.hardware)
        sizes = [str(place.M) for place in places]
        if len(set(sizes)) == 1 and not is_axis(asked.values["N"]):
            allowed = "GPUs with different M, as v100,h100, or none for every M"
            raise InputError("--hardware", choice.hardware, allowed, "or several --N, as --N 1024,2048")
        choice = choice._replace(M=",".join(dict.fromkeys(sizes)))
    axes = dict(asked.values) if choice.M is None else {**asked.values, "M": choice.M}
    return Picture(Sheet.of(traffic_chart(axes, choice.schedules, choice.tiles, asked.multiple)))


def of_gap(asked: Asked) -> Picture:
    """The picture of the gap between the least traffic and the floor."""
    choice = asked.choice
    return Picture(curve_sheet(curve(schedules=choice.schedules, tile_multiple=asked.multiple, **asked.fields)))


def of_roofline(asked: Asked) -> Picture:
    """The picture of a roofline on one GPU."""
    found = roofline(**asked.choice._asdict(), **asked.fields)
    return Picture(roofline_sheet(found), (*found.notes,))


def of_time(asked: Asked) -> Picture:
    """The picture of times, at the peaks or predicted too."""
    return Picture(time_sheet(asked))


def of_mask(asked: Asked) -> Picture:
    """The picture of the mask."""
    shown = {name: asked.values.get(name) for name in ("N", "Nk", "mask")}
    p = problem(cast("Given", {**shown, "d": "1"}))
    return Picture(tile_map(p.mask, p.N, p.Nk, parse_tiles(asked.choice.tiles or "64x64")))


def of_blocks(draw_blocks: Blocks) -> Callable[[Asked], Picture]:
    """A picture of the blocks in SRAM, or of two schedules in motion."""

    def drawn(asked: Asked) -> Picture:
        choice = asked.choice
        return Picture(draw_blocks(asked.problem, asked.memory, choice.schedules, choice.rule, asked.multiple))

    return drawn


PICTURES: dict[str, Callable[[Asked], Picture]] = {
    "traffic": of_traffic,
    "gap": of_gap,
    "roofline": of_roofline,
    "mask": of_mask,
    "footprint": of_blocks(footprint),
    "timeline": of_blocks(timeline),
    "race": of_blocks(race),
    "time": of_time,
    "predicted": of_time,
}
