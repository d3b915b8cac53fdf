"""A command of the command line: its help under headings, and all faults of a line at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from ..core.options import OF_EVERY_PROBLEM
from ..errors import InputError, InputErrors, IosimError, MissingError, as_one, closest, did_you_mean, each
from ..options import (
    ANSWER,
    DECLARED,
    HEADINGS,
    OF_WHAT,
    OWN,
    PROBLEM,
    REGISTERS,
    REQUIRED,
    SIZE,
    VARIANTS,
    all_declared,
    declared,
)
from ..options import Option as Row
from ..units import DTYPE_BYTES, rounded_down
from ..version import __version__
from .answer import say
from .load import load_ahead, load_option
from .notes import NOTES, check_unread, note
from .options import ONE_OR_AXIS, PLACES, TILES, Option, row_option

if TYPE_CHECKING:
    from .options import Function

FAULTS, LINE, NAMED, HELP_ALL = "iosim.faults", "iosim.line", "iosim.named", "iosim.help_all"
THERE = ": ask "
NOTHING, TILES_AS = "nothing", " as --tiles 128x64 (query rows first)"
SEVERAL_FAULTS = ("option", "--schedule", "--arg", "--const")  # places that several messages of one line may have
FIRST = ("heads", "kv_heads", "causal", "mask", "M", "hardware", "schedule", "schedules", "tiles")
"""The parameters that --help shows of those that many commands share. --help-all shows the others too."""
OUTPUTS, TELLING = ("as_json", "as_csv", "path"), ("help", "help_all")
OUTPUT_TEXT = "The form of the answer, or a file whose ending decides it; - is stdout."
"""What --help says of OUTPUTS, in one line."""
AXIS_HINTS = {"M": "An axis as 16KB:64KB:x2 gives an answer for each.", "hardware": "Several as h100,t4."}
"""The text that the help adds to these parameters if they are axes."""


SHORTER = {"--columns": "--state-columns"}
"""{flag: the option that it stands for}, in commands without an option of that name."""


def option_names_in(args: Sequence[str]) -> list[str]:
    """The names in Python of the options of a command line, each once."""
    texts = (text[2:].partition("=")[0].replace("-", "_") for text in args if text.startswith("--"))
    return list(dict.fromkeys(texts))


def telling(text_of: Callable[[click.Context], str], *names: str, text: str) -> click.Option:
    """An option that writes a text and ends the program. click has such options for the help and the version, but looks
    up translations of their texts, and for that Python loads `locale`."""

    def tell(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            click.echo(text_of(ctx), color=ctx.color)
            ctx.exit()

    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=tell, help=text)


def full_help(ctx: click.Context) -> str:
    """The help with all options."""
    ctx.meta[HELP_ALL] = True
    return ctx.get_help()


help_option = telling(lambda ctx: ctx.get_help(), "-h", "--help", text="Show this message and exit.")
help_all_option = telling(full_help, "--help-all", text="Show all options and exit.")
version_option = telling(lambda ctx: f"iosim, version {__version__}", "--version", text="Show the version and exit.")


def faults_in(ctx: click.Context) -> list[InputError]:
    """The faults found so far in this command line."""
    return ctx.meta.setdefault(FAULTS, [])  # type: ignore[no-any-return]


class Need(NamedTuple):
    """An option that a command needs, unless one of the parameters `or_else` is given."""

    parameter: str
    or_else: tuple[str, ...] = ()


N, D, M = Need("N"), Need("d", ("model",)), Need("M", ("hardware",))
M_OR_TILES = Need("M", ("hardware", "tiles", "rule", "chunk"))


INSTEAD = {
    **dict.fromkeys(("--no-color", "--no-colour", "--color"), "a terminal without colour: set NO_COLOR=1"),
    "--backward": "--schedule flash2-bwd is a backward pass, and iosim schedules lists others",
    "--M-elements": "--M takes words too, as --M 51200el",
    "--sweep-M": "--M takes an axis, as --M 16KB:227KB:x2",
    "--predict": "times are bounds now, of data-sheet rates: leave it out",
    **{f"--{name}": f"a type is given as --dtype {name}" for name in DTYPE_BYTES},
    **dict.fromkeys(("--tp", "--tp-size", "--tensor-parallel-size"), "give --heads and --kv-heads of one GPU"),
    **dict.fromkeys(("--softmax-scale", "--sm-scale", "--scale"), "scaling moves no words: leave it out"),
}
"""What to do instead of options that no command has."""
WINDOWS = {"window", "windowsize", "slidingwindow"}
"""Options of other programs for a sliding window, as `spelled` writes them."""


class Command(click.Command):
    """A command with headings in its help and the option --load. It names all faults of a line at once.

    `needs` are the options that stand first in the help, and `first` those that it shows beside them; without `first`
    these are FIRST and the command's own. Parameters in `axes` may have several values. `instead` says
    what to do instead of an option that this command does not have. `usual` are the schedules of a line without
    --schedule: names with commas, or `core` for those of iosim count. It is None if the command itself checks the
    options that schedules read. `gpu` says whether it needs a GPU, except with --from-ncu.
    """

    needs: tuple[Need, ...] = ()
    first: Collection[str] = ()
    own_axes: tuple[str, ...] = ()
    usual: str | None = ""
    instead: Mapping[str, str] = INSTEAD
    gpu: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The parameters that may have several values. Where all options of problems may, those that schedules declare
        may too."""
        every = all(name in self.own_axes for name, row in OF_EVERY_PROBLEM.items() if row.axis)
        return (*self.own_axes, *(name for name, row in DECLARED.items() if every and row.axis))

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return help_option

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *(row_option(row) for row in self.declared(ctx)), load_option, help_all_option, help_option]

    @property
    def takes_declared(self) -> bool | tuple[str, ...]:
        """Whether it has the options that schedules declare, or the names of those that it has."""
        return getattr(self.callback, "takes_declared", False)

    def declared(self, ctx: click.Context) -> list[Row]:
        """The options of schedules that this command has beside its own. While a line is parsed they are those that it
        names, so that the files of other schedules are not loaded."""
        if not self.takes_declared:
            return []
        named = ctx.meta.get(NAMED)
        if named is None:
            return list(declared_of(self))
        return [row for name in named if (row := declared(name)) and is_taken(row, self.takes_declared)]

    def options_of(self, ctx: click.Context) -> list[Option]:
        """The options, without --help."""
        return [parameter for parameter in self.get_params(ctx) if isinstance(parameter, Option)]

    # ------------------------------------------------------------ help

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ctx.meta[NAMED] = None  # help shows all options
        needed = {need.parameter: need.or_else for need in self.needs}
        flags = {option.name: option.flag for option in self.options_of(ctx)}
        hints = AXIS_HINTS if {*self.axes} - {"N"} == {*PLACES} else {}
        lines: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        hidden, outputs = 0, list[tuple[str, str]]()
        for parameter in self.get_params(ctx):
            name, record = str(parameter.name), parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                own = parameter.heading if isinstance(parameter, Option) else ANSWER
                if not (HELP_ALL in ctx.meta or name in needed or self.is_first(parameter)):
                    hidden += name not in (*OUTPUTS, *TELLING)
                    outputs += [record] * (name in OUTPUTS)
                    continue
                others = [flags[other] for other in needed.get(name, ()) if other in flags]
                instead = f"Or give {' or '.join(others)}." if others else ""
                words = filter(None, (record[1], instead, hints.get(name)))
                lines[REQUIRED if name in needed else own].append((record[0], " ".join(words)))
        if len(outputs) > 1:
            outputs = [(", ".join(names for names, _ in outputs), OUTPUT_TEXT)]
        lines[ANSWER] += outputs
        lines[REQUIRED].sort(key=lambda record: record[0].startswith("--M"))
        for heading, records in lines.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records, col_max=24)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: iosim {ctx.info_name} --help-all")

    def is_first(self, parameter: click.Parameter) -> bool:
        """Whether --help shows a parameter that the command does not need."""
        if self.first or not isinstance(parameter, Option):
            return parameter.name in self.first
        own = parameter.heading in (OWN, ANSWER) and parameter.name not in OUTPUTS
        return (own and parameter is not load_option) or parameter.name in FIRST

    # ------------------------------------------------------------ faults, all at once

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a line. An unknown option is dropped with its value, and recorded as a fault."""
        args = [self.longer(arg) for arg in args]
        ctx.allow_extra_args, line = True, list(args)
        load_ahead(ctx, line)
        ctx.meta[NAMED], ctx.meta[LINE] = option_names_in(args), line
        while True:
            try:
                extra = super().parse_args(ctx, list(line))
            except click.NoSuchOption as error:
                fault = self.unknown(ctx, error.option_name, line)
                rest = without(line, error.option_name, value=True)
            except click.BadOptionUsage as error:
                fault = self.misused(error)
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

    def longer(self, arg: str) -> str:
        """An argument with the whole name of its option."""
        flag, equal, value = arg.partition("=")
        own = {option for parameter in self.params for option in parameter.opts}
        return arg if flag in own or not self.takes_declared else SHORTER.get(flag, flag) + equal + value

    def misused(self, error: click.BadOptionUsage) -> InputError:
        """The fault of an option that lacks its value, or of a flag that has one."""
        option = error.option_name
        if "require" in error.message:
            return InputError(option, "no value", "a value after it", example_value(self, option))
        return InputError(option, "a value", "no value: it is a flag")

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
            self.take_model(ctx)
            if ctx.params.pop("causal", False):
                self.take_causal(ctx.params)
            if not found:
                return self.answered(ctx)
        except (InputError, InputErrors) as error:
            found += each(error)
        faults = [*self.lists(ctx), *found, *self.unreadable(ctx), *self.missing(ctx), *self.contradictory(ctx)]
        raise self.without_gpu(ctx, faults) or together(faults, completed(self, ctx.meta.get(LINE, ()), faults))

    def without_gpu(self, ctx: click.Context, faults: Sequence[InputError]) -> IosimError | None:
        """The error of a command that needs a GPU where none is found; None for any other command and machine.

        Nobody is asked for a missing option then. Options that are wrong are named below, and the exit code is 2.
        """
        if not self.gpu or ctx.params.get("from_ncu"):
            return None
        from ..wings import offered

        wrong = [fault for fault in faults if fault.found != NOTHING]
        absent = cast("Callable[[], MissingError | None]", offered("missing_of_gpu"))()
        return IosimError(f"{absent}\n{together(wrong, '')}") if absent and wrong else absent

    def answered(self, ctx: click.Context) -> object:
        """Run the command, and write the notes below its answer, also if a check failed."""
        if self.usual is not None:
            check_unread(ctx, self.usual)
        failed = None
        try:
            result = super().invoke(ctx)
        except SystemExit as code:
            failed, result = code, None
        say([*self.rounded(ctx), *ctx.meta.get(NOTES, ())])
        if failed:
            raise failed
        return result

    def rounded(self, ctx: click.Context) -> list[str]:
        """A note for each size that is given in decimals that make no whole bytes."""
        given = ((o.flag, ctx.params.get(str(o.name))) for o in self.options_of(ctx) if o.kind in (SIZE, REGISTERS))
        return [f"{flag} {note}" for flag, text in given if isinstance(text, str) for note in rounded_down(text)]

    def take_model(self, ctx: click.Context) -> None:
        """Fill in the options that a model's file has and the line has not. A note says which."""
        if (file := ctx.params.get("model")) is None:
            ctx.params.pop("model", None)
            return
        from ..model_file import read_model

        given = {name for name, value in ctx.params.items() if value not in (None, False)}
        flags = {str(option.name): option.flag for option in self.options_of(ctx)}
        model = read_model(str(file), given, flags)
        if "mask" in model.options:
            ctx.params["causal"] = False  # the window is causal
        ctx.params.update({name: value if value is True else str(value) for name, value in model.options.items()})
        del ctx.params["model"]
        texts = [
            flags[name] + ("" if value is True else f" {quote(str(value))}") for name, value in model.options.items()
        ]
        for text in (f"{' '.join(texts) or 'nothing'} taken", *model.left_out):
            note(ctx, f"--model {file}: {text}")

    def take_causal(self, params: dict[str, object]) -> None:
        """Set the mask to causal if --causal is given."""
        other = params.get("mask")
        if other not in (None, "causal"):
            hint = "join them as --mask 'causal&...'"
            raise InputError("--causal", f"--mask {other} as well", "one of the two", hint)
        params["mask"] = "causal"

    def unreadable(self, ctx: click.Context, headings: Sequence[str] = HEADINGS) -> list[InputError]:
        """A fault for each option under these headings whose value cannot be read, and for each part of a list."""
        found: list[InputError] = []
        for option in self.options_of(ctx):
            value = ctx.params.get(str(option.name)) if option.heading in headings else None
            texts = value if isinstance(value, tuple) else (value,)
            parts = [part for text in texts if isinstance(text, str) for part in option.kind.parts(text)]
            for text in parts:
                try:
                    option.kind.read_all(text, option.flag, option.name in self.axes)
                except (InputError, InputErrors) as error:
                    found += each(error)
        return found

    def lists(self, ctx: click.Context) -> list[InputError]:
        """A fault for each option that has several values where this command takes one."""
        from ..counting.given import several
        from ..points import places

        name = str(ctx.info_name)
        sweep = {"count": "iosim sweep", **{what: f"iosim sweep --what {what}" for what in places()}}
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
        from ..counting.given import problem, several

        sizes = [str(option.name) for option in self.options_of(ctx) if option.heading in (PROBLEM, VARIANTS)]
        if self.unreadable(ctx, (PROBLEM, VARIANTS)) or "d" not in sizes or {*sizes} & {*self.axes} - {"N"}:
            return []
        given = {name: value for name in sizes if (value := ctx.params.get(name)) not in (None, False)}
        given = {name: value for name, value in given.items() if not (name in self.axes and several(str(value)))}
        try:
            problem({"N": "1", "d": "1", **given})
        except InputError as fault:
            return [fault]
        return []

    def missing(self, ctx: click.Context) -> list[InputError]:
        """A fault for each option that is needed, not given, and not meant by another fault."""
        if any(THERE in fault.hint for fault in faults_in(ctx)):
            return []
        given = {name for name, value in ctx.params.items() if value not in (None, (), False)}
        hints = " ".join(fault.hint for fault in faults_in(ctx))
        given |= {str(option.name) for option in self.options_of(ctx) if repr(option.flag) in hints}
        absent = {need.parameter for need in self.needs if not given & {need.parameter, *need.or_else}}
        return [
            InputError(option.flag, NOTHING, lower_first((option.help or "").rstrip(".")))
            for option in self.options_of(ctx)
            if option.name in absent
        ]

    def unknown(self, ctx: click.Context, name: str, line: Sequence[str]) -> InputError:
        """The fault of an option that the command does not have. It names the option that was meant, or the commands
        that have it."""
        word, own = spelled(name), spellings(self)
        instead = {
            spelled(flag): text
            for flag, text in self.instead.items()
            if not text.startswith("--") or spelled(text.split()[0]) in own
        }
        if word in own:
            hint = did_you_mean([own[word]]) + TILES_AS * (own[word] == "--tiles")
        elif word in instead:
            hint = instead[word]
        elif word in WINDOWS:
            hint = as_window(value_in(line, name))
        elif others := commands_with(ctx, word):
            flag = next(iter(others.values()))
            it = "an option" if spelled(flag) == word else f"{flag} is an option"
            hint = instead.get(spelled(flag)) or f"{it} of iosim {', '.join(others)}{asked_there(ctx, others)}"
        else:
            flags = dict.fromkeys(flag.strip("-") for flag in (*own.values(), *help_all_option.opts))
            near = closest(name.strip("-").replace("_", "-"), flags)
            hint = did_you_mean(["--" + flag for flag in near] or [own[one] for one in closest(word, own)])
        return InputError("option", name, f"those of iosim {ctx.info_name} --help-all", hint)


