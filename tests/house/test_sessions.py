"""The console blocks of README, docs/ and validation/sources show what their commands print today."""

import re
import shlex

import pytest
from paths import DOCS, ROOT, VALIDATION
from sessions import sessions

OF_THEIR_OWN = ("batch.md", "explain.md")  # with files that the page shows, or Triton's registers: tests/<wing>
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((VALIDATION / "sources").glob("*.md"))]
SHOWN = [
    pytest.param(
        *session,
        id=f"{page.stem}: {session[0][:50]}",
        marks=pytest.mark.needs("triton") if session[0].startswith("explain") else (),
    )
    for page in PAGES
    if page.name not in OF_THEIR_OWN
    for session in sessions(page.read_text())
]


def in_order(shown, printed):
    """Whether all shown lines are printed, in this order. Three dots stand for lines that are left out."""
    rest = "\n" + printed
    for number, part in enumerate(re.split(r"^\.\.\.\n", shown, flags=re.M)):
        place = rest.find("\n" + part)
        if place < 0 or (number == 0 and part and place > 0):
            return False
        rest = "\n" + rest[place + 1 + len(part) :] if part else rest
    return shown.endswith("...\n") or not rest.strip("\n")


@pytest.mark.parametrize("command, shown", SHOWN)
def test_what_is_shown_is_printed(command, shown, iosim, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert in_order(shown, iosim(*shlex.split(command)).stdout)


def test_pages_show_sessions():
    assert len(SHOWN) > 40 and all(sessions(page.read_text()) for page in (DOCS / "schedules").glob("*.md"))


def test_lines_that_are_not_printed_are_found():
    printed = "a\nb\nc\nd\n"
    assert all(in_order(shown, printed) for shown in (printed, "a\n...\nc\nd\n", "...\nb\n...\nd\n", "...\nc\n...\n"))
    assert not any(
        in_order(shown, printed)
        for shown in ("a\n", "b\nc\nd\n", "a\nc\nd\n", "...\nc\n...\nb\n...\n", "...\nx\n...\n")
    )
