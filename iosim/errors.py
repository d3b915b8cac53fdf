"""Errors: an IosimError is a fault that the user can mend, an InternalError is a bug of iosim.

The command line turns an IosimError into one message on stderr and an exit code: 1 if a check failed, 2 for wrong
usage, 3 if something is missing.
"""

from collections.abc import Iterable, Sequence

MEANT = "did you mean"


class IosimError(Exception):
    """A fault that the user can mend. The command line ends with `exit_code`."""

    exit_code = 2


class InputError(IosimError, ValueError):
    """A value that is not allowed. The message says where it was given, what was found, and what is allowed. A hint
    comes last, unless it says what was meant: that stands before a list that may be long."""

    most_shown = 80  # characters of what was found

    def __init__(self, where: str, found: object, allowed: str, hint: str = ""):
        self.where, self.found, self.allowed, self.hint = where, found, allowed, hint
        shown = repr(found) if isinstance(found, str) else str(found)
        most = self.most_shown
        shown = shown if len(shown) <= most else shown[: most - 4] + "..." + shown[-1]  # with its closing quote
        meant, _, last = hint.replace("?; ", "?\n", 1).partition("\n") if hint.startswith(MEANT) else ("", "", hint)
        meant += meant and (" " if meant.endswith("?") else "; ")
        super().__init__(f"{where}: found {shown}; {meant}allowed: {allowed}" + (f"; {last}" if last else ""))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all four arguments. By default only the message is, unpickling fails, and a process pool hangs."""
        return type(self), (self.where, self.found, self.allowed, self.hint)


class InputErrors(IosimError, ValueError):
    """Several values that are not allowed: `faults`, each on a line of the message."""

    def __init__(self, faults: Sequence[InputError]):
        self.faults = tuple(faults)
        super().__init__(f"{len(faults)} faults\n" + "\n".join(f"  {fault}" for fault in faults))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.faults,)


def as_one(faults: Sequence[InputError]) -> InputError | InputErrors:
    """The fault, or several in one message."""
    return faults[0] if len(faults) == 1 else InputErrors(faults)


def each(error: InputError | InputErrors) -> Sequence[InputError]:
    """The faults of an error."""
    return error.faults if isinstance(error, InputErrors) else (error,)


class ScheduleError(IosimError):
    """A schedule broke a rule of the machine (a freed block used, a loop left by `break`, a wrong shape)."""


class FoldingError(ScheduleError):
    """A schedule looked at a tile's position or size, which the folded machine does not know."""


class CapacityError(IosimError):
    """A schedule needed more SRAM than there is."""


class CheckError(IosimError):
    """A check ran and failed."""

    exit_code = 1


class MissingError(IosimError):
    """Something is not installed or not there: a GPU, a profiler, an optional package."""

    exit_code = 3


NO_PYARROW = "Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it"


class InternalError(Exception):
    """A bug of iosim itself: please report it."""


def did_you_mean(names: Iterable[str]) -> str:
    """The text `did you mean X or Y?`; empty without names."""
    shown = " or ".join(map(repr, names))
    return f"{MEANT} {shown}?" if shown else ""


def suggestion(word: str, names: Iterable[str]) -> str:
    """The text `did you mean X?` if a known name is close to the word, else an empty text."""
    return did_you_mean(closest(word, names))


def closest(word: str, names: Iterable[str]) -> list[str]:
    """The names that begin with a word and go on after a dash, else the one whose spelling is closest: first of all a
    name of the same letters in another order."""
    import difflib

    known = list(names)
    longer = [name for name in known if name.lower().startswith(word.lower() + "-")]
    swapped = [name for name in known if sorted(name) == sorted(word)]
    return longer or swapped[:1] or difflib.get_close_matches(word, known, n=1)
