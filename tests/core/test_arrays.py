"""Memory of arrays that a walk frees is there for the next ones."""

import os
import platform
import subprocess
import sys

import pytest
from paths import ROOT

CODE = """
import resource
import numpy as np
from iosim import Attention, Folded, Tiling, Traffic
from iosim.core.arrays import keep_freed_memory
from iosim.schedules import find

N, rows = np.arange(2**15) + 1, np.arange(2**15) % 500 + 1

def walk():
    Folded(Attention(N, 64), Traffic()).run(find("flash2"), Tiling(rows, rows))

keep_freed_memory()
walk()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    walk()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library gives memory back by other rules")
def test_walks_over_arrays_wait_for_no_memory():
    """Without `keep_freed_memory` there are thousands of page faults."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    line = [sys.executable, "-c", CODE]
    assert int(subprocess.run(line, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout) < 100
