"""The entry point: finds a command, loads only its file, and turns errors into one message and an exit code."""

from __future__ import annotations

import errno
import sys
from importlib import import_module

import click

from .. import __version__
from ..errors import InputError, IosimError, ScheduleError, suggestion
from .options import LOADED, load_option

COMMANDS = {
    "count": "Words and bytes for each schedule, with fit, ratios and bounds.",
    "sweep": "A grid of counts, one tidy row a run, to CSV, JSON lines or Parquet.",
    "bounds": "What is proven about the least traffic.",
    "mask": "A picture of a mask, its density and its tile counts.",
    "schedules": "All schedules: source, formula, state and options of each.",
    "hardware": "Hardware presets, each number with unit and source.",
    "training": "Forward and backward together, and what is stored between them.",
    "memory": "Bytes of scores, inputs and KV cache; the largest N for a memory budget.",
    "check": "Run schedules numerically on the CPU: output error, counts, SRAM.",
    "verify": "On a GPU: words, hardware bytes, DRAM, time and output against the model.",
    "profile": "Which schedule and tiles explain an attention kernel that somebody else wrote.",
    "calibrate": "Measure this GPU into a hardware file.",
    "tune": "The least traffic that fits, over schedules and tiles; with --curve, for every M.",
    "crossover": "The M from which on one schedule moves less than another, exact to the byte.",
    "roofline": "FLOPs by kind, intensity, ideal and predicted time on a GPU, and which resource binds.",
    "cache": "A schedule's accesses through a cache: LRU and Belady's optimum.",
    "plot": "Pictures: traffic against M or N, columns of a sweep, a mask.",
    "report": "One self-contained HTML page about a problem.",
    "trace": "Every load, step and store of a run: CSV, JSON lines, Parquet, Perfetto.",
}


class Failure(click.ClickException):
    """An IosimError as one message with its exit code."""

    def __init__(self, error: IosimError):
        super().__init__(str(error))
        self.exit_code: int = error.exit_code  # type: ignore[misc]


class Commands(click.Group):
    """The commands by name. A command's file is loaded when it is asked for. A misspelt name gets a suggestion."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return import_module(f".{name}", __package__).command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except IosimError as error:
            raise Failure(error) from None
        except Exception as error:
            raise blamed(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            names = sorted(COMMANDS)
            raise InputError("command", args[0], ", ".join(names), suggestion(args[0], names))
        return super().resolve_command(ctx, args)


def blamed(error: Exception) -> Exception:
    """The error as a failure with one message, if a file of --load is to blame (its formula, search or example) or if
    stdout is full. Any other error is a bug and returned as it is."""
    from ..core import blame

    where = blame.line_of(error, LOADED)
    if where:
        return Failure(ScheduleError(where + blame.error_text(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        return unwritten(str(error.strerror))
    return error


def unwritten(found: str) -> Exception:
    """The failure of a stdout that cannot be written to, as on a full disk. The rest of its buffer is dropped, because
    Python would fail again at exit."""
    import os

    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return Failure(InputError("stdout", found, "a place with room for the answer"))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iosim")
def main() -> None:
    """How many words an attention schedule moves between HBM and an SRAM of M words, exactly."""


main.params.append(load_option)
