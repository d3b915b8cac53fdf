"""Runs of a sweep: an executor makes its parts, which go into a folder, or one after the other into a single file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from ..errors import InputError
from ..units import parse_count
from .executors import Executor, Processes, Serial, results
from .folder import WHOLE, About, Share, opened
from .parts import Job, Parts, WritePart, Written, make_pieces, write

if TYPE_CHECKING:
    from ..progress import Meter
    from .pieces import Out


MOST_JOBS = 1024


def executor_of(jobs: int | str | None, scheduler: str | None) -> Executor:
    """What makes the parts: this process, `jobs` processes, or the workers of a Dask scheduler."""
    count = 1 if jobs is None else parse_count(jobs, "--jobs", most=MOST_JOBS)
    if scheduler is None:
        return Processes(count) if count > 1 else Serial()
    if count > 1 and scheduler != "local":
        raise InputError("--jobs", jobs, "a number with --scheduler local", "a scheduler has the workers it has")
    from .scheduler import Dask

    return Dask(scheduler, None if jobs is None else count)


def write_folder(
    work: Parts, path: str, about: About, resume: bool, executor: Executor, meter: Meter, share: Share = WHOLE
) -> None:
    """Write the parts of a sweep, or of a share of it, into a folder. With `resume`, those that an earlier run wrote
    stay."""

    def steps(written: Written) -> int:
        return work.steps_of(written.rows, len(work.chunks_of(written.part)))

    with opened(path, work, about, resume, lambda written: meter.skip(steps(written)), share) as folder:
        job = Job(WritePart(folder.place), work)
        with closing(results(executor, job, folder.missing(), ordered=False)) as made:
            for written in made:
                folder.record(written)
                meter.advance(steps(written))
        folder.finish()


def write_file(work: Parts, out: Out, executor: Executor, advance: Callable[[int], object] = lambda steps: None) -> int:
    """Write a sweep to one file, and return the number of rows. The bytes do not depend on the executor. `advance` is
    called with the steps of each chunk."""
    with closing(results(executor, Job(make_pieces, work), range(len(work)))) as pieces:
        return write(work, out, pieces, advance)
