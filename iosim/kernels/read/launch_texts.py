"""Launches as texts, from a command line or a TOML file, and the values that they give to a kernel's parameters.

A TOML file has one launch at its top level, or several as `[[launch]]`. Options of a command line win over it.

file = "kernels.py"          # beside the TOML file; the other keys are those of the options
kernel = "attention"
grid = "cdiv(N, BM), H"
warps = 8
[arg]
Q = "fp16[H,N,D]"
N = 4096
[const]
D = 64
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError, as_one, suggestion
from ...reading import Garbled, Unreadable, read_toml
from ..walk.launch import Value
from ..walk.places import Fault
from .arguments import Names
from .kernel import Kernel

WORD = re.compile(r"[A-Za-z_]\w*")
OPTIONAL = ("kernel", "grid", "warps", "stages")
KEYS = ("file", *OPTIONAL, "arg", "const")


@dataclass(frozen=True)
class LaunchTexts:
    """A launch as texts, with a field for each option of the command."""

    file: str
    kernel: str | None = None
    grid: str | None = None
    warps: str | None = None
    stages: str | None = None
    arg: Mapping[str, str] = field(default_factory=dict)
    const: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: LaunchTexts) -> LaunchTexts:
        """This launch, with missing fields taken from `other`."""
        names = {**self.arg, **self.const}
        own = {key: text for key in OPTIONAL if (text := getattr(self, key)) is not None}
        return replace(
            other,
            **own,
            arg={**{k: v for k, v in other.arg.items() if k not in names}, **self.arg},
            const={**{k: v for k, v in other.const.items() if k not in names}, **self.const},
        )


def launches_of_file(path: str) -> list[LaunchTexts]:
    """The launches of a TOML file."""
    try:
        found = read_toml(path)
    except Garbled as error:
        raise InputError(path, str(error), "a TOML file with a launch") from None
    except Unreadable as error:
        raise InputError("FILE", path, "a TOML file with a launch", str(error)) from None
    tables = found.pop("launch", None)
    if tables is None:
        return [launch_of(found, path)]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: launch", str(tables), "tables [[launch]]")
    return [launch_of({**found, **table}, path) for table in tables]


def launch_of(table: Mapping[str, object], path: str) -> LaunchTexts:
    """The launch of one table."""
    for key in table:
        if key not in KEYS:
            raise InputError(f"{path}: {key}", str(table[key]), ", ".join(KEYS), suggestion(key, KEYS))
    if "file" not in table:
        raise InputError(path, "no file", 'file = "kernels.py"')
    texts = {key: str(table[key]) for key in OPTIONAL if key in table}
    arg, const = (named_texts(table.get(key, {}), f"{path}: {key}") for key in ("arg", "const"))
    return LaunchTexts(str(Path(path).parent / str(table["file"])), **texts, arg=arg, const=const)


def named_texts(table: object, where: str) -> dict[str, str]:
    """The values of a table as texts, by name. They may be numbers or texts."""
    if not isinstance(table, dict):
        raise InputError(where, str(table), "a table of names and values")
    return {name: str(value) for name, value in table.items()}


# ---------------------------------------------------------------- the values of a launch


def reader(args: Mapping[str, str], consts: Mapping[str, str], more: Mapping[str, Value] | None = None) -> Names:
    """The reader of expressions that may use the names of arguments and constants."""
    import triton.language as tl

    for name in consts:
        if name in args:
            raise InputError(f"--const {name}", consts[name], "a name that --arg does not give")
    return Names({**args, **consts}, "--grid" if more is not None else "--arg", {"tl": tl, **(more or {})})


def given_values(kernel: Kernel, args: Mapping[str, str], consts: Mapping[str, str]) -> dict[str, Value]:
    """The values of a kernel's parameters. The error names all that cannot be read."""
    functions = kernel.function.fn.__globals__
    names = reader(args, consts)
    names.more = {"tl": names.more["tl"], **{k: v for k, v in functions.items() if hasattr(v, "cache_key")}}
    found: dict[str, Value] = {}
    faults: dict[tuple[object, str], InputError] = {}  # a name that two values lack is told once
    for name in kernel.parameters:
        try:
            if name in names.texts:
                with beside(kernel, name):
                    found[name] = names[name]
        except InputError as fault:
            faults.setdefault((fault.found, fault.allowed), fault)
            names.under_way.clear()
    if faults:
        raise as_one([*faults.values()])
    return found


@contextmanager
def beside(kernel: Kernel, parameter: str | None = None) -> Iterator[None]:
    """Add the line of the kernel, or of its parameter, in the user's file to any InputError."""
    try:
        yield
    except InputError as error:
        hint = "; ".join(part for part in (error.hint, kernel.definition(parameter)) if part)
        raise Fault(error.where, str(error.found), error.allowed, hint) from None


def check_read(kernel: Kernel, given: Mapping[str, str], read: set[str]) -> None:
    """Raise InputError for a name that is neither a parameter nor `read` in the grid, nor used in another value."""
    used = read | {word for text in given.values() for word in WORD.findall(text)}
    for name in given:
        if name not in kernel.parameters and name not in used:
            raise kernel.unknown(f"--arg {name}", name)
