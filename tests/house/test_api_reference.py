"""The API reference of the site is made from the docstrings of public names, by a hook (.github/api_reference.py)."""

import inspect
import sys

import pytest
from paths import ROOT

import iosim
from iosim import answer

sys.path.append(str(ROOT / ".github"))
from api_reference import NAMES, entry, page


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_reference_has_a_docstring(name):
    assert inspect.getdoc(NAMES[name]) and entry(name, NAMES[name]).count("\n") > 2


def test_fields_and_methods_have_theirs():
    text = entry("iosim.Result", iosim.Result) + entry("Answer", answer.Answer)
    assert "- `fits`: " in text and "- `to_frame()" in text and "\n- `" in entry("iosim.Machine", iosim.Machine)


def test_the_page_has_every_public_name():
    text = page()
    assert all(f"\n### {name}\n" in text for name in NAMES) and {*iosim.__all__} - {"__version__"} <= {
        name.removeprefix("iosim.") for name in NAMES
    }
