"""Reads the options of a command line, as numbers, names and a problem. It does not use click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..core.problem import Attention

Given = Mapping[str, str | bool | None]  # options by name, in lower case; None where an option was left out
Fields = dict[str, Any]  # type: ignore[explicit-any]  # of `Attention`, by name: each has a type of its own
FIELDS = {"n": "N", "nk": "Nk"}  # options whose field of `Attention` is not in lower case
COUNT_FIELDS = ("N", "Nk", "d", "batch", "heads", "kv_heads", "splits", "page_size")


def counts(given: Given, required: tuple[str, ...] = ("N", "d")) -> Fields:
    """Fields of `Attention` from the options of a problem. Options that were not given are left out."""
    from ..units import parse_count

    values: Fields = {FIELDS.get(name, name): value for name, value in given.items() if value is not None}
    for name in required:
        if name not in values:
            raise InputError(f"--{name}", "nothing", "a whole number from 1", f"give --{name}")
    for name in COUNT_FIELDS:
        if name in values:
            values[name] = parse_count(values[name], "--" + name.replace("_", "-"))
    if "elementwise" in values:
        values["elementwise"] = parse_count(values["elementwise"], "--elementwise", least=0, most=10_000)
    return values


def problem(given: Given, required: tuple[str, ...] = ("N", "d"), **defaults: object) -> Attention:
    """The problem that the options give. `defaults` are fields of `Attention` for options that were not given."""
    from ..core.problem import Attention
    from ..masks import parse_mask

    values: Fields = {**defaults, **counts(given, required)}
    return Attention(**{**values, "mask": parse_mask(values.get("mask", "dense"))})


def memory(m: str | None, m_elements: str | None, hardware: str | None) -> str | None:
    """M as a string, from the one of three options that gives it; None if none does."""
    ways = {"--M": m, "--M-elements": m_elements, "--hardware": hardware}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InputError(given[0], f"{given[1]} as well", "one of --M, --M-elements, --hardware")
    if hardware is not None:
        from ..hardware import load

        return str(load(hardware).shared_memory_per_block_bytes)
    if m_elements is not None:
        from ..units import parse_count

        return f"{parse_count(m_elements, '--M-elements')}el"
    return m
