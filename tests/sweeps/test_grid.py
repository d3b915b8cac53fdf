"""A sweep gives the same numbers as single counts. Integers stay integers. Files are whole or not there."""

import csv
import io
import json
import re
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
from spread import spread

from iosim import SCHEDULES, Schedule, Tiling, count, sweep
from iosim.counting.columns import COLUMNS
from iosim.errors import InputError, IosimError
from iosim.schedules import find

GRID = {"N": "60,1000", "Nk": "77", "d": "8:16:+8", "M": "10,2KB,20KB", "heads": "2", "batch": [1, 3]}


MASKS = {"dense": 5, "causal": 8, "window:9": 8, "causal&window:30": 8, "global:3": 8, "strided:5": 8, "window:1b": 7}
# runs with visit_all: then block-sparse and block-sparse-q are more than other names of flash1 and flash2


@pytest.mark.parametrize("mask, runs", MASKS.items())
@pytest.mark.parametrize(
    "acc, visit_all", [pytest.param("fp16", True, marks=pytest.mark.long), ("fp32", True), ("fp32", False)]
)
def test_rows_are_the_results_of_single_counts(mask, runs, acc, visit_all):
    runs = runs if visit_all else {"window:1b": 4}.get(mask, 5)
    rows = sweep(**GRID, mask=mask, acc_dtype=acc, visit_all=visit_all)
    assert tuple(rows.columns) == COLUMNS + ("visit_all",) * visit_all
    assert len(rows) == 2 * 2 * 3 * 2 * runs
    rows = rows.to_dict("records")
    for start in range(0, len(rows), runs):
        first = rows[start]
        sizes = {name: int(first[name]) for name in ("N", "Nk", "d", "heads", "batch")}
        single = count(**sizes, M=int(first["M_bytes"]), mask=mask, acc_dtype=acc, visit_all=visit_all)
        for row, result in zip(rows[start : start + runs], single.results, strict=True):
            for name in COLUMNS[11:]:
                value = getattr(result, name)
                if isinstance(value, float):
                    value = pytest.approx(value, rel=1e-15)
                assert pd.isna(row[name]) if value is None else row[name] == value, name


def one_mask_each(case):
    """Each schedule under one mask; each mask with a third of the schedules."""
    name, mask = case
    return list(SCHEDULES).index(name) % 3 == SWEPT.index(mask)


SWEPT = ["dense", "causal", "window:9"]


@pytest.mark.parametrize("name, mask", spread(product(SCHEDULES, SWEPT), one_mask_each, "-".join))
def test_every_schedule_sweeps_as_it_counts(name, mask):
    sizes = {"Nk": 77, "mask": mask, "schedules": [name]}
    points = [{"N": N, "d": 8, "M": M} for N in (60, 77) for M in (2000, 20000)]
    try:
        results = [result for point in points for result in count(**point, **sizes).results]
    except InputError as fault:  # the schedule does not apply to this problem
        with pytest.raises(InputError, match="^" + re.escape(str(fault).partition(":")[0])):
            sweep(N=[60, 77], d=8, M=[2000, 20000], **sizes)
        return
    rows = sweep(N=[60, 77], d=8, M=[2000, 20000], **sizes).to_dict("records")
    for row, result in zip(rows, results, strict=True):
        for column in ("schedule", "tiling", "Br", "Bc", "sram_peak_bytes", "reads", "write_bytes", "flops"):
            value = getattr(result, column)
            assert pd.isna(row[column]) if value is None else row[column] == value, column


