"""`iosim tune`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..counting.given import Asked, Choice, names_of
from ..errors import InputError, suggestion
from ..options import ANSWER
from .answer import Output, answer_all
from .command import D, N, Need, named_command
from .options import (
    PLACES,
    SIZES_OR_RANGE,
    chip_options,
    flag_option,
    memory_with,
    multiple_option,
    outputs,
    own_option,
    problem_asked,
    problem_options,
    schedule_option,
    size_option,
    variant_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.problem import Attention

WAYS = ("traffic", "time")
INSTEAD = {
    "--plot": "iosim plot --picture gap -o FILE.svg draws the curve",
    "--tiles": "iosim tune finds the tiles itself; iosim count --tiles 128x64 counts given ones",
}
LEAST_BLOCKS = (
    "Only tilings with at least this many thread blocks, for example one for each SM. Launches that move less than a "
    "tenth of the words are ignored."
)
EVERY = "Show every row: also of schedules that another one dominates, and with --curve every M."


@named_command("tune", needs=(N, D, Need("M", ("hardware", "curve"))), instead=INSTEAD, axes=PLACES)
@problem_options
@memory_with(size_option(" With --curve also a range, as 16KB:1MB.", SIZES_OR_RANGE))
@schedule_option()
@multiple_option
@variant_options
@chip_options
@own_option("least_blocks", LEAST_BLOCKS)
@own_option(
    "by",
    "traffic (default), or time: the fastest tiles of generated kernels by the time model, beside those "
    "of least traffic. time needs --hardware h100, h200, a file of iosim calibrate, or several of these.",
)
@own_option("curve", "Show the M at which the least traffic falls, of all or of a range, instead of one M.")
@flag_option(
    "--all", "Show every row: of schedules that another one dominates too, and with --curve every M.", ANSWER, "every"
)
@outputs
@problem_asked
def command(asked: Asked, least_blocks: str | None, by: str | None, curve: bool, every: bool, output: Output) -> None:
    """The least traffic of all schedules and tiles that fit, and the distance of published tiles from it.

    Example: iosim tune --N 8192 --d 128 --M 100KB
    """
    from ..tuning import least as tune
    from ..units import parse_count

    fields, choice, multiple = asked.fields, asked.choice, asked.choice.multiple
    blocks = 1 if least_blocks is None else parse_count(least_blocks, "--least-blocks")
    if by not in (None, *WAYS):
        raise InputError("--by", by, " or ".join(WAYS), suggestion(str(by), WAYS))
    if by == "time":
        check_time({"--M": choice.M, "--least-blocks": least_blocks, "--curve": curve or None})
        show_fastest(asked.problem, choice, multiple, output)
        return
    fields |= {"schedules": choice.schedules, "tile_multiple": multiple, "least_blocks": blocks}
    if curve:
        check_curve({"--hardware": choice.hardware})
        answer_all([({}, replace(tune.curve(M=choice.M, **fields), every=every))], output)
        return
    check_step(choice.M)
    found = ((label, tune.tune(M=one_size(size), **fields)) for label, size in asked.places)
    answer_all([(label, replace(best, every=every)) for label, best in found], output)


def one_size(size: str | int | None) -> str | int:
    """The M to search at. Raises InputError without one."""
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --curve for all of them")
    return size


def check_step(sizes: str | None) -> None:
    """Raise InputError for a range of M without a step, which only --curve takes."""
    if sizes is not None and sizes.count(":") == 1:
        raise InputError("--M", sizes, "a step, as in 16KB:256KB:x2", "or --curve for every M of the range")


def check_time(others: Mapping[str, object]) -> None:
    """Raise InputError for options that exclude --by time: its kernels use the shared memory of a GPU."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise InputError("--by", f"time with {given[0]}", "--hardware, whose shared memory counts", "leave out one")


def show_fastest(p: Attention, choice: Choice, multiple: int, output: Output) -> None:
    """Write the fastest tiles by the time model on each GPU, with progress on stderr."""
    from ..progress import under_way
    from ..studies.fastest import Fastest
    from ..studies.fastest_tiles import fastest

    if choice.hardware is None:
        raise InputError("--by", "time", "with --hardware h100, h200, or a file of iosim calibrate")
    names, parts = names_of(choice.hardware), []
    for name in names:
        with under_way() as tell:
            found = fastest(
                p, name, choice.schedules, multiple, lambda share: tell(f"{share:.0%} of the predictions are made")
            )
        parts.append(({"hardware": name} if len(names) > 1 else {}, Fastest(found)))
    answer_all(parts, output)


def check_curve(sizes: Mapping[str, str | None]) -> None:
    """Raise InputError for options that do not go with --curve."""
    for option, size in sizes.items():
        if size is not None:
            raise InputError(option, size, "nothing with --curve, which goes over every M", "leave out one of the two")
