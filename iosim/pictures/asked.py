"""What each picture of a problem takes: the options that it needs, those that it leaves out, and where it takes several
values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..core.options import NUMBERS
from ..counting.given import Choice, Fields, Given, counts, memory, problem
from ..counting.sentence import joined
from ..counting.sweep_axes import AxisValue
from ..errors import InputError
from ..options import flag_of

if TYPE_CHECKING:
    from ..core.typing import Attention

SEVERAL = {"traffic": (*NUMBERS, "M", "hardware"), "time": ("N",), "predicted": ("N",)}
"""{picture: options with several values}. The other pictures take one value of each."""
NEEDED = {"mask": ("mask", "N")}  # the others need N and d
EXAMPLES = {"mask": "causal", "N": "8192", "d": "128", "hardware": "h100"}


@dataclass(frozen=True)
class Asked:
    """A picture of a problem that is asked for: `values` are axes and options by name, without M."""

    picture: str
    values: Mapping[str, AxisValue]
    choice: Choice

    @property
    def given(self) -> dict[str, AxisValue]:
        """All that is given, by the names of options."""
        return {**self.values, **self.choice._asdict()}

    @property
    def fields(self) -> Fields:
        """The values of the problem's options."""
        return counts(cast("Given", self.values))

    @property
    def problem(self) -> Attention:
        """The problem."""
        return problem(cast("Given", self.values))

    @property
    def multiple(self) -> int:
        """The number that the sizes of `best` tiles are multiples of."""
        return self.choice.under({}).multiple

    @property
    def memory(self) -> str | None:
        """The one SRAM, as text; None if it was not given."""
        return memory(self.choice.M, self.choice.hardware)


def check_asked(asked: Asked) -> None:
    """Raise InputError for an option that a picture needs and does not have, for one that it does not take, and for
    several values where it takes one."""
    picture, given = asked.picture, asked.given
    check_needed(picture, given)
    if picture == "gap":
        for name in ("M", "hardware", "tiles"):
            if given.get(name) is not None:
                allowed = f"no --{name} with --picture gap, which goes over every M with the best tiles"
                ranged = "; --picture traffic takes a range, as --M 16KB:1MB:x2" * (name == "M")
                raise InputError(f"--{name}", str(given[name]), allowed, "leave it out" + ranged)
    for name in (*NUMBERS, "M", "hardware"):
        if name not in SEVERAL.get(picture, ()) and is_axis(given.get(name)):
            raise InputError(flag_of(name), str(given[name]), *one_value(picture, name, given[name]))


def unused(picture: str, given: Mapping[str, object]) -> list[str]:
    """The options that are given and have no part in a picture: the mask's shows only tokens and tiles."""
    if picture != "mask":
        return []
    names = {"M": "--M", "schedules": "--schedule", "hardware": "--hardware"}
    return [option for name, option in names.items() if given.get(name)]


def check_needed(picture: str, given: Mapping[str, AxisValue]) -> None:
    """Raise InputError that names the options that a picture needs and does not have."""
    needed = (*NEEDED.get(picture, ("N", "d")), *["hardware"] * (picture in ("roofline", "time", "predicted")))
    absent = [name for name in needed if given.get(name) is None]
    if absent:
        where = ", ".join(flag_of(name) for name in absent)
        example = " ".join(f"{flag_of(name)} {EXAMPLES[name]}" for name in absent)
        raise InputError(where, "nothing", f"a value for --picture {picture}, as {example}")


def one_value(picture: str, name: str, value: AxisValue) -> tuple[str, str]:
    """What is allowed for an option of which a picture takes one value, and the pictures that take several."""
    option = flag_of(name)
    others = [f"--picture {other}" for other, names in SEVERAL.items() if name in names]
    more = f"{joined(others)} take{'s' * (len(others) == 1)} several"
    return f"one value with --picture {picture}, as {option} {first_of(value)}", more


def is_axis(value: AxisValue) -> bool:
    """Whether a value is a list or a range."""
    return not isinstance(value, int) and any(mark in str(value) for mark in ",:")


def first_of(value: AxisValue) -> str:
    """The first value of an axis, as text."""
    return re.split("[,:]", str(value).strip("[]() "))[0].strip("'\" ")
