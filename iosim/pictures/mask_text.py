"""A mask as text: a picture of its active tiles, and its densities beside the formulas that papers give."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..answer import Table, columns_of
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..errors import InputError
from ..masks import parse_mask
from ..masks.expression import DENSE
from ..masks.mask import BoundMask, Mask, formula_density

if TYPE_CHECKING:
    from ..core.mask_types import Mask as AnyMask
    from ..core.typing import Bools


COUNTED = ("active_tiles", "visible_pairs")
WIDEST = 64  # the most tiles a side that are drawn
MOST_PICTURE_PAIRS = 2**28  # pairs of tokens that are evaluated for a picture


class MaskRow(TypedDict):
    """The counts of a mask."""

    mask: str
    N: int
    Nk: int
    Br: int
    Bc: int
    Tr: int
    Tc: int
    active_tiles: int
    tile_density: float
    visible_pairs: int
    token_density: float
    formula: str | None
    formula_density: float | None


def bound(expression: str | AnyMask, tiling: Tiling, N: int, Nk: int | None) -> BoundMask:
    """The mask over N queries and Nk keys, in tiles. The dense mask is an expression here, like all others."""
    p = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(expression))
    found = p.mask if isinstance(p.mask, Mask) else Mask("dense", DENSE)
    return found.bind(p, tiling)


def describe(expression: str | AnyMask, tiling: Tiling, N: int, Nk: int | None = None) -> MaskRow:
    """The tile counts and the densities of a mask."""
    of = bound(expression, tiling, N, Nk)
    active, seen = int(of.active_tiles), of.visible_pairs()
    formula, density = formula_density(of) or (None, None)
    return {
        "mask": str(expression),
        "N": of.N,
        "Nk": of.Nk,
        "Br": of.rows_q,
        "Bc": of.rows_k,
        "Tr": of.Tr,
        "Tc": of.Tc,
        "active_tiles": active,
        "tile_density": active / (of.Tr * of.Tc),
        "visible_pairs": seen,
        "token_density": seen / (of.N * of.Nk),
        "formula": formula,
        "formula_density": density,
    }


def counts_of(expression: str | AnyMask, tiling: Tiling, N: int, Nk: int | None = None) -> Table:
    """A mask as text, its tile counts and densities, and the formula that a paper gives for it: a Table of one row."""
    row, picture = describe(expression, tiling, N, Nk), draw(bound(expression, tiling, N, Nk))
    hint = ["(one tile covers the whole mask; smaller ones, as --tiles 1x1, show more)"] * (row["Tr"] * row["Tc"] == 1)
    lines = [picture, *hint, *(f"{name}: {shown(name, value)}" for name, value in row.items())]
    cells = {name: value for name, value in row.items()}
    return Table(columns_of(MaskRow), [cells], "", {**cells, "picture": picture.splitlines()}, ["\n".join(lines)])


def shown(name: str, value: object) -> str:
    """A cell as people see it: counts have their digits in groups, and sizes stand as the options take them."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) and name in COUNTED else str(value)


def draw(of: BoundMask) -> str:
    """The picture of a mask: `#` for an active tile, `.` for a hidden one. A large mask is cut to its first tiles."""
    rows, columns = min(of.Tr, WIDEST), min(of.Tc, WIDEST)
    if of.active_tiles == of.Tr * of.Tc:
        lines = ["#" * columns] * rows
    else:
        lines = ["".join("#" if on else "." for on in line) for line in corner(of, rows, columns)]
    note = [f"(the first {rows} x {columns} tiles)"] if max(of.Tr, of.Tc) > WIDEST else []
    return "\n".join([*lines, *note])


def corner(of: BoundMask, rows: int, columns: int) -> Bools:
    """Whether each of the first rows x columns tiles is active, by evaluating their pairs of tokens."""
    import numpy as np

    Br, Bc = of.rows_q, of.rows_k
    height, width = min(of.N, rows * Br), min(of.Nk, columns * Bc)
    if height * width > MOST_PICTURE_PAIRS:
        raise InputError("--tiles", f"{Br}x{Bc}", "smaller tiles, for a picture")
    seen = np.logical_or.reduceat(of.visible(0, height, 0, width), range(0, height, Br), axis=0)
    return np.logical_or.reduceat(seen, range(0, width, Bc), axis=1)
