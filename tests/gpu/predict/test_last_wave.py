"""The end of the last block, when blocks start in grid order wherever a place is free: by hand."""

import pytest

from iosim.gpu.predict.last_wave import last_end

COSTS = (1.0, 2.0, 3.0)  # seconds of three kinds of block, alone


def apart(kind, together):
    """Nobody slows anybody."""
    return COSTS[kind]


def sharing(kind, together):
    """One unit, which all want all the time."""
    return COSTS[kind] * together


@pytest.mark.parametrize(
    "kinds, instances, sms, places, ends",
    [
        ([0], 5, 2, 1, 3.0),
        ([0] * 4, 2, 4, 2, 1.0),
        ([0] * 4, 2, 7, 1, 2.0),
        ([0, 1, 2], 1, 2, 1, 4.0),  # 1 s and 2 s start; the 3 s follow the 1 s
        ([2, 0], 2, 2, 1, 4.0),  # 3 | 1, then 3 after the 1; the last 1 after the first 3
        ([2, 0], 2, 1, 2, 4.0),  # the same on one multiprocessor with two places
        ([0, 1], 1, 8, 4, 2.0),  # more places than blocks
        ([], 3, 2, 1, 0.0),
    ],
)
def test_blocks_follow_each_other(kinds, instances, sms, places, ends):
    assert last_end(kinds, instances, sms, places, apart) == pytest.approx(ends)


@pytest.mark.parametrize(
    "kinds, instances, sms, places, ends",
    [
        ([0, 2], 1, 1, 2, 4.0),  # both at half speed until 2 s; of the long one 2 s are left, alone
        ([0, 1, 2], 1, 1, 3, 6.0),  # a unit that is never idle: the sum
        ([0, 1, 2], 1, 1, 2, 6.0),
        ([0, 1, 2], 3, 1, 2, 18.0),
        ([2, 0], 1, 2, 2, 3.0),  # one on each
        ([2, 0, 0, 0], 1, 2, 2, 4.0),  # 3 s and 1 s share one multiprocessor, two of 1 s the other
        ([0, 0, 0], 1, 1, 2, 4.0),  # one kind: two waves, the last as full as the first
    ],
)
def test_blocks_of_a_multiprocessor_share_it(kinds, instances, sms, places, ends):
    assert last_end(kinds, instances, sms, places, sharing) == pytest.approx(ends)


def test_a_long_block_that_is_left_alone_is_not_as_slow_as_among_others():
    """A row of a mask with a global tile: 3 s, and eleven of 1 s, four at a time. All share until the others have ended
    at 12.5 s or so, of which the long one has a part; the sum is 14 s, and nothing is idle."""
    kinds = [2] + [0] * 11
    assert last_end(kinds, 1, 1, 4, sharing) == pytest.approx(14.0)
    assert last_end(kinds, 1, 1, 4, lambda kind, together: 4 * COSTS[kind]) > 14.0, "if it always had three others"


def test_as_a_plain_simulation():
    """In small steps of time, with random blocks: what is left of each goes down by what passes over what it takes."""
    import random

    rng = random.Random(0)
    for _ in range(20):
        kinds, sms, places, instances = (
            rng.choices(range(3), k=rng.randint(2, 9)),
            rng.randint(1, 3),
            rng.randint(1, 3),
            2,
        )

        def seconds(kind, together):
            return COSTS[kind] * (0.5 + 0.5 * together)

        assert last_end(kinds, instances, sms, places, seconds) == pytest.approx(
            by_steps(kinds * instances, sms, places, seconds), rel=0.02
        )


def by_steps(blocks, sms, places, seconds, step=0.002):
    running = [[[1.0, kind] for kind in blocks[sm : sms * places : sms]] for sm in range(sms)]
    waiting, now = blocks[sms * places :], 0.0
    while any(running):
        now += step
        for own in running:
            for block in own:
                block[0] -= step / seconds(block[1], len(own))
            own[:] = [block for block in own if block[0] > 0]
        for own in running:
            while len(own) < places and waiting:
                own.append([1.0, waiting.pop(0)])
    return now
