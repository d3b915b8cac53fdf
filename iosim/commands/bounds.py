"""`iosim bounds`."""

from __future__ import annotations

from ..counting.given import counts, memories
from .answer import Output, answer_all
from .command import D, N, named_command
from .options import PLACES, chip_options, memory_options, outputs, problem_options


@named_command("bounds", needs=(N, D), axes=PLACES)
@problem_options
@memory_options
@chip_options
@outputs
def command(
    M: str | None, hardware: str | None, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """Proven statements about the least traffic, each with its kind and validity.

    Example: iosim bounds --N 8192 --d 128 --M 100KB
    """
    from ..tuning.proven import bounds

    values, parts = counts(given), []
    for label, size in memories(given, M, hardware):
        parts.append((label, bounds(M=size, **values)))
    answer_all(parts, output)
