"""The console blocks of pages: commands of iosim, and what they print.

`python tests/helpers/sessions.py` writes into every page what its commands print now. Blocks that leave lines out, with
three dots, are named and left as they are.
"""

import os
import re
import shlex
import subprocess
import sys

from paths import DOCS, ROOT

BLOCK = re.compile(r"```console\n(\$ iosim .*?)```", re.S)
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "validation" / "sources").glob("*.md"))]


def commands(block):
    """The commands of one block, each with what it prints."""
    return [tuple(part.split("\n", 1)) for part in re.split(r"^\$ iosim ", block, flags=re.M)[1:]]


def sessions(page):
    """The commands of all blocks of a page, each with what it prints."""
    return [session for block in BLOCK.findall(page) for session in commands(block)]


def printed(command):
    line = [sys.executable, "-m", "iosim", *shlex.split(command)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, env=ENV).stdout


def again(block):
    """A block with what its commands print now."""
    return "".join(f"$ iosim {command}\n{printed(command)}" for command, _ in commands(block))


def rewrite(page):
    def write(match):
        if re.search(r"^\.\.\.$", match[1], re.M):
            print(f"{page.relative_to(ROOT)}: lines are left out: {match[1].splitlines()[0]}")
            return match[0]
        return f"```console\n{again(match[1])}```"

    page.write_text(BLOCK.sub(write, page.read_text()))


if __name__ == "__main__":
    for page in PAGES:
        rewrite(page)
