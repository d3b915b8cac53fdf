"""`iosim verify --cpu` says what is wrong, each fault by itself."""

import json
from dataclasses import replace

import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError
from iosim.gpu.judged_runs import judged_rows, run_checks, size_that_runs
from iosim.gpu.online_softmax import TEN, blockwise_softmax, demos
from iosim.schedules import find

P, T = Attention(48, 16, dtype="fp16", acc_dtype="fp32"), Tiling(16, 16)
FLASH2 = find("flash2")


def doubled(p, t):
    return {name: (2 * reads, writes) for name, (reads, writes) in FLASH2.exact_traffic(p, t).items()}


def one_more(p, t):
    return FLASH2.footprint(p, t) + 1


def spoilt(by):
    """The output of the same text, `by` too large."""

    def text(chip, p, t):
        FLASH2.text(chip, p, t)

    def answer(inputs, p, visible):
        return {name: array + by for name, array in FLASH2.answer(inputs, p, visible).items()}

    return replace(FLASH2, text=text, answer=answer)


def test_nothing_is_wrong():
    (row,) = judged_rows(P, T, [FLASH2])
    assert row["ok"] is True and row["faults"] == ""


def test_a_long_run_tells_how_much_of_it_is_done():
    """By its loads and stores, of those of both runs: half of them are the first run's."""
    said = []
    (row,) = judged_rows(
        Attention(32, 2, dv=16, dtype="fp8"), Tiling(1, 4), [find("flash2-bwd-panels")], begin=said.append
    )
    done = [int(text.split()[1]) for text in said[1:]]
    assert row["ok"] and said[:1] == ["flash2-bwd-panels"] and len(done) > 2
    assert done == sorted(done) and 0 < done[0] < 50 < done[-1] <= 100


@pytest.mark.parametrize("schedule, fault", [
    (replace(FLASH2, exact_traffic=doubled), "words are not those of the formula by hand"),
    (replace(FLASH2, footprint=one_more), "the peak is not the footprint by hand"),
    (spoilt(1e-6), "the error in fp64 is 1e-06 (allowed: 1e-12)"),
])  # fmt: skip
def test_one_fault_is_told_by_itself(schedule, fault):
    (row,) = judged_rows(P, T, [schedule])
    assert row["ok"] is False and row["faults"] == fault


def test_errors_of_both_types_are_told():
    (row,) = judged_rows(P, T, [spoilt(1.0)])
    fp64, fp16, bias = row["faults"].split("; ")
    assert fp64.startswith("the error in fp64 is 1 (") and fp16.startswith("the error in fp16 is 1 (allowed: 0.02, ")
    assert bias.startswith("the slope of the output in fp16 on the answer is off by ")


@pytest.mark.parametrize(
    "tiles, name", [("64x64", "flash1"), ("128x64", "flash2"), ("64x64", "paged"), ("1x1", "standard")]
)
def test_right_schedules_pass_in_a_narrow_type(iosim, tiles, name):
    """Sums in fp16 over many key tiles are off by as much as any sums in fp16 over such tiles."""
    found = iosim(
        "verify", "--cpu", "--N", 256, "--Nk", 1024, "--d", 64, "--schedule", name, "--tiles", tiles, "--json"
    )
    (row,) = json.loads(found.stdout)["checks"]
    assert found.exit_code == 0 and row["error_fp16"] < row["allowed_error"] < 0.2, row
    assert row["bias"] < row["allowed_bias"] < 4e-3


@pytest.mark.parametrize("name, dtype, acc_dtype", [
    ("flash2", "fp16", "fp32"), ("flash1", "fp16", "fp16"), ("paged", "fp16", "fp32"), ("memory-efficient", "fp32", "fp32"),
])  # fmt: skip
def test_an_output_that_is_a_little_too_large_everywhere_is_told(name, dtype, acc_dtype):
    """Each word is off by less than rounding explains, but all are off in the same direction."""
    schedule, p = find(name), Attention(256, 32, dtype=dtype, acc_dtype=acc_dtype)

    def scaled(chip, p, t):
        schedule.text(Scaled(chip), p, t)

    right, wrong = (judged_rows(p, T, [replace(schedule, text=text)])[0] for text in (schedule.text, scaled))
    assert right["ok"] is True and wrong["ok"] is False
    assert right["bias"] <= right["allowed_bias"] < 1.9e-3 < wrong["bias"]
    assert "the slope of the output" in wrong["faults"]


class Scaled:
    """A machine whose stores of O are 1.002 times too large."""

    def __init__(self, chip):
        self.chip = chip

    def __getattr__(self, name):
        return getattr(self.chip, name)

    def store(self, block, tensor, *tiles):
        if tensor == "O":
            self.chip.update(block, a_little_more)
        self.chip.store(block, tensor, *tiles)


def a_little_more(o):
    o *= 1.002


