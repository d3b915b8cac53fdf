"""The grammar of the command line: options that several commands share, and how a command reads them.

Each option has a heading in the help, and a kind of value. So a command that fails can read all its options once more
and name every fault at once. A command declares which options it needs, and which may be axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import signature
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import click

from .. import __version__
from ..core.options import CACHE, CHIP, MASKS, OF_EVERY_PROBLEM, SIZES, TYPES
from ..core.options import VARIANTS as VARIANT_ROWS
from ..errors import InputError, IosimError, MissingError, suggestion
from ..masks.atoms import ROWS
from ..options import (
    ANSWER,
    CHOICE,
    COUNT,
    FLAG,
    HEADINGS,
    MASK,
    MEMORY,
    OF_WHAT,
    OWN,
    PASSES,
    PROBLEM,
    REGISTERS,
    REQUIRED,
    SEED,
    SIZE,
    STAGES,
    TEXT,
    TYPE,
    VARIANTS,
    Kind,
    all_declared,
    declared,
    flag_of,
)
from ..options import Option as Row
from .answer import Output, say

if TYPE_CHECKING:
    from ..schedules import Schedule

    Function = Callable[..., object]  # type: ignore[explicit-any]  # each command has options of its own
    Decorator = Callable[[Function], Function]
    Params = Mapping[str, object]

# ---------------------------------------------------------------- kinds that need more than a text


def read_mask(value: str | int, option: str) -> object:
    from ..masks import parse_mask

    return parse_mask(str(value))


def read_tiles(value: str | int, option: str) -> object:
    from ..core.tiling import Tiling, parse_tiles

    rules = ("paper", "best", "ideal")
    more = tuple(name for name in Tiling.__dataclass_fields__ if name not in ("rows_q", "rows_k"))
    return value if value in rules else parse_tiles(str(value), option, more=more, rules=True)


def read_schedules(value: str | int, option: str) -> object:
    from ..schedules import find_all

    return find_all(str(value))


def read_hardware(value: str | int, option: str) -> object:
    from ..hardware import load

    return load(str(value))


MASK_KIND, TILES = Kind(read_mask, between=";"), Kind(read_tiles)
SCHEDULE, HARDWARE = Kind(read_schedules, listed=True), Kind(read_hardware)
ONE_OR_AXIS = (COUNT, SIZE, PASSES, SEED, STAGES, REGISTERS, TYPE, HARDWARE, TILES)
"""Kinds of options that take several values in some commands, and one in others."""

# ---------------------------------------------------------------- options


class Option(click.Option):
    """An option with a heading in the help and a kind of value. `also` are its names in other programs."""

    def __init__(
        self, param_decls: Sequence[str] | None = None, *, heading: str = OWN, kind: Kind = TEXT,
        also: tuple[str, ...] = (), **settings: object,
    ) -> None:  # fmt: skip
        super().__init__(param_decls, **settings)  # type: ignore[arg-type]
        self.heading, self.kind, self.also = heading, kind, also

    @property
    def flag(self) -> str:
        """The name that messages use."""
        return max(self.opts, key=len)


def one_value(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> str | None:
    """The value of an option. Several values of an axis become one text. For any other option the last value counts, as
    in most programs, and a note says so."""
    found = list(dict.fromkeys(values))
    assert isinstance(option, Option) and isinstance(ctx.command, Command)
    if len(found) > 1 and option.name not in ctx.command.axes:
        note(ctx, f"{option.flag} takes one value: {values[-1]} counts, and {', '.join(values[:-1])} does not")
        return values[-1]
    return option.kind.between.join(found) if found else None


def text_option(
    name: str, text: str, metavar: str | None = None, default: str | None = None, show_default: bool = False,
    heading: str = OWN, kind: Kind = TEXT, also: tuple[str, ...] = (), parameter: str | None = None,
) -> Decorator:  # fmt: skip
    """An option with a value; `text` is its help. Its parameter has its name, unless it is given."""
    parameter = parameter or name.strip("-").replace("-", "_")
    return click.option(
        name, parameter, cls=Option, heading=heading, kind=kind, also=also, help=text, metavar=metavar,
        show_default=show_default, multiple=True, default=None if default is None else (default,), callback=one_value,
    )  # fmt: skip


def flag_option(name: str, text: str, heading: str = OWN, parameter: str | None = None) -> Decorator:
    """An option without a value. Its parameter has its name, unless it is given."""
    names = (name, parameter) if parameter else (name,)
    return click.option(*names, cls=Option, heading=heading, is_flag=True, help=text)


def options(*decorators: Decorator) -> Decorator:
    """One decorator that applies several, as if they stood below each other in this order."""

    def apply(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


# ---------------------------------------------------------------- shared options

ATOMS = ", ".join(row.syntax for row in ROWS).replace("dense", "dense (default)")
MASK_HELP = f"{ATOMS}; &, |, ~ combine them. 2b is 2 tiles."


def row_option(row: Row) -> Option:
    """The click option of a row."""
    names, text = [row.flag, row.name], MASK_HELP if row.kind is MASK else row.help
    if row.kind is FLAG:
        return Option(names, heading=row.heading, kind=row.kind, is_flag=True, help=text)
    return Option(
        names,
        heading=row.heading,
        kind=MASK_KIND if row.kind is MASK else row.kind,
        also=row.also,
        help=text,
        metavar=row.metavar,
        multiple=True,
        callback=one_value,
    )


def rows(*some: Row) -> Decorator:
    """The options of these rows."""

    def apply(function: Function) -> Function:
        made = [row_option(row) for row in some]
        function.__dict__.setdefault("__click_params__", []).extend(reversed(made))
        return function

    return apply


def own_option(name: str, text: str, show_default: bool = False, heading: str = OWN) -> Decorator:
    """An option that `count` lacks, with the help of a command. With a heading of --what it has no default."""
    from ..sweeps.own_options import OWN as OWN_ROWS

    row = OWN_ROWS[name].option
    if row.kind is FLAG:
        return flag_option(row.flag, text, heading=heading)
    default = None if heading == OF_WHAT or row.default is None else str(row.default)
    return text_option(row.flag, text, row.metavar, default, show_default, heading, row.kind)


size_options = rows(*(row for row in (*SIZES, *TYPES, *CACHE) if row.name != "N"))
problem_options = options(
    rows(*SIZES, *TYPES, *CACHE, *MASKS), flag_option("--causal", "Short for --mask causal.", heading=PROBLEM)
)
sram_option = text_option(
    "--M",
    "SRAM in bytes as 100KB or 1.5MB (K, KB, KiB = 1024), or in words as 51200el.",
    metavar="SIZE",
    heading=MEMORY,
    kind=SIZE,
    also=("sram", "smem", "memory", "shared", "shared-memory", "sram-size"),
)
GPU_NAMES = ("gpu", "device", "hw", "chip")
memory_options = options(
    sram_option,
    text_option("--hardware", "Take M from a preset, as h100; see iosim hardware.", metavar="NAME", heading=MEMORY,
                kind=HARDWARE, also=GPU_NAMES),
)  # fmt: skip
SCHEDULE_NAMES = ("algorithm", "algo", "kernel", "algorithms", "method")


def schedule_option(text: str = "Only these schedules: a,b or repeated; see iosim schedules.") -> Decorator:
    """The option --schedule, as a tuple of texts with one or several names."""
    return click.option("--schedule", "schedules", cls=Option, heading=CHOICE, kind=SCHEDULE, multiple=True,
                        metavar="NAMES", help=text, also=SCHEDULE_NAMES)  # fmt: skip


def tiles_option(text: str, default: str | None = None) -> Decorator:
    """The option --tiles."""
    return text_option(
        "--tiles", text, metavar="TILES", default=default, show_default=default is not None, heading=CHOICE, kind=TILES,
        also=("tile", "block", "blocks", "block-size", "br", "bc"),
    )  # fmt: skip


multiple_option = text_option(
    "--tile-multiple", "Use only tile sizes that are multiples of this.", metavar="COUNT", default="1",
    show_default=True, heading=CHOICE, kind=COUNT,
)  # fmt: skip
tile_options = options(
    schedule_option(),
    tiles_option("paper, best, or Br x Bc as 128x64 (query rows first)."),
    multiple_option,
)


def variant_options(function: Function) -> Function:
    """The options of schedules: those that every problem has, and those that schedules declare in their files."""
    function.__dict__["takes_declared"] = True
    return rows(*VARIANT_ROWS)(function)


chip_options = rows(*CHIP)
json_option = flag_option("--json", "JSON on stdout.", heading=ANSWER, parameter="as_json")
csv_option = flag_option("--csv", "CSV on stdout.", heading=ANSWER, parameter="as_csv")


def file_option(text: str) -> Decorator:
    """The option -o."""
    return text_option("-o", text, metavar="FILE", heading=ANSWER, also=("out", "output", "file"), parameter="path")


row_outputs = options(
    json_option, csv_option, file_option("Write to a file; its ending .json or .csv decides the form; - is stdout.")
)


def outputs(function: Function) -> Function:
    """The options --json, --csv and -o, as one argument `output` of the function. Without --json and --csv the file's
    name decides the form."""

    @wraps(function)
    def command(*, as_json: bool, as_csv: bool, path: str | None, **given: object) -> None:
        function(output=Output.asked(as_json, as_csv, path), **given)

    return row_outputs(command)


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


def format_option(text: str) -> Decorator:
    """The option --format, as the parameter `kind`."""
    return text_option("--format", text, metavar="KIND", heading=ANSWER, parameter="kind")


AXES = (
    *(row.name for row in OF_EVERY_PROBLEM.values() if row.axis), "M", "hardware", "tiles", "tile_multiple", "columns"
)
"""Parameters with several values, where a command counts a whole grid. So do options that schedules declare."""
PLACES = ("M", "hardware")
"""Parameters with several values, where a command answers for one problem after the other."""
AXIS_HINTS = {"M": "An axis as 16KB:64KB:x2 gives an answer for each.", "hardware": "Several as h100,t4."}
"""The text that the help adds to these parameters if they are axes."""

# ---------------------------------------------------------------- commands

LOADED: list[str] = []
FAULTS, FILES, NOTES, NAMED, AHEAD = "iosim.faults", "iosim.files", "iosim.notes", "iosim.named", "iosim.ahead"


def option_names_in(args: Sequence[str]) -> list[str]:
    """The names in Python of the options of a command line, each once."""
    texts = (text[2:].partition("=")[0].replace("-", "_") for text in args if text.startswith("--"))
    return list(dict.fromkeys(texts))


def load_file(file: str) -> None:
    """Run a file that registers schedules."""
    import runpy
    import sys
    from contextlib import redirect_stdout

    LOADED.append(file)
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the answer
            runpy.run_path(file)
    except IosimError:
        raise
    except Exception as error:
        raise InputError("--load", file, "a Python file that runs", f"{type(error).__name__}: {error}") from None


def load_files(ctx: click.Context, option: click.Parameter, files: tuple[str, ...]) -> None:
    """Run the files of --load that were not run yet, and record their names for `loaded`."""
    done = ctx.meta.pop(AHEAD, ())
    for file in files:
        if file not in done:
            load_file(file)
    ctx.meta[FILES] = (*loaded(ctx), *files)


def load_ahead(ctx: click.Context, args: Sequence[str]) -> None:
    """Run the files of --load before the rest of a line is parsed, because they may declare options."""
    files = [text.partition("=")[2] for text in args if text.startswith("--load=")]
    files += [file for option, file in pairwise(args) if option == "--load"]
    for file in files:
        load_file(file)
    ctx.meta[AHEAD] = files


def loaded(ctx: click.Context) -> tuple[str, ...]:
    """The files that this command line loaded, before or after the command's name."""
    return ctx.meta.get(FILES, ())