# ---------------------------------------------------------------- what commands and lines have in them


def commands_with(ctx: click.Context, word: str) -> dict[str, str]:
    """{command: its option}, for the commands that have an option of this spelling."""
    root = ctx.find_root()
    group = root.command
    if not isinstance(group, click.Group):
        return {}
    found = ((command, group.get_command(root, command)) for command in group.list_commands(root))
    return {name: flag for name, made in found if made and (flag := spellings(made).get(word))}


def asked_there(ctx: click.Context, others: Collection[str]) -> str:
    """The line as the one other command takes it, with those of its options that it has. Empty if there are several
    commands, or if it would lack an option."""
    root, name = ctx.find_root(), next(iter(others))
    made = cast("click.Group", root.command).get_command(root, name)
    own, line, kept = spellings(cast("Command", made)), [*ctx.meta[LINE], "--"], list[str]()
    for text, value in pairwise(line):
        if text.startswith("--") and spelled(text.partition("=")[0]) in own:
            kept += [text, *([] if value.startswith("--") else [value])]
    given = {text.partition("=")[0].strip("-").replace("-", "_") for text in kept}
    lacks = any(not given & {need.parameter, *need.or_else} for need in getattr(made, "needs", ()))
    return "" if len(others) > 1 or lacks else f"{THERE}iosim {name} {' '.join(map(quote, kept))}"


