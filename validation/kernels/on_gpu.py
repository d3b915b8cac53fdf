"""Launches kernels on a GPU under Nsight Compute, and puts what is measured beside what `iosim explain` says.

    PYTHONPATH=. python3 validation/kernels/on_gpu.py PACKAGES FOLDER        # on the GPU; needs PyTorch, Triton and ncu
    PYTHONPATH=. python3 validation/kernels/on_gpu.py PACKAGES FOLDER --dry  # no GPU: only what iosim says
    PYTHONPATH=. python3 validation/kernels/on_gpu.py --table on_gpu.csv     # the table again, from a kept file

The launches are those of launches.toml, or with `--list held_out.toml` of that file, each with all of its sizes and all
configurations of `@triton.autotune`. PACKAGES is as for corpus.py. FOLDER gets on_gpu.csv, a row for each launch. A
table comes last.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path

from listed import Ready, listed, ready

from iosim.errors import IosimError
from iosim.gpu.ncu import counters
from iosim.gpu.ncu.run import find_ncu
from iosim.kernels.walk.launch import DTYPES, Tensor

METRICS = {
    "loads": counters.LOADS,
    "stores": counters.STORES,
    "reductions": counters.REDUCTIONS,
    "atomics": "l1tex__t_bytes_pipe_lsu_mem_global_op_atom.sum",
    "copies_to_shared": "l1tex__t_bytes_pipe_lsu_mem_global_op_ldgsts.sum",
    "local_loads": "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
    "local_stores": "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
    "load_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "from_l2": counters.FROM_L2,
    "to_l2": counters.TO_L2,
    "l2_writes": counters.L2_WRITES,
    "l2_atomics": "lts__t_sectors_op_atom.sum",
    "l2_reductions": "lts__t_sectors_op_red.sum",
    "dram_read": counters.DRAM_READ,
    "dram_write": counters.DRAM_WRITE,
    "nanoseconds": counters.TIME,
    "ncu_registers": "launch__registers_per_thread",
    "ncu_smem_dynamic": "launch__shared_mem_per_block_dynamic",
    "ncu_smem_static": "launch__shared_mem_per_block_static",
    "limit_blocks": "launch__occupancy_limit_blocks",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_smem": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
}
WHERE = ("package", "file", "kernel", "sizes", "configuration", "grid", "num_warps", "num_stages")
SAID = ("reads", "writes", "atomic_words", "read_bytes", "write_bytes", "read_sectors", "write_sectors",
        "atomic_sectors", "distinct_read_bytes", "distinct_write_bytes", "flops", "smem", "registers", "stack",
        "blocks_per_sm", "seconds", "asked_of_l1", "why")  # fmt: skip
RAN = ("ran", "own_registers", "own_smem", "own_spills", "milliseconds")
COLUMNS = (*WHERE, *SAID, *RAN, *METRICS)
LIMIT_SECONDS = 280
AT_A_TIME = 64  # launches of one process under the profiler, which writes its file at the end
DEVICE = "cuda"
HARDWARE = "h200"


# ---------------------------------------------------------------- what iosim says


def rows_of(job: tuple[str, str, int]) -> list[dict[str, object]]:
    """The rows of one launch of a list, one for each configuration."""
    folder, name, number = job
    warnings.simplefilter("ignore")
    one = listed(folder, all_sizes=True, name=name)[number]
    where = {"package": one.package, "file": one.file, "kernel": one.kernel, "sizes": one.sizes}
    try:
        return [{"number": number, "choice": k, **where, **said(each)} for k, each in enumerate(ready(one))]
    except Exception as error:  # a refusal, or a package that this machine cannot import
        return [{**where, "why": f"{type(error).__name__}: {error}"[:300]}]


def said(each: Ready) -> dict[str, object]:
    """What iosim says of a launch."""
    start = time.perf_counter()
    row: dict[str, object] = {
        "configuration": " ".join(f"{name}={value}" for name, value in each.chosen.constants.items()),
        "grid": "x".join(map(str, each.grid)),
        "num_warps": each.num_warps,
        "num_stages": each.num_stages,
    }
    try:
        found = each.explained(hardware=HARDWARE)
    except IosimError as error:
        return row | {"why": str(error)[:300]}
    ways = list(found.ways.values())
    sizes = {name: t.word_bytes for name, t in each.values.items() if isinstance(t, Tensor)}
    assert found.resources is not None
    return row | {
        "reads": found.reads,
        "writes": found.writes,
        "atomic_words": found.total("atomics"),
        "read_bytes": found.total("reads", "bytes"),
        "write_bytes": found.total("writes", "bytes"),
        "read_sectors": sum(w["reads"].sector_bytes for w in ways),
        "write_sectors": sum(w["writes"].sector_bytes for w in ways),
        "atomic_sectors": sum(w["atomics"].sector_bytes for w in ways),
        "distinct_read_bytes": sum(w["reads"].distinct_words * sizes[name] for name, w in found.ways.items()),
        "distinct_write_bytes": sum(w["writes"].distinct_words * sizes[name] for name, w in found.ways.items()),
        "flops": found.flops,
        "smem": found.resources.smem_bytes,
        "registers": found.resources.registers,
        "stack": found.resources.stack_bytes,
        "blocks_per_sm": found.blocks_per_sm,
        "seconds": round(time.perf_counter() - start, 2),
        "asked_of_l1": sum(asked) if None not in (asked := [w["reads"].l1_bytes for w in ways]) else None,
        "why": "; ".join(found.warnings)[:300],
    }


# ---------------------------------------------------------------- the process that launches


def on_device(value: object) -> object:
    """A tensor of iosim as one of PyTorch, with random numbers where it has no data; other values as they are."""
    import torch

    if not isinstance(value, Tensor):
        return value
    name = {"float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2", "int1": "bool"}.get(
        DTYPES[value.dtype][0], DTYPES[value.dtype][0]
    )
    kind = getattr(torch, name)
    if value.data is not None:
        return torch.from_numpy(value.data.copy()).to(DEVICE, kind)
    if kind.is_floating_point:
        return torch.randn(value.shape, device=DEVICE).to(kind)
    return torch.zeros(value.shape, dtype=kind, device=DEVICE)


def work(folder: str, name: str, jobs_path: str, notes_path: str, profiled: bool) -> None:
    """Launch the jobs of a file. A note a job is written at once, so that a fault loses only its own."""
    import torch
    import triton
    from triton.testing import do_bench

    warnings.simplefilter("ignore")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    torch.manual_seed(0)
    launches = listed(folder, all_sizes=True, name=name)
    jobs = json.loads(Path(jobs_path).read_text())
    with open(notes_path, "a") as notes:
        for number, group in groupby(jobs, key=lambda job: job[0]):
            prepared = ready(launches[number])
            for choice in (job[1] for job in group):
                each, note = prepared[choice], {"number": number, "choice": choice}
                values = {name: on_device(value) for name, value in each.values.items()}
                options = {"num_warps": each.num_warps, "num_stages": each.num_stages, **values}

                def launch(each=each, options=options):
                    return each.kernel.function[each.grid](**options)

                try:
                    made = launch()
                    torch.cuda.synchronize()
                    note |= {
                        "name": made.name,
                        "own_registers": made.n_regs,
                        "own_smem": made.metadata.shared,
                        "own_spills": made.n_spills,
                    }
                    if profiled:
                        torch.cuda.profiler.start()
                        launch()
                        torch.cuda.synchronize()
                        torch.cuda.profiler.stop()
                    else:
                        note["milliseconds"] = do_bench(launch, warmup=5, rep=20, return_mode="median")
                    note["ran"] = True
                except Exception as error:
                    note |= {"ran": False, "why": f"{type(error).__name__}: {error}"[:300]}
                notes.write(json.dumps(note) + "\n")
                notes.flush()


def run(command: list[str], limit: float) -> str:
    """What a command says, which is ended when its time is over."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"ended after {limit:.0f} s"
    return (done.stdout + done.stderr)[-3000:]


