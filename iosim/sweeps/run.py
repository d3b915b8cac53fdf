"""`iosim.sweep`: the counts of a whole grid as one DataFrame; and a sweep in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from ..cells import Cells, Chunk
from ..counting.names import takes_options
from ..counting.sweep_axes import AXES, AxisValue, build
from ..errors import CheckError, InputError
from ..points import COUNT, known, own_options
from ..units import MOST_POINTS, parse_count
from .executors import Team, processes, results
from .inputs import inputs_of
from .parts import Work, make_chunks, make_pieces, write
from .questions import asking

if TYPE_CHECKING:
    import pandas as pd

    from .row_text import Out

MOST_JOBS = 1024


@contextmanager
def team_of(jobs: int | str | None, dask: str | None, say: Callable[[str], object]) -> Iterator[Team | None]:
    """What makes the parts: this process (None), `jobs` processes, or the workers of a scheduler of Dask."""
    count = 1 if jobs is None else parse_count(jobs, "--jobs", most=MOST_JOBS)
    if dask is None:
        yield processes(count) if count > 1 else None
        return
    if count > 1 and dask != "local":
        raise InputError("--jobs", jobs, "a number with --dask local", "a scheduler has the workers it has")
    from .dask_workers import workers

    with workers(dask, None if jobs is None else count, say) as team:
        yield team


def write_file(
    work: Work, out: Out, team: Team | None = None, advance: Callable[[int], object] = lambda steps: None
) -> int:
    """Write a sweep to one file, and return the number of rows. The bytes do not depend on the team. `advance` is
    called with the steps of each piece."""
    with closing(results(team, make_pieces, work, range(len(work)))) as pieces:
        return write(work, out, pieces, advance)


IN_A_SCRIPT = "in a script, jobs must stand under if __name__ == '__main__'"


@takes_options(*AXES, *own_options())
def sweep(
    schedules: AxisValue = (),
    tiles: AxisValue = None,
    tile_multiple: AxisValue = None,
    hardware: AxisValue = None,
    *,
    what: str = COUNT,
    model: str | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    scheduler: str | None = None,
    M: AxisValue = None,
    paper_model: bool = False,
    **values: AxisValue,
) -> pd.DataFrame:
    """The counts of a whole grid as one pandas DataFrame: `sweep(N="1024:8192:x2", d=[64, 128], M="16KB:256KB:x2")`.

    A row is one grid point, schedule and tile rule. Its columns are those of `iosim sweep`, in words and bytes.

    - The axes are N, Nk, d, batch, heads, kv_heads, dv, dtype, acc_dtype, mask, M, hardware, tiles, tile_multiple,
      and the options of schedules that take a value, as splits and gqa.
    - An axis is one value, a list, or a string as `1024,4096`. An axis of sizes may be a range: `1024:8192:x2` doubles,
      and `8:64:+8` adds 8.
    - `schedules` and `model` are those of `count`. Other options are fields of `Attention`.
    - `what`: the command that is asked at each point: `count`, `tune`, `cache`, `check`, `roofline` or `links`. Options
      of these commands (`iosim sweep --help-all`) are axes too, except the flags `curve`, `decode` and `detail`.
    - `jobs`: the number of processes of this machine. `dask`, or `scheduler`: workers of Dask, as `local` or
      `tcp://HOST:8786`.

    Raises InputError for a value that is not allowed, and for a keyword that is not known.
    """
    own = {name: values.pop(name) for name in own_options() if name in values}
    own["schedules"] = schedules
    axes = {"M": M, "hardware": hardware, **{name: values.pop(name) for name in AXES if name in values}}
    asked = asking(known(what), own)
    plan = build(axes, own.pop("schedules", ()), tiles, tile_multiple, (), asked, paper_model, **values)
    if plan.points > MOST_POINTS:
        raise InputError("sweep", f"{plan.points} grid points", f"at most {MOST_POINTS} in memory", "iosim sweep -o")
    work = Work(plan, "csv", inputs=inputs_of(plan), what=what)
    try:
        with team_of(jobs, dask or scheduler, lambda note: None) as team:
            return joined([*results(team, make_chunks, work, range(len(work)))], what)
    except CheckError as error:
        raise CheckError(f"{error}; {IN_A_SCRIPT}" if jobs and jobs > 1 else str(error)) from None


def joined(chunks: Sequence[Chunk], what: str) -> pd.DataFrame:
    """The chunks, one below the other. Points of another command than `count` may leave different cells empty."""
    if what == COUNT:
        import pandas as pd

        return pd.concat([rows.to_frame() for rows in chunks], ignore_index=True)
    cells = {name: [cell for rows in chunks for cell in rows.columns[name].to_list()] for name in chunks[0].columns}
    return Chunk({name: Cells.of(found) for name, found in cells.items()}).to_frame()
