"""Options of the command line: the options of click, made from rows, and the groups that several commands share.

Each option has a heading in the help, and a kind of value. So a command that fails can read all its options once more
and name every fault at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import click

from ..core.options import CACHE, CHIP, MASKS, OF_EVERY_PROBLEM, READ_BY_STATES, SIZES, TYPES
from ..core.options import VARIANTS as VARIANT_ROWS
from ..counting.given import Asked, Choice, Fields, Given
from ..options import (
    ANSWER,
    CHOICE,
    COUNT,
    FLAG,
    MASK,
    MEMORY,
    OF_WHAT,
    OWN,
    PASSES,
    PROBLEM,
    REGISTERS,
    SEED,
    SIZE,
    STAGES,
    TEXT,
    TYPE,
    Kind,
    one_of,
)
from ..options import Option as Row
from ..units import parse_axis, parse_range
from .answer import Output
from .notes import note

if TYPE_CHECKING:
    Function = Callable[..., object]  # type: ignore[explicit-any]  # each command has options of its own
    Decorator = Callable[[Function], Function]


# ---------------------------------------------------------------- kinds that need more than a text


def read_mask(value: str | int, option: str) -> object:
    from ..masks import parse_mask

    return parse_mask(str(value))


def mask_help() -> str:
    from ..masks.atoms import ROWS

    atoms = ", ".join(row.syntax for row in ROWS).replace("dense", "dense (default)")
    return f"{atoms}; &, |, ~ combine them. 2b is 2 tiles. py: runs the file."


def read_rule(value: str | int, option: str) -> object:
    from ..core.tiling import read_tiles

    return read_tiles(str(value), option)


def read_schedules(value: str | int, option: str) -> object:
    from ..schedules import find_all

    return find_all(str(value))


def read_sides(value: str | int, option: str) -> object:
    """Schedules, each with the tiles that it may have after a colon."""
    from ..tuning.sides import sides_of

    return sides_of(str(value)) if ":" in str(value) else read_schedules(value, option)


def read_hardware(value: str | int, option: str) -> object:
    from ..hardware import load

    return load(str(value))


def read_sizes(value: str | int, option: str) -> object:
    """An axis of sizes, or a range without a step."""
    text = str(value)
    if text.count(":") == 1:
        return parse_range(text, 2, option)
    return parse_axis(text, option, lambda part: SIZE.number(part, option))


MASK_KIND, TILES = Kind(read_mask, between=";", help=mask_help), Kind(read_rule)
SIZES_OR_RANGE = Kind(read_sizes, "integer")
SCHEDULE, SIDES, HARDWARE = Kind(read_schedules, listed=True), Kind(read_sides, listed=True), Kind(read_hardware)
PASS = Kind(one_of("forward", "backward", "step"))
ONE_OR_AXIS = (COUNT, SIZE, PASSES, SEED, STAGES, REGISTERS, TYPE, HARDWARE, TILES)
"""Kinds of options that take several values in some commands, and one in others."""

# ---------------------------------------------------------------- options


class Option(click.Option):
    """An option with a heading in the help and a kind of value. `also` are its names in other programs."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        heading: str = OWN,
        kind: Kind = TEXT,
        also: tuple[str, ...] = (),
        **settings: object,
    ) -> None:
        super().__init__(names, **settings)  # type: ignore[arg-type]
        self.heading, self.kind, self.also = heading, kind, also

    @property
    def flag(self) -> str:
        """The name that messages use."""
        return next((name for name in self.opts if name.startswith("--")), self.opts[0])

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self.kind.help() if self.kind.help else self.help
        return super().get_help_record(ctx)


class Settings(TypedDict, total=False):
    """What an option with a value may have beside its name, help and default."""

    metavar: str | None
    heading: str
    kind: Kind
    also: tuple[str, ...]


