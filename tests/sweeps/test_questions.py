"""A sweep may ask any of some commands at each grid point: its rows are those of the commands, in parts and processes."""

import csv
import io
import itertools
import json

import pytest
from sweeps_run import gathered

from iosim.commands.cli import main
from iosim.commands.options import OF_WHAT, Option
from iosim.counting.sweep_axes import build
from iosim.errors import InternalError
from iosim.points import Question, own_options, places, question
from iosim.sweeps import questions
from iosim.sweeps.questions import Asked, types_of_rows
from iosim.wings import offered

AXES = {
    "tune": {"--N": (32,), "--d": (8,), "--dtype": ("fp16", "fp32"), "--M": ("2KB", "4KB"), "--stages": (1, 2),
             "--least-blocks": (1, 40)},
    "cache": {"--N": (32,), "--d": (8,), "--mask": ("dense", "causal"), "--M": ("1KB", "2KB"), "--line": (32, 64),
              "--policy": ("lru", "both"), "--tensors": ("Q,K", "V"), "--tiles": ("16x4",)},
    "check": {"--N": (8,), "--d": (4,), "--dtype": ("fp16", "fp32"), "--acc-dtype": ("fp32", "fp64"),
              "--seed": (0, 3), "--dropout": (0.0, 0.25), "--tiles": ("4x4", "8x4")},
    "roofline": {"--N": (32, 64), "--d": (8,), "--heads": (1, 2), "--tile-multiple": (1, 8), "--hardware": ("h100", "t4")},
    "links": {"--N": (32, 64), "--d": (8,), "--heads": (4, 8), "--mask": ("dense", "causal"), "--M": ("4KB",), "--ranks": (2, 4)},
}  # fmt: skip
OTHERS = [  # of the same commands, with other options
    ("tune", {"--N": (32,), "--d": (64, 16), "--M": ("4KB", "64KB", "16B")}),
    ("tune", {"--N": (32, 64), "--d": (8,), "--curve": (True,)}),
    ("tune", {"--N": (32, 64), "--d": (8,), "--at-most": ("8192", "65536")}),
    ("tune", {"--N": (32,), "--d": (8, 16), "--x-floor": (1.5, 2.0)}),
    ("tune", {"--N": (32,), "--d": (16,), "--hardware": ("h100",), "--by": ("time", "traffic")}),
    ("cache", {"--N": (32,), "--d": (8,), "--M": ("2KB",), "--granularity": ("word", "tile", "line"), "--tiles": ("8x8",)}),
    ("cache", {"--N": (32, 64), "--d": (8,), "--policy": ("lru",), "--curve": (True,), "--tiles": ("8x8",)}),
    ("roofline", {"--N": (32, 64), "--d": (8,), "--M": ("16B", "2KB"), "--hardware": ("a100-40gb", "t4"), "--decode": (True,)}),
    ("links", {"--N": (64,), "--d": (8,), "--heads": (4, 8), "--nodes": ("2x2", "1x4"), "--pass": ("backward", "step"), "--hardware": ("h100",), "--schedule": ("ulysses",)}),
    ("links", {"--N": (64,), "--d": (8, 16), "--ranks": (4,), "--detail": (True,), "--schedule": ("ring",)}),
    ("links", {"--N": (64,), "--d": (8,), "--ranks": (4,), "--schedule": ("ring",), "--hardware": ("h100", "b200"), "--link": ("100GB", "1TB"), "--network": ("50GB",), "--memory": ("1048576", "85899345920")}),
    ("roofline", {"--N": (32,), "--d": (8,), "--schedule": ("standard",), "--elementwise": (0, 2), "--hardware": ("t4",)}),
]  # fmt: skip
AXES = {what: axes for what, axes in AXES.items() if what in places()}  # a deleted wing takes its own with it
OTHERS = [(what, axes) for what, axes in OTHERS if what in places() and ("--by" not in axes or offered("fastest"))]
ORDER = ("--tile-multiple", "--stages", "--elementwise", "--schedule", "--dtype", "--acc-dtype", "--mask", "--N", "--d",
         "--heads", "--hardware", "--M", "--by", "--least-blocks", "--curve", "--at-most", "--x-floor", "--granularity", "--line", "--policy",
         "--tensors", "--seed", "--dropout", "--decode", "--ranks", "--nodes", "--pass", "--link", "--network", "--memory",
         "--detail", "--tiles")  # fmt: skip
