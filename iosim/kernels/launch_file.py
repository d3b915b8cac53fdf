"""Launches from a TOML file: one at its top level, or several as `[[launch]]`. Options of a command line win over it.

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

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import InputError, suggestion

KEYS = ("file", "kernel", "grid", "warps", "stages", "arg", "const")


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
        return replace(
            other,
            **{
                key: value for key in ("kernel", "grid", "warps", "stages") if (value := getattr(self, key)) is not None
            },
            arg={**{k: v for k, v in other.arg.items() if k not in names}, **self.arg},
            const={**{k: v for k, v in other.const.items() if k not in names}, **self.const},
        )


def launches_of_file(path: str) -> list[LaunchTexts]:
    """The launches of a TOML file."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("FILE", path, "a TOML file with a launch", error.strerror or "") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, str(error), "a TOML file with a launch") from None
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
    one = {key: str(table[key]) if key in table else None for key in KEYS[:5]}
    arg, const = (named_texts(table.get(key, {}), f"{path}: {key}") for key in ("arg", "const"))
    file = str(Path(path).parent / str(table["file"]))
    return LaunchTexts(file, one["kernel"], one["grid"], one["warps"], one["stages"], arg, const)


def named_texts(table: object, where: str) -> dict[str, str]:
    """The values of a table as texts, by name. They may be numbers or texts."""
    if not isinstance(table, dict):
        raise InputError(where, str(table), "a table of names and values")
    return {name: str(value) for name, value in table.items()}
