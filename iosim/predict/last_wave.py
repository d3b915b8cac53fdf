"""When the last block of a launch ends, if blocks are dealt in grid order to free places.

The blocks of a multiprocessor share its units, so each is the faster the fewer they are. The long row of a mask, left
alone in the last wave, takes less time than it would have among others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain, islice, repeat

Running = list[tuple[float, int]]  # the blocks on a multiprocessor: what share of each is left, and its kind
Seconds = Callable[[int, int], float]  # of a block of a kind, while so many are on its multiprocessor


def last_end(kinds: Sequence[int], instances: int, sms: int, places: int, seconds: Seconds) -> float:
    """Seconds from the start of a launch to the end of its last block.

    `kinds` are those of the blocks of one head, in grid order; `places` are those of one multiprocessor. If all blocks
    are of one kind, the blocks of a wave end together, and the last wave takes as long as the others: its blocks go to
    the multiprocessors that are free first.
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
    """Seconds until the first of these blocks ends."""
    return min(left * seconds(kind, len(blocks)) for left, kind in blocks)


def after_first(blocks: Running, passed: float, seconds: Seconds) -> Running:
    """The blocks left on a multiprocessor when the first has ended, `passed` seconds later."""
    rest = [left - passed / seconds(kind, len(blocks)) for left, kind in blocks]
    ended = min(range(len(blocks)), key=lambda n: rest[n] * seconds(blocks[n][1], len(blocks)))
    return [(max(left, 0.0), kind) for n, (left, (_, kind)) in enumerate(zip(rest, blocks, strict=True)) if n != ended]
