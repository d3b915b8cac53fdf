"""Floors: the values of an independent computation, exact arithmetic, and no schedule below any of them."""

import json
import random
from fractions import Fraction
from functools import cache
from math import isqrt

import floors_by_page as by_page
import numpy as np
import pytest
from paths import DATA
from test_golden import CASES, DECODE, mask_of
from test_golden import NAMES as GOLDEN_NAMES

import iosim
from iosim import SCHEDULES, Attention, Tiling, floor
from iosim.counting import floors, forms
from iosim.counting.count import count
from iosim.counting.floor_arrays import floor_words
from iosim.counting.floors import backward_floor, forward_floor
from iosim.counting.run import measure
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.masks.visible import Visible
from iosim.schedules import require
from iosim.search.best import best_tiles

KNOWN = json.loads((DATA / "floors.json").read_text())


def words(schedule, problem, tiling):
    """(peak words, reads, total) of one run."""
    found = measure(SCHEDULES[schedule], problem.packed, tiling)
    return found["sram_peak_words"], found["reads"], found["total"]


@pytest.mark.parametrize("known", KNOWN["floors"], ids=lambda k: f"{k['pairs']}-{k['M']}-{k['d']}")
def test_known_values(known):
    seen, d, dv, M = Visible(known["pairs"], known["rows"], 0, known["rows"], 0), known["d"], known["dv"], known["M"]
    found = list(forms.forward_forms(seen, d, dv, M))
    best = max(form.best(M)[0] for form in found if form.written)
    assert best == known["total"] and best - dv * known["rows"] == known["reads"]
    assert [form.best(M)[0] for form in found if not form.written] == [known["simple_reads"]]


@pytest.mark.parametrize("known", KNOWN["forms"], ids=lambda k: f"{k['form']}-{k['M']}")
def test_known_forms(known):
    """Floors of one form, computed by two other programs. The first of the numbers of segments is the best."""
    N, Nk, d, dv, M = (known[name] for name in ("N", "Nk", "d", "dv", "M"))
    seen = floors.seen_by_group(Attention(N, d, Nk, dv, mask=parse_mask(known["mask"])), None)
    written, (*given,) = dv * seen.rows, known["given"]
    form = {
        "I": lambda: forms.form_one(seen.pairs, d, dv, 2 * given[0], written),
        "II": lambda: forms.form_one(seen.pairs, d, dv, 2 * d, written, seen.pairs),
        "simple": lambda: forms.simple_form(seen.pairs, d, dv),
        "backward": lambda: forms.backward_form(seen, d, dv),
        "I''": lambda: forms.weighted_form(seen, d, dv, tuple(given)),
        "II''": lambda: forms.weighted_form(seen, d, dv, tuple(given), seen.pairs),
    }[known["form"]]()
    gradients = "'" in form.name or form.name == "backward"
    writes = d * (seen.rows + seen.keys) + dv * seen.any_keys if gradients else dv * seen.any_rows
    more = writes - form.written
    assert form.name == known["form"] and form.best(M)[0] + more == known["floor"]
    assert form.reached(M, known["segments"]) + more == known["floor"]


@pytest.mark.parametrize("known", KNOWN["compulsory"], ids=lambda k: f"{k['N']}-{k['mask']}")
def test_known_compulsory(known):
    problem = Attention(known["N"], known["d"], mask=parse_mask(known["mask"]))
    found = floor(problem)
    assert (found.reads, found.words - found.reads) == (known["reads"], known["writes"])
    assert (found.pairs, found.rows, found.form) == (known["pairs"], known["rows"], "compulsory")
    assert found.segments is None and found.lam is None


def test_headline():
    problem = Attention(8192, 128)
    found = floor(problem, "100KB")
    assert (found.words, found.reads, found.form) == (84792361, 83743785, "II")
    _, _, total = words("flash2", problem, Tiling(196, 1))
    assert total == 90177536 and round(total / found.words, 3) == 1.064


def test_by_hand():
    """The floor is computed again from the other numbers of the answer, with 1,483 segments of 153,594 words or less."""
    found = floor(Attention(8192, 128), "100KB")
    K, each = found.segments, 153_593
    assert (K, found.lam, found.pairs, found.rows) == (1483, 128, 8192**2, 8192)
    work, most = found.pairs * (128 + 128), [max(X * X / (16 * 128), (X / 3) ** 1.5) for X in (each, each + 1)]
    larger = (work - K * most[0]) / (most[1] - most[0])
    assert 0 < larger < K
    assert found.words == K * each + int(larger) + 1 - (K - 1) * found.M_words - found.pairs


# Exact arithmetic


