"""Commands of earlier versions, and the line that asks the same today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Old(NamedTuple):
    """What stands in place of a command: `now` before the person's own options. The words that are no options get the
    option `argument` before them."""

    now: str
    argument: str = ""
    renamed: dict[str, str] = {}  # noqa: RUF012  # of options


OLD = {
    "crossover": Old("tune --curve"),
    "training": Old("count --pass step"),
    "gather": Old("sweep --gather"),
    "mask": Old("plot --picture mask", argument="--mask"),
    "check": Old("verify"),
    "play": Old("report --open"),
}


def said_now(command: str, args: Sequence[str]) -> str:
    """The line of today that asks what `iosim COMMAND ARGS` asked, for a command of OLD."""
    import shlex

    old, line, value = OLD[command], list[str](), False
    for text in args:
        option = text.startswith("-") and text != "-"
        if not option and not value and old.argument:
            line.append(old.argument)
        name, equals, given = text.partition("=")
        line.append(old.renamed.get(name, name) + equals + given if option else text)
        value = option and not equals
    return f"iosim {old.now} {shlex.join(line)}".strip()
