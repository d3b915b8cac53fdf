"""The command line: translation only. Heavy imports stand inside the functions, so that a count starts at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from . import __version__
from .errors import InputError, IosimError, suggestion


class Failure(click.ClickException):
    """One message, and the exit code that belongs to it."""

    def __init__(self, error: IosimError):
        super().__init__(str(error))
        self.exit_code: int = error.exit_code  # type: ignore[misc]


class Commands(click.Group):
    """Turns an IosimError into one message on stderr and its exit code, and suggests misspelt commands."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except IosimError as error:
            raise Failure(error) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            names = sorted(self.commands)
            raise InputError("command", args[0], ", ".join(names), suggestion(args[0], names))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iosim")
@click.option("--load", "files", multiple=True, metavar="FILE.py", help="Python files that register schedules.")
def main(files: tuple[str, ...]) -> None:
    """How many words an attention schedule moves between HBM and an SRAM of M words, exactly."""
    for file in files:
        load_file(file)


def load_file(file: str) -> None:
    import runpy

    try:
        runpy.run_path(file)
    except IosimError:
        raise
    except Exception as error:
        raise InputError("--load", file, "a Python file that runs", f"{type(error).__name__}: {error}") from None


def options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    def apply(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def text_option(name: str, text: str, **kwargs: Any) -> Any:
    parameter = name.strip("-").replace("-", "_").lower()
    return click.option(name, parameter, help=text, **kwargs)


problem_options = options(
    text_option("--N", "Queries.", metavar="COUNT"),
    text_option("--d", "Head dimension.", metavar="COUNT"),
    text_option("--Nk", "Keys (default: N).", metavar="COUNT"),
    text_option("--batch", "Batch size.", metavar="COUNT"),
    text_option("--heads", "Query heads.", metavar="COUNT"),
    text_option("--kv-heads", "Key and value heads (default: heads).", metavar="COUNT"),
    text_option("--dtype", "Type of Q, K, V, O, S, P in HBM: fp16, bf16, fp32, fp8, fp64.", metavar="TYPE"),
    text_option("--acc-dtype", "Type of what is accumulated on chip and of l, m, LSE.", metavar="TYPE"),
    text_option("--mask", "dense, causal, window:W, global:G, strided:S, file:PATH, with &, |, ~; 2b counts tiles."),
)
memory_options = options(
    text_option("--M", "SRAM in bytes (K, M, G are 1024s), or words as 51200el.", metavar="SIZE"),
    text_option("--M-elements", "SRAM in words.", metavar="COUNT"),
    text_option("--hardware", "Take M from a preset; see iosim hardware.", metavar="NAME"),
)
tile_options = options(
    text_option("--tiles", "paper, best, or Br x Bc as 128x64 (query rows first)."),
    text_option("--tile-multiple", "Keep to tiles that are multiples of this.", default="1", show_default=True),
    click.option("--schedule", "schedules", multiple=True, metavar="NAME", help="Repeatable; see iosim schedules."),
)
variant_options = options(
    click.option("--count-init", is_flag=True, help="Count the writes that fill O, l, m before Algorithm 1."),
    click.option("--lse", is_flag=True, help="Q-outer stores one log-sum-exp a row."),
    click.option("--keep-p", is_flag=True, help="P must be materialised."),
    text_option("--elementwise", "Unfused N^2 passes in Algorithm 0.", metavar="K"),
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
file_option = click.option("-o", "path", metavar="FILE", help="Write to a file; - is stdout.")
outputs = options(json_option, csv_option, file_option)


def counts(given: dict[str, Any], required: tuple[str, ...] = ("N", "d")) -> dict[str, Any]:
    """The problem's options as numbers and names; options that were not given are left out."""
    from .units import parse_count

    lower = {"n": "N", "nk": "Nk"}
    values: dict[str, Any] = {lower.get(name, name): value for name, value in given.items() if value is not None}
    for name in required:
        if name not in values:
            raise InputError(f"--{name}", "nothing", "a whole number from 1", f"give --{name}")
    for name in ("N", "Nk", "d", "batch", "heads", "kv_heads"):
        if name in values:
            values[name] = parse_count(values[name], "--" + name.replace("_", "-"))
    if "elementwise" in values:
        values["elementwise"] = parse_count(values["elementwise"], "--elementwise", least=0, most=10_000)
    return values


def memory(m: str | None, m_elements: str | None, hardware: str | None, word_bytes: int) -> str | None:
    """M as a text, from one of the three ways to give it."""
    ways = {"--M": m, "--M-elements": m_elements, "--hardware": hardware}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InputError(given[0], f"{given[1]} as well", "one of --M, --M-elements, --hardware")
    if hardware is not None:
        from .hardware import load

        return str(load(hardware).shared_memory_per_block_bytes)
    if m_elements is not None:
        from .units import parse_count

        return f"{parse_count(m_elements, '--M-elements')}el"
    return m


@main.command()
@problem_options
@memory_options
@tile_options
@variant_options
@click.option("--detail", is_flag=True, help="Words for each tensor and each step as well.")
@outputs
def count(m: Any, m_elements: Any, hardware: Any, schedules: Any, tiles: Any, tile_multiple: Any, as_json: bool,
          as_csv: bool, path: Any, detail: bool, **given: Any) -> None:  # fmt: skip
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from . import experiment, report
    from .units import dtype_bytes, parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware, dtype_bytes(values.get("dtype", "fp16")))
    multiple = parse_count(tile_multiple, "--tile-multiple")
    answer_report = experiment.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    show_report(answer_report, as_json, as_csv, path, detail, report)


def show_report(found: Any, as_json: bool, as_csv: bool, path: Any, detail: bool, report: Any) -> None:
    from .output import answer, emit

    terminal = sys.stdout.isatty() and path in (None, "-")
    if as_json or as_csv or not terminal:
        text = report.report_text(found) + ("\n\n" + report.table(report.detail_table(found)) if detail else "")
        answer(report.report_rows(found), report.report_json(found) if as_json else None, as_json, as_csv, path, text,
               report.COLUMNS)  # fmt: skip
        return
    emit(report.header(found), None)
    report.print_rich(report.narrow_table(found))
    if detail:
        report.print_rich(report.detail_table(found))
    report.print_rich(report.bounds_table(found.bounds))
    emit("\n".join(report.notes(found)) + "\n", None)


@main.command()
@click.argument("config", required=False)
@problem_options
@memory_options
@tile_options
@variant_options
@click.option("--dry-run", is_flag=True, help="Print the number of rows and stop.")
@click.option("--format", "kind", metavar="KIND", help="csv, jsonl or parquet (default: from the file's name).")
@outputs
def sweep(config: Any, as_json: bool, as_csv: bool, path: Any, dry_run: bool, kind: Any, **given: Any) -> None:
    """A grid of counts, one tidy row a run, to CSV, JSON lines or Parquet.

    Axes: 1024,4096 or 16KB:256KB:x2 or 64:256:+64, ends included. Or a TOML file with the same names.

    Example: iosim sweep --N 1024,8192 --d 64,128 --M 16KB:256KB:x2 -o out.csv
    """
    from . import config as configs

    kind = configs.kind_of(kind, path, as_json, as_csv, dry_run)
    plan = configs.sweep_of(config, given)
    if dry_run:
        from .output import answer

        row = {"rows": plan.rows}
        answer([row], row, as_json, as_csv, path, str(plan.rows))
        return
    configs.write_sweep(plan, path, kind, sys.argv[1:])


@main.command()
@problem_options
@memory_options
@outputs
def bounds(m: Any, m_elements: Any, hardware: Any, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """What is proven about the least traffic, with the kind and the validity of each statement."""
    from . import experiment, report
    from .output import answer
    from .units import dtype_bytes

    values = counts(given)
    size = memory(m, m_elements, hardware, dtype_bytes(values.get("dtype", "fp16")))
    chosen = ("standard",) if size is None else ()
    found = experiment.count(M=size, schedules=chosen, **values)
    text = report.header(found) + report.table(report.bounds_table(found.bounds))
    rows = [vars(bound) for bound in found.bounds]
    json = {k: v for k, v in report.report_json(found).items() if k != "results"}
    answer(rows, json, as_json, as_csv, path, text)


@main.command()
@click.argument("expression", required=False)
@problem_options
@text_option("--tiles", "Br x Bc as 32x32.", default="64x64", show_default=True)
@outputs
def mask(expression: Any, tiles: str, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """A picture of a mask, its density, its tile counts, and the formula a paper gives for it.

    Example: iosim mask 'causal&window:64' --N 512 --tiles 32x32
    """
    from .output import answer
    from .picture import describe, draw

    option = given.pop("mask")
    if (expression is None) == (option is None):
        raise InputError("--mask", "nothing or two masks", "one mask, as in iosim mask causal --N 512")
    expression = option if expression is None else expression
    values = {k: v for k, v in counts(given, required=("N",)).items() if k in ("N", "Nk")}
    row = describe(expression, tiles, **values)
    picture = draw(row.pop("bound"))
    text = "\n".join([picture, *(f"{name}: {'-' if value is None else value}" for name, value in row.items())])
    answer([row], {**row, "picture": picture.splitlines()}, as_json, as_csv, path, text)


@main.command("schedules")
@outputs
def list_schedules(as_json: bool, as_csv: bool, path: Any) -> None:
    """The schedules there are."""
    from .output import answer
    from .schedules import SCHEDULES

    rows = [
        {"schedule": s.name, "outer": s.outer, "tiles": ", ".join(s.rules), "skips tiles": "yes" if s.skips else "no",
         "summary": s.summary, "source": s.source}
        for s in SCHEDULES.values()
    ]  # fmt: skip
    answer(rows, {"schedules": rows}, as_json, as_csv, path)


@main.command("hardware")
@click.argument("name", required=False)
@outputs
def list_hardware(name: Any, as_json: bool, as_csv: bool, path: Any) -> None:
    """Hardware presets; with a NAME, every number of one of them with its source."""
    from .hardware import details, summary
    from .output import answer

    rows = summary() if name is None else details(name)
    answer(rows, {"hardware": rows}, as_json, as_csv, path)


@main.command()
@problem_options
@text_option("--tiles", "Br x Bc as 48x40.", default="16x16", show_default=True)
@click.option("--schedule", "schedules", multiple=True, metavar="NAME")
@text_option("--seed", "Seed of the random inputs.", default="0", show_default=True)
@variant_options
@outputs
def check(tiles: Any, schedules: Any, seed: Any, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """Run schedules numerically on the CPU: output error, counts, capacity; and the pieces of online softmax."""
    from . import report
    from .check import pieces, run_checks
    from .output import answer

    small = {name: default for name, default in (("n", "96"), ("d", "16")) if given[name] is None}
    values = counts({**given, **small})
    rows, ok = run_checks(values, tiles, schedules, seed)
    parts = pieces()
    text = report.table(rows) + "\n\n" + report.table(parts)
    answer(rows, {"checks": rows, "pieces": parts, "ok": ok}, as_json, as_csv, path, text)
    if not ok or not all(part["ok"] for part in parts):
        sys.exit(1)
