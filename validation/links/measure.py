"""Runs PyTorch's context-parallel attention over gloo, and writes the bytes that ranks receive to results.csv.

`python validation/links/measure.py` needs Linux, root, `ip` (Debian's iproute2) and a CPU build of PyTorch 2.13.
It starts itself in a network namespace of its own, where the loopback device carries nothing else. Takes some minutes.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CASES = [
    ("ring", "blocks", False, 2, "float32", 2048, 4, 4, 64),
    ("ring", "blocks", False, 4, "float32", 2048, 4, 4, 64),
    ("ring", "blocks", True, 4, "float32", 2048, 4, 4, 64),
    ("ring", "zigzag", True, 2, "float32", 2048, 4, 4, 64),
    ("ring", "zigzag", True, 4, "float32", 2048, 4, 4, 64),
    ("ring", "blocks", False, 4, "bfloat16", 2048, 4, 4, 64),
    ("ring", "zigzag", True, 4, "bfloat16", 2048, 4, 4, 64),
    ("all-gather", "blocks", False, 4, "float32", 2048, 4, 4, 64),
    ("all-gather", "zigzag", True, 4, "bfloat16", 2048, 4, 4, 64),
    ("ulysses", "blocks", False, 2, "float32", 2048, 8, 4, 64),
    ("ulysses", "blocks", True, 4, "float32", 2048, 8, 4, 64),
    ("ulysses", "blocks", True, 4, "bfloat16", 2048, 8, 8, 64),
]
FIELDS = ("scheme", "layout", "causal", "ranks", "dtype", "tokens", "heads", "kv_heads", "d")
COLUMNS = [*FIELDS, "pass", "mode_bytes_a_rank", "device_bytes", "error"]


def rows():
    """A row for each pass of each case. All ranks receive the same number of bytes."""
    from attention_over_gloo import Case, run

    for one in CASES:
        found = run(Case(*one))
        for name, counted in found["mode_bytes"].items():
            assert len(set(counted)) == 1, "a rank received more than another"
            error = f"{found['error']:.1e}"
            yield dict(zip(COLUMNS, [*one, name, counted[0], found["device_bytes"][name], error], strict=True))


def main() -> None:
    if not os.environ.get("IOSIM_OWN_LOOPBACK"):
        again = f"ip link set lo up && IOSIM_OWN_LOOPBACK=1 exec {sys.executable} {__file__}"
        sys.exit(subprocess.run(["unshare", "-n", "bash", "-c", again], check=False).returncode)
    with (HERE / "results.csv").open("w") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows():
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
