"""Schedules of other packages: an installed package brings some by the entry point group `iosim.schedules`."""

import subprocess
import sys

import pytest
from paths import ROOT

MODULE = """
from dataclasses import replace
from iosim import SCHEDULES, Schedule, register
from iosim.options import COUNT, Option

TIMES = Option("my_times", COUNT, "How often Q is read.", 1)

def text(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        for _ in range(p[TIMES]):
            chip.free(chip.load("Q", i))
    SCHEDULES["flash2"].text(chip, p, t)

MINE = Schedule("mine", text, "flash2 that reads Q too often", options=(TIMES,))
register(replace(SCHEDULES["flash1"], name="registered", summary="another", options=()))
"""


@pytest.fixture
def installed(tmp_path):
    """Asks iosim in a process in which a package of schedules is installed. A broken one stands beside it on demand."""
    (tmp_path / "brings.py").write_text(MODULE)
    info = tmp_path / "brings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brings\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[iosim.schedules]\nmine = brings:MINE\n")

    def ask(*args, broken=False):
        if broken:
            (info / "entry_points.txt").write_text("[iosim.schedules]\nmine = brings:NOTHING\n")
        path = f"{tmp_path}{':'}{ROOT}"
        command = [sys.executable, "-m", "iosim", *map(str, args)]
        env = {"PYTHONPATH": path, "PATH": "", "HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)

    return ask


SIZES = ("--N", 64, "--d", 8, "--tiles", "8x8")


def test_a_schedule_of_an_installed_package_is_known_by_its_name_with_its_options(installed):
    once, thrice = (
        installed("count", *SIZES, "--schedule", "mine", "--csv", *more) for more in ((), ("--my-times", 3))
    )
    total = [
        int(done.stdout.splitlines()[1].split(",")[done.stdout.split(",").index("total")]) for done in (once, thrice)
    ]
    assert total[1] - total[0] == 2 * 64 * 8
    assert "registered" in installed("count", *SIZES, "--schedule", "registered,flash1").stdout


def test_it_is_listed_and_what_cannot_be_imported_is_named(installed):
    listed = installed("schedules").stdout
    assert "mine" in listed and "registered" in listed
    failed = installed("count", *SIZES, "--schedule", "mine", broken=True)
    assert failed.returncode == 2 and "iosim.schedules" in failed.stderr and "brings:NOTHING" in failed.stderr
    assert installed("count", *SIZES).returncode == 0, "nobody asked for it"