load_option = Option(
    ["--load"], heading=ANSWER, multiple=True, metavar="FILE.py",
    help="Run these Python files, which register schedules.", is_eager=True, expose_value=False, callback=load_files,
)  # fmt: skip


def telling(text_of: Callable[[click.Context], str], *names: str, text: str) -> click.Option:
    """An option that writes a text and ends the program. click has such options for the help and the version, but looks
    up translations of their texts, and for that Python loads `locale`."""

    def tell(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            click.echo(text_of(ctx), color=ctx.color)
            ctx.exit()

    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=tell, help=text)


help_option = telling(lambda ctx: ctx.get_help(), "-h", "--help", text="Show this message and exit.")
version_option = telling(lambda ctx: f"iosim, version {__version__}", "--version", text="Show the version and exit.")


def note(ctx: click.Context, text: str) -> None:
    """Keep a note about an option that changes nothing. It is written to stderr below the answer."""
    ctx.meta.setdefault(NOTES, []).append(text)


def faults_in(ctx: click.Context) -> list[InputError]:
    """The faults found so far in this command line."""
    return ctx.meta.setdefault(FAULTS, [])  # type: ignore[no-any-return]


class Need(NamedTuple):
    """An option that a command needs, unless one of the parameters `or_else` is given."""

    parameter: str
    or_else: tuple[str, ...] = ()


