"""`iosim verify`."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..options import outputs, problem_options, text_option

MOST_PLACES = 32


@click.command("verify")
@problem_options
@text_option("--tiles", "Br x Bc as 64x64, or best (with --M).", metavar="TILES")
@text_option("--M", "Shared memory of a block: chooses the best tiles (multiples of 16) that fit.", metavar="SIZE")
@click.option("--schedule", "schedules", multiple=True, metavar="NAME", help="Repeatable; default: all core schedules.")
@click.option("--lse", is_flag=True, help="Q-outer stores one log-sum-exp a row.")
@click.option("--tuned", is_flag=True, help="The tuned kernels instead of the generated ones.")
@click.option("--sweep-m", "--sweep-M", "sweep_m", metavar="AXIS",
              help="Measured SM bytes against M: 16KB:227KB:x2 (without --N, --d: 8192 x 64, 16 heads).")  # fmt: skip
@text_option("--hardware", "A preset, or a file of iosim calibrate (default: what was measured of such a GPU).")
@text_option("--from-ncu", "Judge a kept profile instead of running one.", metavar="FILE")
@text_option("--keep", "Keep the profiler's CSV here.", metavar="FILE")
@click.option("--places", type=click.IntRange(1, MOST_PLACES), default=1, metavar="COUNT",
              help="Profile each launch with its arrays in so many places: DRAM bytes are the mean.")  # fmt: skip
@click.option("--no-counters", is_flag=True, help="Without Nsight Compute: words, output and time only.")
@outputs
def command(as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """On a GPU: words counted by the kernels, bytes counted by the hardware, DRAM, time and output, against the model.

    Example: iosim verify --N 2048 --d 64 --tiles 64x64 --heads 132
    """
    from .. import report
    from ..gpu import verify
    from ..gpu.plan_verify import run
    from ..output import answer

    load = click.get_current_context().find_root().params.get("files", ())
    rows, extra = run({**given, "load": load})
    ok = all(row["ok"] for row in rows)
    text = "\n".join(verify_text(rows, extra, verify, report))
    answer(verify.flat(rows), {"rows": rows, "ok": ok, **extra}, as_json, as_csv, path, text)
    for row in rows:
        if row["dram_at_the_edge"] and row["dram_places"] == 1:
            click.echo(at_the_edge(row), err=True)
    if not given["hardware"] and extra.get("hardware"):
        click.echo(whose_rates(rows, extra["hardware"]), err=True)
    if not ok:
        sys.exit(1)


def at_the_edge(row: Any) -> str:
    least, most = (round(row[f"dram_{end}_predicted"] / 1e6) for end in ("least", "most"))
    return (f"{row['schedule']}: what is used again just about fills the L2, so DRAM bytes depend on where the arrays "
            f"lie ({least} to {most} MB by the model); --places 8 measures the mean of eight places")  # fmt: skip


def whose_rates(rows: Any, name: str) -> str:
    what = "predicted with the rates of" if any(row["seconds_predicted"] for row in rows) else "not predicted by"
    return f"times are {what} {name}; iosim calibrate -o FILE.toml measures this GPU, for --hardware FILE.toml"


def verify_text(rows: Any, extra: Any, verify: Any, report: Any) -> list[str]:
    lines = [report.table(verify.short(rows))]
    lines += ["", *[f"{row['schedule']}: {row['faults']}" for row in rows if not row["ok"]]]
    if "slopes" in extra:
        return [*lines, "bytes between SM and L2 against M, on log axes:", "", report.table(extra["slopes"])]
    by = f", by {extra['hardware']}" if extra["hardware"] else ""
    return [*lines, verify.in_words(extra["summary"]) + by]
