"""The tile of least traffic for several matrix products that use the same tile sizes, one after the other.

In each product a tile of the result stays, and parts of both factors stream. With more rows or columns traffic never
grows. It depends only on the numbers of passes, and for each of these the smallest size is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, cast

from ..core.arrays import larger, smaller
from .pairs import cheaper, integers, sizes_by_passes

if TYPE_CHECKING:
    from ..core.typing import Size
    from .pairs import SizeArray


@dataclass(frozen=True)
class Outputs:
    """Products of (rows, columns, positions that are summed over), with tiles of `sizes` that may be clipped."""

    products: tuple[tuple[int, int, int], ...]
    acc_bytes: int
    """Bytes of a word of the result, and of the first factor."""
    word_bytes: int
    """Bytes of a word of the second factor."""
    sizes: tuple[str, str] = ("rows_o", "cols_o")
    others: tuple[str, ...] = ("depth",)
    sees: None = None

    def needed(self, rows: Size, columns: Size, multiple: int) -> Size:
        """The bytes that the largest of the products needs, with parts of `multiple` positions."""
        found = []
        for most_rows, most_columns, summed in self.products:
            r, c, depth = smaller(rows, most_rows), smaller(columns, most_columns), min(multiple, summed)
            found.append(r * c * self.acc_bytes + depth * (r * self.acc_bytes + c * self.word_bytes))
        return reduce(larger, found)

    def cost(self, rows: Size, columns: Size) -> Size:
        """The words that the products read."""
        return sum(
            summed * (most_rows * -(-most_columns // columns) + most_columns * -(-most_rows // rows))
            for most_rows, most_columns, summed in self.products
        )

    def axis(self, number: int, multiple: int) -> list[int]:
        """The sizes worth trying along an axis of the results."""
        lengths = {product[number] for product in self.products}
        return sorted({size for length in lengths for size in sizes_by_passes(length, multiple)})

    def least(self, M_bytes: int, multiple: int) -> tuple[int, int] | None:
        """The tile (rows, columns) of least cost that fits; None if none does."""
        rows, found = self.axis(0, multiple), []
        for columns in self.axis(1, multiple):
            fitting = [n for n in rows if self.needed(n, columns, multiple) <= M_bytes]
            if fitting:
                found.append((cast("int", self.cost(fitting[-1], columns)), fitting[-1], columns))
        return min(found)[1:] if found else None

    def falls(self, multiple: int) -> list[SizeArray]:
        """The tiles that `least` finds, for every M at once: arrays of M, rows and columns."""
        import numpy as np

        both = np.meshgrid(np.array(self.axis(0, multiple), object), np.array(self.axis(1, multiple), object))
        rows, columns = (sizes.ravel() for sizes in both)
        most = max(r for r, _, _ in self.products), max(c for _, c, _ in self.products)
        kind = integers(int(self.cost(1, 1)), int(self.needed(*most, multiple)))
        rows, columns = rows.astype(kind), columns.astype(kind)
        M, cost = (cast("SizeArray", x) for x in (self.needed(rows, columns, multiple), self.cost(rows, columns)))
        kept = cheaper(M, cost)
        return [column[kept] for column in (M, rows, columns)]

    def tile(self, rows: Size, columns: Size, multiple: int) -> dict[str, Size]:
        """The sizes by their fields of Tiling."""
        return dict(zip(self.sizes, (rows, columns), strict=True)) | dict.fromkeys(self.others, multiple)
