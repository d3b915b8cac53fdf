"""Runs of a sweep: workers make its parts, which go into a folder, or one after the other into a single file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, cast

from ..counting.row_text import header
from ..counting.write_sweep import WRITERS
from ..errors import InputError
from ..units import parse_count
from .folder import opened
from .parts import WritePart, Written, make_lines, make_tables
from .workers import Processes

if TYPE_CHECKING:
    import pandas as pd

    from ..counting.write_sweep import Out
    from ..progress import Meter
    from .folder import Folder
    from .parts import Work
    from .workers import Workers


MOST_JOBS = 1024


@contextmanager
def workers_of(jobs: int | str | None, scheduler: str | None) -> Iterator[Workers | None]:
    """The workers that were asked for; None for this process alone. They end with the `with` block."""
    count = 1 if jobs is None else parse_count(jobs, "--jobs", most=MOST_JOBS)
    if scheduler is None:
        yield Processes(count) if count > 1 else None
        return
    if count > 1 and scheduler != "local":
        raise InputError("--jobs", jobs, "a number with --scheduler local", "a scheduler has the workers it has")
    from .scheduler import Dask

    with closing(Dask(scheduler, None if jobs is None else count)) as workers:
        yield workers


def write_folder(
    work: Work, path: str, about: Mapping[str, object], resume: bool, workers: Workers, meter: Meter
) -> None:
    """Write the parts of a sweep into a folder. With `resume`, those that an earlier run wrote stay."""

    def steps(written: Written) -> int:
        return work.steps_of(written.rows, len(work.chunks_of(written.part)))

    with opened(path, work, about, resume, lambda written: meter.skip(steps(written))) as folder:
        for made in workers.run(WritePart(os.path.abspath(path)), work, missing(work, folder), ordered=False):
            written = cast("Written", made)
            folder.record(written)
            meter.advance(steps(written))
        folder.finish()


def missing(work: Work, folder: Folder) -> Iterator[int]:
    """The parts that are not in a folder."""
    return (part for part in range(len(work)) if part not in folder.done)


def write_file(work: Work, out: Out, workers: Workers | None, meter: Meter) -> int:
    """Write a sweep to one file, and return the number of rows. The bytes are those of a sweep in one process. Without
    workers this process makes them."""
    if workers is None or work.kind == "parquet":
        return write_tables(work, out, workers, meter)
    total = 0
    with open(out, "w", newline="") if isinstance(out, str) else out as file:
        before = header(work.chunks.shown) if work.kind == "csv" else ""
        for pieces in workers.run(make_lines, work, range(len(work)), ordered=True):
            for text, rows in cast("list[tuple[str, int]]", pieces):
                file.write(before + text)
                before, total = "", total + rows
                meter.advance(work.steps_of(rows, 1))
    return total


def write_tables(work: Work, out: Out, workers: Workers | None, meter: Meter) -> int:
    """Write a sweep to one file from tables, and return the number of rows."""
    total = 0

    def watched(tables: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        nonlocal total
        for rows in tables:
            yield rows
            total += len(rows)
            meter.advance(work.steps_of(len(rows), 1))

    tables = work.chunks if workers is None else tables_in_order(work, workers)
    WRITERS[work.kind](work.chunks, out, lambda rows: None, watched(tables))
    return total


def tables_in_order(work: Work, workers: Workers) -> Iterator[pd.DataFrame]:
    """The rows of a sweep as tables, in order."""
    for tables in workers.run(make_tables, work, range(len(work)), ordered=True):
        yield from cast("list[pd.DataFrame]", tables)
