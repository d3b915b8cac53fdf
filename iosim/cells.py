"""Rows as columns of NumPy arrays in which cells may be empty, as files and DataFrames have them.

Imports NumPy; pandas is imported for DataFrames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from .tables import Rows

    Whole = NDArray[np.int64]  # or Python integers (dtype object), if int64 is too small
    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]
    Values = NDArray[np.generic[object]]  # integers, truths, floats, texts or Python objects


def are_none(cells: Iterable[object]) -> Flags:
    """Which of the cells are None."""
    return np.array([cell is None for cell in cells], bool)


@dataclass(frozen=True)
class Cells:
    """A column: its values, and which cells are empty. An empty float is NaN, an empty object is None, and any other
    empty cell may have any value. With `labels` the values are indices into them."""

    values: Values
    absent: Flags
    labels: tuple[str, ...] = ()

    @classmethod
    def full(cls, values: Values, labels: tuple[str, ...] = ()) -> Cells:
        """A column without empty cells."""
        return cls(values, np.broadcast_to(np.False_, values.shape), labels)

    @classmethod
    def of(cls, cells: Sequence[object]) -> Cells:
        """The column of these cells. None is an empty one. Beside floats integers become floats."""
        absent, known = are_none(cells), [cell for cell in cells if cell is not None]
        if known and all(isinstance(cell, bool) for cell in known):
            return cls(np.array([bool(cell) for cell in cells]), absent)
        if known and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known):
            if any(isinstance(cell, float) for cell in known):
                return cls(np.array(cells, float), absent)
            if all(abs(cast("int", cell)) < 2**63 for cell in known):
                return cls(np.array([cell or 0 for cell in cells], np.int64), absent)
        values = np.empty(len(cells), object)
        values[:] = cells
        return cls(values, absent)

    def to_list(self) -> list[object]:
        """The cells. None is an empty one."""
        cells = np.array(self.labels, object)[self.values].tolist() if self.labels else self.values.tolist()
        if not self.absent.any():
            return cast("list[object]", cells)
        return [None if none else cell for cell, none in zip(cells, self.absent.tolist(), strict=True)]

    def to_pandas(self) -> object:
        """The column for a DataFrame. Where cells are empty, integers are Int64 and booleans are boolean."""
        import pandas as pd

        if self.labels:
            return pd.Categorical.from_codes(cast("Sequence[int]", self.values), self.labels)
        masked = {"i": pd.arrays.IntegerArray, "b": pd.arrays.BooleanArray}.get(self.values.dtype.kind)
        return masked(self.values, self.absent) if masked and self.absent.any() else self.values


@dataclass(frozen=True)
class Chunk:
    """Rows as columns of the same length, by their names."""

    columns: Mapping[str, Cells]

    @classmethod
    def of(cls, rows: Rows, names: Iterable[str]) -> Chunk:
        """The columns of these names. A cell that a row lacks is empty."""
        return cls({name: Cells.of([row.get(name) for row in rows]) for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame({name: cells.to_pandas() for name, cells in self.columns.items()})
