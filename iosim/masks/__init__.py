"""Masks: predicates on (query, key) pairs, from text to exact counts of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.problem import DENSE

if TYPE_CHECKING:
    from ..core.typing import Mask


def parse_mask(text: str | Mask) -> Mask:
    """The mask of a text; a mask is returned as it is. The dense mask loads nothing more."""
    if text == "dense" or text is DENSE:
        return DENSE
    from . import mask

    return cast("Mask", text) if isinstance(text, mask.Mask) else mask.parse(cast("str", text))
