"""`roofline --claim` for layers with a state: docs/state.md's claim, and what would make it true."""

import pytest

import iosim
from iosim.errors import InputError

STEP = {"rule": "gdn", "d": 128, "heads": 8, "batch": 1024, "hardware": "h200"}


def test_a_step_that_reads_and_writes_fp32_states_takes_longer():
    """1.07 GB of states in 215 us would be 4.99 TB/s, above the 4.8 TB/s of an H200."""
    found = iosim.roofline(4096, decode=True, claim="215us", **STEP).claim
    assert not found.possible and found.binds == "memory"
    states = 2 * 1024 * 8 * 128 * 128 * 4
    assert states == 1_073_741_824 and 4.99e12 < states / 215e-6 < 5.0e12
    own = 1024 * 8 * (2 * 256 + 256 + 4 + 2 + 256)
    assert found.work == {"memory": states + own} and found.least == (states + own) / 4.8e12
    ways = [
        "states in 16 bit (at least",
        "a ring of 16 rows, mean step (at least",
        "states that are read and not written",
    ]
    assert all(any(one.startswith(way) for one in found.meanings) for way in ways)


def test_what_is_possible():
    assert iosim.roofline(4096, decode=True, claim="230us", **STEP).claim.possible
    sixteen = {**STEP, "state_dtype": "bf16"}
    assert iosim.roofline(4096, decode=True, claim="215us", **sixteen).claim.possible
    unwritten = iosim.roofline(1, initial_state=True, claim="215us", **STEP).claim
    assert unwritten.possible
    faster = iosim.roofline(4096, decode=True, claim="100us", **STEP).claim
    assert not faster.possible and not any(one.startswith(("a ring", "states")) for one in faster.meanings)
    with pytest.raises(InputError, match="FLOPs depend on chunks"):
        iosim.roofline(4096, claim="3TFLOP/s", **STEP)
