"""Columns beyond the fixed ones, notes on tiles that do not fit by little, and tile rules that are refused."""

import csv
import io

import pytest

from iosim.counting.columns import COLUMNS, every_column
from iosim.tables import excess

SMALL = ["--N", "64", "--d", "8", "--M", "2KB"]
UNUSUAL = {
    "--lse": ("lse", "True"),
    "--keep-p": ("keep_p", "True"),
    "--elementwise 2": ("elementwise", "2"),
    "--count-init": ("count_init", "True"),
    "--splits 3": ("splits", "3"),
    "--page-size 5": ("page_size", "5"),
    "--gqa pack": ("gqa", "pack"),
}


def read(iosim, *args):
    result = iosim(*args, "--csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


@pytest.mark.parametrize("command", ["count", "sweep", "tune"])
def test_a_plain_row_has_the_fixed_columns_only(command, iosim):
    first = read(iosim, command, *SMALL, "--schedule", "flash2")[0]
    extra = {"tune": {"role", "label", "ratio_to_winner", "blocks", "dominated_by"}}.get(command, set())
    assert set(first) - extra == set(COLUMNS)


@pytest.mark.parametrize("command", ["count", "sweep", "tune"])
@pytest.mark.parametrize("dv", [4, 8, 16])
def test_values_of_another_width_are_a_column(command, dv, iosim):
    """Narrower than keys or wider. As wide as keys they need none, but are an axis of a sweep that names them."""
    row = read(iosim, command, *SMALL, "--schedule", "flash2", "--dv", dv)[0]
    assert row.get("dv") == (None if dv == 8 and command != "sweep" else str(dv))


@pytest.mark.parametrize("command", ["count", "sweep", "tune"])
@pytest.mark.parametrize("option", UNUSUAL)
def test_an_option_is_a_column_at_the_end(command, option, iosim):
    name, value = UNUSUAL[option]
    row = read(iosim, command, *SMALL, "--schedule", "flash2", *option.split())[0]
    assert list(row)[-1] == name and row[name] == value
    assert [x for x in row if x in COLUMNS] == list(COLUMNS)


@pytest.mark.parametrize("tiles", ["best", "8x8/depth=3"])
def test_further_tile_sizes_are_in_the_row(tiles, iosim):
    names = ["--schedule", "matmul-tiled-a", "--schedule", "standard", "--tiles", tiles]
    single, many = (read(iosim, command, *SMALL, *names) for command in ("count", "sweep"))
    assert [row["more_tiles"] for row in single] == [row["more_tiles"] for row in many]
    assert single[0]["more_tiles"].startswith("depth=") and single[1]["more_tiles"] == ""
    again = "{Br}x{Bc}/{more_tiles}".format(**single[0])
    (row,) = read(iosim, "count", *SMALL, "--schedule", "matmul-tiled-a", "--tiles", again)
    assert row["total"] == single[0]["total"] and row["sram_peak_bytes"] == single[0]["sram_peak_bytes"]


def test_columns_can_be_asked_for(iosim):
    row = read(iosim, "sweep", *SMALL, "--schedule", "flash2", "--columns", "total,splits,more_tiles")[0]
    assert row == {"total": row["total"], "splits": "4", "more_tiles": ""}
    assert len(set(every_column())) == len(every_column())


def test_an_excess_never_shows_one():
    assert excess(65792 / 65536) == "1.004" and excess(20.4825) == "20.5" and excess(1.2) == "1.2"


@pytest.mark.parametrize("name", ["flash2-bwd", "state-fused", "matmul-tiled", "softmax-2pass", "flash2"])
def test_bounds_of_a_search_are_of_its_family(name, ask):
    found = ask("tune", *SMALL, "--schedule", name)
    counted = ask("count", *SMALL, "--schedule", name, "--tiles", "best")
    assert found["bounds"] == counted["bounds"] and found["bounds"][-1]["words"] == found["winner"]["total"]


def test_a_curve_has_the_bounds_of_its_family(iosim):
    row = read(iosim, "tune", "--N", "64", "--d", "8", "--curve", "--schedule", "flash2-bwd")[-1]
    assert row["compulsory_words"] == str(7 * 64 * 8) and row["saha_ye_words"] == "" and row["order_words"]
    row = read(iosim, "tune", "--N", "64", "--d", "8", "--curve", "--schedule", "state-fused")[-1]
    assert row["compulsory_words"] == row["total"] and row["order_words"] == row["ratio_to_order"] == ""
