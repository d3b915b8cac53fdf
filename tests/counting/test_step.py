"""`iosim count --pass step`: sums, what is stored, the figures of validation/sources/fig2-left.md, and bad input."""

import csv
import io
import re

import pytest
from paths import ROOT

from iosim import SCHEDULES
from iosim.counting.passes import COMBINATIONS, UNFUSED

FIG2 = ["--N", 1024, "--d", 64, "--heads", 16, "--batch", 64]
HEADS, N, D = 1024, 1024, 64


@pytest.fixture
def steps(ask):
    def run(*args):
        return {r["combination"]: r for r in ask("count", "--pass", "step", *args)["results"]}

    return run


# ---------------------------------------------------------------- sums


def test_a_step_is_the_sum_of_its_counts(ask, steps):
    """Each side is what `count` says of it, and the step adds them; checkpointing has the forward pass twice."""
    base = ["--N", 300, "--Nk", 200, "--d", 32, "--heads", 2, "--tiles", "48x40", "--acc-dtype", "fp32"]
    found = steps(*base)
    assert list(found) == ["standard", "checkpointing", "flash1", "flash2", "flash2-second-pass"]
    for c in COMBINATIONS:
        if c.name not in found:
            continue
        step, times = found[c.name], 2 if c.name == "checkpointing" else 1
        lse = ["--lse"] if "LSE" in c.stored else []
        ahead = ask("count", *base, *lse, "--schedule", c.forward)["results"][0]
        back = ask("count", *base, "--schedule", c.backward)["results"][0]
        assert (step["forward"], step["backward"]) == (ahead, back)
        for name in ("reads", "writes", "total", "total_bytes", "flops"):
            assert step[name] == times * ahead[name] + back[name]


def test_the_ratio_is_to_the_standard_bytes(steps):
    found = steps("--N", 256, "--d", 16, "--M", "32KB")
    for step in found.values():
        assert step["ratio_to_standard"] == step["total_bytes"] / found["standard"]["total_bytes"]


def test_hidden_tiles_are_skipped_unless_all_are_visited(steps):
    line = ("--N", 256, "--d", 16, "--tiles", "32x32")
    plain, causal = steps(*line), steps(*line, "--mask", "causal")
    every = steps(*line, "--mask", "causal", "--visit-all")
    assert set(plain) == set(causal) and set(every) - set(causal) == {"block-sparse", "block-sparse-q"}
    for name, other in (("flash1", "block-sparse"), ("flash2", "block-sparse-q")):
        assert every[name]["total"] == plain[name]["total"] > causal[name]["total"] == every[other]["total"]


def test_every_combination_names_schedules_and_the_tensors_they_use():
    for c in COMBINATIONS:
        assert SCHEDULES[c.forward].family == "attention" and SCHEDULES[c.backward].family == "backward"
        alike = SCHEDULES[c.forward].skips == SCHEDULES[c.backward].skips
        assert alike == (c.backward != "flash2-bwd-second-pass"), "its candidates know no mask"


# ---------------------------------------------------------------- what is stored


def test_the_recomputation_table(steps):
    """T = 8192, d = 128: P in fp16 is 2 T^2, l and m in fp32 8 T, LSE 4 T, O in fp16 2 T d bytes."""
    found = steps("--N", 8192, "--d", 128, "--acc-dtype", "fp32", "--tiles", "64x64")
    assert found["standard"]["stored"] == {"S": 134217728, "P": 134217728}
    assert found["checkpointing"]["stored"] == {} and found["checkpointing"]["stored_bytes"] == 0
    flash1 = found["flash1"]["stored"]
    assert flash1["O"] == 2097152 and flash1["l"] + flash1["m"] == 65536
    assert found["flash2"]["stored"] == {"O": 2097152, "LSE": 32768}
    assert found["flash2"]["stored_bytes"] == 2097152 + 32768


def test_what_is_stored_grows_with_heads_and_batch(steps):
    one, many = ["--N", 64, "--d", 8, "--tiles", "8x8"], ["--heads", 3, "--batch", 5]
    for name, step in steps(*one).items():
        assert steps(*one, *many)[name]["stored_bytes"] == 15 * step["stored_bytes"]


