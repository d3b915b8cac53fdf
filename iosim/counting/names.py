"""The names of keywords in Python: `causal=True` is short for a mask, and names of other programs get a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from ..core.options import OF_EVERY_PROBLEM, find_option, option_names
from ..core.problem import USUAL
from ..errors import InputError, did_you_mean, suggestion

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

FUNCTIONS = {"by": "iosim.fastest", "curve": "iosim.curve", **dict.fromkeys(("at_most", "x_floor"), "iosim.least_M")}
"""{option of `iosim tune`: its function}, for those that are no keywords of `iosim.tune`."""


def takes_causal(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """A function that takes `mask` and takes `causal=True` as well, for `mask="causal"`. It raises InputError beside
    another mask, and for a keyword that is the name of an option in other programs."""

    @wraps(function)
    def named(*values: Parameters.args, **given: Parameters.kwargs) -> Answer:
        if given.pop("causal", False):
            if str(given.get("mask", "causal")) != "causal":
                hint = "join them as mask='causal&...'"
                raise InputError("causal=True", f"mask={str(given['mask'])!r} as well", "one of the two", hint)
            given["mask"] = "causal"
        where = f"{function.__name__}: keyword"
        for name in given:
            if meant := meant_by(name):
                raise InputError(where, name, "the names of iosim's options", did_you_mean([meant]))
        return function(*values, **given)

    return named


def check_names(where: str, given: Iterable[str], others: tuple[str, ...]) -> None:
    """Raise InputError for a keyword that is neither an option of a problem nor one of the function's other
    keywords."""
    for name in given:
        if name not in others and name not in USUAL and find_option(name) is None:
            causal = ["causal"] * ("mask" in others)
            known = list(dict.fromkeys([*others, *causal, *USUAL, *option_names()]))
            meant = meant_by(name) or FUNCTIONS.get(name)
            hint = did_you_mean([meant]) if meant else suggestion(name, known)
            raise InputError(f"{where}: keyword", name, ", ".join(known), hint)


def meant_by(name: str) -> str | None:
    """The option that other programs call so, as `N` for `seq_len`; None if there is none."""
    return None if name in OF_EVERY_PROBLEM else names_elsewhere().get(letters(name))


@cache
def names_elsewhere() -> dict[str, str]:
    """{name in other programs: name of the option}, for the options of every problem."""
    return {letters(name): option.name for option in OF_EVERY_PROBLEM.values() for name in option.also}


def letters(name: str) -> str:
    """The letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))
