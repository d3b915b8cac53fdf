"""Signatures that show every field of a problem as an option with its default, for `help` and notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from .problem import Attention


def spelled_out(function: Callable[..., object]) -> None:  # type: ignore[explicit-any]  # any function
    """Replace the `**options` in a function's signature with every field of a problem, for `help` and notebooks."""
    shown = inspect.signature(function)
    fields = inspect.signature(Attention).parameters
    own, rest = [*shown.parameters.values()][:-1], [*shown.parameters.values()][-1]
    if rest.kind is not inspect.Parameter.VAR_KEYWORD:
        return
    several = "AxisValue" in str(rest.annotation)  # in `sweep` and `plot` every option may be an axis
    taken = {parameter.name for parameter in own}
    usual = {"mask": "dense", **({name: None for name in ("N", "d")} if several else {})}
    options = [
        p.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=usual.get(name, p.default),
            annotation="AxisValue" if several else "int" if p.annotation == "S" else p.annotation,
        )
        for name, p in fields.items()
        if name not in taken
    ]
    function.__signature__ = shown.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
