"""What kept kernels took over their bounds (configs/measured/over_bounds.json, of validation/over_bounds.py)."""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

from ..hardware import configs_folder
from ..verdict import joined

LEAST_SECONDS = 50e-6  # of the bounds that are compared: below, the launch of a kernel decides its time


class OverBound(NamedTuple):
    """Measured times over their bounds, of one kind of kernels."""

    kind: str
    gpus: list[str]
    kernels: int
    least: float
    median: float
    most: float


@cache
def over_bounds() -> tuple[OverBound, ...]:
    """The figures of each kind."""
    text = (configs_folder() / "measured" / "over_bounds.json").read_text(encoding="utf-8")
    return tuple(OverBound(**row) for row in json.loads(text)["kinds"])


def measured_over_bounds() -> str:
    """The sentence about them: how far above such a bound a kernel may be expected."""
    each = [
        f"{one.kind} took {one.least:.1f} to {one.most:.1f} times it on {joined(one.gpus)} (median {one.median:.1f} of "
        f"{one.kernels})"
        for one in over_bounds()
    ]
    return f"Where a least time is {LEAST_SECONDS * 1e6:.0f} us or more, {'; '.join(each)}."
