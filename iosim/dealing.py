"""When the last block of a launch ends: blocks are dealt in grid order to the places that are free.

The blocks of a multiprocessor share its units, so each goes on the faster the fewer there are: the long row of a mask
that is left alone at the end takes less than it would have among others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain, islice, repeat

Running = list[tuple[float, int]]  # of each block on a multiprocessor: what share of it is left, and its kind
Seconds = Callable[[int, int], float]  # of a block of a kind, while so many are on its multiprocessor


def last_end(kinds: Sequence[int], instances: int, sms: int, places: int, seconds: Seconds) -> float:
    """Seconds from the start. `kinds`: of the blocks of one head, in grid order; `places`: of each multiprocessor.
    Where all are of one kind, those of the last wave fill the multiprocessors that end first: the blocks of one end
    together."""
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
    """The others, when it has ended."""
    rest = [left - passed / seconds(kind, len(blocks)) for left, kind in blocks]
    ended = min(range(len(blocks)), key=lambda n: rest[n] * seconds(blocks[n][1], len(blocks)))
    return [(max(left, 0.0), kind) for n, (left, (_, kind)) in enumerate(zip(rest, blocks, strict=True)) if n != ended]
