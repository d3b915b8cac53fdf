"""The benchmark runs, and prints the rows that the table in the docs has. What it measures is not tested."""

import re
import runpy
import sys

import pytest
from paths import ROOT


def rows(text):
    """The cells (what, measured, aim) of each row of a Markdown table."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines[1:]]


def test_the_table_in_the_docs_has_the_rows_of_the_benchmark(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--quick"])
    runpy.run_path(str(ROOT / "benchmarks" / "speed.py"), run_name="__main__")
    printed, shown = (
        rows(capsys.readouterr().out),
        rows((ROOT / "docs" / "performance.md").read_text().split("\n## ")[0]),
    )
    assert [(what, aim) for what, _, aim in shown] == [(what, aim) for what, _, aim in printed]
    assert len(shown) > 10 and all(float(measured) > 0 for _, measured, _ in shown + printed)


def test_every_peer_has_a_row_or_says_that_it_is_not_installed(capsys):
    """The page has what was measured with all of them, and its ratios follow from its seconds."""
    peers = runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))
    peers["main"](quick=True)
    printed, page = rows(capsys.readouterr().out), (ROOT / "benchmarks" / "peers.md").read_text()
    shown = rows(page)
    for name in peers["PEERS"]:
        assert any(name in cells[1] for cells in printed)
        assert any(re.fullmatch(name + r" \d[\d.]+", cells[1]) for cells in shown)
    for _, peer, theirs, ours, ratio, its, mine in shown:
        assert float(ratio.replace(",", "")) == pytest.approx(float(theirs) / float(ours), rel=0.06), peer
        assert int(mine.replace(",", "")) <= int(its.replace(",", ""))
    assert peers["HEADER"] in page and any("pandas" in cells[1] and float(cells[4]) > 0 for cells in printed)


def test_the_history_is_the_page_and_ends_with_the_table_of_today():
    history = runpy.run_path(str(ROOT / "benchmarks" / "history.py"))
    runs = history["kept"]()
    assert len(runs) > 1 and history["PAGE"].read_text() == history["page"](), "python benchmarks/history.py writes it"
    newest = [*runs.values()][-1]
    assert newest == {
        what: measured for what, measured, _ in rows((ROOT / "docs" / "performance.md").read_text().split("\n## ")[0])
    }
    assert all(float(measured) > 0 for run in runs.values() for measured in run.values())