def spellings(command: click.Command) -> dict[str, str]:
    """{spelling: option} of all options of a command, without those that it only has for --what. The names that options
    have in other programs are spellings too."""
    own = [option for option in command.params if isinstance(option, Option) and option.heading != OF_WHAT]
    own += map(row_option, declared_of(command))
    also = {spelled(name): option.flag for option in own for name in option.also}
    return also | {spelled(option.flag): option.flag for option in own}


def declared_of(command: object) -> Iterator[Row]:
    """The options of schedules that a command takes."""
    taken = getattr(command, "takes_declared", False)
    return (row for row in all_declared() if is_taken(row, taken)) if taken else iter(())


def is_taken(row: Row, taken: bool | tuple[str, ...]) -> bool:
    """Whether a command takes an option of schedules: all, or those that it names."""
    return taken is True or (isinstance(taken, tuple) and row.name in taken)


def lower_first(text: str) -> str:
    """A text that begins in lower case, unless its first word has more capitals, as SRAM."""
    first = text.partition(" ")[0]
    return text[:1].lower() + text[1:] if first[1:] == first[1:].lower() else text


def spelled(name: str) -> str:
    """The letters and digits of an option's name, in lower case: `--num_heads` and `--numHeads` are the same."""
    return "".join(filter(str.isalnum, name.lower()))


