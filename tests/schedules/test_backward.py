"""The backward passes: gradients against finite differences, counts, dropout, and where masks hide whole rows."""

import re
from itertools import product

import numpy as np
import pytest
from paths import DOCS
from spread import spread

from iosim import SCHEDULES, Attention, Capacity, Folded, Machine, Numeric, Tiling, Traffic, count
from iosim.core.shapes import Tile
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.oracles.attention import attention
from iosim.oracles.backward import forward, gradients
from iosim.search.best import best_tiles, footprint

NAMES = ("standard-bwd", "flash1-bwd", "block-sparse-bwd", "flash2-bwd", "block-sparse-q-bwd", "flash2-bwd-second-pass",
         "flash2-bwd-stored-ds", "flash2-bwd-stored-p-ds", "flash2-bwd-panels", "small-cache-bwd",
         "small-cache-bwd-q")  # fmt: skip
MASKS = ["dense", "causal", "window:1", "global:1&~causal", "strided:3&~global:4"]


def everything(p, tiling):
    return (
        None
        if str(p.mask) == "dense"
        else p.mask.bind(p, tiling, True).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()
    )


def finite_differences(q, k, v, do, visible, step=1e-5):
    """Gradients of sum(dO * O) as central differences of the forward oracle, which computes no gradients itself."""
    found = {}
    arrays = {"Q": q, "K": k, "V": v}
    for name, x in arrays.items():
        g = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * step
                sides.append((do * attention(*{**arrays, name: moved}.values(), visible)).sum())
            g[at] = (sides[0] - sides[1]) / (2 * step)
        found["d" + name] = g
    return found


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name, mask):
    """Sizes are 7 x 9 with d = 3 and ragged tiles. Rows that see nothing must give 0 and not NaN."""
    p, tiling = Attention(7, 3, Nk=9, dv=4, mask=parse_mask(mask)), Tiling(3, 4)
    visible = everything(p, tiling)
    hbm = SCHEDULES[name].example(np.random.default_rng(5), p, visible)
    machine = Numeric(p, hbm).run(SCHEDULES[name], tiling)
    expected = finite_differences(hbm["Q"], hbm["K"], hbm["V"], hbm["dO"], visible)
    for tensor, array in expected.items():
        np.testing.assert_allclose(machine.array(tensor), array, rtol=1e-6, atol=1e-8)


def test_the_masks_of_these_tests_hide_whole_rows():
    p = Attention(7, 3, Nk=9, mask=parse_mask(MASKS[-1]))
    visible = everything(p, Tiling(3, 4))
    assert not visible.any(axis=1).all() and not visible.any(axis=0).all() and visible.any()


def every_second(case):
    """Each schedule under half of the masks, and each mask with half of the schedules."""
    name, mask = case
    return (list(NAMES).index(name) + MASKS.index(mask)) % 2 == 0


@pytest.mark.parametrize("name, mask", spread(product(NAMES, MASKS), every_second, "-".join))
def test_gradients_are_the_analytic_ones(name, mask):
    """Errors are at most 1e-12 of the largest entry. N and Nk are not multiples of the tiles."""
    p, tiling = Attention(61, 16, Nk=45, dv=12, mask=parse_mask(mask)), Tiling(16, 8)
    visible = everything(p, tiling)
    hbm = SCHEDULES[name].example(np.random.default_rng(7), p, visible)
    machine = Numeric(p, hbm).run(SCHEDULES[name], tiling)
    for tensor, array in gradients(hbm["Q"], hbm["K"], hbm["V"], hbm["dO"], visible).items():
        assert np.abs(machine.array(tensor) - array).max() <= 1e-12 * np.abs(array).max()


