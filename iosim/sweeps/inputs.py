"""What the rows of a sweep depend on beside its arguments: iosim itself, and files.

The texts of hardware files and masks travel with the work. Python files do not: each process that makes parts compares
its own with those of the start.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .. import hardware
from ..errors import MissingError
from ..masks.expression import Atom, atoms
from ..masks.mask import Mask
from ..masks.user_file import folder_on_path
from ..version import __version__

if TYPE_CHECKING:
    from ..counting.sweep_axes import Sweep

PACKAGE = Path(__file__).parent.parent
SUFFIXES = (".py", ".cuh", ".cu", ".toml")  # of files that decide rows


class Maker(NamedTuple):
    """What makes a part: a version of iosim, and the SHA-256 of its files."""

    version: str
    sources: str


@cache
def this_maker() -> Maker:
    """The iosim of this process. The names of files are the same in a checkout and in an installed package."""
    found, configs = hashlib.sha256(), hardware.configs_folder()
    files = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*") if configs not in file.parents}
    files |= {f"configs/{file.relative_to(configs).as_posix()}": file for file in configs.rglob("*")}
    for name in sorted(name for name in files if name.endswith(SUFFIXES)):
        found.update(f"{name}\0".encode() + files[name].read_bytes() + b"\0")
    return Maker(__version__, found.hexdigest())


def check_maker(who: str, theirs: Maker, own: Maker) -> None:
    """Raise MissingError if a process with the iosim `theirs` may not make parts for `own`."""
    if theirs.version != own.version:
        raise MissingError(f"{who} has iosim {theirs.version}, and this is iosim {own.version}: install the same there")
    if theirs != own:
        raise MissingError(f"{who} has other files of iosim {own.version}: install the same there, and start it again")


# ---------------------------------------------------------------- files


class Source(NamedTuple):
    """A Python file on which rows depend. `kind` says what it is of; `name` does not depend on the folder of a
    module."""

    kind: str
    name: str
    path: str
    sha256: str


KNOWN: dict[str, str] = {}  # {a Python file: its SHA-256 when this process first needed it}


@dataclass(frozen=True)
class Inputs:
    """The files that a sweep needs: those of --load, these and the modules that they or masks import, and the texts of
    hardware files by their paths."""

    load: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    hardware: tuple[tuple[str, str], ...] = ()

    def describe(self) -> dict[str, dict[str, str]]:
        """The SHA-256 of each file."""
        found: dict[str, dict[str, str]] = {"load": {}, "mask_files": {}}
        for source in self.sources:
            found[source.kind][source.name] = source.sha256
        return {**found, "hardware_files": {path: digest(text) for path, text in self.hardware}}

    def prepare(self) -> None:
        """Run the files of --load in this process. Raises MissingError if a file is not that of the sweep's start."""
        from ..commands.load import LOADED, load_file

        for source in self.sources:
            if not os.path.isfile(source.path) or digest(text_of(source.path)) != source.sha256:
                allowed = "a process that makes parts needs the file as it was when the sweep began"
                raise MissingError(f"{source.path} is missing or differs: {allowed}")
            if KNOWN.setdefault(source.path, source.sha256) != source.sha256:
                raise MissingError(f"{source.path} was edited after a process imported it: start that process again")
        for file in self.load:
            if file not in LOADED:
                load_file(file)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A block that reads these texts in place of the hardware files."""
        token = hardware.TEXTS.set(dict(self.hardware))
        try:
            yield
        finally:
            hardware.TEXTS.reset(token)


NO_INPUTS = Inputs()


def inputs_of(plan: Sweep, brought: Mapping[str, Collection[str]] = MappingProxyType({})) -> Inputs:
    """The files that a sweep needs. `brought` has, for each file of --load, the modules that came with it."""
    load = tuple(map(os.path.abspath, brought))
    own = [Source("load", name, file, digest(text_of(file))) for name, file in zip(brought, load, strict=True)]
    own += [*modules_of("load", dict(zip(load, brought.values(), strict=True)))]
    for path in sorted({atom.function.path for mask in plan.masks for atom in atoms_of(mask) if atom.function}):
        with folder_on_path(path):
            own += modules_of("mask_files", {path: ()})
    texts = {str(Path(name)): text_of(name) for name in plan.hardware if name.endswith(".toml")}
    return Inputs(load, tuple(own), tuple(texts.items()))


def atoms_of(mask: object) -> Iterator[Atom]:
    """The atoms of a mask; none of the dense one."""
    return atoms(mask.expr) if isinstance(mask, Mask) else iter(())


def digest_of_atom(atom: Atom) -> str | None:
    """The SHA-256 of what an atom read from a file, when it was read; None if it read none."""
    if atom.function:
        return digest(atom.function.text)
    if atom.file is None:
        return None
    found = hashlib.sha256(f"{atom.file.data.shape} {atom.file.block} ".encode())
    found.update(atom.file.data.tobytes())
    return found.hexdigest()


def text_of(file: str) -> str:
    """The text of a file."""
    return Path(file).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def modules_of(kind: str, brought: Mapping[str, Collection[str]]) -> Iterator[Source]:
    """The modules that some files import, directly or not, also inside functions; and those among the modules that they
    `brought`. Modules of Python itself, of installed packages and of iosim are left out."""
    from modulefinder import ModuleFinder

    if not brought:
        return
    finder = ModuleFinder([path for path in sys.path if is_own(path)], excludes=[PACKAGE.name])
    for file in brought:
        finder.run_script(file)
    found = {name: getattr(module, "__file__", None) for name, module in finder.modules.items() if name != "__main__"}
    for name in {name for names in brought.values() for name in names}:
        found.setdefault(name, getattr(sys.modules.get(name), "__file__", None))
    for name, path in sorted(found.items()):
        if path and path.endswith(".py") and is_own(path):
            ending = "/__init__.py" if os.path.basename(path) == "__init__.py" else ".py"
            yield Source(kind, name.replace(".", "/") + ending, os.path.abspath(path), digest(text_of(path)))


def is_own(path: str) -> bool:
    """Whether a path is neither in Python, nor in a folder of installed packages, nor in iosim."""
    whole = Path(path).resolve()
    return folders_of_others().isdisjoint((whole, *whole.parents))


@cache
def folders_of_others() -> frozenset[Path]:
    """The folders of Python, of installed packages, and of iosim."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages(), str(PACKAGE)}
    return frozenset(Path(folder).resolve() for folder in found)