COMMANDS = {"check": ("verify", "--cpu")}
# Options that no sweep has. A claim is about one point; --decode of tune asks for a ring, the same for every M.
LACKS = ("over", "plot", "trace", "every", "in_browser", "claim", "decode")
SCHEDULES = ("--schedule", "flash1,flash2")
ONE_OF = {"links": "ulysses"}
SCHEDULES_OF = {"links": ("--schedule", "ring,ulysses")}


def line_of(what, axes):
    between = {"--mask": ";", "--tensors": ";"}
    return words((name, True if values == (True,) else between.get(name, ",").join(map(str, values)))
                 for name, values in axes.items())  # fmt: skip


def words(pairs):
    """Options with their values; flags have none."""
    return [text for name, value in pairs for text in ([name] if value is True else [name, str(value)])]


def cells(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("what, axes", [*AXES.items(), *OTHERS], ids=str)
def test_rows_are_those_of_the_command_at_each_point(what, axes, iosim):
    schedules = () if "--schedule" in axes else SCHEDULES_OF.get(what, SCHEDULES)
    result = iosim("sweep", "--what", what, *line_of(what, axes), *schedules, "-o", "-")
    assert result.exit_code == 0, result.output
    found, order = cells(result.stdout), [name for name in ORDER if name in axes]
    for place in itertools.product(*(axes[name] for name in order)):
        point = [*zip(order, place, strict=True)]
        for row in cells(iosim(*COMMANDS.get(what, (what,)), *words(point), *schedules, "--csv").stdout):
            same = found.pop(0)
            assert {name: same[name] for name in row} == row
            for name, value in point:
                column = name.strip("-").replace("-", "_")
                assert column in row or same.get(column, str(value)) == str(value)
    assert not found and result.stdout.count("\n") > 1


@pytest.mark.parametrize("what", sorted({*places()} & {*main.list_commands(None)}))
def test_every_option_of_the_command_is_one_of_the_sweep(what):
    """One with a value is an axis, but for the file of a model."""
    mine, its = main.get_command(None, "sweep"), main.get_command(None, what)
    options = {option.name: option for option in mine.params if isinstance(option, Option)}
    without = (*LACKS, *(["tiles"] if question(what).finds_tiles else []))
    for option in (one for one in its.params if isinstance(one, Option) and one.name not in without):
        assert option.name in options and (option.is_flag or option.name in (*mine.axes, "schedules", "path", "model"))
    own = {name for name, option in options.items() if option.heading == OF_WHAT}
    assert own == {*own_options()} and {name for name in own if not options[name].is_flag} <= {*mine.axes}


@pytest.fixture(params=places())
def small(request):
    """A sweep of some points."""
    return (
        "sweep",
        "--what",
        request.param,
        *line_of(request.param, AXES[request.param]),
        "--schedule",
        ONE_OF.get(request.param, "flash2"),
    )


@pytest.mark.long
def test_parts_and_processes_write_the_same(small, iosim, tmp_path):
    folder, jobs = tmp_path / "sweep", ("--jobs", 2) if "tune" in small else ()
    whole = iosim(*small, "-o", "-").stdout.encode()
    result = iosim(*small, "--part-rows", 7, *jobs, "-o", f"{folder}/")
    assert result.exit_code == 0, result.output
    assert gathered(iosim, folder, tmp_path) == whole
    manifest = json.loads((folder / "_manifest.json").read_text())
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
    types = types_of_rows(small[2])
    for name in rows:
        known = rows[name].dropna()
        assert str(known.dtype) in (kinds[types[name]], "object", "Int64", "boolean"), name
        if types[name] in ("integer", "number"):
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


def test_a_point_without_an_answer_is_named_and_nothing_is_written(iosim, tmp_path):
    line = ("sweep", "--what", "cache", "--N", 64, "--d", 8, "--M", "4KB", "--tiles", "8x8", "--heads", "1,2")
    result = iosim(*line, "-o", tmp_path / "x.csv")
    assert result.exit_code == 2 and result.stderr.endswith("; at heads 2\n") and not list(tmp_path.iterdir())


def test_a_column_that_comes_later_is_no_silent_loss(monkeypatch):
    plan = build({"N": "64,128", "d": 8, "M": "4KB"}, "flash2")
    monkeypatch.setitem(places(), "tune", ("", ""))
    monkeypatch.setattr(
        questions,
        "question",
        lambda what: Question(lambda p: [{"total": 1, **({"more": 1} if p.fields["N"] == 128 else {})}], tuple),
    )
    with pytest.raises(InternalError, match="more"):
        asked = Asked(plan, "tune")
        [asked[number] for number in range(len(asked))]