N, D, M = Need("N"), Need("d"), Need("M", ("hardware",))
M_OR_TILES = Need("M", ("hardware", "tiles"))


INSTEAD = {
    **dict.fromkeys(("--no-color", "--no-colour", "--color"), "a terminal without colour: set NO_COLOR=1"),
    "--M-elements": "--M takes words too, as --M 51200el",
    **dict.fromkeys(("--sweep-M", "--sweep-m"), "--M takes an axis, as --M 16KB:227KB:x2"),
}
"""What to do instead of options that no command has."""


class Command(click.Command):
    """A command with headings in its help and the option --load. It names all faults of a line at once.

    `needs` are the options that stand first in the help. Parameters in `axes` may have several values. `instead` says
    what to do instead of an option that this command does not have. `usual` are the schedules of a line without
    --schedule: names with commas, or `core` for those of iosim count. It is None if the command itself checks the
    options that schedules read. `gpu` says whether it needs a GPU, except with --from-ncu.
    """

    needs: tuple[Need, ...] = ()
    axes: tuple[str, ...] = ()
    usual: str | None = ""
    instead: Mapping[str, str] = INSTEAD
    gpu: bool = False

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return help_option

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *(row_option(row) for row in self.declared(ctx)), load_option, help_option]

    @property
    def takes_declared(self) -> bool:
        """Whether it has the options that schedules declare."""
        return getattr(self.callback, "takes_declared", False)

    def declared(self, ctx: click.Context) -> list[Row]:
        """The options of schedules that this command has beside its own. While a line is parsed they are those that it
        names, so that the files of other schedules are not loaded."""
        if not self.takes_declared:
            return []
        named = ctx.meta.get(NAMED)
        if named is None:
            return list(all_declared())
        return [row for name in named if (row := declared(name))]

    def options_of(self, ctx: click.Context) -> list[Option]:
        """The options, without --help."""
        return [parameter for parameter in self.get_params(ctx) if isinstance(parameter, Option)]

    # ------------------------------------------------------------ help

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ctx.meta[NAMED] = None  # help shows all options
        needed = {need.parameter: need.or_else for need in self.needs}
        flags = {option.name: option.flag for option in self.options_of(ctx)}
        lines: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                own = parameter.heading if isinstance(parameter, Option) else ANSWER
                others = [flags[name] for name in needed.get(str(parameter.name), ()) if name in flags]
                words = [record[1], f"Or give {' or '.join(others)}."] if others else [record[1]]
                words += (
                    [AXIS_HINTS[str(parameter.name)]] if self.axes == PLACES and parameter.name in AXIS_HINTS else []
                )
                lines[REQUIRED if parameter.name in needed else own].append((record[0], " ".join(words)))
        lines[REQUIRED].sort(key=lambda record: (record[0].startswith("--M"),))
        for heading, records in lines.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records, col_max=24)

    # ------------------------------------------------------------ faults, all at once

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a line. An unknown option is dropped with its value, and recorded as a fault."""
        ctx.allow_extra_args, line = True, list(args)
        load_ahead(ctx, line)
        ctx.meta[NAMED] = option_names_in(args)
        while True:
            try:
                extra = super().parse_args(ctx, list(line))
            except click.NoSuchOption as error:
                fault = self.unknown(ctx, error.option_name)
                rest = without(line, error.option_name, value=True)
            except click.BadOptionUsage as error:
                fault = (
                    InputError(
                        error.option_name, "no value", "a value after it", example_value(self, error.option_name)
                    )
                    if "require" in error.message
                    else (InputError(error.option_name, "a value", "no value: it is a flag"))
                )
                rest = without(line, error.option_name, value=False)
            else:
                break
            faults_in(ctx).append(fault)
            if rest == line:
                raise fault
            line = rest
        if extra:
            name = f"iosim {ctx.info_name}"
            hint = self.as_one_value(ctx, args, extra) or "a value with spaces needs quotes"
            faults_in(ctx).append(InputError(name, " ".join(extra), "options with their values", hint))
        return extra

    def as_one_value(self, ctx: click.Context, args: Sequence[str], extra: Sequence[str]) -> str:
        """The hint for an option whose values are separated by spaces, such as `--hardware h100 t4`: how to write all
        of them. A unit after a number, as in `--M 100 KB`, is a part of the number. An empty text for any other line,
        and for an option that takes one value."""
        from shlex import quote

        from ..units import PREFIX_BYTES

        several = {
            name: option.kind.between
            for option in self.options_of(ctx)
            if option.kind.listed or option.name in self.axes
            for name in option.opts
        }
        line = [part for text in args for part in (text.split("=", 1) if text.startswith("--") else [text])]
        for k, name in enumerate(line):
            if name in several and line[k + 2 : k + 2 + len(extra)] == [*extra]:
                values = [text.strip(several[name]) for text in (line[k + 1], *extra)]
                unit = values[0].isdecimal() and values[1].lower().removesuffix("b").removesuffix("i") in PREFIX_BYTES
                return f"write {name} {quote(('' if unit else several[name]).join(values))}"
        return ""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. If it fails, or if the line could not be parsed, name all faults of its options."""
        found = faults_in(ctx)
        try:
            if ctx.params.pop("causal", False):
                self.take_causal(ctx.params)
            if not found:
                return self.answered(ctx)
        except InputError as error:
            found.append(error)
        faults = [*self.lists(ctx), *found, *self.unreadable(ctx), *self.missing(ctx), *self.contradictory(ctx)]
        raise self.without_gpu(ctx, faults) or together(faults, example_of(self))

    def without_gpu(self, ctx: click.Context, faults: Sequence[InputError]) -> IosimError | None:
        """The error of a command that needs a GPU where none is found; None for any other command and machine.

        Nobody is asked for a missing option then. Options that are wrong are named below, and the exit code is 2.
        """
        if not self.gpu or ctx.params.get("from_ncu"):
            return None
        from ..gpu.device import cupy

        wrong = [fault for fault in faults if fault.found != NOTHING]
        try:
            cupy()
        except MissingError as absent:
            return IosimError(f"{absent}\n{together(wrong, '')}") if wrong else absent
        return None

    def answered(self, ctx: click.Context) -> object:
        """Run the command, and write the notes below its answer, also if a check failed."""
        if self.usual is not None:
            check_unread(ctx, self.usual)
        failed = None
        try:
            result = super().invoke(ctx)
        except SystemExit as code:
            failed, result = code, None
        say(ctx.meta.get(NOTES, ()))
        if failed:
            raise failed
        return result

    def take_causal(self, params: dict[str, object]) -> None:
        """Set the mask to causal if --causal is given."""
        other = params.get("mask") or params.get("expression")
        if other not in (None, "causal"):
            raise InputError(
                "--causal", f"--mask {other} as well", "one of the two", "join them as --mask 'causal&...'"
            )
        params["mask" if params.get("expression") is None else "expression"] = "causal"

    def unreadable(self, ctx: click.Context, headings: Sequence[str] = HEADINGS) -> list[InputError]:
        """A fault for each option under these headings whose value cannot be read, and for each part of a list."""
        found = []
        for option in self.options_of(ctx):
            value = ctx.params.get(str(option.name)) if option.heading in headings else None
            texts = value if isinstance(value, tuple) else (value,)
            parts = [part for text in texts if isinstance(text, str) for part in option.kind.parts(text)]
            for text in parts:
                try:
                    option.kind.read_all(text, option.flag, option.name in self.axes)
                except InputError as fault:
                    found.append(fault)
        return found

    def lists(self, ctx: click.Context) -> list[InputError]:
        """A fault for each option that has several values where this command takes one."""
        from ..counting.given import several
        from ..sweeps.questions import QUESTIONS

        name = str(ctx.info_name)
        sweep = {"count": "iosim sweep", **{what: f"iosim sweep --what {what}" for what in QUESTIONS}}
        hint = f"{sweep[name]} takes several" if name in sweep else f"run iosim {name} once for each"
        texts = ((option, ctx.params.get(str(option.name))) for option in self.options_of(ctx))
        one = {TILES: "one value, as 128x64 (query rows first)"}
        return [
            InputError(option.flag, text, one.get(option.kind, "one value"), hint)
            for option, text in texts
            if isinstance(text, str) and several(text) and option.name not in self.axes and option.kind in ONE_OR_AXIS
        ]

    def contradictory(self, ctx: click.Context) -> list[InputError]:
        """The fault of options that can each be read but exclude each other."""
        from ..counting.given import problem

        sizes = [str(option.name) for option in self.options_of(ctx) if option.heading in (PROBLEM, VARIANTS)]
        if self.unreadable(ctx, (PROBLEM, VARIANTS)) or "d" not in sizes or set(sizes) & set(self.axes):
            return []
        given = {name: value for name in sizes if (value := ctx.params.get(name)) not in (None, False)}
        try:
            problem({"N": "1", "d": "1", **given})
        except InputError as fault:
            return [fault]
        return []

    def missing(self, ctx: click.Context) -> list[InputError]:
        """A fault for each option that is needed and not given."""
        given = {name for name, value in ctx.params.items() if value not in (None, (), False)}
        absent = {need.parameter for need in self.needs if not given & {need.parameter, *need.or_else}}
        return [
            InputError(option.flag, NOTHING, (option.help or "").rstrip("."))
            for option in self.options_of(ctx)
            if option.name in absent and not any(repr(option.flag) in fault.hint for fault in faults_in(ctx))
        ]

    def unknown(self, ctx: click.Context, name: str) -> InputError:
        """The fault of an option that the command does not have. It names the option that was meant, or the commands
        that have it."""
        word = name.lstrip("-").lower()
        own = [*self.options_of(ctx), *map(row_option, all_declared() if self.takes_declared else ())]
        same = [o.flag for o in own if word in (o.flag.strip("-").lower(), *o.also)]
        others = [] if same or name in self.instead else commands_with(ctx, name)
        if same:
            hint = f"did you mean {same[0]!r}?"
        elif name in self.instead:
            hint = self.instead[name]
        elif others:
            hint = f"an option of iosim {', '.join(others)}"
        else:
            hint = suggestion(name, [o.flag for o in own])
        return InputError("option", name, f"those of iosim {ctx.info_name} --help", hint)