SPLIT = {
    "N": "1,13",
    "Nk": "7,50",
    "d": 4,
    "M": "400,2KB",
    "heads": 6,
    "kv_heads": "1,3,6",
    "schedules": "split-kv,paged,flash2",
}
CHIP = {"N": 512, "d": 64, "M": "16KB,64KB", "register_bytes": "0,8192", "stages": "1,2", "acc_dtype": "fp32"}
LATENT = {"N": "1,77", "Nk": "50,300", "latent": True, "M": "100,60000"}
SELECTED = {"N": "1,77", "Nk": 300, "d": "9,40", "key_block": 5, "top_k": "2,6", "M": "100,40000"}
SPECIAL = {  # points whose options have axes or formulas of their own: (what is asked, the rule of tiles)
    "splits": (SPLIT | {"splits": "3"}, "best"),
    "splits, given tiles": (SPLIT | {"splits": "1,4"}, "3x4"),
    "pages": (SPLIT | {"page_size": "5,16", "acc_dtype": "fp32"}, "best"),
    "pages, given tiles": (SPLIT | {"page_size": "5", "acc_dtype": "fp32"}, "3x4"),
    "packing": (SPLIT | {"N": "1", "gqa": "repeat,pack"}, "best"),
    "packing, given tiles": (SPLIT | {"gqa": "pack"}, "3x4"),
    "packing of one causal query": (SPLIT | {"N": 1, "gqa": "pack", "mask": "causal"}, "4x8"),
    "packing of selected keys": ({"N": [1024, 2048], "d": 64, "M": "64KB", "heads": 4, "kv_heads": 2, "gqa": "pack", "top_k": 4, "schedules": "selected"}, "best"),
    "multiples under masks": ({"N": "100:300:+100", "d": 16, "M": "8KB", "tile_multiple": "1,16", "mask": "dense;causal&window:64;causal", "schedules": "block-sparse-q"}, "best"),
    "rows one by one": ({"N": "30,64", "d": 4, "M": "600,2KB", "mask": "dense;causal;window:4&global:3", "schedules": "memory-efficient,flash2"}, "best"),
    "rows one by one, given tiles": ({"N": "30,64", "d": 4, "M": "600,2KB", "mask": "dense;causal;window:4&global:3", "schedules": "memory-efficient,flash2"}, "5x9"),
    "registers and stages": (CHIP | {"schedules": "flash1,flash2"}, "best"),
    "registers and stages, given tiles": (CHIP | {"schedules": "flash1,flash2"}, "64x64"),
    "latent rows": (LATENT | {"d": 41, "dv": "9,40", "schedules": "flash2,flash1,standard-tiled"}, "7x3"),
    "latent rows of one byte": (LATENT | {"d": 41, "dv": "9,40", "kv_dtype": "fp8", "schedules": "flash2"}, "400x4"),
    "selected keys": (SELECTED | {"schedules": "selected"}, "3x5"),
    "selected latent rows": (SELECTED | {"latent": True, "schedules": "selected"}, "3x5"),
    "floors": ({"N": "16:256:x4", "d": [8, 32], "M": "1KB:64KB:x4", "heads": 4, "kv_heads": 2, "mask": "dense;causal;window:3|global:1;causal:b", "schedules": "flash1,flash2,block-sparse-q,flash2-bwd"}, "16x8"),
    "floors without M": ({"N": "16:256:x4", "d": [8, 32], "heads": 4, "kv_heads": 2, "schedules": "flash1,flash2,block-sparse-q,flash2-bwd,state-fused"}, "16x8"),
}  # fmt: skip
COMPARED = ("tiling", "Br", "Bc", "fits", "limit", "sram_peak_bytes", "smem_peak_bytes", "register_peak_bytes", "total",
            "total_bytes", "flops", "ratio_to_standard", "ratio_to_order", "ratio_to_floor")  # fmt: skip


@pytest.mark.parametrize("asked, tiles", SPECIAL.values(), ids=SPECIAL)
def test_options_of_points_count_as_alone(asked, tiles):
    rows = sweep(**asked, tiles=tiles)
    axes = [name for name, value in asked.items() if isinstance(value, (list, str)) and name not in ("M", "schedules")]
    for row in rows.to_dict("records"):
        own = {name: row[name] for name in axes} | {"schedules": [row["schedule"]]}
        if "M" in asked:
            own["M"] = row["M_bytes"]
        result = count(**{**asked, **own}, tiles=tiles)[row["schedule"]]
        for name in (name for name in COMPARED if name in row):
            value = getattr(result, name)
            if isinstance(value, float):
                value = pytest.approx(value, rel=1e-3 if name == "ratio_to_floor" and "latent" in asked else 1e-15)
            assert pd.isna(row[name]) if value is None else row[name] == value, (row, name)
    assert len({*rows["total"]}) > 1


def test_a_csv_has_integers_and_empty_cells(iosim):
    text = iosim("sweep", "--N", "64", "--d", "16", "--M", "10,16KB").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        for name in ("Br", "Bc", "reads", "total_bytes", "sram_peak_words", "flops"):
            assert row[name] == "" or row[name].isdigit()
    assert rows[1]["fits"] == "False" and rows[1]["reads"] == ""


def test_counts_beyond_int64_stay_exact():
    rows = sweep(N=2**40, d=2**20, heads=2**20, tiles="1x1", schedules="flash2")
    assert rows["reads"][0] == 2**20 * (2**60 + 2 * 2**60 * 2**40)


