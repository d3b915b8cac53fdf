"""Numbers of a file that cannot be drawn, and charts of too many points, are one message."""

import pytest


@pytest.mark.parametrize("bad", ["inf", "-inf", "1e308", "-1e301", "1e-308", "2e-301"])
@pytest.mark.parametrize("axis", ["x", "y"])
def test_a_number_that_cannot_be_drawn(axis, bad, iosim, tmp_path):
    (tmp_path / "rows.csv").write_text(f"N,total\n1,5\n2,{bad}\n3,1e-3\n")
    columns = ("-x", "total", "-y", "N") if axis == "x" else ("-x", "N", "-y", "total")
    result = iosim("plot", tmp_path / "rows.csv", *columns, "-o", tmp_path / "x.svg")
    assert result.exit_code == 2 and f"-{axis}: found " in result.stderr and "in total" in result.stderr
    assert "numbers from 1e-300 to 1e+300 in size, or 0" in result.stderr and not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize("values", ["1e299,1e-299", "0,1e300", "-1e300,1e300", "1e-300,1e-299"])
@pytest.mark.parametrize("columns", [("-x", "total", "-y", "N"), ("-x", "N", "-y", "total")])
def test_large_and_small_numbers_are_drawn(columns, values, iosim, tmp_path):
    rows = "".join(f"{k},{value}\n" for k, value in enumerate(values.split(","), 1))
    (tmp_path / "rows.csv").write_text("N,total\n" + rows)
    result = iosim("plot", tmp_path / "rows.csv", *columns, "-o", tmp_path / "x.svg")
    assert result.exit_code == 0 and "<svg" in (tmp_path / "x.svg").read_text(), result.output


def test_too_many_points(iosim, tmp_path):
    """They are refused before they are counted."""
    result = iosim("plot", "--N", "1:1000000:+1", "--d", 64, "--M", "100KB", "-o", tmp_path / "x.svg")
    assert result.exit_code == 2 and "5000000 points; allowed: at most 100000" in result.stderr.replace("'", "")
    (tmp_path / "rows.csv").write_text("N,total\n" + "".join(f"{k},{k}\n" for k in range(100_001)))
    result = iosim("plot", tmp_path / "rows.csv", "-x", "N", "-y", "total", "-o", tmp_path / "x.svg")
    assert result.exit_code == 2 and "100001 points" in result.stderr
