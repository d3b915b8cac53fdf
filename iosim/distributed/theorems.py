"""The floors across devices as functions of integers: the words that p devices together receive from one another.

The proofs are in docs/distributed-proofs.md. alpha is the words of a row: of Q and O, in a
backward pass of Q, dO and dQ. beta is the words of a key: of K and V, in a backward pass of K, V, dK and dV. A problem
is one KV head of one sequence, and its rows are the queries of all heads of the group. All arithmetic is in Python
integers and fractions, and is rounded so that no floor is above what is proven. A floor is 0 where its condition does
not hold.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from math import ceil

from ..counting.forms import product_form
from ..counting.full_card import balanced_floor as balanced_floor
from ..counting.full_card import root_above as root_above


def segment_work(words: int, pi: int) -> Fraction:
    """g(X): the most work, in pairs, that can be done with X words. `pi` is alpha beta."""
    return max(Fraction(words * words, 4 * pi), Fraction(words))


def account(pairs: Fraction | int, memory: int, pi: int) -> int:
    """A(pairs, g): the least words for this much work, in a memory of `memory` words."""
    return product_form("P2", pairs, 4 * pi, 0).best(memory)[0]


def memory_floor(
    pairs: int, memory: int, pi: int, held: int, busy: int = 0, devices: int = 1, least: Fraction | int = 0
) -> int:
    """P2: the memory of each device holds `memory` words. Nothing is asked of balance or layout.

    `busy` devices are known to do more work than g(memory); 1 if all do together. `least` is the least work that each
    of `devices` is known to do. `held` is as in `balanced_floor`.
    """
    best = Fraction(max(account(pairs, memory, pi), devices * account(least, memory, pi) if least > 0 else 0))
    for T in {memory, max(1, 4 * pi - memory)}:
        ends = Fraction(busy * memory**2, memory + T)
        best = max(best, T * pairs / segment_work(memory + T, pi) + ends)
    return max(0, ceil(best) - held)


def cheapest_meeting(ranks: int, x: int, y: int) -> int:
    """The set lemma: the least cost of sets A_r and B_r of p devices, r in both, if all A_r and B_s meet.

    Each element of A_r beside r costs x, and each of B_s beside s costs y.
    """
    return (ranks - 1) * min(ranks * x, ranks * y, x + y)


def blocks_floor(ranks: int, rows: int, keys: int, alpha: int, beta: int) -> int:
    """P3: dense; each device has `rows` rows and `keys` keys of the problem. With alpha = beta = 2 (d + dv) it is P3s.

    Also for other masks, if all these rows see all these keys.
    """
    if keys < alpha and rows < beta:
        return 0
    return cheapest_meeting(ranks, alpha * rows, beta * keys)


def blocks_and_balance_floor(ranks: int, missing: Fraction | int, most: int, width: int) -> int:
    """P4: P3's layout, forward, any mask, and each device does exactly 1/p of the work of all problems together.

    `missing` is the least share of a device, in pairs, less the pairs of its own rows with its own keys. `most` is the
    larger of its rows and its keys of one problem. `width` is alpha = beta = d + dv, with dv <= d.
    """
    if most < width or missing <= 0:
        return 0
    return max(0, root_above((2 * ranks * width) ** 2 * (missing + most**2)) - 2 * ranks * width * most)


def decoding_floor(ranks: int, rows: int, keys: int, alpha: int, beta: int) -> int:
    """P3 for decoding: each device has `keys` keys of the problem, its `rows` rows lie anywhere, and all see all."""
    return (ranks - 1) * min(alpha * rows, beta * keys) if keys >= alpha else 0


def causal_blocks_floor(ranks: int, group: int, tokens: int, alpha: int, beta: int) -> int:
    """Causal, contiguous blocks: each device has `tokens` tokens, each with `group` rows and a key.

    It is the least cost of sets A_r and B_s that meet where r > s: of no rows, of no keys, or with r rows and s keys
    that stay at home. The cost in the last case is a function of r and one of s, both convex.
    """
    if tokens < alpha and group * tokens < beta:
        return 0
    p, x, y = ranks, alpha * group * tokens, beta * tokens
    least = p * (p - 1) // 2 * min(x, y)
    if p >= 3:
        low, high = min(x, y), max(x, y)
        many = min(-(-high // low), p - 2)  # at home of the dearer kind; 1 of the other
        mixed = high * (p - 1 - many) + low * (p - 2 + many * (many - 1) // 2)
        least = min(least, mixed)
    return least


def causal_zigzag_floor(ranks: int, group: int, tokens: int, alpha: int, beta: int) -> int:
    """Causal, zigzag: device r has chunks r and 2p - 1 - r of `tokens` tokens each, each with `group` rows and a key.

    It is the least cost of sets that meet for the chunks that see each other: with late rows, or early keys, of some
    devices that stay at home.
    """
    if tokens < alpha and group * tokens < beta:
        return 0
    x, y = alpha * group * tokens, beta * tokens
    return min(zigzag_cost(ranks, *xy) for xy in ((x, y), (y, x))) if ranks > 1 else 0


def zigzag_cost(ranks: int, x: int, y: int) -> int:
    """The least cost of zigzag sets if the late rows of some devices stay at home. A row costs x and a key y."""

    def cost(many: int) -> int:
        """The least cost for `many` such devices, which is convex."""
        left = max(0, ranks - 1 - many)
        others = capped_sum(left, y, x) + capped_sum(left, x, y)
        return y * many * (ranks - 1) + x * (ranks - many) + others + y * many * (many - 1) // 2

    return cost(1 + bisect_left(range(1, ranks), True, key=lambda many: cost(many + 1) >= cost(many)))


def capped_sum(count: int, step: int, most: int) -> int:
    """The sum of min(most, step k) over k from 1 to `count`."""
    rising = min(count, most // step)
    return step * rising * (rising + 1) // 2 + most * (count - rising)


def causal_striped_floor(ranks: int, group: int, tokens: int, alpha: int, beta: int) -> int:
    """Causal, striped: token i is on device i modulo p, `tokens` on each, each with `group` rows and a key."""
    stripes = -(-min(group * alpha, beta) // group)  # the c stripes before a stripe of rows
    if tokens < stripes:
        return 0
    return -(-(2 * tokens - stripes - 1) * cheapest_meeting(ranks, group * alpha, beta) // 2)
