"""iosim/core/keywords.py is written from the rows of options. `python tests/house/test_keywords.py` writes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

from iosim.core.options import OF_EVERY_PROBLEM, SIZES, option_names
from iosim.core.problem import CHOICE_ROWS, USUAL
from iosim.options import all_declared

KEYWORDS = ROOT / "iosim" / "core" / "keywords.py"
TYPES = {"integer": "int", "string": "str", "boolean": "bool"}
OTHERS = {"mask": "Mask", "dropout": "Dropout | None"}  # whose values are no texts and no numbers
HEAD = '''"""Keywords of Python functions that take a problem. Only type checkers load this file: import it under TYPE_CHECKING.

It is written from the rows of options (core/options.py, and the files of schedules) by tests/house/test_keywords.py.
"""

from __future__ import annotations

from typing import TypedDict

from .mask_types import Dropout, Mask
'''


def type_of(option):
    """The type of an option's keyword. One without a default may be None."""
    none = " | None" * (option.default is None and option.kind.type == "string")
    return OTHERS.get(option.name, TYPES[option.kind.type] + none)


def lines(options):
    return [f"    {option.name}: {type_of(option)}" for option in options]


def typed_dict(name, base, about, fields):
    return "\n".join(["", "", f"class {name}({base}total=False):", f'    """{about}"""', "", *fields, ""])


def written():
    every = [*OF_EVERY_PROBLEM.values(), CHOICE_ROWS, *all_declared()]
    sizes = [option for option in SIZES if option.name not in ("N", "d")]
    others = [option for option in every if option not in SIZES and option.name != "mask"]
    dropout, mask = (f"    {name}: {OTHERS[name]}" for name in ("dropout", "mask"))
    return "".join([
        HEAD,
        typed_dict("OtherOptions", "TypedDict, ", "Options of a problem that are not sizes, except the mask and dropout.", lines(others)),
        typed_dict("MoreOptions", "OtherOptions, ", "Options of a problem that are not sizes.", [mask, dropout]),
        typed_dict("UndroppedOptions", "OtherOptions, ", "Options of a problem that may be left out, except the mask and dropout.", [*lines(sizes), "    causal: bool"]),
        typed_dict("ProblemOptions", "UndroppedOptions, ", "Options of a problem that may be left out, except the mask.", [dropout]),
    ])  # fmt: skip


def test_keywords_are_those_of_the_rows():
    assert KEYWORDS.read_text() == written()


def test_every_option_has_one_row():
    names = option_names()
    assert len(set(names)) == len(names) and set(USUAL) == {*OF_EVERY_PROBLEM, "choice_rows", "dropout"}


if __name__ == "__main__":
    KEYWORDS.write_text(written())
