"""Dropout from a seed. Whether an element is dropped follows from (seed, row, column), so nothing is stored.

The generator is counter-based: SplitMix64 (Steele, Lea, Flood 2014) at position row * 2^32 + column of its sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from ..units import parse_count

if TYPE_CHECKING:
    from ..core.shapes import Tile
    from ..core.typing import Array

GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Dropout:
    """Dropout of the probabilities of attention. Each becomes 0 with `probability`, and is divided by 1 - probability
    otherwise."""

    probability: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 1:
            raise InputError("--dropout", self.probability, "a number from 0, below 1")

    def part(self, i: Tile, j: Tile) -> DropoutPart:
        """Dropout over one tile of queries x keys."""
        return DropoutPart(self, i, j)

    def factors(self, rows: range, keys: range) -> Array:
        """The factors of rows x keys, each 0 or 1 / (1 - probability), in float64."""
        import numpy as np

        row, key = np.array(rows, np.uint64)[:, None], np.array(keys, np.uint64)[None, :]
        with np.errstate(over="ignore"):
            x = ((row << np.uint64(32)) + key + np.uint64(1)) * np.uint64(GOLDEN) + np.uint64(self.seed)
            for shift, factor in MIX:
                x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
            x ^= x >> np.uint64(31)
        kept = (x >> np.uint64(11)) * 2.0**-53 >= self.probability
        return kept / (1 - self.probability)


class DropoutPart(NamedTuple):
    """Dropout over one tile."""

    dropout: Dropout
    i: Tile
    j: Tile

    def array(self) -> Array:
        """The factors of the tile."""
        rows, keys = (range(x.start, x.start + x.size) for x in (self.i, self.j))
        return self.dropout.factors(rows, keys)


def parse_dropout(text: str | None, seed: str) -> Dropout | None:
    """The dropout of a probability and a seed, both given as text; None without a probability."""
    if text is None:
        return None
    try:
        probability = float(text)
    except ValueError:
        raise InputError("--dropout", text, "a number from 0, below 1") from None
    return Dropout(probability, parse_count(seed, "--seed", least=0))
