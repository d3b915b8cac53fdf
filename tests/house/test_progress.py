"""Progress is written to a terminal only, after a second, for the command line, and is gone at the end."""

import io
import re
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from paths import DATA

from iosim import progress

FIVE_SECONDS = progress.QUIET_SECONDS_OF_LINES  # before any test


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
    monkeypatch.setenv("TERM", "xterm")
    return streams


ERASED = "\n\x1b[?25h\r\x1b[1A\x1b[2K"  # the cursor is shown again, and the line is blank


def lines_of(text):
    """The texts that a line of a terminal shows, one after the other, without bars and colours."""
    assert text.endswith(ERASED)
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text.removesuffix(ERASED))
    return [line.strip("━╸╺ ") for line in plain.split("\r")[1:]]


def test_a_line_after_a_second(clock):
    assert list(progress.watched("abcdefgh", "tiles", 8)) == list("abcdefgh")
    lines = lines_of(clock.stderr.getvalue())
    assert lines[0] == "tiles: 3 of 8" and len(lines) > 2 and "━" in clock.stderr.getvalue()


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
    assert lines_of(clock.stderr.getvalue()) and not progress.State.busy


@pytest.mark.parametrize("wanted, stream", [(False, Terminal), (True, io.StringIO)])
def test_no_line_for_scripts_and_files(clock, monkeypatch, wanted, stream):
    monkeypatch.setattr(progress.State, "wanted", wanted)
    clock.stderr = stream()
    assert list(progress.watched(range(20), "tiles", 20)) == list(range(20)) and clock.stderr.getvalue() == ""


def test_lines_now_and_then_for_files(clock, monkeypatch):
    """The first comes after five seconds, and each other one 30 seconds after the last. A look at the clock takes 0.3 s."""
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", FIVE_SECONDS)
    clock.stderr = io.StringIO()
    with progress.under_way() as tell:
        for number in range(301):
            tell(f"at {number}")
    lines = clock.stderr.getvalue().splitlines()
    assert lines[:2] == ["at 16", "at 116"] and 3 <= len(lines) <= 4 and clock.stderr.getvalue().endswith("\n")


def test_a_terminal_has_one_line_for_work_under_way(clock):
    with progress.under_way() as tell:
        for number in range(9):
            tell(f"at {number}")
        assert list(progress.watched("abcdefgh", "tiles", 8)) == list("abcdefgh"), "which shows nothing meanwhile"
    lines = lines_of(clock.stderr.getvalue())
    assert lines[0] == "at 3" and len(lines) > 2 and "tiles" not in "".join(lines)
    assert not progress.State.busy
    with progress.under_way(quiet=True) as tell:
        tell("nothing")
    assert "nothing" not in clock.stderr.getvalue()


def test_work_beside_a_script_has_whole_lines(clock, monkeypatch):
    """What the script writes to the terminal would stand behind a text that is erased later."""
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", FIVE_SECONDS)
    with progress.under_way(erases=False) as tell:
        for _ in range(30):
            tell("explaining the launches of bench.py")
    assert clock.stderr.getvalue() == "explaining the launches of bench.py\n"


def test_the_text_is_shown_after_a_second_even_if_no_other_comes(monkeypatch):
    """A first step of a minute is named while it runs."""
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", 0.05)
    streams = SimpleNamespace(stderr=io.StringIO())
    monkeypatch.setattr(progress, "sys", streams)
    with progress.under_way() as tell:
        tell("the only step")
        deadline = time.monotonic() + 10
        while not streams.stderr.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert streams.stderr.getvalue() == "the only step\n"
    streams.stderr = io.StringIO()
    with progress.under_way() as tell:
        tell("soon done")
    time.sleep(0.1)
    assert streams.stderr.getvalue() == "", "nothing after the end"


@pytest.mark.parametrize("line", [
    ("verify", "--cpu", "--N", 32, "--d", 8),
])  # fmt: skip
def test_long_work_tells_its_progress_through_a_pipe(line, iosim, monkeypatch):
    """A line for each schedule that is checked."""
    assert iosim(*line).stderr.count("\n") <= 1
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", 0.0)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    said = iosim(*line).stderr.splitlines()
    assert said == [f"checking {name}" for name in ("standard", "standard-tiled", "flash1", "flash2")]


@pytest.mark.parametrize("line, said", [
    (("verify", "--N", 256, "--d", 64, "--tiles", "64x64", "--heads", 2, "--dtype", "fp32", "--schedule", "flash1,flash2",
      "--from-ncu", DATA / "ncu_generated.csv"), "run 2 of 2: flash2"),
    (("profile", "--from-ncu", DATA / "ncu_flash.csv", "--N", 4096, "--d", 64, "--heads", 32), "reading the profile"),
])  # fmt: skip
def test_a_kept_profile_is_read_with_progress(line, said, iosim, monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", 0.0)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert said in iosim(*line).stderr


def counted(quiet=False):
    """The meter of 400 points, of which an earlier run made 100."""
    with closing(progress.Meter(400, quiet, "points")) as meter:
        meter.skip(100)
        for _ in range(300):
            meter.advance(1)


def test_a_sweep_says_its_rate_and_the_time_left(clock):
    counted()
    assert lines_of(clock.stderr.getvalue())[0] == "101 of 400 points, 1.1 points/s, 4 min 29 s left"
    clock.stderr = io.StringIO()
    counted(quiet=True)
    assert clock.stderr.getvalue() == ""
    counted()
    first, *others = clock.stderr.getvalue().splitlines()
    assert re.fullmatch(r"1(49|50) of 400 points, 1.6 points/s, 2 min 3\d s left", first), "after half a minute"
    assert len(others) == 5, "and each half minute"


def test_a_terminal_that_cannot_erase_gets_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    counted()
    assert "\x1b" not in clock.stderr.getvalue() and clock.stderr.getvalue().count("\n") == 6