def notes_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured(
    where: tuple[str, str], jobs: list[list[int]], ncu: list[str], end: float, kept: Path | None = None
) -> dict[tuple[int, int], dict]:
    """Notes on jobs of `where`, (folder, list), by (launch, configuration).

    A job that ends its process is left out, and the rest go on.

    What the profiler writes is kept in a file, if one is given.
    """
    found: dict[tuple[int, int], dict] = {}
    part, rest = 0, jobs
    out = Path(tempfile.mkdtemp())  # a fresh one, because notes are added to files
    while rest and time.monotonic() < end and part < 20:
        jobs = rest[:AT_A_TIME]
        jobs_path, notes_path, log = out / f"jobs{part}.json", out / f"notes{part}.jsonl", out / f"ncu{part}.csv"
        jobs_path.write_text(json.dumps(jobs))
        worker = [
            sys.executable,
            __file__,
            where[0],
            "-",
            "--list",
            where[1],
            "--worker",
            str(jobs_path),
            str(notes_path),
        ]
        command = [*ncu, "--log-file", str(log), *worker, "--profiled"] if ncu else worker
        said = run(command, max(10.0, end - time.monotonic()))
        notes = notes_of(notes_path)
        if log.exists() and kept is not None:  # before all that may fail
            with gzip.open(kept, "ab") as file:
                file.write(log.read_bytes() + notes_path.read_bytes())
        kernels: list[counters.ProfiledKernel] = []
        if ncu and log.exists():
            try:
                kernels = [k for group in counters.read_profile(log).jobs for k in group]
            except IosimError as error:
                print(f"ncu: {error}", file=sys.stderr)
        ran = [note for note in notes if note["ran"]]
        if ncu and len(kernels) != len(ran):
            print(f"{len(kernels)} kernels profiled, {len(ran)} launches", file=sys.stderr)
        for note in notes:
            found[note["number"], note["choice"]] = note  # type: ignore[index]
        for note, kernel in zip(ran, kernels, strict=False):
            metrics = {name: kernel.metrics.get(m) for name, m in METRICS.items()}
            if kernel.name.partition("(")[0] != note.get("name"):
                print(f"{kernel.name} was profiled where {note.get('name')} was launched", file=sys.stderr)
                break
            note |= metrics
        if len(notes) < len(jobs):
            print(f"job {jobs[len(notes)]} ended the process: {said[-1500:]}", file=sys.stderr)
            found[tuple(jobs[len(notes)])] = {"ran": False, "why": said[-200:]}  # type: ignore[index]
        rest, part = rest[min(len(jobs), len(notes) + 1) :], part + 1
    return found


