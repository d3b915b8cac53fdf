"""What CONTRIBUTING says about additions is tried out: each is made in a copy of the project, and then used."""

import shutil
import subprocess
import sys

import pytest
from paths import ROOT

COPIED = ("iosim", "configs", "tests", "docs")


class Copy:
    """A copy of the project in `folder`, with some edits."""

    def __init__(self, folder):
        self.folder, self.edited = folder, set()
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def insert(self, path, before, text):
        """Write a text into a file, in front of another text that it has once."""
        file = self.folder / path
        old = file.read_text()
        assert old.count(before) == 1, f"{path} has {before!r} {old.count(before)} times"
        file.write_text(old.replace(before, text + before))
        self.edited.add(path)

    def python(self, *args, code=0):
        """What `python *args` prints in the copy. It must end with this exit code."""
        env = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin", "COLUMNS": "120"}
        command = [sys.executable, *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def iosim(self, *args, code=0):
        """What a command line prints in the copy."""
        return self.python("-m", "iosim", *args, code=code)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


EVEN = '''    Row(
        "even",
        lambda x, y, n, shift: y % 2 == 0,
        "y is even",
    ),
'''
EVERY_OTHER = """
import numpy as np
import iosim
from iosim import Attention, Tiling
from iosim.cuda.mask_tables import Tables
from iosim.gpu.flex import predicate
from iosim.masks import parse_mask
from iosim.schedules import find

for text, N in (("even", 24), ("causal&even", 24), ("even:b", 25), ("~even|window:3", 30)):
    p = Attention(N, 4, mask=parse_mask(text))
    bound = p.mask.bind(p, Tiling(3, 1))
    i, j = np.arange(N)[:, None], np.arange(N)[None]
    even = np.broadcast_to(j % 2 == 0, (N, N))
    seen = {"even": even, "even:b": even, "causal&even": even & (j <= i), "~even|window:3": ~even | (abs(i - j) <= 3)}[text]
    assert (bound.visible(0, N, 0, N) == seen).all(), text
    tiles = np.logical_or.reduceat(seen, range(0, N, 3), axis=0)
    assert bound.active_tiles == tiles.sum() and bound.pairs(False, False) == tiles[: N // 3].sum(), text
    assert "y % 2 == 0" in Tables(bound).visible().replace("(y / 1)", "y")
    if "b" not in text:
        assert (np.broadcast_to(predicate(p.mask.expr, 0)(i, j), (N, N)) == seen).all()

counted = iosim.count(24, 4, tiles="3x1", schedules=["block-sparse-q"], mask="even").results[0]
assert counted.tensors["K"]["reads"] == 24 // 3 * 12 * 4, "each of the 8 row tiles reads 12 keys"
rows = iosim.sweep(N=[24, 48], d=4, mask=["even", "dense"], tiles="3x1", schedules="block-sparse-q")
for N, mask, reads in zip(rows.N, rows["mask"], rows.reads):
    keys = N // 2 if mask == "even" else N
    assert reads == 4 * N + N // 3 * 2 * keys * 4, "Q once, and K and V for each row tile"
assert iosim.floor(Attention(24, 4, mask=parse_mask("even"))).words == 24 * 4 + 2 * 12 * 4 + 24 * 4
"""


def test_a_mask_atom_is_one_row(copy):
    copy.insert("iosim/masks/atoms.py", ")\nBY_NAME", EVEN)
    copy.python("-c", EVERY_OTHER)
    assert "#.#.#.#." in copy.iosim("mask", "even", "--N", "8", "--tiles", "1x1")
    assert "even" in copy.iosim("count", "--help")
    assert "did you mean 'even'" in copy.iosim("count", "--N", "64", "--d", "8", "--mask", "evne", code=2)
    assert "`even` or `even:b`" in copy.iosim("count", "--N", "64", "--d", "8", "--mask", "even:3", code=2)
    copy.iosim("check", "--N", "24", "--d", "4", "--tiles", "4x3", "--mask", "causal&even", "--schedule", "block-sparse-q")
    copy.python("tests/masks/test_atoms.py")  # writes the page
    assert "| `even` | y is even | |" in (copy.folder / "docs" / "masks.md").read_text()
    copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/masks/test_atoms.py")
    assert len(copy.edited) == 1
