"""`iosim verify`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..commands.answer import Output, answer_all, say
from ..commands.command import named_command
from ..commands.load import loaded
from ..commands.options import (
    HARDWARE,
    MEMORY,
    SIZE,
    flag_option,
    gathered,
    outputs,
    problem_options,
    schedule_option,
    text_option,
    tiles_option,
    variant_options,
)
from ..options import CHANCE, SEED

if TYPE_CHECKING:
    from .ask import OnCpu
    from .verify_run import Choice, Source


def choice_of(schedules: tuple[str, ...], tiles: str | None, M: str | None, tuned: bool) -> Choice:
    """The choice of kernels."""
    from .verify_run import Choice

    return Choice(schedules, tiles, M, tuned)


def on_cpu_of(cpu: bool, seed: str, dropout: str | None) -> OnCpu:
    """What is asked of a run on the CPU."""
    from .ask import OnCpu

    return OnCpu(cpu, seed, dropout)


def source_of(from_ncu: str | None, keep: str | None, no_counters: bool) -> Source:
    """The source of evidence: a kept profile, or this GPU."""
    from .verify_run import KeptProfile, Measurement

    load = loaded(click.get_current_context())
    return KeptProfile(from_ncu) if from_ncu else Measurement(not no_counters, keep, load)


@named_command(
    "verify",
    usual="core",
    axes=("M",),
    first="heads causal mask schedules tiles M cpu from_ncu",
)
@problem_options
@tiles_option("Br x Bc as 64x64, or best with --M (default on the CPU: 16x16, or smaller: two tiles an axis).")
@text_option(
    "--M",
    "Shared memory of a block, for the best tiles (multiples of 16) that fit in it. An axis, as 16KB:227KB:x2, shows "
    "SM bytes against M (default: N = 8192, d = 64, 16 heads).",
    metavar="SIZE",
    heading=MEMORY,
    kind=SIZE,
)
@schedule_option("Only these: a,b or repeated (default: all core schedules).")
@variant_options
@flag_option("--tuned", "Run the tuned kernels instead of the generated ones.")
@text_option(
    "--hardware",
    "The GPU: a preset, or a FILE.toml (default: by the name of the GPU).",
    metavar="NAME|FILE",
    kind=HARDWARE,
)
@text_option(
    "--from-ncu",
    "Judge a profile from a file; this needs no GPU. Without other options, judge all runs that the file names.",
    metavar="FILE",
)
@text_option("--keep", "Keep the profiler's CSV here.", metavar="FILE")
@flag_option("--no-counters", "Without Nsight Compute: words, output and time only.")
@flag_option("--cpu", "Only the run on the CPU: output, words and SRAM.")
@text_option("--seed", "Seed of the random inputs on the CPU.", "0", metavar="COUNT", kind=SEED)
@text_option(
    "--dropout",
    "Probability that an element of P is dropped, on the CPU; --seed decides which ones.",
    metavar="P",
    kind=CHANCE,
)
@outputs
@gathered(choice=choice_of, source=source_of, on_cpu=on_cpu_of)
def command(
    choice: Choice, source: Source, on_cpu: OnCpu, hardware: str | None, output: Output, **given: str | bool | None
) -> None:
    """Run schedules and compare them with the model. On a GPU: words counted by the kernels, bytes counted by the
    hardware, time and output. Without one, or with --cpu: output error, words and SRAM of runs in NumPy.

    On the CPU, error_fp64 and error_TYPE are the largest absolute errors of the outputs. For error_TYPE every load,
    store and step rounds to its type (--dtype, --acc-dtype). bf16 and fp8 (E4M3, saturating) are rounded in float32.
    The error may be at most twice that of a separate softmax attention with the same roundings. bias is the slope of a
    line fitted to the output against the float64 reference, minus 1.

    Example: iosim verify --N 2048 --d 64 --tiles 64x64 --heads 132
    """
    from ..progress import under_way
    from .ask import verified
    from .verify_run import KeptProfile

    with under_way() as tell:
        found, notes = verified(given, choice, source, on_cpu, hardware, tell)
    answer_all([({}, found)], output)
    if not found.ok and isinstance(source, KeptProfile) and given.get("N") is not None:
        notes += ["if these rows are wrong, are N, d, heads, mask and --dtype those of the profile?"]
    say(notes)
    if not found.ok:
        sys.exit(1)
