"""A mask as text: a picture of its active tiles, and its densities beside the formulas that papers give."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

from ..answer import Table, columns_of
from ..core.problem import DENSE, Attention
from ..core.tiling import parse_tiles, tiles_text
from ..errors import InputError
from . import parse_mask

if TYPE_CHECKING:
    from ..core.tiling import TilesAsked
    from ..core.typing import Mask as AnyMask
    from .mask import BoundMask, Mask


WIDEST = 64  # the most tiles a side that are drawn
MOST_PICTURE_PAIRS = 2**28  # pairs of tokens that are evaluated for a picture

TileNumbers = tuple[int, int]  # the numbers of row tiles and of key tiles


class MaskRow(TypedDict):
    """The row of `iosim mask`. `bound` is the mask bound to tiles, or (Tr, Tc) for the dense mask."""

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
    bound: NotRequired[BoundMask | TileNumbers]


def describe(expression: str | AnyMask, tiles: str, N: int, Nk: int | None = None) -> MaskRow:
    """The tile counts and the densities of a mask."""
    p = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(expression))
    tiling = parse_tiles(tiles)
    Tr, Tc = -(-p.N // tiling.rows_q), -(-p.Nk // tiling.rows_k)
    row: MaskRow = {
        "mask": str(expression), "N": p.N, "Nk": p.Nk, "Br": tiling.rows_q, "Bc": tiling.rows_k, "Tr": Tr, "Tc": Tc,
        "active_tiles": Tr * Tc, "tile_density": 1.0, "visible_pairs": N * p.Nk, "token_density": 1.0,
        "formula": None, "formula_density": None, "bound": (Tr, Tc),
    }  # fmt: skip
    if p.mask is DENSE:
        return row
    from .mask import formula_density, token_density

    mask = cast("Mask", p.mask)
    bound = mask.bind(p, tiling, True)
    row["bound"], row["active_tiles"] = bound, int(bound.active_tiles)
    row["tile_density"] = row["active_tiles"] / (Tr * Tc)
    row["visible_pairs"], pairs = token_density(mask, p.N, p.Nk, tiling.rows_q, tiling.rows_k)
    row["token_density"] = row["visible_pairs"] / pairs
    if formula := formula_density(mask, bound):
        row["formula"], row["formula_density"] = formula
    return row


def mask(expression: str | AnyMask, N: int, Nk: int | None = None, *, tiles: TilesAsked = "64x64") -> Table:
    """A picture of a mask, its density, its tile counts, and the formula a paper gives for it: a Table of one row.

    `expression` is a mask as `causal&window:64`, `tiles` are Br x Bc. Raises InputError for whatever is not allowed.
    """
    row = describe(expression, str(tiles_text(tiles)), N, Nk)
    picture = draw(row.pop("bound"))
    hint = ["(one tile covers the whole mask; smaller ones, as --tiles 1x1, show more)"] * (row["Tr"] * row["Tc"] == 1)
    lines = [picture, *hint, *(f"{name}: {'-' if value is None else value}" for name, value in row.items())]
    cells = {name: value for name, value in row.items()}
    title = f"{row['mask']}, {row['N']} x {row['Nk']}, {row['active_tiles']} of {row['Tr'] * row['Tc']} tiles active"
    return Table(columns_of(MaskRow), [cells], title, {**cells, "picture": picture.splitlines()}, ["\n".join(lines)])


def draw(bound: BoundMask | TileNumbers) -> str:
    """The picture of a mask: `#` for an active tile, `.` for a hidden one. A large mask is cut to its first tiles."""
    size = bound if isinstance(bound, tuple) else (bound.Tr, bound.Tc)
    rows, columns = (min(x, WIDEST) for x in size)
    if isinstance(bound, tuple):
        lines = ["#" * columns] * rows
    else:
        lines = ["".join("#" if on else "." for on in line) for line in corner(bound, rows, columns)]
    note = [f"(the first {rows} x {columns} tiles)"] if max(size) > WIDEST else []
    return "\n".join([*lines, *note])


def corner(bound: BoundMask, rows: int, columns: int) -> list[list[bool]]:
    """Whether each of the first rows x columns tiles is active, by evaluating their pairs of tokens."""
    Br, Bc = bound.rows_q, bound.rows_k
    height, width = min(bound.N, rows * Br), min(bound.Nk, columns * Bc)
    if height * width > MOST_PICTURE_PAIRS:
        raise InputError("--tiles", f"{Br}x{Bc}", "smaller tiles, for a picture")
    seen = bound.visible(0, height, 0, width)
    return [
        [bool(seen[i * Br : (i + 1) * Br, j * Bc : (j + 1) * Bc].any()) for j in range(columns)] for i in range(rows)
    ]
