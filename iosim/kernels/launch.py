"""A launch from texts, as a command line gives them: a file, a kernel, a grid, and values by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import InputError, suggestion
from .arguments import Names, Value
from .compile import Kernel, kernel_of
from .explain import Explained, choices, explained

if TYPE_CHECKING:
    from ..core.problem import Attention

WORD = re.compile(r"[A-Za-z_]\w*")


def launch_answers(
    file: str, name: str | None, grid: str, args: Mapping[str, str], consts: Mapping[str, str], warps: str | None,
    stages: str | None, target: str, hardware: str | None, problem: Attention | None, roles: Mapping[str, str],
    resources: bool, tune: bool,
) -> list[Explained]:  # fmt: skip
    """The answer for a launch; with `tune` one for each configuration, those that fit and move least first."""
    from ..units import parse_count

    kernel = kernel_of(file, name)
    num_warps = None if warps is None else parse_count(warps, "--warps")
    num_stages = None if stages is None else parse_count(stages, "--stages")
    given = given_values(kernel, args, consts)
    left = choices(kernel, given)
    if len(left) > 1 and not tune:
        raise InputError(f"kernel {kernel.name}", f"{len(left)} configurations of @triton.autotune", "one, or --tune",
                         f"give --const for {', '.join(left[0].constants)}")  # fmt: skip
    found = []
    for chosen in left:
        values = kernel.completed(given, chosen)
        reading = reader(args, consts, values)
        size = reading.value(f"({grid},)")
        check_read(kernel, {**args, **consts}, reading.read)
        found.append(
            explained(kernel, chosen, size, given, num_warps, num_stages, target, hardware, problem, roles, resources)
        )
    return sorted(found, key=rank)


def rank(answer: Explained) -> tuple[bool, int, int]:
    """The key by which configurations are sorted: what fits first, then fewest bytes, then most programs at a time."""
    return answer.fits is False, answer.total_bytes, -(answer.blocks_per_sm or 0)


def reader(args: Mapping[str, str], consts: Mapping[str, str], more: Mapping[str, Value] | None = None) -> Names:
    """A reader of expressions in the names of arguments and constants."""
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
    return {name: names[name] for name in kernel.parameters if name in names.texts}


def check_read(kernel: Kernel, given: Mapping[str, str], read: set[str]) -> None:
    """Raise InputError for a name that is neither a parameter nor `read` in the grid, nor used in another value."""
    used = read | {word for text in given.values() for word in WORD.findall(text)}
    for name in given:
        if name not in kernel.parameters and name not in used:
            raise InputError(f"--arg {name}", "no such parameter", ", ".join(kernel.parameters),
                             suggestion(name, kernel.parameters))  # fmt: skip
