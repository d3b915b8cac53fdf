"""`iosim plot`."""

from __future__ import annotations

from typing import NamedTuple

import click

from ..commands.answer import say
from ..commands.command import Need, named_command
from ..commands.options import (
    AXES,
    COUNT,
    chip_options,
    file_option,
    flag_option,
    gathered,
    memory_options,
    problem_asked,
    problem_options,
    text_option,
    tile_options,
    variant_options,
)
from ..counting.given import Asked, Fields


class Columns(NamedTuple):
    """The options of a picture of rows: its columns, those that split lines, and whether a value holds until the next
    x."""

    x: str | None
    y: str | None
    by: str | None
    steps: bool


@named_command(
    "plot",
    needs=(Need("path"),),
    axes=(*AXES, "ranks"),
    usual="core",
    first="picture N d M heads causal hardware schedules tiles",
)
@click.argument("rows", required=False)
@text_option("-x", "With a file of rows: the column on the x axis, as M_bytes.", metavar="COLUMN")
@text_option("-y", "With a file of rows: the column on the y axis, as total.", metavar="COLUMN")
@text_option("--by", "With a file of rows: a line for each value of these, as schedule,tiling.", metavar="COLUMNS")
@flag_option("--steps", "With a file of rows: draw stairs; a value holds until the next x.")
@text_option(
    "--picture",
    "traffic, gap (to the floor, against every M), race (moves; SVG), "
    "roofline, time (least, and kept measurements), predicted (generated kernels by the model; all three with "
    "--hardware), links (words between GPUs, with --ranks) or mask.",
    default="traffic",
)
@text_option("--ranks", "With --picture links: numbers of GPUs, as 2:64:x2.", metavar="COUNTS", kind=COUNT)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@file_option("A .png, .svg or .pdf file.")
@gathered(columns=Columns)
@problem_asked
def command(
    rows: str | None, columns: Columns, picture: str, ranks: str | None, asked: Asked, path: str | None
) -> None:
    """Pictures: traffic against M or N, the gap to the floor, columns of a sweep, a roofline,
    times, a mask.

    If --N or --M is an axis, it is the x axis of the picture. A schedule that does not fit has a dashed line. ROWS is a
    file of iosim sweep, tune or cache.

    Examples: iosim plot --N 8192 --d 128 -o traffic.png;
    iosim plot sweep.csv -x M_bytes -y total --by schedule -o sweep.png;
    iosim plot --picture gap --N 8192 --d 128 -o gap.svg;
    iosim plot --picture roofline --N 8192 --d 128 --heads 32 --hardware h100 -o roofline.svg;
    iosim plot --picture race --N 64 --d 16 --tiles 16x16 -o race.svg;
    iosim plot --picture time --N 1024:8192:x2 --d 128 --heads 32 --hardware h100 -o time.svg;
    iosim plot --picture predicted --N 1024:4096:x2 --d 128 --tiles 128x64 --hardware h100 -o predicted.svg;
    iosim plot --picture links --ranks 2:64:x2 --N 131072 --d 128 --heads 32 --kv-heads 8 -o links.svg;
    iosim plot --picture mask --mask 'causal&window:64' --N 512 --tiles 32x32 -o mask.png
    """
    from ..counting.sentence import joined
    from ..drawing.asked import kind_of
    from ..drawing.draw import format_of
    from .plot import plot

    format_of(path)
    values: Fields = {name: value for name, value in asked.given.items() if value not in (None, False)}
    values |= {name: value for name, value in asked.choice._asdict().items() if value not in (None, (), False)}
    if vain := kind_of(picture).unused(values):
        say([f"{joined(vain)} {'changes' if len(vain) == 1 else 'change'} nothing in --picture {picture}"])
    found = plot(rows, **columns._asdict(), picture=picture, ranks=ranks, path=path, **values)
    say(found.notes)