def one_value(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> str | None:
    """The value of an option. Several values of an axis become one text. For any other option the last value counts, as
    in most programs, and a note says so."""
    found = list(dict.fromkeys(values))
    assert isinstance(option, Option)
    if len(found) > 1 and option.name not in getattr(ctx.command, "axes", ()):
        note(ctx, f"{option.flag} takes one value: {values[-1]} counts, and {', '.join(values[:-1])} does not")
        return values[-1]
    return option.kind.between.join(found) if found else None


def with_value(names: Sequence[str], text: str, default: str | None = None, **settings: Unpack[Settings]) -> Option:
    """An option with a value; `text` is its help, which shows the default if there is one."""
    shown = default is not None
    values = (default,) if shown else None
    return Option(names, help=text, multiple=True, default=values, show_default=shown, callback=one_value, **settings)


def row_option(row: Row) -> Option:
    """The click option of a row. A default of a row is not shown, because a command must know what was given."""
    names = [row.flag, row.name]
    if row.kind is FLAG:
        return Option(names, heading=row.heading, kind=FLAG, is_flag=True, help=row.help)
    kind = MASK_KIND if row.kind is MASK else row.kind
    return with_value(names, row.help, metavar=row.metavar, heading=row.heading, kind=kind, also=row.also)


# ---------------------------------------------------------------- options as decorators of a command's function


def added(*some: Option) -> Decorator:
    """Add these options to a command, in this order."""

    def apply(function: Function) -> Function:
        function.__dict__.setdefault("__click_params__", []).extend(reversed(some))
        return function

    return apply


def options(*decorators: Decorator) -> Decorator:
    """One decorator that applies several, as if they stood below each other in this order."""

    def apply(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def text_option(
    name: str,
    text: str,
    default: str | None = None,
    parameter: str | None = None,
    second: str | None = None,
    **settings: Unpack[Settings],
) -> Decorator:
    """An option with a value; `text` is its help. Its parameter has its name, unless it is given. `second` is a name
    that it has as well."""
    names = [name, *([second] if second else []), parameter or name.strip("-").replace("-", "_")]
    return added(with_value(names, text, default, **settings))


def claim_option(more: str = "") -> Decorator:
    """The option --claim."""
    text = f"Is this possible: a time as 215us, or a rate as 3.5TB/s or 700TFLOP/s{more}."
    return text_option("--claim", text, metavar="CLAIM")


def repeated_option(name: str, parameter: str, text: str, **settings: Unpack[Settings]) -> Decorator:
    """An option that may be repeated: its parameter is a tuple of texts."""
    return added(Option([name, parameter], help=text, multiple=True, **settings))


def flag_option(
    name: str, text: str, heading: str = OWN, parameter: str | None = None, also: tuple[str, ...] = ()
) -> Decorator:
    """An option without a value. Its parameter has its name, unless it is given."""
    names = [name, *([parameter] if parameter else [])]
    return added(Option(names, heading=heading, is_flag=True, also=also, help=text))


def own_option(name: str, text: str, heading: str = OWN) -> Decorator:
    """An option that `count` lacks, with the help of a command. With a heading of --what it has no default."""
    from ..points import own_option as option_of

    row = option_of(name)
    if row.kind is FLAG:
        return flag_option(row.flag, text, heading)
    of_what = heading == OF_WHAT
    default = None if of_what or row.default is None else str(row.default)
    also = () if of_what else row.also
    settings = Settings(metavar=row.metavar, heading=heading, kind=row.kind, also=also)
    return text_option(row.flag, text, default, row.name, **settings)


def gathered(**makers: Function) -> Decorator:
    """Several options as one argument: with `gathered(launch=Launch)` the function takes `launch`. Launch makes it of
    the options that it has as parameters."""
    names = {name: tuple(signature(make).parameters) for name, make in makers.items()}

    def apply(function: Function) -> Function:
        @wraps(function)
        def command(**given: object) -> None:
            own = {name: {option: given.pop(option) for option in names[name]} for name in names}
            function(**given, **{name: makers[name](**options) for name, options in own.items()})

        return command

    return apply


def problem_asked(function: Function) -> Function:
    """All options that the function below does not have as parameters, as one argument `asked`."""
    own = signature(function).parameters

    @wraps(function)
    def command(**given: object) -> None:
        mine = {name: given.pop(name) for name in own if name in given}
        choice: Fields = {name: given.pop(name) for name in Choice._fields if name in given}
        function(asked=Asked(cast("Given", given), Choice(**choice)), **mine)

    return command


# ---------------------------------------------------------------- shared options


def rows(*some: Row) -> Decorator:
    """The options of these rows."""
    return added(*map(row_option, some))


size_options = rows(*(row for row in (*SIZES, *TYPES, *CACHE) if row.name != "N"))
causal_option = flag_option("--causal", "Short for --mask causal.", PROBLEM)
problem_options = options(rows(*SIZES, *TYPES, *CACHE, *MASKS), causal_option)


def problem_options_without(*names: str) -> Decorator:
    """The options of a problem without some, for commands that find these sizes elsewhere."""
    return options(rows(*(row for row in (*SIZES, *TYPES, *CACHE, *MASKS) if row.name not in names)), causal_option)


def size_option(more: str = "", kind: Kind = SIZE) -> Decorator:
    """The option --M, with more help and the kind of its values."""
    text = f"SRAM in bytes as 100KB or 1.5MB (K, KB, KiB = 1024), or in words as 51200el.{more}"
    also = ("sram", "smem", "memory", "mem", "shared", "shared-memory", "shared-mem", "sram-size", "smem-size")
    return text_option("--M", text, metavar="SIZE", heading=MEMORY, kind=kind, also=also)


sram_option = size_option()


PAPER_MODEL = "With --hardware: take M alone, with accumulators of --dtype and tiles of any size, as in the papers."


def hardware_option(text: str) -> Decorator:
    """The option --hardware of a command that also has --M, and --paper-model, which leaves out what it implies."""
    also = ("gpu", "device", "hw", "chip")
    named = text_option("--hardware", text, metavar="NAME|FILE", heading=MEMORY, kind=HARDWARE, also=also)
    return options(named, flag_option("--paper-model", PAPER_MODEL, MEMORY))


TAKE_M = (
    "Take M, fp32 accumulators and best tiles in multiples of 16 from a preset, as h100, or a FILE.toml; see iosim "
    "hardware."
)


def memory_with(size: Decorator) -> Decorator:
    """The options --M, as given, and --hardware."""
    return options(size, hardware_option(TAKE_M))


memory_options = memory_with(sram_option)


def schedule_option(
    text: str = "Only these schedules: a,b or repeated; see iosim schedules.", kind: Kind = SCHEDULE
) -> Decorator:
    """The option --schedule, as a tuple of texts with one or several names."""
    also = ("algorithm", "algo", "kernel", "algorithms", "method")
    return repeated_option("--schedule", "schedules", text, metavar="NAMES", heading=CHOICE, kind=kind, also=also)


def tiles_option(text: str, default: str | None = None) -> Decorator:
    """The option --tiles."""
    names = ("block", "tile")
    sides = (f"{name}-{side}" for name in names for side in ("m", "n", "q", "k", "kv", "size", "sizes"))
    also = (*names, "blocks", "bm", "bn", "bq", "bk", "bkv", "br", "bc", *sides)
    return text_option("--tiles", text, default, metavar="TILES", heading=CHOICE, kind=TILES, also=also)


multiple_option = text_option(
    "--tile-multiple",
    "Use only tile sizes that are multiples of this (default: 1, or 16 with --hardware).",
    metavar="COUNT",
    heading=CHOICE,
    kind=COUNT,
)
tile_options = options(
    schedule_option(),
    tiles_option("paper, best, or Br x Bc as 128x64 (query rows first)."),
    multiple_option,
)


def variant_options(function: Function) -> Function:
    """The options of schedules: those that every problem has, and those that schedules declare in their files."""
    return variants_without()(function)


def variants_without(*names: str) -> Decorator:
    """The options of schedules without some, for commands that answer for all of their values."""

    def apply(function: Function) -> Function:
        function.__dict__["takes_declared"] = True
        return rows(*(row for row in VARIANT_ROWS if row.name not in names))(function)

    return apply


def state_options(function: Function) -> Function:
    """The options of a problem with a state, of a command without the options of schedules."""
    function.__dict__["takes_declared"] = READ_BY_STATES
    return function


model_option = text_option(
    "--model",
    "A model's config.json of Hugging Face's form: its heads, head dimension, layers and window, where not given.",
    metavar="FILE",
    also=("config", "model-config", "hf-config"),
)
visit_option = rows(OF_EVERY_PROBLEM["visit_all"])
gqa_option = rows(OF_EVERY_PROBLEM["gqa"])
chip_options = rows(*CHIP)
json_option = flag_option("--json", "JSON on stdout.", ANSWER, "as_json")
csv_option = flag_option("--csv", "CSV on stdout.", ANSWER, "as_csv")


def file_option(text: str) -> Decorator:
    """The option -o."""
    return text_option("-o", text, None, "path", metavar="FILE", heading=ANSWER, also=("out", "output", "file"))


row_outputs = options(
    json_option, csv_option, file_option("Write to a file; its ending .json or .csv decides the form; - is stdout.")
)
outputs = options(row_outputs, gathered(output=Output.asked))
"""The options --json, --csv and -o, as one argument `output` of the function. Without --json and --csv the file's name
decides the form."""


def format_option(text: str) -> Decorator:
    """The option --format, as the parameter `kind`."""
    return text_option("--format", text, None, "kind", metavar="KIND", heading=ANSWER)


AXES = (
    *(row.name for row in OF_EVERY_PROBLEM.values() if row.axis),
    "M",
    "hardware",
    "tiles",
    "tile_multiple",
    "columns",
)
"""Parameters with several values, where a command counts a whole grid. So do options that schedules declare."""
PLACES = ("M", "hardware")
"""Parameters with several values, where a command answers for one problem after the other."""
