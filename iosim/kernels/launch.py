"""Answers for a launch that is given as texts: a file, a kernel, a grid, and values by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import InputError
from .arguments import GRID_EXAMPLE, Names, Value, read_grid
from .compile import Configuration, Kernel, kernel_of
from .explain import Explained, choices, explained
from .launch_file import LaunchTexts
from .places import Fault, definition
from .ranking import ranked

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .log import Log
    from .script import Caught

WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Question:
    """The options of a question about launches: the GPU, the problem to compare with, and the parts of the answer."""

    target: str = "sm_90"
    hardware: str | None = None
    problem: Attention | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    resources: bool = True
    tune: bool = False
    log: Log | None = None
    """The log that receives the requests of the only launch."""

    def answer(self, kernel: Kernel, chosen: Configuration, grid: Value, given: Mapping[str, Value],
               num_warps: int | None, num_stages: int | None) -> Explained:  # fmt: skip
        """The answer for one configuration."""
        return explained(kernel, chosen, grid, given, num_warps, num_stages, self.target, self.hardware, self.problem,
                         self.roles, self.resources, self.log)  # fmt: skip

    def answer_for(self, launch: Caught, chosen: Configuration) -> Explained:
        """The answer for one configuration of a launch of a script."""
        return self.answer(launch.kernel, chosen, launch.grid, launch.arguments, launch.num_warps, launch.num_stages)

    def choices(self, kernel: Kernel, given: Mapping[str, Value]) -> list[Configuration]:
        """The configurations that agree with the given constants. Without `tune` there must be only one."""
        left = choices(kernel, given)
        if len(left) > 1 and not self.tune:
            raise Fault(f"{definition(kernel.function)}: kernel {kernel.name}",
                        f"{len(left)} configurations of @triton.autotune", "one, or --tune",
                        f"give --const for {', '.join(left[0].constants)}")  # fmt: skip
        return left


def launch_answers(launch: LaunchTexts, question: Question) -> tuple[list[Explained], list[str]]:
    """(answers for a launch, messages about configurations without one). Several configurations are ranked."""
    from ..units import parse_count
    from .load import check_file

    check_file(launch.file)
    if launch.grid is None:
        raise InputError("--grid", "nothing", "the number of programs on each axis", f"as {GRID_EXAMPLE}")
    kernel = kernel_of(launch.file, launch.kernel)
    args, consts = launch.arg, launch.const
    num_warps = None if launch.warps is None else parse_count(launch.warps, "--warps")
    num_stages = None if launch.stages is None else parse_count(launch.stages, "--stages")
    given = given_values(kernel, args, consts)

    def answer(chosen: Configuration) -> Explained:
        values = kernel.completed(given, chosen)
        kernel.check(values)
        reading = reader(args, consts, values)
        with beside(kernel):
            size = read_grid(reading.grid(launch.grid or ""), launch.grid or "")
        check_read(kernel, {**args, **consts}, reading.read)
        return question.answer(kernel, chosen, size, given, num_warps, num_stages)

    return answered(question.choices(kernel, given), answer)


def answered(
    choices: list[Configuration], answer: Callable[[Configuration], Explained]
) -> tuple[list[Explained], list[str]]:
    """(answers for configurations, best first; messages about those without one). InputError if no configuration has
    one."""
    found: list[Explained] = []
    refused: list[InputError] = []
    for chosen in choices:
        try:
            found.append(answer(chosen))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return ranked(found), [str(error) for error in refused]


def script_answers(file: str, name: str | None, question: Question) -> tuple[list[Explained], list[str]]:
    """(answers for the launches of a script, messages about launches without one). Equal launches have one answer."""
    from .compile import capability
    from .script import caught_launches, without_pytorch

    caught, early = caught_launches(file, capability(question.target))
    refused = [f"{file} ended early, {early}{without_pytorch(file)}"] if early else []
    kept: dict[tuple[object, ...], list[Caught]] = {}
    for launch in caught:
        if name in (None, launch.kernel.name):
            kept.setdefault(launch.key, []).append(launch)
    found: list[Explained] = []
    for first, *others in kept.values():
        try:
            first.check()
            launched = partial(question.answer_for, first)
            new, failed = answered(question.choices(first.kernel, first.arguments), launched)
            found += [replace(a, place=first.line, launches=1 + len(others)) for a in new]
            refused += [f"{first.quoted}: {error}" for error in failed]
        except InputError as error:
            refused.append(f"{first.quoted}: {error}")
    if not found:
        names = ", ".join(dict.fromkeys(launch.kernel.name for launch in caught)) or "no kernel"
        raise InputError(refused[0] if refused else f"--script {file}", f"launches of {names}, and no answer",
                         "a script that launches kernels" if name is None else f"a launch of {name}")  # fmt: skip
    return found, refused


def reader(args: Mapping[str, str], consts: Mapping[str, str], more: Mapping[str, Value] | None = None) -> Names:
    """The reader of expressions that may use the names of arguments and constants."""
    import triton.language as tl

    for name in consts:
        if name in args:
            raise InputError(f"--const {name}", consts[name], "a name that --arg does not give")
    return Names({**args, **consts}, "--grid" if more is not None else "--arg", {"tl": tl, **(more or {})})


def given_values(kernel: Kernel, args: Mapping[str, str], consts: Mapping[str, str]) -> dict[str, Value]:
    """The values of a kernel's parameters."""
    functions = kernel.function.fn.__globals__
    names = reader(args, consts)
    names.more = {"tl": names.more["tl"], **{k: v for k, v in functions.items() if hasattr(v, "cache_key")}}
    found = {}
    for name in kernel.parameters:
        if name in names.texts:
            with beside(kernel, name):
                found[name] = names[name]
    return found


@contextmanager
def beside(kernel: Kernel, parameter: str | None = None) -> Iterator[None]:
    """Add the line of the kernel, or of its parameter, in the user's file to any InputError."""
    try:
        yield
    except InputError as error:
        hint = "; ".join(part for part in (error.hint, definition(kernel.function, parameter)) if part)
        raise Fault(error.where, str(error.found), error.allowed, hint) from None


def check_read(kernel: Kernel, given: Mapping[str, str], read: set[str]) -> None:
    """Raise InputError for a name that is neither a parameter nor `read` in the grid, nor used in another value."""
    used = read | {word for text in given.values() for word in WORD.findall(text)}
    for name in given:
        if name not in kernel.parameters and name not in used:
            raise kernel.unknown(f"--arg {name}", name)
