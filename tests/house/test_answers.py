"""What the command line answers, kept beside the tests of each room: `tests/<room>/answers.txt` and `errors.txt`.

A file is a session: a line `$ iosim ...`, then all that it writes, stderr after stdout. Answers end with 0, or with the
code that stands as `[exit 1]`; errors end with 2. A line that asks for files runs in an empty folder. Read the
difference when an answer changes, then write it: `python tests/house/test_answers.py [FILE ...]`.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from click.testing import CliRunner
from paths import ROOT

from iosim.commands.cli import main

FILES = sorted([*(ROOT / "tests").glob("*/answers.txt"), *(ROOT / "tests").glob("*/errors.txt")])
PROMPT = "$ iosim "


def sessions(path):
    """[(line, what it should write)] of a file."""
    blocks = ("\n" + path.read_text()).split("\n" + PROMPT)[1:]
    found = [block.partition("\n") for block in blocks]
    return [(line, said.strip("\n")) for line, _, said in found]


def answer(line, code):
    """What a command line writes, with its exit code if that is not the usual one."""
    done = CliRunner().invoke(main, shlex.split(line), prog_name="iosim", env={"COLUMNS": "140"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    said = [done.stdout.rstrip(), done.stderr.rstrip(), "" if done.exit_code == code else f"[exit {done.exit_code}]"]
    return "\n".join(part for part in said if part).strip("\n")


def code_of(path):
    return 2 if path.name == "errors.txt" else 0


CASES = [(path, line, said) for path in FILES for line, said in sessions(path)]


@pytest.mark.parametrize(("path", "line", "said"), CASES, ids=[f"{p.parent.name}: {line}" for p, line, _ in CASES])
def test_what_was_read_is_still_answered(path, line, said, tmp_path, monkeypatch):
    gone = {*os.environ.get("IOSIM_GONE", "").split(",")} - {""}
    if gone & {*re.findall(r"[\w-]+", f"{line} {said}")}:
        pytest.skip("it speaks of a deleted wing")
    monkeypatch.chdir(tmp_path)
    assert answer(line, code_of(path)) == said


def test_every_line_of_errors_is_an_error():
    assert [line for path, line, said in CASES if code_of(path) == 2 and "[exit" in said] == []


def write(path):
    """Ask every line of a file again, and keep what it answers."""
    path = path.resolve()
    lines = [line for line, _ in sessions(path)]
    path.write_text("\n".join(f"{PROMPT}{line}\n{answer(line, code_of(path))}\n" for line in lines))


if __name__ == "__main__":
    for given in sys.argv[1:] or FILES:
        write(Path(given))
