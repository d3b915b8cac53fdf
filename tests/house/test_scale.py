"""The sizes on docs/scale.md: benchmarks/scale.py measures them."""

import re
import runpy
import sys

import pytest
from paths import ROOT

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "scale.py"), run_name="scale")
PAGE = (ROOT / "docs" / "scale.md").read_text()
GRID = ("--N", "64:512:+64", "--d", "8", "--M", "1KB:4KB:+1KB", "--schedule", "flash2", "--tiles", "best")


def rows():
    return PAGE.split(BENCHMARK["LINE"] + "\n", 1)[1].split("\n\n", 1)[0].splitlines()


def test_the_page_has_the_runs():
    sizes = [int(re.sub(r"\D", "", row.split("|")[1])) for row in rows()]
    assert sizes == [heads * 2**20 for heads, _, _ in BENCHMARK["RUNS"]] and max(sizes) > 10**8


def test_memory_on_the_page_does_not_grow():
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows()]
    for form in ("csv", "parquet"):
        memory = [int(row[-1].removesuffix(" MB")) for row in cells if row[1] == form]
        assert len(memory) > 1 and max(memory) < 1.1 * min(memory)


@pytest.mark.skipif(sys.platform == "win32", reason="no os.wait4")
def test_the_benchmark_measures():
    rows, form, jobs, seconds, cpu, _, size, memory = BENCHMARK["measured"](2, "csv", 1, GRID)
    assert (rows, form, jobs) == (64, "csv", 1) and 0 < cpu < 60 and seconds > 0 and 50 < size < 1000 and memory > 1e6
