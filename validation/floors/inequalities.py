"""Checks every inequality that docs/floors.md uses, by numbers: random points, fine grids, and random sets and runs.

`python validation/floors/inequalities.py [SEED] [TURNS]` prints one line a check with the worst ratio (1 = tight)
and fails if one exceeds 1. These are checks of the steps, no proofs; the proofs are on the page.
"""

import random
import sys
from collections.abc import Callable
from math import exp, sqrt

TINY = 1 + 1e-9


def F(x: float, d: int, dv: int) -> float:
    return max(x * x * dv / (4 * d * (d + dv)), x * dv)


def G(x: float, lam: float) -> float:
    return max(x * x / (16 * lam), (x / 3) ** 1.5)


def G_mla(x: float, d: int, dv: int) -> float:
    s = sqrt(d * d + dv * dv)
    return max(s * s * x * x / (16 * d * d), s * (x / 3) ** 1.5)


def split(r: random.Random, total: float, parts: int) -> list[float]:
    """A random division of a total, often with some parts 0."""
    weights = [r.expovariate(1) ** r.choice([1, 3]) * r.choice([0, 1, 1]) for _ in range(parts)]
    whole = sum(weights) or 1.0
    return [total * w / whole for w in weights]


def simple_segment(r: random.Random) -> float:
    """Triples of a segment without accumulators, over F (section 7)."""
    d, dv, X = r.randint(1, 9), r.randint(1, 9), r.uniform(1, 3000)
    a, b, w, c = split(r, X, 4)
    a, b = a / d, b / d
    return (a * min(w, b * dv) + c * dv) / F(X, d, dv)


def simple_best(r: random.Random) -> float:
    """The value of `simple_segment` at the claimed best point, where it must be 1."""
    d, dv, X = r.randint(1, 9), r.randint(1, 9), r.uniform(1, 3000)
    a = X / 2 / d
    w = X / 2 / (1 + d / dv)
    return max(a * w, X * dv) / F(X, d, dv)


def main_segment(r: random.Random) -> float:
    """Events of a segment less lambda * C2, over G (section 6), with the two square roots of Loomis-Whitney."""
    d = r.randint(1, 9)
    lam, X = r.uniform(0.01, d), r.uniform(1, 3000)
    c1, q, k, v, o = split(r, X, 5)
    c2, c3 = (r.expovariate(1) * X * X / lam / lam / 16 * r.choice([0, 1]) for _ in range(2))
    both = sqrt(c1 + c2 + c3) * (sqrt(o * v) + sqrt(q * k))
    return (both - d * c3 - lam * c2) / G(X, lam)


def main_best(r: random.Random) -> float:
    """The value of `main_segment` at the two claimed best points, where it must be 1."""
    lam, X = r.uniform(0.01, 9), r.uniform(1, 3000)
    first = sqrt((X / 4 / lam) ** 2) * X / 2 - lam * (X / 4 / lam) ** 2
    second = sqrt(X / 3) * (X - X / 3) / 2
    return max(first, second) / G(X, lam)


def mla_segment(r: random.Random) -> float:
    """Weighted events of a segment where V is part of K, over its bound (section 9)."""
    d = r.randint(1, 9)
    dv, X = r.randint(1, d), r.uniform(1, 3000)
    c1, q, k, o = split(r, X, 4)
    c3 = r.expovariate(1) * X * X / d / d / 16 * r.choice([0, 1])
    value = sqrt(c1 + c3) * (dv * sqrt(o * k) + d * sqrt(q * k)) - d * d * c3
    return value / G_mla(X, d, dv)


def grows(r: random.Random) -> float:
    """F(x)/x over F(y)/y for x <= y, and the same of G: at most 1 because they do not fall."""
    x, d, dv = r.uniform(0.1, 1000), r.randint(1, 9), r.randint(1, 9)
    y, lam = x * r.uniform(1, 5), r.uniform(0.01, 9)
    return max(F(x, d, dv) / x / (F(y, d, dv) / y), G(x, lam) / x / (G(y, lam) / y))


def last_segment(r: random.Random) -> float:
    """T Z / G(M+T), with the start where Z > G(M), over the least R whose segments can hold Z (section 5)."""
    M, T, lam = r.randint(1, 40), r.randint(1, 80), r.uniform(0.1, 4)
    Z = r.uniform(0.1, 30) * G(M + T, lam)
    R = 1
    while True:
        first = R if R <= M + T else next(x for x in range(M + 1, M + T + 1) if (R - x) % T == 0)
        if G(first, lam) + (R - first) // T * G(M + T, lam) >= Z:
            break
        R += 1
    start = M * M / (M + T) if G(M, lam) < Z else 0
    return (T * Z / G(M + T, lam) + start) / R


def best_lengths(r: random.Random) -> float:
    """T / G(M+T) at any T over the best of the three named lengths."""
    M, lam = r.uniform(1, 500), r.uniform(0.1, 9)
    meet = 256 * lam * lam / 27
    T = r.uniform(0.001, 3000)
    named = [M if meet <= 2 * M else 2 * M if meet >= 3 * M else meet - M]
    return T / G(M + T, lam) / max(t / G(M + t, lam) for t in named)


def loomis_whitney(r: random.Random) -> float:
    """|E|^2 over the product of the three projections, random sets."""
    n = r.randint(1, 5)
    E = {(r.randrange(n), r.randrange(n), r.randrange(n)) for _ in range(r.randint(1, n**3))}
    return len(E) ** 2 / (len({x[:2] for x in E}) * len({x[::2] for x in E}) * len({x[1:] for x in E}))


