"""docs/gallery.md: every picture is what the command above it draws, and the whole page is small.

`python tests/pictures/test_gallery.py` draws them all again.
"""

import re
import shlex
from pathlib import Path

import pytest
from paths import DOCS

PAGE = (DOCS / "gallery.md").read_text()
SHOWN = re.findall(r"```sh\n(.*?)```\n\n!\[([^\]]*)\]\(([^)]*)\)", PAGE, re.S)


TESTED = [case for case in SHOWN if case[2] != "gap.svg"]  # which test_sheets.py draws


@pytest.mark.parametrize("commands, text, file", TESTED, ids=[file for _, _, file in TESTED])
def test_a_picture_is_what_its_command_draws(commands, text, file, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        answer = iosim(*shlex.split(command)[1:])
        assert answer.exit_code == 0, answer.stderr
    name = shlex.split(command)[-1]
    assert name == file.rpartition("/")[2] and text
    assert (tmp_path / name).read_text() == (DOCS / file).read_text()


def test_every_picture_has_a_command_and_the_page_is_small():
    from iosim.pictures.picture import PICTURES

    assert len(SHOWN) == PAGE.count("![") >= 10
    files = {file for _, _, file in SHOWN}
    assert {f"pictures/{path.name}" for path in (DOCS / "pictures").glob("*.svg")} <= files, "no file is left over"
    assert sum((DOCS / file).stat().st_size for file in files) < 600_000
    drawn = {name for commands, _, _ in SHOWN for name in re.findall(r"--picture (\w+)", commands)}
    assert drawn | {"traffic"} == set(PICTURES)


def test_the_number_of_the_page_is_in_its_picture():
    assert "1.2 times the SRAM" in PAGE and "1.2 x M" in (DOCS / "pictures/footprint.svg").read_text()


if __name__ == "__main__":
    import subprocess
    import sys
    from tempfile import TemporaryDirectory

    for commands, _, file in SHOWN:
        with TemporaryDirectory() as folder:
            for command in commands.splitlines():
                line = [sys.executable, "-m", "iosim", *shlex.split(command)[1:]]
                subprocess.run(line, cwd=folder, check=True)
            (DOCS / file).write_text((Path(folder) / shlex.split(command)[-1]).read_text())
