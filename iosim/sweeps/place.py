"""The place of a folder of parts: a folder of this machine, or an address such as s3://bucket/sweep/.

A reader of data sets takes each file of the folder for data, unless its name begins with `_`. So only whole parts have
other names.
"""

from __future__ import annotations

import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import InputError
from ..files import written_whole
from ..urls import FileSystem, file_system, is_url, make_folder, reported, uploaded

if TYPE_CHECKING:
    Record = Callable[[str], object]
    """A function that adds a line to a journal."""

WRITABLE = "a folder that can be written"
SECONDS_BETWEEN_LINES = 5  # of a journal at an address
SHARE_OF_TIME = 20  # writing the journal again takes at most one part in so many


@dataclass(frozen=True)
class Place(ABC):
    """A folder of files by their names. It can be sent to another process."""

    path: str

    @abstractmethod
    def names(self) -> set[str]:
        """The names of all files; none if there is no folder."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder, unless it is there."""

    @abstractmethod
    def text(self, name: str) -> str | None:
        """The text of a file; None if it is not there."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is not there, or is no file inside the folder."""

    @abstractmethod
    def written(self, name: str, own: str = "") -> AbstractContextManager[str]:
        """The name of a temporary file of this machine. At the end it is on disk as `name`, whole or not at all. A
        run that was killed left a name that begins with `own`, or with `name`."""

    @abstractmethod
    def fetched(self, name: str) -> AbstractContextManager[str]:
        """The name of a file of this machine with the content of a file. Raises FileNotFoundError without one."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def locked(self, name: str, shared: bool = False) -> AbstractContextManager[None]:
        """Hold a lock. Raises InputError if another process holds it, unless both hold it `shared`."""

    @abstractmethod
    def journal(self, name: str, lines: list[str]) -> AbstractContextManager[Record]:
        """Write a file of lines, and give a function that adds another."""

    def reported(self) -> AbstractContextManager[None]:
        """Turn errors of the file system into one message."""
        return reported(self.path)

    def write_text(self, name: str, text: str, own: str = "") -> None:
        """Write a file, whole or not at all."""
        with self.written(name, own) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(text)


def place_of(path: str) -> Place:
    """The place of a path or an address. That of a path does not depend on the working folder of a process."""
    if "\0" in path:
        raise InputError("-o", path, WRITABLE, "a name has no zero byte")
    return Remote(path) if is_url(path) else Local(os.path.abspath(path))


def file_digest(path: str) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---------------------------------------------------------------- a folder of this machine


@dataclass(frozen=True)
class Local(Place):
    """A folder of this machine, or of a disk that several machines share."""

    def at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> set[str]:
        return {*os.listdir(self.path)} if os.path.isdir(self.path) else set()

    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)

    def text(self, name: str) -> str | None:
        try:
            with open(self.at(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        whole = os.path.realpath(self.at(name))
        is_inside = os.path.dirname(whole) == os.path.realpath(self.path)
        return os.path.getsize(whole) if is_inside and os.path.isfile(whole) else None

    @contextmanager
    def written(self, name: str, own: str = "") -> Iterator[str]:
        with written_whole(self.at(name), own=own) as temporary:
            yield temporary
            keep(temporary)
        keep(self.path)

    @contextmanager
    def fetched(self, name: str) -> Iterator[str]:
        if self.size(name) is None:
            raise FileNotFoundError(self.at(name))
        yield self.at(name)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.at(name))

    @contextmanager
    def locked(self, name: str, shared: bool = False) -> Iterator[None]:
        """The system releases the lock when this process ends, even if it is killed."""
        with open(self.at(name), "a+") as file:
            try:
                import fcntl
            except ImportError:  # a system without such locks
                yield
                return
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                allowed = "a folder that no other run writes to"
                raise InputError("-o", self.path, allowed, "wait, or end the other run") from None
            yield

    @contextmanager
    def journal(self, name: str, lines: list[str]) -> Iterator[Record]:
        """Each line is on disk before the function returns."""
        self.write_text(name, "".join(lines))
        with open(self.at(name), "a", encoding="utf-8") as file:

            def record(line: str) -> None:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())

            yield record

    @contextmanager
    def reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError("-o", self.path, WRITABLE, error.strerror or str(error)) from None


def keep(path: str) -> None:
    """Force a file or a folder to disk now, so that it survives a reboot."""
    if os.path.isdir(path) and sys.platform == "win32":  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------- an address


@dataclass(frozen=True)
class Remote(Place):
    """A folder at an address that fsspec knows. It has no lock: two runs of one line write the same bytes."""

    def at(self, name: str) -> tuple[FileSystem, str]:
        """(the file system, the path of a file)."""
        files, folder = file_system(self.path)
        return files, f"{folder.rstrip('/')}/{name}"

    def names(self) -> set[str]:
        files, folder = file_system(self.path)
        with self.reported():
            files.invalidate_cache()
            try:
                return {path.rstrip("/").rpartition("/")[2] for path in files.ls(folder, detail=False)} - {""}
            except FileNotFoundError:
                return set()

    def make(self) -> None:
        files, folder = file_system(self.path)
        with self.reported():
            make_folder(files, folder)

    def text(self, name: str) -> str | None:
        files, path = self.at(name)
        with self.reported():
            try:
                return files.cat_file(path).decode(errors="replace")
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        files, path = self.at(name)
        with self.reported():
            files.invalidate_cache()
            try:
                about = files.info(path)
            except FileNotFoundError:
                return None
        return int(str(about["size"])) if about.get("type") == "file" else None

    @contextmanager
    def written(self, name: str, own: str = "") -> Iterator[str]:
        with uploaded(f"{self.path.rstrip('/')}/{name}") as temporary:
            yield temporary

    @contextmanager
    def fetched(self, name: str) -> Iterator[str]:
        files, path = self.at(name)
        with TemporaryDirectory() as folder:
            local = os.path.join(folder, "fetched")
            if self.size(name) is None:
                raise FileNotFoundError(path)
            with self.reported():
                files.get_file(path, local)
            yield local

    def remove(self, name: str) -> None:
        files, path = self.at(name)
        with self.reported(), suppress(FileNotFoundError):
            files.rm_file(path)

    @contextmanager
    def locked(self, name: str, shared: bool = False) -> Iterator[None]:
        yield

    @contextmanager
    def journal(self, name: str, lines: list[str]) -> Iterator[Record]:
        """The file is written again now and then, and at the end. A part whose line is not there is counted again."""
        due = self.write_lines(name, lines)

        def record(line: str) -> None:
            nonlocal due
            lines.append(line)
            if monotonic() >= due:
                due = self.write_lines(name, lines)

        try:
            yield record
        finally:
            self.write_lines(name, lines)

    def write_lines(self, name: str, lines: list[str]) -> float:
        """Write lines, and return the time at which they may be written again."""
        begun = monotonic()
        self.write_text(name, "".join(lines))
        return monotonic() + max(SECONDS_BETWEEN_LINES, SHARE_OF_TIME * (monotonic() - begun))
