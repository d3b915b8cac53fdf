"""Kept runs of speed.py, and the page of them.

`python benchmarks/history.py` writes docs/speed-history.md from history.csv. With `--add` it first runs speed.py, some
minutes, and keeps its figures with the date of today.
"""

import csv
import datetime
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "history.csv", ROOT / "docs" / "speed-history.md"
HEAD = """# Speed, over time

[Speed](performance.md) says what each line measures, and on what. Most are ratios of two times of one run, so the
machine matters little; on a shared machine they change by some tenths. A figure that was not measured again stands as
it was. `python benchmarks/history.py --add` runs the benchmark and adds a column.
"""


def kept():
    """{date: {what: measured}}, the oldest first."""
    runs = {}
    with KEPT.open() as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["date"], {})[row["what"]] = row["measured"]
    return dict(sorted(runs.items()))


def page():
    """The page, with a row for each figure of any run and a column for each run."""
    runs = kept()
    names = dict.fromkeys(name for run in reversed(runs.values()) for name in run)
    rows = [["what", *runs], ["---", *("--:" for _ in runs)]]
    rows += [[name, *(run.get(name, "") for run in runs.values())] for name in names]
    return HEAD + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


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
