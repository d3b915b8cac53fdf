"""`iosim roofline`: the bound of `timing` in its rows and sentences, on every chip that a file may describe."""

import json
import re

import pytest
from paths import DATA, ROOT

from iosim import Tiling, hardware
from iosim.counting.count import count
from iosim.schedules import find
from iosim.studies.roofline import kept, roofline
from iosim.timing.bound import RESOURCES, time_at_least
from iosim.timing.measured import LEAST_SECONDS, over_bounds

EXAMPLE = (ROOT / "docs/hardware/files.md").read_text().split("```toml\n")[1].split("```")[0]
BARE = EXAMPLE[: EXAMPLE.index("fp16 =")] + "int8 = 100_000_000_000_000\n"


def results(found, **labels):
    return [r for r in found["results"] if all(r[k] == v for k, v in labels.items())]


def test_rows_are_the_bound_of_each_launch(ask):
    """Bytes and times of the launches, and of all of them, one after the other."""
    got = ask("roofline", "--N", 2048, "--d", 64, "--heads", 8, "--hardware", "h100", "--tiles", "128x64")
    chip, p = hardware.load("h100"), roofline(2048, 64, "h100", heads=8).problem
    for name in ("standard", "standard-tiled", "flash1", "flash2"):
        tiling = Tiling(1, 1) if name == "standard" else Tiling(128, 64)
        bound, (*each, whole) = time_at_least(find(name), p, tiling, chip), results(got, schedule=name)
        assert [row["at_least_seconds"] for row in each or [whole]] == [one.seconds for one in bound.launches]
        assert (whole["at_least_seconds"], whole["binds"]) == (bound.seconds, bound.binds)
        for resource in RESOURCES:
            assert whole[f"{resource}_seconds"] == pytest.approx(bound.times.get(resource))
        assert sum(row["read_bytes"] for row in each or [whole]) == bound.work.read_bytes == whole["read_bytes"]
        assert whole["smem_read_words"] == (None if name == "standard" else bound.work.smem_read_words)


def test_intensity_is_of_products(ask):
    """Q K^T alone has d / (1 + 2 d / N) FLOP/B in fp16, below the A100's ridge; softmax has no products."""
    got = ask("roofline", "--N", 1024, "--d", 64, "--hardware", "A100-80GB", "--schedule", "standard")
    first, second, *_ = got["results"]
    assert first["intensity"] == 64 / (1 + 2 * 64 / 1024) < first["ridge"] == 312e12 / 2.039e12
    assert second["intensity"] is None and second["matrix_flops"] == 0 and second["exps"] == 1024**2


@pytest.mark.parametrize("name", hardware.names())
def test_decode_is_bound_by_memory_and_prefill_less(ask, name):
    """One query over 8192 keys reads 2 x 8192 x d words a KV head, 32 MiB for 8 heads of d = 128, whatever the schedule;
    64 heads and 4 shares of the keys keep every multiprocessor busy."""
    base = ["--N", 8192, "--d", 128, "--heads", 32, "--kv-heads", 8, "--gqa", "pack", "--hardware", name]
    got = ask("roofline", *base, "--batch", 32, "--schedule", "split-kv", "--splits", 4, "--tiles", "32x64", "--decode")
    prefill, decode = results(got, phase="prefill", launch="1")[0], results(got, phase="decode", launch="1")[0]
    assert decode["memory_seconds"] >= 32 * 32 * 2**20 / hardware.load(name).hbm_bytes_per_second
    assert decode["binds"] in ("memory", "shared") and prefill["binds"] != "memory"
    assert decode["intensity"] < 10 < prefill["intensity"]


def test_grouped_heads_share_keys_in_an_ideal_l2(ask):
    """32 query heads on 8 KV heads: each streams K and V again, but an ideal L2 fetches 32 MiB and not 128."""
    base = ["--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--kv-heads", 8, "--hardware", "H200"]
    (row,) = ask("roofline", *base, "--schedule", "flash2", "--tiles", "64x64")["results"]
    vectors = 2 * 32 * 128 * 2
    assert row["floor_bytes"] == 32 * 2**20 + vectors
    assert row["read_bytes"] + row["write_bytes"] == 128 * 2**20 + vectors
    (packed,) = ask("roofline", *base, "--gqa", "pack", "--schedule", "flash2", "--tiles", "64x64")["results"]
    assert packed["floor_bytes"] == packed["read_bytes"] + packed["write_bytes"] == 32 * 2**20 + vectors


