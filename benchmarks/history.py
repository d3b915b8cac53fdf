"""Kept runs of speed.py, and the table of them.

`python benchmarks/history.py` writes the last table of docs/performance.md from history.csv. With `--add` it first runs
speed.py, some minutes, and keeps its figures with the date of today.
"""

import csv
import datetime
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "history.csv", ROOT / "docs" / "performance.md"
MARK = "<!-- history -->\n"


def kept():
    """{date: {what: measured}}, the oldest first."""
    runs = {}
    with KEPT.open() as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["date"], {})[row["what"]] = row["measured"]
    return dict(sorted(runs.items()))


def page():
    """The page, whose last table has a row for each figure of any run and a column for each run."""
    runs = kept()
    names = dict.fromkeys(name for run in reversed(runs.values()) for name in run)
    rows = [["what", *runs], ["---", *("--:" for _ in runs)]]
    rows += [[name, *(run.get(name, "") for run in runs.values())] for name in names]
    before, _, after = PAGE.read_text().split(MARK)
    return MARK.join([before, "".join(f"| {' | '.join(row)} |\n" for row in rows), after])


def add():
    """Keep a run of today."""
    sys.path.insert(0, str(ROOT))
    from speed import table

    today = datetime.date.today().isoformat()
    with KEPT.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([today, what, f"{value:.2f}"] for what, value, _ in table())


if __name__ == "__main__":
    if "--add" in sys.argv[1:]:
        add()
    PAGE.write_text(page())