def known_metrics(ncu: str) -> list[str]:
    """The metrics that this profiler has."""
    said = subprocess.run([ncu, "--query-metrics-mode", "suffix", "--metrics",
                           ",".join({m.rsplit(".", 1)[0] for m in METRICS.values()}), "--query-metrics"],
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    names = [m for m in METRICS.values() if m.startswith("launch__") or m.rsplit(".", 1)[0] in said.stdout]
    left = [m for m in METRICS.values() if m not in names]
    if left:
        print(f"unknown to the profiler: {', '.join(left)}", file=sys.stderr)
    return names if len(names) > len(METRICS) // 2 else list(METRICS.values())


# ---------------------------------------------------------------- the table


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file that was written here."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def whole(row: dict[str, str], name: str) -> int:
    return round(float(row[name])) if row.get(name) not in (None, "", "None") else 0


def loads_of(row: dict[str, str]) -> int:
    """Bytes that the kernel loaded: as the load/store unit saw them, or the crossbar where it loads by TMA only."""
    return whole(row, "loads") or whole(row, "from_l2")


def stores_of(row: dict[str, str]) -> int:
    """Bytes that the kernel stored: as the load/store unit saw them, or the L2 where it stores by TMA only."""
    return whole(row, "stores") or 32 * whole(row, "l2_writes")


def profiled(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows that the profiler measured."""
    return [row for row in rows if row.get("ran") == "True" and row.get("nanoseconds") not in (None, "", "None")]


def table(rows: list[dict[str, str]]) -> Iterator[str]:
    """A line for each kernel, and sums."""
    done = profiled(rows)
    yield f"{'kernel':44} launches  loads/said (least, most)  stores/said (least, most)  registers  shared memory"
    equal = {"loads": 0, "stores": 0, "registers": 0, "smem": 0}
    for name, group in groupby(done, key=lambda row: (row["file"], row["kernel"])):
        some = list(group)
        loads = [loads_of(r) / whole(r, "read_sectors") for r in some if whole(r, "read_sectors")]
        stores = [stores_of(r) / whole(r, "write_sectors") for r in some if whole(r, "write_sectors")]
        regs = sum(whole(r, "ncu_registers") == whole(r, "registers") for r in some)
        smem = sum(whole(r, "own_smem") == whole(r, "smem") for r in some)
        yield (
            f"{' '.join(name)[-44:]:44} {len(some):8} {ends(loads):>25} {ends(stores):>26} {regs:>5}/{len(some)} "
            f"{smem:>10}/{len(some)}"
        )
        equal["loads"] += sum(loads_of(r) == whole(r, "read_sectors") for r in some)
        equal["stores"] += sum(stores_of(r) == whole(r, "write_sectors") for r in some)
        equal["registers"] += regs
        equal["smem"] += smem
    kernels = len({(r["file"], r["kernel"]) for r in done})
    yield f"{len(done)} launches of {kernels} kernels measured, {len(rows) - len(done)} rows not; equal: {equal}"
    yield from ranks(done)


def ends(ratios: list[float]) -> str:
    return f"{min(ratios):.4f} to {max(ratios):.4f}" if ratios else "-"


def ranks(rows: list[dict[str, str]]) -> Iterator[str]:
    """The place of the fastest configuration among those of a launch, as iosim ranks them."""
    for name, group in groupby(rows, key=lambda row: (row["kernel"], row["sizes"])):
        some = [r for r in group if r["milliseconds"]]
        if len(some) > 3:
            best = min(some, key=lambda r: float(r["milliseconds"]))
            place = sorted(some, key=by_bytes).index(best) + 1
            yield f"{name}: the fastest of {len(some)} configurations is number {place} by bytes"


def by_bytes(row: dict[str, str]) -> tuple[int, int]:
    """What a ranking by bytes sorts by: fewer bytes, then more programs on a multiprocessor."""
    return whole(row, "read_bytes") + whole(row, "write_bytes"), -whole(row, "blocks_per_sm")


# ---------------------------------------------------------------- the whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--table")
    parser.add_argument("--list", default="launches.toml", help="the list of launches, in this folder")
    parser.add_argument("--only", default="", help="launches whose file or kernel has this in its name")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--times", help="a file with the times; only bytes are measured")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS)
    parser.add_argument("--worker", nargs=2)
    parser.add_argument("--profiled", action="store_true")
    given = parser.parse_args()
    if given.worker:
        work(given.packages, given.list, *given.worker, given.profiled)
        return 0
    if given.table:
        print("\n".join(table(read_rows(Path(given.table)))))
        return 0
    begin, out = time.monotonic(), Path(given.folder)
    out.mkdir(parents=True, exist_ok=True)
    launches = listed(given.packages, all_sizes=True, name=given.list)
    numbers = [n for n, one in enumerate(launches) if given.only in f"{one.file} {one.kernel}"]
    with ProcessPoolExecutor(given.processes) as pool:
        rows = [row for some in pool.map(rows_of, [(given.packages, given.list, n) for n in numbers]) for row in some]
    print(f"{len(rows)} rows by iosim in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    write(rows, out)
    if not given.dry:
        measure((given.packages, given.list), rows, out, begin + given.seconds, given.times)
        write(rows, out)
    print("\n".join(table(read_rows(out / "on_gpu.csv"))))
    return 0


def measure(where: tuple[str, str], rows: list[dict[str, object]], out: Path, end: float, times_of: str | None) -> None:
    """Add to the rows what is measured: once alone for times, once under the profiler for bytes."""
    safe = [row for row in rows if "reads" in row and "outside" not in str(row["why"])]
    start = time.monotonic()
    if times_of is None:
        jobs = [[row["number"], row["choice"]] for row in safe]
        found = measured(where, jobs, [], start + (end - start) * 0.45)  # type: ignore[arg-type]
        for row in safe:
            row |= found.get((row["number"], row["choice"]), {})  # type: ignore[call-overload]
    else:
        before = {tuple(row[name] for name in WHERE): row for row in read_rows(Path(times_of))}
        for row in safe:
            old = before.get(tuple(str(row[name]) for name in WHERE), {})
            row |= {name: old.get(name) for name in RAN} | {"ran": old.get("ran") == "True"}
    write(rows, out)
    print(f"times: {time.monotonic() - start:.0f} s", file=sys.stderr)
    ncu = find_ncu()
    command = [ncu, "--clock-control", "none", "--csv", "--print-units", "base", "--profile-from-start", "off",
               "--force-overwrite", "--metrics", ",".join(known_metrics(ncu))]  # fmt: skip
    jobs = [[row["number"], row["choice"]] for row in safe if row.get("ran")]
    bytes_ = measured(where, jobs, command, end, out / "ncu.csv.gz")  # type: ignore[arg-type]
    if not any("nanoseconds" in note for note in bytes_.values()):
        print("none profiled: once more with the usual metrics", file=sys.stderr)
        command[-1] = ",".join((*counters.METRICS, *counters.LAUNCH_METRICS))
        bytes_ = measured(where, jobs, command, end, out / "ncu.csv.gz")  # type: ignore[arg-type]
    for row in safe:
        row |= {k: v for k, v in bytes_.get((row["number"], row["choice"]), {}).items() if k in METRICS}  # type: ignore[call-overload]
    print(f"bytes: {time.monotonic() - start:.0f} s", file=sys.stderr)


def write(rows: list[dict[str, object]], out: Path) -> None:
    """Write a row for each launch. The folder of the packages is left out of what is said."""
    with (out / "on_gpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "why": re.sub(r"/\S*/packages/", "", str(row.get("why") or ""))} for row in rows)


if __name__ == "__main__":
    sys.exit(main())