def test_no_measured_kernel_is_faster_than_the_bound_of_its_tiles():
    """PyTorch's FlashAttention-2 forward on an H200, with the tiles that its name says."""
    kernels = json.loads((DATA / "h200_sdpa.json").read_text())["kernels"]
    flash = [k for k in kernels if k["backend"] == "FLASH_ATTENTION" and k["pass"] == "forward"]
    assert len(flash) > 5
    ratios = []
    for k in flash:
        sizes = {"Nk": k["Nk"], "heads": k["heads"], "kv_heads": k["kv_heads"], "batch": k["batch"]}
        tiles, mask = "{}x{}".format(*k["tiles"]), "causal" if k["causal"] else "dense"
        found = roofline(k["N"], k["d"], "H200", schedules="flash2", tiles=tiles, mask=mask, **sizes)
        ratios.append(k["metrics"]["gpu__time_duration.sum"] * 1e-9 / found.rows[0].at_least_seconds)
    assert min(ratios) > 1.8 and max(ratios) < 7.2


@pytest.mark.parametrize(
    "more", [{}, {"mask": "causal"}, {"N": 1, "Nk": 4096, "kv_heads": 1}, {"tiles": "128x176"}, {"tiles": "best"}]
)
def test_a_roofline_has_the_tiles_and_values_of_a_count(more):
    """Published tiles included, and tiles that fit with registers only."""
    asked = {"N": 512, "d": 128, "heads": 4, "hardware": "h100", "schedules": "flash1,flash2", **more}
    names = ("schedule", "tiling", "Br", "Bc", "fits", "limit", "read_bytes", "write_bytes", "ratio_to_floor", "binds")
    names += ("smem_peak_bytes", "register_peak_bytes", "at_least_seconds", "smem_read_words", "blocks")
    counted, found = count(**asked), roofline(**asked)
    every = [*counted.results, *(result for _, result in counted.published)]
    rows = [row for row in found.to_rows() if row["launch"] == "all"]
    assert [[row[name] for name in names] for row in rows] == [[getattr(r, name) for name in names] for r in every]
    assert str(found).startswith(str(counted).split("\n")[0])


def test_times_of_a_chip_on_which_nothing_fits_are_refused(iosim, tmp_path):
    (tmp_path / "tiny.toml").write_text(re.sub("(?m)^(shared_memory_per_block_bytes =).*", r"\1 64", BARE, count=1))
    line = ("--N", "512,1024", "--d", 64, "--hardware", str(tmp_path / "tiny.toml"))
    done = iosim("plot", "--picture", "time", *line, "-o", tmp_path / "x.svg")
    assert done.exit_code == 2 and "found 'an SRAM of 64 B'; allowed: a GPU on which some tile fits" in done.stderr


@pytest.mark.parametrize("text", [EXAMPLE, BARE])
@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_a_chip_without_an_l2_or_peaks_has_answers(iosim, tmp_path, text, dtype):
    """All that its multiprocessors load and store comes from HBM; a note names the rates that are not stated."""
    (tmp_path / "mine.toml").write_text(text)
    line = ("--d", 64, "--hardware", str(tmp_path / "mine.toml"), "--dtype", dtype)
    done = iosim("roofline", "--N", 512, *line, "--decode", "--claim", "1s", "--json")
    assert done.exit_code == 0, done.stderr
    for row in json.loads(done.stdout)["results"]:
        assert row["memory_seconds"] == pytest.approx((row["read_bytes"] + row["write_bytes"]) / 1e12)
        assert row["l2_seconds"] is None and row["shared_seconds"] is None and row["at_least_seconds"] > 0
        assert (row["matrix_seconds"] is None) == (f"\n{dtype} =" not in text)
    assert "states no rate of shared memory" in done.stderr and "L2" not in done.stderr
    for picture in ("roofline", "time"):
        sizes = "512,1024" if picture == "time" else 512
        drawn = iosim(
            "plot", "--picture", picture, "--N", sizes, *line, "--schedule", "flash2", "-o", tmp_path / "x.svg"
        )
        assert drawn.exit_code == 0, drawn.stderr


@pytest.mark.parametrize("M", [200, 1535, 1536])
def test_it_is_said_where_tiles_of_multiples_fit(M):
    """The least tiles of 16 take 1536 bytes: three of 256 words."""
    line = {"N": 1024, "d": 64, "hardware": "t4", "M": M, "schedules": "small-cache,standard-square"}
    said = any("try --tile-multiple 16" in note for note in roofline(**line, paper_model=True).notes)
    assert said == bool(roofline(**line, paper_model=True, tile_multiple=16).rows) == (M >= 1536)


# ---------------------------------------------------------------- claims

