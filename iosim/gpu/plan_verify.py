"""From the options of `iosim verify` to jobs, their evidence (run here, or read from a kept profile), and rows."""

from __future__ import annotations

import tempfile
from math import exp, log
from pathlib import Path
from typing import Any

from ..best_tiles import best_tiles
from ..errors import InputError, MissingError
from ..experiment import default_schedules, parse_mask
from ..hardware import Hardware, load, measured_of, names
from ..problem import Attention
from ..reference import attention_output
from ..schedules import find
from ..tiling import Tiling, parse_tiles
from ..units import parse_axis, parse_bytes
from . import counters, ncu
from .jobs import Job, schedule_job
from .verify import Evidence, Row, summary, verify

MULTIPLE = 16  # tiles of tensor-core kernels
SWEPT = {"n": "8192", "d": "64", "heads": "16"}  # by --sweep-M where nothing else is asked for
DEFAULT_DEVICE = "NVIDIA H200"  # of a kept profile, which does not say what it ran on


def run(given: dict[str, Any]) -> tuple[list[Row], dict[str, Any]]:
    """(rows, what belongs to all of them)."""
    from ..options import counts

    own = ("tiles", "m", "schedules", "tuned", "sweep_m", "hardware", "from_ncu", "keep", "no_counters", "places",
           "load")  # fmt: skip
    asked = {key: value for key, value in given.items() if key not in own and value is not None}
    problem_values = counts({**SWEPT, **asked} if given["sweep_m"] and not asked.keys() & {"n", "d"} else asked)
    problem = Attention(**{**problem_values, "mask": parse_mask(problem_values.get("mask", "dense"))})
    jobs, sizes = plan(problem, given)
    hardware = hardware_of(given) if given.get("hardware") or not sizes else None  # a sweep is of SM bytes
    evidence = gather(jobs, given)
    rows = [verify(item, hardware) for item in evidence]
    if not sizes:
        return rows, {"summary": summary(rows), "hardware": hardware and hardware.name}
    rows = [{"M_bytes": size, **row} for size, row in zip(sizes, rows, strict=True)]
    return rows, {"slopes": slopes(rows, problem)}


def plan(problem: Attention, given: dict[str, Any]) -> tuple[list[Job], list[int]]:
    """The jobs, and with --sweep-M the M of each."""
    chosen = [find(name) for name in given["schedules"]] or all_schedules(problem, given["tuned"])
    for schedule in chosen:
        if schedule.answer is not attention_output:
            raise InputError("--schedule", schedule.name, "schedules that make O of Q, K and V",
                             "python -m iosim.gpu.selftest FOLDER runs all schedules")  # fmt: skip
    more = given["tuned"], given["places"]
    if given["sweep_m"]:
        axis = parse_axis(
            given["sweep_m"], "--sweep-M", lambda text: parse_bytes(text, problem.word_bytes, "--sweep-M")
        )
        pairs = [(s, size, best_tiles(s, problem, size, MULTIPLE)) for s in chosen for size in axis]
        jobs = [(schedule_job(s.name, problem, tiling, *more), size) for s, size, tiling in pairs if tiling]
        if not jobs:
            raise InputError("--sweep-M", given["sweep_m"], "sizes in which tiles of 16 fit", "larger M or smaller --d")
        return [job for job, _ in jobs], [size for _, size in jobs]
    return [schedule_job(s.name, problem, tiles_of(s, problem, given), *more) for s in chosen], []


def all_schedules(problem: Attention, tuned: bool) -> list[Any]:
    """Those that are verified where none is asked for; of the tuned kernels those that know the mask."""
    if tuned:
        from .tuned import FILES, MASKS

        return [find(name) for name in FILES if MASKS.get(name, "dense") == str(problem.mask)] or [find("flash2")]
    return [s for s in default_schedules(problem) if "ideal" not in s.rules]


def tiles_of(schedule: Any, problem: Attention, given: dict[str, Any]) -> Tiling:
    if given["tuned"]:
        from .tuned import tuned

        return tuned(schedule.name, problem).tiling
    if given["tiles"] not in (None, "best"):
        return parse_tiles(given["tiles"])
    if given["m"] is None:
        raise InputError("--tiles", "nothing", "Br x Bc as in 64x64", "or give --M: then the best tiles that fit")
    tiling = best_tiles(schedule, problem, parse_bytes(given["m"], problem.word_bytes), MULTIPLE)
    if tiling is None:
        raise InputError("--M", given["m"], f"a size in which tiles of {MULTIPLE} fit for {schedule.name}")
    return tiling