def without(line: Sequence[str], option: str, value: bool) -> list[str]:
    """A command line without an option, and without its value if it may have one."""
    for k, text in enumerate(line):
        if text == option or text.startswith(option + "=") or (not option.startswith("--") and text.startswith(option)):
            follows = value and text == option and line[k + 1 : k + 2] and not line[k + 1].startswith("-")
            return [*line[:k], *line[k + 2 if follows else k + 1 :]]
    return list(line)


def value_in(line: Sequence[str], option: str) -> str:
    """The value of an option in a command line; empty if it has none."""
    parts = [part for text in line for part in (text.split("=", 1) if text.startswith("--") else [text])]
    return next((value for name, value in pairwise(parts) if name == option), "")


def as_window(keys: str) -> str:
    """The mask of a sliding window of so many keys, as a hint."""
    number = int(keys) if keys.isdecimal() and 0 < int(keys) < 10**12 else 1024
    return f"a window of {number} keys, the query's own among them, is --mask 'causal&window:{number - 1}'"


def together(faults: Sequence[InputError], example: str) -> IosimError:
    """All faults as one error, each option once. Options that are missing are one fault."""
    once: dict[tuple[object, ...], InputError] = {}
    for fault in faults:
        once.setdefault(place_of(fault), fault)
    found = [*once.values()]
    absent = [fault.where for fault in found if fault.found == NOTHING]
    if len(absent) > 1:
        hint = f"as in {example}" if example else ""
        missing = InputError(", ".join(absent), NOTHING, "a value for each", hint)
        found = [missing, *(fault for fault in found if fault.found != NOTHING)]
    return as_one(found)


