"""`iosim tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.given import counts, memories, names_of, problem
from ..errors import InputError, suggestion
from .answer import Output, answer_all
from .options import (
    COUNT,
    SIZES,
    D,
    N,
    Need,
    chip_options,
    flag_option,
    memory_options,
    multiple_option,
    named_command,
    outputs,
    problem_options,
    schedule_option,
    text_option,
    variant_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.problem import Attention
    from ..tuning.least import Curve

WAYS = ("traffic", "time")
INSTEAD = {"--tiles": "iosim tune finds the tiles itself; iosim count --tiles 128x64 counts given ones"}
LEAST_BLOCKS = (
    "Only tilings with at least this many thread blocks, for example one for each SM. Launches that move less than a "
    "tenth of the words are ignored."
)


@named_command("tune", needs=(N, D, Need("m", ("m_elements", "hardware", "curve"))), instead=INSTEAD, axes=SIZES)
@problem_options
@memory_options
@schedule_option()
@multiple_option
@variant_options
@chip_options
@text_option("--least-blocks", LEAST_BLOCKS, metavar="COUNT", kind=COUNT)
@text_option(
    "--by",
    "traffic (default), or time: the fastest tiles of generated kernels by the time model, beside those "
    "of least traffic. time needs --hardware h100, h200, a file of iosim calibrate, or several of these.",
    metavar="WHAT",
)
@flag_option("--curve", "Show every M at which the least traffic falls, instead of one M.")
@text_option("--plot", "With --curve: draw the curve to FILE.png or FILE.svg.", metavar="FILE")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tile_multiple: str,
    least_blocks: str | None, by: str | None, curve: bool, plot: str | None, output: Output,
    **given: str | bool | None,
) -> None:  # fmt: skip
    """The least traffic of all schedules and tiles that fit, and the distance of published tiles from it.

    Example: iosim tune --N 8192 --d 128 --M 100KB
    """
    from ..tuning import least as tune
    from ..units import parse_count

    values = counts(given)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    blocks = 1 if least_blocks is None else parse_count(least_blocks, "--least-blocks")
    if by not in (None, *WAYS):
        raise InputError("--by", by, " or ".join(WAYS), suggestion(str(by), WAYS))
    if by == "time":
        check_time({"--M": m, "--M-elements": m_elements, "--least-blocks": least_blocks, "--curve": curve or None})
        show_fastest(problem(given), hardware, schedules, multiple, output)
        return
    places = memories(given, m, m_elements, hardware)
    if curve:
        check_curve({"--M": m, "--M-elements": m_elements, "--hardware": hardware}, plot)
        least = tune.curve(schedules=schedules, tile_multiple=multiple, least_blocks=blocks, **values)
        show_curve(least, plot, output)
        return
    parts = []
    for label, M in places:
        at = one_size(M, plot)
        found = tune.tune(M=at, schedules=schedules, tile_multiple=multiple, least_blocks=blocks, **values)
        parts.append((label, found))
    answer_all(parts, output)


def one_size(size: str | int | None, plot: str | None) -> str | int:
    """The M to search at. Raises InputError without one, and with --plot, which draws only curves."""
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --curve for all of them")
    if plot is not None:
        raise InputError("--plot", plot, "only with --curve")
    return size


def check_time(others: Mapping[str, object]) -> None:
    """Raise InputError for options that exclude --by time: its kernels use the shared memory of a GPU."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise InputError("--by", f"time with {given[0]}", "--hardware, whose shared memory counts", "leave out one")


def show_fastest(p: Attention, hardware: str | None, schedules: tuple[str, ...], multiple: int, output: Output) -> None:
    """Write the fastest tiles by the time model on each GPU, with progress on stderr."""
    from ..progress import under_way
    from ..studies.fastest import Fastest
    from ..studies.fastest_tiles import fastest

    if hardware is None:
        raise InputError("--by", "time", "with --hardware h100, h200, or a file of iosim calibrate")
    names, parts = names_of(hardware), []
    for name in names:
        with under_way() as tell:
            found = fastest(
                p, name, schedules, multiple, lambda share: tell(f"{share:.0%} of the predictions are made")
            )
        parts.append(({"hardware": name} if len(names) > 1 else {}, Fastest(found)))
    answer_all(parts, output)


def check_curve(sizes: Mapping[str, str | None], plot: str | None) -> None:
    """Raise InputError for options that do not go with --curve."""
    for option, size in sizes.items():
        if size is not None:
            raise InputError(option, size, "nothing with --curve, which goes over every M", "leave out one of the two")
    if plot is not None:
        from ..pictures.tune_curve import check_name

        check_name(plot)


def show_curve(found: Curve, plot: str | None, output: Output) -> None:
    """Write the answer for every M, and its picture to the file `plot`."""
    if plot is not None:
        from ..pictures.tune_curve import draw_curve

        draw_curve(found, plot)
    answer_all([({}, found)], output)
