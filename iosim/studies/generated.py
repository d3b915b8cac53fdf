"""`--predict generated`: what the wing gpu offers on the kernels that iosim writes itself."""

from __future__ import annotations

from ..errors import InputError
from ..wings import offered

GENERATED = "generated"


def asked_of_generated(what: str | None, word: str) -> object | None:
    """The function that answers about generated kernels; None if nobody asks. Raises InputError for a word other than
    `generated`, and without the wing that predicts them."""
    if what is None:
        return None
    if what != GENERATED:
        raise InputError("--predict", what, f"{GENERATED}: the times of the kernels that iosim writes itself")
    if (found := offered(word)) is None:
        raise InputError("--predict", what, "nothing", "iosim/gpu, which predicts generated kernels, is not there")
    return found
