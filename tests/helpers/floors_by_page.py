"""An account of docs/floors.md computed from the text of the page alone, in whole numbers: what a floor must be.

A function g of the page is a list of its parts (c, k): g(X) is the largest of the roots of c X^k.
"""

from fractions import Fraction
from math import isqrt

BITS = 200  # so that g is larger than the page has it by less than 2^-200


def G(lam):
    """max(X^2 / (16 lam), (X/3)^(3/2))."""
    return [(1 / (16 * Fraction(lam)) ** 2, 4), (Fraction(1, 27), 3)]


def F(cross):
    """max(X^2 / cross, X)."""
    return [(Fraction(1, cross**2), 4), (Fraction(1), 2)]


def G_latent(d, dv):
    """max(s^2 X^2 / (16 d^2), s (X/3)^(3/2)), with s^2 = d^2 + dv^2."""
    norm = d * d + dv * dv
    return [(Fraction(norm, 16 * d * d) ** 2, 4), (Fraction(norm, 27), 3)]


def Pi(d, dv):
    """That of section 10."""
    return 2 * (d + dv) * (2 * d + dv) if dv < 2 * d else 4 * d * dv + (2 * d + dv) ** 2


def weighted(weights, d, dv):
    """(lambda, Z of a pair, z^2) of forms I'' and II'' for the weights h, a, b."""
    h, a, b = weights
    root, y, z = Fraction(h, 512), Fraction(a, 64), Fraction(b, 64)
    nu = max(Fraction(v, 512) for v in range(513) if Fraction(v, 512) ** 2 <= 4 * root**2 * (1 - root**2))
    return min(nu * d / y, dv / z), (y + z) * dv + 2 * z * root * d, z * z


def least(Z, parts, K):
    """S(K): the least sum of K whole numbers, equal up to 1, whose g sum to at least Z."""

    def g(X):
        return max(root_above(c * X**k * 4**BITS) for c, k in parts)

    def enough(S):
        each, larger = divmod(S, K)
        return larger * g(each + 1) + (K - larger) * g(each) >= Z * 2**BITS

    low, high = 0, K
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def root_above(x):
    """The least whole number whose square is at least x."""
    whole = -(-x.numerator // x.denominator)
    return isqrt(whole - 1) + 1 if whole > 0 else 0
