"""Reuse distances of objects so large that their units come near the largest number."""

import numpy as np

from iosim.tracing.cache import beyond
from iosim.tracing.reuse_distance import UNREACHED, needs


def test_a_first_access_misses_at_any_capacity():
    """Two objects of 2^45 units: the third access hits from 2^46 units on, the first two never do."""
    found = needs(np.array([0, 1, 0]), np.array([2**45, 2**45]))
    assert found.tolist() == [UNREACHED, UNREACHED, 2**46]
    misses = beyond(found, np.ones(3, np.int64), np.array([2**46 - 1, 2**46, 2**60]))
    assert misses.tolist() == [3, 2, 2]
