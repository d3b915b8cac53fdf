"""Attention with a state in flash-linear-attention: what a GPU moves, beside the words that `iosim explain` counts.

    PYTHONPATH=.:SITE python3 validation/kernels/fla_state.py FOLDER            # on the GPU; needs PyTorch, Triton, ncu
    PYTHONPATH=.:SITE python3 validation/kernels/fla_state.py FOLDER --words    # no GPU: the words beside
    PYTHONPATH=. python3 validation/kernels/fla_state.py FOLDER --table         # the table again

SITE has flash-linear-attention 0.6.0, installed. FOLDER gets fla_state.csv, a row for each launch of each call of
scripts/launch_fla_state.py. A table comes last.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from iosim import grid
from iosim.gpu.ncu import counters
from iosim.gpu.ncu.run import find_ncu

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "launch_fla_state.py"
CALLS = ("gdn", "deltanet", "simple-gla", "retention", "linear", "linear-fused", "kda", "gla", "gdn-decode",
         "linear-decode")  # fmt: skip
METRICS = {
    "loads": counters.LOADS,
    "stores": counters.STORES,
    "from_l2": counters.FROM_L2,
    "dram_read": counters.DRAM_READ,
    "dram_write": counters.DRAM_WRITE,
    "nanoseconds": counters.TIME,
}
SAID = ("reads", "writes", "read_bytes", "write_bytes", "read_sectors", "write_sectors", "distinct_read_bytes",
        "asked_of_l1")  # fmt: skip
COLUMNS = ("call", "kernel", "grid", "threads", *METRICS, *SAID)
COMPILE_SECONDS, PROFILE_SECONDS = 70, 60
MOST_LAUNCHES = 120
PYTORCHS_OWN = ("void ", "at::")  # as sums of partial outputs


# ---------------------------------------------------------------- on the GPU


def compile_all() -> None:
    """Run each call once, each in a process of its own. Triton keeps what it compiles."""
    running = {name: subprocess.Popen([sys.executable, "-W", "ignore", SCRIPT], env={**os.environ, "CALL": name},
                                      stderr=subprocess.PIPE, text=True) for name in CALLS}  # fmt: skip
    end = time.monotonic() + COMPILE_SECONDS
    for name, process in running.items():
        try:
            said = process.communicate(timeout=max(1.0, end - time.monotonic()))[1]
            print("\n".join([f"# {name}: exit code {process.returncode}", *said.splitlines()[-2:]]), flush=True)
        except subprocess.TimeoutExpired:
            process.kill()
            print(f"# {name}: ended after {COMPILE_SECONDS} s", flush=True)


def profiled() -> None:
    """Run each call under the profiler, after a marker; the first run of each is not profiled."""
    import torch

    sys.path.insert(0, str(SCRIPT.parent))
    import launch_fla_state

    assert tuple(launch_fla_state.CALLS) == CALLS
    for name in CALLS:
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                function, given = launch_fla_state.CALLS[name]()
                function(**given)
                torch.cuda.synchronize()
                torch.cuda.profiler.start()
                torch.cuda._sleep(1)  # a marker (gpu/ncu/counters.py)
                function(**given)
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()
            print(f"=={name}", flush=True)
        except Exception as error:
            print(f"# {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each launch of each call that ran."""
    compile_all()
    log = Path(tempfile.mkdtemp(), "ncu.csv")
    command = [find_ncu(), "--clock-control", "none", "--csv", "--print-units", "base", "--profile-from-start", "off",
               "--launch-count", str(MOST_LAUNCHES), "--metrics", ",".join(METRICS.values()), "--force-overwrite",
               "--log-file", str(log), sys.executable, "-W", "ignore", __file__, str(folder), "--worker"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROFILE_SECONDS, check=False)
    print("\n".join(x for x in done.stdout.splitlines() if x.startswith("#")), done.stderr[-1500:])
    ran = [x[2:] for x in done.stdout.splitlines() if x.startswith("==") and x[2:] in CALLS]
    profile = counters.read_profile(log)
    if len(profile.jobs) != len(ran):
        print(f"# {len(profile.jobs)} calls profiled, {len(ran)} ran", file=sys.stderr)
    return [row_of(name, kernel) for name, found in zip(ran, profile.jobs, strict=False) for kernel in found]


