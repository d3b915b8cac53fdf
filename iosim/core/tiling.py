"""Tile sizes, the reader of what users give for them, and the rule of the FlashAttention paper."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, get_args, overload

from ..errors import InputError
from ..units import LARGEST_COUNT, parse_count
from .arrays import smaller

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import TypeVar

    from .typing import Size

    S = TypeVar("S", bound=Size, default=int, covariant=True)

    class Sizes(Protocol[S]):
        """The sizes of a problem."""

        @property
        def N(self) -> S: ...

        @property
        def Nk(self) -> S: ...

        @property
        def d(self) -> S: ...

    TilesAsked: TypeAlias = "str | tuple[int, int] | Tiling"
else:
    from typing import TypeVar

    S = TypeVar("S")  # the type of a size: an int, or a Size in an Attention[Size] and a Tiling[Size]

RuleName = Literal["ideal", "paper", "best"]
RULES = get_args(RuleName)
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
    kept: S | None = None
    """Keys that stay on chip for the whole run; None if they are those of one tile."""


Rule = RuleName | Tiling
"""The tiles of a schedule: the name of the rule that chooses them, or given ones."""
MORE_SIZES = tuple(name for name in Tiling.__dataclass_fields__ if name not in ("rows_q", "rows_k"))


def parse_tiles(tiles: TilesAsked, where: str = "--tiles", more: Collection[str] = (), rules: bool = False) -> Tiling:
    """The tiling that tiles stand for: Br x Bc as the text `128x64` or as (128, 64), query rows first, or a Tiling.

    Sizes named in `more` may follow in a text, each after a slash, as in `128x64/depth=8`. With `rules`, the message of
    an InputError names the rules paper and best as well.
    """
    if isinstance(tiles, Tiling):
        return tiles
    if isinstance(tiles, tuple | list) and len(tiles) == 2:
        return Tiling(*(parse_count(size, f"{where} {tiles}", most=LARGEST_COUNT) for size in tiles))
    if not isinstance(tiles, str):
        raise InputError(where, str(tiles), "paper, best, Br x Bc as 128x64, (128, 64), or a Tiling")
    first, *others = tiles.lower().split("/")
    parts = first.split("x")
    if len(parts) != 2:
        raise InputError(where, tiles, "paper, best, or " * rules + "Br x Bc as in 128x64 (query rows first)")
    rows = [parse_count(part, f"{where} {tiles}", most=LARGEST_COUNT) for part in parts]
    sizes = dict(other.partition("=")[::2] for other in others)
    if not set(sizes) <= set(more) or len(sizes) < len(others):
        raise InputError(where, tiles, allowed_sizes(more))
    extra = {name: parse_count(size, f"{where} {tiles}", most=LARGEST_COUNT) for name, size in sizes.items()}
    return Tiling(*rows, **extra)


def allowed_sizes(more: Collection[str]) -> str:
    """The sizes that a text of tiles may have, for messages."""
    return "Br x Bc" + "".join(f" and /{name}=SIZE" for name in more)


def read_tiles(tiles: TilesAsked | None, where: str = "--tiles") -> Rule | None:
    """The rule that a user gives for tiles: its name, or a tiling, which may have all sizes. None stays None."""
    if tiles is None or tiles in RULES:
        return tiles  # type: ignore[return-value]
    return parse_tiles(tiles, where, MORE_SIZES, rules=True)


def tiles_text(tiles: TilesAsked) -> str:
    """Tiles as `--tiles` takes them: `128x64`, with further sizes after slashes. A text and a rule stay as they are."""
    if isinstance(tiles, str):
        return tiles
    tiling = parse_tiles(tiles)
    return f"{tiling.rows_q}x{tiling.rows_k}" + "".join(f"/{name}={n}" for name, n in further_sizes(tiling).items())


def rule_name(rule: Rule) -> str:
    """The name of a rule, as results have it: `given` for a tiling."""
    return "given" if isinstance(rule, Tiling) else rule


def further_sizes(tiling: Tiling) -> dict[str, int]:
    """The sizes beside Br and Bc that are not at their defaults, by name."""
    sizes = {name: getattr(tiling, name) for name in MORE_SIZES}
    return {name: size for name, size in sizes.items() if size != getattr(Tiling, name)}


@overload
def paper_tiles(problem: Sizes, M_words: int) -> Tiling: ...


@overload
def paper_tiles(problem: Sizes[Size], M_words: Size) -> Tiling[Size]: ...


def paper_tiles(problem: Sizes[Size], M_words: Size) -> Tiling[Size]:
    """Bc = ceil(M / 4d), Br = min(Bc, d), as in Dao et al. 2022, Algorithm 1, line 1; at most Nk and N. They usually do
    not fit."""
    rows_k = -(-M_words // (4 * problem.d))
    return Tiling(smaller(smaller(rows_k, problem.d), problem.N), smaller(rows_k, problem.Nk))
