"""`iosim explain`."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NamedTuple

import click

from ..answer import Pieces, numbered
from ..commands.answer import Output, answer_all, say
from ..commands.command import INSTEAD, named_command
from ..commands.options import (
    COUNT,
    HARDWARE,
    flag_option,
    gathered,
    outputs,
    problem_options,
    repeated_option,
    rows,
    text_option,
)
from ..core.options import KEY_HEADS
from ..errors import CheckError, InputError, suggestion
from ..options import flag_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..commands.answer import Part
    from ..core.problem import Attention
    from ..event_file import Emit
    from .explain import Explained, Question
    from .kept import Tensors
    from .launches import Answers
    from .read.launch_texts import LaunchTexts
    from .walk.log import Log


class Launch(NamedTuple):
    """The options of one launch, as texts."""

    file: str | None
    kernel: str | None
    grid: str | None
    args: tuple[str, ...]
    consts: tuple[str, ...]
    warps: str | None
    stages: str | None

    @property
    def texts(self) -> LaunchTexts:
        """The launch, with its arguments by name."""
        from .read.launch_texts import LaunchTexts

        arg, const = texts("--arg", self.args), texts("--const", self.consts)
        return LaunchTexts(self.file or "", self.kernel, self.grid, self.warps, self.stages, arg, const)


class Asked(NamedTuple):
    """The options that say what is asked about launches."""

    target: str | None
    hardware: str | None
    computes: str | None
    tune: bool
    every: bool
    trace: str | None
    no_resources: bool
    check: str | None
    fail_outside: bool
    fail_unfit: bool
    timeout: str


CONSTANTS = "a size in the kernel is one of its constants, as --const BLOCK_M=64"


@named_command(
    "explain",
    first="script kernel grid args consts warps hardware computes tune check",
    instead=INSTEAD | {"--tiles": CONSTANTS},
)
@click.argument("file", required=False)
@text_option(
    "--script",
    "A Python file: explain each launch that it makes (also output_code.py of torch.compile), in place of FILE.",
    metavar="FILE.py",
)
@text_option("--kernel", "The kernel's name (default: the only one of the file).", metavar="NAME")
@text_option("--grid", "Programs on each axis: expressions in the names of --arg and --const.", metavar="EXPRESSIONS")
@repeated_option(
    "--arg",
    "args",
    "An argument: a tensor as Q=fp16[H,N,64], a number, an expression, data as FILE.npy or "
    "int32[N]:random(LOW, HIGH). Other names may be given for use in expressions.",
    metavar="NAME=VALUE",
)
@repeated_option("--const", "consts", "A compile-time constant (tl.constexpr).", metavar="NAME=VALUE")
@text_option("--warps", "Warps of a program (default: 4).", metavar="COUNT", kind=COUNT, also=("num-warps",))
@text_option("--stages", "Stages of a pipelined loop (default: 3).", metavar="COUNT", kind=COUNT, also=("num-stages",))
@text_option(
    "--target",
    "Compute capability to compile for (default: that of --hardware, else sm_90); for a GPU of AMD, as gfx942, only "
    "words are counted.",
    metavar="sm_XX|gfxXXX",
)
@text_option(
    "--hardware",
    "The GPU whose limits apply: a preset, as h100, or a FILE.toml; see iosim hardware (default: one of --target).",
    metavar="NAME|FILE",
    kind=HARDWARE,
)
@text_option(
    "--as",
    "What it computes: attention (with --N, --d), or with a state a rule, as gdn, by all launches together; "
    "attention:Q=query,O=out names its arguments. Adds the floor and the nearest schedule.",
    metavar="WHAT",
    parameter="computes",
)
@flag_option("--tune", "Rank all configurations of @triton.autotune by least time, and give the details of the best.")
@flag_option("--all", "With --tune, give the details of every configuration.", parameter="every")
@text_option(
    "--trace",
    "Also write each request, in order, as iosim trace does: FILE.csv, .jsonl, .parquet, or .json for Perfetto.",
    metavar="FILE",
)
@text_option("--timeout", "Seconds after which the run of a script or file ends.", metavar="SECONDS", default="60")
@flag_option("--no-resources", "Count only words: do not compile to a binary (faster).")
@text_option(
    "--check",
    "Compare with words kept before by -o FILE.json: exit code 1, and a line for each change, if they differ.",
    metavar="FILE.json",
)
@flag_option("--fail-outside", "Exit code 1 if a word lies outside of its tensor.")
@flag_option("--fail-unfit", "Exit code 1 if a launch does not fit; with --tune, if no configuration does.")
@problem_options
@rows(KEY_HEADS)
@outputs
@gathered(launch=Launch, asked=Asked)
def command(
    launch: Launch,
    asked: Asked,
    script: str | None,
    output: Output,
    **given: str | bool | None,
) -> None:
    """The words that a launch of a Triton kernel reads and writes, and the resources it needs. Runs without a GPU.

    Triton compiles the kernel for --target. iosim computes the addresses of every program of the grid.
    FILE is a Python file with kernels, or a TOML file with launches (keys file, kernel, grid, warps, stages; tables arg
    and const).

    FILE is imported without a GPU: its launches do nothing, packages that are missing have stand-ins, and statements
    that fail are left out. --script runs a whole script; its launches are caught, and do not run. The
    exit code is 1 if a launch has no answer; the others are answered.

    Example: iosim explain kernels.py --kernel attention --grid "cdiv(N, BM), H" --arg Q=fp16[H,N,D] --arg K=fp16[H,N,D]
    --arg V=fp16[H,N,D] --arg O=fp16[H,N,D] --arg scale=0.125 --arg N=4096 --arg H=8 --const D=64 --const BM=128
    --const BN=64 --warps 8 --as attention --heads 8 --d 64
    """
    from ..progress import under_way
    from ..schedules.state import RULE
    from .explain import Question, aimed
    from .kept import read_kept
    from .launches import ranking
    from .of_state import pass_of
    from .sentence import first_line
    from .walk.log import Log

    problem, roles = meaning(asked.computes, given)
    of_state = problem if problem is not None and problem[RULE] else None
    kind = trace_format(asked.trace, script, asked.tune)
    log = None if asked.trace is None else Log()
    kept = None if asked.check is None else read_kept(asked.check)
    limit = seconds(asked.timeout)
    target, aside = aimed(asked.target, asked.hardware)
    question = Question(
        target,
        asked.hardware,
        None if of_state else problem,
        roles,
        not asked.no_resources,
        asked.tune,
        timeout=limit,
        log=log,
    )
    own = launch.texts
    with under_way(erases=script is None) as tell:
        launches, found = explained(script, own, replace(question, tell=tell))
    answers = found.found
    say([*aside, *found.notes, *found.lent(), *dict.fromkeys(map(str, found.refused))])
    if log is not None:
        write_trace(log, asked.trace, kind)
    parts: list[Part] = [part_of(answer) for answer in noted(answers)]
    ranked = asked.tune and launches == 1 and len(answers) > 1
    above: Pieces = []
    if first := first_line(answers, found.refused, ranked):
        above = [first, ranking(answers), ""] if ranked else [first, ""]
    more = refusals(found)
    if of_state is not None:
        one = pass_of(answers[:1] if ranked else answers, of_state, roles)
        above, more = [one.sentence, one.table(), *one.lines(), ""], {**more, "pass": one.to_dict()}
    of_best = ranked and not asked.every and not (output.as_json or output.as_csv)
    answer_all(parts[:1] if of_best else parts, output, above=above, more=more)
    check(answers, asked, kept)
    if found.refused:
        sys.exit(1)


def seconds(text: str) -> float:
    """The seconds of --timeout."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < float("inf"):
        raise InputError("--timeout", text, "seconds above 0, as 60")
    return found


