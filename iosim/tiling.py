"""Tile sizes: the value, how it is read from text, and the published rule that chooses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .elementwise import smaller
from .errors import InputError
from .problem import Attention
from .units import LARGEST_COUNT, parse_count


@dataclass(frozen=True)
class Tiling:
    """Br = rows_q query rows and Bc = rows_k key rows a tile; rows_s score rows in a softmax over whole rows.

    `depth`: positions of the axis that a matrix product sums over. `rows_o` x `cols_o`: the tile of the output where
    it is not Br x Bc (None).
    """

    rows_q: Any
    rows_k: Any
    rows_s: Any = 1
    depth: Any = 1
    rows_o: Any = None
    cols_o: Any = None


def parse_tiles(text: str, where: str = "--tiles", more: tuple[str, ...] = (), rules: bool = False) -> Tiling:
    """`128x64` is Br x Bc, query rows first. After a slash, as in `128x64/depth=8`, the sizes that `more` names. With
    `rules` a message says that paper and best are allowed too."""
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


def paper_tiles(problem: Attention, M_words: Any) -> Tiling:
    """Bc = ceil(M / 4d), Br = min(Bc, d). Dao et al. 2022, Algorithm 1, line 1. They do not fit in most cases."""
    rows_k = -(-M_words // (4 * problem.d))
    return Tiling(smaller(rows_k, problem.d), rows_k)
