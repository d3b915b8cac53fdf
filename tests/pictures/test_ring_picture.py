"""The picture of a ring: its least step is the best ring of `tune --decode`, on the line of D2."""

import pytest

import iosim
from iosim.errors import InputError


def test_the_least_step_is_that_of_the_best_ring():
    found = iosim.plot(picture="ring", rule="gdn", d=128, state_dtype="fp32")
    ring, least = found.drawn.charts[0].lines
    assert min(zip(ring.y, ring.x, strict=True)) == (73472, 16) and {*least.y} == {73472}
    assert least.label == "D2: no scheme of a state and rows (k, u) moves less" and "<svg" in found.svg()
    several = iosim.plot(picture="ring", rule="gdn", d=128, state_dtype="fp32", N="64:512:x2")
    assert several.svg() == found.svg()  # N changes nothing
    with pytest.raises(InputError, match="--rule"):
        iosim.plot(picture="ring", d=128)
