"""What CONTRIBUTING says about additions is tried out: each is made in a copy of the project, and then used."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import iosim

FOLDERS = {"iosim": Path(iosim.__file__).parent, **{name: ROOT / name for name in ("configs", "tests", "docs")}}
"""What is copied. The package is the one in use, which is compiled already."""


LINES = """
import json, sys
from click.testing import CliRunner
from iosim.commands.cli import main

exec(sys.argv[2], {"__name__": "script"})
done = [CliRunner().invoke(main, line, prog_name="iosim") for line in json.loads(sys.argv[1])]
print(json.dumps([(each.exit_code, each.output) for each in done]))
"""


class Copy:
    """A copy of the project in `folder`, with some edits."""

    def __init__(self, folder):
        self.folder, self.edited = folder, set()
        for name, found in FOLDERS.items():
            shutil.copytree(found, folder / name, ignore=shutil.ignore_patterns("*.png"))
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
        env = {
            "PYTHONPATH": str(self.folder),
            "PATH": "/usr/bin:/bin",
            "COLUMNS": "120",
        }
        command = [sys.executable, *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def lines(self, lines, script=""):
        """What command lines print in the copy, each with its exit code. One process runs all of them, after a
        script."""
        given = [[*map(str, args)] for args, _ in lines]
        found = json.loads(self.python("-c", LINES, json.dumps(given), script))
        assert [code for code, _ in found] == [code for _, code in lines], found
        return [text for _, text in found]


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


EVEN = """    Row(
        "even",
        lambda x, y, n: y % 2 == 0,
        "y is even",
    ),
"""
EVERY_OTHER = """
import numpy as np
import iosim
from iosim import Attention, Tiling
from iosim.gpu.cuda.mask_tables import Tables
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


@pytest.mark.long
def test_a_mask_atom_is_one_row(copy):
    copy.insert("iosim/masks/atoms.py", ")\nBY_NAME", EVEN)
    check = "verify --cpu --N 24 --d 4 --tiles 4x3 --mask causal&even --schedule block-sparse-q"
    picture, usage, misspelt, number, _ = copy.lines(
        [
            (["plot", "--picture", "mask", "--mask", "even", "--N", "8", "--tiles", "1x1"], 0),
            (["count", "--help"], 0),
            (["count", "--N", "64", "--d", "8", "--mask", "evne"], 2),
            (["count", "--N", "64", "--d", "8", "--mask", "even:3"], 2),
            (check.split(), 0),
        ],
        EVERY_OTHER,
    )
    assert "#.#.#.#." in picture and "even" in usage
    assert "did you mean 'even'" in misspelt and "`even` or `even:b`" in number
    copy.python("tests/masks/test_atoms.py")  # writes the page
    assert "| `even` | y is even | |" in (copy.folder / "docs" / "masks.md").read_text()
    copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/masks/test_atoms.py")
    assert len(copy.edited) == 1


HALF = """HALF = Option("half", PASSES, "Store O this many times more (default: 0).", 0, metavar="COUNT", also=("halve",))


"""
KEYWORD = """
import iosim

one, two = (iosim.count(24, 4, tiles="3x2", schedules=["flash2"], **more).results[0] for more in ({}, {"half": 2}))
assert two.tensors["O"]["writes"] == 3 * one.tensors["O"]["writes"] == 3 * 24 * 4
assert iosim.Attention(24, 4, half=2) != iosim.Attention(24, 4) == iosim.Attention(24, 4, half=0)
rows = iosim.sweep(N=24, d=4, tiles="3x2", schedules="flash2", half="0:2:+1")
assert list(rows.half) == [0, 1, 2] and (rows.writes == 24 * 4 * (1 + rows.half)).all()
assert iosim.tune(24, 4, "1KB", schedules="flash2", half=1).to_frame()["half"].tolist()[0] == 1
"""