def hull(r: random.Random) -> float:
    """The best (a_p+g)H at g+H = u over the concave hull of section 10; whole numbers, every g."""
    ap, bs = r.randint(0, 12), r.randint(1, 12)
    as_ = ap + r.randint(0, 12)
    u = r.randint(1, as_ - ap + bs)
    best = max((ap + g) * (u - g) for g in range(max(0, u - bs), min(as_ - ap, u) + 1))
    line = max(0.0, u / (as_ - ap + bs) * as_ * bs)
    bent = ap * u if u <= bs else ap * bs + bs * (u - bs)
    return best / max(line, bent, 1e-9) if best else 0.0


def backward_segment(r: random.Random) -> float:
    """Value of a segment of the backward pass from whole numbers of words, over Y^2/(4 d^2) (section 10)."""
    d = r.randint(1, 4)
    ap, bp = r.randint(0, 8), r.randint(0, 8)
    as_, bs = ap + r.randint(0, 8), bp + r.randint(0, 8)
    g = [r.choice([0, as_ - ap, r.randint(0, as_ - ap)]) for _ in range(d)]
    H = [r.choice([0, bs, r.randint(0, bs)]) for _ in range(d)]
    DQ, DK = (r.choice([0, x * d, r.randint(0, x * d)]) for x in (ap, bp))
    value = 4 / d * (sum((ap + x) * h for x, h in zip(g, H, strict=True)) + bp * DQ + ap * DK)
    Y = d * (as_ + bs + ap + bp) + sum(g) + sum(H) + DQ + DK
    return value / (Y * Y / (4 * d * d)) if Y else 0.0


def four_products(r: random.Random) -> float:
    """The four products that section 10 checks, at random fractions and at vertices."""
    f1, rest, fq, fk = (r.choice([0.0, 1.0, r.random()]) for _ in range(4))
    f2 = (1 - f1) * rest
    f = f1 + f2
    pairs = [
        (4 * f1, (1 + f1) * (1 + f)),
        (4 * f, (2 + fq) * (1 + f)),
        (4 * f1, (1 + f1) * (2 + f + fk)),
        (4 * (f + fq + fk), (2 + fq) * (2 + f + fk)),
    ]
    return max(a / b for a, b in pairs)


def one_accumulator(r: random.Random) -> float:
    """Sessions of a random run of one sum less 1, over the reads of live words of its tree (section 4)."""
    parent: dict[int, int] = {}
    born, reads, stays, fast, todo, clock, words = {}, [], [], {}, r.randint(1, 7), 0, 0
    slow: set[int] = set()
    while todo or len(slow - set(parent)) > 1:
        clock += 1
        here = [w for w in fast if w not in parent]
        act = r.random()
        if act < 0.3 and todo:
            words, todo = words + 1, todo - 1
            born[words], fast[words] = clock, clock
            slow.add(words)
        elif act < 0.6 and len(here) > 1:
            a, b = r.sample(here, 2)
            words += 1
            parent[a] = parent[b] = words
            born[words], fast[words] = clock, clock
            slow.add(words)
        elif act < 0.8 and fast:
            w = r.choice(list(fast))
            stays.append((w, fast.pop(w), clock))
        elif slow - set(fast):
            w = r.choice(list(slow - set(fast)))
            fast[w] = clock
            reads.append((w, clock))
    stays += [(w, since, clock + 1) for w, since in fast.items()]
    end = {w: born[parent[w]] if w in parent else clock + 1 for w in born}
    spans = sorted((a, min(b, end[w])) for w, a, b in stays if a < end[w])
    sessions, until = 0, -1
    for a, b in spans:
        sessions += a > until
        until = max(until, b)
    live = sum(1 for w, t in reads if t < end[w])
    return (sessions - 1) / live if live else float(sessions > 1) * 2


def inputs_matter(r: random.Random) -> float:
    """1 if every input word changes some output of a row with two visible keys (section 3), else 2."""
    n, d, dv = r.randint(2, 4), r.randint(1, 3), r.randint(1, 3)
    q, k = [r.gauss(0, 1) for _ in range(d)], [[r.gauss(0, 1) for _ in range(d)] for _ in range(n)]
    v = [[r.gauss(0, 1) for _ in range(dv)] for _ in range(n)]

    def output() -> list[float]:
        p = [exp(sum(a * b for a, b in zip(q, row, strict=True))) for row in k]
        return [sum(x * row[m] for x, row in zip(p, v, strict=True)) / sum(p) for m in range(dv)]

    before = output()
    for vector in [q, *k, *v]:
        for m in range(len(vector)):
            vector[m] += 1.0
            if max(abs(a - b) for a, b in zip(output(), before, strict=True)) < 1e-12:
                return 2.0
            vector[m] -= 1.0
    return 1.0


CHECKS: list[tuple[Callable[[random.Random], float], int]] = [
    (simple_segment, 20), (simple_best, 1), (main_segment, 20), (main_best, 1), (mla_segment, 20), (grows, 10),
    (last_segment, 1), (best_lengths, 10), (loomis_whitney, 4), (hull, 10), (backward_segment, 20), (four_products, 10),
    (one_accumulator, 4), (inputs_matter, 1),
]  # fmt: skip


def worst(check: Callable[[random.Random], float], seed: int, turns: int) -> float:
    """The largest ratio that a check reaches."""
    r = random.Random(seed)
    return max(check(r) for _ in range(turns))


def main(seed: int = 1, turns: int = 10000) -> int:
    broken = 0
    for check, times in CHECKS:
        ratio = worst(check, seed, turns * times)
        broken += ratio > TINY
        print(f"{check.__name__:18} {turns * times:8} points, worst {ratio:.4f}{'' if ratio <= TINY else '  BROKEN'}")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
