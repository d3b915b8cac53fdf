"""`iosim tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..counting.given import counts, memory
from ..errors import InputError
from .answer import Output, answer
from .options import memory_options, outputs, problem_options, text_option, variant_options

if TYPE_CHECKING:
    from ..tuning.least import Best, Curve

SCHEDULE = click.option(
    "--schedule", "schedules", multiple=True, metavar="NAME", help="Only this schedule; repeatable."
)
LEAST_BLOCKS = (
    "Only choices with at least this many thread blocks, for example one for each SM. Launches that move less than a "
    "tenth of the words do not count."
)


@click.command("tune")
@problem_options
@memory_options
@SCHEDULE
@text_option("--tile-multiple", "Use only tile sizes that are multiples of this.", default="1", show_default=True)
@variant_options
@text_option("--least-blocks", LEAST_BLOCKS, metavar="COUNT")
@click.option("--curve", is_flag=True, help="Every M at which the least traffic falls, instead of one M.")
@text_option("--plot", "With --curve: draw the curve to FILE.png or FILE.svg.", metavar="FILE")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tile_multiple: str,
    least_blocks: str | None, curve: bool, plot: str | None, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """The least traffic over the schedules and tiles that really fit, and how far published tiles are from it.

    Example: iosim tune --N 8192 --d 128 --M 100KB
    """
    from ..tuning import least as tune
    from ..units import parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    blocks = 1 if least_blocks is None else parse_count(least_blocks, "--least-blocks")
    if curve:
        check_curve(size, plot)
        least = tune.trace_curve(schedules=schedules, tile_multiple=multiple, least_blocks=blocks, **values)
        show_curve(least, plot, output)
    else:
        at = one_size(size, plot)
        show_best(tune.tune(M=at, schedules=schedules, tile_multiple=multiple, least_blocks=blocks, **values), output)


def one_size(size: str | None, plot: str | None) -> str:
    """The M to search at; InputError without one, or with --plot, which draws curves only."""
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --curve for all of them")
    if plot is not None:
        raise InputError("--plot", plot, "only with --curve")
    return size


def check_curve(size: str | None, plot: str | None) -> None:
    """Raise InputError for options that do not go with --curve."""
    if size is not None:
        raise InputError("--M", size, "nothing with --curve, which goes over every M", "leave out one of the two")
    if plot is not None:
        from ..pictures.tune_curve import check_name

        check_name(plot)


def show_best(found: Best, output: Output) -> None:
    """Write the answer for one M."""
    from ..tuning import tables

    json = tables.tune_json(found) if output.as_json else None
    answer(tables.tune_rows(found), json, output, tables.tune_text(found))


def show_curve(found: Curve, plot: str | None, output: Output) -> None:
    """Write the answer for every M, and its picture to the file `plot`."""
    from ..tuning import tables

    if plot is not None:
        from ..pictures.tune_curve import draw_curve

        draw_curve(found, plot)
    json = tables.curve_json(found) if output.as_json else None
    text = "" if output.as_json or output.as_csv else tables.curve_text(found)
    answer(tables.curve_rows(found), json, output, text)
