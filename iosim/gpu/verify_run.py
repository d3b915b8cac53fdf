"""`iosim verify`: turns the options into jobs, gathers evidence on them, and judges it.

The evidence is measured here, or comes from a kept profile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..answer import Answer, Pieces, Row, Table
from ..core.tiling import MORE_SIZES, Tiling, parse_tiles
from ..counting.count import default_schedules
from ..counting.given import Given, several
from ..counting.given import problem as problem_given
from ..counting.run import check_sizes
from ..errors import InputError
from ..hardware import Hardware, load, names
from ..schedules import Schedule, applies, distinct, find, find_all, require
from ..search.best import best_tiles
from ..units import parse_axis, parse_bytes
from .jobs import Job, Note, ScheduleJob, job_from_json, kept_jobs, key_of
from .ncu import counters
from .ncu import run as ncu
from .verdict import Evidence, summary, verify
from .verdict_rows import Summary, SweepVerdict, Verdict, in_words, verdict_table

if TYPE_CHECKING:
    from ..core.problem import Attention

MULTIPLE = 16  # tiles of tensor-core kernels
SWEPT = {"N": "8192", "d": "64", "heads": "16"}  # the problem of several --M where neither N nor d is given


@dataclass(frozen=True)
class Choice:
    """The kernels to verify, as the strings of the command line."""

    schedules: tuple[str, ...] = ()
    tiles: str | None = None
    M: str | None = None
    tuned: bool = False

    @property
    def sweeps(self) -> bool:
        """Whether --M has several values."""
        return self.M is not None and several(self.M)


@dataclass(frozen=True)
class KeptProfile:
    """A profile that was kept earlier, as the source of evidence."""

    path: str


@dataclass(frozen=True)
class Measurement:
    """This GPU as the source of evidence.

    With `counters`, Nsight Compute is used and its CSV is kept at `keep`. `load` are files that register schedules.
    """

    counters: bool = True
    keep: str | None = None
    load: tuple[str, ...] = ()


Source = KeptProfile | Measurement


@dataclass(frozen=True)
class Request:
    """The parsed options of `iosim verify`.

    `sweep_bytes` is the M of each job in a sweep over M, else empty. `M_bytes` is the one M that was given. A sweep
    over M compares SM bytes only, so it has no hardware unless it was asked for.
    """

    problem: Attention
    jobs: list[ScheduleJob]
    sweep_bytes: list[int]
    hardware: Hardware | None
    source: Source
    M_bytes: int | None = None


@dataclass(frozen=True, repr=False)
class Verdicts(Answer):
    """The answer: a verdict for each job, and a summary but for a sweep over M."""

    rows: Sequence[Verdict]
    hardware: str | None = None
    agreement: Summary | None = None

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return all(row["ok"] for row in self.rows)

    def table(self) -> Table:
        return verdict_table(self.rows)

    def pieces(self) -> Pieces:
        wrong = [f"{row['schedule']}: {row['faults']}" for row in self.rows if not row["ok"]]
        return [self.table(), "", *wrong, *([self.summary()] if self.agreement else [])]

    def to_dict(self) -> Row:
        return {"rows": self.rows, "ok": self.ok, "summary": self.agreement, "hardware": self.hardware}

    def summary(self) -> str:
        return in_words(self.agreement) if self.agreement else ""


def parse_request(given: Given, choice: Choice, hardware: str | None, source: Source) -> Request:
    """The request made of the options of a problem (`given`) and of the other options of the command line."""
    asked = {name: value for name, value in given.items() if value is not None}
    if isinstance(source, KeptProfile):
        counters.read_profile(source.path)  # a fault of the file comes before those of options
    if isinstance(source, KeptProfile) and choice == Choice() and not any(asked.values()):
        jobs = named_jobs(source)
        return Request(jobs[0].problem, jobs, [], hardware_of(hardware, source), source)
    if choice.sweeps and not asked.keys() & {"N", "d"}:
        asked = {**SWEPT, **asked}
    problem = problem_given(asked)
    jobs, sweep_bytes = plan(problem, choice)
    chip = hardware_of(hardware, source) if hardware or not sweep_bytes else None
    M_bytes = parse_bytes(choice.M, problem.word_bytes) if choice.M and not choice.sweeps else None
    return Request(problem, jobs, sweep_bytes, chip, source, M_bytes)


def run_request(request: Request, tell: Callable[[str], None] = lambda text: None) -> Verdicts:
    """The verdicts on all jobs of a request. `tell` gets a text on what is done next."""
    sizes: list[int | None] = [*request.sweep_bytes] or [request.M_bytes] * len(request.jobs)
    rows: list[Verdict] = []
    tell("reading the profile" if isinstance(request.source, KeptProfile) else "measuring on the GPU")
    for job, item, size in zip(request.jobs, gather(request.jobs, request.source), sizes, strict=True):
        tell(f"run {len(rows) + 1} of {len(sizes)}: {job.name}")
        rows.append(verify(replace(item, M_bytes=size), request.hardware))
    if not request.sweep_bytes:
        return Verdicts(rows, request.hardware.name if request.hardware else None, summary(rows))
    swept: list[SweepVerdict] = [{"M_bytes": size, **row} for size, row in zip(request.sweep_bytes, rows, strict=True)]
    return Verdicts(swept)


# ---------------------------------------------------------------- which jobs, on which hardware


def plan(problem: Attention, choice: Choice) -> tuple[list[ScheduleJob], list[int]]:
    """(the jobs, the M in bytes of each); no M outside a sweep over M."""
    if problem.count_init:
        raise InputError("--count-init", "given", "not with verify", "the host fills O, l and m, which no kernel does")
    if choice.tuned and (problem.cache_text or problem.gqa == "pack"):
        found = f"with --gqa {problem.gqa}{problem.cache_text}"
        hint = "leave out --tuned: generated kernels have these options"
        raise InputError("--tuned", found, "K and V of the type of Q", hint)
    chosen = find_all(choice.schedules) or all_schedules(problem, choice.tuned)
    for schedule in chosen:
        require(schedule, problem)
    if choice.sweeps:
        return plan_sweep(problem, choice, chosen)
    return [job_of(s, problem, tiles_of(s, problem, choice), choice) for s in chosen], []


def job_of(schedule: Schedule, problem: Attention, tiling: Tiling, choice: Choice) -> ScheduleJob:
    """The run of a schedule with these tiles."""
    return ScheduleJob(schedule.name, problem, tiling, choice.tuned)


def plan_sweep(problem: Attention, choice: Choice, chosen: list[Schedule]) -> tuple[list[ScheduleJob], list[int]]:
    """(a job for each schedule and M in which tiles of 16 fit, the M of each)."""
    axis = parse_axis(str(choice.M), "--M", lambda text: parse_bytes(text, problem.word_bytes))
    pairs = [(s, size, best_tiles(s, problem.packed, size, MULTIPLE)) for s in chosen for size in axis]
    found = [(job_of(s, problem, tiling, choice), size) for s, size, tiling in pairs if tiling]
    if not found:
        raise InputError("--M", choice.M, "sizes in which tiles of 16 fit", "larger M or smaller --d")
    return [job for job, _ in found], [size for _, size in found]


def all_schedules(problem: Attention, tuned: bool) -> list[Schedule]:
    """The schedules to verify if none is named. With `tuned`, only those whose tuned kernels have the problem's
    mask."""
    if tuned:
        from .tuned.launch import MASKS, TUNED_FILES

        masked = [find(name) for name, file in TUNED_FILES.items() if str(problem.mask) in MASKS[file]]
        return distinct(masked, problem) or [find("flash2")]
    return [s for s in default_schedules(problem) if "ideal" not in s.rules and applies(s, problem)]


def tiles_of(schedule: Schedule, problem: Attention, choice: Choice) -> Tiling:
    """The tiles to verify a schedule with; InputError if the options name none."""
    if choice.tuned:
        from .tuned.launch import tuned

        return tuned(schedule.name, problem).tiling
    if "ideal" in schedule.rules:  # it has no tiles to choose
        return Tiling(1, 1)
    if choice.tiles not in (None, "best"):
        check_sizes(schedule, given := parse_tiles(choice.tiles, more=MORE_SIZES))
        return given
    if named := schedule.named_tiles(problem.packed, choice.M is not None):
        return named
    if choice.M is None:
        raise InputError("--tiles", "nothing", "Br x Bc as in 64x64", "or give --M: then the best tiles that fit")
    tiling = best_tiles(schedule, problem.packed, parse_bytes(choice.M, problem.word_bytes), MULTIPLE)
    if tiling is None:
        raise InputError("--M", choice.M, f"a size in which tiles of {MULTIPLE} fit for {schedule.name}")
    return tiling


def hardware_of(asked: str | None, source: Source) -> Hardware | None:
    """The hardware that was asked for, else the preset whose name is part of that of this GPU; None without one, and
    for a kept profile, which does not name its GPU."""
    if asked or isinstance(source, KeptProfile):
        return load(asked) if asked else None
    device = this_device().lower()
    return next((load(preset) for preset in names() if preset.lower() in device), None)


def this_device() -> str:
    """The name that the driver gives this GPU."""
    from . import device

    xp = device.cupy()
    return str(xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"].decode())


# ---------------------------------------------------------------- the evidence on jobs


def gather(jobs: Sequence[ScheduleJob], source: Source) -> list[Evidence]:
    """The evidence on each job, from the worker and the profiler or from a kept profile."""
    if isinstance(source, KeptProfile):
        return replay(jobs, counters.read_profile(source.path), source.path)
    from . import device

    device.cupy()
    if source.counters:
        ncu.find_ncu()  # before minutes of measuring
    with tempfile.TemporaryDirectory() as folder:
        notes = ncu.notes_of_jobs(jobs, Path(folder, "notes"), source.load)
        if not source.counters:
            return [Evidence(job, note) for job, note in zip(jobs, notes, strict=True)]
        path = source.keep or str(Path(folder, "ncu.csv"))
        return combine(jobs, notes, ncu.profile_what_ran(jobs, notes, path, source.load))


def combine(
    jobs: Sequence[Job], notes: Sequence[Note], kernels: Sequence[list[counters.ProfiledKernel]]
) -> list[Evidence]:
    """The evidence on each job: its note and its kernels."""
    return [Evidence(job, note, found) for job, note, found in zip(jobs, notes, kernels, strict=True)]


def named_jobs(source: KeptProfile) -> list[ScheduleJob]:
    """The runs of schedules that a kept profile names. InputError if it names none."""
    kept = counters.read_profile(source.path)
    known = kept_jobs(kept.notes, len(kept.jobs))
    jobs = [job for job in known if isinstance(job, ScheduleJob)]
    if not jobs:
        hint = "for kernels of others: iosim profile" if known else "this profile does not name its runs"
        raise InputError("--N, --d", "nothing", "a value for each, and the other options of the profile", hint)
    return jobs


def replay(jobs: Sequence[ScheduleJob], profile: counters.Profile, where: str) -> list[Evidence]:
    """The evidence in a kept profile. As many kernels as jobs belong to the jobs in their order. Of more kernels, those
    are taken that were kept for a job of this name. Notes are matched by the jobs that they name."""
    kernels = profile.jobs
    if len(kernels) != len(jobs):
        known = {
            key_of(job): found for job, found in zip(kept_jobs(profile.notes, len(profile.jobs)), kernels, strict=False)
        }
        if not known.keys() >= {key_of(job) for job in jobs}:
            hint = "give the options that it was made with, and --schedule for each run"
            if known:
                hint = "leave out --N, --d and --schedule: then it judges all of these runs, or give those of one"
            raise InputError("--from-ncu", where, f"a profile of {len(jobs)} runs (it has {len(kernels)})", hint)
        kernels = [known[key_of(job)] for job in jobs]
    notes = {key_of(job_from_json(note["job"])): note for note in profile.notes if "job" in note and "words" in note}
    return [Evidence(job, notes.get(key_of(job), {}), found) for job, found in zip(jobs, kernels, strict=True)]
