"""Floors of docs/floors.md in exact integers, written from its pages alone; shares nothing with iosim.

`best(pairs, rows, d, dv, M)` is the largest floor on reads + writes, and on reads, that forms I, II and the simple one
give; `compulsory(...)` is the floor of section 3. `rows` is the number of queries that see at least two keys, and
`pairs` that of their visible pairs. `backward(...)` gives the floors of sections 10 and 11.
"""

from fractions import Fraction
from math import isqrt


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def ceil_sqrt(a: int) -> int:
    """The least r with r * r >= a."""
    return isqrt(a - 1) + 1 if a > 0 else 0


def main(work2: int, lam2: int, M: int, T: int) -> int:
    """The least integer r with r >= T*Z / G(M+T) + `start`, for Z = work2/2 and lambda = lam2/2."""
    X = M + T
    start = M * M if 4 * work2 * lam2 > M * M and 27 * work2 * work2 > 4 * M**3 else 0  # as a fraction: start / X
    square = ceil_div(4 * T * work2 * lam2 + start * X, X * X)  # G = X^2 / (16 lam)
    # G = (X/3)^1.5: (r*X - start) * sqrt(4 X) >= sqrt(27) * T * work2, with both sides squared
    root = ceil_sqrt(ceil_div(27 * T * T * work2 * work2, 4 * X))
    return min(square, ceil_div(root + start, X))


def spans(M: int, lam2: int) -> set[int]:
    """The lengths T worth trying: M, 2M, and where the two halves of G meet (X = 64 lam2^2 / 27)."""
    meet = 64 * lam2 * lam2 // 27 - M
    return {T for T in (M, 2 * M, meet, meet + 1) if T >= 1}


def form1(pairs: int, d: int, dv: int, M: int) -> int:
    """Form I on reads + n: the largest over the tried lambda (quarters of d and the best for large M) and T."""
    lam2s = {2 * d, min(d + dv, 2 * d)} | {max(1, 2 * d * k // 64) for k in range(1, 65)}
    return max(main(pairs * (2 * d + 2 * dv - lam2), lam2, M, T) for lam2 in lam2s for T in spans(M, lam2))


def form2(pairs: int, d: int, dv: int, M: int) -> int:
    """Form II on reads + n, the pairs already taken off."""
    return max(main(pairs * 2 * (d + dv), 2 * d, M, T) for T in spans(M, 2 * d)) - pairs


def simple(pairs: int, d: int, dv: int, M: int) -> int:
    """The simple floor on reads, which knows nothing of accumulators."""
    whole = 4 * d * (d + dv)
    best = 0
    for T in {M, whole - M} - {0}:
        if T < 1:
            continue
        X = M + T
        start = M * M if pairs * whole > M * M and pairs > M else 0  # |E| dv > F(M), start / X as in main
        best = max(best, min(ceil_div(T * pairs * whole + start * X, X * X), ceil_div(T * pairs + start, X)))
    return best


def mla(pairs: int, rows: int, d: int, dv: int, M: int) -> dict[str, int]:
    """The floors of section 9, where V is the first dv columns of K (dv <= d)."""
    s2, n = d * d + dv * dv, rows * dv
    tries = {T for T in (M, 2 * M, 256 * d**4 // (27 * s2) - M) if T >= 1}
    floors = [simple(pairs, d, dv, M)]
    for T in tries:
        X = M + T
        start = M * M if 16 * d * d * pairs > M * M and 27 * pairs * pairs * s2 > M**3 else 0
        square = ceil_div(16 * d * d * T * pairs + start * X, X * X)
        root = ceil_sqrt(ceil_div(27 * T * T * pairs * pairs * s2, X))
        floors.append(min(square, ceil_div(root + start, X)) - pairs)
    return {"total": max(floors), "reads": max(floors) - n}


def backward(pairs: int, rows: int, keys: int, d: int, dv: int, M: int) -> dict[str, int]:
    """Floors of sections 10 and 11 on reads + writes and on reads of the gradients, not compared with compulsory.

    1/sqrt(2) is rounded down to 408/577, and sqrt(1-b) too. So they are a little less than the best.
    """
    if not pairs:
        return {"total": 0, "reads": 0}
    c = min(dv, 2 * d)
    four_pi, written = (
        8 * (d + c) * (2 * d + c),
        {"all": d * (rows + keys) + dv * keys, "some": d * (rows + keys) + c * keys},
    )
    ten = max(of_segments(pairs, M, T, Fraction(1, four_pi), None) for T in {M, max(1, four_pi - M)})
    eleven = 0
    for k in {*range(8, 257, 8), *range(1, 16)}:
        lam = d * Fraction(k, 256)
        s = Fraction(isqrt((256 - k) << 48), 2**28)  # sqrt(1 - k/256), rounded down
        Z = pairs * (Fraction(2 * 408, 577) * dv + 2 * d * s)
        meet = int(256 * lam * lam / 27)
        for T in {T for T in (M, 2 * M, meet - M, meet + 1 - M) if T >= 1}:
            for work, price in ((Z - lam * pairs, 0), (Z, pairs)):
                if work > 0:
                    eleven = max(eleven, of_segments(work, M, T, 1 / (16 * lam), Fraction(1, 27)) - price)
    more = written["all"] - written["some"]
    return {"total": max(ten + more, eleven), "reads": max(ten - written["some"], eleven - written["all"])}


def of_segments(work: Fraction | int, M: int, T: int, square: Fraction, cube: Fraction | None) -> int:
    """The least integer r >= T Z / G(X) + M^2/X for Z = work, where G is the larger of `square` X^2 and sqrt(cube X^3),
    or X if there is no cube. The last term counts if Z > G(M)."""
    X, Z = M + T, Fraction(work)

    def other(x: int) -> Fraction:  # the square of the second part of G
        return Fraction(x * x) if cube is None else cube * x**3

    start = Fraction(M * M, X) if square * M * M < Z and other(M) < Z * Z else Fraction(0)
    first = -(-(T * Z / (square * X * X) + start) // 1)
    # r - start >= T Z / sqrt(other): both sides times the denominator of `start`, and squared
    ratio = (T * Z * start.denominator) ** 2 / other(X)
    root = ceil_sqrt(ceil_div(ratio.numerator, ratio.denominator))
    second = ceil_div(root + start.numerator, start.denominator)
    return min(int(first), second)


def best(pairs: int, rows: int, d: int, dv: int, M: int) -> dict[str, int]:
    """Floors on reads + writes, on reads, and the simple one; not compared with compulsory."""
    if not pairs:
        return {"total": 0, "reads": 0, "simple_reads": 0}
    n = rows * dv
    least, plain = max(form1(pairs, d, dv, M), form2(pairs, d, dv, M)), simple(pairs, d, dv, M)
    return {"total": max(least, plain + n), "reads": max(least - n, plain), "simple_reads": plain}


def compulsory(visible: list[list[bool]], d: int, dv: int) -> dict[str, int]:
    """Words that any exact algorithm reads and writes, one head, from a matrix of visible pairs."""
    many = [row for row in visible if sum(row) >= 2]
    keys = range(len(visible[0]))
    of_k, of_v = (sum(any(row[j] for row in part) for j in keys) for part in (many, visible))
    return {"reads": d * (len(many) + of_k) + dv * of_v, "writes": dv * sum(any(row) for row in visible)}