def test_the_forward_half_of_the_oracle_is_the_forward_oracle():
    p = Attention(20, 4, mask=parse_mask(MASKS[-1]))
    visible = everything(p, Tiling(4, 4))
    q, k, v = np.random.default_rng(0).normal(size=(3, 20, 4))
    found = forward(q, k, v, visible)
    np.testing.assert_allclose(found["O"], attention(q, k, v, visible), atol=1e-14)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found["LSE"], found["m"] + np.log(found["l"]))
    assert np.isneginf(found["LSE"]).any()


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("name", NAMES)
def test_dropout_by_seed(name, mask):
    """The backward pass drops the elements that the forward pass dropped, whatever its tiles. Dropout moves no word."""
    p, tiling = Attention(33, 4, Nk=21, mask=parse_mask(mask), dropout=Dropout(0.3, seed=4)), Tiling(8, 5)
    visible = everything(p, tiling)
    traffic, without = Traffic(), Traffic()
    schedule = SCHEDULES[name]
    hbm = schedule.example(np.random.default_rng(1), p, visible)
    machine = Numeric(p, hbm, traffic).run(schedule, tiling)
    kept = p.dropout.factors(range(33), range(21))
    assert set(np.unique(kept)) == {0, 1 / 0.7}
    for tensor, array in gradients(hbm["Q"], hbm["K"], hbm["V"], hbm["dO"], visible, kept).items():
        np.testing.assert_allclose(machine.array(tensor), array, atol=1e-12)
        plain = gradients(hbm["Q"], hbm["K"], hbm["V"], hbm["dO"], visible)[tensor]
        assert np.abs(array - plain).max() > 0.1, "dropout changes the gradients"
    Machine(Attention(33, 4, Nk=21, mask=parse_mask(mask)), without).run(schedule, tiling)
    assert traffic.tensors == without.tensors


def test_gradients_with_dropout_are_those_of_the_dropped_forward():
    rng, kept = np.random.default_rng(2), Dropout(0.4, seed=9).factors(range(5), range(6))
    q, k, v, do = (rng.normal(size=shape) for shape in ((5, 3), (6, 3), (6, 2), (5, 2)))
    found = gradients(q, k, v, do, None, kept)["dQ"]
    for at in np.ndindex(q.shape):
        step = np.zeros_like(q)
        step[at] = 1e-5
        sides = [(do * forward(x, k, v, None, kept)["O"]).sum() for x in (q + step, q - step)]
        assert found[at] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["flash1", "flash2", "standard", "standard-tiled"])
def test_the_forward_pass_drops_the_same_elements(name):
    p = Attention(33, 4, Nk=21, dropout=Dropout(0.3, seed=4))
    hbm = SCHEDULES[name].example(np.random.default_rng(1), p, None)
    machine = Numeric(p, hbm).run(SCHEDULES[name], Tiling(8, 5))
    expected = forward(hbm["Q"], hbm["K"], hbm["V"], None, p.dropout.factors(range(33), range(21)))["O"]
    np.testing.assert_allclose(machine.array("O"), expected, atol=1e-12)


def test_dropout_is_a_function_of_the_position_with_the_right_mean():
    """The mean of n = 2^20 factors, whose variance is p / (1 - p), is within 5 standard errors of 1. Other seeds and
    other places give other factors."""
    drop = Dropout(0.1, seed=3)
    factors = drop.factors(range(1024), range(1024))
    assert abs(factors.mean() - 1) < 5 * (0.1 / 0.9) ** 0.5 / 1024
    assert (drop.factors(range(300, 310), range(77, 99)) == factors[300:310, 77:99]).all()
    other = Dropout(0.1, seed=4).factors(range(1024), range(1024))
    for shifted in (other, factors.T, np.roll(factors, 1, 0), np.roll(factors, 1, 1)):
        assert abs(((shifted == 0) & (factors == 0)).mean() - 0.01) < 5 * (0.01 * 0.99) ** 0.5 / 1024
    assert (Dropout(0.0).factors(range(9), range(9)) == 1).all()


@pytest.mark.parametrize("probability", [-0.1, 1, 2.0, float("nan")])
def test_dropout_that_cannot_be(probability):
    from iosim.errors import InputError

    with pytest.raises(InputError, match="--dropout"):
        Dropout(probability)


