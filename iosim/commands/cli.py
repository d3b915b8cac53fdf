"""The entry point: finds a command, loads only its file, and turns errors into one message and an exit code."""

from __future__ import annotations

import atexit
import errno
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import IO, TYPE_CHECKING, TextIO

import click

from ..errors import CheckError, InputError, IosimError, ScheduleError, suggestion
from ..progress import want_progress
from .answer import tell
from .command import help_option, version_option
from .listed import all_commands, groups, module_of
from .load import LOADED, load_option

if TYPE_CHECKING:
    from types import FrameType


class Failure(click.ClickException):
    """An IosimError as one message with its exit code."""

    def __init__(self, error: IosimError):
        super().__init__(str(error))
        self.exit_code: int = error.exit_code  # type: ignore[misc]

    def show(self, file: IO[str] | None = None) -> None:
        tell(f"Error: {self.message}")


class Interrupted(click.ClickException):
    """Ctrl-C, with the exit code that shells give it. Click alone ends with 1, as a check that failed."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("Aborted!")

    def show(self, file: IO[str] | None = None) -> None:
        click.echo("\nAborted!" if sys.stderr.isatty() else "Aborted!", err=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """A block in which Ctrl-C is one message."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
    except Exception as error:
        if is_interrupted(
            error
        ):  # Python makes a RuntimeError of Ctrl-C while a class is made, and NumPy an ImportError
            raise Interrupted from None
        raise


def is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


class Commands(click.Group):
    """The commands by name. A command's file is loaded when it is asked for. A misspelt name gets a suggestion."""

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return help_option

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(all_commands())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = module_of(name)
        return import_module(module).command if module else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, group in groups().items():
            with formatter.section(heading):
                formatter.write_dl(list(group.items()))

    def make_context(self, *args: object, **settings: object) -> click.Context:  # type: ignore[override]
        with interruptible():
            return super().make_context(*args, **settings)  # type: ignore[arg-type]

    def invoke(self, ctx: click.Context) -> object:
        with interruptible():
            return self.invoked(ctx)

    def invoked(self, ctx: click.Context) -> object:
        """The result of a command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except MemoryError:
            raise Failure(CheckError("memory ran out; ask for less at once")) from None
        except IosimError as error:
            raise Failure(error) from None
        except Exception as error:
            raise blamed(error) from None
        return result

    def main(self, *args: object, **settings: object) -> object:  # type: ignore[override]
        """Run a command line. A stream that cannot be written to is one message and exit code 2."""
        hold_streams()
        want_progress()
        try:
            with ended_by_signals():
                return super().main(*args, **settings)  # type: ignore[call-overload]
        except IosimError as error:  # of an option before the command
            failure = Failure(error)
        except OSError as error:
            if (found := unwritten(error)) is None:
                raise
            failure = found
        try:
            failure.show()
        except OSError:
            nowhere(sys.stderr)
        sys.exit(failure.exit_code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a line. Options may stand before the command, and `help` before it or after it."""
        if args[:1] == ["help"] or (len(args) == 2 and module_of(args[0]) and args[1] == "help"):
            args = [*(name for name in args[:2] if name != "help"), "--help"]
        place = next((k for k, text in enumerate(args) if text[:1] != "-" and module_of(text)), len(args))
        flags = [text.partition("=")[0] for text in args[:place] if text.startswith("-")]
        others = [flag for flag in flags if flag not in OPTIONS]
        if place == len(args) and args and not args[0].startswith("-"):
            raise misnamed(args)
        if others and place == len(args):
            hint = suggestion(others[0], OPTIONS) or "as in iosim count --N 8192 --d 128 --M 100KB"
            raise InputError("command", others[0], ", ".join(sorted(all_commands())), hint)
        if others:
            args = [args[place], *args[:place], *args[place + 1 :]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and not module_of(args[0]):
            raise misnamed(args)
        return super().resolve_command(ctx, args)


def misnamed(args: Sequence[str]) -> IosimError:
    """The fault of a line whose command does not exist: what asks the same today, why nothing does, or
    the commands that there are."""
    from .old_words import GONE, OLD, said_now

    name, *rest = args
    if name in OLD:
        return IosimError(f"iosim {name} is now: {said_now(name, rest)}")
    if name in GONE:
        return IosimError(f"iosim {name} is gone: {GONE[name]}")
    names = sorted(all_commands())
    return InputError("command", name, ", ".join(names), suggestion(name, names))


def blamed(error: Exception) -> Exception:
    """The error as a Failure with one message, if a file of --load caused it (its formula, search or example) or if
    stdout cannot be written to; a quiet end if its reader has enough. Any other error is a bug, returned as it is."""
    from ..core import blame

    if isinstance(error, BrokenPipeError) and error.filename is None:
        nowhere(sys.stdout)
        return click.exceptions.Exit(0)
    where = blame.line_of(error, LOADED)
    if where:
        return Failure(ScheduleError(where + blame.error_text(error)))
    return unwritten(error) or error


# ---------------------------------------------------------------- streams and signals

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO)


def unwritten(error: BaseException) -> Failure | None:
    """The failure of a stdout that cannot be written to, as on a full disk; None for any other error.

    The rest of its buffer is dropped, because Python would fail again at exit.
    """
    if not isinstance(error, OSError) or error.errno not in NO_ROOM or error.filename is not None:
        return None
    nowhere(sys.stdout)
    return Failure(InputError("stdout", str(error.strerror), "a place with room for the answer"))


def nowhere(stream: TextIO) -> None:
    """Send a stream to the null device."""
    import os

    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), stream.fileno())


def hold_streams() -> None:
    """Open the null device for closed streams, so that no file of an answer gets their number. A closed stdout stays
    unwritable."""
    import os

    if sys.stdout is None or sys.stderr is None:
        null = os.open(os.devnull, os.O_RDWR)
        while null < 2:
            null = os.dup(null)
        sys.stdout = sys.stdout or open(os.open(os.devnull, os.O_RDONLY), "w", closefd=False)  # noqa: SIM115
        sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as an error does, so that unfinished files are removed."""
    import signal
    import threading

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """How many words an attention schedule moves between HBM and an SRAM of M words, exactly."""


def leave_garbage() -> None:
    """Leave what is in memory out of Python's last search for garbage, which takes a tenth of `iosim count`. Triton's
    compiled code writes a message about each object that was not collected, so with Triton the search is made."""
    if "triton" not in sys.modules:
        gc.freeze()


main.params += [version_option, load_option]
OPTIONS = {name for option in (help_option, *main.params) for name in option.opts}
"""The options that may stand before a command and are not the command's."""
atexit.register(leave_garbage)
