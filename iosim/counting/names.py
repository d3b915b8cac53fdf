"""The names of keywords in Python: `causal=True` is short for a mask, and names of other programs get a hint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar
from warnings import warn

from ..core.options import OF_EVERY_PROBLEM, find_option, option_names
from ..core.problem import USUAL
from ..errors import InputError, did_you_mean, suggestion
from ..units import parse_registers

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

FUNCTIONS = {
    "curve": "iosim.curve",
    "over": "iosim.over_N",
    "decode": "iosim.ring",
    **dict.fromkeys(("at_most", "x_floor"), "iosim.least_M"),
}
"""{option of `iosim tune`: its function}, for those that are no keywords of `iosim.tune`."""


def takes_options(
    *others: str, reads: Collection[str] = ()
) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """A decorator for functions that take options of a problem as keywords.

    They raise InputError for a keyword that is neither such an option, nor a parameter of theirs, nor one of `others`,
    and for an option that is none of those that they read, if `reads` names these.
    They take the names of the command line too: `causal=True` for `mask="causal"`, `schedule` for `schedules`, and
    `registers="64K"` for the same in bytes. They raise InputError if both names are given.
    """

    def named(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        own = [name for name, one in signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
        known = (*others, *own)

        @wraps(function)
        def checked(*values: Parameters.args, **given: Parameters.kwargs) -> Answer:
            if "model" in own and given.get("model") is not None:
                fill_in(given, known, [*own[: len(values)], *map(str, given)])
            in_full(given, own, several=bool(others))
            check_names(f"{function.__name__}: keyword", given, known)
            if reads:
                leave_out_unread(f"{function.__name__}: keyword", given, (*known, *reads))
            return function(*values, **given)

        return checked

    return named


def fill_in(given: dict[str, Any], known: Collection[str], named: Collection[str]) -> None:  # type: ignore[explicit-any]
    """Fill in the options that a model's file has, and warn of what they leave out. `known` are the parameters of the
    function, and `named` those that have a value."""
    from ..model_file import read_model

    file = given.pop("model")
    named = [name for name in named if given.get(name, name) not in (None, False)]
    model = read_model(str(file), named, {*known, *USUAL} - ({"mask"} - {*known}))
    if "mask" in model.options:
        given.pop("causal", None)  # the window is causal
    given.update(model.options)
    for text in model.left_out:
        warn(f"model {file}: {text}", stacklevel=3)


SHORT = {"schedule": "schedules", "registers": "register_bytes"}
"""{name on the command line: name in Python}."""


def in_full(given: dict[str, Any], own: Collection[str], several: bool) -> None:  # type: ignore[explicit-any]
    """Write the options that have the names of the command line under those of Python. `own` are the parameters of the
    function; `several` says that an option may be an axis."""
    if given.pop("causal", False):
        if str(given.get("mask", "causal")) != "causal":
            hint = "join them as mask='causal&...'"
            raise InputError("causal=True", f"mask={str(given['mask'])!r} as well", "one of the two", hint)
        given["mask"] = "causal"
    for short, full in SHORT.items():
        if short in given and short not in own and (full in own or full in USUAL):
            if full in given:
                raise InputError(short, f"{full} as well", "one of the two")
            given[full] = given.pop(short)
            if short == "registers":
                value = given[full]
                texts = [str(one) for one in value] if isinstance(value, list | tuple | range) else [str(value)]
                given[full] = ",".join(texts) if several else parse_registers(",".join(texts), "registers")


def check_names(where: str, given: Iterable[str], others: tuple[str, ...]) -> None:
    """Raise InputError for a keyword that is neither an option of a problem nor one of the function's other
    keywords."""
    for name in given:
        if meant := meant_by(name):
            raise InputError(where, name, "the names of iosim's options", did_you_mean([meant]))
    for name in given:
        if name not in others and name not in USUAL and find_option(name) is None:
            known = list(dict.fromkeys([*others, "causal", *SHORT, *USUAL, *option_names()]))
            meant = FUNCTIONS.get(name)
            raise InputError(where, name, ", ".join(known), did_you_mean([meant]) if meant else suggestion(name, known))


def leave_out_unread(where: str, given: dict[str, Any], reads: Collection[str]) -> None:  # type: ignore[explicit-any]
    """Take out the options that a function does not read. Raise InputError for one that is not at its default: the
    answer would be of another problem."""
    for name in [name for name in given if name not in reads]:
        option, value = find_option(name), given.pop(name)
        if option is not None and str(value) not in ("dense", "None", str(option.default)):
            raise InputError(where, f"{name}={value!r}", ", ".join(dict.fromkeys(reads)), "leave it out")


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
