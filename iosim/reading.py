"""Reads files that a user names: no devices, no more bytes than a limit, and TOML in one place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LARGEST_TOML = 2**24  # bytes
LARGEST_TEXT = 2**30

Toml = dict[str, object]
"""The keys of a TOML file, with their values."""


class Unreadable(ValueError):
    """A file that cannot be read. Its text says why."""


class Garbled(Unreadable):
    """A file that is no text in UTF-8, or no TOML."""


def check_no_device(path: str | Path) -> None:
    """Raise Unreadable for a device, as /dev/zero, which may have no end. A pipe is none."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # who opens it says what is wrong
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise Unreadable("it is a device and no file")


def read_text(path: str | Path, most_bytes: int = LARGEST_TEXT, errors: str = "strict") -> str:
    """The text of a file in UTF-8. Raises Unreadable for a device, for too many bytes, and for what is no text."""
    check_no_device(path)
    if "\0" in str(path):
        raise Unreadable("a name of a file has no null byte")
    try:
        with open(path, "rb") as file:
            found = file.read(most_bytes + 1)
        if len(found) > most_bytes:
            raise Unreadable(f"it has more than {most_bytes} bytes")
        return found.decode("utf-8", errors)
    except FileNotFoundError:
        raise Unreadable("no such file") from None
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise Garbled(str(error)) from None


def parse_toml(text: str) -> Toml:
    """The keys of a TOML text. Raises Unreadable for another text, and for lists that are nested too deep."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise Unreadable("lists nested too deep") from None
    except ValueError as error:
        raise Garbled(str(error)) from None


def read_toml(path: str | Path) -> Toml:
    """The keys of a TOML file. Raises Unreadable if it cannot be read."""
    return parse_toml(read_text(path, LARGEST_TOML))
