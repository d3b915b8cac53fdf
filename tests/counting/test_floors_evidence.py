"""The floors of docs/floors.md against an exact search, a search over orders, and every inequality of the proofs."""

import csv
import random
import re
import shutil
import sys
from math import sqrt
from operator import attrgetter

import pytest
from paths import DOCS, ROOT

from iosim import SCHEDULES, Attention, tune
from iosim.counting.floors import backward_floor

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
    (8192**2, 8192, 51200, 128, 84758228, 83709652),
    (8192**2, 8192, 116224, 128, 37899234, 36850658),
    (8192**2, 8192, 116224, 64, 9518393, 8994105),
    (65536**2, 65536, 116224, 128, 2421889892, 2413501284),
    (8192**2, 8192, 16384, 128, 201332054, 200283478),
    (8192**2, 8192, 4096, 128, 469763414, 468714838),
    (1024**2, 1024, 51200, 64, 361145, 295609),
    (8192**2, 8192, 1000000, 128, 4898047, 3849471),
    (2**48, 2**24, 116224, 128, 158717167542535, 158715020058887),
    (4096**2, 4096, 51200, 64, 5394310, 5132166),
    (8390655, 4095, 51200, 64, 2710610, 2448530),
]


@pytest.mark.parametrize("pairs, rows, M, d, total, reads", VALUES)
def test_the_formula_of_the_page_gives_the_known_values(pairs, rows, M, d, total, reads):
    """The values are equal to those of the proofs. A larger one would need a proof of its own."""
    found = by_hand.best(pairs, rows, d, d, M)
    assert (found["total"], found["reads"]) == (total, reads)


def test_whole_numbers_are_those_of_real_arithmetic():
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    for work2, lam2, M, T in [(5000, 3, 7, 14), (123456, 8, 100, 77), (99, 2, 3, 1), (10**12, 200, 5000, 10000)]:
        lam, X, work = Decimal(lam2) / 2, Decimal(M + T), Decimal(work2) / 2

        def G(x, lam=lam):
            return max(x * x / (16 * lam), (x / 3) ** Decimal("1.5"))

        value = T * work / G(X) + (Decimal(M) * M / X if work > G(Decimal(M)) else 0)
        assert by_hand.main(work2, lam2, M, T) == int(value.to_integral_value("ROUND_CEILING"))


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
    assert all(int(r["floor"]) <= int(r["compulsory"]) for r in gradients), "as the page says"


BEST_KNOWN = [
    ("dense", {"N": 8192}), ("dense, N = 512", {"N": 512}), ("`causal`", {"N": 8192, "mask": "causal"}),
    ("`causal&window:1024`", {"N": 8192, "mask": "causal&window:1024"}), ("dv = 4d", {"N": 8192, "dv": 256}),
    ("decoding, 16 heads on one KV head", {"N": 1, "Nk": 8192, "heads": 16, "kv_heads": 1, "gqa": "pack"}),
    ("backward", {"N": 8192}), ("backward, an add counted once", {"N": 8192}), ("backward, dv = 4d", {"N": 8192, "dv": 256}),
    ("backward, `causal`", {"N": 8192, "mask": "causal"}),
]  # fmt: skip


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("label, options", BEST_KNOWN, ids=[label for label, _ in BEST_KNOWN])
def test_best_known_over_floor(label, options, every):
    """The table of the page, of which the short test computes the column of d^2."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.split("<!-- best known -->")[1].strip().splitlines()]
    (_, *shares), _, *rows = lines
    assert [row[0] for row in rows] == [label for label, _ in BEST_KNOWN] and "1" in shares
    cells = dict(zip(shares, next(row for row in rows if row[0] == label)[1:], strict=True))
    names = [name for name, s in SCHEDULES.items() if s.family == "backward"] if label.startswith("backward") else ()
    ratio = attrgetter("ratio_to_floor_with_adds" if "add" in label else "ratio_to_floor")
    for share, cell in cells.items():
        if every or share == "1":
            found = tune(d=64, M=f"{int(float(share) * 4096)}el", schedules=names, **options)
            assert f"{min(ratio(r) for r in found.results if r.fits):.2f}" == cell, share


def test_the_number_by_hand():
    """The page's example shows what Python prints."""
    pairs, n, M = 8192**2, 8192 * 128, 102400 // 2
    T, G = 2 * M, max((3 * M) ** 2 / 2048, M**1.5)
    bound = T * pairs * 256 / G + M / 3
    for number in (f"{256 * 128**2 / 27:,.1f}", f"{G:,.1f}", f"{T * pairs * 256 / G:,.1f}", f"{bound:,.1f}", f"{int(bound) + 1 - pairs:,}",
                   f"{int(bound) + 1 - pairs - n:,}", f"{by_hand.form1(pairs, 128, 128, M):,}"):  # fmt: skip
        assert number in FORWARD, number
    assert int(bound) + 1 - pairs == by_hand.best(pairs, 8192, 128, 128, M)["total"] == 84758228


