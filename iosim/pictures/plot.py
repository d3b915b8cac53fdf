"""`iosim.plot`: a picture of a problem, of the kind that is asked for, or of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.tiling import tiles_text
from ..counting.given import Choice
from ..counting.names import takes_options
from ..counting.sweep_axes import AXES, AxisValue, schedule_names
from ..drawing import draw
from ..drawing.asked import Asked, kind_of
from ..drawing.picture import Picture
from ..errors import InputError
from .traffic import read_rows, rows_where, sheet_of_rows

if TYPE_CHECKING:
    import pandas as pd

    from ..core.tiling import TilesAsked
    from ..schedules.registry import SchedulesAsked


@takes_options(*AXES)
def plot(
    rows: str | pd.DataFrame | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    by: str | Sequence[str] = (),
    steps: bool = False,
    where: Sequence[str] = (),
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
      or `cache`. With `steps`, a value holds until the next x; with `where=["N=4096"]`, only rows of these values.
    - `plot(picture="gap", N=8192, d=128)`: the gap between the least traffic and the floor, against every M.
    - `plot(picture="roofline", N=8192, d=128, hardware="H100")`: the launches of a roofline on a GPU.
    - `plot(picture="race", N=64, d=16, tiles=(16, 16))`: two schedules in motion, tile by tile, as SVG.
    - `plot(picture="time", N="1024:8192:x2", d=128, heads=32, hardware="H100")`: the least times, and kept ones.
    - `plot(picture="mask", mask="causal&window:64", N=512, tiles=(32, 32))`: a mask, tile by tile.
    - `plot(picture="links", N=131072, d=128, heads=32, ranks="2:64:x2")`: the words that a GPU receives from others.
    - `path`: a file to draw to as well: .svg, .png or .pdf.

    Raises InputError for whatever is not allowed.
    """
    if path is not None:
        draw.format_of(path)
    M, text = values.pop("M", None), None if tiles is None else tiles_text(tiles)
    choice = Choice(axis_text(M), hardware, tuple(schedule_names(schedules)), text, tile_multiple, paper_model)
    if rows is not None:
        check_rows(picture, bool(values) or choice[:-2] != Choice()[:-2])
        found = of_rows(rows, x, y, by or (), steps, [where] if isinstance(where, str) else where)
    else:
        if x or y or by or steps or where:
            allowed = "a file of rows with them, as iosim plot sweep.csv -x M_bytes -y total"
            raise InputError("-x, -y, --by, --steps, --where", "given", allowed)
        found = of_problem(Asked(picture, values, choice, ranks))
    if path is not None:
        found.save(path)
    return found


def of_problem(asked: Asked) -> Picture:
    """The picture of a problem."""
    kind = kind_of(asked.picture)
    under = (Choice() if "hardware" in kind.ignores else asked.choice).under(asked.values)
    values = {name: value for name, value in under.options.items() if name not in kind.ignores}
    asked = replace(asked, values=values, choice=asked.choice._replace(tile_multiple=under.multiple))
    kind.check(asked)
    found = kind.draw(asked)
    return replace(found, remarks=(*under.notes, *found.remarks))


def check_rows(picture: str, with_problem: bool) -> None:
    """Raise InputError for options of a problem, or of another picture, beside a file of rows."""
    if with_problem:
        hint = "rows, as iosim plot sweep.csv -x M_bytes -y total --by schedule, or --N and --d"
        raise InputError("rows", "rows and options of a problem", "one of the two", hint)
    if picture != "traffic":
        raise InputError("--picture", picture, "no --picture with a file of rows", "-x and -y name its columns")


def of_rows(
    rows: str | pd.DataFrame,
    x: str | None,
    y: str | None,
    by: str | Sequence[str],
    steps: bool,
    where: Sequence[str] = (),
) -> Picture:
    """The picture of columns of a table or of a file, of all rows or of those of some values."""
    if x is None or y is None:
        raise InputError("-x, -y", "not both", "columns of the file, as -x M_bytes -y total")
    columns = tuple(filter(None, by.split(","))) if isinstance(by, str) else tuple(by)
    kept = rows_where(read_rows(rows) if isinstance(rows, str) else rows, where)
    return Picture(sheet_of_rows(kept, x, y, columns, steps=steps))


def axis_text(value: AxisValue) -> str | None:
    """An axis as the command line takes it: a list has commas. None stays None."""
    if value is None:
        return None
    return ",".join(map(str, value)) if isinstance(value, list | tuple | range) else str(value)
