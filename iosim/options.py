"""Options: what a question may be given. Each option is one row, and all that is known of it stands in that row.

The options of every problem are in core/options.py. An option that only some schedules read is declared in their file.
From the rows follow the options of the command line and their help, the keys of a TOML
file, the keywords of Python functions, the axes of a sweep, and the columns of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from .errors import InputError, suggestion
from .units import LARGEST_COUNT, parse_axis, parse_bytes, parse_count, parse_factor, parse_registers, type_name

if TYPE_CHECKING:
    from .answer import Type

Value = object
"""The value of an option: a number, a text, a truth, or what its kind reads."""
Reader = Callable[[str | int, str], Value]
"""`read(value, option)`: the value that a text or a number stands for. Raises InputError if it is not allowed."""


class Kind(NamedTuple):
    """The kind of value of an option.

    `between` separates the values of an axis. `ranges` says whether start:stop:step stands for several values, and
    `listed` whether every command takes a list of values. `type` is that of a column, as JSON Schema names it. `help`
    makes a help from what is loaded only for it.
    """

    read: Reader
    type: Type = "string"
    between: str = ","
    ranges: bool = False
    listed: bool = False
    help: Callable[[], str] | None = None

    def parts(self, text: str) -> list[str]:
        """The values of a text if every command takes lists; else the text alone."""
        return text.split(",") if self.listed else [text]

    def number(self, text: str | int, option: str) -> int:
        """The number that a text stands for; for a kind whose values are numbers."""
        return int(str(self.read(text, option)))

    def read_all(self, text: str, option: str, axis: bool) -> None:
        """Read one value, or all values of an axis. Raises InputError for the first that is not allowed."""
        if not axis:
            self.read(text, option)
        elif self.ranges:
            parse_axis(text, option, lambda part: self.number(part, option))
        else:
            for part in text.split(self.between):
                self.read(part.strip(), option)


# ---------------------------------------------------------------- readers, which import what they need when called


def whole_number(least: int = 1, most: int | None = None) -> Reader:
    """A reader of whole numbers from `least` to `most`."""

    def read(value: str | int, option: str) -> int:
        return parse_count(value, option, least, LARGEST_COUNT if most is None else most)

    return read


def one_of(*names: str) -> Reader:
    """A reader of one of these names."""

    def read(value: str | int, option: str) -> str:
        if value not in names:
            raise InputError(option, value, " or ".join(names), suggestion(str(value), names))
        return str(value)

    return read


def as_given(value: str | int, option: str) -> Value:
    """The value itself."""
    return value


def read_size(value: str | int, option: str) -> int:
    """The bytes of a size. Words, as 51200el, are taken to have 2 bytes: a size is valid for any width or for none."""
    return parse_bytes(value, 2, option)


def read_factor(value: str | int, option: str) -> float:
    """The factor from 1 on that a text stands for."""
    return float(parse_factor(value, option))


def read_type(value: str | int, option: str) -> str:
    """The name of an element type."""
    return type_name(str(value), option)


def read_cache_type(value: str | int, option: str) -> str:
    """The name of an element type of K and V in HBM."""
    return type_name(str(value), option, packed=True)


def read_scales(value: str | int, option: str) -> str:
    """How K and V are scaled: a name, or the number of words that share a scale, as text."""
    return str(value) if value in KV_SCALES else str(whole_number()(value, option))


KV_SCALES = ("none", "tensor")
GQA = ("repeat", "pack")
MOST_STAGES, MOST_PASSES = 64, 10_000

COUNT = Kind(whole_number(), "integer", ranges=True)
PASSES = Kind(whole_number(0, MOST_PASSES), "integer", ranges=True)
SEED = Kind(whole_number(0), "integer", ranges=True)
COUNT_OR_0 = Kind(whole_number(0), "integer", ranges=True)
STAGES = Kind(whole_number(1, MOST_STAGES), "integer", ranges=True)
SIZE = Kind(read_size, "integer", ranges=True)
REGISTERS = Kind(parse_registers, "integer", ranges=True)
TYPE, CACHE_TYPE, SCALES = (
    Kind(read_type),
    Kind(read_cache_type),
    Kind(read_scales),
)
HEADS_SHARE = Kind(one_of(*GQA))
TEXT, LISTS = Kind(as_given), Kind(as_given, between=";")
MASK = LISTS  # masks are parsed above this file
CHANCE, FACTOR = Kind(as_given, "number"), Kind(read_factor, "number")
FLAG = Kind(as_given, "boolean")

# ---------------------------------------------------------------- rows

REQUIRED, PROBLEM, MEMORY = "Required", "Problem", "Memory"
CHOICE, VARIANTS, OWN, ANSWER = "Schedules and tiles", "Options of schedules", "Options", "Answer"
OF_WHAT = "Options of the command of --what"
HEADINGS = (REQUIRED, PROBLEM, MEMORY, CHOICE, OWN, OF_WHAT, VARIANTS, ANSWER)
"""Headings of a command's help, in their order."""


