"""A sweep says what single counts say; integers stay integers; files are whole or not there."""

import csv
import io
import json

import pandas as pd
import pytest

from iosim import count, sweep
from iosim.report import COLUMNS

GRID = {"N": "60,1000", "Nk": "77", "d": "8:16:+8", "M": "10,2KB,20KB", "heads": "2", "batch": [1, 3]}


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("acc", ["fp16", "fp32"])
def test_rows_are_the_results_of_single_counts(mask, acc):
    rows = sweep(**GRID, mask=mask, acc_dtype=acc)
    assert tuple(rows.columns) == COLUMNS
    runs = 5 if mask == "dense" else 8
    assert len(rows) == 2 * 2 * 3 * 2 * runs
    for start in range(0, len(rows), runs):
        first = rows.iloc[start]
        sizes = {name: int(first[name]) for name in ("N", "Nk", "d", "heads", "batch")}
        single = count(**sizes, M=int(first["M_bytes"]), mask=mask, acc_dtype=acc)
        for (_, row), result in zip(rows.iloc[start : start + runs].iterrows(), single.results, strict=True):
            for name in COLUMNS[11:]:
                value = getattr(result, name)
                if isinstance(value, float):
                    value = pytest.approx(value, rel=1e-15)
                assert pd.isna(row[name]) if value is None else row[name] == value, name


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


def test_parquet_holds_the_same_table(iosim, tmp_path):
    pytest.importorskip("pyarrow")
    out = tmp_path / "out.parquet"
    assert iosim("sweep", "--N", "64,128", "--d", "16", "--M", "10,16KB", "-o", out).exit_code == 0
    rows = pd.read_parquet(out)
    assert tuple(rows.columns) == COLUMNS and len(rows) == 20
    assert rows["total"].dropna().tolist() == sweep(N="64,128", d=16, M="10,16KB")["total"].dropna().tolist()


def test_the_shipped_sweep(iosim):
    from iosim.hardware import configs_folder

    file = configs_folder() / "sweeps" / "sram.toml"
    assert iosim("sweep", file, "--dry-run").stdout == "30\n"
