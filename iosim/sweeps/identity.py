"""What the rows of a sweep depend on beside its arguments: the files of iosim, of --load, and of --hardware.

Their content is part of a run's identity. The files of --load, the modules that they import, and hardware files travel
with the work, so a worker never reads its own. Each part comes back with the iosim that made it.
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
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .. import hardware
from ..errors import InputError, IosimError, MissingError
from ..masks.expression import Atom, atoms
from ..masks.mask import Mask
from ..masks.user_file import folder_on_path
from ..version import IMPORTED, __version__

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from ..counting.sweep_axes import Sweep

PACKAGE = Path(__file__).parent.parent
EDITED = "edited"
CHANGED = "files of iosim changed while {} ran: rows of two versions would be mixed; start it again"
SUFFIXES = (".py", ".cuh", ".cu", ".toml")  # of files that decide rows


# ---------------------------------------------------------------- the iosim of a process


class Maker(NamedTuple):
    """What makes a part: a version of iosim, and the SHA-256 of its files."""

    version: str
    sources: str


@cache
def this_maker() -> Maker:
    """The iosim of this process, as its files were at the first call."""
    return Maker(__version__, hash_of_files(stamps()))


def maker_now() -> Maker:
    """The iosim of this process. Its `sources` are EDITED if a file was edited since the first call."""
    begun = this_maker()
    return begun if hash_of_files(stamps()) == begun.sources else begun._replace(sources=EDITED)


@cache
def is_as_imported() -> bool:
    """Whether the first call of `this_maker` had the files that this process imported: none was written in between. A
    worker of Dask may have imported iosim days before its first sweep."""
    this_maker()
    return all(written_ns(file) < IMPORTED for file in package_files().values())


def written_ns(file: Path) -> int:
    """The time at which a file was written or put in its place; 0 for a file that is gone."""
    try:
        found = os.stat(file)
    except OSError:
        return 0
    return found.st_mtime_ns if sys.platform == "win32" else max(found.st_mtime_ns, found.st_ctime_ns)


def maker_of_process() -> Maker:
    """The iosim that makes the parts of this process."""
    return maker_now() if is_as_imported() else this_maker()._replace(sources=EDITED)


@cache
def package_files() -> dict[str, Path]:
    """The files of iosim by their names, which are the same in a checkout and in an installed package."""
    configs = hardware.configs_folder()
    found = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*") if configs not in file.parents}
    found |= {f"configs/{file.relative_to(configs).as_posix()}": file for file in configs.rglob("*")}
    return {name: found[name] for name in sorted(found) if name.endswith(SUFFIXES)}


def stamps() -> tuple[tuple[int, int] | None, ...]:
    """The time and the size of each file of iosim; None for a file that is gone."""
    return tuple(map(stamp, package_files().values()))


def stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@cache
def hash_of_files(stamps: tuple[object, ...]) -> str:
    """The SHA-256 of the names and bytes of all files of iosim. They are read again if their stamps differ."""
    found = hashlib.sha256()
    for (name, file), there in zip(package_files().items(), stamps, strict=True):
        found.update(f"{name}\0".encode() + (file.read_bytes() if there else b"") + b"\0")
    return found.hexdigest()


def check_maker(who: str, maker: Maker) -> None:
    """Raise MissingError for a part that another iosim made than that of this process."""
    own = this_maker()
    if maker.version != own.version:
        raise differs(who, "iosim", maker.version, own.version)
    if maker.sources == EDITED:
        raise MissingError(CHANGED.format(who))
    if maker.sources != own.sources:
        raise MissingError(f"{who} has other files of iosim {own.version}: install the same there, and start it again")


def differs(who: str, name: str, theirs: str, own: str) -> MissingError:
    """The error for a process with another version."""
    return MissingError(f"{who} has {name} {theirs}, and this is {name} {own}: install the same there")


# ---------------------------------------------------------------- files that travel with the work


class Source(NamedTuple):
    """A Python file of --load, or a module that one imports, with its text when the sweep began."""

    file: str
    text: str
    module: str = ""

    @property
    def name(self) -> str:
        """The file in messages. That of a module does not depend on the folder of the modules."""
        is_package = os.path.basename(self.file) == "__init__.py"
        return f"{self.module.replace('.', '/')}{'/__init__' * is_package}.py" if self.module else self.file

    def run(self) -> None:
        """Register the schedules of a file of --load in this process, once."""
        if self in RAN:
            return
        try:
            exec(compile(self.text, self.file, "exec"), {"__name__": "<loaded>", "__file__": self.file})
        except IosimError:
            raise
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError("--load", self.file, "a Python file that runs in every process", why) from None
        RAN.add(self)


RAN: set[Source] = set()  # the files of --load that this process ran
IMPORTED_BY_MASKS: dict[str, str] = {}  # {a module of a mask's file: its text when this process first ran the file}


@dataclass(frozen=True)
class Inputs:
    """The files of --load, the modules that they import, and the texts of hardware files by their paths."""

    sources: tuple[Source, ...] = ()
    modules: tuple[Source, ...] = ()
    hardware: tuple[tuple[str, str], ...] = ()
    of_masks: tuple[Source, ...] = ()
    """The modules that Python files of masks import. They do not travel: each process compares its own with these."""

    def describe(self) -> dict[str, dict[str, str]]:
        """The SHA-256 of each file."""
        return {
            "load": {source.name: digest(source.text) for source in (*self.sources, *self.modules)},
            "mask_files": {source.name: digest(source.text) for source in self.of_masks},
            "hardware_files": {path: digest(text) for path, text in self.hardware},
        }

    def prepare(self) -> None:
        """Run the files of --load in this process. Their modules are those of the sweep, wherever others lie."""
        if CARRIED not in sys.meta_path:
            sys.meta_path.insert(0, CARRIED)
        modules = {module.module: module for module in self.modules}
        if any(CARRIED.sources.get(name) != module for name, module in modules.items()):
            CARRIED.sources |= modules
            RAN.difference_update(self.sources)
            for name in modules:
                sys.modules.pop(name, None)
        for source in self.sources:
            source.run()
        for source in self.of_masks:
            if not os.path.isfile(source.file) or text_of(source.file) != source.text:
                raise InputError("--mask", source.file, "the file as it was when the sweep began, on every machine")
            if IMPORTED_BY_MASKS.setdefault(source.file, source.text) != source.text:
                raise MissingError(f"{source.file} was edited after a process imported it for a mask: start it again")

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
    """The hardware files of a sweep, and the files of --load, which this process has run, with what they import.

    `brought` has the names of the modules that came with each file of --load.
    """
    files = [*brought]
    sources = tuple(Source(file, text_of(file)) for file in files)
    RAN.update(sources)
    texts = {str(Path(name)): text_of(name) for name in plan.hardware if name.endswith(".toml")}
    functions = {atom.function.path for mask in plan.masks for atom in atoms_of(mask) if atom.function}
    of_masks = {module for path in sorted(functions) for module in modules_beside(path)}
    return Inputs(sources, tuple(modules_of(brought)), tuple(texts.items()), tuple(sorted(of_masks)))


def atoms_of(mask: object) -> Iterator[Atom]:
    """The atoms of a mask; none of the dense one."""
    return atoms(mask.expr) if isinstance(mask, Mask) else iter(())


def modules_beside(path: str) -> list[Source]:
    """The modules that a Python file of a mask imports."""
    with folder_on_path(path):
        return [*modules_of({path: ()})]


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


def modules_of(brought: Mapping[str, Collection[str]]) -> Iterator[Source]:
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
            yield Source(os.path.abspath(path), text_of(path), name)


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


class Carried(MetaPathFinder, ExecutionLoader):
    """Imports modules from the texts that came with a sweep."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in self.sources else None

    def get_filename(self, name: str) -> str:
        return self.sources[name].file

    def get_source(self, name: str) -> str:
        return self.sources[name].text

    def is_package(self, name: str) -> bool:
        return os.path.basename(self.get_filename(name)) == "__init__.py"


CARRIED = Carried()
