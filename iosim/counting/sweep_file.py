"""The reader of a sweep from a TOML file and options. Error messages name the file, the key, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError, suggestion
from .columns import EVERY_COLUMN
from .given import FIELDS, Given

if TYPE_CHECKING:
    from .sweep_axes import Asking, Sweep


SWEEP_KEYS = (
    "N", "Nk", "d", "dv", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M", "hardware", "tiles",
    "tile_multiple", "schedule", "count_init", "lse", "keep_p", "elementwise", "splits", "page_size", "top_k",
    "key_block", "gqa",
    "registers", "stages", "kv_dtype", "kv_scales", "latent", "columns",
    "by", "least_blocks", "curve", "granularity", "line", "policy", "tensors", "seed", "dropout", "decode",
)  # fmt: skip

TomlTable = dict[str, object]
"""The values of a TOML table, by key."""
Asked = Callable[[TomlTable], "Asking | None"]
"""A function that takes the options of another command out of a table."""


def read_toml(file: str) -> TomlTable:
    """The keys of a TOML file; InputError if it cannot be read."""
    import tomllib

    try:
        with open(file, "rb") as handle:
            return tomllib.load(handle)
    except RecursionError:
        raise InputError("config", file, "a TOML file that can be read", "it is nested too deep") from None
    except (OSError, ValueError) as error:
        raise InputError("config", file, "a TOML file that can be read", str(error)) from None


FLAGS = ("count_init", "lse", "keep_p", "latent")  # options of the problem


def read_sweep(file: str) -> TomlTable:
    """The keys of the `[sweep]` table of a file, or of its top level if it has none."""
    whole = read_toml(file)
    table = whole.get("sweep", whole)
    if not isinstance(table, dict):
        raise InputError(f"{file}: sweep", table, "a table")
    for key, value in table.items():
        if key not in SWEEP_KEYS:
            raise InputError(f"{file}: key", key, ", ".join(SWEEP_KEYS), suggestion(key, SWEEP_KEYS))
        if key in FLAGS and not isinstance(value, bool):
            raise InputError(f"{file}: {key}", value, "true or false")
        if not isinstance(value, str | int | bool | list) or (
            isinstance(value, list) and not all(isinstance(v, str | int) for v in value)
        ):
            raise InputError(f"{file}: {key}", value, "a whole number, a text, or a list of these")
    return table


def sweep_of(
    file: str | None, given: Given, M: str | None, schedules: tuple[str, ...], tile_multiple: str,
    known: Sequence[str] = EVERY_COLUMN, asking: Asked = lambda values: None,
) -> Sweep:  # fmt: skip
    """The sweep that a file and options describe together. An option wins over the file. `known` are the columns that
    may be asked for; all may if it is empty. `asking` takes the options that `count` lacks out of the values."""
    from .sweep_axes import OPTION_AXES, build

    values = {} if file is None else read_sweep(file)
    chosen = schedules or values.pop("schedule", ())
    multiple = values.pop("tile_multiple", 1) if tile_multiple == "1" else tile_multiple
    values |= {FIELDS.get(k, k): v for k, v in given.items() if v not in (None, False)}
    if M is not None:
        values["M"] = M
    other = asking(values)
    if (M is not None or given.get("hardware") is not None) and not (other and other.M_of_each):  # an option wins
        values.pop("hardware" if M is not None else "M", None)
    if "registers" in values:
        values["register_bytes"] = values.pop("registers")
    tiles, columns = values.pop("tiles", None), columns_of(values.pop("columns", None), known)
    options: TomlTable = {k: values.pop(k) for k in FLAGS if k in values}
    options["elementwise"] = 0
    options |= {name: values.pop(name) for name in OPTION_AXES if name in values}
    return build(values, chosen, tiles, multiple, columns, other, **options)


def columns_of(names: object, known: Sequence[str] = EVERY_COLUMN) -> tuple[str, ...]:
    """The columns that `N,total` names, or a list of such strings. InputError for one that is not known."""
    from .sweep_axes import split

    columns = tuple(split(names))
    for name in columns if known else ():
        if name not in known:
            raise InputError("--columns", name, ", ".join(known), suggestion(name, known))
    return columns