def place_of(fault: InputError) -> tuple[object, ...]:
    """What of a fault is told once: its option; or its place, as in a file, and what was found there."""
    option, *_ = fault.where.split(" ")
    several = ": " in fault.where or option in SEVERAL_FAULTS
    return (fault.where, str(fault.found)) if several else (option,)


def example_of(command: click.Command) -> str:
    """The first example of a command's help."""
    _, _, text = (command.help or "").partition("Example: ")
    return " ".join(text.partition("\n\n")[0].split())


def completed(command: click.Command, line: Sequence[str], faults: Sequence[InputError]) -> str:
    """A command line with the options that it lacks, as in the first example of the command's help. It is that example
    if there are other faults in the line, or if the example does not have all of the options."""
    import shlex

    example = example_of(command)
    words = shlex.split(example)
    values = dict(pairwise(words))
    lacking = {fault.where: values.get(fault.where) for fault in faults}
    if None in lacking.values() or any(fault.found != NOTHING for fault in faults):
        return example
    added = [word for option, value in lacking.items() for word in (option, str(value))]
    return shlex.join([*words[:2], *added, *line])


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
    first: str = "",
) -> Callable[[Function], Command]:
    """A decorator that makes a command of this name from a function and its options. `first` are the names of the
    parameters that --help shows, beside those that the command needs."""

    def make(function: Function) -> Command:
        made = click.command(name, cls=Command)(function)
        made.needs, made.own_axes, made.usual, made.gpu, made.first = needs, axes, usual, gpu, first.split()
        made.instead = {**INSTEAD, **(instead or {})}
        return made

    return make