# ---------------------------------------------------------------- options that change nothing



def given_variants(params: Params) -> list[str]:
    """The options that only some schedules read and that are given, by their names in Python."""
    given = [name for name, value in params.items() if value not in (None, False, "0", 0)]
    return [name for name in given if name in ("lse", "keep_p", "count_init") or declared(name)]


def check_unread(ctx: click.Context, usual: str) -> None:
    """Look for options of a command line that none of its schedules reads."""
    given = given_variants(ctx.params)
    multiple, named = ctx.params.get("tile_multiple", "1"), ctx.params.get("schedules") or ()
    if given or multiple != "1":
        tiles = [text for name in ("tiles", "backward_tiles") if (text := ctx.params.get(name)) is not None]
        check_read(given, named, usual, tiles if multiple != "1" else None)


def check_read(
    given: Iterable[str], named: Sequence[str], usual: str = "core", multiple_of: Sequence[str] | None = None
) -> None:
    """Write a note for each option that no schedule reads. Raise InputError for a --tile-multiple without a search.

    `given` are fields of the problem. `usual` are the schedules if none is named: names with commas, or `core` for
    those of iosim count. `multiple_of` are the tiles to which --tile-multiple was given; None without it.
    """
    from ..schedules import CORE, find_all

    schedules = find_all(named or (CORE if usual == "core" else usual.split(",") if usual else ()))
    if multiple_of is not None:
        refuse_multiple(schedules, ",".join(multiple_of))
    for name, readers in unread(given, schedules):
        who = f"with --schedule {','.join(s.name for s in schedules)}" if named else "with these schedules"
        option, others = flag_of(name), ", ".join(readers) or "no schedule of this family"
        note(click.get_current_context(), f"{option} changes nothing {who}; it is for {others}")


