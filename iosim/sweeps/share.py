"""Shares of a sweep: one of several runs into one folder, each of which makes its own parts."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..errors import InputError
from ..units import parse_count

ALLOWED = "a share as 7/100: the seventh of a hundred"


class Share(NamedTuple):
    """The `number`-th of so many shares, from 1 on. Parts are dealt out in turn, so that all take about as long."""

    number: int = 1
    of: int = 1

    def parts(self, total: int) -> range:
        """The numbers of its parts."""
        return range(self.number - 1, total, self.of)

    def named(self, name: str) -> str:
        """The name of its own file beside those of other shares: `_parts-7-of-100.jsonl` for `_parts.jsonl`."""
        base, ending = os.path.splitext(name)
        return name if self.of == 1 else f"{base}-{self.number}-of-{self.of}{ending}"


WHOLE = Share()
"""A run that makes all parts."""


def parse_share(text: str | None) -> Share:
    """The share that a text as 7/100 names; all parts for None. Raises InputError, which names --share."""
    if text is None:
        return WHOLE
    number, slash, of = text.partition("/")
    if not slash:
        raise InputError("--share", text, ALLOWED)
    share = Share(*(parse_count(part, "--share") for part in (number, of)))
    if share.number > share.of:
        raise InputError("--share", text, f"{ALLOWED}; here from 1/{share.of} to {share.of}/{share.of}")
    return share


def share_of(name: str, of_whole: str) -> Share | None:
    """The share whose file has this name; None if the name is not that of a share's file."""
    base, ending = map(re.escape, os.path.splitext(of_whole))
    found = re.fullmatch(rf"{base}-(\d+)-of-(\d+){ending}", name)
    return Share(*map(int, found.groups())) if found else None
