"""Each atom of the table means the same wherever its row is read, and docs/masks.md says what the rows say.

`python tests/masks/test_atoms.py` writes the table of that page.
"""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS
from random_masks import random_atom

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError, InternalError
from iosim.masks import parse_mask
from iosim.masks.atoms import ROWS
from iosim.masks.expression import Join, atoms
from iosim.masks.text import ALLOWED

PAGE = DOCS / "masks.md"
HEAD = ["| predicate | the query x sees the key y if | known as |", "|---|---|---|"]


def table():
    """The table of the page."""
    rows = (f"| `{row.syntax}` | {row.meaning} | {row.known_as} |".replace("|  |", "| |") for row in ROWS)
    return "\n".join([*HEAD, *rows])


def page():
    """The page with today's table."""
    text = PAGE.read_text()
    start = text.index(HEAD[0])
    return text[:start] + table() + text[text.index("\n\n", start) :]


def test_the_page_has_the_rows():
    assert PAGE.read_text() == page(), "python tests/masks/test_atoms.py writes the table"


def test_messages_name_every_atom():
    assert all(f"{row.syntax}, " in ALLOWED for row in ROWS)
    for row in ROWS:
        with pytest.raises(InputError, match=f"did you mean '{row.name}'"):
            parse_mask(f"{row.name}x")


def example(rng, row, N, Nk, suffix, tmp_path):
    """The text of an atom over N x Nk tokens."""
    if row.name == "documents":
        first = rng.randint(1, Nk - 1)
        return f"documents:{first},{Nk - first}"
    if row.name == "file":
        np.save(tmp_path / "m.npy", np.random.default_rng(rng.randint(0, 99)).random((N, Nk)) < 0.5)
        return f"file:{tmp_path / 'm.npy'}"
    if row.name == "py":
        (tmp_path / "m.py").write_text(f"def f(b, h, q, k):\n    return (q * {rng.randint(1, 5)} + k) % 3 > 0\n")
        return f"py:{tmp_path / 'm.py'}:f"
    assert not row.read, "an atom with a value of its own has an example here"
    return random_atom(rng, 5, suffix, [row])


def by_integers(expr, N, Nk, Br, Bc):
    """The matrix of a mask from calls with Python's integers."""
    see = expr.row.see
    if expr.file:
        return [[expr.file.data[x, y] for y in range(Nk)] for x in range(N)]
    if expr.function:
        return [[expr.function.function(0, 0, x, y) for y in range(Nk)] for x in range(N)]
    if expr.tiles:
        return [[see(x // Br, y // Bc, expr.value) for y in range(Nk)] for x in range(N)]
    return [[see(x + Nk - N, y, expr.value) for y in range(Nk)] for x in range(N)]


def remainder(left, right):
    """What C calls a remainder: it has the sign of the left number."""
    return abs(left) % right * (1 if left >= 0 else -1)


class CInt(int):
    """An integer whose division and remainder are those of C."""

    def __add__(self, other):
        return CInt(int(self) + int(other))

    def __sub__(self, other):
        return CInt(int(self) - int(other))

    def __mul__(self, other):
        return CInt(int(self) * int(other))

    def __floordiv__(self, other):
        return CInt(abs(int(self)) // other * (1 if self >= 0 else -1))

    def __mod__(self, other):
        return CInt(remainder(int(self), other))


def by_c(bound, N, Nk):
    """The matrix of a mask from its C expression, whose few operators are put into Python's."""
    tables = pytest.importorskip("iosim.gpu.cuda.mask_tables").Tables(bound)
    text = tables.visible().replace("&&", "and").replace("||", "or").replace("/", "//").replace("LL", "")
    names = {**tables.words, "true": True, "bit": lambda words, at: bool(words[at // 32] >> np.uint32(at % 32) & 1)}
    code = compile(text, "a mask", "eval")
    return [[eval(code, names, {"x": CInt(x), "y": CInt(y)}) for y in range(Nk)] for x in range(N)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_atom_means_the_same_everywhere(row, tmp_path):
    """With arrays, with integers, as C, as a function of tensors, and in counts."""
    rng, flex = random.Random(row.name), pytest.importorskip("iosim.gpu.flex")
    for turn in range(40):
        N, Nk, Br, Bc = rng.randint(2, 20), rng.randint(2, 20), rng.randint(1, 6), rng.randint(1, 6)
        Nk = max(N, Nk) if row.name == "documents" else Nk
        text = example(rng, row, N, Nk, "b" if row.tiles and turn % 2 else "", tmp_path)
        p = Attention(N, 4, Nk, mask=parse_mask(text))
        if row.name == "dense":
            return
        bound, expr = p.mask.bind(p, Tiling(Br, Bc)), p.mask.expr
        seen = bound.visible(0, N, 0, Nk)
        assert bound._counts == bound.table_counts(bound.table)
        assert np.array_equal(by_c(bound, N, Nk), seen), (text, N, Nk)
        if not isinstance(expr, Join):
            assert np.array_equal(by_integers(expr, N, Nk, Br, Bc), seen)
        if not any(atom.tiles or atom.file for atom in atoms(expr)):
            found = flex.predicate(expr, Nk - N)(np.arange(N)[:, None], np.arange(Nk)[None])
            assert np.array_equal(np.broadcast_to(found, (N, Nk)), seen)


def test_c_has_the_parentheses_that_it_needs():
    CText = pytest.importorskip("iosim.gpu.cuda.mask_tables").CText
    x, y, n = CText("x"), CText("y"), 5
    assert ((x + n) % 2 == (y - x) * 2).text == "(x + 5) % 2 == (y - x) * 2"
    assert (x - (y - n) <= 3).text == "x - (y - 5) <= 3" and (x - y - n < 3).text == "x - y - 5 < 3"
    assert ((x < n) & ((y > n) | (x != y))).text == "x < 5 && (y > 5 || x != y)"
    assert (~(x >= n) | (x // n == y // n)).text == "!(x >= 5) || x / 5 == y / 5"
    assert (x == x).text == "true" and (x == y).text == "x == y"
    for divide in (lambda: (x - y) % 2, lambda: (x - y) // 2):
        with pytest.raises(InternalError, match="rounds"):
            divide()


if __name__ == "__main__":
    PAGE.write_text(page())