def test_an_option_of_a_schedule_is_one_row(copy):
    flash, names = "iosim/schedules/flash.py", "iosim/schedules/__init__.py"
    copy.insert(flash, "from .cache import", "from ..options import PASSES, Option\n")
    copy.insert(flash, "def keys_outside(chip", HALF)
    copy.insert(flash, "        if p.lse:\n", "        for _ in range(p[HALF]):\n            chip.store(o, 'O', i)\n")
    copy.insert(flash, '"lse", "keep_p", "visit_all", SHORT_TILE),', "HALF, ")
    copy.insert(names, '"short_tile",', '"half", ')
    (copy.folder / "grid.toml").write_text('N = 24\nd = 4\ntiles = "3x2"\nschedule = "flash2"\nhalf = [1, 3]\n')
    count = ("count", "--N", "24", "--d", "4", "--tiles", "3x2", "--schedule")
    usage, usage_of_sweep, table, data, unread, misspelt, negative, shown, rows = copy.lines(
        [
            (["count", "--help-all"], 0),
            (["sweep", "--help-all"], 0),
            ([*count, "flash2", "--half", "2", "--csv"], 0),
            ([*count, "flash2", "--half", "2", "--json"], 0),
            ([*count, "flash1", "--half", "2"], 0),
            ([*count, "flash2", "--halve", "2"], 2),
            ([*count, "flash2", "--half", "-1"], 2),
            (["schedules", "flash2"], 0),
            (["sweep", "grid.toml", "--columns", "half,writes"], 0),
        ],
        KEYWORD,
    )
    assert "--half COUNT" in usage and "--half COUNT" in usage_of_sweep and "--half" in shown
    assert "half" in table.splitlines()[0].split(",") and '"half": 2' in data
    assert "--half changes nothing with --schedule flash1; it is for flash2" in unread
    assert "did you mean '--half'" in misspelt and "--half: found '-1'" in negative
    assert rows.split() == ["half,writes", "1,192", "3,384"]
    copy.python("tests/house/test_keywords.py")  # writes the types of keywords
    assert "    half: int\n" in (copy.folder / "iosim" / "core" / "keywords.py").read_text()
    assert len(copy.edited) == 2


WORDS = '    Column("words_per_flop", "number", "words/flop", ".4f", of=lambda r: r.total / r.flops),\n'


def test_a_column_is_one_row(copy):
    copy.insert("iosim/counting/result.py", '    Column("ratio_to_standard", "number"', WORDS)
    size = ("--N", "64", "--d", "8", "--M", "4KB")
    flash2 = (*size, "--tiles", "8x8", "--schedule", "flash2", "--csv")
    asked = ("count", *size)
    *tables, seen, answer = copy.lines(
        [(["count", *flash2], 0), (["sweep", *flash2], 0), (asked, 0), ([*asked, "--json", "--schedule", "flash2"], 0)]
    )
    for table in tables:
        head, line = table.split()
        row = dict(zip(head.split(","), line.split(","), strict=True))
        assert float(row["words_per_flop"]) == int(row["total"]) / int(row["flops"])
    found = json.loads(answer)["results"][0]
    assert "words/flop" in seen and found["words_per_flop"] == found["total"] / found["flops"]
    assert len(copy.edited) == 1


HELLO = '''"""`iosim hello`."""

from __future__ import annotations

from ..counting.given import Asked
from .answer import Output, answer_all
from .command import D, N, named_command
from .options import outputs, problem_asked, problem_options


@named_command("hello", needs=(N, D))
@problem_options
@outputs
@problem_asked
def command(asked: Asked, output: Output) -> None:
    """The words of Q."""
    from ..answer import Column, Table

    p = asked.problem
    answer_all([({}, Table([Column("Q_words", "integer", "words of Q")], [{"Q_words": p.N * p.d}], "hello"))], output)
'''


ASKED = ("hello", "--N", "4K", "--d", "2")


def hello(copy):
    """The new command is listed, has its help, answers, and refuses as others do."""
    commands, usage, table, seen, none = copy.lines(
        [
            (["--help"], 0),
            (["hello", "--help"], 0),
            ([*ASKED, "--csv"], 0),
            (ASKED, 0),
            (["hello", "--N", "0", "--d", "2"], 2),
        ]
    )
    assert "The words of Q." in commands and "--kv-heads" in usage and "--N: found '0'" in none
    assert table.split() == ["Q_words", "8192"] and "words of Q" in seen


def test_a_command_of_the_house_is_one_file_and_one_line(copy):
    (copy.folder / "iosim" / "commands" / "hello.py").write_text(HELLO)
    copy.insert("iosim/commands/listed.py", '        "bounds": "', '        "hello": "The words of Q.",\n')
    hello(copy)
    assert len(copy.edited) == 1, "and the new file"


MANIFEST = '''"""The wing hello."""

from ..wings import Wing

WING = Wing(commands={"Look inside": {"hello": "The words of Q."}}, names={"words_of_q": "words"})
'''


def test_a_wing_is_a_folder(copy):
    """It brings a command and a name of Python, and no other file is touched."""
    wing = copy.folder / "iosim" / "greetings"
    wing.mkdir()
    (wing / "__init__.py").write_text('"""Greetings."""\n')
    (wing / "manifest.py").write_text(MANIFEST)
    (wing / "command_hello.py").write_text(HELLO.replace("from .", "from ..commands.").replace("..commands..", ".."))
    (wing / "words.py").write_text("def words_of_q(N, d):\n    return N * d\n")
    hello(copy)
    assert copy.python("-c", "import iosim; print(iosim.words_of_q(4, 2), 'words_of_q' in dir(iosim))") == "8 True\n"
    assert not copy.edited