def refusals(found: Answers) -> dict[str, object]:
    """The keys of the JSON with the launches that have no answer, and with packages that have stand-ins; none if there
    are none."""
    both = {"refused": [asdict(one) for one in found.refused], "stand_ins": sorted(found.stand_ins)}
    return {key: value for key, value in both.items() if value}


def explained(script: str | None, own: LaunchTexts, question: Question) -> tuple[int, Answers]:
    """(the number of launches in FILE, the answers). A script counts as none."""
    from .launches import Answers, launch_answers, script_answers
    from .read.launch_texts import launches_of_file

    if script is not None:
        if own.file or own.grid is not None or own.arg or own.const:
            raise InputError("--script", "a launch beside it", "--script alone, with --kernel, --tune and --target")
        question.tell(f"explaining the launches of {script}")
        return 0, script_answers(script, own.kernel, question)
    if not own.file:
        raise InputError("FILE", "nothing", "a Python file with kernels, a TOML file with launches, or --script")
    launches = [own.over(one) for one in launches_of_file(own.file)] if own.file.endswith(".toml") else [own]
    if question.log is not None and len(launches) > 1:
        raise InputError("--trace", f"{len(launches)} launches", "one launch")
    answers = Answers()
    for launch in launches:
        answers.add(launch_answers(launch, question))
    return len(launches), answers