@pytest.mark.parametrize(
    "N, Nk, tiles", [(96, 96, "16x16"), (17, 20, "16x16"), (16, 40, "8x16"), (5, 2, "3x1"), (1, 3, "1x2")]
)
def test_usual_tiles_are_two_at_least_on_each_axis(N, Nk, tiles, ask):
    """The words are those of these tiles."""
    line = ("verify", "--cpu", "--N", N, "--Nk", Nk, "--d", 4, "--schedule", "flash1,flash2")
    assert ask(*line)["checks"] == ask(*line, "--tiles", tiles)["checks"]
    Br, Bc = map(int, tiles.split("x"))
    assert -(-N // Br) >= min(2, N) and -(-Nk // Bc) >= min(2, Nk)


@pytest.mark.parametrize("sizes, options, hint", [
    ((4096, None), {}, {"N": 2048}),
    ((4096, 100_000), {}, {"N": 41, "Nk": 100_000}),
    ((1, 10**7), {"d": 64}, {"N": 1, "Nk": 262_144}),
    ((4096, None), {"heads": 8, "kv_heads": 2, "gqa": "pack"}, {"N": 1024}),
    ((2**22, None), {"d": 2**20}, {"N": 16}),
])  # fmt: skip
def test_a_size_that_runs_is_suggested(sizes, options, hint):
    """It is just small enough: twice the queries are too many."""
    N, Nk = sizes
    given = Attention(N, **{"d": 16, "Nk": Nk, **options})
    assert size_that_runs(given) == "as in " + " ".join(f"--{name} {size}" for name, size in hint.items())
    with pytest.raises(InputError, match=f"as in --N {hint['N']}"):
        run_checks(given, None, (), "0", print)
    for factor in (1, 2):
        p = replace(given, N=factor * hint["N"], Nk=factor * hint["N"] if Nk is None else hint["Nk"]).packed
        assert (p.N * p.Nk <= 2**22 and max(p.N, p.Nk) * p.d <= 2**24) == (factor == 1) or (factor == 2 and N == 1)


def test_a_verdict_does_not_depend_on_what_else_is_checked(iosim):
    """Each schedule begins with the same random numbers."""
    line = ("verify", "--cpu", "--N", 20, "--d", 4, "--tiles", "4x4", "--csv", "--schedule")
    alone = iosim(*line, "split-kv").stdout.splitlines()[1]
    assert alone in iosim(*line, "flash2,paged,split-kv").stdout.splitlines()
    assert alone not in iosim(*line, "split-kv", "--seed", 1).stdout


def test_an_index_of_large_scores_is_judged(iosim):
    """The squares of its scores are above the largest number of fp16."""
    done = iosim("verify", "--cpu", "--N", 256, "--d", 64, "--tiles", "64x64", "--schedule", "indexer", "--json")
    (row,) = json.loads(done.stdout)["checks"]
    assert done.exit_code == 0 and row["bias"] == 0 and row["allowed_bias"] is not None


@pytest.mark.parametrize("name", ["flash1", "flash2", "standard-tiled", "split-kv"])
def test_errors_grow_with_the_last_bit(name):
    def error(dtype, acc=None):
        row = judged_rows(Attention(48, 16, dtype=dtype, acc_dtype=acc), Tiling(16, 16), [find(name)])[0]
        assert row["ok"]
        return row[f"error_{dtype}"]

    assert 3 * error("fp16") < error("bf16") and 4 * error("bf16") < error("fp8")
    assert error("bf16", "fp32") < 1.01 * error("bf16")


def test_the_errors_are_called_absolute(iosim):
    args = ("verify", "--cpu", "--N", 8, "--d", 4, "--tiles", "4x4", "--schedule", "flash2", "--dtype", "bf16")
    assert "error_bf16" in iosim(*args).stdout and "absolute error" in iosim(*args).stdout
    assert "absolute" in iosim("verify", "--cpu", "--help").stdout


def test_both_factors_are_needed():
    """The sums that the document's code, and code with one of its two mistakes mended, arrive at."""
    sums = {(a, b): float(blockwise_softmax(TEN, 3, a, b).sum()) for a in (False, True) for b in (False, True)}
    assert sums[False, False] == pytest.approx(1.4904979126311533, rel=1e-12)
    assert f"{sums[True, False]:.4f}" == "1.6235" and abs(sums[False, True] - 1) > 0.1
    assert sums[True, True] == pytest.approx(1, rel=1e-12)


def test_demonstrations_are_part_of_check(ask):
    found = {row["piece"]: row for row in ask("verify", "--cpu", "--N", 16, "--d", 4)["pieces"]}
    assert all(found[row["piece"]] == row and row["ok"] for row in demos()) and len(demos()) == 4


@pytest.mark.parametrize(
    "line",
    [
        "--N 512 --d 64 --tiles 16x16 --schedule state-decode",
        "--N 512 --d 64 --tiles 16x16 --schedule state-ring --dtype bf16",
        "--rule gdn --N 32 --d 8 --tiles 8x1 --schedule state-bwd-saved",
    ],
)
def test_sums_of_many_tokens_are_judged_by_their_size(line, iosim):
    """A state of 512 tokens has words of about 10, whose roundings are as much larger; a gradient of b is a number."""
    found = iosim("verify", "--cpu", *line.split())
    assert found.exit_code == 0 and found.stdout.startswith("All that ran is right"), found.output


@pytest.mark.parametrize("line", [
    "--schedule flash2-pinned --tiles 8x8/kept=16", "--schedule small-cache --tiles 8x8/depth=4/rows_o=8/cols_o=4",
    "--schedule state-split --rule gdn --tiles 8x8/cols_o=2",
])  # fmt: skip
def test_tiles_have_all_the_sizes_that_count_takes(line, ask, iosim):
    asked = ["--N", 40, "--d", 8, *line.split()]
    (row,), (counted,) = ask("verify", "--cpu", *asked)["checks"], ask("count", *asked, "--M", "100KB")["results"]
    assert row["ok"] and row["footprint_words"] == counted["sram_peak_words"]
    wrong = iosim("verify", "--cpu", "--N", 40, "--d", 8, "--schedule", "flash2", "--tiles", "8x8/kept=2")
    assert wrong.exit_code == 2 and wrong.stderr == "Error: --tiles: found '8x8/kept=2'; allowed: Br x Bc\n"
