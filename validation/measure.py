"""Measures on a GPU what the model claims, and compares: from the root of the repository

    PYTHONPATH=. python3 validation/measure.py FOLDER                     # all parts, on the GPU
    PYTHONPATH=. python3 validation/measure.py FOLDER --part torch        # or another of PARTS
    PYTHONPATH=. python3 validation/measure.py FOLDER --rows              # no GPU: counts beside the measurements

Each part is two processes: the worker alone (words, output errors, times by events), then once more under Nsight
Compute (bytes, DRAM, times of kernels). FOLDER gets about.json and a CSV for each part, with all that was found.
`--rows` writes rows.csv, family_rows.csv, torch_rows.csv, math_rows.csv, serving_rows.csv, sweep_rows.csv and
slopes.csv from them. A short table comes last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from math import exp, log
from pathlib import Path
from typing import Any

from iosim import Attention, grid, tables
from iosim.errors import IosimError
from iosim.gpu.jobs import GeneratedJob, Job, ScheduleJob, TorchJob, job_from_json, key_of, torch_job
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu
from iosim.gpu.profile.explain import explained
from iosim.gpu.verdict import Evidence, summary, verify
from iosim.gpu.verdict_rows import verdict_table
from iosim.gpu.verify_run import combine
from validation import shapes

THEIRS = ("torch", "math", "serving")  # sets of PyTorch's kernels only
PARTS = ("about", *shapes.OWN, "family", *THEIRS, "sweep", "levels", "shifted", "token_masks", "backward",
         "state")  # fmt: skip


def main() -> int:
    """The exit code: 0, or that of the last part that could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; default: all")
    parser.add_argument("--rows", action="store_true", help="no GPU: rows from what was measured")
    parser.add_argument("--first", type=int, help="only so many jobs of each part (a trial)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.rows:
        write_rows(given.folder)
        return 0
    code = 0
    for part in given.part or PARTS:
        begin = time.perf_counter()
        try:
            write_about(given.folder) if part == "about" else measure(part, given.folder, given.first)
        except IosimError as error:
            print(f"{part}: {error}", file=sys.stderr)
            code = error.exit_code
        print(f"# {part}: {time.perf_counter() - begin:.0f} s", flush=True)
    return code


def write_about(folder: Path) -> None:
    """Write the GPU, the versions and the date."""
    from iosim.gpu import device

    name, _, versions = device.name().partition(", ")
    about = {"command": f"python3 validation/measure.py {folder.name}", "name": name, "versions": versions}
    text = json.dumps({**about, "date": date.today().isoformat()}, indent=1)
    (folder / "about.json").write_text(text + "\n", encoding="utf-8")


def measure(part: str, folder: Path, first: int | None) -> None:
    """Measure words, outputs and times, then the counters, and print the quick part of the verdict."""
    jobs = shapes.jobs_of(part)[:first]
    compile_all(jobs)
    path = str(folder / f"{part}.csv")
    notes = (
        ncu.notes_of_jobs(jobs, folder / "notes") if part not in THEIRS else [{"job": job.to_json()} for job in jobs]
    )
    for leftover in ("notes", "notes.jobs"):
        (folder / leftover).unlink(missing_ok=True)
    kernels = ncu.profile_what_ran(jobs, notes, path)
    Path(path + ".notes.jobs").unlink(missing_ok=True)
    own = [e for e in combine(jobs, notes, kernels) if isinstance(e.job, ScheduleJob)]
    show([verify(e, None) for e in own])
    if part == "tuned":
        print(grid.table(speeds(jobs, kernels)))
    if part in THEIRS:
        print(grid.table(theirs(jobs, kernels)))


def theirs(jobs: list[Any], kernels: list[Any]) -> list[dict[str, Any]]:
    """What each call of PyTorch's moved. `--rows` explains it, which takes longer than measuring."""
    rows = []
    for job, found in zip(jobs, kernels, strict=True):
        p = job.problem
        label = {
            "run": job.name,
            "N": p.N,
            "Nk": p.Nk,
            "d": p.d,
            "heads": f"{p.heads}:{p.kv_heads}",
            "mask": str(p.mask),
        }
        largest = max(found, key=lambda k: k.load_bytes, default=None)
        rows.append({**label, "kernels": len(found), "read": sum(k.load_bytes for k in found),
                     "written": sum(k.store_bytes for k in found), "largest": largest and largest.name[:50],
                     "its grid": largest and str(largest.grid)})  # fmt: skip
    return rows


def speeds(jobs: list[Any], kernels: list[Any]) -> list[dict[str, Any]]:
    """TFLOP/s of products, and bytes a second between SM and L2, by the profiler's time."""
    rows = []
    for job, found in zip(jobs, kernels, strict=True):
        p = job.problem
        flops = 4 * p.N * p.Nk * p.d * p.instances / (1 if str(p.mask) == "dense" else 2)
        seconds = sum(k.seconds for k in found)
        label = {"run": job.name, "N": p.N, "d": p.d, "heads": p.heads, "mask": str(p.mask)}
        each = " ".join(f"{k.seconds * 1e6:.0f}us:{rate(k):.2f}TB/s" for k in found)
        rows.append({**label, "us": round(seconds * 1e6, 1), "TFLOP/s": round(flops / max(seconds, 1e-9) / 1e12, 1),
                     "kernels": each})  # fmt: skip
    return rows


def rate(kernel: Any) -> float:
    """TB/s between SM and L2."""
    return float((kernel.load_bytes + kernel.store_bytes) / max(kernel.seconds, 1e-9) / 1e12)


def compile_all(jobs: list[Job]) -> None:
    """Compile the generated kernels, with and without counters, on all processors. The workers find them in CuPy's
    cache."""
    from iosim.gpu import device
    from iosim.gpu.cuda.machine import generate

    own = [GeneratedJob(job) for job in jobs if isinstance(job, ScheduleJob) and not job.tuned]
    device.compile_all([one.program for one in own] + [generate(*one.parts, count=True) for one in own])


def show(rows: list[dict[str, Any]]) -> None:
    if rows:
        print(grid.table(verdict_table(rows).grid().rows))
        print("\n".join(f"{r['schedule']} N={r['N']} d={r['d']} {r['tiles']} {r['dtype']} {r['mask']}: {r['faults']}"
                        for r in rows if not r["ok"]))  # fmt: skip
        print(summary(rows))


# ---------------------------------------------------------------- without a GPU


AGAIN = "-again"  # after the name of a part that was measured twice


def evidence(folder: Path, part: str) -> list[Evidence]:
    """The evidence in a part's CSV; its notes have the jobs, in order. If a part was measured again, the shapes that
    were in several places then have the places of both runs."""
    again = {key_of(e.job): e for e in kept(folder, part + AGAIN) if e.job.places > 1}
    return [in_more_places(e, again.get(key_of(e.job))) for e in kept(folder, part)]


def in_more_places(one: Evidence, again: Evidence | None) -> Evidence:
    if again is None:
        return one
    pairs = zip(one.kernels, again.kernels, strict=True)
    return replace(one, kernels=[replace(a, elsewhere=(*a.elsewhere, *b.dram_places)) for a, b in pairs])


def kept(folder: Path, part: str) -> list[Evidence]:
    path = folder / f"{part}.csv"
    if not path.exists():
        return []
    profile = counters.read_profile(path)
    every = [(job_from_json(note["job"]), note) for note in profile.notes]
    jobs = [job for job, _ in every][: len(profile.jobs)]
    measured = {key_of(job): note for job, note in every if "words" in note or "seconds" in note}
    failed = {key_of(job): (job, note) for job, note in every if "failed" in note}
    notes = [measured.get(key_of(job)) or failed.get(key_of(job), (job, {}))[1] for job in jobs]
    known = {key_of(job) for job in jobs}
    lost = [Evidence(job, note) for key, (job, note) in failed.items() if key not in known]
    return combine(jobs, notes, profile.jobs) + lost


def torch_rows(jobs: list[Any], kernels: list[Any]) -> list[dict[str, Any]]:
    """The best explanations of each of PyTorch's kernels, and of the passes of a call."""
    rows: list[dict[str, Any]] = []
    for job, found in zip(jobs, kernels, strict=True):
        p = torch_job(job.name, job.problem).problem
        label = {"N": p.N, "d": p.d, "batch": p.batch, "heads": p.heads, "inputs": p.dtype, "mask": str(p.mask)}
        if not found:
            rows.append({"kernel": job.name, **label, "best": True, "schedule": "none: the backend did not run"})
            continue
        for number, row in enumerate(explained(job.name, found, p)):
            rows.append({"kernel": row.pop("kernel"), **label, "best": number == 0 or "pass" in row, **row})
    names = dict.fromkeys(key for row in rows for key in row)
    return [{name: row.get(name) for name in names} for row in rows]


def judged(one: Evidence) -> dict[str, Any]:
    """The row of one job."""
    return verify(one, None)


def write_rows(folder: Path) -> None:
    labels, found = [], []
    for part in shapes.OWN:
        own = [e for e in evidence(folder, part) if isinstance(e.job, ScheduleJob)]
        labels += [{"part": part, "held_out": shapes.held_out(n)} for n in range(len(own))]
        found += own
    with ProcessPoolExecutor() as pool:
        verdicts = list(pool.map(judged, found))
    mine = [{**label, **row} for label, row in zip(labels, verdicts, strict=True)]
    flat = [{name: value for name, value in row.items() if name != "tensors"} for row in mine]
    (folder / "rows.csv").write_text(tables.to_csv(flat), encoding="utf-8")
    show(verdicts)
    write_sweep(folder)
    write_family(folder)
    write_theirs(folder, "torch_rows.csv", "tuned", "torch")
    write_theirs(folder, "math_rows.csv", "math")
    write_theirs(folder, "serving_rows.csv", "serving")


def write_theirs(folder: Path, name: str, *parts: str) -> None:
    theirs = [e for part in parts for e in evidence(folder, part) if isinstance(e.job, TorchJob)]
    if theirs:
        rows = torch_rows([e.job for e in theirs], [e.kernels for e in theirs])
        (folder / name).write_text(tables.to_csv(rows), encoding="utf-8")
        print(grid.table([row for row in rows if row["best"]]))


def write_family(folder: Path) -> None:
    """Write words, SM bytes and outputs of all other schedules."""
    rows = [verify(e, None) for e in evidence(folder, "family")]
    if rows:
        (folder / "family_rows.csv").write_text(tables.to_csv(verdict_table(rows).to_rows()), encoding="utf-8")
        show(rows)


def write_sweep(folder: Path) -> None:
    """Write SM bytes against M, and the slopes."""
    found = evidence(folder, "sweep")
    if found:
        sizes = {key_of(job): size for job, size in reversed(shapes.sweep_sizes())}
        found = [replace(e, M_bytes=sizes[key_of(e.job)]) for e in found]
        rows = [{"M_bytes": e.M_bytes, **verify(e, None)} for e in found]
        (folder / "sweep_rows.csv").write_text(tables.to_csv(verdict_table(rows).to_rows()), encoding="utf-8")
        (folder / "slopes.csv").write_text(tables.to_csv(slopes(rows, found[0].job.problem)), encoding="utf-8")


def slopes(rows: list[dict[str, Any]], problem: Attention) -> list[dict[str, Any]]:
    """A row for each schedule. The slope in theory is -1. Constants are geometric means over the sweep."""
    found = []
    for name in dict.fromkeys(row["schedule"] for row in rows):
        mine = [row for row in rows if row["schedule"] == name]
        by_model = [(row["M_bytes"], row["sm_read_bytes"] + row["sm_write_bytes"]) for row in mine]
        counted = [(row["M_bytes"], row["hw_read_bytes"], row["hw_write_bytes"] or 0) for row in mine]
        by_hardware = [(size, read + written) for size, read, written in counted if read]
        simulated, measured = fit(by_model, problem), fit(by_hardware, problem)
        found.append(
            {
                "schedule": name,
                "points": len(mine),
                "slope_simulated": simulated[0],
                "constant_simulated": simulated[1],
                "slope_measured": measured[0],
                "constant_measured": measured[1],
            }
        )
    return found


def fit(points: list[tuple[int, float]], problem: Attention) -> tuple[float | None, float | None]:
    """(slope, constant) of points (M, bytes) on log axes; None for fewer than two M."""
    if len({size for size, _ in points}) < 2:
        return None, None
    x, y = [log(size) for size, _ in points], [log(total) for _, total in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    # bytes / (N Nk d^2 / M_words x bytes of a word x heads), with M_words = M / bytes of a word
    order = problem.N * problem.Nk * problem.d**2 * problem.word_bytes**2 * problem.instances
    constant = exp(sum(b + a - log(order) for a, b in zip(x, y, strict=True)) / len(x))
    return round(slope, 4), round(constant, 4)


if __name__ == "__main__":
    sys.exit(main())
