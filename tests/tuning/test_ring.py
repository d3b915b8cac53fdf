"""`tune --rule ... --decode`: the best ring, and that no scheme of a state and rows moves less."""

import json

import pytest

import iosim
from iosim.counting.state_floors import ring_words
from iosim.errors import InputError


@pytest.mark.parametrize(
    ("options", "rows", "ratio"),
    [
        ({"rule": "linear"}, 11, "1.71"),
        ({"rule": "gdn", "state_dtype": "fp32"}, 16, "1.78"),
        ({"rule": "gdn", "heads": 32, "key_heads": 16, "state_dtype": "fp32"}, 18, "1.81"),
        ({"rule": "delta", "d": 256, "state_dtype": "fp32"}, 23, "1.84"),
    ],
)
def test_best_rings(options, rows, ratio):
    """docs/state.md."""
    found = iosim.ring(**{"d": 128, **options})
    best = next(row for row in found if row["rows"] == rows)
    assert found.to_dict()["rows"] == rows and f"{best['ratio_to_plain']:.2f}" == ratio
    assert found.to_dict()["answer"].startswith(f"A ring of {rows} rows moves ")
    assert "no scheme of a state and rows (k, u) moves less" in found.to_dict()["answer"]
    assert best["ratio_to_least"] == 1 == min(row["ratio_to_least"] for row in found)


def test_words_of_the_best_ring():
    best = next(row for row in iosim.ring(128, rule="linear") if row["rows"] == 11)
    assert best["words"] == pytest.approx(210688 / 11) and best["total_bytes"] == pytest.approx(2 * 210688 / 11)
    whole = ring_words(11_000, 128 * 128, 256)
    assert whole == pytest.approx(11_000 * best["words"], rel=1e-4) and whole < 11_000 * best["words"]


def test_raw_gates_make_rows_longer():
    lines = iosim.ring(128, rule="kda", state_dtype="fp32").to_dict()["answer"]
    assert "73,472 B" in lines and "leaves 1.77 times" in lines and "a ring of 11 is best, 1.71 times" in lines
    assert "raw gates" not in iosim.ring(128, rule="delta").to_dict()["answer"]


def test_what_is_no_ring_is_refused():
    for options in ({}, {"rule": "linear", "normalise": True}, {"rule": "linear", "features": 256}):
        with pytest.raises(InputError):
            iosim.ring(128, **options)


def test_the_command_line(iosim):
    line = ("tune", "--rule", "gdn", "--decode", "--d", 128, "--heads", 4, "--key-heads", 2, "--state-dtype", "fp32")
    done = iosim(*line)
    assert done.exit_code == 0 and done.stdout.startswith("A ring of 18 rows moves ")
    assert json.loads(iosim(*line, "--json").stdout)["rows"] == 18
    assert iosim(*line, "--csv").stdout.startswith("rows,read_bytes,write_bytes")
    for more in (("--M", "3KB"), ("--curve",), ("--schedule", "flash2")):
        assert iosim(*line, *more).exit_code == 2