def hardware_of(given: dict[str, Any]) -> Hardware:
    """What was asked for, else what was measured of such a GPU, or the preset whose name is in the name of this one."""
    if given.get("hardware"):
        return load(given["hardware"])
    name = DEFAULT_DEVICE if given.get("from_ncu") else this_device()
    measured = measured_of(name)
    if measured:
        return measured
    for preset in names():
        if preset.lower() in name.lower():
            return load(preset)
    raise MissingError(f"there is no preset for {name}: run iosim calibrate -o FILE.toml and give --hardware FILE.toml")


def this_device() -> str:
    from . import device

    xp = device.cupy()
    return xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"].decode()  # type: ignore[no-any-return]


def gather(jobs: list[Job], given: dict[str, Any]) -> list[Evidence]:
    """What the worker and the profiler say of the jobs."""
    if given.get("from_ncu"):
        return replay(jobs, counters.read(given["from_ncu"]), given["from_ncu"])
    from . import device

    device.cupy()
    if not given.get("no_counters"):
        ncu.find_ncu()  # before minutes of measuring
    with tempfile.TemporaryDirectory() as folder:
        notes = ncu.measure(jobs, Path(folder, "notes"), given.get("load", ()))
        if given.get("no_counters"):
            return [Evidence(job, note) for job, note in zip(jobs, notes, strict=True)]
        kept = given.get("keep") or str(Path(folder, "ncu.csv"))
        return combine(jobs, notes, ncu.profile_what_ran(jobs, notes, kept, given.get("load", ())))


def combine(jobs: list[Job], notes: list[dict[str, Any]], kernels: list[list[counters.Kernel]]) -> list[Evidence]:
    return [Evidence(job, note, found) for job, note, found in zip(jobs, notes, kernels, strict=True)]


def replay(jobs: list[Job], profile: counters.Profile, where: str) -> list[Evidence]:
    """A kept profile against the jobs of this command line; our notes in it are matched by their jobs."""
    if len(profile.jobs) != len(jobs):
        raise InputError("--from-ncu", where, f"a profile of {len(jobs)} runs (it has {len(profile.jobs)})",
                         "give the options that it was made with, and --schedule for each run")  # fmt: skip
    notes = {key_of(note["job"]): note for note in profile.notes if "job" in note and "words" in note}
    return [Evidence(job, notes.get(key_of(job), {}), kernels)
            for job, kernels in zip(jobs, profile.jobs, strict=True)]  # fmt: skip


def key_of(job: Job) -> str:
    """A job as a text to look it up by, in whatever places; options that a profile kept earlier did not know have their
    defaults."""
    import json

    known = {"splits": Attention.splits, "gqa": Attention.gqa, **job}
    return json.dumps({key: value for key, value in known.items() if key != "places"}, sort_keys=True)


# ---------------------------------------------------------------- the bound on hardware


def slopes(rows: list[Row], problem: Attention) -> list[dict[str, Any]]:
    """For each schedule the slope of SM bytes against M on log axes (theory: -1), simulated and measured, and the
    constant in front of N^2 d^2 / M (words, geometric mean over the sweep)."""
    found = []
    for name in dict.fromkeys(row["schedule"] for row in rows):
        mine = [row for row in rows if row["schedule"] == name]
        simulated = [(row["M_bytes"], row["sm_read_bytes"] + row["sm_write_bytes"]) for row in mine]
        measured = [(row["M_bytes"], row["hw_read_bytes"] + (row["hw_write_bytes"] or 0)) for row in mine
                    if row["hw_read_bytes"]]  # fmt: skip
        found.append({"schedule": name, "points": len(mine), **_fit("simulated", simulated, problem),
                      **_fit("measured", measured, problem)})  # fmt: skip
    return found


def _fit(label: str, points: list[tuple[int, int]], problem: Attention) -> dict[str, Any]:
    if len({size for size, _ in points}) < 2:
        return {f"slope_{label}": None, f"constant_{label}": None}
    x, y = [log(size) for size, _ in points], [log(total) for _, total in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    # bytes / (N Nk d^2 / M_words x bytes of a word x heads), with M_words = M / bytes of a word
    order = problem.N * problem.Nk * problem.d**2 * problem.word_bytes**2 * problem.instances
    constant = exp(sum(b + a - log(order) for a, b in zip(x, y, strict=True)) / len(x))
    return {f"slope_{label}": round(slope, 4), f"constant_{label}": round(constant, 4)}
