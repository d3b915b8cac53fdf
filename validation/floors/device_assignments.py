"""The least words across devices that annealing finds: which device computes which score and which product p v.

It uses nothing of iosim. Memory is not limited. A score is computed on one device and sent, as one word, to the others
that need it. Rows and keys have homes (P3 and the causal floors), or lie where they are used (P1, with equal work).
Annealing finds upper bounds only, so nothing that it finds may be below a floor.
"""

import random
from collections.abc import Callable
from math import exp

Home = Callable[[int], int]


class Assignment:
    """The devices of all scores and products of one problem, and the words that they need.

    `homes` is (home of a row, home of a key), or None if words may start and end anywhere.
    """

    def __init__(self, N: int, Nk: int, p: int, d: int, dv: int, homes: tuple[Home, Home] | None,
                 visible: Callable[[int, int], bool], level: bool) -> None:  # fmt: skip
        self.p, self.d, self.dv, self.homes, self.level = p, d, dv, homes, level
        self.pairs = [(i, j) for i in range(N) for j in range(Nk) if visible(i, j)]
        alone = {i for i in range(N) if sum(a == i for a, _ in self.pairs) == 1}  # their p is 1 without a score
        self.scored = {pair for pair in self.pairs if pair[0] not in alone}
        self.uses: dict[tuple, int] = {}  # (kind, index, device) -> how many products need the word there
        self.cost = 0
        self.score: dict[tuple[int, int], int] = {}
        self.product: dict[tuple[int, int, int], int] = {}
        if homes is None:  # each word lies at one of the devices that use it
            for axis in (0, 1):
                self.cost -= d * len({pair[axis] for pair in self.scored}) + dv * len(
                    {pair[axis] for pair in self.pairs}
                )

    def price(self, kind: str, index: tuple, t: int) -> int:
        """The words received if the device needs this word."""
        width = self.d if kind in "qk" else 1
        if kind == "s":
            return 0 if self.score[index] == t else 1
        return 0 if self.homes and self.homes[kind in "kv"](index[0]) == t else width

    def change(self, kind: str, index: tuple, t: int, by: int) -> None:
        """`by` more products need this word on device t."""
        before = self.uses.get((kind, index, t), 0)
        self.uses[kind, index, t] = before + by
        if (before > 0) != (before + by > 0):
            self.cost += by * self.price(kind, index, t)

    def place_score(self, pair: tuple[int, int], u: int, by: int) -> None:
        if pair in self.scored:
            self.change("q", (pair[0],), u, by)
            self.change("k", (pair[1],), u, by)

    def place_product(self, pair: tuple[int, int], m: int, t: int, by: int) -> None:
        i, j = pair
        self.change("v", (j, m), t, by)
        self.change("o", (i, m), t, by)
        if pair in self.scored:
            self.change("s", pair, t, by)

    def put(self, pair: tuple[int, int], u: int, ts: list[int]) -> None:
        """Place, or move, the score of a pair to u and its products to ts."""
        if pair in self.score:
            for m, t in enumerate(self.where(pair)):
                self.place_product(pair, m, t, -1)
            self.place_score(pair, self.score[pair], -1)
        self.score[pair] = u
        self.place_score(pair, u, 1)
        for m, t in enumerate(ts):
            self.product[(*pair, m)] = t
            self.place_product(pair, m, t, 1)

    def where(self, pair: tuple[int, int]) -> list[int]:
        return [self.product[(*pair, m)] for m in range(self.dv)]


def starts(one: Assignment, N: int, Nk: int, r: random.Random) -> dict[str, Callable[[int, int], int]]:
    """The device of each pair in well-known schedules, as far as they fit."""
    p, mixed = one.p, r.sample(one.pairs, len(one.pairs))
    dealt = {pair: number % p for number, pair in enumerate(mixed)}
    found: dict[str, Callable[[int, int], int]] = {"random": lambda i, j: dealt[i, j]}
    if not one.homes:
        found["rows"] = lambda i, j: one.pairs.index((i, j)) * p // len(one.pairs)
    for b in (b for b in range(1, p + 1) if p % b == 0):
        name = f"mesh {p // b} x {b}"
        if one.homes:  # a device has its own rows and keys among those of its row and column
            found[name] = lambda i, j, b=b: one.homes[0](i) // b * b + one.homes[1](j) % b
        else:
            found[name] = lambda i, j, b=b: i * (p // b) // N * b + j * b // Nk
    if one.homes:
        found |= {"ring": lambda i, j: one.homes[0](i), "pass Q": lambda i, j: one.homes[1](j)}
        found["one device"] = lambda i, j: 0
    return found


def anneal(one: Assignment, start: Callable[[int, int], int], turns: int, r: random.Random) -> int:
    """The least cost that annealing finds. With level work all moves are swaps, so it stays as it was at the start."""
    for pair in one.pairs:
        t = start(*pair)
        one.put(pair, t, [t] * one.dv)
    least = one.cost
    for turn in range(turns):
        heat = 3.0 * (1 - turn / turns) + 0.05
        undo = swap(one, r) if one.level else move(one, r)
        before = undo.pop()[0]
        if one.cost > before and r.random() >= exp((before - one.cost) / heat):
            for pair, u, ts in reversed(undo):
                one.put(pair, u, ts)
        least = min(least, one.cost)
    return least


def move(one: Assignment, r: random.Random) -> list:
    """Move a pair, one of its products, or its score, to a device. Gives what undoes it, and the cost before."""
    pair, t, before = r.choice(one.pairs), r.randrange(one.p), one.cost
    u, ts = one.score[pair], one.where(pair)
    kind, m = r.randrange(3), r.randrange(one.dv)
    some = [*ts[:m], t, *ts[m + 1 :]]
    one.put(pair, *((t, [t] * one.dv), (u, some), (t, ts))[kind])
    return [(pair, u, ts), (before,)]


def swap(one: Assignment, r: random.Random) -> list:
    """Exchange the devices of two pairs, or of one product of each."""
    first, second, before = r.choice(one.pairs), r.choice(one.pairs), one.cost
    if first == second:
        return [(before,)]
    old = [(pair, one.score[pair], one.where(pair)) for pair in (first, second)]
    (_, u, us), (_, w, ws) = old
    if r.random() < 0.5:
        one.put(first, w, ws)
        one.put(second, u, us)
    else:
        m = r.randrange(one.dv)
        one.put(first, u, [*us[:m], ws[m], *us[m + 1 :]])
        one.put(second, w, [*ws[:m], us[m], *ws[m + 1 :]])
    return [*old, (before,)]


def largest_share(one: Assignment) -> int:
    """The most products p v of a device."""
    devices = list(one.product.values())
    return max(devices.count(t) for t in set(devices))
