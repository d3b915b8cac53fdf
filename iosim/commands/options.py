"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click

from .answer import Output

Function = Callable[..., None]  # type: ignore[explicit-any]  # each command has options of its own
Decorator = Callable[[Function], Function]


def options(*decorators: Decorator) -> Decorator:
    """One decorator that applies several, as if they stood below each other in this order."""

    def apply(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def text_option(
    name: str, text: str, metavar: str | None = None, default: str | None = None, show_default: bool = False
) -> Decorator:
    """An option with a value; `text` is its help. Its parameter has its name in lower case."""
    parameter = name.strip("-").replace("-", "_").lower()
    return click.option(name, parameter, help=text, metavar=metavar, default=default, show_default=show_default)


size_options = options(  # of a problem, without its mask and without N, which may be a number or an axis
    text_option("--d", "Head dimension.", metavar="COUNT"),
    text_option("--Nk", "Keys (default: N).", metavar="COUNT"),
    text_option("--batch", "Batch size.", metavar="COUNT"),
    text_option("--heads", "Query heads.", metavar="COUNT"),
    text_option("--kv-heads", "Key and value heads (default: heads).", metavar="COUNT"),
    text_option("--dtype", "Type of Q, K, V, O, S, P in HBM: fp16, bf16, fp32, fp8, fp64.", metavar="TYPE"),
    text_option("--acc-dtype", "Type of what is accumulated on chip and of l, m, LSE.", metavar="TYPE"),
)
problem_options = options(
    text_option("--N", "Queries.", metavar="COUNT"),
    size_options,
    text_option(
        "--mask", "dense, causal, window:W, global:G, strided:S, file:PATH; &, |, ~ combine them. 2b is 2 tiles."
    ),
)
sram_options = options(
    text_option("--M", "SRAM in bytes as 100KB or 1.5MB (K, KB, KiB = 1024), or in words as 51200el.", metavar="SIZE"),
    text_option("--M-elements", "SRAM in words.", metavar="COUNT"),
)
memory_options = options(
    sram_options, text_option("--hardware", "Take M from a preset; see iosim hardware.", metavar="NAME")
)
tile_options = options(
    text_option("--tiles", "paper, best, or Br x Bc as 128x64 (query rows first)."),
    text_option("--tile-multiple", "Use only tile sizes that are multiples of this.", default="1", show_default=True),
    click.option(
        "--schedule",
        "schedules",
        multiple=True,
        metavar="NAME",
        help="Only this schedule (see iosim schedules); repeatable.",
    ),
)
variant_options = options(
    click.option("--count-init", is_flag=True, help="Count the writes that fill O, l, m before Algorithm 1."),
    click.option("--lse", is_flag=True, help="Also store the log-sum-exp of each row (queries outside)."),
    click.option("--keep-p", is_flag=True, help="Also store P in HBM."),
    text_option("--elementwise", "Add K unfused passes over the N x Nk scores to standard attention.", metavar="K"),
    text_option("--splits", "Shares that the keys are cut into, for split-kv (default: 4).", metavar="S"),
    text_option("--page-size", "Rows of a page of the KV cache, for paged (default: 16).", metavar="ROWS"),
    text_option(
        "--gqa", "repeat: each query head loads K and V; pack: the query heads of a KV head share tiles.", metavar="HOW"
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
file_option = click.option(
    "-o", "path", metavar="FILE", help="Write to a file, in the form that .json or .csv asks for; - is stdout."
)
row_outputs = options(json_option, csv_option, file_option)


def outputs(function: Function) -> Function:
    """The options --json, --csv and -o, as one argument `output` of the function. Without --json and --csv the file's
    name decides the form."""

    @wraps(function)
    def command(*, as_json: bool, as_csv: bool, path: str | None, **given: object) -> None:
        function(output=Output.asked(as_json, as_csv, path), **given)

    return row_outputs(command)
