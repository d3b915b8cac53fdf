"""Addresses such as s3://bucket/name, which fsspec reads and writes (extra `dist`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol

from .errors import InputError, IosimError, MissingError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::.*)?://")
NEEDS = "{} needs fsspec: pip install 'iosim[dist]'; a path on this machine works without it"


class FileSystem(Protocol):
    """What is used of a file system of fsspec. Paths have no scheme."""

    def ls(self, path: str, detail: bool) -> list[str]: ...
    def size(self, path: str) -> int: ...
    def open(self, path: str, mode: str) -> BinaryIO: ...
    def makedirs(self, path: str, exist_ok: bool) -> None: ...
    def put_file(self, lpath: str, rpath: str) -> None: ...
    def mv(self, path1: str, path2: str) -> None: ...
    def rm_file(self, path: str) -> None: ...
    def invalidate_cache(self) -> None: ...


def is_url(path: str) -> bool:
    """Whether a path is an address with a scheme."""
    return bool(SCHEME.match(path))


def file_system(url: str, option: str = "-o") -> tuple[FileSystem, str]:
    """(the file system of an address, the path in it). Raises MissingError without the package for its scheme."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingError(NEEDS.format(url)) from None
    with reported(url, option):
        found, path = url_to_fs(url)
        return found, str(path)


@contextmanager
def reported(url: str, option: str = "-o") -> Iterator[None]:
    """Turn whatever a file system raises into one message: each has errors of its own."""
    try:
        yield
    except (IosimError, MemoryError):
        raise
    except ImportError as error:
        raise MissingError(f"{url}: {error}") from None
    except Exception as error:
        why = (str(error).splitlines() or [""])[0]
        hint = f"{type(error).__name__}: {why}" if why else type(error).__name__
        raise InputError(option, url, "an address that fsspec can write", hint) from None


def make_folder(files: FileSystem, path: str) -> None:
    """Make a folder. A store of objects has none, and its paths begin with a bucket, which is not made."""
    if path.startswith("/"):
        files.makedirs(path, exist_ok=True)


@contextmanager
def uploaded(url: str, option: str = "-o") -> Iterator[str]:
    """The name of a temporary file on this machine. At the end it is sent to the address under another name, which then
    becomes its own. After an error it is not."""
    files, path = file_system(url, option)
    with reported(url, option):
        make_folder(files, os.path.dirname(path))
    with TemporaryDirectory() as folder:
        temporary = os.path.join(folder, "whole")
        yield temporary
        with reported(url, option):
            folder, _, name = path.rpartition("/")
            part = f"{folder}/_{name.lstrip('_')}.{os.urandom(4).hex()}.part"
            files.put_file(temporary, part)
            files.mv(part, path)
