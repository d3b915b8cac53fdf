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


def write_page():
    rows = []
    for run in RUNS:
        rows.append(line(*measured(*run)))
        print(rows[-1], flush=True)
    before, rest = PAGE.read_text().split(LINE, 1)
    PAGE.write_text(before + "\n".join([LINE, *rows]) + "\n" + END + rest.split(END, 1)[1])


END = "\n<!-- end -->\n"

if __name__ == "__main__":
    write_page()
