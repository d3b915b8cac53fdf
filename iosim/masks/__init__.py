"""Masks: predicates on (query, key) pairs, from their text to exact counts of tiles.

In reading order: expression.py and text.py parse, mask.py binds a mask to tiles. Its counts come from closed_form.py or
from counts.py, which stands on bands.py. visible.py and visible_intervals.py count pairs of tokens for the floors.
reach.py, dropout.py and picture.py are for schedules and for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.problem import DENSE

if TYPE_CHECKING:
    from ..core.typing import Mask


def parse_mask(text: str | Mask) -> Mask:
    """The mask that a text describes; a mask is returned as it is. `dense` imports no further module."""
    if text == "dense" or text is DENSE:
        return DENSE
    from . import mask

    return cast("Mask", text) if isinstance(text, mask.Mask) else mask.parse(cast("str", text))
