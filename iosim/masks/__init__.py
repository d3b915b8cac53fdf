"""Masks: predicates on (query, key) pairs, from their text to exact counts of tiles.

In reading order: atoms.py is the table of predicates. expression.py joins them, text.py and files.py read them, and
mask.py binds a mask to tiles. Its counts come
from closed_form.py where strips.py finds one, else from intervals.py, which stands on the pieces of rows of pieces.py.
seen.py and visible.py count pairs of tokens for the floors. reach.py, dropout.py and picture.py are for schedules and
for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.mask_types import Mask


def parse_mask(text: str | Mask) -> Mask:
    """The mask that a text describes; a mask is returned as it is. `dense` imports little."""
    if text == "dense":
        from ..core.problem import DENSE

        return DENSE
    if not isinstance(text, str) and hasattr(text, "bind"):
        return text
    from .mask import parse

    return parse(text)  # type: ignore[arg-type]  # it says what is wrong with another value
