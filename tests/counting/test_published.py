"""Published tiles beside the counts of a GPU: which ones, their words, and that they stand in no other answer."""

import json

import pytest

from iosim import Attention, count, floor, tune
from iosim.core.tiling import Tiling
from iosim.counting.published import PUBLISHED, tiles_of_gpus
from iosim.hardware import load, names, toml_of
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout

H100 = 232448
FA2 = [(128, 128), (128, 64), (64, 128), (64, 64)]


def published(*args, **options):
    """The published rows of a count: (label, Br, Bc, words)."""
    found = count(*args, **options).published
    return [(tiles.short, r.Br, r.Bc, r.total) for tiles, r in found]


def test_the_words_are_those_of_the_tiles():
    """N d for Q and O, and K and V once for each tile of queries."""
    N, d = 8192, 128
    rows = published(N, d, hardware="h100")
    assert [row[:3] for row in rows] == [*(("FA2", *pair) for pair in FA2), ("FA3", 128, 176)]
    assert all(words == 2 * N * d + 2 * N * d * (N // Br) for _, Br, _, words in rows)
    given = count(N, d, hardware="h100", tiles=(64, 128), schedules="flash2", registers="64K", acc_dtype="fp32")
    shown = count(N, d, hardware="h100").published[2].result
    assert (given.results[0].total, given.results[0].ratio_to_floor) == (rows[2][3], shown.ratio_to_floor)
    assert shown.ratio_to_floor > 15, "what lies in registers counts as M"


@pytest.mark.parametrize("d, dense, causal", [
    (40, (192, 192), (192, 128)), (64, (192, 192), (192, 128)), (96, (192, 144), (192, 144)), (128, (128, 176), None),
    (192, (128, 112), (128, 112)), (256, (128, 80), (128, 80)), (264, None, None),
])  # fmt: skip
def test_the_tiles_of_flash_attention_3(d, dense, causal):
    """They follow from d and from the mask, and all of them fit on the GPU that they were made for. 128x128 is also a
    tile of FlashAttention-2, and stands there once."""
    for mask, pair in (("dense", dense), ("causal", causal), ("window:64", None)):
        rows = published(8192, d, hardware="h100", mask=mask)
        assert [row[1:3] for row in rows if row[0] == "FA3"] == ([pair] if pair else [])
        assert len({row[1:3] for row in rows}) == len(rows)
    assert not [row for row in published(8192, d, hardware="a100-80gb") if row[0] == "FA3"]
    for lacking in ({"dtype": "fp32"}, {"dtype": "fp8"}, {"dv": 512}, {"mask": "window:2b"}):
        assert published(8192, d, hardware="h100", **lacking) == [], "no kernel has it, or the tiles change the problem"


@pytest.mark.parametrize("gpu", names())
def test_what_is_shown_fits_and_is_above_the_floor(gpu):
    """O and S may be in registers, and the floor is that of the SRAM and the registers."""
    for d, mask in ((64, "dense"), (128, "causal"), (256, "dense")):
        found = count(4096, d, hardware=gpu, mask=mask)
        for tiles, result in found.published:
            assert result.fits and result.smem_peak_bytes <= found.M_bytes and result.ratio_to_floor >= 1
            assert result.register_peak_bytes <= 256 * 1024 and tiles.source


def test_tiles_that_are_the_same_on_a_short_axis_stand_there_once():
    """64 queries make 64x128 of 128x128, and of a problem of one tile there is one row. It stands there beside best tiles that
    are the same."""
    rows = published(64, 128, Nk=8192, heads=32, hardware="h100")
    assert [row[:3] for row in rows] == [("FA2", 128, 128), ("FA2", 128, 64), ("FA3", 128, 176)]
    assert [row[:3] for row in published(64, 64, hardware="h100")] == [("FA2", 128, 128)]


def test_where_they_stand(ask, iosim):
    """With a GPU and its conditions, in the table, the CSV and the JSON; never as the answer."""
    line = ("count", "--N", 8192, "--d", 128, "--hardware", "h100")
    found = ask(*line)
    assert [row["label"] for row in found["published"]] == ["FlashAttention-2"] * 4 + ["FlashAttention-3"]
    assert all(row["tiling"] in ("best", "paper", "ideal") for row in found["results"])
    text, csv = iosim(*line).stdout, iosim(*line, "--csv").stdout
    assert (
        "FA2 128x64" in text and "FA3 128x176" in text and "FA2, FA3: published tiles of FlashAttention-2 and" in text
    )
    assert len(csv.splitlines()) == 1 + len(found["results"]) + 5
    for more in (("--paper-model",), ("--tiles", "64x64"), ("--tiles", "best"), ("--schedule", "flash1")):
        assert ask(*line, *more)["published"] == []
    assert ask("count", "--N", 8192, "--d", 128, "--M", H100, "--acc-dtype", "fp32")["published"] == []


@pytest.mark.parametrize("gpu, d, mask", [("h100", 128, "dense"), ("rtx-4090", 256, "dense"), ("h200", 64, "causal")])
def test_tune_finds_the_same_of_them_as_count(gpu, d, mask, iosim):
    """What fits in tune is a row of count. Without the conditions of a GPU the tiles are in one SRAM, as before."""
    best = tune(8192, d, hardware=gpu, mask=mask)
    fits = [(c.label, r.Br, r.Bc, r.total, r.ratio_to_floor) for c, r in best.published if c.short and r.fits]
    counted = count(8192, d, hardware=gpu, mask=mask).published
    assert fits == [(c.label, r.Br, r.Bc, r.total, r.ratio_to_floor) for c, r in counted] and fits
    assert "of registers beside M:" in str(best) and "x floor: over the floor of M and 256 KiB of registers" in str(
        best
    )
    paper = tune(8192, d, hardware=gpu, mask=mask, paper_model=True)
    assert "\npublished:\n" in str(paper) and not any(r.register_peak_bytes for _, r in paper.published)
    assert all(c.label != "FlashAttention-3" for c, _ in paper.published)


@pytest.mark.parametrize(("stated", "rows"), [(None, True), (0, False), (131_072, False), (262_144, True)])
def test_a_chip_with_too_few_registers_has_no_rows_of_these_kernels(stated, rows, tmp_path, iosim):
    """Their tiles of S and O are in 256 KiB of registers. A file that states none is told what is assumed."""
    path, text = tmp_path / "mine.toml", toml_of("h100").replace('registers_per_sm_bytes = "', 'registers = "')
    text = "\n".join(line for line in text.splitlines() if "registers" not in line)
    path.write_text(text if stated is None else f"registers_per_sm_bytes = {stated}\n{text}")
    line = ("--N", 4096, "--d", 64, "--hardware", path)
    for command in ("count", "tune"):
        done = iosim(command, *line, "--json")
        found = [one["label"] for one in json.loads(done.stdout)["published"]]
        assert done.exit_code == 0
        for label in ("FlashAttention-2", "FlashAttention-3"):
            assert (label in found) == rows
        assert done.stderr.count("states no registers_per_sm_bytes: 256 KiB are assumed") == (stated is None)


def test_tune_and_count_read_the_same_list():
    known = {c.tiles for c in PUBLISHED if c.short}
    assert known == {Tiling(*pair) for pair in FA2}
    assert {
        t.tiles for t in tiles_of_gpus(["flash2"], Attention(64, 64), H100, load("h100")) if t.short == "FA2"
    } == known
    assert {c.tiles for c, _ in tune(4096, 64, "100KB").published if c.label == "FlashAttention-2"} >= known
    assert [*tiles_of_gpus(["flash1"], Attention(64, 64), H100, load("h100"))] == []
    assert [*tiles_of_gpus(["flash2"], Attention(64, 64, mask=parse_mask("causal")), H100, load("h100"))][
        -1
    ].tiles == Tiling(192, 128)


def test_people_see_the_sram_that_must_fit_in_M(iosim):
    """The registers of these kernels are beside M: `count` shows the shared memory, and so does `tune`."""
    line = ("--N", 8192, "--d", 128, "--hardware", "h100", "--causal")
    counted, tuned = iosim("count", *line).stdout, iosim("tune", *line).stdout
    (shown,) = [row.split() for row in counted.splitlines() if row.startswith("flash2          FA2 128x128")]
    (other,) = [
        row.split() for row in tuned.splitlines() if row.startswith("FlashAttention-2  flash2            128x128")
    ]
    assert shown[4] == other[5] == f"{3 * 128 * 128 * 2:,}"  # tiles of Q, K and V in fp16


FIELDS = {"N": 1, "Nk": 8192, "d": 128, "heads": 32, "kv_heads": 8, "hardware": "h100"}


def test_one_query_packs_the_heads_of_a_kv_head_in_these_kernels(iosim):
    """FlashAttention-2 cuts the keys into 32 shares there: K and V once, and 32 partial results of each head."""
    kept = 2 * 8192 * 128 * 8 + 2 * 32 * 128
    assert published(**FIELDS) == [("FA2", 64, 128, kept + 32 * 32 * 129 * 2 + 31 * 32 * 128), ("FA3", 128, 176, kept)]
    found = {tiles.short: (tiles.splits, result.blocks) for tiles, result in tune(**FIELDS).published if tiles.short}
    assert found == {"FA2": (32, 8 * 32), "FA3": (1, 8)}
    line = ("--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--kv-heads", 8, "--hardware", "h100")
    assert "FA2 cuts the keys into 32 shares" in iosim("count", *line).stdout
    lead, *below = iosim("count", *line).stdout.splitlines()
    assert lead.startswith(
        "FlashAttention-2 (split-kv 64x128 --splits 32) takes at least 10.3 us on H100: the HBM binds"
    )
    assert "Of the rows that are no library's flash2 16x128 is the fastest, with at least 35.88 us" in "\n".join(below)
    alone = tune(1, 128, "100KB", Nk=8192, heads=32, kv_heads=8).published
    assert {result.total for tiles, result in alone if tiles.short} == {kept}, "no GPU says how many shares"


@pytest.mark.parametrize("more", [{"N": 2}, {"kv_heads": 32}, {"mask": "window:64"}, {"dropout": Dropout(0.1)}])
def test_nothing_is_packed_elsewhere(more):
    """One query has its keys split all the same, where few blocks are; not with dropout."""
    rows = count(**{**FIELDS, **more}).published
    splits = [tiles.splits for tiles, _ in rows if tiles.short == "FA2"]
    assert splits == ([7] if {"kv_heads", "mask"} & {*more} else [1] * len(splits)) and rows  # 32 x 7 of 264 places
    assert all((result.schedule == "split-kv") == (tiles.splits > 1) for tiles, result in rows)
    assert all(tiles.as_run(count(**{**FIELDS, **more}).problem).gqa == "repeat" for tiles, _ in rows)


@pytest.mark.parametrize("more", [{}, {"gqa": "pack", "latent": True}])
def test_one_query_of_a_width_that_no_kernel_has_is_answered(more):
    """Tiles of FlashAttention-2 stand beside it in the paper's model, where its kernel has no rule for d = 576."""
    assert any(tiles.short for tiles, _ in tune(1, 576, "227KB", Nk=64, dv=512, heads=8, kv_heads=1, **more).published)


@pytest.mark.parametrize("more", [{"short_tile": "first"}, {"visit_all": True}])
@pytest.mark.parametrize("N", [1000, 1])
def test_a_row_of_a_library_is_what_the_library_does(more, N):
    """Options of schedules move rows of schedules, not those of libraries."""
    fields = {"N": N, "Nk": 1000, "d": 128, "heads": 8, "kv_heads": 2, "mask": "causal", "hardware": "h100"}
    of_library = [
        [(c.short, r.total, r.reads) for c, r in count(**fields, **own).published if c.short] for own in ({}, more)
    ]
    assert of_library[0] == of_library[1] and len(of_library[0]) > 1
    if N > 1:
        paper = [tune(N, 128, "100KB", mask="causal", schedules=["flash2"], **own) for own in ({}, more)]
        kept = [[(r.Br, r.Bc, r.total) for c, r in one.published if c.short] for one in paper]
        assert kept[0] == kept[1] and paper[0].results[0].total != paper[1].results[0].total


def test_the_tiles_for_hopper_stand_on_hopper_alone():
    """FlashAttention-3 is compiled for sm_90a and multiplies by wgmma, which a B200 with as much shared memory lacks."""
    for gpu, labels in (("h100", {"FA2", "FA3"}), ("h200", {"FA2", "FA3"}), ("b200", {"FA2"})):
        assert {row.tiles.short for row in count(8192, 128, heads=32, hardware=gpu).published} == labels


@pytest.mark.parametrize("fields", [
    {"N": 8192, "d": 128, "heads": 32}, {"N": 1, "Nk": 8192, "d": 128, "heads": 32, "kv_heads": 8}, {"N": 65536, "d": 32, "dtype": "fp32"},
])  # fmt: skip
def test_a_column_of_ratios_is_over_one_floor(fields):
    """On a GPU it is that of M and the registers together, of tiles of a paper too; the paper's model has M alone."""
    for more, registers in (({}, 2**18), ({"paper_model": True}, 0)):
        found = tune(hardware="h100", **fields, **more)
        rows = [*found.results, *(row for _, row in found.published)]
        floors = {round(row.total / row.ratio_to_floor) for row in rows if row.ratio_to_floor}
        p = Attention(register_bytes=registers, **fields, **({} if more else {"acc_dtype": "fp32"}))
        assert floors == {floor(p, H100).words}
        assert ("x floor: over the floor of M and 256 KiB of registers together" in str(found)) == (not more)