def unread(given: Iterable[str], schedules: Sequence[Schedule]) -> Iterator[tuple[str, list[str]]]:
    """(field, names of schedules that would read it) for each field of the problem that none of the schedules reads."""
    from ..schedules import SCHEDULES

    for name in given if schedules else ():
        if not any(s.reads(name) for s in schedules):
            family = schedules[0].family
            yield name, [s.name for s in SCHEDULES.values() if s.family == family and s.reads(name)]


def refuse_multiple(schedules: Sequence[Schedule], tiles: str) -> None:
    """Raise InputError for --tile-multiple where no tiles are searched. `tiles` is empty if none were given."""
    ideal = bool(schedules) and all("best" not in s.rules for s in schedules)
    if ideal or (tiles and "best" not in tiles.split(",")):
        found = f"with --schedule {', '.join(s.name for s in schedules)}" if ideal else f"with --tiles {tiles}"
        raise InputError("--tile-multiple", found, "best tiles, which are searched", "leave out --tile-multiple")


NOTHING = "nothing"
SEVERAL_FAULTS = ("option", "--schedule")  # places that several messages of one line may have


def commands_with(ctx: click.Context, name: str) -> list[str]:
    """The commands that have an option of this name."""
    root = ctx.find_root()
    group = root.command
    if not isinstance(group, click.Group):
        return []
    found = ((command, group.get_command(root, command)) for command in group.list_commands(root))
    return [
        command
        for command, made in found
        if made and name in flags_of(made)
    ]


