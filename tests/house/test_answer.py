"""An answer's columns are declared once, and every form of it follows: CSV, a DataFrame, text, a terminal, a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pytest

from iosim.answer import Answer, Column, Table, columns_of, in_order, rounded, type_of
from iosim.grid import ByteCell, layout
from iosim.tables import to_csv


@dataclass(frozen=True)
class Launch:
    schedule: str
    Br: int
    Bc: int
    total_bytes: int | None = None
    ratio: float | None = None
    fits: bool | None = None


COLUMNS = (
    Column("schedule", "string", "schedule"),
    Column("Br"),
    Column("Bc"),
    Column("tiles", None, "tiles", lambda launch: f"{launch.Br}x{launch.Bc}", spare=2),
    Column("total_bytes", "integer", "bytes", "bytes"),
    Column("ratio", "number", "x floor", ".3f", spare=1),
    Column("fits", "boolean", "fits", "yes or NO"),
    Column("words", of=lambda launch: launch.Br * launch.Bc),
)
LAUNCHES = [Launch("flash1", 16, 32, 4096, 1.25, True), Launch("flash2", 8, 8, fits=False)]
TABLE = Table(COLUMNS, LAUNCHES, "two launches", best=[0])
NAMES = ["schedule", "Br", "Bc", "total_bytes", "ratio", "fits", "words"]


def test_data_has_the_columns_with_a_type():
    assert list(TABLE.types()) == NAMES and TABLE.types()["ratio"] == "number"
    first = {"schedule": "flash1", "Br": 16, "Bc": 32, "total_bytes": 4096, "ratio": 1.25, "fits": True, "words": 512}
    assert TABLE[0] == first == TABLE.to_rows()[0] == TABLE[:1][0] and [*TABLE] == TABLE.to_rows() and len(TABLE) == 2
    assert to_csv(TABLE.to_rows()).splitlines() == [
        ",".join(NAMES),
        "flash1,16,32,4096,1.25,True,512",
        "flash2,8,8,,,False,64",
    ]
    assert TABLE.to_dict() == {"results": TABLE.to_rows()} and repr(TABLE) == "<Table: two launches; 2 rows>"


def test_people_see_the_columns_with_a_heading():
    grid = TABLE.grid()
    assert [list(row.values()) for row in grid.rows] == [["flash1", "16x32", ByteCell(4096), "1.250", "yes"],
                                                         ["flash2", "8x8", None, None, "NO"]]  # fmt: skip
    assert list(grid.rows[0]) == ["schedule", "tiles", "bytes", "x floor", "fits"]
    assert grid.spare == ("x floor", "tiles") and grid.best == [0] and str(grid.rows[0]["bytes"]) == "4 KiB"
    assert layout(grid, 30).left_out == ("x floor",)
    assert str(TABLE).splitlines()[2:] == [
        "flash1    16x32  4 KiB    1.250  yes",
        "flash2      8x8      -        -  NO",
    ]
    assert "font-weight: bold" in TABLE._repr_html_()


def test_people_may_see_other_columns_in_another_order():
    other = Table(COLUMNS, LAUNCHES, shown=(COLUMNS[6], COLUMNS[0]))
    assert list(other.grid().rows[0]) == ["fits", "schedule"] and other.to_rows() == TABLE.to_rows()


def test_without_headings_all_columns_are_shown_by_name():
    plain = Table((Column("schedule", "string"), Column("Br"), Column("seen", None)), LAUNCHES)
    assert plain.grid().rows == [{"schedule": "flash1", "Br": 16}, {"schedule": "flash2", "Br": 8}]


def test_whole_numbers_stay_whole_in_a_frame():
    frame = TABLE.to_frame()
    assert [str(frame[name].dtype) for name in ("total_bytes", "fits", "ratio")] == ["Int64", "bool", "float64"]


def test_a_mapping_may_lack_a_cell_and_a_column_may_be_the_same_in_all_rows():
    table = Table((Column("N").always(64), Column("words")), [{"words": 3}, {}])
    assert table.to_rows() == [{"N": 64, "words": 3}, {"N": 64, "words": None}]


def test_a_misspelt_column_of_an_object_is_an_error():
    with pytest.raises(AttributeError):
        Table((Column("word"),), LAUNCHES).to_rows()


def test_an_answer_says_its_notes_and_texts():
    class Noted(Answer):
        notes = ("take care",)

        def table(self):
            return TABLE

        def pieces(self):
            return ["asked", self.table(), "", "answered"]

        def summary(self):
            return "short"

    text = str(Noted())
    assert text.startswith("asked\nschedule") and text.endswith("\n\nanswered\nnote: take care")
    assert repr(Noted()) == "<Noted: short>" and "note: take care" in Noted()._repr_html_()
    assert Noted().to_rows() == TABLE.to_rows()


def test_types_of_labels():
    assert [type_of(value) for value in (True, 3, 0.5, "x")] == ["boolean", "integer", "number", "string"]


class Kept(TypedDict):
    name: str
    words: int | None
    share: NotRequired[float]
    tensors: dict[str, int]


def test_fields_with_a_plain_type_are_columns():
    """Those of a dataclass or a TypedDict; a column that says more takes the place of the field that it names."""
    own = Column("words", heading="words moved")
    assert [(c.name, c.type, c.heading) for c in columns_of(Kept, own)] == [
        ("name", "string", None), ("words", "integer", "words moved"), ("share", "number", None),
    ]  # fmt: skip
    assert [c.name for c in columns_of(Launch)] == ["schedule", "Br", "Bc", "total_bytes", "ratio", "fits"]
    assert columns_of(Kept, Column("tensors", "object"))[-1].type == "object"


def test_columns_in_another_order():
    assert [c.name for c in in_order(COLUMNS, ("fits", "Br"))] == ["fits", "Br"]
    with pytest.raises(KeyError):
        in_order(COLUMNS, ["fit"])


@pytest.mark.parametrize(
    "number, text",
    [(3975.559, "3,976"), (999.6, "1,000"), (999.4, "999"), (12.345, "12.3"), (0.01234, "0.0123"), (8193.75, "8,194")],
)
def test_a_rounded_number_has_no_exponent(number, text):
    assert rounded(number) == text
