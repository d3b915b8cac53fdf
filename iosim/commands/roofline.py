"""`iosim roofline`."""

from __future__ import annotations

import click

from ..counting.given import counts, memory
from .answer import Output, answer
from .options import outputs, problem_options, sram_options, text_option, tile_options, variant_options


@click.command("roofline")
@problem_options
@sram_options
@text_option("--hardware", "Peaks, measured rates and M of a preset or a file; see iosim hardware.", metavar="NAME")
@tile_options
@variant_options
@click.option("--decode", is_flag=True, help="Add the same with one query over the same keys.")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, decode: bool, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """FLOPs by kind, intensity, ridge, and which resource binds, launch by launch, with three times.

    Two times are the ideal roofline: what the peaks of the --hardware allow, with every word from HBM, and with an
    ideal L2. The third is the predicted time of the generated kernels, as in iosim verify, where rates were measured:
    h100, h200, or a file of iosim calibrate. M is what one block of the --hardware may use, unless it is given.

    Example: iosim roofline --N 8192 --d 128 --heads 32 --hardware H100 --decode
    """
    from ..errors import InputError
    from ..studies import roofline, roofline_tables
    from ..units import parse_count

    values = counts(given)
    if hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware")
    size = memory(m, m_elements, None)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = roofline.roofline(
        hardware=hardware, M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, decode=decode, **values
    )
    text = roofline_tables.roofline_text(found)
    answer(roofline_tables.roofline_rows(found), roofline_tables.roofline_json(found), output, text)
