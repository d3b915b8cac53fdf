"""Checks every inequality of docs/floors*.md, by numbers: random points, fine grids, and random sets and runs.

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


def Pi(d: int, dv: int) -> int:
    return 2 * (d + dv) * (2 * d + dv) if dv <= 2 * d else 4 * d * dv + (2 * d + dv) ** 2


def backward_segment(r: random.Random) -> float:
    """Work of a segment of the backward pass from whole numbers of words, over Y^2/(4 Pi) (section 10).

    A product of dV has work w1/dv, of dQ w2/d, of dK w3/d.
    """
    d, dv = r.randint(1, 4), r.randint(1, 10)
    ap, bp = r.randint(0, 8), r.randint(0, 8)
    as_, bs = ap + r.randint(0, 8), bp + r.randint(0, 8)
    g = [r.choice([0, as_ - ap, r.randint(0, as_ - ap)]) for _ in range(dv)]
    H = [r.choice([0, bs, r.randint(0, bs)]) for _ in range(dv)]
    DQ, DK = (r.choice([0, x * d, r.randint(0, x * d)]) for x in (ap, bp))
    products = sum((ap + x) * h for x, h in zip(g, H, strict=True)), bp * DQ, ap * DK
    most = (2 * d + dv) ** 2 / (2 * Pi(d, dv) * d)
    weights = (1 / (2 * (d + dv)), 1 / (2 * d), 1 / (2 * (d + dv))) if dv <= 2 * d else (4 * d / Pi(d, dv), most, most)
    work = sum(w * n for w, n in zip(weights, products, strict=True))
    Y = d * (as_ + bs) + dv * (ap + bp) + sum(g) + sum(H) + DQ + DK
    return work / (Y * Y / (4 * Pi(d, dv))) if Y else 0.0


def four_products(r: random.Random) -> float:
    """The four products that section 10 checks, at random fractions and at vertices, for dv up to 2d."""
    d = r.uniform(0.1, 9)
    dv = r.choice([r.uniform(0.01, 2) * d, d, 2 * d])
    f1, rest, fq, fk = (r.choice([0.0, 1.0, r.random()]) for _ in range(4))
    f2 = (1 - f1) * rest
    f = f1 + f2
    V, Q, K = dv * (2 * d + dv), (d + dv) * (2 * d + dv), d * (2 * d + dv)
    rho, kappa = (d + dv * f1, d + dv + d * fq), (d + dv * f, d + dv + dv * f + d * fk)
    pairs = [
        (V * f1, rho[0] * kappa[0]),
        (V * f, rho[1] * kappa[0]),
        (V * f1, rho[0] * kappa[1]),
        (V * f + Q * fq + K * fk, rho[1] * kappa[1]),
    ]
    return max(a / b for a, b in pairs)


def gradients_segment(r: random.Random) -> float:
    """Value of a segment of the backward pass less lambda * C2, over G, with its five square roots (section 11)."""
    d, s, X = r.randint(1, 9), r.choice([0.0, r.random()]), r.uniform(1, 3000)
    lam = (1 - s * s) * d
    c1, dq, k, q, dk, do, dv, v = split(r, X, 8)
    c2 = r.expovariate(1) * X * X / lam / lam / 16 * r.choice([0, 1])
    # Pairs of C3 do d products q k here, so d c3 <= sqrt((c1 + c2 + c3) q k).
    most = (q * k + sqrt((q * k) ** 2 + 4 * d * d * q * k * (c1 + c2))) / (2 * d * d)
    c = c1 + c2 + most * r.choice([0.0, 1.0, r.random()])
    value = s * (sqrt(c * dq * k) + sqrt(c * dk * q)) + (sqrt(c * dv * do) + sqrt(c * do * v)) / sqrt(2)
    return (value - lam * c2) / G(X, lam)


def weighted_segment(r: random.Random) -> float:
    """The same of forms I'' and II'', with pairs of p words and pairs of ds words (section 11)."""
    d, dv, X = r.randint(1, 9), r.randint(1, 9), r.uniform(1, 3000)
    t, y, z = r.uniform(0.01, 0.99), r.choice([1.0, r.uniform(0.05, 1)]), r.choice([1.0, r.uniform(0.05, 1)])
    lam = min(2 * sqrt(t * (1 - t)) * d / y, dv / z)
    a1, b1, dq, k, q, dk, do, dV, v = split(r, X, 9)
    b2 = r.expovariate(1) * X * X / lam / lam / 16 * r.choice([0, 1])

    def all_here(words: float, width: int, others: float) -> float:
        """The most pairs that do all products of `width` here, whose input words allow sqrt(pairs `words`)."""
        return (words + sqrt(words * words + 4 * width * width * words * others)) / (2 * width * width)

    cA = a1 + all_here(q * k, d, a1) * r.choice([0.0, 1.0, r.random()])
    b3 = all_here(do * v, dv, b1 + b2) * r.choice([0.0, 1.0, r.random()])
    cB = b1 + b2 + b3
    primary = max(0.0, sqrt(cB * do * v) - dv * b3)
    value = y * sqrt(cA * dV * do) + z * primary + z * sqrt(t) * (sqrt(cB * dq * k) + sqrt(cB * dk * q))
    return (value - lam * z * z * b2) / G(X, lam)


def gradients_path(r: random.Random) -> float:
    """The sums of roots of section 11 over half of the words, and at the eigenvectors, where they must be equal."""
    s = r.random()
    b = 1 - s * s
    t = r.choice([1.0, r.random()])
    dq, k, q, dk = (1 + (t - 1) * r.random()) * s * s, 1.0, 1.0, s * s
    do, dv, v = 2.0, 1.0 + (t - 1) * r.random(), 1.0
    path = s * sqrt(dq * k) + b * sqrt(k * q) + s * sqrt(q * dk)
    star = sqrt(do) * (sqrt(dv) + sqrt(v)) / sqrt(2)
    return max(path / ((dq + k + q + dk) / 2), star / ((do + dv + v) / 2))


def gradients_best(r: random.Random) -> float:
    """The value of `gradients_segment` at its two best points, where it must be 1 for the part without C3."""
    s, X = r.random(), r.uniform(1, 3000)
    lam = r.uniform(0.01, 9)
    parts, path = [s * s, 1.0, 1.0, s * s], s * s + (1 - s * s) + s * s
    scale = 1 / sum(parts)
    half = path * scale  # of each available word: 1/2 at the eigenvector
    found = []
    for c1 in (0.0, X / 3):
        c = c1 or (X / 4 / lam) ** 2
        found.append(sqrt(c) * half * (X - c1) - lam * (c - c1))
    return max(found) / G(X, lam)


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


class Adding:
    """A random run of one sum where slow memory adds (section 12). Words that are still needed are never lost."""

    def __init__(self, r: random.Random, output: bool):
        self.r, self.output, self.todo = r, output, r.randint(1, 7)
        self.fast: set[int] = set()
        self.slow: set[int] = set()
        self.words = self.moves = self.sessions = 0

    @property
    def done(self) -> bool:
        """Whether only the root is live: of an output in slow memory, of a pair in fast memory."""
        live = self.fast | self.slow
        return not self.todo and len(live) == 1 and live <= (self.slow if self.output else self.fast)

    def new(self, where: set[int], *used: int) -> None:
        self.fast -= {*used}
        self.slow -= {*used}
        self.words += 1
        where.add(self.words)

    def step(self) -> None:
        """One random step. Words whose successor was computed are dropped at once: they are not live."""
        r, before = self.r, bool(self.fast)
        kind = r.choice(["product", "sum", "write", "add", "read", "delete"])
        if kind == "product" and self.todo:
            self.todo -= 1
            self.new(self.fast)
        elif kind == "sum" and len(self.fast) > 1:
            self.new(self.fast, *r.sample(sorted(self.fast), 2))
        elif kind == "write" and self.fast - self.slow:
            self.slow.add(r.choice(sorted(self.fast - self.slow)))
            self.moves += 1
        elif kind == "add" and (ways := [(a, b) for a in sorted(self.fast) for b in sorted(self.slow - {a})]):
            self.new(self.slow, *r.choice(ways))
            self.moves += 1
        elif kind == "read" and self.slow - self.fast:
            self.fast.add(r.choice(sorted(self.slow - self.fast)))
            self.moves += 1
        elif kind == "delete" and self.fast & self.slow:
            self.fast.remove(r.choice(sorted(self.fast & self.slow)))
        self.sessions += bool(self.fast) and not before


def one_accumulator_that_adds(r: random.Random) -> float:
    """Sessions of a random run over its reads, writes and adds; of a pair's sum one session less."""
    run = Adding(r, r.choice([True, False]))
    while not run.done:
        run.step()
    sessions = run.sessions - (not run.output)
    return sessions / run.moves if run.moves else 2.0 * (sessions > 0)


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


