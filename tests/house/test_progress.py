"""Progress is written to a terminal only, after a second, for the command line, and is gone at the end."""

import io
from types import SimpleNamespace

import pytest

from iosim import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A terminal, and a clock that goes on by 0.3 s whenever it is looked at."""
    now = iter(range(10**6))
    monkeypatch.setattr(progress, "monotonic", lambda: 0.3 * next(now))
    monkeypatch.setattr(progress.State, "wanted", True)
    streams = SimpleNamespace(stderr=Terminal())
    monkeypatch.setattr(progress, "sys", streams)
    return streams


def test_a_line_after_a_second(clock):
    assert list(progress.watched("abcdefgh", "tiles", 8)) == list("abcdefgh")
    *lines, blank, end = clock.stderr.getvalue().split("\r")[1:]
    assert lines[0] == "tiles: 3 of 8" and len(lines) > 2 and end == ""
    assert blank == " " * len(lines[0])


def test_nothing_within_a_second(clock):
    list(progress.watched("abc", "tiles", 3))
    assert clock.stderr.getvalue() == ""


def test_only_the_outer_of_nested_work_has_a_line(clock):
    for _ in progress.watched(range(9), "outer", 9):
        list(progress.watched(range(9), "inner", 9))
    assert "outer" in clock.stderr.getvalue() and "inner" not in clock.stderr.getvalue()


def test_a_line_is_gone_after_an_error(clock):
    def fails():
        yield from range(7)
        raise ValueError

    with pytest.raises(ValueError):
        list(progress.watched(fails(), "tiles", 9))
    assert clock.stderr.getvalue().endswith(" \r") and not progress.State.busy


@pytest.mark.parametrize("wanted, stream", [(False, Terminal), (True, io.StringIO)])
def test_no_line_for_scripts_and_files(clock, monkeypatch, wanted, stream):
    monkeypatch.setattr(progress.State, "wanted", wanted)
    clock.stderr = stream()
    assert list(progress.watched(range(20), "tiles", 20)) == list(range(20)) and clock.stderr.getvalue() == ""
