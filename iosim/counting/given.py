"""Reads the options of a command line, as numbers, names and a problem. It does not use click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..core.options import find_option
from ..errors import InputError
from ..options import FLAG, MASK
from .conditions import Conditions, Fields, check_registers, conditions, names_of

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import Rule

Given = Mapping[str, str | bool | None]  # options by name; None where an option was left out


def counts(given: Given, required: tuple[str, ...] = ("N", "d")) -> Fields:
    """The values of a problem's options. Options that were not given are left out."""
    for name in required:
        if given.get(name) is None:
            raise InputError(f"--{name}", "nothing", "a whole number from 1", f"give --{name}")
    return {name: value_of(name, text) for name, text in given.items() if text is not None}


def value_of(name: str, text: str | int) -> object:
    """The value of a problem's option, by its row. Raises InputError if it is not allowed."""
    from ..masks import parse_mask

    option = find_option(name)
    if option is None or option.kind is FLAG:
        return text
    return parse_mask(str(text)) if option.kind is MASK else option.read(text)


def problem(given: Given, required: tuple[str, ...] = ("N", "d"), **defaults: object) -> Attention:
    """The problem that the options give. `defaults` are options of `Attention` that were not given."""
    from ..core.problem import Attention

    return Attention(**{**defaults, **counts(given, required)})


Size = TypeVar("Size", str | None, str | int | None)


class Choice(NamedTuple):
    """What is counted of a problem, as a command line gives it: the SRAM, the schedules and their tiles."""

    M: str | None = None
    hardware: str | None = None
    schedules: tuple[str, ...] = ()
    tiles: str | None = None
    tile_multiple: str | int | None = None
    paper_model: bool = False

    def under(self, options: Mapping[str, object]) -> Conditions:
        """The conditions of a problem with these options."""
        return conditions(self.hardware, options, self.tile_multiple, self.paper_model, self.tiles)

    @property
    def rule(self) -> Rule | None:
        """The tiles; None for the rules of each schedule."""
        from ..core.tiling import read_tiles

        return read_tiles(self.tiles)


class Place(NamedTuple):
    """One SRAM of a question. `label` tells it from the others. `M` is its size, as a string or in bytes, and
    `hardware` the GPU that has it."""

    label: dict[str, object]
    M: str | int | None
    hardware: str | None = None

    @property
    def fields(self) -> Fields:
        """What a function is given: the SRAM, or the GPU whose SRAM it is."""
        return {"M": self.M} if self.hardware is None else {"hardware": self.hardware}


class Asked(NamedTuple):
    """What a command line asks: a problem, as texts, and what is counted of it."""

    given: Given
    choice: Choice

    @property
    def fields(self) -> Fields:
        """The values of the problem's options."""
        return counts(self.given)

    @property
    def under(self) -> Conditions:
        """The conditions of the question."""
        return self.choice.under(self.fields)

    @property
    def problem(self) -> Attention:
        """The problem, under the conditions of the question."""
        from ..core.problem import Attention

        return Attention(**self.under.options)

    @property
    def places(self) -> list[Place]:
        """The SRAMs; one without a size if none was given."""
        return memories(self.given, self.choice.M, self.choice.hardware)

    def at(self, place: Place) -> Fields:
        """What is counted of the problem in one SRAM: the arguments of a function."""
        return self.choice._replace(M=None, hardware=None)._asdict() | place.fields

    @property
    def memory(self) -> str | None:
        """The one SRAM, as text; None if it was not given."""
        return memory(self.choice.M, self.choice.hardware)

    @property
    def M_bytes(self) -> int | None:
        """The one SRAM in bytes; None if it was not given."""
        from ..units import parse_bytes

        return None if self.memory is None else parse_bytes(self.memory, self.problem.word_bytes)


def memories(given: Given, M: str | None, hardware: str | None) -> list[Place]:
    """The SRAMs of `--M 16KB:64KB:x2` or `--hardware h100,h200`. A single one has no label. If no option is given, it
    is one SRAM without a size."""
    from ..units import dtype_bytes, parse_axis, parse_bytes

    names = names_of(hardware)
    check_registers(given.get("register_bytes"), names)
    if len(names) > 1:
        return [Place({"hardware": name}, memory(M, name), name) for name in names]
    size = memory(M, hardware)
    if size is None or M is None:
        return [Place({}, size, hardware)]
    word = dtype_bytes(str(given.get("dtype") or "fp16"))
    sizes = parse_axis(size, "--M", lambda text: parse_bytes(text, word))
    return [Place({"M_bytes": size} if len(sizes) > 1 else {}, size) for size in sizes]


def several(text: str) -> bool:
    """Whether a text is an axis: a list or a range."""
    return "," in text or ":" in text


def head_dimension(d: int | None) -> int:
    """d. Raises InputError where it is not given, also by a model's file."""
    if d is None:
        raise InputError("--d", "nothing", "a whole number from 1", "give --d, or --model with a config.json")
    return d


def without_memory() -> InputError:
    """The fault of a question that has neither M nor tiles."""
    hint = "or --hardware h100, or --tiles 128x64 without M; in Python hardware='h100', or tiles='128x64'"
    return InputError("--M", "nothing", "a size as in 100KB", hint)


def memory(M: Size, hardware: str | None = None) -> Size:
    """M from the one of two options that is given; None if none is. If --M is an axis, so is the result."""
    if hardware is None:
        return M
    if M is not None:
        raise InputError("--M", "--hardware as well", "one of --M, --hardware")
    from ..hardware import load

    return str(load(hardware).sram_bytes)
