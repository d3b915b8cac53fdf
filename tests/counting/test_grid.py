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

from iosim import SCHEDULES, Tiling, count, sweep
from iosim.counting.columns import COLUMNS
from iosim.errors import InputError
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


BAD = [["--N", "10:20"], ["--N", "10:20:x1"], ["--N", "10:20:+0"], ["--M", "2KB:1KB:x2"], ["--d", "nan"]]


@pytest.mark.parametrize("bad", BAD)
def test_bad_axes_are_refused(iosim, bad):
    given = {"--N": "10", "--d": "4", "--M": "1KB", bad[0]: bad[1]}
    result = iosim("sweep", *[x for pair in given.items() for x in pair])
    assert result.exit_code == 2 and bad[0] in result.stderr and result.stdout == ""


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
