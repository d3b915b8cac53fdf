"""Files that are written whole or not at all. Imports the standard library only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from .errors import InputError

WRITABLE = "a file in a folder that can be written"


def passes_through(path: str) -> bool:
    """Whether a name stands for something that is there and is no regular file (a device, a FIFO, an open stream):
    it is written to, never replaced, and nothing is put beside it."""
    return bool(re.match(r"/dev/(std|fd/)|/proc/", path)) or (os.path.exists(path) and not os.path.isfile(path))


@contextmanager
def whole(path: str) -> Iterator[str]:
    """The name of a temporary file, which becomes `path` at the end; what fails leaves nothing behind.

    A symbolic link stays and what it points to is replaced.
    """
    if "\0" in path:
        raise InputError("-o", path, WRITABLE, "a name has no zero byte")
    try:
        with through(path) if passes_through(path) else replaced(os.path.realpath(path)) as temporary:
            yield temporary
    except (OSError, UnicodeError) as error:
        raise InputError("-o", path, WRITABLE, getattr(error, "strerror", None) or str(error)) from None


@contextmanager
def through(path: str) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        temporary = os.path.join(folder, "whole")
        yield temporary
        with open(temporary, "rb") as found, open(path, "wb") as out:
            shutil.copyfileobj(found, out)


@contextmanager
def replaced(target: str) -> Iterator[str]:
    temporary = f"{target}.{os.getpid()}.part"
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
