"""The colours of pictures: people with any kind of colour vision can tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; neighbours here differ most.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")
SCHEDULES_SEEN = ("standard", "standard-tiled", "flash1", "flash2")  # in most pictures; colours go with COLOURS
TENSORS = {
    "Q": "#0072B2", "K": "#D55E00", "V": "#E69F00", "S": "#CC79A7", "P": "#882255", "O": "#009E73", "l": "#56B4E9",
    "m": "#44AA99", "LSE": "#56B4E9",
}  # fmt: skip
"""The colour of each tensor, the same on every page and in every picture. `tensor_colours` knows the others."""
OTHERS = ("#332288", "#999933", "#117733", "#AA4499", "#661100")  # colours of blocks that are not tensors of TENSORS
INK, GREY = "#333333", "#767676"  # of texts


def tensor_colours(names: Iterable[str]) -> dict[str, str]:
    """The colour of each tensor or block: that of TENSORS, for dQ and Opart that of Q and O. The rest get
    colours that no tensor has, in their order."""
    base = {name: name.removeprefix("d").removesuffix("part").removesuffix("scale") or name for name in names}
    known = {name: TENSORS[root] for name, root in base.items() if root in TENSORS}
    others = [name for name in base if name not in known]
    return known | {name: OTHERS[k % len(OTHERS)] for k, name in enumerate(others)}


def ink_on(colour: str) -> str:
    """The colour of letters on a colour: white or black, which has more contrast."""
    return max(("#FFFFFF", "#000000"), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as #rrggbb, from 1 to 21, as the Web Content Accessibility Guidelines define it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of a colour, from 0 to 1."""
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
