"""The wings: folders that can be deleted, and packages of others. Each says in its `manifest.py` what it brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from .errors import InputError

GROUP = "iosim.wings"  # entry points by which other packages bring wings
Found = TypeVar("Found")
Forms = Mapping[str, tuple[str, ...]]
"""{form of an answer: the file endings that ask for it}; a name without an ending gets the first form."""


class Wing(NamedTuple):
    """What a folder or a package brings. Its manifest imports nothing else of it, so that it is read in no time.

    Where a value names something in a module, it is `module:name`, and the module is of this folder.
    """

    commands: Mapping[str, Mapping[str, str]] = {}
    """{heading of `iosim --help`: {command: its line}}; a command is in the folder's `command_<name>.py`."""
    names: Mapping[str, str] = {}
    """{name in Python: its module}."""
    points: Mapping[str, str] = {}
    """{command that `sweep --what` may ask at each grid point: its Point}."""
    pictures: Mapping[str, str] = {}
    """{word of `plot --picture`: the PictureKind that draws it}."""
    forms: Mapping[str, Forms] = {}
    """{command: the forms that it writes}, where they are not those of most answers."""
    offers: Mapping[str, str] = {}
    """{word: a function that others use if this wing is there}."""
    needs: tuple[str, ...] = ()
    """Folders of other wings that this one imports; without them it cannot stay."""
    page: str = ""
    """Its page in docs/."""


@cache
def wings() -> dict[str, Wing]:
    """iosim's own wings that are there, by their folders."""
    found = sorted(path.parent.name for path in Path(__file__).parent.glob("*/manifest.py"))
    return {folder: import_module(f".{folder}.manifest", __package__).WING for folder in found}


@cache
def of_others() -> dict[str, Wing]:
    """The wings of other packages, by the package of the manifest that an entry point names. Raises InputError for one
    that cannot be imported, and for what is no Wing."""
    from importlib.metadata import entry_points

    found: dict[str, Wing] = {}
    for point in entry_points(group=GROUP):
        try:
            wing, why = point.load(), ""
        except Exception as error:
            wing, why = None, str(error)
        if not isinstance(wing, Wing):
            raise InputError(GROUP, point.value, "a Wing, as package.manifest:WING", why)
        found[point.module.rpartition(".")[0]] = wing
    return found


def rows(of: Callable[[Wing], Mapping[str, Found]]) -> Iterator[tuple[str, str, Found]]:
    """Rows (package, word, value) of one mapping of all manifests. Other packages come last, and are looked for by
    whoever gets as far: to know a word of iosim's own takes no time. Of two that bring a word the first counts."""
    own = ((f"{__package__}.{folder}", wing) for folder, wing in wings().items())
    for found in (lambda: own, lambda: of_others().items()):
        for package, wing in found():
            for word, value in of(wing).items():
                yield package, word, value


def found_in(package: str, place: str) -> object:
    """What `module:name` of a package is."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"{package}.{module}"), name)


def offered(word: str) -> object | None:
    """The function that some wing offers under this word; None if no wing that is there has it."""
    found = (found_in(package, place) for package, name, place in rows(lambda wing: wing.offers) if name == word)
    return next(found, None)
