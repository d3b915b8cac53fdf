"""A picture of traffic, of rows, of a roofline or of a mask, as `iosim.plot` answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..core.tiling import parse_tiles, tiles_text
from ..counting.count import check_names
from ..counting.given import counts, memories, memory, problem
from ..counting.sweep_axes import AXES, schedule_names
from ..errors import InputError, suggestion
from ..notebook import Answer, numbered
from ..studies.roofline import roofline
from ..tuning.least import curve
from ..units import parse_count
from . import draw
from .asked import check_asked, is_axis
from .draw import Drawn
from .footprint import footprint
from .mask import tile_map
from .predicted import predicted_sheet
from .race import Race, race
from .roofline import roofline_sheet
from .sheet import Sheet
from .timeline import timeline
from .traffic import read_rows, sheet_of_rows, traffic_chart
from .tune_curve import curve_sheet

if TYPE_CHECKING:
    import pandas as pd

    from ..core.tiling import TilesAsked
    from ..counting.given import Given
    from ..counting.sweep_axes import AxisValue
    from ..grid import Pieces
    from ..schedules.registry import SchedulesAsked
    from ..tables import Row

PICTURES = ("traffic", "gap", "roofline", "mask", "footprint", "timeline", "race", "predicted")
TAKEN = ("rows", "x", "y", "by", "steps", "picture", "schedules", "tiles", "tile_multiple", "path", "hardware")


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

    def to_rows(self) -> list[Row]:
        """A row for each point of each line. A mask has a row for each tile, with the share of it that is visible. SRAM
        has a row for each block and moment."""
        return self.drawn.rows()

    def to_dict(self) -> Row:
        return {"title": self.drawn.title, "points": self.to_rows()}

    def pieces(self) -> Pieces:
        return [self.drawn.title]

    def summary(self) -> str:
        lines = f"; {numbered(len(self.drawn.lines), 'line')}" if isinstance(self.drawn, Sheet) else ""
        return self.drawn.title + lines


def plot(
    rows: str | pd.DataFrame | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    by: str | Sequence[str] = (),
    steps: bool = False,
    picture: str = "traffic",
    hardware: str | None = None,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | str = 1,
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
    - `plot(picture="predicted", N="1024:4096:x2", d=128, tiles=(128, 64), hardware="H100")`: times by the model.
    - `plot(picture="mask", mask="causal&window:64", N=512, tiles=(32, 32))`: a mask, tile by tile.
    - `path`: a file to draw to as well: .svg, .png or .pdf.

    Raises InputError for whatever is not allowed.
    """
    check_names("plot", values, (*AXES, *TAKEN))
    if path is not None:
        draw.format_of(path)
    text = tiles_text(tiles)
    if rows is not None:
        if values or hardware or text or schedules:
            hint = "rows, as iosim plot sweep.csv -x M_bytes -y total --by schedule, or --N and --d"
            raise InputError("rows", "rows and options of a problem", "one of the two", hint)
        if picture != "traffic":
            raise InputError("--picture", picture, "no --picture with a file of rows", "-x and -y name its columns")
        found = of_rows(rows, x, y, by, steps)
    else:
        if x or y or by or steps:
            allowed = "a file of rows with them, as iosim plot sweep.csv -x M_bytes -y total"
            raise InputError("-x, -y, --by, --steps", "given", allowed)
        found = of_problem(picture, values, hardware, schedule_names(schedules), text, tile_multiple)
    if path is not None:
        found.save(path)
    return found


def of_rows(rows: str | pd.DataFrame, x: str | None, y: str | None, by: str | Sequence[str], steps: bool) -> Picture:
    """The picture of columns of a table or of a file."""
    if x is None or y is None:
        raise InputError("-x, -y", "not both", "columns of the file, as -x M_bytes -y total")
    columns = tuple(filter(None, by.split(","))) if isinstance(by, str) else tuple(by)
    return Picture(sheet_of_rows(read_rows(rows) if isinstance(rows, str) else rows, x, y, columns, steps=steps))


def of_problem(
    picture: str,
    values: Mapping[str, AxisValue],
    hardware: str | None,
    schedules: Sequence[str],
    tiles: str | None,
    multiple: str | int,
) -> Picture:
    """A picture from axes and options of a sweep: any of PICTURES."""
    if picture not in PICTURES:
        raise InputError("--picture", picture, ", ".join(PICTURES), suggestion(picture, PICTURES))
    check_asked(picture, values, hardware, tiles)
    if picture == "mask":
        return of_mask(values, tiles)
    if picture == "roofline":
        return of_roofline(values, hardware, schedules, tiles, multiple)
    if picture == "predicted":
        step = parse_count(multiple, "--tile-multiple")
        return Picture(predicted_sheet(values, hardware or "", schedules, tiles, step))
    if picture in ("footprint", "timeline", "race"):
        return of_blocks(picture, values, hardware, schedules, tiles, multiple)
    if picture == "gap":
        step = parse_count(multiple, "--tile-multiple")
        return Picture(curve_sheet(curve(schedules=schedules, tile_multiple=step, **counts(given_of(values)))))
    M = values.get("M")
    places = [] if hardware is None else memories({}, None if M is None else str(M), hardware)
    sizes = [str(place.M) for place in places if place.M is not None]
    if len(set(sizes)) == 1 and not is_axis(values["N"]):
        allowed = "GPUs with different M, as v100,h100, or none for every M"
        raise InputError("--hardware", hardware, allowed, "or several --N, as --N 1024,2048")
    axes = {**values, "M": ",".join(dict.fromkeys(sizes))} if sizes else dict(values)
    return Picture(Sheet.of(traffic_chart(axes, tuple(schedules), tiles, multiple)))


def given_of(values: Mapping[str, AxisValue]) -> Given:
    """The options of one problem, as a command line gives them."""
    return cast("Given", values)


def of_roofline(
    values: Mapping[str, AxisValue], hardware: str | None, schedules: Sequence[str], tiles: str | None,
    multiple: str | int,
) -> Picture:  # fmt: skip
    """The picture of a roofline on one GPU."""
    assert hardware is not None
    fields = counts(given_of({name: value for name, value in values.items() if name != "M"}))
    step = parse_count(multiple, "--tile-multiple")
    M = cast("int | str | None", values.get("M"))
    found = roofline(hardware=hardware, M=M, schedules=schedules, tiles=tiles, tile_multiple=step, **fields)
    return Picture(roofline_sheet(found), (*found.notes,))


def of_blocks(
    picture: str, values: Mapping[str, AxisValue], hardware: str | None, schedules: Sequence[str], tiles: str | None,
    multiple: str | int,
) -> Picture:  # fmt: skip
    """The picture of what is in SRAM, `footprint` or `timeline`, or of two schedules in motion, `race`."""
    p = problem(given_of({name: value for name, value in values.items() if name != "M"}))
    given = cast("str | None", None if values.get("M") is None else str(values["M"]))
    M, step = memory(given, hardware), parse_count(multiple, "--tile-multiple")
    if picture == "race":
        return Picture(race(p, M, schedules, tiles, step))
    ask = footprint if picture == "footprint" else timeline
    return Picture(ask(p, M, schedules, tiles, step))


def of_mask(values: Mapping[str, AxisValue], tiles: str | None) -> Picture:
    """The picture of the mask among the values."""
    N, Nk = (None if values.get(n) is None else parse_count(cast("int", values[n]), f"--{n}") for n in ("N", "Nk"))
    assert N is not None
    return Picture(tile_map(str(values["mask"]), N, Nk, parse_tiles(tiles or "64x64")))
