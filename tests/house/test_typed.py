"""A user's script is type-checked: iosim ships its types, and names that are loaded late have them too.

`python tests/house/test_typed.py` writes the names for type checkers, and signatures.txt: what docs/commands.md promises
of Python, so that its diff shows each change of it.
"""

import inspect
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
    "iosim.roofline()": "call-arg",
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
    where = {
        "__version__": "version",
        **{name: iosim._module_of(name).removeprefix("iosim.") for name in iosim._public()[1:]},
    }
    lines = sorted(f"from .{module} import {name} as {name}" for name, module in where.items())
    return "\n".join(
        ['"""All names of iosim, for type checkers. tests/house/test_typed.py writes it."""', "", *lines, ""]
    )


def test_type_checkers_see_every_name():
    assert STUB.read_text() == stub(), "python tests/house/test_typed.py writes it"


SIGNATURES = Path(__file__).with_name("signatures.txt")


def signatures():
    """A line for each function of iosim, and for each class and what it has, in order of their names. What every answer
    can do stands once."""
    from iosim.answer import Answer
    from iosim.core.keywords import ProblemOptions

    lines = [f"options.{name}: {kind.__forward_arg__}" for name, kind in sorted(ProblemOptions.__annotations__.items())]
    lines += [f"answer.{line}" for line in members(Answer)]
    for name in sorted(iosim._public()[1:]):
        found = getattr(iosim, name)
        if not isinstance(found, type):
            lines += [f"iosim.{name}" + (called(found) if callable(found) else f": {type(found).__name__}")]
        elif issubclass(found, Answer):
            lines += [f"iosim.{name}.{line}" for line in members(found) if "(" not in line.partition(":")[0]]
        else:
            lines += [f"iosim.{name}{called(found)}", *(f"iosim.{name}.{line}" for line in members(found))]
    return "".join(f"{line}\n" for line in lines)


def called(found):
    """How something is called, with the types as they are written; empty where Python cannot say."""
    try:
        shown = str(inspect.signature(inspect.unwrap(found)))
    except (TypeError, ValueError):
        return ""
    return as_written(re.sub(r"\((cls|self)(, )?", "(", re.sub(r" at 0x\w+", "", shown)))


def as_written(types):
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", re.sub(r"ForwardRef\(('.*?')[^)]*\)", r"\1", types))


def members(found):
    """The public fields, properties and methods of a class, those of its parents in iosim included."""
    own = [one for one in reversed(found.__mro__) if one.__module__.startswith("iosim")]
    types = {name: kind for one in own for name, kind in vars(one).get("__annotations__", {}).items()}
    for name in sorted({*types, *(name for one in own for name in vars(one))}):
        member = inspect.getattr_static(found, name, None)
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{name}: {member.fget.__annotations__.get('return')}"
        elif inspect.isroutine(member):
            yield name + called(getattr(member, "__func__", member))
        else:
            kind = types.get(name, type(member).__name__)
            yield f"{name}: {getattr(kind, '__forward_arg__', kind)}"


def test_signatures_are_those_that_are_kept():
    """A name, an argument or a field that goes breaks scripts: docs/commands.md says what is owed then."""
    assert SIGNATURES.read_text().splitlines() == signatures().splitlines(), (
        "python tests/house/test_typed.py writes it"
    )


if __name__ == "__main__":
    STUB.write_text(stub())
    SIGNATURES.write_text(signatures())
