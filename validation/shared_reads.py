"""What plain Triton attention reads from shared memory, as a counter sees it: from the root of the repository

    PYTHONPATH=. python3 validation/shared_reads.py FILE.csv

Needs a GPU, Triton and Nsight Compute. A row for each tile: the words of 4 bytes that left the banks and that were
written to them, and the time of the kernel alone. tests/data/shared_reads.csv keeps such rows.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as missing:
    sys.exit(f"{Path(__file__).name} needs a GPU, PyTorch and Triton: {missing}")

from iosim.gpu.ncu.run import find_ncu

READS, WRITES = "l1tex__data_bank_reads.sum", "l1tex__data_bank_writes.sum"
TIME = "gpu__time_duration.sum"
N, HEADS, DTYPE = 4096, 32, "fp16"
TILES = [(128, 16), (256, 16), (128, 32), (256, 32), (64, 32), (64, 64), (128, 64), (256, 64), (128, 128), (64, 128)]
COLUMNS = ("gpu", "N", "d", "heads", "dtype", "tiles", "warps", "counter_words", "written_words", "microseconds")


@triton.jit
def attend(Q, K, V, O, scale, n, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    at = tl.program_id(1) * n * D
    rows, dims = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, D)
    q = tl.load(Q + at + rows[:, None] * D + dims[None, :])
    m = tl.full((BR,), float("-inf"), tl.float32)
    l = tl.zeros((BR,), tl.float32)
    o = tl.zeros((BR, D), tl.float32)
    for first in range(0, n, BC):
        keys = first + tl.arange(0, BC)
        k = tl.load(K + at + keys[None, :] * D + dims[:, None])
        v = tl.load(V + at + keys[:, None] * D + dims[None, :])
        s = tl.dot(q, k) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        factor = tl.exp2(m - new)
        l = l * factor + tl.sum(p, 1)
        o = tl.dot(p.to(tl.float16), v, o * factor[:, None])
        m = new
    tl.store(O + at + rows[:, None] * D + dims[None, :], (o / l[:, None]).to(tl.float16))


def configurations() -> list[tuple[int, int, int, int]]:
    """(d, Br, Bc, warps): four warps for each 64 rows, as an instruction of wgmma has."""
    return [(d, rows, keys, 4 if rows == 64 else 8) for d in (128, 64) for rows, keys in TILES]


def run() -> None:
    """Launch every kernel once, between the profiler's start and stop; each is compiled before."""
    for profiled in (False, True):
        if profiled:
            torch.cuda.profiler.start()
        for d, rows, keys, warps in configurations():
            q, k, v, o = (torch.randn(HEADS, N, d, device="cuda", dtype=torch.float16) for _ in range(4))
            attend[(N // rows, HEADS)](q, k, v, o, d**-0.5 * 1.4426950408889634, N, d, rows, keys, num_warps=warps)
            if not profiled:
                expected = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
                assert (o - expected).abs().max() < 2e-2, (d, rows, keys)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def measured(log: str) -> list[dict[str, float]]:
    """The metrics of each launch, in order, from the profiler's CSV."""
    lines = log[log.index('"ID"') :].splitlines()
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines):
        found.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return list(found.values())


def main(path: Path) -> None:
    """Profile this script and write the rows."""
    metrics = ",".join((READS, WRITES, TIME))
    options = ["--clock-control", "none", "--csv", "--print-units", "base", "--profile-from-start", "off"]
    command = [find_ncu(), *options, "--kernel-name", "attend", "--metrics", metrics, sys.executable, __file__, "run"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    name = torch.cuda.get_device_name().split()[-1].lower()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (d, rows, keys, warps), found in zip(configurations(), measured(log), strict=True):
            numbers = int(found[READS]), int(found[WRITES]), round(found[TIME] / 1e3, 1)
            writer.writerow((name, N, d, HEADS, DTYPE, f"{rows}x{keys}", warps, *numbers))
    print(path.read_text())


if __name__ == "__main__":
    run() if sys.argv[1:] == ["run"] else main(Path(sys.argv[1]))
