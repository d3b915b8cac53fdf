"""The ratio of a kernel's words to the floor: an atomic counts once, neither as a read nor as a write."""

from types import SimpleNamespace

import pytest

from iosim import Attention, floor
from iosim.kernels.explain import Explained


@pytest.mark.parametrize("atomics", [0, 500])
def test_an_atomic_counts_once(atomics):
    ways = {
        "Q": {name: SimpleNamespace(words=n, bytes=2 * n) for name, n in (("reads", 4000), ("writes", 0), ("atomics", 0))},
        "O": {name: SimpleNamespace(words=n, bytes=2 * n) for name, n in (("reads", 0), ("writes", 700), ("atomics", atomics))},
    }  # fmt: skip
    least = floor(Attention(64, 8), "1KB")
    found = Explained("f", (1, 1, 1), "sm_90", "3", 4, 2, {}, ways, 0, floor=least)
    assert found._floor_row()["ratio"] == (4700 + atomics) / least.words
    assert f"this is {(4700 + atomics) / least.words:.3g} times that." in found.sentence
