"""The kinds of pictures of a problem: how each is drawn, and what it takes. Wings name theirs in their manifests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.options import NUMBERS
from ..counting.given import Choice, Fields, Given, counts, memory, problem
from ..counting.sentence import joined
from ..counting.sweep_axes import AxisValue
from ..errors import InputError, suggestion
from ..options import flag_of
from ..wings import found_in, rows

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .picture import Picture

USUAL = "traffic"
GONE = {
    "timeline": "ui.perfetto.dev shows the file of iosim trace -o trace.json as a timeline",
    "footprint": "iosim report has the blocks in SRAM at its fullest",
}
"""What to do instead of pictures of earlier versions."""
FLAGS = {"schedules": "--schedule"}
EXAMPLES = {"mask": "causal", "N": "8192", "d": "128", "hardware": "h100"}


@dataclass(frozen=True)
class Asked:
    """A picture of a problem that is asked for: `values` are axes and options by name, without M."""

    picture: str
    values: Mapping[str, AxisValue]
    choice: Choice
    ranks: AxisValue = None
    """Numbers of GPUs."""

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


class PictureKind(NamedTuple):
    """A kind of picture. The options of `several` may be axes; of all others it takes one value."""

    draw: Callable[[Asked], Picture]
    needs: tuple[str, ...] = ("N", "d")
    several: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    """Options that contradict it."""
    ignores: tuple[str, ...] = ()
    """Options that change nothing in it."""
    text: bool = False
    """Whether it is text without a file."""

    def check(self, asked: Asked) -> None:
        """Raise InputError for an option that is needed and absent, for one that is refused, and for several values
        where one is taken."""
        given = asked.given
        check_needed(asked.picture, self.needs, given)
        for name in (name for name in self.refuses if given.get(name) is not None):
            allowed = f"no --{name} with --picture {asked.picture}, which goes over every M with the best tiles"
            ranged = "; --picture traffic takes a range, as --M 16KB:1MB:x2" * (name == "M")
            raise InputError(f"--{name}", str(given[name]), allowed, "leave it out" + ranged)
        for name in (*NUMBERS, "M", "hardware"):
            if name not in (*self.several, *self.ignores) and is_axis(given.get(name)):
                raise InputError(flag_of(name), str(given[name]), *one_value(asked.picture, name, given[name]))

    def unused(self, given: Mapping[str, object]) -> list[str]:
        """The options that are given and change nothing."""
        return [FLAGS.get(name) or flag_of(name) for name in self.ignores if given.get(name)]


@cache
def places() -> dict[str, tuple[str, str]]:
    """{kind of picture: (the package, the place in it)}, of all wings that are there. The usual one is first."""
    found: dict[str, tuple[str, str]] = {}
    for package, word, place in rows(lambda wing: wing.pictures):
        found.setdefault(word, (package, place))
    return {word: found[word] for word in sorted(found, key=lambda word: word != USUAL)}


def kind_of(picture: str) -> PictureKind:
    """The kind of a picture. Raises InputError for a word that is none."""
    if picture not in places():
        raise InputError("--picture", picture, ", ".join(places()), GONE.get(picture) or suggestion(picture, places()))
    return cast("PictureKind", found_in(*places()[picture]))


def check_needed(picture: str, needs: Sequence[str], given: Mapping[str, AxisValue]) -> None:
    """Raise InputError that names the options that a picture needs and does not have."""
    absent = [name for name in needs if given.get(name) is None]
    if absent:
        where = ", ".join(flag_of(name) for name in absent)
        example = " ".join(f"{flag_of(name)} {EXAMPLES[name]}" for name in absent)
        raise InputError(where, "nothing", f"a value for --picture {picture}, as {example}")


def one_value(picture: str, name: str, value: AxisValue) -> tuple[str, str]:
    """What is allowed for an option of which a picture takes one value, and the pictures that take several."""
    option = flag_of(name)
    others = [f"--picture {other}" for other in places() if name in kind_of(other).several]
    more = f"{joined(others)} take{'s' * (len(others) == 1)} several"
    return f"one value with --picture {picture}, as {option} {first_of(value)}", more


def is_axis(value: AxisValue) -> bool:
    """Whether a value is a list or a range."""
    return not isinstance(value, int) and any(mark in str(value) for mark in ",:")


def first_of(value: AxisValue) -> str:
    """The first value of an axis, as text."""
    return re.split("[,:]", str(value).strip("[]() "))[0].strip("'\" ")
