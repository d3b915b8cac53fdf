"""One family of errors. What a user can mend is an IosimError; our own bugs are InternalError.

The command line turns an IosimError into one message on stderr and its exit code:
1 a check failed, 2 usage, 3 something is missing.
"""

from collections.abc import Iterable


class IosimError(Exception):
    """A fault that the user can mend; `exit_code` is what the command line answers with."""

    exit_code = 2


class InputError(IosimError, ValueError):
    """A value that is not allowed: where it stood, what was found, what is allowed, what to try."""

    def __init__(self, where: str, found: object, allowed: str, hint: str = ""):
        self.where, self.found, self.allowed, self.hint = where, found, allowed, hint
        shown = repr(found) if isinstance(found, str) else str(found)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        super().__init__(f"{where}: found {shown}; allowed: {allowed}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple[object, ...]:
        """Exceptions are made again from their one message; a pool of processes would wait for this one for ever."""
        return type(self), (self.where, self.found, self.allowed, self.hint)


class ScheduleError(IosimError):
    """A schedule broke a rule of the machine (a freed block used, a loop left by `break`, a wrong shape)."""


class FoldingError(ScheduleError):
    """A schedule looked at a tile's position or size where folding cannot know it."""


class CapacityError(IosimError):
    """A schedule needed more SRAM than there is."""


class CheckError(IosimError):
    """A check ran and failed."""

    exit_code = 1


class MissingError(IosimError):
    """Something that is not installed or not there: a GPU, a profiler, an optional package."""

    exit_code = 3


class InternalError(Exception):
    """A bug of iosim itself: please report it."""


def suggestion(word: str, names: Iterable[str]) -> str:
    """`did you mean X?` for a misspelt name, or an empty text."""
    import difflib

    known = list(names)
    longer = [name for name in known if name.lower().startswith(word.lower() + "-")]
    if longer:
        return f"did you mean {' or '.join(map(repr, longer))}?"
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
