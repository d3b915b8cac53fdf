"""Lines of questions, kept beside the tests of each room: `tests/<room>/questions.txt`.

Tests of every form of an answer read them, and docs/schema.json is made of them. Below the line `others` are lines that
the schema was not made of.
"""

import shlex
from functools import cache

from paths import TESTS

from iosim.files import forms_of

KINDS = ("--curve", "--over", "--at-most", "--x-floor", "--cpu", "--pass")
"""Options of `count`, `tune` and `verify` with answers of another shape."""


@cache
def questions():
    """{question: (its lines, other lines)}: a question is a command, or one with an option of KINDS after it."""
    found = {}
    for file in sorted(TESTS.glob("*/questions.txt")):
        made, _, others = file.read_text().partition("\nothers\n")
        for place, lines in enumerate((made, others)):
            for line in filter(None, lines.replace("{TESTS}", shlex.quote(str(TESTS))).splitlines()):
                name, rest = of_line(line)
                found.setdefault(name, ([], []))[place].append(rest)
    return found


def of_line(line):
    """(the question of a line, what comes after it)."""
    words = line.split(" ", 2)
    number = 2 if len(words) > 1 and words[1] in KINDS else 1
    return " ".join(words[:number]), " ".join(words[number:])


def has_rows(question):
    """Whether the command answers with rows alone, as `sweep` and `trace`; JSON lines have the keys of CSV."""
    return {"csv", "jsonl"} <= {*forms_of(question)}