def check(answers: list[Explained], asked: Asked, kept: Mapping[str, Tensors] | None) -> None:
    """Raise CheckError if words changed (--check), or if some lie outside of their tensors (--fail-outside)."""
    from .kept import changes

    found = [] if kept is None else changes(kept, answers)
    failed = [f"--check {asked.check}: {numbered(len(found), 'change')}", *("  " + line for line in found)]
    failed = failed if found else []
    if asked.fail_outside:
        rows = [(answer.kernel, name, row) for answer in answers for name, row in answer.tensors.items()]
        outside = [f"{kernel}: {name}" for kernel, name, row in rows if row.get("outside_words")]
        failed += [f"--fail-outside: words outside of {', '.join(outside)}"] if outside else []
    if asked.fail_unfit:
        failed += unfit(answers)
    if failed:
        raise CheckError("\n".join(failed))


def unfit(answers: list[Explained]) -> Iterator[str]:
    """A line on each kernel that does not fit at a place, with none of its configurations that were asked."""
    fits: dict[tuple[str, str | None], bool] = {}
    for answer in answers:
        if answer.fits is None:
            raise InputError(
                "--fail-unfit", "no shared memory of a program", "an answer with resources, on a GPU of NVIDIA"
            )
        fits[answer.kernel, answer.place] = answer.fits or fits.get((answer.kernel, answer.place), False)
    for (kernel, where), fit in fits.items():
        if not fit:
            yield f"--fail-unfit: {kernel}{f' ({where})' if where else ''} does not fit"


def noted(answers: list[Explained]) -> list[Explained]:
    """The answers; if they are about several kernels, their notes say which."""
    if len({answer.kernel for answer in answers}) == 1:
        return answers
    return [replace(a, warnings=[f"{a.kernel}: {note}" for note in a.warnings]) for a in answers]


def part_of(answer: Explained) -> Part:
    """An answer with its label."""
    from .explain import plain_value

    constants = {name: plain_value(value) for name, value in answer.constants.items()}
    label = {"num_warps": answer.num_warps, "num_stages": answer.num_stages, **constants}
    return {**label, "fits": answer.fits}, answer


def trace_format(path: str | None, script: str | None, tune: bool) -> str:
    """The format of the file of --trace. InputError unless there is one launch with one configuration."""
    from ..event_file import event_format

    if path is None:
        return ""
    beside = "--script" if script is not None else "--tune" if tune else "stdout" if path == "-" else None
    if beside is not None:
        raise InputError("--trace", beside, "a file, of one launch with one configuration")
    try:
        return event_format(None, path, False, False)
    except InputError as error:
        raise InputError("--trace", path, error.allowed, error.hint) from None


def write_trace(log: Log, path: str | None, kind: str) -> None:
    """Write the events of a launch to a file."""
    from ..event_file import EVENT_COLUMNS, write_events
    from .walk.log import MORE_COLUMNS

    def put(emit: Emit) -> int:
        written = 0
        for event in log.events():
            emit(event)
            written += 1
        return written

    try:
        write_events(put, path, kind, (*EVENT_COLUMNS, *MORE_COLUMNS))
    except InputError as error:
        raise InputError("--trace", error.found, error.allowed, error.hint) from None


def texts(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """{name: text} from options NAME=VALUE."""
    found = {}
    for each in given:
        name, equal, text = each.partition("=")
        if not equal or not name.strip().isidentifier() or not text.strip():
            raise InputError(option, each, "NAME=VALUE, as in N=4096 or Q=fp16[8,4096,64]")
        found[name.strip()] = text.strip()
    return found


def meaning(computes: str | None, given: dict[str, str | bool | None]) -> tuple[Attention | None, dict[str, str]]:
    """(the problem that the kernel solves or None without --as, {tensor: argument})."""
    from ..counting.given import problem
    from ..schedules.state import BY_NAME

    if computes is None:
        unused = [flag_of(name) for name, value in given.items() if value not in (None, False)]
        if unused:
            raise InputError(unused[0], "no --as", "--as attention beside it", "the problem is only for --as attention")
        return None, {}
    what, _, named = computes.partition(":")
    if what not in ("attention", *BY_NAME):
        raise InputError("--as", what, f"attention, or with a state {', '.join(BY_NAME)}", suggestion(what, BY_NAME))
    if absent := [flag_of(name) for name in ("N", "d") if given[name] is None]:
        raise InputError(", ".join(absent), "nothing", "a value for each", "as in --as attention --N 4096 --d 64")
    pairs = [part.partition("=") for part in named.split(",") if part.strip()]
    options = given if what == "attention" else {**given, "rule": what}
    return problem(options), {argument.strip(): role.strip() for role, _, argument in pairs}
