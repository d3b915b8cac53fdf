"""The grammar of the command line: options that several commands share, and how a command reads them.

Each option has a heading in the help, and a kind of value. So a command that fails can read all its options once more
and name every fault at once. A command declares which options it needs, and which may be axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple

import click

from .. import __version__
from ..errors import InputError, IosimError, MissingError, suggestion
from ..masks.atoms import ROWS
from .answer import Output, say

if TYPE_CHECKING:
    from ..schedules import Schedule

    Function = Callable[..., object]  # type: ignore[explicit-any]  # each command has options of its own
    Decorator = Callable[[Function], Function]
    Params = Mapping[str, object]

# ---------------------------------------------------------------- kinds of values


class Kind(NamedTuple):
    """The kind of value of an option: `read(text, option)` reads it, and raises InputError if it is not allowed.

    `between` separates the values of an axis. `ranges` says whether start:stop:step stands for several values, and
    `listed` whether every command takes a list of values.
    """

    read: Callable[[str, str], object]
    between: str = ","
    ranges: bool = False
    listed: bool = False

    def parts(self, text: str) -> list[str]:
        """The values of a text if every command takes lists; else the text alone."""
        return text.split(",") if self.listed else [text]

    def read_all(self, text: str, option: str, axis: bool) -> None:
        """Read one value, or all values of an axis."""
        if not axis:
            self.read(text, option)
        elif self.ranges:
            from ..units import parse_axis

            parse_axis(text, option, lambda part: read_number(self, part, option))
        else:
            for part in text.split(self.between):
                self.read(part.strip(), option)


def read_number(kind: Kind, text: str | int, option: str) -> int:
    """The number that a text stands for; `kind` is one whose values are numbers."""
    return int(str(kind.read(str(text), option)))


def read_count(text: str, option: str) -> int:
    from ..units import parse_count

    return parse_count(text, option)


def read_passes(text: str, option: str) -> int:
    from ..units import parse_count

    return parse_count(text, option, least=0, most=10_000)


def read_seed(text: str, option: str) -> int:
    from ..units import parse_count

    return parse_count(text, option, least=0)


def read_size(text: str, option: str) -> int:
    from ..units import parse_bytes

    return parse_bytes(text, 2, option)  # a size is valid or not for any width of a word


def read_registers(text: str, option: str) -> int:
    from ..units import parse_registers

    return parse_registers(text, option)


def read_type(text: str, option: str) -> int:
    from ..units import dtype_bytes

    return dtype_bytes(text, option)


def read_mask(text: str, option: str) -> object:
    from ..masks import parse_mask

    return parse_mask(text)


def read_tiles(text: str, option: str) -> object:
    from ..core.tiling import Tiling, parse_tiles

    rules = ("paper", "best", "ideal")
    more = tuple(name for name in Tiling.__dataclass_fields__ if name not in ("rows_q", "rows_k"))
    return text if text in rules else parse_tiles(text, option, more=more, rules=True)


def read_schedules(text: str, option: str) -> object:
    from ..schedules import find_all

    return find_all(text)


def read_hardware(text: str, option: str) -> object:
    from ..hardware import load

    return load(text)


def read_gqa(text: str, option: str) -> str:
    from ..core.problem import GQA

    if text not in GQA:
        raise InputError(option, text, " or ".join(GQA), suggestion(text, GQA))
    return text


def read_scales(text: str, option: str) -> object:
    from ..core.problem import KV_SCALES
    from ..units import parse_count

    return text if text in KV_SCALES else parse_count(text, option)


NUMERIC = (read_count, read_size, read_passes, read_seed, read_registers)
COUNT, SIZE, PASSES, SEED, REGISTERS = (Kind(read, ranges=True) for read in NUMERIC)
TYPE, MASK, TILES, GQA_KIND = Kind(read_type), Kind(read_mask, ";"), Kind(read_tiles), Kind(read_gqa)
SCALES = Kind(read_scales)
LISTS = Kind(lambda text, option: text, ";")
SCHEDULE, HARDWARE, TEXT = Kind(read_schedules, listed=True), Kind(read_hardware), Kind(lambda text, option: text)
ONE_OR_AXIS = (COUNT, SIZE, PASSES, SEED, REGISTERS, TYPE, HARDWARE, TILES)
"""Kinds of options that take several values in some commands, and one in others."""

# ---------------------------------------------------------------- options

REQUIRED, PROBLEM, MEMORY = "Required", "Problem", "Memory"
CHOICE, VARIANTS, OWN, ANSWER = "Schedules and tiles", "Options of schedules", "Options", "Answer"
OF_WHAT = "Options of the command of --what"
HEADINGS = (REQUIRED, PROBLEM, MEMORY, CHOICE, OWN, OF_WHAT, VARIANTS, ANSWER)


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
    """An option with a value; `text` is its help. Its parameter has its name in lower case, unless it is given."""
    parameter = parameter or name.strip("-").replace("-", "_").lower()
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

size_options = options(  # options of a problem, except its mask and N, which may be an axis
    text_option("--d", "Head dimension: words of a query and of a key.", metavar="COUNT", heading=PROBLEM, kind=COUNT,
                also=("head-dim", "headdim", "dim", "dk")),
    text_option("--Nk", "Keys (default: N).", metavar="COUNT", heading=PROBLEM, kind=COUNT, also=("keys", "kv-len")),
    text_option("--dv", "Words of a value (default: d).", metavar="COUNT", heading=PROBLEM, kind=COUNT),
    text_option("--batch", "Sequences (default: 1).", metavar="COUNT", heading=PROBLEM, kind=COUNT,
                also=("batch-size", "bs", "b")),
    text_option("--heads", "Query heads (default: 1).", metavar="COUNT", heading=PROBLEM, kind=COUNT,
                also=("head", "nheads", "num-heads", "n-heads", "h")),
    text_option("--kv-heads", "Key and value heads (default: heads).", metavar="COUNT", heading=PROBLEM, kind=COUNT,
                also=("nkv", "num-kv-heads", "n-kv-heads", "kv-head")),
    text_option("--dtype", "Type of Q, K, V, O, S, P in HBM: fp16 (default), bf16, fp32, fp8, fp64.", metavar="TYPE",
                heading=PROBLEM, kind=TYPE, also=("type", "precision", "data-type")),
    text_option("--acc-dtype", "Type of accumulators on chip and of l, m, LSE (default: that of --dtype, as in the "
                "papers; real kernels accumulate in fp32).", metavar="TYPE", heading=PROBLEM, kind=TYPE,
                also=("accumulator", "acc", "acc-type", "accum-dtype")),
    text_option("--kv-dtype", "Type of K and V in HBM (default: that of --dtype).", metavar="TYPE", heading=PROBLEM,
                kind=TYPE, also=("kv-cache-dtype", "cache-dtype", "kv-type")),
    text_option("--kv-scales", "fp32 scales of K and V: none (default), tensor (one for all), or a number: so many "
                "words of a row share a scale.",
                metavar="HOW", heading=PROBLEM, kind=SCALES),
    flag_option("--latent", "V is the first --dv words of each row of K, as in MLA.", heading=PROBLEM),
)  # fmt: skip
MASKS = ", ".join(row.syntax for row in ROWS).replace("dense", "dense (default)")
mask_options = options(
    text_option("--mask", f"{MASKS}; &, |, ~ combine them. 2b is 2 tiles.",
                metavar="MASK", heading=PROBLEM, kind=MASK),
    flag_option("--causal", "Short for --mask causal.", heading=PROBLEM),
)  # fmt: skip
problem_options = options(
    text_option("--N", "Queries: the sequence length, as 4096 or 4K.", metavar="COUNT", heading=PROBLEM, kind=COUNT,
                also=("seqlen", "seq-len", "seq", "length", "sequence-length", "queries", "n-ctx", "l")),
    size_options,
    mask_options,
)  # fmt: skip
sram_options = options(
    text_option("--M", "SRAM in bytes as 100KB or 1.5MB (K, KB, KiB = 1024), or in words as 51200el.", metavar="SIZE",
                heading=MEMORY, kind=SIZE, also=("sram", "smem", "memory", "shared", "shared-memory", "sram-size")),
    text_option("--M-elements", "SRAM in words.", metavar="COUNT", heading=MEMORY, kind=COUNT, also=("m-words",)),
)  # fmt: skip
GPU_NAMES = ("gpu", "device", "hw", "chip")
memory_options = options(
    sram_options,
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
variant_options = options(
    flag_option("--count-init", "Count the writes that fill O, l, m before Algorithm 1.", heading=VARIANTS),
    flag_option("--lse", "Also store the log-sum-exp of each row (queries outside).", heading=VARIANTS),
    flag_option("--keep-p", "Also store P in HBM.", heading=VARIANTS),
    text_option("--elementwise", "Add K unfused passes over the N x Nk scores to standard attention (default: 0).",
                metavar="K", heading=VARIANTS, kind=PASSES),
    text_option("--splits", "Shares that the keys are cut into, for split-kv (default: 4).",
                metavar="S", heading=VARIANTS, kind=COUNT),
    text_option("--page-size", "Rows of a page of the KV cache, for paged (default: 16).",
                metavar="ROWS", heading=VARIANTS, kind=COUNT),
    text_option("--top-k", "Blocks of keys that each query chooses, for selected (default: 16).",
                metavar="COUNT", heading=VARIANTS, kind=COUNT, also=("topk", "k", "selected-blocks")),
    text_option("--key-block", "Keys of a block, for selected (default: 64).",
                metavar="ROWS", heading=VARIANTS, kind=COUNT, also=("selection-block-size",)),
    text_option("--gqa", "repeat (default): each query head loads K and V; pack: the query heads of a KV head share "
                "tiles.", metavar="HOW", heading=VARIANTS, kind=GQA_KIND),
)  # fmt: skip
chip_options = options(
    text_option("--registers", "Registers of a thread block that tiles may live in, as 64K (of 4 bytes) or 256KB "
                "(default: none).", metavar="COUNT", heading=MEMORY, kind=REGISTERS),
    text_option("--stages", "Tiles of the innermost loop that are in flight at a time (default: 1).", metavar="COUNT",
                heading=MEMORY, kind=COUNT),
)  # fmt: skip
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
    "n", "nk", "d", "dv", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "m", "m_elements", "hardware",
    "tiles", "tile_multiple", "splits", "page_size", "top_k", "key_block", "gqa", "kv_dtype", "kv_scales",
    "registers", "stages", "elementwise", "columns",
)  # fmt: skip
"""Parameters with several values, where a command counts a whole grid."""
SIZES = ("m", "m_elements", "hardware")
"""Parameters with several values, where a command answers for one problem after the other."""
AXIS_HINTS = {"m": "An axis as 16KB:64KB:x2 gives an answer for each.", "hardware": "Several as h100,t4."}
"""The text that the help adds to these parameters if they are axes."""

# ---------------------------------------------------------------- commands

LOADED: list[str] = []
FAULTS, FILES, NOTES = "iosim.faults", "iosim.files", "iosim.notes"


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
    """Run the files of --load, and record their names for `loaded`."""
    for file in files:
        load_file(file)
    ctx.meta[FILES] = (*loaded(ctx), *files)


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


N, D, M = Need("n"), Need("d"), Need("m", ("m_elements", "hardware"))
M_OR_TILES = Need("m", ("m_elements", "hardware", "tiles"))


NO_COLOUR = dict.fromkeys(("--no-color", "--no-colour", "--color"), "a terminal without colour: set NO_COLOR=1")


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
    instead: Mapping[str, str] = NO_COLOUR
    gpu: bool = False

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return help_option

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, load_option, help_option]

    def options_of(self, ctx: click.Context) -> list[Option]:
        """The options, without --help."""
        return [parameter for parameter in self.get_params(ctx) if isinstance(parameter, Option)]

    # ------------------------------------------------------------ help

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
                    [AXIS_HINTS[str(parameter.name)]] if self.axes == SIZES and parameter.name in AXIS_HINTS else []
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
            problem({"n": "1", "d": "1", **given})
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
        own = self.options_of(ctx)
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

VARIANT_FIELDS = ("lse", "keep_p", "elementwise", "count_init", "splits", "page_size", "top_k", "key_block")


def check_unread(ctx: click.Context, usual: str) -> None:
    """Look for options of a command line that none of its schedules reads."""
    given = [name for name in VARIANT_FIELDS if ctx.params.get(name) not in (None, False, "0")]
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
        option, others = "--" + name.replace("_", "-"), ", ".join(readers) or "no schedule of this family"
        note(click.get_current_context(), f"{option} changes nothing {who}; it is for {others}")


def unread(given: Iterable[str], schedules: Sequence[Schedule]) -> Iterator[tuple[str, list[str]]]:
    """(field, names of schedules that would read it) for each field of the problem that none of the schedules reads."""
    from ..schedules import SCHEDULES
    from ..studies.fields_read import fields_read

    for name in given if schedules else ():
        if not any(name in fields_read(s) for s in schedules):
            family = schedules[0].family
            yield name, [s.name for s in SCHEDULES.values() if s.family == family and name in fields_read(s)]


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
        if made and any(name in option.opts and getattr(option, "heading", "") != OF_WHAT for option in made.params)
    ]


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
    from itertools import pairwise

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
            {**NO_COLOUR, **(instead or {})},
            gpu,
        )
        return made

    return make


def alone(
    given: Mapping[str, str | bool | None], allowed: Collection[str] = (), **more: str | Collection[str] | None
) -> None:
    """Raise InputError for an option of a problem or a schedule beside --trace, except those that are allowed."""
    flags = {"n": "--N", "nk": "--Nk", "d": "--d"}
    beside = [flags.get(name, "--" + name.replace("_", "-")) for name, value in given.items() if value]
    beside += ["--" + name.replace("_", "-") for name, value in more.items() if value]
    for flag in beside:
        if flag not in allowed:
            raise InputError("--trace", flag, "a file alone: it has the loads and stores already", "leave one out")
