"""docs/batch.md shows what the program prints today. `python tests/batches/test_batch_page.py` writes it again."""

import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS

PAGE = DOCS / "batch.md"
BLOCK = re.compile(r"```console\n\$ iosim (.*?)\n(.*?)```", re.S)
FILE = re.compile(r"```(?:csv|json) title=(\S+)\n(.*?)```", re.S)


def write_files():
    """Write the files that the page shows into the current folder."""
    for name, text in FILE.findall(PAGE.read_text()):
        Path(name).write_text(text)


@pytest.mark.parametrize("command, output", BLOCK.findall(PAGE.read_text()), ids=lambda x: x[:50])
def test_what_is_shown_is_what_is_printed(command, output, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    assert iosim(*shlex.split(command)).stdout == output


def rewrite():
    """Put what is printed today into the page."""
    import os
    import tempfile

    from click.testing import CliRunner

    from iosim.commands.cli import main

    def printed(match):
        done = CliRunner().invoke(main, shlex.split(match[1]), env={"COLUMNS": "120"})
        assert done.exit_code == 0, done.output
        return f"```console\n$ iosim {match[1]}\n{done.stdout}```"

    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        write_files()
        text = BLOCK.sub(printed, PAGE.read_text())
        os.chdir(here)
    PAGE.write_text(text)


if __name__ == "__main__":
    rewrite()