def flags_of(command: click.Command) -> set[str]:
    """The options of a command, without those that it only has for --what."""
    own = [name for option in command.params if getattr(option, "heading", "") != OF_WHAT for name in option.opts]
    takes_declared = isinstance(command, Command) and command.takes_declared
    return {*own, *(row.flag for row in all_declared() if takes_declared)}


def without(line: Sequence[str], option: str, value: bool) -> list[str]:
    """A command line without an option, and without its value if it may have one."""
    for k, text in enumerate(line):
        if text == option or text.startswith(option + "=") or (not option.startswith("--") and text.startswith(option)):
            follows = value and text == option and line[k + 1 : k + 2] and not line[k + 1].startswith("-")
            return [*line[:k], *line[k + 2 if follows else k + 1 :]]
    return list(line)


def together(faults: Sequence[InputError], example: str) -> InputError | IosimError:
    """All faults as one error, each option once. Options that are missing are one fault."""
    found: list[InputError] = []
    for fault in faults:
        same = [other for other in found if other.where.split(" ")[0] == fault.where.split(" ")[0]]
        if not same or (fault.where in SEVERAL_FAULTS and fault.found not in [other.found for other in same]):
            found.append(fault)
    absent = [fault.where for fault in found if fault.found == NOTHING]
    if len(absent) > 1:
        hint = f"as in {example}" if example else ""
        missing = InputError(", ".join(absent), NOTHING, "a value for each", hint)
        found = [missing, *(fault for fault in found if fault.found != NOTHING)]
    if len(found) == 1:
        return found[0]
    return IosimError(f"{len(found)} faults\n" + "\n".join(f"  {fault}" for fault in found))


