"""Files that are written whole or not at all."""

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
    """Whether a path is a device, a FIFO or an open stream: something that exists and is no regular file.

    It is written to and never replaced, and no temporary file is put beside it.
    """
    return bool(re.match(r"/dev/(std|fd/)|/proc/", path)) or (os.path.exists(path) and not os.path.isfile(path))


@contextmanager
def written_whole(path: str, option: str = "-o") -> Iterator[str]:
    """The name of a temporary file to write. At the end it becomes `path`. After an error no file is left.

    If `path` is a symbolic link, the link stays and its target is replaced. `option` is named in messages.
    """
    if "\0" in path:
        raise InputError(option, path, WRITABLE, "a name has no zero byte")
    try:
        with through(path) if passes_through(path) else replaced(os.path.realpath(path)) as temporary:
            yield temporary
    except (OSError, UnicodeError) as error:
        raise InputError(option, path, WRITABLE, getattr(error, "strerror", None) or str(error)) from None


@contextmanager
def through(path: str) -> Iterator[str]:
    """The name of a temporary file, whose content is copied into `path` at the end."""
    with TemporaryDirectory() as folder:
        temporary = os.path.join(folder, "whole")
        yield temporary
        with open(temporary, "rb") as found, open(path, "wb") as out:
            shutil.copyfileobj(found, out)


@contextmanager
def replaced(target: str) -> Iterator[str]:
    """The name of a temporary file beside the target. At the end it takes the target's place."""
    temporary = f"{target}.{os.getpid()}.part"
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
