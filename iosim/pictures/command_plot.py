"""`iosim plot`."""

from __future__ import annotations

from typing import NamedTuple

import click

from ..commands.answer import Output, answer_all, say
from ..commands.command import named_command
from ..commands.options import (
    AXES,
    COUNT,
    chip_options,
    csv_option,
    file_option,
    flag_option,
    gathered,
    json_option,
    memory_options,
    problem_asked,
    problem_options,
    repeated_option,
    text_option,
    tile_options,
    variant_options,
)
from ..counting.given import Asked, Fields
from ..drawing.asked import kind_of, places


class Columns(NamedTuple):
    """The options of a picture of rows: its columns, those that split lines, and whether a value holds until the next
    x."""

    x: str | None
    y: str | None
    by: str | None
    steps: bool
    where: tuple[str, ...]


@named_command(
    "plot",
    axes=(*AXES, "ranks"),
    usual="core",
    first="picture N d M heads causal mask hardware schedules tiles path",
)
@click.argument("rows", required=False)
@text_option("-x", "With a file of rows: the column on the x axis, as M_bytes.", metavar="COLUMN")
@text_option("-y", "With a file of rows: the column on the y axis, as total.", metavar="COLUMN")
@text_option("--by", "With a file of rows: a line for each value of these, as schedule,tiling.", metavar="COLUMNS")
@flag_option("--steps", "With a file of rows: draw stairs; a value holds until the next x.")
@repeated_option(
    "--where",
    "where",
    "With a file of rows: only those of these values, as N=4096; may be repeated.",
    metavar="COLUMN=VALUE",
)
@text_option(
    "--picture",
    f"What is drawn: {', '.join(places())}. Times need --hardware, links needs --ranks; race moves, as SVG.",
    default="traffic",
)
@text_option("--ranks", "With --picture links: numbers of GPUs, as 2:64:x2.", metavar="COUNTS", kind=COUNT)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@json_option
@csv_option
@file_option("A .png, .svg or .pdf file; .json and .csv have what is drawn. A mask needs none.")
@gathered(columns=Columns, output=Output)
@problem_asked
def command(rows: str | None, columns: Columns, picture: str, ranks: str | None, asked: Asked, output: Output) -> None:
    """Pictures: traffic against M or N, the gap to the floor, columns of a sweep, a roofline,
    times, a mask.

    If --N or --M is an axis, it is the x axis of the picture. A schedule that does not fit has a dashed line. ROWS is a
    file of iosim sweep, tune or cache. A mask is text, unless it has a file.

    Examples: iosim plot --N 8192 --d 128 -o traffic.png;
    iosim plot sweep.csv -x M_bytes -y total --by schedule -o sweep.png;
    iosim plot --picture gap --N 8192 --d 128 -o gap.svg;
    iosim plot --picture roofline --N 8192 --d 128 --heads 32 --hardware h100 -o roofline.svg;
    iosim plot --picture race --N 64 --d 16 --tiles 16x16 -o race.svg;
    iosim plot --picture time --N 1024:8192:x2 --d 128 --heads 32 --hardware h100 -o time.svg;
    iosim plot --picture links --ranks 2:64:x2 --N 131072 --d 128 --heads 32 --kv-heads 8 -o links.svg;
    iosim plot --picture mask --mask 'causal&window:64' --N 512 --tiles 32x32
    """
    from ..counting.sentence import joined
    from ..files import PICTURE, form_of
    from .plot import plot

    kind = kind_of(picture)
    stated = (kind.text and output.on_stdout) or output.as_json or output.as_csv
    form = "" if stated else form_of(output.path, "said picture" if kind.text else "plot", required=True)
    values: Fields = {name: value for name, value in asked.given.items() if value not in (None, False)}
    values |= {name: value for name, value in asked.choice._asdict().items() if value not in (None, (), False)}
    if vain := kind.unused(values):
        say([f"{joined(vain)} {'changes' if len(vain) == 1 else 'change'} nothing in --picture {picture}"])
    path = output.path if form in PICTURE else None
    found = plot(rows, **columns._asdict(), picture=picture, ranks=ranks, path=path, **values)
    if path is not None:
        say(found.notes)
        return
    answer_all(
        [({}, found)], output._replace(as_json=output.as_json or form == "json", as_csv=output.as_csv or form == "csv")
    )
