"""The wings: folders that can be deleted. Each says in its file `manifest.py` what it brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

Found = TypeVar("Found")
Forms = Mapping[str, tuple[str, ...]]
"""{form of an answer: the file endings that ask for it}; a name without an ending gets the first form."""


class Wing(NamedTuple):
    """What a folder brings. Its manifest imports nothing else of the folder, so that it is read in no time.

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
    """The wings that are there, by their folders."""
    found = sorted(path.parent.name for path in Path(__file__).parent.glob("*/manifest.py"))
    return {folder: import_module(f".{folder}.manifest", __package__).WING for folder in found}


def rows(of: Callable[[Wing], Mapping[str, Found]]) -> Iterator[tuple[str, str, Found]]:
    """Rows (folder, word, value) of one mapping of all manifests."""
    for folder, wing in wings().items():
        for word, value in of(wing).items():
            yield folder, word, value


def found_in(folder: str, place: str) -> object:
    """What `module:name` of a folder is."""
    module, _, name = place.partition(":")
    return getattr(import_module(f".{folder}.{module}", __package__), name)


def offered(word: str) -> object | None:
    """The function that some wing offers under this word; None if no wing that is there has it."""
    for folder, name, place in rows(lambda wing: wing.offers):
        if name == word:
            return found_in(folder, place)
    return None
