"""The floors of docs/floors.md against an exact search, a search over orders, and every inequality of the proofs."""

import csv
import random
import re
import shutil
import sys
from bisect import bisect_left
from fractions import Fraction

import pytest
from paths import DOCS, ROOT

from iosim import Attention
from iosim.counting.floors import backward_floor, forward_floor

FOLDER = ROOT / "validation" / "floors"
sys.path.append(str(FOLDER))

import by_hand  # noqa: E402
import evidence  # noqa: E402
import inequalities  # noqa: E402

COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not here")
PARTS = 2
KEPT = list(csv.DictReader((FOLDER / "results.csv").open()))
PAGE = (DOCS / "floors.md").read_text()
FORWARD, BACKWARD = ((DOCS / f"floors-{name}.md").read_text() for name in ("forward", "backward"))

# (|E|, rows, M, d = dv, floor on reads + writes, floor on reads)
VALUES = [
    (8192**2, 8192, 51200, 128, 84792361, 83743785),
    (8192**2, 8192, 116224, 128, 37957331, 36908755),
    (8192**2, 8192, 116224, 64, 9576448, 9052160),
    (65536**2, 65536, 116224, 128, 2421948004, 2413559396),
    (8192**2, 8192, 16384, 128, 201342976, 200294400),
    (8192**2, 8192, 4096, 128, 469766144, 468717568),
    (1024**2, 1024, 51200, 64, 386368, 320832),
    (8192**2, 8192, 1000000, 128, 5388608, 4340032),
    (2**48, 2**24, 116224, 128, 158717167600647, 158715020116999),
    (4096**2, 4096, 51200, 64, 5419907, 5157763),
    (8390655, 4095, 51200, 64, 2736162, 2474082),
]


@pytest.mark.parametrize("pairs, rows, M, d, total, reads", VALUES)
def test_the_formula_of_the_page_gives_the_known_values(pairs, rows, M, d, total, reads):
    """The values are equal to those of the proofs. A larger one would need a proof of its own."""
    found = by_hand.best(pairs, rows, d, d, M)
    assert (found["total"], found["reads"]) == (total, reads)


