"""What a copy of the project lacks after wings were deleted (tests/house/test_deletable.py), so that tests do not ask it."""

import re
from functools import cache
from itertools import pairwise

import pytest
from paths import ROOT

from iosim.commands.listed import all_commands
from iosim.commands.old_words import OLD
from iosim.points import names
from iosim.wings import rows


@cache
def gone():
    """Folders that the table of sizes in CONTRIBUTING names, and that are not there. tests/house/test_budgets.py looks at
    the table, and with all wings there are none."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("\n## How large it may be\n")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)`", "\n".join(line for line in table.splitlines() if line.startswith("|")))
    return [folder for folder in named if not (ROOT / folder).is_dir() and not (ROOT / "iosim" / folder).is_dir()]


def skip_if_gone(line):
    """Skip a test whose command line asks for a command, a point of a sweep or a picture that went with a wing."""
    if not gone():
        return
    words = ["", *map(str, line)]
    commands = [word for before, word in pairwise(words) if not word.startswith("-") and not before.startswith("-")]
    values = {"--what": names(), "--picture": [word for _, word, _ in rows(lambda wing: wing.pictures)]}
    unknown = [word for option, word in pairwise(words) if word not in values.get(option, [word])]
    if unknown or not {*commands[:1]} <= {*all_commands(), *OLD, "help"}:
        pytest.skip(f"what it asks went with {', '.join(gone())}")
