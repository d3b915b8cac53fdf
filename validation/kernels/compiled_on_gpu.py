"""Compiled models on a GPU: is Inductor's code that of `iosim explain --script`, and do its kernels move what is said?

    PYTHONPATH=. python3 validation/kernels/compiled_on_gpu.py FOLDER             # needs PyTorch 2.13, Triton and ncu
    PYTHONPATH=. python3 validation/kernels/compiled_on_gpu.py FOLDER --no-counters   # no profiler: only the code
    PYTHONPATH=. python3 validation/kernels/compiled_on_gpu.py FOLDER --dry       # no GPU: only what iosim says

The scripts are compiled_*.py of tests/helpers. Each is explained as on a machine without a GPU. Then it runs on the GPU
twice: once to fill Inductor's cache and to keep its code, once under Nsight Compute. FOLDER gets compiled_on_gpu.csv, a
row for each Triton kernel: sectors that iosim says in bytes, and those that the load/store unit was asked for. The exit
code is 1 if the code has other launches than iosim said, or if a kernel asked for less.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from iosim.gpu.ncu import counters
from iosim.gpu.ncu.run import find_ncu

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tests" / "helpers").glob("compiled_*.py"))
LIMIT_SECONDS = 500
COLUMNS = ("script", "launch", "said_loads", "loads", "said_stores", "stores")
Answer = dict[str, object]


def explain(*line: str) -> Answer:
    """The JSON of `iosim explain` in a process that sees no GPU."""
    command = [sys.executable, "-m", "iosim", "explain", *line, "--no-resources", "--timeout", "400", "--json"]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=hidden, timeout=LIMIT_SECONDS, check=True)
    found: Answer = json.loads(done.stdout)
    return found


def launches(answer: Answer) -> list[str]:
    """The launches of an answer, in order."""
    rows = answer["launches"]
    assert isinstance(rows, list)
    return [str(row["launch"]) for row in rows]


def sectors(answer: Answer) -> Iterator[tuple[str, int, int]]:
    """(kernel, bytes of loaded sectors, of stored ones) of each Triton kernel, in order."""
    tensors, sums = answer["tensors"], dict[str, list[int]]()
    assert isinstance(tensors, dict)
    for key, row in tensors.items():
        launch = key.partition(": ")[0]
        if "read_sector_bytes" in row:
            loads, stores = sums.setdefault(launch, [0, 0])
            sums[launch] = [loads + row["read_sector_bytes"], stores + row["write_sector_bytes"]]
    for launch, (loads, stores) in sums.items():
        yield launch.split(" ")[2], loads, stores


def run(script: Path, folder: Path, ncu: str | None) -> Path:
    """Run a script on the GPU, under the profiler if it is given. The file of the profile."""
    out = folder / f"{script.stem}.ncu.csv"
    debug = {"TORCH_COMPILE_DEBUG": "1", "TORCH_COMPILE_DEBUG_DIR": str(folder / script.stem)}
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), **({} if ncu else debug)}
    metrics = f"{counters.LOADS},{counters.STORES}"
    profiler = [ncu, "--csv", "--print-units", "base", "--kernel-name", "regex:^triton_", "--metrics", metrics,
                "--force-overwrite", "--log-file", str(out)] if ncu else []  # fmt: skip
    subprocess.run([*profiler, sys.executable, str(script)], env=environment, timeout=LIMIT_SECONDS, check=True)
    return out


def measured(profile: Path) -> dict[str, dict[str, int]]:
    """{kernel: {metric: bytes}}, of the first launch of each kernel."""
    lines = [line for line in profile.read_text().splitlines() if line.startswith('"')]
    found: dict[str, dict[str, int]] = {}
    for row in csv.DictReader(lines):
        own = found.setdefault(row["Kernel Name"].partition("(")[0], {})
        own.setdefault(row["Metric Name"], int(float(row["Metric Value"].replace(",", ""))))
    return found


def compared(script: Path, folder: Path, how: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    """A row for each Triton kernel of a script. SystemExit if the GPU's code has other launches."""
    said = explain("--script", str(script))
    counted: dict[str, dict[str, int]] = {}
    if not how.dry:
        run(script, folder, None)
        real = explain("--inductor", str(folder / script.stem))
        if launches(real) != launches(said):
            raise SystemExit(f"{script.name}: the GPU's code has {launches(real)}, and iosim said {launches(said)}")
        print(f"{script.name}: all {len(launches(said))} launches are those of the GPU's code")
        if not how.no_counters:
            counted = measured(run(script, folder, find_ncu()))
    for name, loads, stores in dict.fromkeys(sectors(said)):
        own = counted.get(name, {})
        yield script.name, name, loads, own.get(counters.LOADS), stores, own.get(counters.STORES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--no-counters", action="store_true")
    how = parser.parse_args()
    how.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for script in SCRIPTS for row in compared(script, how.folder, how)]
    with open(how.folder / "compiled_on_gpu.csv", "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    for row in rows:
        print(*row)
    pairs = [(row[place], row[place + 1]) for row in rows for place in (2, 4)]
    return int(any(isinstance(own, int) and isinstance(least, int) and own < least for least, own in pairs))


if __name__ == "__main__":
    sys.exit(main())
