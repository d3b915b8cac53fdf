"""`iosim tune`."""

from __future__ import annotations

from typing import Any

import click

from ..options import counts, memory, memory_options, outputs, problem_options, text_option, variant_options

SCHEDULE = click.option("--schedule", "schedules", multiple=True, metavar="NAME", help="Only this one; repeatable.")
LEAST_BLOCKS = (
    "Only what gives so many thread blocks in each launch that moves a tenth of the words, as one for each SM."
)


@click.command("tune")
@problem_options
@memory_options
@SCHEDULE
@text_option("--tile-multiple", "Keep to tiles that are multiples of this.", default="1", show_default=True)
@variant_options
@text_option("--least-blocks", LEAST_BLOCKS, metavar="COUNT")
@click.option("--curve", is_flag=True, help="Every M at which the least traffic falls, instead of one M.")
@text_option("--plot", "With --curve: draw it, FILE.png or FILE.svg.", metavar="FILE")
@outputs
def command(m: Any, m_elements: Any, hardware: Any, schedules: Any, tile_multiple: Any, least_blocks: Any, curve: bool,
            plot: Any, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:  # fmt: skip
    """The least traffic over schedules, loop orders and tiles that really fit, and how far published tiles are from it.

    Example: iosim tune --N 8192 --d 128 --M 100KB
    """
    from ..units import parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware)
    values |= {"schedules": schedules, "tile_multiple": parse_count(tile_multiple, "--tile-multiple")}
    if least_blocks is not None:
        values["least_blocks"] = parse_count(least_blocks, "--least-blocks")
    if curve:
        show_curve(values, size, plot, as_json, as_csv, path)
    else:
        show_tuned(values, size, plot, as_json, as_csv, path)


def show_tuned(values: dict[str, Any], size: Any, plot: Any, as_json: bool, as_csv: bool, path: Any) -> None:
    from .. import tune, tune_report
    from ..errors import InputError
    from ..output import answer

    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --curve for all of them")
    if plot is not None:
        raise InputError("--plot", plot, "only with --curve")
    found = tune.tune(M=size, **values)
    json = tune_report.tuned_json(found) if as_json else None
    rows = tune_report.tuned_rows(found)
    answer(rows, json, as_json, as_csv, path, tune_report.tuned_text(found))


def show_curve(values: dict[str, Any], size: Any, plot: Any, as_json: bool, as_csv: bool, path: Any) -> None:
    from .. import tune, tune_report
    from ..errors import InputError
    from ..output import answer

    if size is not None:
        raise InputError("--M", size, "nothing with --curve, which goes over every M", "leave out one of the two")
    if plot is not None:
        from .. import curve_plot

        curve_plot.check_name(plot)
    found = tune.trace_curve(**values)
    if plot is not None:
        curve_plot.draw(found, plot)
    json = tune_report.curve_json(found) if as_json else None
    text = "" if as_json or as_csv else tune_report.curve_text(found)
    answer(tune_report.curve_rows(found), json, as_json, as_csv, path, text)
