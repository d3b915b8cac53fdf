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


# What people see who lack one kind of cones (Machado, Oliveira and Fernandes 2009), on linear RGB.
CONES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def seen(colour, matrix):
    """A colour in CIE Lab, as somebody with these cones sees it."""
    import numpy as np

    rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.clip(matrix @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(to_xyz @ linear / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("cones", CONES)
def test_colours_are_told_apart_with_any_cones(cones):
    """The first six colours of lines, and the six large tensors, each pair at least 10 apart in CIE Lab."""
    import numpy as np

    from iosim.drawing.colours import COLOURS, TENSORS

    for group in (COLOURS[:6], [TENSORS[name] for name in "QKVSPO"]):
        places = [seen(colour, np.array(CONES[cones])) for colour in group]
        pairs = {(group[i], group[j]): np.linalg.norm(places[i] - places[j]) for i in range(6) for j in range(i)}
        assert min(pairs.values()) >= 10, min(pairs, key=pairs.get)


def test_every_picture_has_a_command_and_the_page_is_small():
    from iosim.drawing.asked import places

    assert len(SHOWN) == PAGE.count("![") >= 8
    files = {file for _, _, file in SHOWN}
    assert {f"pictures/{path.name}" for path in (DOCS / "pictures").glob("*.svg")} <= files, "no file is left over"
    assert sum((DOCS / file).stat().st_size for file in files) < 600_000
    drawn = {name for commands, _, _ in SHOWN for name in re.findall(r"--picture (\w+)", commands)}
    assert drawn | {"traffic", "links"} >= set(places())


if __name__ == "__main__":
    import sys
    from tempfile import TemporaryDirectory

    for commands, _, file in SHOWN:
        with TemporaryDirectory() as folder:
            for command in commands.splitlines():
                line = [sys.executable, "-m", "iosim", *shlex.split(command)[1:]]
                subprocess.run(line, cwd=folder, check=True)
            (DOCS / file).write_text((Path(folder) / shlex.split(command)[-1]).read_text())