# ---------------------------------------------------------------- Fig. 2 left


def page_row(page, *first):
    """Numbers of the row of a table that starts with these cells: in GB or GFLOP, and in percent."""
    for line in page.splitlines():
        cells = [cell.strip(" *`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[: len(first)] == list(first):
            return cells
    raise AssertionError(first)


FIG2_PAGE = (ROOT / "validation/sources/fig2-left.md").read_text()


def off(counted, published):
    return f"{100 * (counted / published - 1):+.1f} %"


@pytest.mark.parametrize(
    "names, passes", [("", 0), ("dropout", 2), ("mask-add,dropout", 3), ("mask-fill,dropout", 4),
                      ("scale,mask-fill,dropout", 6)],
)  # fmt: skip
def test_the_baselines_of_the_page(steps, names, passes):
    """11 N^2 + 12 Nd words of 2 bytes, 2 N^2 words a pass, and 2 N^2 bytes for a dropout mask there and back."""
    unfused = ["--unfused", names] if names else []
    step = steps(*FIG2, *unfused, "--combination", "standard")["standard"]
    mask_bytes = 2 * N * N if "dropout" in names else 0
    assert step["total_bytes"] == HEADS * (2 * (11 * N * N + 12 * N * D + 2 * N * N * passes) + mask_bytes)
    first = f"| `{names}` |" if names else "| no unfused pass |"
    row = next(r for r in FIG2_PAGE.splitlines() if first in r and r.count("|") == 6)
    cells = [cell.strip(" *") for cell in row.strip("|").split("|")]
    assert cells[3:] == [f"{step['total_bytes'] / 1e9:.2f}", off(step["total_bytes"], 40.3e9)]
    ahead, back = (sum(getattr(UNFUSED[n], side) for n in names.split(",") if n) for side in ("forward", "backward"))
    assert ahead + back == passes and cells[1] in (f"{ahead} + {back}", "0")


def test_40_3_gb_within_ten_percent(steps):
    """The figure that SOURCES row 55 has (25.2, 38.1 with three passes) and what the boolean masks add."""
    step = steps(*FIG2, "--unfused", "mask-add,dropout", "--combination", "standard")["standard"]
    assert abs(step["total_bytes"] / 40.3e9 - 1) < 0.001
    assert f"{(step['total_bytes'] - step['dropout_mask_bytes']) / 1e9:.2f}" == "38.12"
    assert step["stored"]["dropout mask"] == HEADS * N * N == step["dropout_mask_bytes"] // 2


@pytest.mark.parametrize("keys", [128, 256, 384, 512])
def test_the_tiles_of_the_page(steps, keys):
    """6 Nd + Tc N (8d + 6) words: Algorithms 1 and 4."""
    step = steps(*FIG2, "--tiles", f"64x{keys}", "--combination", "flash1")["flash1"]
    passes = -(-N // keys)
    assert step["total"] == HEADS * (6 * N * D + passes * N * (8 * D + 6))
    cells = page_row(FIG2_PAGE, f"64x{keys}", str(passes))
    assert cells[2:4] == [f"{step['total_bytes'] / 1e9:.2f}", off(step["total_bytes"], 4.4e9)]


def test_4_4_gb_within_ten_percent_by_the_paper_s_own_tiles(steps):
    """Bc = ceil(98304 / 256) = 384 for M = 192 KiB; every other number of key tiles misses by more than 10 %."""
    step = steps(*FIG2, "--M", "192KB", "--tiles", "paper", "--combination", "flash1")["flash1"]
    assert (step["forward"]["Br"], step["forward"]["Bc"]) == (64, 384)
    assert abs(step["total_bytes"] / 4.4e9 - 1) < 0.1
    assert step["forward"]["fits"] and not step["backward"]["fits"]
    assert f"{step['backward']['sram_peak_bytes'] / 196608:.2f} M" in FIG2_PAGE
    close = []
    for passes in range(1, 17):
        tiles = f"64x{-(-N // passes)}"
        total = steps(*FIG2, "--tiles", tiles, "--combination", "flash1")["flash1"]["total_bytes"]
        close += [passes] if abs(total / 4.4e9 - 1) < 0.1 else []
    assert close == [3]


def test_the_best_tiles_of_the_page(ask):
    results = ask("count", "--pass", "step", *FIG2, "--M", "192KB", "--tiles", "best", "--combination", "flash1")[
        "results"
    ]
    (step,) = results
    sides = [f"{step[side]['Br']}x{step[side]['Bc']}" for side in ("forward", "backward")]
    assert f"({sides[0]} forward, {sides[1]} backward) move {step['total_bytes'] / 1e9:.2f} GB" in FIG2_PAGE


def test_what_the_released_kernel_leaves_out(steps):
    """From the words of each tensor at 64x256 (Tc = 4): without the first sweep over O, l, m, dQ; then with D and one
    LSE in the place of O, l, m; then with O and dQ in fp32 between the sweeps."""
    step = steps(*FIG2, "--tiles", "64x256", "--combination", "flash1")["flash1"]
    ahead, back = step["forward"]["tensors"], step["backward"]["tensors"]
    sweep = {name: x["reads"] // 4 for name, x in ahead.items()}
    words = step["total"] - sweep["O"] - sweep["l"] - sweep["m"] - back["dQ"]["reads"] // 4
    assert f"({2 * words / 1e9:.2f} GB, {off(2 * words, 4.4e9)})" in FIG2_PAGE
    words -= 3 * sweep["O"] + 7 * sweep["m"]  # O once in the backward pass; one of l, m: 3 reads, 4 writes
    assert f"({2 * words / 1e9:.2f} GB, {off(2 * words, 4.4e9)})" in FIG2_PAGE
    square, row = N * D, N
    forward = 2 * square * 2 + 4 * square * 2 + 3 * square * 4 + (3 * square * 4 + square * 2) + 7 * row * 4
    backward = 4 * square * 2 + 8 * square * 2 + square * 2 + 6 * square * 4 + square * 2 + 8 * row * 4
    total = HEADS * (forward + backward)
    assert re.search(rf"\({total / 1e9:.2f} GB,\s+{re.escape(off(total, 4.4e9))}\)", FIG2_PAGE)


def test_the_causal_figure_of_the_page(steps):
    args = [*FIG2, "--tiles", "16x256", "--mask", "causal", "--combination", "block-sparse"]
    total = steps(*args)["block-sparse"]["total_bytes"]
    assert f"{total / 1e9:.2f} GB ({off(total, 4.4e9)})" in FIG2_PAGE


def test_the_gflops_of_the_page(steps):
    """6 and 7 products of 2 N^2 d a head; 64 heads of them, and what is left."""
    found = steps(*FIG2, "--tiles", "64x256")
    standard, flash = found["standard"]["flops"], found["flash1"]["flops"]
    product = 2 * N * N * D
    assert (standard, flash) == (HEADS * 6 * product, HEADS * 7 * product)
    assert f"{standard / 1e9:.1f} and {flash / 1e9:.1f} GFLOP" in FIG2_PAGE
    assert f"{standard / 66.6e9:.1f} and {flash / 75.2e9:.1f} times smaller" in FIG2_PAGE
    more = page_row(FIG2_PAGE, "8.6 GFLOPs more (75.2 - 66.6)")
    assert more[1:3] == [f"{64 * product / 1e9:.2f}", off(64 * product, 8.6e9)]
    for flops, published in ((standard / 16, 66.6e9), (flash / 16, 75.2e9)):
        cells = page_row(FIG2_PAGE, f"{published / 1e9:.1f} GFLOPs")
        assert cells[1:3] == [f"{flops / 1e9:.1f}", off(flops, published)]
        left = published - flops
        assert f"{left / 1e9:.1f}" == "15.1" and 224 < left / (64 * N * N) < 225


def test_the_sweep_of_the_page_has_the_same_words(iosim, steps):
    rows = list(csv.DictReader(io.StringIO(iosim("sweep", ROOT / "configs/sweeps/fig2-left.toml").stdout)))
    at = {r["schedule"]: int(r["total"]) for r in rows if r["M_bytes"] == "196608"}
    found = steps(*FIG2, "--M", "192KB", "--tiles", "paper")
    assert at["standard"] + at["standard-bwd"] == found["standard"]["total"]
    assert at["flash1"] + at["flash1-bwd"] == found["flash1"]["total"]


# ---------------------------------------------------------------- forms of the answer, and bad input


def test_csv_has_the_same_numbers(iosim, steps):
    args = ["--N", 128, "--d", 16, "--tiles", "16x16", "--unfused", "dropout"]
    rows = {
        r["combination"]: r
        for r in csv.DictReader(io.StringIO(iosim("count", "--pass", "step", *args, "--csv").stdout))
    }
    for name, step in steps(*args).items():
        assert int(rows[name]["total_bytes"]) == step["total_bytes"]
        assert int(rows[name]["backward_reads"]) == step["backward"]["reads"]
        assert rows[name]["stored"] == "+".join(step["stored"])


def test_nothing_fits(steps, iosim):
    found = steps("--N", 64, "--d", 32, "--M", "64el", "--combination", "flash2")["flash2"]
    assert found["total"] is None and found["fits"] is False and found["ratio_to_standard"] is None
    assert "nothing fits" in iosim("count", "--pass", "step", "--N", 64, "--d", 32, "--M", "64el").stdout


def test_backward_tiles_of_their_own(steps):
    step = steps("--N", 128, "--d", 16, "--tiles", "32x64", "--backward-tiles", "16x32", "--combination", "flash1")
    assert (step["flash1"]["forward"]["Bc"], step["flash1"]["backward"]["Bc"]) == (64, 32)


def test_the_answer_in_a_sentence(ask, iosim):
    """Its factors are those of the rows. Nothing is said to fit where M is not known."""
    size = ("--M", 232_448, "--acc-dtype", "fp32", "--tile-multiple", 16)
    line = ("count", "--pass", "step", "--N", 4096, "--d", 128, *size)
    found = ask(*line)
    steps = {step["combination"]: step for step in found["results"]}
    best, standard = steps["flash2"], steps["standard"]
    share = standard["total_bytes"] / best["total_bytes"]
    said = found["answer"]
    assert said.startswith(f"flash2 (256x16, backward 16x128) moves {share:.3g}x fewer bytes than standard.")
    assert f"stores {standard['stored_bytes'] / best['stored_bytes']:.3g}x fewer bytes" in said
    assert f"computes {best['flops'] / standard['flops']:.3g} times as many FLOPs" in said
    assert "flash1 (16x352, backward 16x112) is next" in said and "is not known" not in said
    first, *_ = text = iosim(*line).stdout.splitlines()
    assert said.startswith(f"{first} ") and " ".join([first, *text[-2:]]) == said, "the answer leads"
    assert (
        "Nothing that was counted fits"
        in ask("count", "--pass", "step", "--N", 4096, "--d", 128, "--M", "1KB")["answer"]
    )
    open_ = ask("count", "--pass", "step", "--N", 4096, "--d", 128, "--tiles", "64x64")["answer"]
    assert open_.startswith("standard moves the fewest") and open_.endswith("not known without M.")


def test_the_dropout_mask_of_a_recomputed_forward_pass(steps):
    """Standard attention writes its mask once, reads it once, and keeps it. Under checkpointing it is written twice and
    read once, and not kept."""
    asked = [*FIG2, "--tiles", "64x64", "--unfused"]
    found = steps(*asked, "dropout")
    mask_bytes = HEADS * N * N
    kept, again = found["standard"], found["checkpointing"]
    assert kept["dropout_mask_bytes"] == 2 * mask_bytes and again["dropout_mask_bytes"] == 3 * mask_bytes
    plain = steps(*asked, "mask-fill")
    assert kept["stored_bytes"] > plain["standard"]["stored_bytes"]
    assert again["stored_bytes"] == plain["checkpointing"]["stored_bytes"]
