"""The reader of a sweep from a TOML file and options. Error messages name the file, the key, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..core.options import find_option, option_names
from ..errors import InputError, suggestion
from ..options import FLAG, Option
from ..reading import Unreadable, read_toml
from .given import Given

if TYPE_CHECKING:
    from .sweep_axes import Asking, Sweep


OTHER_KEYS = ("M", "hardware", "paper_model", "tiles", "tile_multiple", "schedule", "columns")

TomlTable = dict[str, object]
"""The values of a TOML table, by key."""
Asked = Callable[[TomlTable], "Asking | None"]
"""A function that takes the options of another command out of a table."""


def keys_of(file: str) -> TomlTable:
    """The keys of a TOML file; InputError if it cannot be read."""
    try:
        return read_toml(file)
    except Unreadable as error:
        raise InputError("config", file, "a TOML file that can be read", str(error)) from None


def option_keys() -> dict[str, Option]:
    """The options of a problem, by their keys in a file."""
    return {option.key: option for name in option_names() if (option := find_option(name))}


def read_sweep(file: str, own_keys: Sequence[str]) -> TomlTable:
    """The values of the `[sweep]` table of a file, or of its top level if it has none. Options of a problem have their
    names in Python. `own_keys` are the keys of options that `count` lacks."""
    whole = keys_of(file)
    table = whole.get("sweep", whole)
    if not isinstance(table, dict):
        raise InputError(f"{file}: sweep", table, "a table")
    options = option_keys()
    known = (*options, *OTHER_KEYS, *own_keys)
    for key, value in table.items():
        if key not in known:
            raise InputError(f"{file}: key", key, ", ".join(known), suggestion(key, known))
        if (key == "paper_model" or (key in options and options[key].kind is FLAG)) and not isinstance(value, bool):
            raise InputError(f"{file}: {key}", value, "true or false")
        if not isinstance(value, str | int | bool | list) or (
            isinstance(value, list) and not all(isinstance(v, str | int) for v in value)
        ):
            raise InputError(f"{file}: {key}", value, "a whole number, a text, or a list of these")
    return {options[key].name if key in options else key: value for key, value in table.items()}


def sweep_of(
    file: str | None, given: Given, M: str | None, schedules: tuple[str, ...], tile_multiple: str | None,
    known: Sequence[str], own_keys: Sequence[str] = (), asking: Asked = lambda values: None,
) -> Sweep:  # fmt: skip
    """The sweep that a file and options describe together. An option wins over the file. `known` are the columns that
    may be asked for; all may if it is empty. `asking` takes the options that `count` lacks, whose keys are `own_keys`,
    out of the values."""
    from .sweep_axes import AXES, build

    values = {} if file is None else read_sweep(file, own_keys)
    in_file = {name: values.pop(name, usual) for name, usual in (("schedule", ()), ("tile_multiple", None))}
    chosen = schedules or in_file["schedule"]
    multiple = in_file["tile_multiple"] if tile_multiple is None else tile_multiple
    values |= {name: value for name, value in given.items() if value not in (None, False)}
    if M is not None:
        values["M"] = M
    values["schedules"] = chosen
    other = asking(values)
    chosen = values.pop("schedules", ())
    if (M is not None or given.get("hardware") is not None) and not (other and other.M_of_each):  # an option wins
        values.pop("hardware" if M is not None else "M", None)
    tiles, columns = values.pop("tiles", None), columns_of(values.pop("columns", None), known)
    options = {name: values.pop(name) for name in [*values] if name not in AXES}
    return build(values, chosen, tiles, multiple, columns, other, **options)


def columns_of(names: object, known: Sequence[str]) -> tuple[str, ...]:
    """The columns that `N,total` names, or a list of such strings. InputError for one that is not known."""
    from .sweep_axes import split

    columns = tuple(split(names))
    for name in columns if known else ():
        if name not in known:
            raise InputError("--columns", name, ", ".join(known), suggestion(name, known))
    return columns