def random_form(pick):
    """A form with random numbers, and what the pages state about it: Z, the parts of g, and the price."""
    pairs, d, dv = pick.randint(1, 10 ** pick.randint(1, 8)), pick.randint(1, 40), pick.randint(1, 40)
    seen, price = Visible(pairs, 3, 5, 3, 5), pick.choice([None, pairs])
    less, h = price is None, pick.randrange(1, forms.PARTS)
    s = Fraction(h, forms.PARTS)
    kind = pick.choice(["one", "simple", "backward", "latent", "gradients", "weighted"])
    if kind == "one":
        lam = Fraction(pick.randint(1, 2 * d) if less else 2 * d, 2)
        form = forms.form_one(pairs, d, dv, int(2 * lam), dv, price)
        return form, pairs * (d + dv - less * lam), by_page.G(lam), price
    if kind == "simple":
        return forms.simple_form(pairs, d, dv), Fraction(pairs), by_page.F(4 * d * (d + dv)), None
    if kind == "backward":
        return forms.backward_form(seen, d, dv), Fraction(pairs), by_page.F(4 * by_page.Pi(d, dv)), None
    if kind == "latent":
        d, dv = max(d, dv), min(d, dv)
        return forms.latent_form(pairs, d, dv, 1), Fraction(pairs * (d * d + dv * dv)), by_page.G_latent(d, dv), pairs
    if kind == "gradients":
        lam = (1 - s * s) * d
        Z = pairs * (2 * forms.HALF * dv + 2 * d * s - less * lam)
        return forms.gradients_form(seen, d, dv, h, price), Z, by_page.G(lam), price
    weights = (h, *((64, pick.randint(1, 64)) if dv < d else (pick.randint(1, 64), 64)))
    lam, Z, square = by_page.weighted(weights, d, dv)
    form = forms.weighted_form(seen, d, dv, weights, price)
    assert form.lam == lam and form.written == d * 8 + dv * 5
    return form, pairs * (Z - less * lam * square), by_page.G(lam), price


@pytest.mark.parametrize("tries", [500, pytest.param(20_000, marks=pytest.mark.long)])
def test_an_account_is_the_least_that_its_segments_allow(tries):
    """For any K. Rounding g up to multiples of 2^-64 makes a floor smaller, and seldom by a word."""
    pick, less = random.Random(8), 0
    for _ in range(tries):
        form, Z, parts, price = random_form(pick)
        M, K = pick.randint(1, 2000), int(10 ** pick.uniform(0, 6))
        if Z > 0:
            exact = by_page.least(Z, parts, K) - (K - 1) * M - (price or 0)
            assert 0 <= exact - form.reached(M, K) <= 1, form
            less += exact > form.reached(M, K)
    assert less <= tries / 100


def test_half_and_nu_are_rounded_down():
    assert 0 <= 1 - 2 * forms.HALF**2 < Fraction(1, 10**18)
    for h in range(1, forms.PARTS):
        v, square = forms.nearly(h), 4 * h * h * (forms.PARTS**2 - h * h)
        assert 0 < v * v * forms.PARTS**2 <= square < (v + 1) ** 2 * forms.PARTS**2


