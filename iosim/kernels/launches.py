"""Answers for launches that are given as texts or by a script, and the ranking of a kernel's configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..answer import Column, Columns, Table, type_of
from ..errors import InputError
from ..timing.tiles import TIE
from ..units import parse_count
from .explain import Explained, Question, explained, plain_value
from .pretend.packages import needed
from .pretend.tensors import AS_CODE
from .read.arguments import GRID_EXAMPLE, read_grid
from .read.compile import capability
from .read.kernel import Configuration, Kernel, KernelLaunch
from .read.kernel_file import check_file, kernel_of
from .read.launch_texts import LaunchTexts, beside, check_read, given_values, reader
from .read.script import Caught, caught_launches, without_pytorch
from .walk.launch import Value
from .walk.places import Refusal


@dataclass(frozen=True)
class Refused:
    """A launch without an answer, or the end of a script before its last line."""

    kernel: str | None
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass
class Answers:
    """The answers for launches, and what is said beside them."""

    found: list[Explained] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    """The launches without an answer."""
    notes: list[str] = field(default_factory=list)
    stand_ins: set[str] = field(default_factory=set)
    """The packages that are not installed, whose place stand-ins took."""

    def lent(self) -> list[str]:
        """The note on packages that are not installed; none if all are."""
        missing = ", ".join(sorted(self.stand_ins))
        return [f"not installed, so stand-ins took their place: {missing}"] if missing else []

    def add(self, more: Answers) -> None:
        """Add other answers at the end."""
        self.found += more.found
        self.refused += more.refused
        self.stand_ins |= more.stand_ins
        self.notes += [note for note in more.notes if note not in self.notes]


def launch_answers(texts: LaunchTexts, question: Question) -> Answers:
    """The answers for a launch. Several configurations are ranked."""
    check_file(texts.file)
    if texts.grid is None:
        raise InputError("--grid", "nothing", "the number of programs on each axis", f"as {GRID_EXAMPLE}")
    kernel = kernel_of(texts.file, texts.kernel, question.timeout)
    num_warps = None if texts.warps is None else parse_count(texts.warps, "--warps")
    num_stages = None if texts.stages is None else parse_count(texts.stages, "--stages")
    given = given_values(kernel, texts.arg, texts.const)

    def answer(chosen: Configuration) -> Explained:
        grid = grid_of_text(texts.grid or "", texts, kernel, kernel.completed(given, chosen))
        return explained(KernelLaunch(kernel, grid, given, num_warps, num_stages), chosen, question)

    found, notes = answered(kernel.choices(given), answer, question)
    return Answers(found, [], notes, kernel.stand_ins)


def grid_of_text(text: str, texts: LaunchTexts, kernel: Kernel, values: Mapping[str, Value]) -> tuple[int, int, int]:
    """The grid of a launch with these values."""
    kernel.check(values)
    names = reader(texts.arg, texts.const, values)
    with beside(kernel):
        grid = read_grid(names.grid(text), text)
    check_read(kernel, {**texts.arg, **texts.const}, names.read)
    return grid


def answered(
    choices: list[Configuration], answer: Callable[[Configuration], Explained], question: Question
) -> tuple[list[Explained], list[str]]:
    """(answers for configurations, best first; notes). InputError if no configuration has an answer.

    Without `tune` there is one answer: for the first configuration that fits, as far as that is asked.
    """
    found: list[Explained] = []
    refused: list[InputError] = []
    alike: list[object] = []  # the flags of refused configurations: sizes do not change what the code asks for
    for chosen in choices:
        flags = {
            name: v for name, v in chosen.constants.items() if isinstance(v, bool) or not isinstance(v, int | float)
        }
        if flags in alike:
            continue
        try:
            found.append(answer(chosen))
        except InputError as error:
            refused.append(error)
            alike += [flags] * isinstance(error, Refusal)
        if found and not question.tune and found[-1].fits is not False:
            return [found[-1]], [chosen_note(found[-1], chosen, len(choices), question)] if len(choices) > 1 else []
    if not found:
        raise refused[0]
    notes = [str(error) for error in refused]
    if question.tune and len(choices) == 1:
        notes.append(f"{found[0].kernel}: --tune has nothing to rank; @triton.autotune lists several configurations")
    return ranked(found) if question.tune else found[:1], notes


def chosen_note(answer: Explained, chosen: Configuration, count: int, question: Question) -> str:
    """The note on one of several configurations."""
    own = ", ".join([*(f"{k}={plain_value(v)}" for k, v in chosen.constants.items()), f"{answer.num_warps} warps"])
    which = "first that fits" if question.resources else "first that compiles"
    return f"{answer.kernel}: {own}, the {which} of {count} configurations of @triton.autotune (--tune ranks them all)"


def script_answers(file: str, name: str | None, question: Question) -> Answers:
    """The answers for the launches of a script. Equal launches have one answer."""
    run = caught_launches(file, capability(question.target), question.timeout)
    caught, answers = run.launches, Answers(notes=run.notes, stand_ins=run.missing)
    if run.early:
        answers.refused.append(Refused(None, file, f"ended early, {run.early}{without_pytorch(run)}"))
    answers.refused += [Refused("flex_attention", *call) for call in dict.fromkeys(run.flex)]
    kept: dict[tuple[object, ...], list[Caught]] = {}
    for launch in caught:
        if name in (None, launch.kernel.name):
            kept.setdefault(launch.key, []).append(launch)
    for same in kept.values():
        answers.add(launch_of_script(same, question))
    if not caught and without_pytorch(run):
        raise needed("torch", f"; it ended early, {run.early}" if run.early else "")
    if run.flex and not answers.found:
        raise InputError(run.flex[0][0], "flex_attention", "a kernel of Triton", run.flex[0][1])
    if not answers.found:
        names = ", ".join(dict.fromkeys(launch.kernel.name for launch in caught)) or "no kernel"
        allowed = "a script that launches kernels" if name is None else f"a launch of {name}"
        where = str(answers.refused[0]) if answers.refused else f"--script {file}"
        hint = [] if caught or answers.refused else [without_kernels(run.path, question.target)]
        hint += [] if caught else answers.lent()
        raise InputError(where, f"launches of {names}, and no answer", allowed, "; ".join(hint))
    return answers


def without_kernels(path: Path, target: str) -> str:
    """The hint for a script that launches no kernel of Triton."""
    text = path.read_text(errors="replace")
    if "torch" in text and "triton" not in text:
        return f"PyTorch's own kernels are not seen: {AS_CODE}"
    return f"the script saw a GPU of {target}; --target names another"


def launch_of_script(same: list[Caught], question: Question) -> Answers:
    """The answers for equal launches of a script, or why there is none."""
    first = same[0]
    try:
        first.check()
        choices = first.kernel.choices(first.arguments)
        found, notes = answered(choices, partial(explained, first, question=question), question)
    except InputError as error:
        return Answers([], [Refused(first.kernel.name, first.quoted, str(error))])
    found = [replace(a, place=first.line, launches=len(same)) for a in found]
    return Answers(found, [], [f"{first.line}: {note}" for note in notes])


# ---------------------------------------------------------------- configurations, best first


def ranked(answers: list[Explained]) -> list[Explained]:
    """The answers for configurations, best first: those that fit, then those that do not spill, then by least time, and
    by bytes of those within TIE of the least. Where these are equal the order is that of the kernel."""
    able = [a.at_least_seconds or 0.0 for a in answers if a.fits is not False and not a.spills]
    tie = TIE * min(able, default=0.0)

    def place(a: Explained) -> tuple[bool, bool, float, int]:
        seconds = a.at_least_seconds or 0.0
        return a.fits is False, a.spills, seconds if seconds > tie else 0.0, a.total_bytes

    return sorted(answers, key=place)


def ranking(answers: list[Explained]) -> Table:
    """The configurations, with the numbers that decide their rank."""
    constants = {name: plain_value(value) for name, value in answers[0].constants.items()}
    own: list[Column[Explained]] = [
        Column(name, type_of(value), of=lambda answer, name=name: plain_value(answer.constants[name]))  # type: ignore[misc]
        for name, value in constants.items()
    ]
    return Table([*own, *RANKED], answers)


RANKED: Columns[Explained] = (
    Column("warps", of=lambda answer: answer.num_warps),
    Column("stages", of=lambda answer: answer.num_stages),
    Column("fits", "boolean"),
    Column("spills", "boolean"),
    Column("programs_per_SM", of=lambda answer: answer.blocks_per_sm or None),
    Column("us_at_least", "number", cell=".1f", of=lambda a: None if a.bound is None else a.bound.seconds * 1e6),
    Column("bytes", of=lambda answer: answer.total_bytes),
)