def columns(r: random.Random, rows: float, width: int, words: float) -> list[float]:
    """At most `words` words in `width` columns, at most `rows` in each."""
    return [min(rows, part) for part in split(r, words, width)]


def device_segment(r: random.Random) -> float:
    """The work of a stretch of a device's run, over g (section 4 of distributed-proofs.md), for any d and dv."""
    d, dv, X = r.randint(1, 9), r.randint(1, 9), r.uniform(1, 3000)
    a, b, o, v, c = split(r, X, 5)
    a, b = a / d, b / d
    pi = (d + dv) ** 2 if dv <= d else 4 * d * dv
    products = zip(columns(r, a, dv, o), columns(r, b, dv, v), strict=True)
    return (sum(x * y for x, y in products) / dv + c) / max(X * X / (4 * pi), X)


def device_segment_best(r: random.Random) -> float:
    """The value of `device_segment` for whole rows and keys, dv <= d, where it must be 1."""
    d = r.randint(1, 9)
    dv, X = r.randint(1, d), r.uniform(1, 3000)
    a = b = X / 2 / (d + dv)
    return max(a * b * dv / dv, X) / max(X * X / (4 * (d + dv) ** 2), X)


def block_segment(r: random.Random) -> float:
    """The same beside nq free rows and nk free keys, over nq nk + m X + X^2/4 (section 8 of distributed-proofs.md)."""
    d = r.randint(1, 9)
    dv, x = r.randint(1, d), r.uniform(1, 3000)
    nq, nk = sorted((r.uniform(0, 200), r.uniform(d + dv, 200)), reverse=r.random() < 0.5)
    m = max(nq, nk)
    a, b, o, v, c = split(r, x, 5)
    rows, keys = columns(r, a / d, dv, o), columns(r, b / d, dv, v)
    work = sum((nq + i) * (nk + j) for i, j in zip(rows, keys, strict=True)) / dv + c
    X = x / (d + dv)
    return (work - nq * nk) / (m * X + X * X / 4)


