"""Columns hold what pandas makes of the same cells, and lose no digit."""

import numpy as np
import pandas as pd
import pytest

from iosim.cells import Cells, Chunk

COLUMNS = {  # cells, and the type in a DataFrame if it is not the one that pandas takes by itself
    "integers": ([1, -2, 2**63 - 1], None),
    "integers with gaps": ([1, None, 2**53 + 1], "Int64"),
    "integers above 2^63": ([1, 2**63], "object"),
    "integers above 2^63 with gaps": ([2**63 + 1, None, 2**100], "object"),
    "truths": ([True, False, True], None),
    "truths with gaps": ([True, None, False], "boolean"),
    "floats": ([0.1, 1e300, -1.5], None),
    "floats of NumPy": ([np.float64(0.1), None], None),
    "floats, integers and gaps": ([0.5, 3, None], None),
    "texts": (["a", "b", "é"], None),
    "texts with gaps": (["a", None], None),
    "texts and integers": (["a", 1], None),
    "nothing": ([None, None], None),
}


@pytest.mark.parametrize("cells, dtype", COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_the_one_of_pandas(cells, dtype):
    column = Cells.of(cells)
    pd.testing.assert_frame_equal(Chunk({"x": column}).to_frame(), pd.DataFrame({"x": cells}, dtype=dtype))
    assert column.to_list() == cells


def test_a_label_is_a_category():
    column = Cells.full(np.array([1, 0, 1]), ("flash1", "flash2"))
    rows = Chunk({"x": column}).to_frame()
    assert column.to_list() == ["flash2", "flash1", "flash2"] == list(rows["x"]) and str(rows["x"].dtype) == "category"
