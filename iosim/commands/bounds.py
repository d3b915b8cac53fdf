"""`iosim bounds`."""

from __future__ import annotations

from ..counting.given import counts, memories
from .answer import Output, answer_all
from .options import SIZES, D, N, chip_options, memory_options, named_command, outputs, problem_options


@named_command("bounds", needs=(N, D), axes=SIZES)
@problem_options
@memory_options
@chip_options
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """Proven statements about the least traffic, each with its kind and validity.

    Example: iosim bounds --N 8192 --d 128 --M 100KB
    """
    from ..tuning.proven import bounds

    values, parts = counts(given), []
    for label, size in memories(given, m, m_elements, hardware):
        parts.append((label, bounds(M=size, **values)))
    answer_all(parts, output)
