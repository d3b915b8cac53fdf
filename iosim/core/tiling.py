"""Tile sizes, the reader of texts such as `128x64`, and the rule of the FlashAttention paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, overload

from ..errors import InputError
from ..units import LARGEST_COUNT, parse_count
from .arrays import smaller
from .problem import Attention, S

if TYPE_CHECKING:
    from typing import TypeAlias

    from .typing import Size

    TilesAsked: TypeAlias = "str | tuple[int, int] | Tiling"

MMA = 16  # rows, columns and depth of a product on tensor cores: sides of tiles are multiples of it


@dataclass(frozen=True)
class Tiling(Generic[S]):
    """Tile sizes, in rows or positions.

    They may be NumPy integer arrays (a Tiling[Size]). One walk then counts all of them.
    """

    rows_q: S
    """Br: query rows of a tile."""
    rows_k: S
    """Bc: key rows of a tile."""
    rows_s: S = 1  # type: ignore[assignment]
    """Score rows of a tile in a softmax over whole rows."""
    depth: S = 1  # type: ignore[assignment]
    """Positions in a tile of the axis that a matrix product sums over."""
    rows_o: S | None = None
    """Rows of a tile of the output; None if the tile is Br x Bc."""
    cols_o: S | None = None
    """Columns of a tile of the output; None if the tile is Br x Bc."""


def parse_tiles(text: str, where: str = "--tiles", more: tuple[str, ...] = (), rules: bool = False) -> Tiling:
    """The tiling of a text such as `128x64`, which is Br x Bc, query rows first.

    Sizes named in `more` may follow, each after a slash, as in `128x64/depth=8`. With `rules`, the message of an
    InputError names the rules paper and best as well.
    """
    first, *others = str(text).lower().split("/")
    parts = first.split("x")
    if len(parts) != 2:
        raise InputError(where, text, "paper, best, or " * rules + "Br x Bc as in 128x64 (query rows first)")
    rows = [parse_count(part, f"{where} {text}", most=LARGEST_COUNT) for part in parts]
    sizes = dict(other.partition("=")[::2] for other in others)
    if not set(sizes) <= set(more) or len(sizes) < len(others):
        raise InputError(where, text, "Br x Bc" + "".join(f" and /{name}=SIZE" for name in more))
    extra = {name: parse_count(size, f"{where} {text}", most=LARGEST_COUNT) for name, size in sizes.items()}
    return Tiling(*rows, **extra)


def tiles_text(tiles: TilesAsked | None, where: str = "--tiles") -> str | None:
    """Tiles as text: `128x64` for (128, 64) and for Tiling(128, 64), further sizes after slashes. A text, a rule and
    None are returned as they are."""
    if tiles is None or isinstance(tiles, str):
        return tiles
    if isinstance(tiles, Tiling):
        others = {name: size for name, size in vars(tiles).items() if name not in ("rows_q", "rows_k")}
        more = [f"/{name}={size}" for name, size in others.items() if size != getattr(Tiling, name)]
        return f"{tiles.rows_q}x{tiles.rows_k}" + "".join(more)
    if isinstance(tiles, tuple | list) and len(tiles) == 2:
        return "x".join(str(parse_count(size, f"{where} {tiles}", most=LARGEST_COUNT)) for size in tiles)
    raise InputError(where, str(tiles), "paper, best, Br x Bc as 128x64, (128, 64), or a Tiling")


@overload
def paper_tiles(problem: Attention, M_words: int) -> Tiling: ...


@overload
def paper_tiles(problem: Attention[Size], M_words: Size) -> Tiling[Size]: ...


def paper_tiles(problem: Attention[Size], M_words: Size) -> Tiling[Size]:
    """Bc = ceil(M / 4d), Br = min(Bc, d), as in Dao et al. 2022, Algorithm 1, line 1. They usually do not fit."""
    rows_k = -(-M_words // (4 * problem.d))
    return Tiling(smaller(rows_k, problem.d), rows_k)
