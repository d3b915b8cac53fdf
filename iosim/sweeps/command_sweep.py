"""`iosim sweep`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import click

from ..commands.answer import Output, answer_all, say
from ..commands.command import Need, named_command
from ..commands.load import BROUGHT, loaded
from ..commands.notes import check_read, given_variants
from ..commands.options import (
    AXES,
    COUNT,
    OF_WHAT,
    chip_options,
    csv_option,
    file_option,
    flag_option,
    format_option,
    gathered,
    json_option,
    memory_options,
    model_option,
    options,
    own_option,
    problem_options,
    text_option,
    tile_options,
    variant_options,
)
from ..counting.given import Given, memory, names_of
from ..errors import InputError
from ..files import check_file, check_form, form_of
from ..points import COUNT as COUNTED
from ..points import asked_of, askers, known, places
from ..points import own_options as every_own
from ..progress import Meter
from ..units import parse_count

if TYPE_CHECKING:
    from ..counting.sweep_axes import Sweep
    from .executors import Team
    from .parts import Work


MANIFEST = "_manifest.json"
OWN = every_own()
OWN_AXES = tuple(name for name, option in OWN.items() if option.axis)
own_options = options(
    *(own_option(name, f"{', '.join(askers(name))}: {option.help}", OF_WHAT) for name, option in OWN.items())
)
NEEDS = (
    Need("N", ("config", "gather")),
    Need("d", ("model", "config", "gather")),
    Need("M", ("hardware", "tiles", "config", "what", "gather")),
)


class Question(NamedTuple):
    """The options that say what is asked about which grid, beside those of the problem."""

    config: str | None
    what: str | None
    M: str | None
    hardware: str | None
    schedules: tuple[str, ...]
    tile_multiple: str | None
    paper_model: bool

    @property
    def command(self) -> str:
        """The command that is asked at each point."""
        return known(self.what or COUNTED)

    def plan(self, given: Given) -> Sweep:
        """The grid. Raises InputError for axes and options that do not go together."""
        from ..core.tiling import tiles_text
        from ..counting.columns import every_column
        from ..counting.sweep_axes import sweep_of
        from .questions import asking

        counted, size = self.command == COUNTED, self.M
        given = {**given, "hardware": self.hardware, "paper_model": self.paper_model}
        for name in names_of(self.hardware):
            memory(None if asked_of(self.command, "every_M") else size, name)
        known, ask = every_column() if counted else (), partial(asking, self.command)
        plan = sweep_of(self.config, given, size, self.schedules, self.tile_multiple, known, tuple(OWN), ask)
        asked = dict.fromkeys(name for point in plan.options for name in given_variants(point))
        tiles = [tiles_text(rule) for rule in plan.tiles]
        searched = plan.multiples != [1] and not plan.implied
        usual = "state" if "rule" in asked else "core"
        check_read(asked, plan.schedules, usual, tiles if searched else None)
        return plan


class Target(NamedTuple):
    """The options that say where the rows go, and in which form."""

    path: str | None
    kind: str | None
    as_json: bool
    as_csv: bool
    dry_run: bool
    resume: bool
    part_rows: str | None
    gather: str | None

    @property
    def form(self) -> str:
        """The form asked for, else the one that the file's name asks for: csv, jsonl or parquet."""
        if self.as_json and self.as_csv:
            raise InputError("--json", "--csv as well", "one of the two")
        form = self.kind
        if form is None:
            form = "csv" if self.as_csv else "jsonl" if self.as_json else form_of(self.path, "sweep")
        check_form(form, "sweep")
        if not self.dry_run:
            check_file(form, self.path)
        return form

    @property
    def rows_of_part(self) -> int:
        """The rows of a part; 0 for the usual number."""
        return 0 if self.part_rows is None else parse_count(self.part_rows, "--part-rows")

    @property
    def folder(self) -> str | None:
        """The folder into which parts go; None if one file is written."""
        path = self.path
        begun = path is not None and os.path.isdir(path) and (self.resume or MANIFEST in os.listdir(path))
        if path is not None and (path.endswith("/") or begun):
            return path
        for option, given in (("--resume", self.resume), ("--part-rows", self.part_rows)):
            if given:
                raise InputError("-o", path or "nothing", f"a folder as in sweep/, with {option}")
        return None


