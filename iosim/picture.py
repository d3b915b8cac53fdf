"""A mask as text: a picture of its active tiles, and its densities beside the formulas that papers give."""

from __future__ import annotations

from typing import Any, cast

from .errors import InputError
from .experiment import parse_mask
from .problem import DENSE, Attention
from .tiling import parse_tiles

WIDEST = 64


def describe(expression: str, tiles: str, N: int, Nk: int | None = None) -> dict[str, Any]:
    """Tile counts and densities of a mask; `bound` is the mask itself, None where it is dense."""
    problem, tiling = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(expression)), parse_tiles(tiles)
    Tr, Tc = -(-problem.N // tiling.rows_q), -(-problem.Nk // tiling.rows_k)
    row = {"mask": expression, "N": problem.N, "Nk": problem.Nk, "Br": tiling.rows_q, "Bc": tiling.rows_k, "Tr": Tr}
    if problem.mask is DENSE:
        return {**row, "Tc": Tc, "active_tiles": Tr * Tc, "tile_density": 1.0, "visible_pairs": N * problem.Nk,
                "token_density": 1.0, "formula": None, "formula_density": None, "bound": (Tr, Tc)}  # fmt: skip
    from .masks import Mask, formula_density, token_density

    mask = cast("Mask", problem.mask)
    bound = mask.bind(problem, tiling, True)
    visible, pairs = token_density(mask, problem.N, problem.Nk, tiling.rows_q, tiling.rows_k)
    formula = formula_density(mask, bound)
    return {
        **row, "Tc": Tc, "active_tiles": bound.active_tiles, "tile_density": bound.active_tiles / (Tr * Tc),
        "visible_pairs": visible, "token_density": visible / pairs, "formula": formula and formula[0],
        "formula_density": formula and formula[1], "bound": bound,
    }  # fmt: skip


def draw(bound: Any) -> str:
    """`#` for an active tile, `.` for one that is left out; large masks are shown by their first tiles."""
    if isinstance(bound, tuple):
        rows, columns = (min(x, WIDEST) for x in bound)
        lines = ["#" * columns] * rows
        cut = max(bound) > WIDEST
    else:
        rows, columns = min(bound.Tr, WIDEST), min(bound.Tc, WIDEST)
        corner = Corner(bound, rows, columns)
        lines = ["".join("#" if on else "." for on in line) for line in corner.table]
        cut = max(bound.Tr, bound.Tc) > WIDEST
    note = [f"(the first {rows} x {columns} tiles)"] if cut else []
    return "\n".join([*lines, *note])


class Corner:
    """The first tiles of a bound mask, by looking at their tokens."""

    def __init__(self, bound: Any, rows: int, columns: int):
        height, width = min(bound.N, rows * bound.rows_q), min(bound.Nk, columns * bound.rows_k)
        if height * width > 2**28:
            raise InputError("--tiles", f"{bound.rows_q}x{bound.rows_k}", "smaller tiles, for a picture")
        seen = bound.visible(0, height, 0, width)
        self.table = [
            [bool(seen[i * bound.rows_q : (i + 1) * bound.rows_q, j * bound.rows_k : (j + 1) * bound.rows_k].any())
             for j in range(columns)] for i in range(rows)
        ]  # fmt: skip
