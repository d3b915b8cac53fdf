"""Several answers of one line: their rows in one table, whose types do not depend on which answer comes first."""

import pytest

from iosim.answer import Column, Table
from iosim.commands.answer import table_of

ONE = Table([Column("words")], [{"words": 3}])
NONE = Table([Column("words")], [])


@pytest.mark.parametrize(("labels", "kind"), [([None, 7], "integer"), ([7, None], "integer"), ([7, 8], "integer"),
                                              ([None, None], "string")])  # fmt: skip
def test_a_label_has_the_type_of_its_values(labels, kind):
    table = table_of([({"M": label}, ONE) for label in labels])
    assert table.types() == {"M": kind, "words": "integer"}
    assert [row["M"] for row in table.to_rows()] == labels


def test_an_answer_without_rows_has_no_say():
    """Its columns and its label would be there, and empty in every row."""
    table = table_of([({"M": "none"}, NONE), ({"M": 7}, ONE)])
    assert table.types() == {"M": "integer", "words": "integer"} and table.to_rows() == [{"M": 7, "words": 3}]
    assert table_of([({"M": 7}, NONE), ({"M": 8}, NONE)]).types() == {}