@named_command(
    "sweep", needs=NEEDS, axes=(*AXES, *OWN_AXES), usual=None, first="heads causal hardware schedules what jobs resume"
)
@click.argument("config", required=False)
@problem_options
@model_option
@memory_options
@tile_options
@variant_options
@chip_options
@text_option("--columns", "Only these columns, in this order, as in N,schedule,total.", metavar="NAMES")
@flag_option("--dry-run", "Print the number of rows and stop.")
@text_option("--what", f"Question at each point: count (default), {', '.join(places())}.", metavar="NAME")
@text_option(
    "--jobs", "Processes that count (default: 1).", metavar="COUNT", kind=COUNT, also=("j", "workers", "n-jobs")
)
@text_option(
    "--dask",
    "Workers of Dask: local, or a scheduler, as tcp://HOST:8786.",
    metavar="ADDRESS",
    second="--scheduler",
)
@flag_option("--resume", "Continue the sweep in -o FOLDER/, or begin it.")
@text_option("--part-rows", "Rows of a file in -o FOLDER/ (default: 131072).", metavar="COUNT", kind=COUNT)
@text_option("--gather", "Join the parts that a sweep wrote into FOLDER, to -o FILE.", metavar="FOLDER")
@flag_option("--quiet", "No progress on stderr.")
@own_options
@format_option("csv, jsonl or parquet (default: from the file's name).")
@json_option
@csv_option
@file_option("Write to a file; its ending .csv, .jsonl or .parquet decides the form. FOLDER/ gets parts; - is stdout.")
@gathered(question=Question, target=Target)
def command(
    question: Question, target: Target, jobs: str | None, dask: str | None, quiet: bool, **given: str | bool | None
) -> None:
    """A grid of counts, one row for each, as CSV, JSON lines or Parquet.

    CONFIG is a TOML file with axes and options by their names; an option of the command line overrides it. --what asks
    another command at each point.

    Without --schedule the rows are standard, standard-tiled, flash1 and flash2, and under a mask with --visit-all
    block-sparse and block-sparse-q too. --schedule names others, which iosim schedules lists; --what tune searches all.

    With -o FOLDER/ the rows go to files of --part-rows rows, each with a hash in _manifest.json. After Ctrl-C, a full
    disk or a reboot, the same line with --resume continues. --gather FOLDER -o FILE joins the parts. Other programs
    read the folder as it is.

    Axes of numbers are 1024,4096 or 1K:64K:x2 (K = 1024) or 64:256:+64, ends included: --N, --Nk, --d, --batch,
    --heads, --kv-heads, --dv, --M, --registers, --stages, --tile-multiple, --splits, --page-size, --top-k, --key-block,
    --elementwise. Axes of names are lists with commas: --dtype, --acc-dtype, --kv-dtype, --kv-scales, --gqa, --tiles,
    --schedule, --hardware. Masks have semicolons, as 'causal;window:64'.
    Options of the command of --what are axes as well.

    Example: iosim sweep --N 1024,8192 --d 64,128 --M 16KB:256KB:x2 -o out.csv
    """
    if target.gather is not None:
        return write_joined(target.gather, target.path, quiet)
    form, part_rows, folder = target.form, target.rows_of_part, target.folder
    plan = question.plan(given)
    if target.dry_run:
        answer_size(plan, question.command, target)
        return
    say([*plan.notes, *(() if asked_of(question.command, "names_schedules") else notes_on_schedules(plan))])
    from .inputs import inputs_of
    from .parts import Work
    from .run import team_of

    files = loaded(click.get_current_context())
    inputs = inputs_of(plan, {file: BROUGHT.get(file, ()) for file in files})
    work = Work(plan, form, part_rows, inputs, question.command)
    with (
        team_of(jobs, dask, lambda note: say([note])) as team,
        closing(Meter(work.steps, quiet, work.chunks.unit)) as meter,
    ):
        if folder:
            write_parts(work, folder, target.resume, team, meter)
        else:
            write_sweep(work, target.path, team, meter)


def answer_size(plan: Sweep, asked: str, target: Target) -> None:
    """Answer the number of rows, or of points if another command than `count` is asked."""
    from ..answer import Column, Table

    if target.path is not None and os.path.isfile(target.path):
        allowed = "a file that does not exist yet, or no -o, with --dry-run"
        raise InputError("-o", target.path, allowed, "only the number of rows would be left in it")
    size = {"rows": plan.rows} if asked == COUNTED else {"points": plan.points * max(1, len(plan.tiles))}
    found = Table([Column(name) for name in size], [size], json={**size}, text=[str(*size.values())])
    answer_all([({}, found)], Output.asked(target.as_json, target.as_csv, target.path))


