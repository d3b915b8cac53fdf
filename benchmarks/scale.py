"""Sweeps of a million rows and more, into folders: `python benchmarks/scale.py` writes the table of docs/scale.md.

Each row is a run of its own. Others' share is what other programs took of the machine meanwhile, of all its cores.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
GRID = ("--N", "64:8192:+64", "--d", "8:128:+8", "--M", "1KB:512KB:+1KB", "--schedule", "flash2", "--tiles", "best")
RUNS = [(1, "csv", 1), (12, "csv", 1), (12, "csv", 2), (1, "parquet", 1), (96, "parquet", 1)]
HEADER = "| rows | form | processes | seconds | of CPU | others | bytes a row | most memory of a process |"
LINE = "| --: | --- | --: | --: | --: | --: | --: | --: |"


def busy():
    """Seconds that all cores were busy since the machine began; None where the system does not say."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, *interrupts = map(int, stat.read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def measured(heads, form, jobs, grid=GRID):
    """A sweep as a process of its own: rows, seconds, and what it took."""
    with TemporaryDirectory() as found:
        folder, before, begin = f"{found}/sweep/", busy(), time.perf_counter()
        line = [
            "-m",
            "iosim",
            "sweep",
            *grid,
            "--heads",
            f"1:{heads}:+1",
            "--format",
            form,
            "--jobs",
            str(jobs),
            "--quiet",
        ]
        process = subprocess.Popen([sys.executable, *line, "--quiet", "-o", folder])
        _, code, took = os.wait4(process.pid, 0)
        process.returncode = code
        assert code == 0
        seconds, cpu = time.perf_counter() - begin, took.ru_utime + took.ru_stime
        others = None if before is None else max(0, busy() - before - cpu) / seconds / os.cpu_count()
        manifest = json.loads(Path(folder, "_manifest.json").read_text())
        size = sum(part["bytes"] for part in manifest["files"])
        shutil.rmtree(folder)
    return manifest["rows"], form, jobs, seconds, cpu, others, size / manifest["rows"], took.ru_maxrss * 1024


def line(rows, form, jobs, seconds, cpu, others, size, memory):
    share = "-" if others is None else f"{others:.0%}"
    return f"| {rows:,} | {form} | {jobs} | {seconds:.0f} | {cpu:.0f} | {share} | {size:.1f} | {memory / 1e6:.0f} MB |"


WORKERS, GOAL, PART_ROWS = 100, 10**10, 2**17
LINE_BYTES = 190  # of a part in the manifest
BEGIN = "From the largest run"
PAPER = """From the largest run, {rate:,.0f} rows a second of CPU and {size:.1f} bytes a row in Parquet
({csv:.0f} in CSV):

| 10^10 rows | |
| --- | --: |
| parts of 131,072 rows | {parts:,} |
| hours of CPU | {hours:.1f} |
| minutes on {workers} workers, if the disk keeps up | {minutes:.0f} |
| GB in Parquet | {gb:,.0f} |
| GB in CSV | {csv_gb:,.0f} |
| MB of the manifest | {journal:.0f} |
| parts that Dask's scheduler holds at a time | {held} |
"""


def paper(rows):
    """What 10^10 rows would take, from the rows of the table: the last is the largest in Parquet, the first is CSV."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    count, cpu, size = (float(cells[-1][k].replace(",", "")) for k in (0, 4, 6))
    rate, csv, parts = count / cpu, float(cells[0][6]), -(-GOAL // PART_ROWS)
    return PAPER.format(
        rate=rate, size=size, csv=csv, parts=parts, hours=GOAL / rate / 3600, workers=WORKERS,
        minutes=GOAL / rate / WORKERS / 60, gb=GOAL * size / 1e9, csv_gb=GOAL * csv / 1e9,
        journal=parts * LINE_BYTES / 1e6, held=3 * WORKERS,
    )  # fmt: skip


def write_page():
    rows = []
    for run in RUNS:
        rows.append(line(*measured(*run)))
        print(rows[-1], flush=True)
    text = PAGE.read_text()
    table, arithmetic = ("\n".join([LINE, *rows]) + "\n", paper(rows))
    for begin, new in ((LINE, table), (BEGIN, arithmetic)):
        before, rest = text.split(begin, 1)
        after = rest.split(END, 1)[1]
        text = before + new + END + after
    PAGE.write_text(text)


END = "\n<!-- end -->\n"

if __name__ == "__main__":
    write_page()
