"""Floors of attention with a state: golden values, enumerations, derivatives and ranks."""

import itertools
import random
import re
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from paths import DOCS

from iosim.counting.forms import Form
from iosim.counting.state_floors import (
    StateProblem,
    best_ring,
    compulsory_words,
    cut_words,
    once,
    one_round_words,
    product_words,
    ring_step,
    ring_words,
    step_reads,
)
from iosim.oracles.state import phi

# ---------------------------------------------------------------- S


@pytest.mark.parametrize(
    "N, d, dv, M, chunk, words",
    [
        (8192, 128, 128, 8392, 0, 5846947),
        (65536, 128, 128, 2048, 0, 94890565),
        (8192, 128, 64, 4000, 0, 4237479),
        (8192, 128, 128, 1024, 0, 16761174),
        (131072, 128, 256, 12288, 64, 154876937),
        (4096, 64, 128, 700, 16, 5045179),
    ],
)
def test_known_product_floors(N, d, dv, M, chunk, words):
    plain = StateProblem(N, d, dv)
    assert product_words(plain, M, chunk) == words
    given = plain._replace(initial=True, final=True, decays=2, betas=1)
    assert product_words(given, M, chunk) == words + 2 * d * dv + 3 * N


def by_segments(s, tokens, M, T):
    """The least r with r >= T Z / (X/3)^(3/2) + M^2/X, for X = M + T and Z = 2 s tokens."""
    X, Z = M + T, 2 * s * tokens
    more = M * M if 27 * Z * Z > M**3 else 0
    r = (isqrt(27 * T * T * Z * Z // X) + more) // X
    while r * X < more or (r * X - more) ** 2 * X < 27 * T * T * Z * Z:
        r += 1
    return r


def test_the_product_floor_is_that_of_segments():
    """T = 2M, which no other length of a segment beats by more than a word in a million; and the account of
    docs/floors.md, with the same work of a segment, is at least as large."""
    draw = random.Random(55)
    for _ in range(300):
        d, dv, N = draw.randint(1, 64), draw.randint(1, 64), draw.randint(1, 5000)
        M, chunk = draw.randint(1, d * dv), draw.randint(0, N - 1)
        s, found = d * dv, product_words(StateProblem(N, d, dv, initial=True), M, chunk)
        assert found == by_segments(s, N - chunk, M, 2 * M)
        others = (by_segments(s, N - chunk, M, max(1, T)) for T in (1, M // 2, M, 2 * M - 1, 2 * M + 1, 4 * M))
        assert all(other <= found + 1 + M // 3 for other in others)
        account = Form("S", None, Fraction(2 * s * (N - chunk)), Fraction(1, 10**40), (Fraction(1, 27), 3), 1, 0, 0)
        assert found <= max(account.best(M)[0], s)


def test_a_segment_does_no_more_work_than_the_inequality_says():
    """Updates (j,m,c) and readouts (t,m,c) of random sets of words: at most (X/3)^(3/2)."""
    draw = np.random.default_rng(1)
    for _ in range(2000):
        n, d, dv = draw.integers(1, 7, 3)
        share = draw.random(5)
        q, k, v, o = (draw.random((n, width)) < p for width, p in zip((d, d, dv, dv), share, strict=False))
        state = draw.random((d, dv)) < share[4]
        work = sum(np.einsum("mc,jm,jc->", *(x.astype(int) for x in (state, a, b))) for a, b in ((k, v), (q, o)))
        X = sum(int(x.sum()) for x in (q, k, v, o, state))
        assert 27 * int(work) ** 2 <= X**3


def test_one_kernel_for_each_value_head_is_optimal():
    """docs/floors-state.md: M of one state; each of b value heads reads q and k again."""

    def over(N, d, b, chunk):
        moved = b * N * (2 * d + d) + b * N * d
        return moved / product_words(StateProblem(N, d, b * d), d * d + d + 2, chunk)

    assert [round(over(65536, *sizes, 0), 4) for sizes in ((128, 2), (128, 8), (256, 4))] == [1.0044, 1.0044, 1.0029]
    assert over(65536, 128, 2, 64) < 1.006 and over(8192, 128, 2, 64) < 1.016


def without_once(N, d, dv, M):
    """S-infinity, at the best of some L and T."""
    s, found = d * dv, [0.0]
    for L in (int(max(d, dv) * 2 ** (k / 16)) for k in range(320)):
        for T in (M, 2 * M, 2.7 * M):
            X = M + T
            g = (1 + (max(d, dv) / L) ** 2) ** 0.5 * (X / 3) ** 1.5 + 2 / L * (X * X / 16 + X * s)
            kap = g / T
            if kap * kap <= s and kap < L < N:
                found.append(2 * s * (N - L) * (1 - kap / L) / kap)
    return max(found)


def test_computing_twice_does_not_help_in_the_long_run():
    share = [without_once(N, 128, 128, 8192) / (4 * N * 128 * 128 / 8192**0.5) for N in (8192, 1 << 20, 1 << 34)]
    assert [round(x, 2) for x in share[:2]] == [0.47, 0.93] and 0.99 < share[2] <= 1


# ---------------------------------------------------------------- K


def outputs(p, q, k, v, decay, b, S, z):
    """The recurrence of docs/floors-state.md: the outputs and the last state, as one row of numbers."""
    found = []
    for t in range(p.N):
        S = decay[t][:, None] * S
        z = decay[t] * z + k[t]
        u = b[t] * (v[t] - S.T @ k[t]) if p.betas else v[t]
        S = S + np.outer(k[t], u)
        found.append(S.T @ q[t] / (z @ q[t] if p.normaliser else 1))
    return np.concatenate([*found, *([S.ravel(), z * p.normaliser] if p.final else [])])


def given_words(p, draw):
    """Random inputs: q, k, v, decays of d or one word, b, S_0 and z_0."""
    shapes = ((p.N, p.d), (p.N, p.d), (p.N, p.dv), (p.N, p.decays), (p.N, p.betas), (p.d, p.dv), (p.d,))
    q, k, v, decay, b, S, z = (draw.uniform(0.5, 1.5, shape) for shape in shapes)
    return [q, k, v, decay, b, *([S] if p.initial else []), *([z] if p.initial and p.normaliser else [])]


def run(p, words):
    q, k, v, decay, b, *more = words
    decay = np.broadcast_to(decay if p.decays else 1.0, (p.N, p.d))
    S, z = (more + [np.zeros((p.d, p.dv)), np.zeros(p.d)][len(more) :])[:2]
    return outputs(p, q, k, v, decay, b, S, z)


def test_compulsory_words_are_those_on_which_outputs_depend():
    draw, checked = np.random.default_rng(2), 0
    for N, d, dv, decays, betas, initial, final, normaliser in itertools.product(
        (1, 2, 4), (1, 3), (1, 2), (0, 1, 3), (0, 1), *[(False, True)] * 3
    ):
        if (decays == 3 and d == 1) or (normaliser and (decays or betas)):
            continue
        p = StateProblem(N, d, dv, decays, betas, initial, final, normaliser)
        words, counted = given_words(p, draw), 0
        base = run(p, words)
        for one in words:
            for place in np.ndindex(one.shape):
                kept, one[place] = one[place], one[place] + 0.25
                counted += bool(np.abs(run(p, words) - base).max() > 1e-9)
                one[place] = kept
        assert compulsory_words(p) == (counted, N * dv + final * (d * dv + d * normaliser)), p
        checked += 1
    assert checked > 200


# ---------------------------------------------------------------- D1 and X: ranks of derivatives


def rank_of(function, point):
    """The rank of the derivative of a function of one row of numbers."""
    steps = np.eye(len(point)) * 1e-6
    return np.linalg.matrix_rank(np.array([function(point + e) - function(point - e) for e in steps]) / 2e-6, tol=1e-5)


@pytest.mark.parametrize("betas", [0, 1])
@pytest.mark.parametrize("decays", [0, 1, 3])
def test_states_and_messages_have_as_many_free_numbers_as_floors_say(decays, betas):
    """What a step, or the later side of a cut, depends on has this dimension: fewer words cannot hold it."""
    draw, d, dv = np.random.default_rng(3), 3, 2
    for earlier, later in itertools.product((1, 2, 3, 4), (1, 2, 3, 4)):
        p = StateProblem(earlier + later, d, dv, decays, betas)
        words = given_words(p, draw)
        sizes = [x[:earlier].size for x in words]

        def changed(point, N, part, p=p, words=words, sizes=sizes, earlier=earlier):
            pieces = np.split(point, np.cumsum(sizes)[:-1])
            now = [
                np.vstack([a.reshape(earlier, x.shape[1]), x[earlier:N]]) for a, x in zip(pieces, words, strict=True)
            ]
            return run(p._replace(N=N, final=True), now)[part]

        point = np.concatenate([x[:earlier].ravel() for x in words])
        state, after = slice(earlier * dv, earlier * dv + d * dv), slice(earlier * dv, p.N * dv)
        assert rank_of(lambda x, c=changed, e=earlier, s=state: c(x, e, s), point) == step_reads(p, earlier + 1)
        assert rank_of(lambda x, c=changed, N=p.N, s=after: c(x, N, s), point) == cut_words(p, earlier, later)


@pytest.mark.parametrize("rows", [0, 3, 4])
@pytest.mark.parametrize("normaliser, initial", [(True, False), (True, True), (False, False), (False, True)])
def test_outputs_of_a_step_have_as_many_free_numbers_with_a_normaliser_or_phi(rows, normaliser, initial):
    """What o_t is, as a function of q_t, with the inputs of the step fixed: with a normaliser S and z up to a factor,
    which the step's own k_t fixes while the rank is not full. With phi, and no state before, z has more."""
    draw, (d, dv) = np.random.default_rng(6), (2, 3) if rows else (3, 2)
    wide = rows or d

    def made(x):
        return phi(x, rows) if rows else x

    for earlier in range(wide + 3):
        p = StateProblem(earlier + 1, d, dv, initial=initial, normaliser=normaliser, rows=rows)
        sizes = [earlier * d, earlier * dv, initial * wide * dv, initial * wide * normaliser]
        own_k, own_v, queries = (
            draw.uniform(0.5, 1.5, (1, d)),
            draw.uniform(0.5, 1.5, (1, dv)),
            4 * draw.normal(size=(60, d)),
        )

        def step(point, sizes=sizes, own_k=own_k, own_v=own_v, queries=queries, initial=initial):
            k, v, S, z = np.split(point, np.cumsum(sizes)[:-1])
            k, v = np.vstack([k.reshape(-1, d), own_k]), np.vstack([v.reshape(-1, dv), own_v])
            state = made(k).T @ v + (S.reshape(wide, dv) if initial else 0)
            total = made(k).sum(axis=0) + (z if z.size else 0)
            q = made(queries) if rows else np.abs(queries)
            return (q @ state / ((q @ total)[:, None] if normaliser else 1)).ravel()

        found = rank_of(step, draw.uniform(0.5, 1.5, sum(sizes))) if sum(sizes) else 0
        assert found >= step_reads(p, earlier + 1), (p, found)
        assert found == step_reads(p, earlier + 1) or (rows and not initial), p
        assert step_reads(p) == step_reads(p, 100)


def test_a_step_reads_the_state():
    p = StateProblem(100, 128, 64)
    assert step_reads(p) == 8192 == step_reads(p, 65) == step_reads(p._replace(initial=True), 1)
    assert [step_reads(p, token) for token in (1, 2, 3)] == [0, 191, 380]
    assert step_reads(p, kept=192) == 8000 and step_reads(p, 2, kept=192) == 0
    assert step_reads(p, 64) < 8192 == step_reads(p, 1000)


def test_one_round():
    """With the delta rule the pair (P, S) of a run of tokens has s + d^2 free numbers."""
    draw, tokens, d, dv = np.random.default_rng(4), 6, 3, 2

    def pair(point):
        k, v, b = np.split(point, [tokens * d, tokens * (d + dv)])
        P, S = np.eye(d), np.zeros((d, dv))
        for k_t, v_t, b_t in zip(k.reshape(-1, d), v.reshape(-1, dv), b, strict=True):
            step = np.eye(d) - b_t * np.outer(k_t, k_t)
            P, S = step @ P, step @ S + b_t * np.outer(k_t, v_t)
        return np.concatenate([P.ravel(), S.ravel()])

    assert rank_of(pair, draw.uniform(0.3, 0.9, tokens * (d + dv + 1))) == d * dv + d * d
    p = StateProblem(1000, 128, 128)
    words = [one_round_words(p, kind) - 16384 for kind in ("none", "scalar", "diagonal", "matrix")]
    assert words == [0, 1, 128, 16384]


# ---------------------------------------------------------------- D2


def test_known_ring_floors():
    for steps, d, dv, words in ((6, 2, 2, 44), (8, 1, 2, 30), (100, 16, 16, 36544), (37, 8, 24, 10464)):
        assert ring_words(steps, d * dv, d + dv) == words


@pytest.mark.parametrize("d, dv, steps", [(1, 1, 9), (1, 2, 6), (2, 1, 6), (1, 3, 4), (2, 2, 3)])
def test_no_choice_of_refreshes_does_better(d, dv, steps):
    """Every word of the state may be written after any step. A step reads the rows and columns of a token that its
    state words lack."""
    cells, best = [*itertools.product(range(d), range(dv))], None
    for written in itertools.product((False, True), repeat=len(cells) * (steps - 1)):
        words, since = steps * d * dv + sum(written), dict.fromkeys(cells, 0)
        for t in range(1, steps + 1):
            for j in range(1, t):
                lacking = [cell for cell in cells if since[cell] < j]
                words += len({m for m, _ in lacking}) + len({c for _, c in lacking})
            now = written[(t - 1) * len(cells) : t * len(cells)]
            since |= {cell: t for cell, here in zip(cells, now, strict=False) if here}
        best = words if best is None else min(best, words)
    assert best == ring_words(steps, d * dv, d + dv)


@pytest.mark.parametrize("d, dv, steps", [(1, 1, 7), (2, 1, 4), (1, 2, 5), (1, 3, 4)])
def test_no_choice_of_refreshes_does_better_with_a_normaliser(d, dv, steps):
    """z is a column more of the state, whose u is 1: it needs rows of k and no word of u."""
    cells, best = [*itertools.product(range(d), range(dv + 1))], None
    for written in itertools.product((False, True), repeat=len(cells) * (steps - 1)):
        words, since = steps * len(cells) + sum(written), dict.fromkeys(cells, 0)
        for t in range(1, steps + 1):
            for j in range(1, t):
                lacking = [cell for cell in cells if since[cell] < j]
                words += len({m for m, _ in lacking}) + len({c for _, c in lacking if c < dv})
            now = written[(t - 1) * len(cells) : t * len(cells)]
            since |= {cell: t for cell, here in zip(cells, now, strict=False) if here}
        best = words if best is None else min(best, words)
    assert best == ring_words(steps, d * (dv + 1), d + dv)


def test_equal_lengths_near_the_best_ring_are_best():
    draw = random.Random(5)
    for _ in range(300):
        steps, state, row = draw.randint(1, 60), draw.randint(1, 900), draw.randint(1, 90)
        least = [0]  # words of so many steps, by the last length
        for t in range(1, steps + 1):
            least.append(min(least[t - l] + (l < t) * state + row * l * (l - 1) // 2 for l in range(1, t + 1)))
        assert ring_words(steps, state, row) == steps * state + least[steps]


def test_best_rings():
    """In words; with an fp32 state and 16-bit rows; for two value heads a key head; 256 wide; with raw fp32 gates."""
    known = [
        (128 * 128, 256, 11),
        (128 * 128 * 4, 256 * 2, 16),
        (128 * 256 * 4, 384 * 2, 18),
        (256 * 256 * 4, 512 * 2, 23),
        (128 * 128 * 4, 256 * 2 + 128 * 4, 11),
    ]
    assert [best_ring(state, row) for state, row, _ in known] == [L for *_, L in known]
    for state, row, L in known:
        means = [ring_step(length, state, row) for length in range(1, 4 * L)]
        assert min(means) == means[L - 1]
        assert ring_words(1000 * L, state, row) == 1000 * L * means[L - 1] - state
    assert ring_step(11, 128 * 128, 256) == Fraction(210688, 11)
    assert ring_step(16, 65536, 512, appended=True) == 65536 + 4096 + 3840 + 480


def test_the_table_of_rings():
    """The table of docs/floors-state.md, section 23."""
    rows = re.findall(
        r"^\| (\d+) x (\d+)[^|]*\| ([^|]+) \| (\d+) \| ([\d.]+) \|$", (DOCS / "floors-state.md").read_text(), re.M
    )
    assert len(rows) == 4
    for d, dv, types, L, ratio in rows:
        wide = 1 if types == "same type" else 2
        state, row = int(d) * int(dv) * wide, int(d) + int(dv)
        assert best_ring(state, row) == int(L) and f"{2 * state / float(ring_step(int(L), state, row)):.2f}" == ratio


def test_classes_are_said_in_full():
    assert once(64) == ("no algorithm that computes each k u once and uses scores only within chunks of 64 tokens")
    assert once(0).endswith("uses scores nowhere") and once(1).endswith("of 1 token")
