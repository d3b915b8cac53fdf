"""The type of a size: an int unless it is said to be an array of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .typing import Size

    S = TypeVar("S", bound=Size, default=int, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S", covariant=True)
