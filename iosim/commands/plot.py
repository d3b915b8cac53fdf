"""`iosim plot`."""

from __future__ import annotations

import click

from ..counting.given import FIELDS, Given, counts, memories
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

PICTURES = ("traffic", "mask")


@named_command("plot", needs=(Need("path"),), axes=AXES, usual="core")
@click.argument("rows", required=False)
@text_option("-x", "With a file of rows: the column on the x axis, as M_bytes.", metavar="COLUMN")
@text_option("-y", "With a file of rows: the column on the y axis, as total.", metavar="COLUMN")
@text_option("--by", "With a file of rows: a line for each value of these, as schedule,tiling.", metavar="COLUMNS")
@flag_option("--steps", "With a file of rows: draw stairs; a value holds until the next x.")
@text_option("--picture", "traffic or mask.", default="traffic", show_default=True)
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
    """Pictures: traffic against M or N, columns of a sweep, a mask.

    If --N or --M is an axis, it is the x axis of the picture. A dashed line needs more SRAM than there is. ROWS is a
    file of iosim sweep, tune or cache.

    Examples: iosim plot --N 8192 --d 128 -o traffic.png;
    iosim plot sweep.csv -x M_bytes -y total --by schedule -o sweep.png;
    iosim plot --picture mask --mask 'causal&window:64' --N 512 --tiles 32x32 -o mask.png
    """
    from ..pictures import matplotlib_chart
    from ..pictures.traffic import from_rows, read_rows, traffic_chart

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
        matplotlib_chart.draw_chart(from_rows(read_rows(rows), x, y, columns, steps=steps), file)
        return
    if x or y or by or steps:
        raise InputError("-x, -y, --by, --steps", "given", "a file of rows with them, as iosim sweep writes")
    if picture not in PICTURES:
        raise InputError("--picture", picture, ", ".join(PICTURES), suggestion(picture, PICTURES))
    if picture == "mask":
        plot_mask(given, tiles or "64x64", file)
        return
    sizes = [str(place.M) for place in memories(given, m, m_elements, hardware) if place.M is not None]
    if sizes:
        values["M"] = ",".join(dict.fromkeys(sizes))
    matplotlib_chart.draw_chart(traffic_chart(values, schedules, tiles, tile_multiple), file)


def plot_mask(given: Given, tiles: str, file: str) -> None:
    """Draw the picture of the mask among the options."""
    from ..core.tiling import parse_tiles
    from ..masks.picture import tile_map
    from ..pictures import matplotlib_chart

    if given["mask"] is None:
        raise InputError("--mask", "nothing", "a mask, as causal")
    sizes = counts({name: given[name] for name in ("n", "nk")}, required=("N",))
    matplotlib_chart.draw_mask(tile_map(str(given["mask"]), sizes["N"], sizes.get("Nk"), parse_tiles(tiles)), file)