def test_the_paper_s_tiles(ask):
    """N = 512, d = 64 and M = 8192 words give Bc = Br = 32, Tc = 16. R = 2Nd + Tc N (4d + 2), W = Tc N d + 2Nd."""
    args = ["--N", 512, "--d", 64, "--M", "8192el", "--tiles", "paper", "--schedule", "flash1-bwd"]
    found = ask("count", *args)["results"][0]
    assert (found["Br"], found["Bc"], found["fits"]) == (32, 32, False)
    assert found["reads"] == 2 * 512 * 64 + 16 * 512 * (4 * 64 + 2) == 2179072
    assert found["writes"] == 16 * 512 * 64 + 2 * 512 * 64 == 589824
    more = ask("count", *args, "--count-init")["results"][0]
    assert more["writes"] - found["writes"] == 3 * 512 * 64 and more["reads"] == found["reads"]


def test_flops(ask):
    """A backward pass has five products of 2 N^2 d. The second-pass form has seven, because it computes S and dP twice.
    Algorithm 3 has four, because P was stored. Of panels of dV each computes S again; there are two."""
    args = ["--N", 256, "--d", 32, "--tiles", "16x16"]
    for name, products in zip(NAMES, (4, 5, 5, 5, 5, 7, 5, 5, 7, 5, 5), strict=True):
        if not name.startswith("block"):
            assert ask("count", *args, "--schedule", name)["results"][0]["flops"] == products * 2 * 256**2 * 32


def test_elementwise_passes_of_the_standard_backward(ask):
    words = [
        ask("count", "--N", 64, "--d", 8, "--schedule", "standard-bwd", "--elementwise", k)["results"][0]["total"]
        for k in (0, 1, 3)
    ]
    assert np.diff(words).tolist() == [2 * 64**2, 4 * 64**2]


def test_an_atomic_add_is_a_read_and_a_write_of_dq(ask):
    """With N = 64, d = 8 and Bc = 16, dQ is read and written 4 times. The second pass writes it once, and reads K and V
    4 times more."""
    args = ["count", "--N", 64, "--d", 8, "--tiles", "16x16", "--schedule"]
    atomics = ask(*args, "flash2-bwd")["results"][0]["tensors"]
    second = ask(*args, "flash2-bwd-second-pass")["results"][0]["tensors"]
    assert atomics["dQ"] == {"reads": 4 * 64 * 8, "writes": 4 * 64 * 8} and second["dQ"] == {"reads": 0, "writes": 512}
    assert atomics["K"] == {"reads": 512, "writes": 0} and second["K"] == {"reads": 5 * 512, "writes": 0}


def test_the_search_of_the_second_pass_form_at_a_real_size():
    """The tiles found are compared with every pair of tiles up to 96 rows that fits 64 KiB, for N = 1024."""
    schedule, p = SCHEDULES["flash2-bwd-second-pass"], Attention(1024, 64)

    def words(tiling):
        watcher = Traffic()
        Folded(p, watcher).run(schedule, tiling)
        return watcher.total

    best = best_tiles(schedule, p, 65536)
    assert footprint(schedule, p, best).peak_bytes <= 65536
    sizes = np.arange(1, 1025)
    q, k = (x.ravel() for x in np.meshgrid(sizes, sizes))
    traffic, room = Traffic(), Capacity()
    Folded(Attention(np.full(q.size, 1024), np.full(q.size, 64)), traffic, room).run(schedule, Tiling(q, k))
    assert words(best) == int(traffic.total[room.peak_bytes <= 65536].min())


def test_check_with_dropout(iosim, ask):
    checks = ask("verify", "--cpu", "--dropout", 0.25, "--seed", 3, "--schedule", "flash2", "--schedule", "flash2-bwd")[
        "checks"
    ]
    assert [row["ok"] for row in checks] == [True, True]
    for wrong in ("1", "-0.1", "nan", "a tenth"):
        result = iosim("verify", "--cpu", "--dropout", wrong)
        assert result.exit_code == 2 and "--dropout" in result.stderr and result.stdout == ""
    result = iosim("verify", "--cpu", "--dropout", 0.1, "--schedule", "memory-efficient")
    assert result.exit_code == 2 and "flash2-bwd" in result.stderr, "a text that does not drop is refused"