def test_numbers_of_the_backward_pass_by_hand():
    """Those of the page are what Python prints, and what iosim answers."""
    pairs, written = 8192**2, 3 * 8192 * 64
    for M, T, lam, h in ((4096, 5403, 31.65234375, 364), (1024, 1839, 17.376708984375, 437)):
        assert lam == 64 * (1 - (h / 512) ** 2)
        X, weights, price = M + T, sqrt(2) * 64 + 128 * h / 512, pairs if M == 1024 else 0
        work = pairs * (weights - (0 if price else lam))
        G = max(X * X / 16 / lam, (X / 3) ** 1.5)
        last = T * work / G + M * M / X
        total = int(last) + 1 - price
        digits = 4 if price else 3
        for number in (f"{T:,}", f"{weights:.7f}", f"{work:,.0f}", f"{X:,}", f"{X * X / 16 / lam:,.{digits}f}",
                       f"{(X / 3) ** 1.5:,.{digits}f}", f"{T * work / G:,.1f}", f"{M * M / X:,.1f}", f"{last:,.1f}",
                       f"**{total:,}**", f"{total / pairs:.3f} |E|"):  # fmt: skip
            assert number in BACKWARD, number
        check_gradients(M, total, T, lam)
    M, T = 32768, 163840
    last = T * pairs / (M + T) + M * M / (M + T)
    for number in (f"{T:,}", f"{T * pairs / (M + T):,.1f}", f"{last:,.1f}", f"**{int(last) + 1:,}**", f"{written:,}"):
        assert number in BACKWARD, number
    check_gradients(M, int(last) + 1, T, None)


def check_gradients(M, total, T, lam):
    """What iosim answers for N = 8192 and d = 64 at M."""
    found = backward_floor(Attention(8192, 64), M)
    assert (found.words, found.T, found.lam) == (total, T, lam)


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
            assert least <= 1.001 * found.words


def test_statements_about_gradients():
    """4.54 |E| at M = d^2, 28.4 |E| at d^2 / 20, and 5.8 d^2, from which on section 10 is larger."""
    for x, said in ((1, "4.54 |E|"), (1 / 20, "28.4 |E|")):
        words = backward_floor(Attention(2**20, 640), int(x * 640**2)).words / 2**40
        assert f"{words:.{len(said.split('.')[1]) - 4}f} |E|" == said and said in BACKWARD
    forms = [backward_floor(Attention(2**24, 640), int(x * 640**2)).form for x in (5.7, 5.85)]
    assert forms == ["I'", "backward"] and "about 5.8 d^2" in BACKWARD


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
    """Those that find the kept optimum. A search that stopped before it has a twentieth: it visits the first of the
    states that it visited then."""
    return 700_000 if kept_of(x)["found"] == "optimum" else 35_000


def is_kept(row, old):
    """Whether a search found what it had found. One that stops sooner has tried the runs below a cost that is no larger."""
    new = {k: str(v) for k, v in row.items()}
    if old["found"] == "optimum":
        return new == old
    longer = ("words", "states_or_start")
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
