"""A plain mistake in a user's schedule gives one message with its file and line, and exit code 2."""

import re
import shlex
from pathlib import Path

import pytest
from paths import DOCS

import iosim
from iosim import SCHEDULES, Attention, Folded, Numeric, Schedule, Tiling
from iosim.errors import FoldingError, ScheduleError
from iosim.steps.softmax import zeros

GOOD = """
import iosim
from iosim.steps.softmax import zeros

def text(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        q = chip.load("Q", i)
        chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)

iosim.register(iosim.Schedule("mine", text, "mine"))
"""
MISTAKES = [  # (the right line, the line with a mistake, what the message says)
    ('q = chip.load("Q", i)', 'q = chip.load("Q", 0)', "not by 0"),
    ("chip.tiles(p.N, t.rows_q)", "range(p.N)", "not by 0"),
    ("t.rows_q", "t.row_q", "did you mean 'rows_q'"),
    ("p.N", "p.M", "AttributeError"),
    ("chip.tiles(p.N", "chip.tiles('N'", "TypeError"),
    ('q = chip.load("Q", i)', "q = 1 / 0", "ZeroDivisionError"),
    ('chip.load("Q", i)', 'chip.lod("Q", i)', "did you mean 'load'"),
    ('chip.load("Q", i)', 'chip.load("q", i)', "tensor 'q' is unknown"),
    ("zeros)", "zeroes)", "NameError"),
    ("def text(chip, p, t)", "def text(chip, p)", "TypeError"),
]
COUNT = ("count", "--N", 8, "--d", 2, "--M", "1KB", "--schedule", "mine")


@pytest.fixture(autouse=True)
def forgotten():
    yield
    iosim.SCHEDULES.pop("mine", None)


@pytest.mark.parametrize("right, wrong, message", MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_mistake_in_a_loaded_file(right, wrong, message, tmp_path, iosim):
    file, code = tmp_path / "mine.py", GOOD.replace(right, wrong, 1)
    file.write_text(code)
    line = next(n for n, text in enumerate(code.splitlines(), 1) if wrong in text)
    result = iosim("--load", file, *COUNT)
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert message in result.stderr and "Traceback" not in result.stderr
    where = line + wrong.startswith("range")  # the mistake shows on the next line, where numbers are used as tiles
    assert f"{file}, line {where} (" in result.stderr or wrong.startswith("def"), result.stderr


def test_without_a_mistake(tmp_path, iosim):
    (tmp_path / "mine.py").write_text(GOOD)
    assert iosim("--load", tmp_path / "mine.py", *COUNT).exit_code == 0


@pytest.mark.parametrize("field", ["exact_traffic", "footprint", "about"])
def test_a_mistake_in_what_belongs_to_it(field, tmp_path, iosim):
    file = tmp_path / "mine.py"
    file.write_text(GOOD.replace('"mine")', f'"mine", {field}=lambda p, *t: p.nothing)'))
    result = iosim("--load", file, "verify", "--cpu", "--N", 8, "--d", 2, "--schedule", "mine")
    assert result.exit_code == 2 and f"{file}, line" in result.stderr and "'nothing'" in result.stderr


def test_a_bug_of_ours_stays_a_bug(monkeypatch, iosim):
    from iosim.counting import count

    monkeypatch.setattr(count, "count", lambda *values, **given: 1 / 0)
    assert isinstance(iosim(*COUNT[:-2]).exception, ZeroDivisionError)


def test_in_python():
    def late(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.load("Q", i)
            print(i.start)

    def bad_step(o):
        o[...] = [1, 2, 3, 4, 5, 6, 7]

    def stepping(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.compute("O", (i, p.dv), bad_step)

    with pytest.raises(FoldingError, match=rf"{__name__}.py, line \d+ \(print\(i.start\)\)"):
        Folded(Attention(4, 2)).run(late, Tiling(2, 2))
    with pytest.raises(ScheduleError, match=r"line \d+ .*ValueError") as fault:
        Numeric(Attention(4, 2), {}).run(stepping, Tiling(2, 2))
    assert isinstance(fault.value.__cause__, ValueError)


WRONG = [
    {"text": None},
    {"text": "a text"},
    {"name": "my schedule"},
    {"name": "a/b"},
    {"name": "a,b"},
    {"name": ""},
    {"name": 7},
    {"outer": "rows"},
    {"rules": "best"},
    {"rules": ("fastest",)},
    {"footprint": 12},
    {"tensors": {"X": ("N", "d")}},
    {"summary": None},
]


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_a_schedule_of_wrong_types_is_refused(fields):
    with pytest.raises(iosim.InputError, match=next(iter(fields))):
        iosim.register(Schedule(**{"name": "mine", "text": zeros, "summary": "mine", **fields}))
    assert "mine" not in iosim.SCHEDULES
    with pytest.raises(iosim.InputError, match="a Schedule"):
        iosim.register(zeros)


PAGE = (DOCS / "adding-a-schedule.md").read_text()


@pytest.fixture
def page(tmp_path, monkeypatch, iosim):
    """Run a line of the page, with the page's schedule (changed by `change`) in wasteful.py."""
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]

    def run(line, change=lambda code: code):
        SCHEDULES.pop("wasteful", None)
        Path("wasteful.py").write_text(change(code))
        return iosim(*shlex.split(line)[1:])

    yield run
    SCHEDULES.pop("wasteful", None)


def test_the_page_of_schedules(page):
    lines = re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert len(lines) == 3 and all(page(line).exit_code == 0 for line in lines)
    formula = """lambda p, t: {"Q": (p.N * p.d, 0), "K": (p.Nk * p.d * -(-p.N // t.rows_q), 0),
                 "V": (p.Nk * p.dv * -(-p.N // t.rows_q), 0), "O": (0, p.N * p.dv)}"""
    wrong = page(lines[0], lambda code: code.replace('outer="queries"', f'outer="queries", exact_traffic={formula}'))
    shown = re.search(r"```\n(words .*?)```", PAGE, re.DOTALL)[1].split("\n")[1].split()
    assert wrong.exit_code == 1 and wrong.stdout.splitlines()[4].split()[-6:] == shown
    mistaken = page(lines[0], lambda code: code.replace('chip.load("Q", i)', 'chip.load("Q", 0)'))
    assert mistaken.exit_code == 2
    for part in (
        'wasteful.py, line 12 (q, k, v = chip.load("Q", 0), ',
        "): Q is indexed by tiles of chip.tiles, not by 0",
    ):
        assert part in mistaken.stderr and part in PAGE