def test_whole_numbers_are_those_of_real_arithmetic():
    """The least R that all numbers of segments allow: the largest, over them, of the least sum of sizes that does it."""
    for work, lam, M in [
        (5000, Fraction(3, 2), 7),
        (12345, Fraction(4), 100),
        (99, Fraction(1), 3),
        (10**5, Fraction(50), 500),
    ]:

        def G(x, lam=lam):
            return max(x * x / (16 * lam), (x / 3) ** 1.5)

        found = 0
        for K in range(1, 400):
            S = bisect_left(range(10**6), work, key=lambda S: (S % K) * G(S // K + 1) + (K - S % K) * G(S // K))
            found = max(found, S - (K - 1) * M)
        assert by_hand.of_G(work, lam, M) == found


def test_compulsory_under_masks():
    def causal(n, at_most=99):
        return [[0 <= i - j <= at_most for j in range(n)] for i in range(n)]

    assert by_hand.compulsory(causal(16), 8, 8) == {"reads": 376, "writes": 128}
    assert by_hand.compulsory(causal(16, 0), 8, 8) == {"reads": 128, "writes": 128}
    assert by_hand.compulsory([[True]], 8, 8) == {"reads": 8, "writes": 8}


@pytest.mark.parametrize("check, times", inequalities.CHECKS, ids=lambda x: getattr(x, "__name__", ""))
def test_every_inequality_of_the_proofs(check, times):
    assert inequalities.worst(check, 7, 150 * times) <= inequalities.TINY


def test_no_kept_row_is_below_a_floor():
    """The floors are computed by today's formula, not read from the file. What the page says of the rows holds too."""
    assert len(KEPT) > 150
    for row in KEPT:
        sizes = [int(row[k]) for k in ("N", "Nk", "d", "dv", "M")]
        x = evidence.Instance(*sizes, row["cost"], row["mask"], backward=row["search"] == "backward")
        floor, must = evidence.floors(x)
        assert (int(row["floor"]), int(row["compulsory"])) == (floor, must), row
        assert not evidence.below(row), row
    for search in ("exact", "orders"):
        ours = [r for r in KEPT if r["search"] == search]
        above = [r for r in ours if int(r["floor"]) > int(r["compulsory"])]
        assert f"{len(ours)} instances" in PAGE and f"{len(above)} of them" in PAGE
        assert f"{min(float(r['ratio']) for r in ours if r['ratio']):.3f}" in PAGE
    counts = {
        kind: sum(r["found"] == kind for r in KEPT if r["search"] != "orders") for kind in ("optimum", "at-least")
    }
    assert f"For {counts['optimum']} instances it found the exact optimum" in " ".join(PAGE.split())
    assert f"For the other {counts['at-least']} it stopped" in " ".join(PAGE.split())
    gradients, adding = (
        [r for r in KEPT if r[key] == value] for key, value in (("search", "backward"), ("cost", "adds"))
    )
    assert f"backward pass: {len(gradients)} instances" in PAGE
    assert f"{len([r for r in adding if r['search'] == 'exact'])} with adds" in PAGE
    above = [r for r in gradients if int(r["floor"]) > int(r["compulsory"])]
    assert f"none below a floor; in {len(above)} of them" in PAGE
    forms = [r for r in KEPT if r["search"] != "orders" and r["ratio"] and int(r["floor"]) > int(r["compulsory"])]
    assert f"and {min(float(r['ratio']) for r in forms):.3f} of it where it is a form" in " ".join(PAGE.split())
    assert f"is {min(float(r['ratio']) for r in above if r['ratio']):.3f} of it" in PAGE


def by_segments(pairs, work, lam, K, M, price, digits):
    """(numbers of the page, the floor) for the work and lambda of a form with G and K segments."""

    def G(X):
        return max(X * X / (16 * lam), (X / 3) ** 1.5)

    Y = next(X for X in range(M, 10 * M) if K * G(X) >= work)
    r = (work - K * G(Y - 1)) / (G(Y) - G(Y - 1))
    S = K * (Y - 1) + int(r) + 1
    total = S - (K - 1) * M - price
    numbers = (f"{K:,}", f"{Y:,}", f"{Y - 1:,}", f"{G(Y):,.{digits}f}", f"{G(Y - 1):,.{digits}f}", f"{work / K:,.{digits}f}",
               f"{r:,.1f}", f"{int(r) + 1:,}", f"{S:,}", f"{total + price:,}", f"**{total:,}**")  # fmt: skip
    return numbers, total


def test_the_number_by_hand():
    """The page's example shows what Python prints."""
    pairs, n, M = 8192**2, 8192 * 128, 102400 // 2
    numbers, total = by_segments(pairs, pairs * 256, 128, 1483, M, pairs, 2)
    for number in (*numbers, f"{256 * 128**2 / 27:,.1f}", f"{M**1.5:,.1f}", f"{pairs * 256 / M**1.5:,.1f}", f"{total - n:,}",
                   f"{by_hand.form1(pairs, 128, 128, M):,}"):  # fmt: skip
        assert number in FORWARD, number
    assert total == by_hand.best(pairs, 8192, 128, 128, M)["total"] == 84792361


def test_numbers_of_the_backward_pass_by_hand():
    """Those of the page are what Python prints, and what iosim answers."""
    pairs = 8192**2
    for M, K, h, a, v, said in ((4096, 66_877, 490, 64, 284, "6.826"), (16_384, 8772, 442, 58, 446, "2.549")):
        assert int(2 * h * (512 * 512 - h * h) ** 0.5 / 512) == v
        lam, weights, price = min(v * 64 / 8 / a, 64), (a / 64 + 1) * 64 + 128 * h / 512, pairs if M == 4096 else 0
        work = pairs * (weights - (0 if price else lam))
        numbers, total = by_segments(pairs, work, lam, K, M, price, 3)
        for number in (*numbers, f"|E| x {weights:g}", f"nu = {v}/512", f"{said} |E|"):
            assert number in BACKWARD, number
        assert f"{total / pairs:.3f}" == said
        check_gradients(M, total, K, lam)
    M, K, g = 65_536, 341, 196_608
    Y = next(Y for Y in range(g, 2 * g) if pairs * g <= K * Y * Y)
    r = (pairs - K * (Y - 1) ** 2 / g) / ((Y * Y - (Y - 1) ** 2) / g)
    S = K * (Y - 1) + int(r) + 1
    for number in (f"{pairs / g:.1f}", f"{pairs / K:,.3f}", f"{Y:,}", f"{Y * Y / g:,.3f}", f"{(Y - 1) ** 2 / g:,.3f}",
                   f"ceil({r:.1f}) = {int(r) + 1}", f"{S:,}", f"**{S - 340 * M:,}**", f"{3 * 8192 * 64:,}"):  # fmt: skip
        assert number in BACKWARD, number
    check_gradients(M, S - 340 * M, K, None)


def check_gradients(M, total, K, lam):
    """What iosim answers for N = 8192 and d = 64 at M."""
    found = backward_floor(Attention(8192, 64), M)
    assert (found.words, found.segments, found.lam) == (total, K, lam)


@pytest.mark.parametrize("tries", [60, pytest.param(800, marks=pytest.mark.long)])
def test_floors_of_gradients_by_hand(tries):
    """The two programs try other lambda and T. Either may find a little more."""
    pick = random.Random(12)
    for _ in range(tries):
        N, Nk, d, dv = (pick.randint(2, pick.choice([9, 300])) for _ in range(4))
        M = pick.randint(10, pick.choice([d + 13, 2 * d * d + 18, 30 * (d + dv) ** 2]))
        other = by_hand.backward(N * Nk, N, Nk, d, dv, M)
        must = d * (N + Nk) + dv * (N + Nk)
        found = backward_floor(Attention(N, d, Nk=Nk, dv=dv), M)
        least = max(other["total"], must + d * (N + Nk) + dv * Nk)
        assert 0.98 * found.words - 9 <= least <= 1.01 * found.words + 9, (N, Nk, d, dv, M)
        assert 0.98 * found.reads - 9 <= max(other["reads"], must) <= 1.01 * found.reads + 9
        if M > 64:
            assert least <= 1.002 * found.words  # one in 800 is 0.16 % above


def test_statements_about_gradients():
    """6.83 |E| at M = d^2, 34.7 |E| at d^2 / 20, and 15 d^2, from which on section 10 is larger."""
    for x, said in ((1, "6.83 |E|"), (1 / 20, "34.7 |E|")):
        words = backward_floor(Attention(2**20, 640), int(x * 640**2)).words / 2**40
        assert f"{words:.{len(said.split('.')[1]) - 4}f} |E|" == said and said in BACKWARD
    forms = [backward_floor(Attention(2**24, 640), int(x * 640**2)).form for x in (14.5, 15.5)]
    assert forms == ["I''", "backward"] and "about 15 d^2" in BACKWARD
    few = forward_floor(Attention(2**20, 64), 3 * 2**19 * 64)
    assert (few.segments, f"{few.words / 2**26:.3f}") == (2, "4.157") and "4.157 N d" in FORWARD


def test_the_first_table():
    import iosim

    table = re.findall(r"^\| N = ([\d,]+), M = ([\d,]+) words \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|$", PAGE, re.M)
    assert len(table) == 3
    for N, M, floor, moved, ratio in ([*(int(x.replace(",", "")) for x in row[:4]), row[4]] for row in table):
        assert by_hand.best(N * N, N, 128, 128, M)["total"] == floor
        assert iosim.count(N, 128, f"{M}el", tiles="best", schedules=["flash2"])["flash2"].total == moved
        assert f"{moved / floor:.3f}" == ratio


@COMPILER
def test_exact_search_and_search_over_orders_agree(tmp_path):
    """On tiny instances the search over orders finds the exact optimum, and both are above the floor."""
    pebble, adversary = (evidence.build(name, tmp_path, "-O1") for name in ("pebble", "adversary"))
    kept = {tuple(r[k] for k in evidence.FIELDS[1:8]): r for r in KEPT if r["search"] == "exact"}
    for shape in ((2, 2, 1, 1, 2), (2, 2, 1, 1, 3), (3, 2, 1, 1, 2), (2, 2, 1, 2, 2)):
        for cost in ("reads", "total"):
            x = evidence.Instance(*shape, cost)
            found, words, _ = evidence.ask(pebble, x, 200_000)
            row = kept[(*map(str, shape), "dense", cost)]
            assert found == "optimum" == row["found"] and int(words) == int(row["words"]) >= max(evidence.floors(x))
            assert int(evidence.ask(adversary, x, 6000, 1)[0]) == int(words), x


# {the texts of an instance: its kept row}
EXACT = {tuple(row[k] for k in evidence.FIELDS[:8]): row for row in KEPT if row["search"] != "orders"}


def kept_of(x):
    search = "backward" if x.backward else "exact"
    return EXACT[search, *map(str, (x.N, x.Nk, x.d, x.dv, x.M)), x.mask, x.cost]


def most_states(x):
    """Those that find the kept optimum. A search that stopped before it, or that needed more than others may visit, has
    a few: it visits the first of the states that it visited then."""
    old = kept_of(x)
    return 700_000 if old["found"] == "optimum" and int(old["states_or_start"]) <= 700_000 else 35_000


def is_kept(row, old):
    """Whether a search found what it had found. One that stops sooner has tried the runs below a cost that is no larger."""
    new = {k: str(v) for k, v in row.items()}
    if new["found"] == "optimum":
        return new == old
    longer = ("words", "states_or_start")
    old = {**old, "found": new["found"], "ratio": new["ratio"]}
    same = all(new[k] == old[k] for k in new if k not in longer)
    return same and all(int(new[k]) <= int(old[k]) for k in longer)


@pytest.mark.early
class AllOfTheEvidence:
    """One part of all instances. Each part is a class, so that `--dist loadscope` gives them to several workers."""

    part: int

    @COMPILER
    @pytest.mark.long
    def test_again(self):
        part = slice(self.part, None, PARTS)
        found = list(evidence.rows(short=False, limit=most_states, work=1_000_000, part=part))
        assert not any(evidence.below(row) for row in found)
        for search in ("exact", "backward"):
            ours = [row for row in found if row["search"] == search]
            kept = [row for row in KEPT if row["search"] == search][part]
            assert len(ours) == len(kept) > 10 and all(map(is_kept, ours, kept))
        assert len(found) > 60


for number in range(PARTS):
    globals()[f"TestAllOfTheEvidence{number}"] = type(
        f"TestAllOfTheEvidence{number}", (AllOfTheEvidence,), {"part": number}
    )
