"""Looks for schedules across devices below the floors of docs/distributed-proofs.md, and writes devices.csv.

`python validation/floors/devices.py` takes some minutes, and needs SciPy. The floors are written here from the page
alone, and nothing of iosim is used.
"""

import csv
import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, isqrt
from pathlib import Path

import device_assignments

HERE = Path(__file__).parent
COLUMNS = [
    "search",
    "pass",
    "layout",
    "mask",
    "N",
    "Nk",
    "p",
    "d",
    "dv",
    "theorem",
    "floor",
    "words",
    "proven",
    "ratio",
]


# ---------------------------------------------------------------- the floors, from the page


def p1(pairs: int, most: Fraction, pi: int, held: int) -> int:
    square = pairs**2 * min(4 * pi / most, Fraction(1))
    root = isqrt(ceil(square) - 1) + 1
    return max(0, root - held)


def p3(p: int, rows: int, keys: int, alpha: int, beta: int) -> int:
    """`rows` and `keys` of one device."""
    holds = keys >= alpha or rows >= beta
    return holds * (p - 1) * min(p * beta * keys, p * alpha * rows, alpha * rows + beta * keys)


def p4(p: int, rows: int, keys: int, width: int) -> int:
    """One problem, dv <= d; `rows` and `keys` of one device."""
    m = max(rows, keys)
    square = (2 * p * width) ** 2 * ((p - 1) * rows * keys + m * m)
    return (isqrt(square - 1) + 1 - 2 * p * width * m) * (m >= width)


