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


def account(Z: Fraction | int, M: int, square: Fraction, other: Fraction, power: int) -> int:
    """A(Z, g) of section 1 for g(X) = max(square X^2, sqrt(other X^power)), rounded up to a multiple of 2^-64.

    Few K are tried: 1, 2, and those beside Z/g(X) for the X where (X - M)/g(X) is largest. Each gives a floor.
    """
    one = 2**64
    need = ceil_div(Fraction(Z).numerator * one, Fraction(Z).denominator)
    if need <= 0:
        return 0

    def g(X: int) -> int:
        first = ceil_div(square.numerator * X * X * one, square.denominator)
        return max(first, ceil_sqrt(ceil_div(other.numerator * X**power * one * one, other.denominator)))

    def enough(S: int, K: int) -> bool:
        each, larger = divmod(S, K)
        return larger * g(each + 1) + (K - larger) * g(each) >= need

    def least(K: int) -> int:
        """S(K)."""
        low, high = 0, K
        while not enough(high, K):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle, K) else (middle, high)
        return high

    meet = other / square**2  # X^(4 - power), where both parts of g are equal
    X = int(meet) if power == 3 else isqrt(int(meet))
    each = min((x for x in (2 * M, 3 * M, X, X + 1) if x > M), key=lambda x: Fraction(g(x), x - M))
    K = need // g(each)
    return max(least(k) - (k - 1) * M for k in {1, 2, K, K + 1} - {0})


def of_G(Z: Fraction | int, lam: Fraction, M: int) -> int:
    """A(Z, G) with G(X) = max(X^2/(16 lam), (X/3)^(3/2))."""
    return account(Z, M, 1 / (16 * lam), Fraction(1, 27), 3)


def form1(pairs: int, d: int, dv: int, M: int) -> int:
    """Form I on reads + n: the largest over the tried lambda, 64 of them and the best for large M."""
    lam2s = {2 * d, min(d + dv, 2 * d)} | {max(1, 2 * d * k // 64) for k in range(1, 65)}
    return max(of_G(pairs * (d + dv - Fraction(lam2, 2)), Fraction(lam2, 2), M) for lam2 in lam2s)


def form2(pairs: int, d: int, dv: int, M: int) -> int:
    """Form II on reads + n, the pairs already taken off."""
    return of_G(pairs * (d + dv), Fraction(d), M) - pairs


def simple(pairs: int, d: int, dv: int, M: int) -> int:
    """The simple floor on reads, which knows nothing of accumulators."""
    return account(pairs * dv, M, Fraction(dv, 4 * d * (d + dv)), Fraction(dv * dv), 2)


def mla(pairs: int, rows: int, d: int, dv: int, M: int) -> dict[str, int]:
    """The floors of section 9, where V is the first dv columns of K (dv <= d)."""
    s2, n = d * d + dv * dv, rows * dv
    second = account(pairs * s2, M, Fraction(s2, 16 * d * d), Fraction(s2, 27), 3) - pairs
    most = max(simple(pairs, d, dv, M), second)
    return {"total": most, "reads": most - n}


def backward(pairs: int, rows: int, keys: int, d: int, dv: int, M: int) -> dict[str, int]:
    """Floors of sections 10 and 11 on reads + writes and on reads of the gradients, not compared with compulsory.

    1/sqrt(2) is rounded down to 408/577, and other roots too. So they are a little less than the best.
    """
    if not pairs:
        return {"total": 0, "reads": 0}
    written = d * (rows + keys) + dv * keys
    Pi = 2 * (d + dv) * (2 * d + dv) if dv <= 2 * d else 4 * d * dv + (2 * d + dv) ** 2
    found = [account(pairs, M, Fraction(1, 4 * Pi), Fraction(1), 2)]
    for k in {*range(8, 257, 8), *range(1, 16)}:
        lam = d * Fraction(k, 256)
        s = Fraction(isqrt((256 - k) << 48), 2**28)  # sqrt(1 - k/256), rounded down
        Z = pairs * (Fraction(2 * 408, 577) * dv + 2 * d * s)
        found += [of_G(Z - lam * pairs, lam, M), of_G(Z, lam, M) - pairs]
    found += weighted(pairs, d, dv, M)
    return {"total": max(found), "reads": max(found) - written}


def weighted(pairs: int, d: int, dv: int, M: int) -> list[int]:
    """Forms I'' and II'' of section 11, for many t, y and z, as (p less) pairs."""
    found = []
    for h in range(89, 120, 3):
        root = Fraction(h, 120)
        nu = 2 * root * Fraction(isqrt((120 * 120 - h * h) << 40), 120 << 20)
        for k in (8, 12, 16, 19, 22, 25, 28, 32):
            y, z = (Fraction(k, 32), Fraction(1)) if dv >= d else (Fraction(1), Fraction(k, 32))
            lam = min(nu * d / y, dv / z)
            Z = pairs * ((y + z) * dv + 2 * z * root * d)
            found += [of_G(Z - lam * z * z * pairs, lam, M), of_G(Z, lam, M) - pairs]
    return found


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