@pytest.mark.parametrize("tries", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_no_other_number_of_segments_is_better(tries):
    pick = random.Random(9)
    for _ in range(tries):
        form, Z, _, _ = random_form(pick)
        M = pick.randint(1, 2000)
        if Z > 0:
            words, K = form.best(M)
            others = {1, 2, 3, K - 1, K + 1, K + 2, *(max(1, int(K * pick.uniform(0.5, 2))) for _ in range(20))}
            assert words == max(form.reached(M, other) for other in others | {K} if other > 0), form


def test_where_X_is_a_few_words():
    problem = Attention(2, 1, Nk=128, heads=8, kv_heads=1, latent=True, mask=parse_mask("strided:3"))
    found = forward_floor(problem, 2)
    assert (found.words, found.form, found.segments) == (635, "latent II", 440)


@pytest.mark.parametrize("d, dv", [(8, 8), (16, 3), (6, 24), (30, 60)])
def test_the_chosen_part_is_nearly_the_best(d, dv):
    """No other lambda gives form I' or II' that is better by a share of 2e-3."""
    seen = Visible(10**8, 10**4, 10**4, 10**4, 10**4)
    for M in (d, d * d // 4, d * d, 3 * d * d, 9 * d * d):
        for less, price in ((1, None), (0, seen.pairs)):
            chosen = forms.gradients_form(seen, d, dv, forms.best_part(d, dv, M, less), price).best(M)[0]
            every = (forms.gradients_form(seen, d, dv, h, price) for h in range(0, forms.PARTS, 3))
            best = max(form.best(M)[0] for form in every)
            assert chosen >= best * (1 - 2e-3) - 2 or best < 0


@pytest.mark.parametrize("d, dv", [(8, 8), (16, 8), (6, 24), (30, 60)])
def test_the_chosen_weights_are_nearly_the_best(d, dv):
    """No others give form I'' or II'' that is better by a share of 4e-3. All h and a or b are tried, in floats, as the
    account is not what they are chosen by."""
    for M in (d, d * d // 4, d * d, 3 * d * d, 9 * d * d, 20 * d * d):
        for less in (0, 1):
            h, a, b = forms.best_weights(d, dv, M, less)
            chosen = forms.weighted_value(h, a if dv >= d else b, d, dv, M, less)
            every = ((h, k) for h in range(1, forms.PARTS, 2) for k in range(1, 65))
            assert chosen >= (1 - 4e-3) * max(forms.weighted_value(h, k, d, dv, M, less) for h, k in every)


def test_roots():
    for top in range(200):
        for bottom in range(1, 12):
            y = forms.root_above(top, bottom)
            assert y * y * bottom >= top and (y == 0 or (y - 1) ** 2 * bottom < top)
    assert forms.root_above(10**80, 1) == 10**40 and isqrt(10**80 + 1) == 10**40


def test_no_other_lambda_is_much_better():
    """The chosen lambda is within a few words of the best of all. That it is valid needs no test."""
    pick = random.Random(4)
    for _ in range(60):
        d, dv, pairs = pick.randint(1, 12), pick.randint(1, 12), 10**8
        M = pick.randint(1, 6 * (d + dv) ** 2)
        chosen = max(forms.form_one(pairs, d, dv, lam2, 0).best(M)[0] for lam2 in forms.lambdas(M, d, dv))
        best = max(forms.form_one(pairs, d, dv, lam2, 0).best(M)[0] for lam2 in range(1, 2 * d + 1))
        assert chosen >= best * (1 - 1e-3) - 2


# No schedule moves less than a floor

MASKS = (
    "dense", "dense", "dense", "causal", "causal", "window:{0}", "global:{0}", "strided:{1}",
    "causal & window:{0}", "causal & strided:{1} | global:1", "window:{0} | global:{1}", "~window:{0}",
    "causal:b", "window:1b", "global:1b | window:{0}",
)  # fmt: skip


@cache
def of_family(family):
    return tuple(name for name, s in SCHEDULES.items() if s.family == family)


def tiling_of(pick, schedule, problem):
    """Random tiles. Some are like good ones: large in the outer loop, small in the inner loop."""
    s = SCHEDULES[schedule]
    if "ideal" in s.rules:
        return Tiling(1, 1)
    rows, keys = (pick.randint(1, max(1, length // pick.randint(1, 4))) for length in (problem.N, problem.Nk))
    shape = pick.choice(["any", "outer", "outer"])
    if shape == "outer":
        rows, keys = (rows, 1) if s.outer == "queries" else (1, keys)
    more = {}
    for name in s.more_tiles:
        most = {"depth": problem.d, "rows_o": problem.N, "cols_o": max(problem.d, problem.dv), "kept": problem.Nk}[name]
        more[name] = pick.choice([1, most, pick.randint(1, most)])
    return Tiling(rows, keys, **more)


def random_problem(pick):
    d = pick.choice([1, 2, 3, 4, 8, 16, 32])
    dv = d if pick.random() < 0.6 else pick.randint(1, 40)
    N = pick.randint(1, pick.choice([3, 40, 200]))
    Nk = N if pick.random() < 0.5 else pick.randint(1, pick.choice([3, 40, 200]))
    mask = parse_mask(pick.choice(MASKS).format(pick.randint(0, 9), pick.randint(1, 9)))
    kv_heads = pick.choice([1, 1, 1, 2])
    heads = kv_heads * pick.choice([1, 1, 2, 4])
    pack = "pack" if str(mask) == "dense" and pick.random() < 0.4 else "repeat"
    options = {"lse": pick.random() < 0.1, "splits": pick.randint(1, 5), "page_size": pick.randint(1, 20)}
    latent = dv <= d and pick.random() < 0.2
    return Attention(N, d, Nk, dv, pick.randint(1, 2), heads, kv_heads, mask=mask, gqa=pack, latent=latent, **options)


def counted(pick, family):
    """(schedule, problem, tiling, peak words, reads, total) of a random run."""
    while True:
        schedule, problem = pick.choice(of_family(family)), random_problem(pick)
        tiling = tiling_of(pick, schedule, problem)
        try:
            require(SCHEDULES[schedule], problem)
            return schedule, problem, tiling, *words(schedule, problem, tiling)
        except InputError:
            continue


FLOORS = {"attention": forward_floor, "backward": backward_floor}


def least_ratios(family, runs, seed=0):
    """The least ratios of words and of reads to their floors, of random runs in exactly the memory that each needs."""
    pick, total_ratio, reads_ratio = random.Random(seed), 9.0, 9.0
    of_theorem = 0
    for _ in range(runs):
        schedule, problem, tiling, peak, reads, total = counted(pick, family)
        least = FLOORS[family](problem, peak, tiling)
        assert total >= least.words and reads >= least.reads, (schedule, problem, tiling, peak, least)
        if adds := SCHEDULES[schedule].adds:  # with each add counted once the floor holds too
            moved = measure(SCHEDULES[schedule], problem.packed, tiling)["tensors"]
            assert total - sum(moved[name]["reads"] for name in adds) >= least.words, (schedule, problem, tiling)
        of_theorem += least.form != "compulsory"
        if least.words:
            total_ratio, reads_ratio = min(total_ratio, total / least.words), min(reads_ratio, reads / least.reads)
    assert of_theorem > runs / 20, "it is not compulsory everywhere"
    return total_ratio, reads_ratio


@pytest.mark.parametrize("runs", [400, pytest.param(8000, marks=pytest.mark.long)])
def test_no_schedule_is_below(runs):
    total_ratio, reads_ratio = least_ratios("attention", runs)
    assert total_ratio < 1.2 and reads_ratio < 1.2, "and some come near"


@pytest.mark.parametrize("runs", [600, pytest.param(15_000, marks=pytest.mark.long)])
def test_no_backward_pass_is_below(runs):
    total_ratio, reads_ratio = least_ratios("backward", runs)
    assert total_ratio < 1.3 and reads_ratio < 1.3


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['id']}-{c['schedule']}")
def test_no_known_count_is_below(case, tmp_path):
    problem = Attention(case["N"], case["d"], mask=parse_mask(mask_of(case.get("mask", {"type": "dense"}), tmp_path)))
    schedule, tiling = GOLDEN_NAMES[case["schedule"]], Tiling(case.get("Br", 1), case.get("Bc", 1))
    peak, _, _ = words(schedule, problem, tiling)
    least = FLOORS[SCHEDULES[schedule].family](problem, peak, tiling)
    assert case["total"] >= least.words and case["reads"] >= least.reads


# Cases that are tight


@pytest.mark.parametrize("case", DECODE, ids=lambda c: f"{c['id']}-decode")
def test_packed_decoding_is_optimal(case):
    problem = Attention(
        1, case["d"], case["Tk"], batch=case["batch"], heads=case["Hq"], kv_heads=case["Hkv"], gqa="pack"
    )
    group, d = case["Hq"] // case["Hkv"], case["d"]
    least = forward_floor(problem, 2 * group * d + 2 * d + 3 * group)
    assert least.words == case["total"] and least.reads == case["reads"]
    assert words("flash2", problem, Tiling(group, 1))[1:] == (least.reads, least.words)
    assert least.instances == case["batch"] * case["Hkv"] and least.rows == group


@pytest.mark.parametrize("times", [5, 6, 7, 8])
def test_flash2_is_optimal_in_large_memories(times):
    d = 1024
    problem, M = Attention(2**24, d), times * d * d
    found = words("flash2", problem, best_tiles(SCHEDULES["flash2"], problem, 2 * M))
    least = forward_floor(problem, M)
    assert least.form == "I" and found[0] <= M
    assert 1 < found[2] / least.words < 1.0025 and 1 < found[1] / least.reads < 1.0025


@pytest.mark.parametrize("d, most", [(64, 1.034), (256, 1.008), (1024, 1.0021)])
def test_small_cache_q_reads_least_at_d_squared(d, most):
    problem = Attention(16 * 1024 * d, d)
    found = words("small-cache-q", problem, best_tiles(SCHEDULES["small-cache-q"], problem, 2 * d * d))
    least = forward_floor(problem, d * d)
    assert 1 < found[1] / least.reads < most and least.form == "II"


def test_flash2_bwd_reads_little_more_than_it_must():
    problem, M = Attention(2**18, 64), 30 * 64**2
    found = words("flash2-bwd", problem, best_tiles(SCHEDULES["flash2-bwd"], problem, 2 * M))
    least = backward_floor(problem, M)
    assert least.form == "backward" and 1 < found[1] / least.reads < 1.026 and 1 < found[2] / least.words < 1.37


# What a floor is about


def test_heads_that_share_keys_are_one_instance():
    one = floor(Attention(4096, 64, heads=1), "16KB")
    apart = floor(Attention(4096, 64, heads=4, batch=3), "16KB")
    assert apart.words == 12 * one.words and apart.instances == 12 and apart.pairs == one.pairs
    shared = floor(Attention(4096, 64, heads=4, kv_heads=1, batch=3), "16KB")
    assert shared.instances == 3 and shared.pairs == 4 * one.pairs and shared.rows == 4 * one.rows
    tall = floor(Attention(4 * 4096, 64, Nk=4096), "16KB")
    assert shared.words == 3 * tall.words and shared.reads == 3 * tall.reads


def test_packed_and_repeated_heads_have_the_same_floor():
    sizes = {"N": 300, "d": 16, "heads": 8, "kv_heads": 2}
    assert floor(Attention(**sizes, gqa="pack"), "2KB") == floor(Attention(**sizes), "2KB")


def test_narrow_accumulators_make_room():
    wide, narrow = (floor(Attention(512, 16, dtype="fp32", acc_dtype=acc), "4KB") for acc in ("fp32", "fp16"))
    assert (wide.M_words, narrow.M_words) == (1024, 2048) and narrow.words < wide.words
    assert floor(Attention(512, 16, acc_dtype="fp32"), "4KB").M_words == 2048


def test_rows_that_see_one_key_need_no_scores():
    found = floor(Attention(64, 8, mask=parse_mask("window:0")), "1KB")
    assert (found.words, found.reads, found.pairs) == (2 * 64 * 8, 64 * 8, 0)
    assert floor(Attention(64, 8, Nk=1), "1KB").words == 8 + 64 * 8, "one V row, all of O"
    assert floor(Attention(1, 8), "1KB").words == 16
    nothing = floor(Attention(64, 8, mask=parse_mask("window:0 & ~window:0")), "1KB")
    assert nothing.words == nothing.reads == 0


def test_a_statistic_for_nothing_saves_a_word():
    """The counterexample of docs/floors.md, section 3: with the mean of K, or with LSE, the second key need not be read."""
    q, keys, values = 0.7, np.array([0.3, -1.1]), np.array([2.0, 5.0])
    p = np.exp(q * keys) / np.exp(q * keys).sum()
    mean, lse = keys.mean(), np.log(np.exp(q * keys).sum())
    read = [q, keys[0], *values]
    by_mean = np.exp([read[0] * read[1], read[0] * (2 * mean - read[1])])
    first = np.exp(read[0] * read[1] - lse)
    for weights in (by_mean / by_mean.sum(), np.array([first, 1 - first])):
        assert weights @ read[2:] == pytest.approx(p @ values)
    assert len(read) + 1 == 5 and floor(Attention(1, 1, Nk=2)).words == 6


def test_tiny_memories():
    assert floor(Attention(64, 8), 1).form == "compulsory", "not one word"
    for M in range(1, 40):
        least, more = forward_floor(Attention(64, 8), M), forward_floor(Attention(64, 8), M + 1)
        assert least.words >= more.words > 0 and least.reads >= more.reads


def test_masks_of_tiles_have_a_floor_for_given_tiles():
    problem = Attention(256, 16, mask=parse_mask("window:1b"))
    with pytest.raises(InputError, match="depends on the tiles"):
        floor(problem, "4KB")
    assert floor(problem, "4KB", Tiling(8, 8)).pairs < floor(problem, "4KB", Tiling(16, 16)).pairs


def test_gradients_of_other_widths():
    sizes = {"N": 64, "d": 8, "dv": 16}
    compulsory = backward_floor(Attention(**sizes), None)
    assert compulsory.words == 64 * (8 + 8 + 16 + 16) + 64 * (8 + 8 + 16) and compulsory.form == "compulsory"
    small, large = (backward_floor(Attention(2**14, 8, dv=16), M) for M in (64, 2400))
    assert (small.form, large.form) == ("II''", "backward") and small.words > large.words > 256 * compulsory.words


@pytest.mark.parametrize("dv, four_pi", [(16, 92_160), (64, 196_608), (128, 393_216), (256, 851_968)])
def test_large_memories_for_gradients_of_any_width(dv, four_pi):
    """For M = 2 Pi the floor is |E| / 2 + M, and a little less as segments are whole."""
    M, problem = four_pi // 2, Attention(4096, 64, dv=dv)
    found = forms.backward_form(floors.seen_by_group(problem, None), 64, dv)
    words, K = found.best(M)
    assert (
        0 <= 4096**2 // 2 + M - words <= 3e-4 * words
        and 4096**2 // four_pi <= K
        and found.written == 4096 * (2 * 64 + dv)
    )
    assert backward_floor(problem, M).words >= words


@pytest.mark.parametrize("dv", [16, 64, 128])
def test_flash2_bwd_reads_little_more_than_it_must_for_other_widths(dv):
    """flash2-bwd reads Pi |E| / M to leading order."""
    d, problem = 64, Attention(2**20, 64, dv=dv)
    M = 5 * (d + dv) * (2 * d + dv)
    found = words("flash2-bwd", problem, best_tiles(SCHEDULES["flash2-bwd"], problem, 2 * M))
    assert found[0] <= M and 1 < found[1] / backward_floor(problem, M).reads < 1.035


def test_gradients_in_a_small_memory():
    """At M = d^2 and d = dv the floor is 6.82 |E| to leading order."""
    found = backward_floor(Attention(2**20, 64), 64**2)
    assert 6.82 < found.words / 2**40 < 6.83 and found.form == "II''"
    assert 34.7 < backward_floor(Attention(2**20, 640), 640**2 // 20).words / 2**40 < 34.9
    forms_of = [backward_floor(Attention(2**20, 640), int(x * 640**2)).form for x in (14.5, 15.5)]
    assert forms_of == ["I''", "backward"]
    narrow = backward_floor(Attention(2**20, 64, dv=8), 64**2)
    others = [forms.weighted_form(Visible(2**40, 2**20, 2**20, 0, 0), 64, 8, forms.best_weights(64, 8, 4096, less), price)
              for less, price in ((1, None), (0, 2**40))]  # fmt: skip
    assert narrow.form in ("I'", "II'") and narrow.words > 1.7 * max(form.best(4096)[0] for form in others)


def test_gradients_through_one_key():
    """With one key p is 1, whatever the scores are. dV is the sum of dO, and nothing else is read or written."""
    found = backward_floor(Attention(64, 8, mask=parse_mask("window:0")), 1000)
    assert (found.words, found.reads) == (2 * 64 * 8, 64 * 8)


# Latent attention


def mla_floor(problem, M_words):
    return floors.mla_floor(problem, M_words, floors.seen_by_group(problem, None))


def test_latent_attention():
    one = mla_floor(Attention(64, 576, Nk=4096, dv=512, heads=128, kv_heads=1), None)
    assert one.words == 128 * 64 * (576 + 512) + 4096 * 576, "one read serves K and V"
    with pytest.raises(InputError, match="V is part of K"):
        mla_floor(Attention(64, 8, dv=16), 100)


@pytest.mark.parametrize("M", [1_000, 10_000, 300_000, 2_000_000])
def test_latent_attention_moves_less_than_with_a_V_of_its_own(M):
    problem = Attention(8192, 576, dv=512)
    assert mla_floor(problem, M).words <= 1.0001 * forward_floor(problem, M).words


# Many at once, for sweeps


def random_sizes(pick, length):
    """Sizes of many problems: powers of two and any others."""
    kv_heads = [pick.choice([1, 2]) for _ in range(length)]
    return {
        "N": [pick.choice([1, 2, 1024, pick.randint(1, 5000)]) for _ in range(length)],
        "Nk": [pick.choice([1, 2, 1024, pick.randint(1, 5000)]) for _ in range(length)],
        "d": [pick.choice([1, 8, 64, 128, pick.randint(1, 300)]) for _ in range(length)],
        "dv": [pick.choice([1, 8, 64, 128, pick.randint(1, 300)]) for _ in range(length)],
        "batch": [pick.choice([1, 3]) for _ in range(length)],
        "heads": [pick.choice([1, 4]) * kv for kv in kv_heads],
        "kv_heads": kv_heads,
    }


@pytest.mark.parametrize("family", FLOORS)
@pytest.mark.parametrize("mask", ["dense", "causal", "window:3 | global:1", "window:0"])
@pytest.mark.parametrize("length", [100, pytest.param(5_000, marks=pytest.mark.long)])
def test_many_at_once_are_the_same(family, mask, length):
    pick = random.Random(3)
    sizes = random_sizes(pick, length)
    M = [2 ** pick.randint(1, 20) if pick.random() < 0.4 else pick.randint(2, 10**5) for _ in range(length)]
    arrays = Attention(**{name: np.array(values) for name, values in sizes.items()}, mask=parse_mask(mask))
    found = floor_words(arrays, np.array(M), family, length)
    for k, words in enumerate(found):
        one = Attention(**{name: values[k] for name, values in sizes.items()}, mask=parse_mask(mask))
        exact = FLOORS[family](one, M[k] // 2).words
        room = one.instances + 2e-14 * exact
        assert words == exact or (exact == 0 and np.isnan(words)) or exact - room <= words < exact


# What is printed is what the pages state


def stated(found, seen, latent, backward):
    """(n or n', the least integer of the right side) of the form of an answer, for one instance, computed from the
    statements of docs/floors*.md, its K, its lambda and its weights."""
    E, d, dv, lam, one, less = seen.pairs, found.d, found.dv, Fraction(found.lam or found.d), 0, 0
    if found.weights:
        lam, one, square = by_page.weighted(found.weights, d, dv)
        assert float(lam) == found.lam
        less = lam * square
    elif "'" in found.form:
        one, less = 2 * forms.HALF * dv + 2 * d * Fraction(isqrt(int((1 - lam / d) * 2**18)), 2**9), lam
    G = by_page.G(lam)
    Z, parts, price = {
        "simple": (E, by_page.F(4 * d * (d + dv)), 0),
        "I": (E * (d + dv - lam), G, 0),
        "II": (E * (d + dv), G, E),
        "latent": (E, by_page.F(4 * d * (d + dv)), 0),
        "latent II": (E * (d * d + dv * dv), by_page.G_latent(d, dv), E),
        "backward": (E, by_page.F(4 * by_page.Pi(d, dv)), 0),
        **{form: (E * (one - less), G, 0) for form in ("I'", "I''")},
        **{form: (E * one, G, E) for form in ("II'", "II''")},
    }[found.form]
    n = found.rows * dv if not backward else d * (found.rows + seen.keys) + seen.keys * dv
    assert latent == found.form.startswith("latent") and backward == ("'" in found.form or found.form == "backward")
    K = found.segments
    value = by_page.least(Fraction(Z), parts, K) - (K - 1) * found.M_words - price
    return 0 if found.form == "simple" else n, value


@pytest.mark.parametrize("tries", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_is_printed_is_what_the_pages_state(tries):
    """The words of a floor are the right side of its form and the output words that it does not count: those of rows with
    one key, and of keys that only such rows see."""
    pick, seen_forms, smaller = random.Random(14), set(), 0
    for _ in range(tries):
        backward, latent = pick.choice([(False, False), (True, False), (True, False), (False, True)])
        d = pick.choice([1, 2, 5, 8, 32])
        dv = pick.randint(1, d if latent else 5 * d)
        mask = parse_mask(pick.choice(["dense", "causal", "documents:1,1,20", "window:1|global:1", "window:0"]))
        N = pick.choice([22, 22, 200]) if "documents" not in str(mask) else 22
        problem = Attention(N, d, dv=dv, heads=2, kv_heads=pick.choice([1, 2]), mask=mask, latent=latent)
        M = max(1, int(2 ** pick.uniform(1, 14)))
        found = (backward_floor if backward else forward_floor)(problem, M)
        seen_forms.add(found.form)
        if found.form == "compulsory":
            continue
        seen = floors.seen_by_group(problem, None)
        n, value = stated(found, seen, latent, backward)
        writes = d * (seen.rows + seen.keys) + dv * seen.any_keys if backward else dv * seen.any_rows
        more = value + writes - n - found.words // found.instances
        assert found.writes == writes and 0 <= more <= 1, (problem, M, found)
        smaller += more
    assert seen_forms >= {"I", "II", "latent", "latent II", "backward", "I''", "II''"} and smaller <= tries / 100


@pytest.mark.parametrize("sizes, M, backward, words, more", [
    ({"N": 8192, "d": 64, "dv": 32, "latent": True}, 51200, False, 8_104_257, 0),
    ({"N": 1024, "d": 64, "mask": parse_mask("documents:1,1023")}, 8192, True, 4_590_808, 64),
])  # fmt: skip
def test_output_words_that_a_form_does_not_count_are_added(sizes, M, backward, words, more):
    found = (backward_floor if backward else forward_floor)(Attention(**sizes), M)
    assert (found.words, found.writes - found.written) == (words, more)


def test_the_simple_floor_counts_no_output_word():
    found = forward_floor(Attention(1000, 2, Nk=6, dv=60), 80)
    assert (found.form, found.reads, found.words) == ("simple", 5_096, 5_096 + 1000 * 60)


# Planted mistakes


def louder(form):
    return form._replace(work=form.work * 107 / 100)


def without_price(form):
    return form._replace(price=0)


def twice_the_keys(seen):
    return seen._replace(keys=2 * seen.keys, any_keys=2 * seen.any_keys)


def tight():
    """Assert what the tests above say about the tight cases and about random ones."""
    for times in (5, 8):
        test_flash2_is_optimal_in_large_memories(times)
    test_small_cache_q_reads_least_at_d_squared(1024, 1.0021)
    test_packed_decoding_is_optimal(next(c for c in DECODE if c["Hq"] > c["Hkv"]))
    test_flash2_bwd_reads_little_more_than_it_must()
    for known in KNOWN["compulsory"]:
        test_known_compulsory(known)
    for family in FLOORS:
        least_ratios(family, 150)


def test_without_a_mistake_all_is_well():
    tight()


def plant(name, change, patch):
    """Apply `change` to what the function `name` returns, in the files of floors and of forms."""
    for module in (floors, forms):
        if right := getattr(module, name, None):
            patch.setattr(module, name, lambda *given, right=right, **more: change(right(*given, **more)))


@pytest.mark.parametrize(
    "name, change",
    [
        ("form_one", louder),  # by 7 %
        ("backward_form", louder),
        ("weighted_form", louder),
        ("form_one", without_price),
        ("seen_by_group", twice_the_keys),
        ("seen_by_group", lambda seen: seen._replace(rows=seen.any_rows)),
        ("seen_by_group", lambda seen: seen._replace(any_rows=seen.any_rows + 1)),
        ("seen_by_group", lambda seen: seen._replace(pairs=2 * seen.pairs)),
        ("sram_words", lambda M: M and M // 2),
        ("form_one", lambda form: form._replace(other=(form.other[0] / 4, 3))),
        ("simple_form", lambda form: form._replace(work=3 * form.work)),
    ],
)
def test_a_planted_mistake_is_noticed(name, change, monkeypatch):
    plant(name, change, monkeypatch)
    with pytest.raises(AssertionError):
        tight()
        test_headline()
        test_gradients_in_a_small_memory()


def test_keys_read_for_each_query_head_are_noticed(monkeypatch):
    """The planted mistake counts K and V once for each query head, as if GQA shared nothing."""
    right = floors.seen_by_group

    def apart(problem, tiles):
        group = problem.heads // problem.kv_heads
        seen = right(problem, tiles)
        return seen._replace(keys=group * seen.keys, any_keys=group * seen.any_keys)

    monkeypatch.setattr(floors, "seen_by_group", apart)
    with pytest.raises(AssertionError):
        tight()


@pytest.mark.parametrize("family, schedule", [("state", "state-fused"), ("matmul", "matmul-tiled")])
def test_heads_of_a_group_share_what_other_families_read(family, schedule):
    """Packed heads read K and V, or B, once. Even so no count is below the compulsory words."""
    report = iosim.count(16, 4, "1000el", heads=8, kv_heads=1, gqa="pack", schedules=[schedule])
    floor = next(b.words for b in report.bounds if b.name == f"{family}: compulsory")
    assert floor <= report[schedule].total


@pytest.mark.parametrize(
    "sizes, schedule, words",
    [
        ({"N": 16, "d": 1, "normalise": True}, "state-fused", 48),
        ({"N": 4, "d": 4, "normalise": True}, "state-fused", 60),
        ({"N": 4, "d": 4, "Nk": 1}, "softmax-3pass", 4),
    ],
)
def test_inputs_that_the_output_does_not_depend_on(sizes, schedule, words):
    """For d = 1 Q cancels. A single key has weight 1, whatever Q and K are. The first causal query sees one key."""
    report = iosim.count(**sizes, M="100KB", tiles="1x1", schedules=[schedule])
    assert next(b.words for b in report.bounds if b.name.endswith(": compulsory")) == words


def test_no_floor_is_said_with_dropout():
    """A row whose pairs are all dropped is zero, whatever the inputs are. So it needs none of them."""
    from iosim.masks.dropout import Dropout

    report = iosim.count(4, 4, "1KB", schedules=["flash2"], dropout=Dropout(0.5, 0))
    assert report["flash2"].ratio_to_floor is None
    assert [b.words for b in report.bounds if b.kind == "floor"] == [None, None]


def test_a_latent_key_that_only_single_sights_see_is_read_in_part():
    """With window:0 a query sees its own key alone. Then the weights are 1 and no key matters, but its first dv words
    are the value: N dv words are read and N dv written. With causal the last key is seen by one query, which sees
    others."""
    alone = Attention(6, 8, dv=4, latent=True, mask=parse_mask("window:0"))
    assert floor(alone).words == 2 * 6 * 4
    causal = Attention(6, 8, dv=4, latent=True, mask=parse_mask("causal"))
    assert floor(causal).words == 8 * (5 + 6) + 6 * 4, "the first query sees one key, which others see too"


def test_registers_hold_words_of_the_floor():
    p = Attention(256, 64, register_bytes=4096)
    assert floor(p, 8192).words == floor(Attention(256, 64), 8192 + 4096).words < floor(Attention(256, 64), 8192).words


@pytest.mark.parametrize("mask", ["dense", "causal", "window:5"])
def test_without_M_given_tiles_have_the_floor_of_an_sram_with_room_for_them(mask):
    """The count says the same as at the M that holds the tiles exactly."""
    rng, names = random.Random(4), "flash1,flash2,standard-tiled,small-cache-bwd,standard"
    for _ in range(8):
        p = {"N": rng.randint(20, 99), "d": rng.randint(2, 40), "mask": mask, "heads": 2}
        tiles = f"{rng.randint(1, 20)}x{rng.randint(1, 20)}"
        found = count(**p, schedules=names, tiles=tiles)
        for row in found:
            M = row.smem_peak_bytes if row.tiling == "given" else None
            at, below = (count(**p, tiles=tiles, M=M and M - less, schedules=row.schedule) for less in (0, 1))
            assert row.fits is None and (M is None or (at.results[0].fits and not below.results[0].fits))
            ratios = (row.ratio_to_floor, row.ratio_to_order, row.ratio_to_floor_with_adds)
            of = at.results[0]
            assert (
                ratios == (of.ratio_to_floor, of.ratio_to_order, of.ratio_to_floor_with_adds)
                and row.ratio_to_floor >= 1
            )
        alone = count(**p, schedules="flash2", tiles=tiles)
        assert alone.bounds == count(**p, schedules="flash2", tiles=tiles, M=alone["flash2"].smem_peak_bytes).bounds
        assert "of its class" in alone.answer and any("M is not given" in note for note in found.notes)
