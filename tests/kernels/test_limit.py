"""The limit of time for a script, and the time that it does not count."""

import time

import pytest

from iosim.kernels.read.faults import Overtime, limited, paused


def test_paused_time_is_not_counted():
    """The limit goes on after it with what was left."""
    with pytest.raises(Overtime), limited(0.3):
        with paused():
            time.sleep(0.5)
        begun = time.monotonic()
        while time.monotonic() < begun + 5:
            time.sleep(0.01)
        raise AssertionError("no limit any more")


def test_without_a_limit_nothing_ends():
    with limited(None), paused():
        time.sleep(0.01)
