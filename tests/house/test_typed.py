"""A user's script is type-checked: iosim ships its types, and names that are loaded late have them too."""

import os
import re
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from paths import ROOT

import iosim

GOOD = """
import iosim

result = iosim.count(N=512, d=64, M="227KB", schedules=["flash2"])["flash2"]
peak: int | None = result.sram_peak_words
problem = iosim.Attention(512, 64)
room = iosim.Capacity()
iosim.Folded(problem, room).run(iosim.SCHEDULES["flash2"], iosim.Tiling(16, 16))
best: str = iosim.tune(512, 64, hardware="H100", tile_multiple=16).results[0].schedule
less: int | None = iosim.over_N([64, 128], 64, "4KB", schedules="flash2,standard").moves_less[0].below_bytes
first: int = iosim.curve(512, 64, schedules=iosim.SCHEDULES["flash2"]).steps[0].M_bytes
floor: int | float | None = iosim.bounds(512, 64, "64KB")["floor"].words
seconds: float = iosim.roofline(512, 64, "H100", tiles=(128, 64), decode=True).rows[0].at_least_seconds
steps: int = len(iosim.count(512, 64, "64KB", passes="step", unfused="dropout").steps)
right: bool = iosim.verify(64, 16, cpu=True, tiles=(16, 16), seed=1, dropout=0.1, schedules=["flash2"]).ok
events: int = iosim.trace(64, 16, tiles=iosim.Tiling(16, 16), mask="causal", schedule="block-sparse-q").write("t.csv")
for table in (
    iosim.memory("1024:4096:x2", 64, heads=4),
    iosim.cache(256, 64, ["16KB", "64KB"], tiles=(64, 64), policy="lru"),
):
    print(len(table), table.to_frame(), table.to_dict(), table[0]["N"])
picture: str = iosim.plot(N=8192, d=128, schedules=["flash1", "flash2"]).svg()
try:
    iosim.count(N=0, d=64)
except iosim.InputError as error:
    print(error.where)
"""
BAD = {
    "iosim.Tiling(16, 16).rows": "attr-defined",
    "iosim.count(N=512, d=64).totals": "attr-defined",
    "iosim.Capacity(16, 16)": "call-arg",
    "iosim.tune(512, 64, '64KB', head=2)": "call-arg",
    "iosim.roofline(512, 64)": "call-arg",
    "iosim.verify(64, 16, tiles=[16])": "arg-type",
}


@pytest.mark.needs("mypy")
def test_a_script_of_a_user_is_checked(tmp_path):
    """mypy accepts a script without mistakes, and finds each mistake of another, one a line. Of this repository only the
    package that is imported here is on mypy's path."""
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text("import iosim\n\n" + "\n".join(BAD) + "\n")
    where = str(Path(iosim.__file__).parents[1])
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    if where not in site.getsitepackages():
        env["MYPYPATH"] = where
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "good.py", "bad.py"]
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    found = re.findall(r"^(\w+).py:(\d+): error: .*\[([\w-]+)\]$", said, re.M)
    assert found == [("bad", str(line), code) for line, code in enumerate(BAD.values(), 3)], said


def test_the_package_says_that_it_has_types():
    """py.typed stands beside the imported package, and among the files that pip installed."""
    assert Path(iosim.__file__).with_name("py.typed").exists()
    try:
        files = set(map(str, metadata.files("iosim") or ()))
    except metadata.PackageNotFoundError:
        files = set()
    if "iosim/core/machine.py" not in files:
        pytest.skip("iosim is not installed, or from its sources")
    assert "iosim/py.typed" in files


STUB = ROOT / "iosim" / "__init__.pyi"


def stub():
    """The names of iosim for type checkers, from its own list and the manifests."""
    lines = sorted(f"from .{iosim._module_of(name)} import {name} as {name}" for name in iosim._public()[1:])
    lines.insert(0, "from .version import __version__ as __version__")
    return "\n".join(
        ['"""All names of iosim, for type checkers. tests/house/test_typed.py writes it."""', "", *lines, ""]
    )


def test_type_checkers_see_every_name():
    assert sorted(STUB.read_text().split("\n")) == sorted(stub().split("\n")), (
        "python tests/house/test_typed.py writes it"
    )


if __name__ == "__main__":
    STUB.write_text(stub())