class Option(NamedTuple):
    """An option of a problem or of a schedule."""

    name: str
    """Its name in Python, in rows, and, with - for _, on the command line."""
    kind: Kind
    """The kind of its values."""
    help: str
    """What it is, for the help."""
    default: Value = None
    """Its value where it is not given."""
    metavar: str | None = None
    """What stands for its value in the help."""
    heading: str = VARIANTS
    """Its heading in the help."""
    also: tuple[str, ...] = ()
    """Its names in other programs. Messages suggest its own."""
    word: str = ""
    """Its name on the command line and in a TOML file where that is not `name`."""

    @property
    def key(self) -> str:
        """Its name in a TOML file."""
        return self.word or self.name

    @property
    def flag(self) -> str:
        """Its name on the command line, as `--page-size`."""
        return flag_of(self.key)

    @property
    def axis(self) -> bool:
        """Whether it may have several values in a sweep."""
        return self.kind is not FLAG

    def read(self, value: str | int) -> Value:
        """The value that a text or a number stands for. Raises InputError if it is not allowed."""
        return self.kind.read(value, self.flag)


def flag_of(name: str) -> str:
    """The option of the command line with this name in Python."""
    return "--" + name.replace("_", "-")


# ---------------------------------------------------------------- options that schedules declare

SCHEDULES = f"{__package__}.schedules"  # the package whose files declare options; this file knows only its name
DECLARED: dict[str, Option] = {}
"""Options that the files of schedules declared so far, by name."""
EXPECTED: dict[str, str] = {}
"""The modules of iosim's own schedules that declare options, by the option's name, in the order of lists."""


def declare(option: Option) -> None:
    """Add an option that a schedule reads. An earlier one of the same name is replaced."""
    DECLARED[option.name] = option


def expect(module: str, names: tuple[str, ...]) -> None:
    """Expect that a module declares these options. It is imported when one of them is first asked for."""
    EXPECTED.update(dict.fromkeys(names, module))


def declared(name: str) -> Option | None:
    """The declared option of this name; None if there is none."""
    if name not in DECLARED and not EXPECTED:
        import_module(SCHEDULES)
    if name not in DECLARED and name in EXPECTED:
        import_module(EXPECTED[name])
    return DECLARED.get(name)


def place(name: str) -> tuple[int, str]:
    """The place of a declared option in lists, to sort by: those of iosim first."""
    names = list(EXPECTED)
    return names.index(name) if name in EXPECTED else len(names), name


def all_declared() -> Iterator[Option]:
    """All declared options, those of iosim first, in the order of lists."""
    if not EXPECTED:
        import_module(SCHEDULES)
    for name in (*EXPECTED, *(name for name in DECLARED if name not in EXPECTED)):
        option = declared(name)
        assert option is not None
        yield option