SERVED = {"N": 1, "Nk": 65_536, "d": 128, "batch": 32, "heads": 32, "kv_heads": 4, "schedules": "flash2"}
PREFILL = {"N": 8192, "d": 128, "heads": 32, "schedules": "flash2"}


@pytest.mark.parametrize(
    "asked, gpu, claim, possible, binds",
    [
        (SERVED, "h100", "815.86us", False, "memory"),
        (SERVED, "h100", "5.264 TB/s", False, "memory"),
        (SERVED, "b200", "5.264 TB/s", True, "memory"),
        (SERVED | {"kv_dtype": "fp8"}, "h100", "815.86us", True, "memory"),
        (SERVED | {"mask": "window:4095"}, "h100", "100us", True, "memory"),
        (PREFILL, "h100", "215us", False, "matrix"),
        (PREFILL, "h100", "700 TFLOP/s", True, "matrix"),
        (PREFILL | {"mask": "causal"}, "h100", "600us", True, "matrix"),
        (PREFILL | {"decode": True}, "h100", "38us", False, "memory"),
    ],
)
def test_a_claim_is_judged_by_what_the_problem_needs(asked, gpu, claim, possible, binds):
    found = roofline(hardware=gpu, claim=claim, **asked)
    assert (found.claim.possible, found.claim.binds) == (possible, binds)
    assert str(found).startswith("Possible: " if possible else "Impossible: ")
    assert found.to_dict()["claim"]["at_least_seconds"] == found.claim.least


def test_bytes_are_rate_times_time():
    """32 requests of 65,536 tokens, 2,048 bytes of K and V each: 5.264 TB/s in 815.86 us."""
    work = roofline(hardware="h100", claim="815.86us", **SERVED).claim.work
    of_queries = 2 * 32 * 32 * 128 * 2
    assert work["memory"] - of_queries == 2**32 == pytest.approx(5.264e12 * 815.86e-6, rel=1e-4)


def test_a_time_between_the_bounds_is_possible_and_below_all_tiles():
    """The problem takes 1,111 us; tiles come in whole waves, and take 1,146."""
    found = roofline(hardware="h100", claim="1120us", **PREFILL)
    assert found.claim.possible and "It is less than the bound of all tiles below." in str(found)
    assert "less than the bound" not in str(roofline(hardware="h100", claim="1200us", **PREFILL))


# ---------------------------------------------------------------- the page

PAGE = " ".join((ROOT / "docs/roofline.md").read_text().split())
FACTS = {
    "tiles of 256x16 move fewest bytes from HBM, but read 2.4 times as much from shared memory as 128x128": lambda: (
        "256x16 moves least, 4.12 GiB (49 % fewer), but reads 2.4 times as much"
        in str(roofline(8192, 128, "h100", heads=32, schedules="flash2"))
    ),
    "has 142 such times": lambda: len(kept()) == 142,
    "PyTorch's fused kernels took 1.3 to 7.8 times what any kernel needs for their problem (median 2.8)": lambda: (
        [round(x, 1) for x in over_bounds()[0][3:]] == [1.3, 2.8, 7.8]
    ),
    "plain Triton kernels 1.5 to 4.1 times the bound of their tiles (median 2.2)": lambda: (
        [round(x, 1) for x in over_bounds()[1][3:]] == [1.5, 2.2, 4.1]
    ),
    "for bounds of 50 us or more": lambda: LEAST_SECONDS == 50e-6,
    "an H100 needs at least 1,282 us for them": lambda: (
        round(1e6 * roofline(hardware="h100", claim="815.86us", **SERVED).claim.least) == 1282
    ),
    "decode reads 128 MiB of K and V in fp16 and has about one FLOP a byte": lambda: [
        (row.work.read_bytes - 32 * 128 * 2, round(row.intensity))
        for row in roofline(1, 128, "h100", Nk=8192, heads=32, schedules="flash2", tiles="16x128").rows
    ]
    == [(128 * 2**20, 1)],
}  # fmt: skip


@pytest.mark.parametrize("phrase", FACTS)
def test_numbers_of_the_page(phrase):
    assert phrase in PAGE and FACTS[phrase]()


@pytest.mark.parametrize(("name", "said"), [("state-decode", True), ("state-fused", False)])
def test_the_copy_of_a_state_into_its_slot_is_said_to_come_once(name, said, iosim):
    line = ("roofline", "--rule", "gdn", "--decode", "--d", 64, "--heads", 4, "--hardware", "h200", "--schedule", name)
    assert ("copies the given state into its slot, once for a sequence" in iosim(*line).stderr) == said