# ---------------------------------------------------------------- a small M, and adds


def test_the_table_of_small_sizes_of_M():
    """docs/schedules/backward.md: words over the floor, and the least of each row in bold."""
    names = ["small-cache-bwd", "small-cache-bwd-q", "flash2-bwd", "flash2-bwd-stored-ds", "flash2-bwd-stored-p-ds"]
    text = (DOCS / "schedules" / "backward.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.M)
    assert len(rows) == 4
    for M, share, *cells in rows:
        found = count(8192, 64, f"{M}el", tiles="best", schedules=names)
        ratios = [found[name].ratio_to_floor for name in names]
        assert [f"**{r:.2f}**" if r == min(ratios) else f"{r:.2f}" for r in ratios] == cells
        assert float(share) == int(M) / 64**2


@pytest.mark.parametrize("x", [pytest.param(1 / 16, marks=pytest.mark.long), 1 / 4])
def test_leading_terms_of_square_tiles(x):
    """10 / sqrt(x) + 3 and 5 / x + 6 times N^2, with x = M / d^2, where tiles and N are large."""
    d, N = 2048, 2**22
    found = count(N, d, f"{int(x * d * d)}el", tiles="best", schedules=["small-cache-bwd", "small-cache-bwd-q"])
    assert found["small-cache-bwd"].total / N**2 == pytest.approx(10 / x**0.5 + 3, rel=0.02)
    least = 2 / x + 3 + min(3 / x + 3, 6 / x**0.5)  # gradients in whole rows, or in squares
    assert found["small-cache-bwd-q"].total / N**2 == pytest.approx(least, rel=0.02)


def test_at_d_squared_it_is_within_two_and_a_half_of_the_floor():
    for d in (64, 128):
        found = count(8192, d, f"{d * d}el", tiles="best", schedules="small-cache-bwd-q")["small-cache-bwd-q"]
        assert found.ratio_to_floor < 2.5


def test_adds_are_shown_apart():
    """Each key tile adds N d words to dQ. They count as reads and as writes, and `total_with_adds` counts them once."""
    report = count(1000, 16, "200KB", tiles="40x64", schedules="flash2-bwd,flash2-bwd-second-pass", heads=3)
    one, other = report.results
    assert one.adds == 3 * -(-1000 // 64) * 1000 * 16 == one.tensors["dQ"]["reads"] == one.tensors["dQ"]["writes"]
    assert one.total_with_adds == one.total - one.adds and other.adds == 0
    least = one.total / one.ratio_to_floor
    assert one.ratio_to_floor_with_adds == pytest.approx(one.total_with_adds / least)
    assert (other.total_with_adds, other.ratio_to_floor_with_adds) == (other.total, other.ratio_to_floor)
    assert any(f"all {one.adds:,} adds of flash2-bwd" in note for note in report.notes)
    assert "adds" in [column.name for column in report.table().columns]
    alone = count(1000, 16, "200KB", tiles="40x64", schedules="flash2-bwd-second-pass")
    assert "adds" not in [column.name for column in alone.table().columns]
    assert not any("adds" in note for note in alone.notes)


@pytest.mark.parametrize("mask", ["dense", "causal", "window:9"])
def test_what_a_schedule_adds_is_read_and_written_alike(mask):
    for name, schedule in SCHEDULES.items():
        for tensor in schedule.adds:
            traffic, p = Traffic(), Attention(50, 4, Nk=40, mask=parse_mask(mask))
            Folded(p, traffic).run(schedule, Tiling(7, 9))
            assert traffic.tensors[tensor][0] == traffic.tensors[tensor][1] > 0, name


def test_twelve_is_optimal_where_memory_adds():
    """12 N^2 d^2 / M for 24 d^2 and more: what flash2-bwd moves, and the floor."""
    d, N = 256, 2**21
    M = 30 * d * d
    found = count(N, d, f"{M}el", tiles="best", schedules="flash2-bwd")["flash2-bwd"]
    assert found.total_with_adds * M / (N * d) ** 2 == pytest.approx(12, rel=0.01)
    assert 1 < found.ratio_to_floor_with_adds < 1.01 and found.ratio_to_floor > 1.3


def test_dS_is_stored_for_an_M_of_a_few_d_squared():
    """The numbers of the page. Nothing is added up in HBM, and hidden tiles are neither computed nor stored."""
    names = ["flash2-bwd-stored-ds", "flash2-bwd"]
    found = count(8192, 64, "8192el", tiles="best", schedules=names)
    ours, other = (found[name].total for name in names)
    page = (DOCS / "schedules" / "backward.md").read_text()
    assert f"<!-- stored ds -->{ours:,}<!-- stored ds -->" in page and f"moves {other:,}." in page
    assert ours == 454_713_344 and not SCHEDULES[names[0]].adds
    dense, causal = (
        count(256, 16, tiles="16x16", schedules=names[0], mask=mask)[names[0]] for mask in ("dense", "causal")
    )
    assert causal.tensors["dS"]["reads"] == causal.tensors["dS"]["writes"] == dense.tensors["dS"]["writes"] * 17 // 32


def test_P_and_dS_are_stored_for_an_M_of_about_d_squared():
    """The numbers of the page. Nothing is added up in HBM."""
    names = ["flash2-bwd-stored-p-ds", "small-cache-bwd-q"]
    found = count(8192, 64, "4096el", tiles="best", schedules=names)
    ours, other = (found[name].total for name in names)
    page = (DOCS / "schedules" / "backward.md").read_text()
    assert f"<!-- stored p ds -->{ours:,}<!-- stored p ds -->" in page and f"moves {other:,}." in page
    assert (ours, other) == (687_431_680, 757_096_448) and not SCHEDULES[names[0]].adds


@pytest.mark.parametrize("name", ["flash2-bwd-stored-ds", "flash2-bwd-stored-p-ds", "flash2-bwd-panels"])
def test_what_a_causal_mask_hides_is_not_moved(name):
    """Of 1024 queries and keys a causal mask shows half of the pairs: with small tiles, little more than half of the
    words of Q and dO stream. With --visit-all all of them do."""
    tiles = "16x16/rows_o=8/cols_o=16"
    dense, causal, visited = (
        count(1024, 16, tiles=tiles, schedules=name, **more)[name]
        for more in ({}, {"mask": "causal"}, {"mask": "causal", "visit_all": True})
    )
    assert 0.5 < causal.total / dense.total < 0.53 and visited.tensors == dense.tensors


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("name", ["flash2-bwd-stored-ds", "flash2-bwd-stored-p-ds", "flash2-bwd-panels"])
def test_heads_that_share_keys_and_values(name, mask, ask):
    """Two heads of K and V for six of Q: gradients of each query head, in ragged tiles."""
    args = [
        "--N",
        45,
        "--Nk",
        37,
        "--d",
        8,
        "--dv",
        12,
        "--heads",
        6,
        "--kv-heads",
        2,
        "--tiles",
        "7x9",
        "--mask",
        mask,
    ]
    (row,) = ask("verify", "--cpu", *args, "--schedule", name)["checks"]
    assert row["ok"] and row["words"] == row["folded_words"] == row["formula_words"]


def test_panels_of_wide_values():
    """The numbers of the page. If each add counts once, the words are near the floor for a large M and long sequences."""
    names = ["flash2-bwd-panels", "flash2-bwd"]
    found = count(8192, 64, f"{32 * 64**2}el", dv=256, tiles="best", schedules=names)
    ours, other = (found[name].total for name in names)
    page = (DOCS / "schedules" / "backward.md").read_text()
    assert f"<!-- panels -->{ours:,}<!-- panels -->" in page and f"moves {other:,}." in page and ours == 139_075_584
    large = count(2**20, 64, f"{200 * 64**2}el", dv=256, tiles="best", schedules=names)
    assert large[names[0]].ratio_to_floor_with_adds < 1.03 < large[names[1]].ratio_to_floor_with_adds
