"""A path with a space, a parenthesis or a sign of masks stands in quotes."""

import pytest

NAMES = ["my mask.txt", "mask (1).txt", "a&b|c.txt", "it's.txt", 'a "b".txt']


@pytest.mark.parametrize("name", NAMES)
def test_a_path_in_quotes(name, ask, tmp_path):
    (tmp_path / name).write_text("10\n11\n")
    (tmp_path / "plain.txt").write_text("10\n11\n")
    quote = '"' if "'" in name else "'"
    line = ("count", "--N", 64, "--d", 8, "--tiles", "32x32", "--schedule", "flash2")
    plain, quoted = f"file:{tmp_path}/plain.txt", f"file:{quote}{tmp_path}/{name}{quote}"
    for more in ("", "&causal", "|(causal&window:3)"):
        (one,), (other,) = (ask(*line, "--mask", mask + more)["results"] for mask in (plain, quoted))
        assert one == other


def test_the_function_of_a_file_in_quotes(ask, tmp_path):
    (tmp_path / "my masks (1).py").write_text("def f(b, h, q, k):\n    return q >= k\n\ndef g(n):\n    return f\n")
    line = ("count", "--N", 64, "--d", 8, "--tiles", "32x32", "--schedule", "flash2")
    (wanted,) = ask(*line, "--causal")["results"]
    for name in ("f", "g(2)"):
        (found,) = ask(*line, "--mask", f"py:'{tmp_path}/my masks (1).py':{name}")["results"]
        assert found["total"] == wanted["total"]


@pytest.mark.parametrize("name", ["my mask.txt", "mask(1).txt"])
def test_without_quotes_the_message_says_so(name, iosim, tmp_path):
    (tmp_path / name).write_text("10\n11\n")
    result = iosim("count", "--N", 64, "--d", 8, "--tiles", "32x32", "--mask", f"file:{tmp_path}/{name}")
    assert result.exit_code == 2 and "a path with a space or a parenthesis stands in quotes" in result.stderr
    result = iosim("count", "--N", 64, "--d", 8, "--tiles", "32x32", "--mask", f"file:{tmp_path}/none.txt")
    assert result.exit_code == 2 and "in quotes" not in result.stderr