def example_of(command: click.Command) -> str:
    """The first example of a command's help."""
    _, _, text = (command.help or "").partition("Example: ")
    return " ".join(text.partition("\n\n")[0].split())


def example_value(command: click.Command, option: str) -> str:
    """The option with its value in the first example of a command's help, as a hint; empty if that example does not
    have the option."""
    import shlex

    words = shlex.split(example_of(command))
    values = [value for name, value in pairwise(words) if name == option]
    return f"as in {option} {shlex.quote(values[0])}" if values else ""


def named_command(
    name: str,
    needs: tuple[Need, ...] = (),
    axes: tuple[str, ...] = (),
    usual: str | None = "",
    instead: Mapping[str, str] | None = None,
    gpu: bool = False,
) -> Callable[[Function], Command]:
    """A decorator that makes a command of this name from a function and its options."""

    def make(function: Function) -> Command:
        made = click.command(name, cls=Command)(function)
        made.needs, made.axes, made.usual, made.instead, made.gpu = (
            needs,
            axes,
            usual,
            {**INSTEAD, **(instead or {})},
            gpu,
        )
        return made

    return make


def alone(
    given: Mapping[str, str | bool | None], allowed: Collection[str] = (), **more: str | Collection[str] | None
) -> None:
    """Raise InputError for an option of a problem or a schedule beside --trace, except those that are allowed."""
    beside = [flag_of(name) for name, value in {**given, **more}.items() if value]
    for flag in beside:
        if flag not in allowed:
            raise InputError("--trace", flag, "a file alone: it has the loads and stores already", "leave one out")