def notes_on_schedules(plan: Sweep) -> list[str]:
    """Notes on schedules that a sweep leaves out, on the floor without M, and on schedules that skip nothing under its
    masks."""
    from ..core.tiling import Tiling
    from ..counting.bounds import FLOORS
    from ..counting.notes import FOOTPRINT, keys_notes, mask_notes

    left_out = [] if plan.schedules else keys_notes(plan.sample(plan.masks[0]))
    shown = not plan.columns or {"ratio_to_floor", "ratio_to_order"} & {*plan.columns}
    runs = [run for mask in plan.masks for run in plan.runs(mask)] if shown and plan.sizes["M"] is None else []
    if any(isinstance(rule, Tiling) and one.family in FLOORS for one, rule in runs):
        left_out.append(FOOTPRINT)
    return left_out + [
        note for m in plan.masks for note in mask_notes(plan.sample(m), (s.name for s, _ in plan.runs(m)))
    ]


def write_parts(work: Work, folder: str, resume: bool, team: Team | None, meter: Meter) -> None:
    """Write a sweep to a folder. If it ends early, say which rows are there and how to continue."""
    from .folder import write_folder

    try:
        write_folder(work, folder, {"argv": sys.argv[1:], "conventions": about_counts(work)}, resume, team, meter)
    except BaseException as error:
        meter.close()
        if meter.done or isinstance(error, KeyboardInterrupt):  # workers may have written parts that were not told yet
            say([f"{meter.done} of {meter.total} {meter.unit} are in {folder}; the same line with --resume continues"])
        raise


def write_sweep(work: Work, path: str | None, team: Team | None, meter: Meter) -> None:
    """Write a sweep to stdout, or to a file with a second file that describes it."""
    from ..files import written_whole
    from .run import write_file

    if path is None or path == "-":
        meter.quiet = meter.quiet or sys.stdout.isatty()
        write_file(work, Stdout(), team, meter.advance)
        return
    with written_whole(path) as temporary:
        rows = write_file(work, temporary, team, meter.advance)
    about = about_counts(work)
    say([DECIMALS] if "decimals" in about else [])
    describe(path, {"rows": rows, "format": work.kind, "conventions": about})


def write_joined(folder: str, path: str | None, quiet: bool) -> None:
    """Write the parts of a folder to one file, with a second file that describes it; or to stdout."""
    from ..files import written_whole
    from .folder import Place, check_outside, join, read_manifest

    manifest = read_manifest(Place(folder, "--gather"))
    kind = manifest["format"]
    check_file(kind, path)
    meter = Meter(manifest["rows"] or 0, quiet)
    if path is None or path == "-":
        with closing(meter), Stdout() as out:
            join(folder, cast("BinaryIO", out), meter.advance)
        return
    if form_of(path, "sweep") != kind:
        raise InputError("-o", path, f"a file that ends in .{kind}, as the parts do")
    check_outside(folder, path)
    with closing(meter), written_whole(path) as temporary, open(temporary, "wb") as file:
        join(folder, file, meter.advance)
    describe(path, {"rows": manifest["rows"], "format": kind, "conventions": manifest["conventions"]})


def about_counts(work: Work) -> dict[str, str]:
    """The meaning of the numbers of a sweep, for the file beside it."""
    return {**CONVENTIONS, **({"decimals": DECIMALS} if work.kind == "parquet" and not work.chunks.int64 else {})}


def describe(path: str, about: Mapping[str, object]) -> None:
    """Write the file that describes a file of rows, unless the rows go to a stream."""
    from ..commands.answer import emit
    from ..files import passes_through
    from ..tables import to_json

    if not passes_through(path):
        emit(to_json(about, sys.argv[1:]), path + ".meta.json")


class Stdout(AbstractContextManager["Stdout"]):
    """stdout as a file of bytes that is flushed but not closed. It may be replaced by a file of text."""

    def __enter__(self) -> Stdout:
        return self

    def write(self, data: bytes) -> object:
        found = getattr(sys.stdout, "buffer", None)
        return found.write(data) if found else sys.stdout.write(data.decode())

    def __exit__(self, *error: object) -> None:
        sys.stdout.flush()


DECIMALS = "counts may be above 2^63, so they are decimals of 38 digits in Parquet"
CONVENTIONS = {
    "words": "scalars, exact integers, over all heads and batches",
    "bytes": "words times the width of their tensor in HBM",
    "M": "bytes; K, KB, KiB = 1024",
    "footprint": "tiles resident together, clipped to the axes, without the mask",
    "ragged": "the last tile counts at its true size",
    "initialisation": "writing O, l, m before Algorithm 1 is not counted unless count_init",
}
