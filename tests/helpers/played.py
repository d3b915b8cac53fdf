"""Pages with a player: the data in them, and a browser that shows them."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")


def data(text):
    return json.loads(re.search(r'<script type="application/json" id="play">(.*?)</script>', text)[1])


def browser(page, state, width=1200, more=()):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200",
               "--virtual-time-budget=4000", "--enable-logging=stderr", *more, "--dump-dom", f"file://{page}#{state}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    faults = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not faults and 'data-ready="yes"' in done.stdout, faults
    return done.stdout
