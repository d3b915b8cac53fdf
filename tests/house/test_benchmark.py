"""The benchmark runs, and prints the rows that the table in the docs has. What it measures is not tested."""

import runpy
import sys

from paths import ROOT


def rows(text):
    """The cells (what, measured, aim) of each row of a Markdown table."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines[1:]]


def test_the_table_in_the_docs_has_the_rows_of_the_benchmark(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--quick"])
    runpy.run_path(str(ROOT / "benchmarks" / "speed.py"), run_name="__main__")
    printed, shown = rows(capsys.readouterr().out), rows((ROOT / "docs" / "performance.md").read_text())
    assert [(what, aim) for what, _, aim in shown] == [(what, aim) for what, _, aim in printed]
    assert len(shown) > 10 and all(float(measured) > 0 for _, measured, _ in shown + printed)
