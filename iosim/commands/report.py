"""`iosim report`."""

from __future__ import annotations

import sys

from ..counting.given import counts, memory
from ..errors import InputError
from ..files import form_of
from .options import D, M, N, file_option, memory_options, named_command, problem_options, tile_options, variant_options


@named_command("report", needs=(N, D, M), usual="core")
@problem_options
@memory_options
@tile_options
@variant_options
@file_option("Write to a file, FILE.html; - is stdout.")
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, path: str | None, **given: str | bool | None,
) -> None:  # fmt: skip
    """One self-contained HTML page: traffic against M, a player of tiles that move, counts, bounds, SRAM, the mask.

    Example: iosim report --N 8192 --d 128 --M 100KB -o report.html
    """
    from ..counting import count
    from ..pictures.page import page
    from ..pictures.traffic import traffic_chart
    from ..units import parse_count
    from .answer import emit

    form_of(path, "report")
    values = counts(given)
    size = memory(m, m_elements, hardware)
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --hardware")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = count.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    chart = traffic_chart({k: v for k, v in values.items() if v not in (None, False)}, schedules, tiles, multiple)
    emit(page(found, chart, sys.argv[1:], tiles, multiple), path)
