"""Signatures that show every option of a problem with its default, for `help` and notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..answer import PLAIN
from ..options import all_declared
from .options import OF_EVERY_PROBLEM

PYTHON_TYPES = {kind: name for name, kind in PLAIN.items()}

NAMES_OF_THE_COMMAND_LINE = {
    "causal": (False, "bool", "mask"),
    "schedule": ((), "SchedulesAsked", "schedules"),
    "registers": (None, "int | str", "register_bytes"),
}
"""{name of an option on the command line: (its default, its type, its other name in Python)}."""


def spelled_out(function: Callable[..., object]) -> None:  # type: ignore[explicit-any]  # any function
    """Replace the `**options` in a function's signature with every option of a problem, for `help` and notebooks."""
    shown = inspect.signature(function)
    own, rest = [*shown.parameters.values()][:-1], [*shown.parameters.values()][-1]
    if rest.kind is not inspect.Parameter.VAR_KEYWORD:
        return
    several = "AxisValue" in str(rest.annotation)  # in `sweep` and `plot` every option may be an axis
    taken = {parameter.name for parameter in own}
    options = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default="dense" if option.name == "mask" else option.default,
            annotation="AxisValue" if several else PYTHON_TYPES[option.kind.type],
        )
        for option in (*OF_EVERY_PROBLEM.values(), *all_declared())
        if option.name not in taken
    ]
    options += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind, full) in NAMES_OF_THE_COMMAND_LINE.items()
        if name not in taken and full in {*taken, *(option.name for option in options)}
    ]
    function.__signature__ = shown.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