def zigzag(p: int, x: int, y: int) -> int:
    """x and y are the words of the rows and of the keys of a chunk."""
    cases = []
    for row, key in ((x, y), (y, x)):
        for rho in range(1, p + 1):
            rest = sum(min(row, key * k) + min(key, row * k) for k in range(1, p - rho))
            cases.append(key * rho * (p - 1) + row * (p - rho) + rest + key * rho * (rho - 1) // 2)
    return min(cases)


def causal(layout: str, p: int, n: int, alpha: int, beta: int) -> int:
    """One query head a KV head, n tokens on each device."""
    if layout == "zigzag":
        return zigzag(p, alpha * n // 2, beta * n // 2) * (n // 2 >= min(alpha, beta))
    if layout == "striped":
        c = min(alpha, beta)
        return max(0, ceil((n - Fraction(c + 1, 2)) * (p - 1) * min(p * alpha, p * beta, alpha + beta))) * (n >= c)
    x, y = alpha * n, beta * n
    cases = [p * (p - 1) // 2 * x, p * (p - 1) // 2 * y]
    cases += [x * (p - 1 - r + s * (s - 1) // 2) + y * (p - 1 - s + r * (r - 1) // 2)
              for r in range(1, p) for s in range(1, p - r)]  # fmt: skip
    return min(cases) * (n >= min(alpha, beta))


# ---------------------------------------------------------------- layouts and masks


def home(layout: str, tokens: int, p: int) -> Callable[[int], int]:
    half = max(1, tokens // (2 * p))
    return {
        "blocks": lambda i: i * p // tokens,
        "balanced": lambda i: i * p // tokens,
        "zigzag": lambda i: min(i // half, 2 * p - 1 - i // half),
        "striped": lambda i: i % p,
    }[layout]


MASKS: dict[str, Callable[[int, int], bool]] = {"dense": lambda i, j: True, "causal": lambda i, j: j <= i}


def fixed_floor(which: str, layout: str, mask: str, N: int, Nk: int, p: int, d: int, dv: int) -> tuple[str, int]:
    """(theorem, floor) for rows and keys with homes; without balance, unless the layout is `balanced`."""
    if layout == "balanced":
        return "P4", p4(p, N // p, Nk // p, d + dv)
    alpha, beta = {
        "forward": (d + dv, d + dv),
        "backward": (2 * d + dv, 2 * d + 2 * dv),
        "step": (2 * d + 2 * dv,) * 2,
    }[which]
    if mask == "causal":
        return f"causal {layout}", causal(layout, p, N // p, alpha, beta)
    return "P3s" if which == "step" else "P3", p3(p, N // p, Nk // p, alpha, beta)


# ---------------------------------------------------------------- instances

# (pass, layout, mask, N, Nk, p, d, dv)
PROGRAMS = [
    ("forward", "blocks", "dense", 4, 4, 2, 1, 1), ("forward", "blocks", "dense", 6, 6, 3, 1, 1),
    ("forward", "blocks", "dense", 8, 8, 4, 1, 1), ("forward", "blocks", "dense", 8, 4, 2, 1, 1),
    ("forward", "blocks", "dense", 4, 8, 2, 1, 1), ("forward", "blocks", "dense", 12, 6, 3, 1, 1),
    ("forward", "blocks", "dense", 6, 12, 3, 1, 1), ("forward", "blocks", "dense", 6, 6, 2, 1, 2),
    ("forward", "blocks", "dense", 6, 6, 2, 2, 1), ("forward", "blocks", "dense", 8, 8, 2, 2, 2),
    ("forward", "blocks", "dense", 2, 4, 2, 1, 1), ("forward", "blocks", "dense", 3, 9, 3, 1, 1),
    ("forward", "blocks", "dense", 9, 6, 3, 1, 2), ("forward", "blocks", "dense", 6, 9, 3, 1, 2),
    ("forward", "blocks", "causal", 4, 4, 2, 1, 1), ("forward", "blocks", "causal", 6, 6, 3, 1, 1),
    ("forward", "blocks", "causal", 8, 8, 4, 1, 1), ("forward", "blocks", "causal", 6, 6, 2, 1, 2),
    ("forward", "blocks", "causal", 9, 9, 3, 1, 1), ("forward", "zigzag", "causal", 8, 8, 2, 1, 1),
    ("forward", "zigzag", "causal", 12, 12, 3, 1, 1), ("forward", "zigzag", "causal", 16, 16, 4, 1, 1),
    ("forward", "striped", "causal", 4, 4, 2, 1, 1), ("forward", "striped", "causal", 6, 6, 2, 1, 1),
    ("forward", "striped", "causal", 8, 8, 2, 1, 1), ("forward", "striped", "causal", 9, 9, 3, 1, 1),
    ("step", "blocks", "dense", 8, 8, 2, 1, 1), ("step", "blocks", "dense", 12, 12, 3, 1, 1),
    ("step", "blocks", "dense", 8, 4, 2, 1, 1), ("backward", "blocks", "dense", 8, 8, 2, 1, 1),
    ("backward", "blocks", "dense", 6, 6, 2, 1, 1), ("backward", "blocks", "dense", 9, 9, 3, 1, 1),
    ("forward", "balanced", "dense", 4, 4, 2, 1, 1), ("forward", "balanced", "dense", 6, 6, 3, 1, 1),
    ("forward", "balanced", "dense", 9, 6, 3, 1, 1), ("forward", "balanced", "dense", 12, 6, 3, 1, 1),
    ("forward", "free", "dense", 4, 4, 2, 1, 1), ("forward", "free", "dense", 4, 6, 2, 1, 1),
    ("forward", "free", "dense", 6, 6, 2, 1, 1),
]  # fmt: skip

FREE = [
    (16, 16, 4, 1, 1), (16, 16, 4, 2, 2), (12, 12, 2, 1, 1), (18, 18, 9, 1, 1), (24, 24, 6, 1, 1), (12, 24, 8, 1, 1),
    (24, 12, 8, 2, 1), (16, 16, 8, 2, 2), (20, 20, 5, 2, 1), (16, 8, 2, 3, 2), (32, 32, 4, 2, 2), (27, 27, 9, 2, 1),
]  # fmt: skip
FREE_CAUSAL = [(16, 4, 1, 1), (16, 4, 2, 2), (24, 8, 1, 1), (17, 3, 2, 1), (32, 4, 1, 1)]
BLOCKS = [
    (8, 8, 2, 2, 2), (12, 12, 3, 2, 2), (16, 16, 4, 2, 2), (12, 12, 6, 1, 1), (18, 18, 9, 1, 1), (40, 8, 4, 1, 1),
    (8, 40, 4, 1, 1), (24, 12, 3, 2, 2), (12, 24, 3, 2, 2), (15, 20, 5, 2, 2), (14, 14, 7, 1, 1), (16, 32, 8, 1, 1),
    (21, 21, 3, 4, 3), (18, 18, 3, 3, 2), (30, 30, 5, 3, 3),
]  # fmt: skip
BALANCED = [
    (8, 8, 4, 1, 1),
    (16, 16, 4, 2, 2),
    (18, 18, 9, 1, 1),
    (32, 16, 8, 1, 1),
    (16, 16, 8, 1, 1),
    (36, 36, 9, 2, 2),
]
CAUSAL = [(12, 2, 1, 1), (12, 3, 1, 1), (24, 3, 2, 2), (16, 4, 1, 1), (20, 5, 1, 1)]
ANNEALED = [
    *(("forward", "free", "dense", *sizes) for sizes in FREE),
    *(("forward", "free", "causal", N, N, *sizes) for N, *sizes in FREE_CAUSAL),
    *(("forward", "blocks", "dense", *sizes) for sizes in BLOCKS),
    *(("forward", "balanced", "dense", *sizes) for sizes in BALANCED),
    *(("forward", layout, "causal", N, N, p, d, dv)
      for N, p, d, dv in CAUSAL for layout in ("blocks", "zigzag", "striped") if N % (2 * p) == 0),
]  # fmt: skip


def pairs_of(mask: str, N: int, Nk: int) -> tuple[int, int, int]:
    """(pairs, rows, keys) of P: of rows that see two keys or more."""
    see = MASKS[mask]
    rows = [i for i in range(N) if sum(see(i, j) for j in range(Nk)) > 1]
    return (sum(see(i, j) for i in rows for j in range(Nk)), len(rows),
            sum(any(see(i, j) for i in rows) for j in range(Nk)))  # fmt: skip


def free_floor(mask: str, N: int, Nk: int, d: int, dv: int, most: Fraction) -> int:
    """P1 if each device does at most `most` pairs' work; dv <= d."""
    pairs, rows, keys = pairs_of(mask, N, Nk)
    return p1(pairs, most, (d + dv) ** 2, (d + dv) * (rows + keys))


def row(search: str, one: tuple, theorem: str, floor: int, words: int, proven: int | str = "") -> dict:
    ratio = f"{words / floor:.3f}" if floor else ""
    return dict(zip(COLUMNS, [search, *one, theorem, floor, words, proven, ratio], strict=True))


def by_program(one: tuple, seconds: float = 120) -> dict:
    """The row of an instance that an integer program solves."""
    import device_programs as programs

    which, layout, mask, N, Nk, p, d, dv = one
    homes = home("blocks" if layout == "free" else layout, N, p), home("blocks" if layout == "free" else layout, Nk, p)
    tiny = programs.Tiny(N, Nk, p, d, dv, *homes, MASKS[mask])
    if layout == "free":
        most = -(-N * Nk * dv // p)
        words, proven = programs.free(tiny, most, seconds)
        return row("program", one, "P1", free_floor(mask, N, Nk, d, dv, Fraction(most, dv)), words, proven)
    if layout == "balanced":
        words, proven = programs.balanced(tiny, N * Nk * dv // p, seconds)
    elif which == "forward":
        words, proven = programs.forward(tiny, seconds)
    else:
        words, proven = programs.step(tiny, which == "backward", seconds)
    return row("program", one, *fixed_floor(*one), words, proven)


def by_annealing(one: tuple, turns: int = 20_000, seed: int = 1) -> dict:
    """The row of an instance whose assignment is annealed, from all starts."""
    _, layout, mask, N, Nk, p, d, dv = one
    homes = None if layout == "free" else (home(layout, N, p), home(layout, Nk, p))
    level = layout in ("free", "balanced")
    r, best, most = random.Random(seed), 10**9, 0

    def fresh() -> device_assignments.Assignment:
        return device_assignments.Assignment(N, Nk, p, d, dv, homes, MASKS[mask], level)

    for start in device_assignments.starts(fresh(), N, Nk, r).values():
        found = fresh()
        if level and not even(found, start):
            continue
        best = min(best, device_assignments.anneal(found, start, turns, r))
        most = device_assignments.largest_share(found)
    if homes is None:
        return row("annealing", one, "P1", free_floor(mask, N, Nk, d, dv, Fraction(most, dv)), best)
    return row("annealing", one, *fixed_floor(*one), best)


def even(one: device_assignments.Assignment, start: Callable[[int, int], int]) -> bool:
    """Whether a start gives all devices the same number of pairs, within one."""
    counts = [0] * one.p
    for pair in one.pairs:
        counts[start(*pair)] += 1
    return max(counts) == -(-len(one.pairs) // one.p)


def rows() -> Iterator[dict]:
    for one in PROGRAMS:
        yield by_program(one)
    for one in ANNEALED:
        yield by_annealing(one)


if __name__ == "__main__":
    with (HERE / "devices.csv").open("w") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for found in rows():
            writer.writerow(found)
            file.flush()
            if int(found["words"]) < int(found["floor"]):
                sys.exit(f"below the floor: {found}")
