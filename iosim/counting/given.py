"""Reads the options of a command line, as numbers, names and a problem. It does not use click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import InputError

if TYPE_CHECKING:
    from ..core.problem import Attention

Given = Mapping[str, str | bool | None]  # options by name, in lower case; None where an option was left out
Fields = dict[str, Any]  # type: ignore[explicit-any]  # of `Attention`, by name: each has a type of its own
FIELDS = {"n": "N", "nk": "Nk", "registers": "register_bytes"}  # options whose field of `Attention` has another name
COUNT_FIELDS = (
    "N",
    "Nk",
    "d",
    "dv",
    "batch",
    "heads",
    "kv_heads",
    "splits",
    "page_size",
    "top_k",
    "key_block",
    "stages",
)


def counts(given: Given, required: tuple[str, ...] = ("N", "d")) -> Fields:
    """Fields of `Attention` from the options of a problem. Options that were not given are left out."""
    from ..units import parse_count, parse_registers

    values: Fields = {FIELDS.get(name, name): value for name, value in given.items() if value is not None}
    for name in required:
        if name not in values:
            raise InputError(f"--{name}", "nothing", "a whole number from 1", f"give --{name}")
    for name in COUNT_FIELDS:
        if name in values:
            values[name] = parse_count(values[name], "--" + name.replace("_", "-"))
    if "register_bytes" in values:
        values["register_bytes"] = parse_registers(values["register_bytes"])
    if "elementwise" in values:
        values["elementwise"] = parse_count(values["elementwise"], "--elementwise", least=0, most=10_000)
    return values


def problem(given: Given, required: tuple[str, ...] = ("N", "d"), **defaults: object) -> Attention:
    """The problem that the options give. `defaults` are fields of `Attention` for options that were not given."""
    from ..core.problem import Attention
    from ..masks import parse_mask

    values: Fields = {**defaults, **counts(given, required)}
    return Attention(**{**values, "mask": parse_mask(values.get("mask", "dense"))})


Size = TypeVar("Size", str | None, str | int | None)


class Place(NamedTuple):
    """One SRAM of a question. `label` tells it from the others. `M` is its size, as a string or in bytes."""

    label: dict[str, object]
    M: str | int | None


def memories(given: Given, m: str | None, m_elements: str | None, hardware: str | None) -> list[Place]:
    """The SRAMs of `--M 16KB:64KB:x2`, `--M-elements 1024,2048` or `--hardware h100,h200`. A single one has no label.
    If no option is given, it is one SRAM without a size."""
    from ..units import dtype_bytes, parse_axis, parse_bytes

    names = names_of(hardware)
    check_registers(given, names)
    if len(names) > 1:
        return [Place({"hardware": name}, memory(m, m_elements, name)) for name in names]
    size = memory(m, m_elements, hardware)
    if size is None or not several(size):
        return [Place({}, size)]
    word = dtype_bytes(str(given.get("dtype") or "fp16"))
    sizes = parse_axis(size, "--M", lambda text: parse_bytes(text, word))
    return [Place({"M_bytes": size} if len(sizes) > 1 else {}, size) for size in sizes]


def check_registers(given: Given, presets: list[str]) -> None:
    """Raise InputError for more registers than an SM of a preset has."""
    text = given.get("registers")
    if not isinstance(text, str) or not presets:
        return
    from ..hardware import load
    from ..units import parse_registers

    for chip in map(load, presets):
        room = chip.registers_per_sm_bytes
        if room is not None and parse_registers(text) > room:
            raise InputError("--registers", text, f"at most {room // 1024}KB, the registers of an SM of {chip.name}")


def names_of(hardware: str | None) -> list[str]:
    """The presets of `h100,h200`, each once."""
    return [] if hardware is None else list(dict.fromkeys(name.strip() for name in hardware.split(",")))


def several(text: str) -> bool:
    """Whether a text is an axis: a list or a range."""
    return "," in text or ":" in text


def memory(m: Size, m_elements: str | None = None, hardware: str | None = None) -> Size:
    """M from the one of three options that is given; None if none is. If --M is an axis, so is the result."""
    ways = {"--M": m, "--M-elements": m_elements, "--hardware": hardware}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InputError(given[0], f"{given[1]} as well", "one of --M, --M-elements, --hardware")
    if hardware is not None:
        from ..hardware import load

        return str(load(hardware).shared_memory_per_block_bytes)
    if m_elements is not None:
        from ..units import parse_axis, parse_count

        sizes = parse_axis(m_elements, "--M-elements", lambda text: parse_count(text, "--M-elements"))
        return ",".join(f"{size}el" for size in sizes)
    return m
