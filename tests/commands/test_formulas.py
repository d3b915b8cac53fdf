"""No text of a table is a formula when a spreadsheet opens it, whoever chose the text."""

import csv
import io
from pathlib import Path

import pytest
from paths import DATA, ROOT

from iosim.tables import FORMULA, csv_cell, to_csv

NAMES = ["=HYPERLINK(1)", "+cmd", "-1", "@sum"]
PROFILE = ("--N", 4096, "--d", 64, "--heads", 32, "--from-ncu", DATA / "ncu_flash.csv", "--csv")


def texts(table):
    return [cell for row in csv.reader(io.StringIO(table)) for cell in row]


@pytest.mark.parametrize("line", ["sweep --schedule flash2", "sweep --what roofline --schedule flash2", "roofline"])
@pytest.mark.parametrize("name", NAMES[:2])
def test_a_hardware_file(line, name, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = f"{name}.toml"
    Path(file).write_text((ROOT / "configs" / "hardware" / "t4.toml").read_text())
    result = iosim(*line.split(), "--N", 64, "--d", 8, f"--hardware={file},h100", "--csv")
    assert result.exit_code == 0, result.output
    assert "'" + file in texts(result.stdout) and file not in texts(result.stdout)


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_name_of_a_kernel(name, iosim):
    result = iosim("profile", name, *PROFILE)
    assert result.exit_code == 0, result.output
    assert not [text for text in texts(result.stdout) if text.startswith(("=", "+"))]


def test_a_tables_own_texts(iosim):
    assert not [text for text in texts(iosim("schedules", "--csv").stdout) if text.startswith(FORMULA)]


@pytest.mark.parametrize("text", [*NAMES, "\ttab"])
def test_texts_that_begin_as_formulas_are_written_as_texts(text):
    assert list(csv.DictReader(io.StringIO(to_csv([{"name": text, "n": -3}])))) == [{"name": "'" + text, "n": "-3"}]
    assert csv_cell(-3.5) == -3.5 and csv_cell("causal") == "causal" and csv_cell(None) == ""
