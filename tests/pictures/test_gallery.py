"""docs/gallery.md: every picture is what the command above it draws, and the whole page is small.

`python tests/pictures/test_gallery.py` draws them all again.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS

from iosim.drawing.asked import places

PAGE = (DOCS / "gallery.md").read_text().partition("## A page to send")[0]
SHOWN = re.findall(r"```sh\n(.*?)```\n\n!\[([^\]]*)\]\(([^)]*)\)", PAGE, re.S)


def words_of(commands):
    """The kinds of pictures of some lines."""
    return set(re.findall(r"--picture (\w+)", commands))


TESTED = [
    case for case in SHOWN if case[2] != "gap.svg" and words_of(case[0]) <= {*places()}
]  # of wings that are there


@pytest.mark.parametrize("commands, text, file", TESTED, ids=[file for _, _, file in TESTED])
def test_a_picture_is_what_its_command_draws(commands, text, file, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        answer = iosim(*shlex.split(command)[1:])
        assert answer.exit_code == 0, answer.stderr
    name = shlex.split(command)[-1]
    assert name == file.rpartition("/")[2] and text
    assert (tmp_path / name).read_text() == (DOCS / file).read_text()


LOOK = """<script>window.onload = () => {
  const report = [...document.querySelectorAll('svg')].map(svg => {
    const frame = svg.getBoundingClientRect(), bad = []
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()])
    texts.forEach(([a, p], k) => {
      if (p.left < frame.left || p.right > frame.right || p.top < frame.top || p.bottom > frame.bottom) bad.push([a])
      texts.slice(k + 1).forEach(([b, q]) => {
        const beside = p.right <= q.left || q.right <= p.left, apart = p.bottom <= q.top + 6 || q.bottom <= p.top + 6
        if (!beside && !apart) bad.push([a, b])
      })
    })
    return [texts.length, bad]
  })
  document.body.innerHTML = '<pre>' + JSON.stringify(report) + '</pre>'
}</script>"""
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")
def test_texts_keep_apart_and_inside_in_a_browser(tmp_path):
    """With the browser's own font, and its own boxes around the texts; a line's box is 6 pixels higher than letters."""
    drawn = [(DOCS / file).read_text().partition("\n")[2] for _, _, file in SHOWN]
    page = "".join(f'<div style="width:720px">{svg}</div>' for svg in drawn)
    (tmp_path / "a.html").write_text(f"<meta charset=utf-8><body>{page}{LOOK}</body>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    shown = subprocess.run([BROWSER, *flags, f"file://{tmp_path}/a.html"], capture_output=True, text=True, timeout=120)
    report = json.loads(unescape(re.search(r"<pre>(.*?)</pre>", shown.stdout, re.S)[1]))
    assert len(report) == len(SHOWN) and all(texts > 5 and bad == [] for texts, bad in report), report


def test_every_picture_has_a_command_and_the_page_is_small():
    assert len(SHOWN) == PAGE.count("![") >= 8
    files = {file for _, _, file in SHOWN}
    assert {f"pictures/{path.name}" for path in (DOCS / "pictures").glob("*.svg")} <= files, "no file is left over"
    assert sum((DOCS / file).stat().st_size for file in files) < 600_000
    assert set().union(*(words_of(commands) for commands, _, _ in SHOWN)) | {"traffic", "links"} >= {*places()}


if __name__ == "__main__":
    import sys
    from tempfile import TemporaryDirectory

    for commands, _, file in SHOWN:
        with TemporaryDirectory() as folder:
            for command in commands.splitlines():
                line = [sys.executable, "-m", "iosim", *shlex.split(command)[1:]]
                subprocess.run(line, cwd=folder, check=True)
            (DOCS / file).write_text((Path(folder) / shlex.split(command)[-1]).read_text())