def sets_that_meet(r: random.Random) -> float:
    """The least cost that the set lemma allows over that of random sets, mended until all of them meet."""
    p, x, y = r.randint(2, 7), r.uniform(0.1, 9), r.uniform(0.1, 9)
    A, B = ([{s} | {t for t in range(p) if r.random() < r.choice([0, 0.2, 0.6])} for s in range(p)] for _ in range(2))
    if r.random() < 0.3:
        A = [one | {0} for one in A]
    for s, one in enumerate(A):
        for t, other in enumerate(B):
            if not one & other:
                if r.random() < 0.5:
                    one.add(t)
                else:
                    other.add(s)
    cost = x * sum(len(one) - 1 for one in A) + y * sum(len(one) - 1 for one in B)
    return (p - 1) * min(p * x, p * y, x + y) / cost


def sessions_on_devices(r: random.Random) -> float:
    """Sessions of a random run of one sum on several devices less 1, over the receptions of its live words."""
    todo, words = r.randint(1, 8), 0
    held: list[set[int]] = [set() for _ in range(r.randint(1, 4))]  # live words of each device
    sessions = received = 0
    while todo or len(set().union(*held)) > 1:
        here, act = r.choice(held), r.random()
        idle = not here
        if act < 0.3 and todo:
            todo, words = todo - 1, words + 1
            here.add(words)
        elif act < 0.55 and len(here) > 1:
            pair, words = set(r.sample(sorted(here), 2)), words + 1
            here.add(words)
            for one in held:
                one -= pair  # copies on other devices are live no more
        elif act < 0.75 and (spare := [w for w in here if sum(w in one for one in held) > 1]):
            here.discard(r.choice(spare))
        elif missing := sorted(set().union(*held) - here):
            here.add(r.choice(missing))
            received += 1
        sessions += idle and bool(here)
    return (sessions - 1) / received if received else 2.0 * (sessions > 1)


CHECKS: list[tuple[Callable[[random.Random], float], int]] = [
    (simple_segment, 20), (simple_best, 1), (main_segment, 20), (main_best, 1), (mla_segment, 20), (grows, 10),
    (last_segment, 1), (best_lengths, 10), (loomis_whitney, 4), (hull, 10), (backward_segment, 20), (four_products, 10),
    (gradients_segment, 20), (weighted_segment, 20), (gradients_path, 10), (gradients_best, 1), (one_accumulator, 4),
    (one_accumulator_that_adds, 4), (inputs_matter, 1), (device_segment, 20), (device_segment_best, 1),
    (block_segment, 20), (sets_that_meet, 10),
    (sessions_on_devices, 4),
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
        print(f"{check.__name__:26} {turns * times:8} points, worst {ratio:.4f}{'' if ratio <= TINY else '  BROKEN'}")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