def row_of(name: str, kernel: counters.ProfiledKernel) -> dict[str, Any]:
    """What was measured of a launch."""
    label = {"call": name, "kernel": kernel.name.partition("(")[0], "grid": "x".join(map(str, kernel.grid))}
    return {**label, "threads": kernel.block[0], **{x: kernel.get(metric) for x, metric in METRICS.items()}}


# ---------------------------------------------------------------- without a GPU


def explained(name: str) -> list[dict[str, Any]]:
    """What `iosim explain` says of the launches of a call."""
    command = [sys.executable, "-W", "ignore", "-m", "iosim", "explain", "--script", str(SCRIPT), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "CALL": name})
    found = json.loads(done.stdout)
    return [words_of(one) for one in found.get("answers", [found])]


def words_of(one: dict[str, Any]) -> dict[str, Any]:
    """The words of a launch, and the bytes of the sectors that its requests touch."""
    tensors = one["tensors"].values()
    distinct = sum(t["distinct_reads"] * t["read_bytes"] // t["reads"] for t in tensors if t["reads"])
    return {
        "kernel": one["kernel"],
        "grid": "x".join(map(str, one["grid"])),
        "threads": 32 * one["num_warps"],
        **{name: one[name] for name in ("reads", "writes", "read_bytes", "write_bytes")},
        "read_sectors": sum(t["read_sector_bytes"] for t in tensors),
        "write_sectors": sum(t["write_sector_bytes"] for t in tensors),
        "distinct_read_bytes": distinct,
        "asked_of_l1": sum(t["l1_read_bytes"] for t in tensors),
    }


def beside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the words of their launches, which have the kernel's name, grid and threads."""
    found = []
    for name in dict.fromkeys(row["call"] for row in rows):
        said = {(x["kernel"], x["grid"], x["threads"]): x for x in explained(name)}
        for row in (row for row in rows if row["call"] == name):
            found.append({**row, **said.get((row["kernel"], row["grid"], int(row["threads"])), {})})
    return found


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The kept rows, with numbers as ints."""
    with (folder / "fla_state.csv").open(newline="") as file:
        return [{k: int(v) if v.isdigit() else v or None for k, v in row.items()} for row in csv.DictReader(file)]


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    with (folder / "fla_state.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


PAIRS = {
    "loads / words": ("loads", "read_bytes"),
    "loads / sectors": ("loads", "read_sectors"),
    "loads / asked": ("loads", "asked_of_l1"),
    "stores / words": ("stores", "write_bytes"),
    "DRAM / distinct": ("dram_read", "distinct_read_bytes"),
}


def ratio(row: dict[str, Any], name: str) -> float:
    """What was measured of a launch over what is counted, by the name of the pair."""
    measured, counted = PAIRS[name]
    return row[measured] / row[counted]  # type: ignore[no-any-return]


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The launches of the package's own kernels."""
    return [row for row in rows if not row["kernel"].startswith(PYTORCHS_OWN)]


def show(rows: list[dict[str, Any]]) -> None:
    """A table of the package's own kernels: ratios where the words are known, else the counters alone."""
    shown = []
    for row in own(rows):
        label = {"call": row["call"], "kernel": row["kernel"][:44], "us": f"{row['nanoseconds'] / 1000:.1f}"}
        found = {name: f"{ratio(row, name):.4f}" for name in PAIRS} if row.get("reads") else {}
        shown.append({**label, **{name: row[name] for name in METRICS}, **found})
    print(grid.table(shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    if given.worker:
        profiled()
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.words or given.table:
        rows = read_rows(given.folder)
        rows = beside(rows) if given.words else rows
    else:
        rows = measure(given.folder)
    if not given.table:
        write(given.folder, rows)
    show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
