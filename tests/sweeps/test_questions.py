"""A sweep may ask any of some commands at each grid point: its rows are those of the commands, in parts and processes."""

import csv
import io
import itertools
import json

import pytest
from sweeps_run import gathered

from iosim.column_types import type_of
from iosim.counting.sweep_axes import build
from iosim.errors import InternalError
from iosim.sweeps.questions import QUESTIONS, Asked

AXES = {
    "tune": {"--N": (32, 64), "--d": (8,), "--dtype": ("fp16", "fp32"), "--M": ("2KB", "4KB"), "--stages": (1, 2)},
    "cache": {"--N": (32, 64), "--d": (8, 16), "--mask": ("dense", "causal"), "--M": ("1KB", "2KB"),
              "--tiles": ("8x8", "16x4")},
    "check": {"--N": (16, 32), "--d": (8,), "--dtype": ("fp16", "fp32"), "--acc-dtype": ("fp32", "fp64"),
              "--tiles": ("8x8", "16x8")},
    "roofline": {"--N": (32, 64), "--d": (8,), "--heads": (1, 2), "--tile-multiple": (1, 8), "--hardware": ("h100", "t4")},
}  # fmt: skip
SCHEDULES = ("--schedule", "flash1,flash2")


def line_of(what, axes):
    between = {"--mask": ";"}
    return [text for name, values in axes.items() for text in (name, between.get(name, ",").join(map(str, values)))]


def cells(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("what", QUESTIONS)
def test_rows_are_those_of_the_command_at_each_point(what, iosim):
    axes = AXES[what]
    found = cells(iosim("sweep", "--what", what, *line_of(what, axes), *SCHEDULES, "-o", "-").stdout)
    order = [name for name in ("--tile-multiple", "--stages", "--dtype", "--acc-dtype", "--mask", "--N", "--d",
                               "--heads", "--M", "--hardware", "--tiles") if name in axes]  # fmt: skip
    for place in itertools.product(*(axes[name] for name in order)):
        point = [str(text) for pair in zip(order, place, strict=True) for text in pair]
        for row in cells(iosim(what, *point, *SCHEDULES, "--csv").stdout):
            same = found.pop(0)
            assert {name: same[name] for name in row} == row
            for name, value in zip(order, place, strict=True):
                column = name.strip("-").replace("-", "_")
                assert same.get(column, str(value)) == str(value)
    assert not found


@pytest.fixture(params=QUESTIONS)
def small(request):
    """A sweep of some points."""
    return ("sweep", "--what", request.param, *line_of(request.param, AXES[request.param]), "--schedule", "flash2")


@pytest.mark.long
def test_parts_and_processes_write_the_same(small, iosim, tmp_path):
    folder, jobs = tmp_path / "sweep", ("--jobs", 2) if "tune" in small else ()
    whole = iosim(*small, "-o", "-").stdout.encode()
    result = iosim(*small, "--part-rows", 7, *jobs, "-o", f"{folder}/")
    assert result.exit_code == 0, result.output
    assert gathered(iosim, folder, tmp_path) == whole
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["rows"] == len(whole.splitlines()) - 1 and len(manifest["files"]) > 2
    assert manifest["arguments"]["what"] == small[2]
    (folder / "part-00000001.csv").unlink()
    assert iosim(*small, "--part-rows", 7, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == whole
    if jobs:
        assert iosim(*small, *jobs, "-o", tmp_path / "two.csv").exit_code == 0
        assert (tmp_path / "two.csv").read_bytes() == whole


@pytest.mark.needs("pyarrow")
def test_parquet_has_the_types_of_the_columns(small, iosim, tmp_path):
    import pandas as pd

    out = tmp_path / "out.parquet"
    result = iosim(*small, "-o", out)
    assert result.exit_code == 0, result.output
    rows, text = pd.read_parquet(out), cells(iosim(*small, "-o", "-").stdout)
    assert list(rows.columns) == list(text[0]) and len(rows) == len(text)
    kinds = {"string": "category", "boolean": "bool", "number": "float64", "integer": "int64"}
    for name in rows:
        known = rows[name].dropna()
        assert str(known.dtype) in (kinds[type_of(name)], "object", "Int64", "boolean"), name
        if type_of(name) in ("integer", "number"):
            assert [float(row[name]) for row in text if row[name]] == list(map(float, known)), name


def test_some_columns(iosim):
    result = iosim(
        "sweep", "--what", "tune", "--N", "64,128", "--d", 8, "--M", "4KB", "--columns", "N,total", "-o", "-"
    )
    rows = cells(result.stdout)
    assert list(rows[0]) == ["N", "total"] and rows[0]["N"] == "64" and rows[-1]["N"] == "128"
    assert [row["total"] for row in rows if row["N"] == "64"] == [
        row["total"] for row in cells(iosim("tune", "--N", 64, "--d", 8, "--M", "4KB", "--csv").stdout)
    ]


def test_what_is_refused(iosim):
    line = ("sweep", "--N", 64, "--d", 8, "--M", "4KB")
    for more, message in (
        (("--what", "rofline"), "did you mean 'roofline'?"),
        (("--what", "tune", "--tiles", "8x8"), "which finds the tiles"),
        (("--what", "roofline"), "--hardware"),
        (("--what", "check", "--columns", "words,nothing"), "nothing"),
    ):
        result = iosim(*line, *more, "-o", "-")
        assert result.exit_code == 2 and message in result.stderr and not result.stdout, more


def test_a_point_without_an_answer_is_named(iosim, tmp_path):
    """Before anything is written if the GPU or an option is the fault, else where it is found."""
    line = ("sweep", "--what", "roofline", "--N", "64,128", "--d", 8, "--dtype", "fp16,fp8", "--hardware", "h100,t4")
    result = iosim(*line, "-o", "-")
    assert result.exit_code == 2 and "at dtype fp8, acc_dtype fp8, N 64, hardware t4" in result.stderr
    assert not result.stdout
    line = ("sweep", "--what", "cache", "--N", 64, "--d", 8, "--M", "4KB", "--tiles", "8x8", "--heads", "1,2")
    result = iosim(*line, "-o", tmp_path / "x.csv")
    assert result.exit_code == 2 and result.stderr.endswith("; at heads 2\n") and not list(tmp_path.iterdir())


def test_the_number_of_points_is_known_before(iosim):
    line = ("sweep", "--N", "64,128", "--d", 8, "--M", "4KB,8KB", "--tiles", "8x8,16x16", "--what", "cache")
    assert iosim(*line, "--dry-run").stdout == "8\n"


def test_a_column_that_comes_later_is_no_silent_loss(monkeypatch):
    plan = build({"N": "64,128", "d": 8, "M": "4KB"}, "flash2")
    monkeypatch.setitem(QUESTIONS, "tune", lambda p: [{"total": 1, **({"more": 1} if p.fields["N"] == 128 else {})}])
    with pytest.raises(InternalError, match="more"):
        list(Asked(plan, "tune"))