def test_masked_counts_beyond_int64_stay_exact():
    """With causal in tiles of 1 x 1, query x reads its x + 1 keys and values, of d words."""
    rows = sweep(N=[5, 2**40], d=2**20, heads=2**20, tiles="1x1", schedules="block-sparse-q", mask="causal")
    for N, reads in zip([5, 2**40], rows["reads"], strict=True):
        assert reads == 2**20 * 2**20 * (N + 2 * (N * (N + 1) // 2))


def test_a_schedule_that_states_its_candidates_is_asked_point_by_point(monkeypatch):
    """One of tiles of half of the queries, beside 1 or 2 keys. What moves does not depend on the keys."""
    own = replace(find("flash2"), name="own", candidates=lambda p, multiple: [Tiling(p.N // 2, k) for k in (2, 1)])
    monkeypatch.setitem(SCHEDULES, "own", own)
    rows = sweep(N=[8, 20], d=4, M=["1KB", "2KB"], schedules=["flash2", "own"], tiles="best")
    assert [(r.Br, r.Bc) for r in rows.itertuples() if r.schedule == "own"] == [(4, 1), (4, 1), (10, 1), (10, 1)]
    assert list(rows["schedule"]) == ["flash2", "own"] * 4


def test_a_schedule_whose_inner_tiles_matter_is_searched_at_each_point(monkeypatch):
    def turns(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            q = chip.load("Q", i)
            for _ in chip.tiles(i, t.rows_k):
                chip.free(chip.load("K"))
            chip.store(q, "O", i)

    monkeypatch.setitem(SCHEDULES, "turns", Schedule("turns", turns, "made up"))
    rows = sweep(["turns"], "best", N=[70, 300], d=8, M=["1", "16KB", "64KB"])
    for row in rows.to_dict("records"):
        one = count(row["N"], 8, row["M_bytes"], schedules=["turns"], tiles="best")["turns"]
        assert pd.isna(row["total"]) if one.total is None else (row["Br"], row["total"]) == (one.Br, one.total)
    assert rows["total"].notna().sum() == 4


def test_files_with_a_sidecar(iosim, tmp_path):
    out = tmp_path / "out.csv"
    args = ["--N", "1024,8192", "--d", "64,128", "--M", "16KB:256KB:x2"]
    assert iosim("sweep", *args, "-o", out).exit_code == 0
    meta = json.loads((tmp_path / "out.csv.meta.json").read_text())
    assert len(pd.read_csv(out)) == meta["rows"] == 100
    assert iosim("sweep", *args, "--dry-run").stdout == "100\n"
    assert iosim("sweep", *args, "-o", tmp_path / "out.jsonl").exit_code == 0
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert tuple(first) == COLUMNS and first["reads"] == 2293760
    names = ["out.csv", "out.csv.meta.json", "out.jsonl", "out.jsonl.meta.json"]
    assert sorted(x.name for x in tmp_path.iterdir()) == names


def test_a_toml_file(iosim, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text('[sweep]\nN = [1024, 8192]\nd = "64,128"\nM = "16KB:256KB:x2"\nschedule = ["flash2"]\n')
    assert iosim("sweep", file, "--dry-run").stdout == "20\n"
    file.write_text("[sweep]\nN = [1024]\nd = 64\nMM = 3\n")
    result = iosim("sweep", file)
    assert result.exit_code == 2 and "did you mean 'M'" in result.stderr and result.stdout == ""
    file.write_text("N = [")
    assert iosim("sweep", file).exit_code == 2


@pytest.mark.needs("pyarrow")
def test_parquet_holds_the_same_table(iosim, tmp_path):
    out = tmp_path / "out.parquet"
    assert iosim("sweep", "--N", "64,128", "--d", "16", "--M", "10,16KB", "-o", out).exit_code == 0
    rows = pd.read_parquet(out)
    assert tuple(rows.columns) == COLUMNS and len(rows) == 20
    assert rows["total"].dropna().tolist() == sweep(N="64,128", d=16, M="10,16KB")["total"].dropna().tolist()


def test_the_shipped_sweep(iosim):
    from iosim.hardware import configs_folder

    file = configs_folder() / "sweeps" / "sram.toml"
    assert iosim("sweep", file, "--dry-run").stdout == "30\n"


def test_json_lines_have_every_digit_that_csv_has(iosim):
    """This holds for ratios far below 1, too. Unknown values are null, and integers are integers."""
    args = ("sweep", "--N", "64,1048576", "--d", 1, "--M", "16MB", "--schedule", "flash2,standard")
    rows = [json.loads(line) for line in iosim(*args, "--json").stdout.splitlines()]
    written = list(csv.DictReader(io.StringIO(iosim(*args, "--csv").stdout)))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows] == written
    small = next(row for row in rows if row["N"] == 1048576 and row["schedule"] == "flash2")
    assert small["ratio_to_standard"] == small["total"] / next(
        row["total"] for row in rows if row["N"] == 1048576 and row["schedule"] == "standard"
    )


def test_a_sweep_that_packs_queries_of_causal_heads_is_refused():
    with pytest.raises(InputError, match="--gqa"):
        sweep(N=[1, 5], d=4, heads=4, kv_heads=2, gqa="pack", mask="causal", tiles="4x4", schedules="flash2")


def test_a_file_gives_splits_pages_and_packing(iosim, tmp_path):
    file = tmp_path / "decode.toml"
    text = '[sweep]\nN = 1\nNk = 100\nd = 8\nheads = 4\nkv_heads = 2\ntiles = "4x8"\nschedule = ["split-kv", "paged"]\n'
    file.write_text(text + 'splits = 7\npage_size = 10\ngqa = "pack"\n')
    lines = iosim("sweep", file).stdout.splitlines()
    totals = [int(row.split(",")[lines[0].split(",").index("total")]) for row in lines[1:]]
    rows, keys = 2 * 2 * 8, 2 * 2 * 100 * 8  # Q or O; K and V
    assert totals == [7 * rows + keys + 2 * 7 * (rows + 4) + rows, rows + keys + 2 * 10 + rows]
    file.write_text(text + 'gqa = "pakc"\n')
    assert iosim("sweep", file).exit_code == 2


def test_sweeps_know_their_keywords():
    with pytest.raises(ValueError, match="did you mean 'tiles'"):
        sweep(N=64, d=8, tile="8x8")


@pytest.mark.parametrize("names", ["flash2", "flash2,flash1", ["flash2"], ("flash2,flash1", "flash2"), "FLASH2"])
def test_names_of_schedules(names):
    assert [*sweep(names, "8x8", N=64, d=8)["schedule"]] == [
        r.schedule for r in count(64, 8, tiles="8x8", schedules=names)
    ]


@pytest.mark.parametrize("given", ["8x8/depth=2", Tiling(8, 8, depth=2)], ids=str)
def test_sizes_that_a_schedule_lacks_are_refused(given):
    with pytest.raises(InputError, match="found '8x8/depth=2'; allowed: Br x Bc$"):
        sweep(N=16, d=8, tiles=given, schedules="flash2")


def test_a_sweep_takes_each_tiling_once():
    rows = sweep(N=16, d=8, schedules="flash2", tiles=["8x8,8X8", (8, 8), Tiling(4, 8)])
    assert rows[["Br", "Bc"]].to_numpy().tolist() == [[8, 8], [4, 8]]


def test_a_schedule_that_never_stores_its_output_is_told(monkeypatch):
    monkeypatch.setitem(SCHEDULES, "no-output", Schedule("no-output", lambda chip, p, t: chip.free(chip.load("V")), ""))
    with pytest.raises(IosimError, match="no-output never stores its output O; .*stores: nothing;"):
        sweep(N=64, d=8, tiles="16x16", schedules="no-output")


def test_axes_of_options_in_python_and_in_a_file(iosim, tmp_path):
    found = sweep("split-kv", N=1, Nk=512, d=16, M="8KB", splits=[1, 4], tile_multiple=16)
    assert list(found.splits) == [1, 4] and "tile_multiple" not in found
    (tmp_path / "x.toml").write_text(
        '[sweep]\nN = 1\nNk = 512\nd = 16\nM = "8KB"\nschedule = "split-kv"\nsplits = [1, 4]\n'
    )
    rows = list(csv.DictReader(io.StringIO(iosim("sweep", tmp_path / "x.toml").stdout)))
    assert [int(row["splits"]) for row in rows] == [1, 4]
    assert list(sweep("flash2", N=8, d=4, M="4KB", tile_multiple="1,16"))[-1] == "tile_multiple"


def test_a_sweep_has_the_same_columns_in_every_chunk():
    rows = sweep(
        N=[16, 32], d=8, M=[100, 4000], mask=["dense", "causal"], schedules=["small-cache", "flash2"], splits=3
    )
    assert tuple(rows.columns) == (*COLUMNS, "splits", "more_tiles") and set(rows["splits"]) == {3}
    assert not rows.isna()["more_tiles"].any() and (rows["more_tiles"] == "")[rows["schedule"] == "flash2"].all()


@pytest.mark.parametrize("tiles", ["foo", "0x4", "4x4x4"])
def test_an_ideal_schedule_hides_no_bad_tiles(tiles):
    with pytest.raises(InputError, match="--tiles"):
        sweep(N=64, d=8, tiles=tiles, schedules=["standard"])
