"""Commands and functions of earlier versions, and what asks the same today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Old(NamedTuple):
    """What stands in place of a command: `now` before the person's own options, or what `with_option` says for one that
    was given. Words that are no options get the option `argument` before them."""

    now: str
    argument: str = ""
    with_option: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}
    usual: str = ""
    """What the command asked about by itself, said where the person named no schedule."""
    python: str = ""
    """What asks the same as a function, after `iosim.`."""


OVER_N = "tune --over N"
OLD = {
    "crossover": Old(
        "tune --curve",
        with_option={"--M": OVER_N, "--hardware": OVER_N},
        renamed={"--detail": "--all"},
        usual="--schedule standard,flash1,flash2",
        python="curve or iosim.over_N",
    ),
    "training": Old("count --pass step", python="count(passes='step')"),
    "gather": Old("sweep --gather"),
    "mask": Old("plot --picture mask", argument="--mask", python="plot(picture='mask')"),
    "check": Old("verify --cpu", python="verify(cpu=True)"),
    "play": Old("report --open", python="report"),
}
GONE = {"calibrate": "times are bounds now, of data-sheet rates (iosim roofline, iosim verify)"}
"""Commands that nothing asks for any more, with the reason."""


def said_now(command: str, args: Sequence[str]) -> str:
    """The line of today that asks what `iosim COMMAND ARGS` asked, for a command of OLD."""
    import shlex

    old, line, value = OLD[command], list[str](), False
    for text in args:
        name, equals, given = text.partition("=")
        option = text.startswith("-") and text != "-"
        if not option and not value and old.argument:
            line.append(old.argument)
        line.append(old.renamed.get(name, name) + equals + given if option else text)
        value = option and not equals
    flags = {text.partition("=")[0] for text in args}
    now = next((other for flag, other in old.with_option.items() if flag in flags), old.now)
    named = [] if "--schedule" in flags or not old.usual else [old.usual]
    return " ".join(["iosim", now, *filter(None, [shlex.join(line)]), *named])


def in_python(name: str) -> str:
    """What is said of a function of an earlier version; an empty text of every other name."""
    now = OLD[name].python if name in OLD else ""
    return f"iosim.{name} is now iosim.{now}" if now else ""
