"""The end of a launch's last block, if blocks start in grid order wherever a place is free.

The blocks on a multiprocessor share its units: the fewer they are, the faster is each. So a long block that is alone on
its multiprocessor at the end takes less time than it would among others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain, islice, repeat

Running = list[tuple[float, int]]
"""The blocks on a multiprocessor: (the share of its work that is left, its kind)."""
Seconds = Callable[[int, int], float]
"""The time of a whole block, by its kind and the number of blocks on its multiprocessor."""


def last_end(kinds: Sequence[int], instances: int, sms: int, places: int, seconds: Seconds) -> float:
    """Seconds from the start of a launch to the end of its last block.

    `kinds` are those of the blocks of one head, in grid order; blocks of a kind do the same work. `places`: the most
    blocks on one multiprocessor. If all blocks are of one kind, those of a wave end together, and each wave takes as
    long as a full one, the last wave too.
    """
    if not kinds:
        return 0.0
    if len(set(kinds)) == 1:
        return -(-len(kinds) * instances // (sms * places)) * seconds(kinds[0], places)
    waiting = chain.from_iterable(repeat(kinds, instances))
    running: list[Running] = [[] for _ in range(sms)]
    for number, kind in enumerate(islice(waiting, sms * places)):
        running[number % sms].append((1.0, kind))
    clocks = [0.0] * sms
    ends = [(first_end(blocks, seconds), sm) for sm, blocks in enumerate(running) if blocks]
    heapq.heapify(ends)
    now = 0.0
    while ends:
        now, sm = heapq.heappop(ends)
        running[sm] = [*after_first(running[sm], now - clocks[sm], seconds), *((1.0, k) for k in islice(waiting, 1))]
        clocks[sm] = now
        if running[sm]:
            heapq.heappush(ends, (now + first_end(running[sm], seconds), sm))
    return now


def first_end(blocks: Running, seconds: Seconds) -> float:
    """Seconds until the first of the blocks on a multiprocessor ends."""
    return min(left * seconds(kind, len(blocks)) for left, kind in blocks)


def after_first(blocks: Running, passed: float, seconds: Seconds) -> Running:
    """The blocks left on a multiprocessor when the first has ended, `passed` seconds later."""
    rest = [left - passed / seconds(kind, len(blocks)) for left, kind in blocks]
    ended = min(range(len(blocks)), key=lambda n: rest[n] * seconds(blocks[n][1], len(blocks)))
    return [(max(left, 0.0), kind) for n, (left, (_, kind)) in enumerate(zip(rest, blocks, strict=True)) if n != ended]
