"""`iosim plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..counting.given import FIELDS, Given, counts, memories, memory
from ..errors import InputError, suggestion
from .options import (
    AXES,
    Need,
    file_option,
    flag_option,
    memory_options,
    named_command,
    problem_options,
    text_option,
    tile_options,
    variant_options,
)

if TYPE_CHECKING:
    from ..pictures.chart import Sheet

PICTURES = ("traffic", "gap", "roofline", "mask")


@named_command("plot", needs=(Need("path"),), axes=AXES, usual="core")
@click.argument("rows", required=False)
@text_option("-x", "With a file of rows: the column on the x axis, as M_bytes.", metavar="COLUMN")
@text_option("-y", "With a file of rows: the column on the y axis, as total.", metavar="COLUMN")
@text_option("--by", "With a file of rows: a line for each value of these, as schedule,tiling.", metavar="COLUMNS")
@flag_option("--steps", "With a file of rows: draw stairs; a value holds until the next x.")
@text_option(
    "--picture",
    "traffic, gap (to the floor, against every M), roofline (with --hardware) or mask.",
    default="traffic",
    show_default=True,
)
@problem_options
@memory_options
@tile_options
@variant_options
@file_option("A .png, .svg or .pdf file.")
def command(
    rows: str | None, x: str | None, y: str | None, by: str | None, steps: bool, picture: str, m: str | None,
    m_elements: str | None, hardware: str | None, tiles: str | None, tile_multiple: str, schedules: tuple[str, ...],
    path: str | None, **given: str | bool | None,
) -> None:  # fmt: skip
    """Pictures: traffic against M or N, the gap to the floor, columns of a sweep, a roofline, a mask.

    If --N or --M is an axis, it is the x axis of the picture. A dashed line needs more SRAM than there is. ROWS is a
    file of iosim sweep, tune or cache.

    Examples: iosim plot --N 8192 --d 128 -o traffic.png;
    iosim plot sweep.csv -x M_bytes -y total --by schedule -o sweep.png;
    iosim plot --picture gap --N 8192 --d 128 -o gap.svg;
    iosim plot --picture roofline --N 8192 --d 128 --heads 32 --hardware h100 -o roofline.svg;
    iosim plot --picture mask --mask 'causal&window:64' --N 512 --tiles 32x32 -o mask.png
    """
    from ..pictures import matplotlib_chart
    from ..pictures.chart import Sheet
    from ..pictures.draw import draw_sheet
    from ..pictures.traffic import read_rows, sheet_of_rows, traffic_chart

    matplotlib_chart.format_of(path)
    file = str(path)
    values: dict[str, str | bool | None] = {FIELDS.get(k, k): v for k, v in given.items() if v not in (None, False)}
    if rows is not None:
        if values or schedules or tiles or m or m_elements or hardware:
            raise InputError(
                "ROWS", f"{rows} and options of a problem", "one of the two", "-x, -y, --by go with a file"
            )
        if x is None or y is None:
            raise InputError("-x, -y", "not both", "columns of the file, as -x M_bytes -y total")
        columns = tuple(by.split(",")) if by else ()
        draw_sheet(sheet_of_rows(read_rows(rows), x, y, columns, steps=steps), file)
        return
    if x or y or by or steps:
        raise InputError("-x, -y, --by, --steps", "given", "a file of rows with them, as iosim sweep writes")
    if picture not in PICTURES:
        raise InputError("--picture", picture, ", ".join(PICTURES), suggestion(picture, PICTURES))
    if picture == "mask":
        plot_mask(given, tiles or "64x64", file)
        return
    if picture == "roofline":
        draw_sheet(roofline_picture(given, m, m_elements, hardware, schedules, tiles, tile_multiple), file)
        return
    if picture == "gap":
        draw_sheet(gap_picture(given, (m, m_elements, hardware, tiles), schedules, tile_multiple), file)
        return
    sizes = [str(place.M) for place in memories(given, m, m_elements, hardware) if place.M is not None]
    if sizes:
        values["M"] = ",".join(dict.fromkeys(sizes))
    draw_sheet(Sheet.of(traffic_chart(values, schedules, tiles, tile_multiple)), file)


def roofline_picture(
    given: Given, m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...],
    tiles: str | None, tile_multiple: str,
) -> Sheet:  # fmt: skip
    """The picture of a roofline on one GPU."""
    from ..pictures.roofline import roofline_sheet
    from ..studies.roofline import roofline
    from ..units import parse_count

    if hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = roofline(hardware=hardware, M=memory(m, m_elements, None), schedules=schedules, tiles=tiles,
                     tile_multiple=multiple, **counts(given))  # fmt: skip
    return roofline_sheet(found)


def gap_picture(given: Given, at: tuple[str | None, ...], schedules: tuple[str, ...], tile_multiple: str) -> Sheet:
    """The picture of the gap between the least traffic and the floor, against every M."""
    from ..pictures.tune_curve import curve_sheet
    from ..tuning.least import trace_curve
    from ..units import parse_count

    if any(one is not None for one in at):
        raise InputError("--M, --tiles", "given", "neither with --picture gap, which goes over every M and its tiles")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    return curve_sheet(trace_curve(schedules=schedules, tile_multiple=multiple, **counts(given)))


def plot_mask(given: Given, tiles: str, file: str) -> None:
    """Draw the picture of the mask among the options."""
    from ..core.tiling import parse_tiles
    from ..masks.picture import tile_map
    from ..pictures import matplotlib_chart

    if given["mask"] is None:
        raise InputError("--mask", "nothing", "a mask, as causal")
    sizes = counts({name: given[name] for name in ("n", "nk")}, required=("N",))
    matplotlib_chart.draw_mask(tile_map(str(given["mask"]), sizes["N"], sizes.get("Nk"), parse_tiles(tiles)), file)
