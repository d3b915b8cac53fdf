"""Options that several commands share, and their texts as numbers and names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from .errors import InputError


def options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    def apply(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def text_option(name: str, text: str, **kwargs: Any) -> Any:
    parameter = name.strip("-").replace("-", "_").lower()
    return click.option(name, parameter, help=text, **kwargs)


size_options = options(  # all of a problem but N, which may be one number or an axis, and the mask
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
    text_option("--splits", "Shares that split-kv cuts the keys into (default: 4).", metavar="S"),
    text_option("--page-size", "Rows of a page of paged's cache (default: 16).", metavar="ROWS"),
    text_option(
        "--gqa", "repeat: each query head streams K and V; pack: those of a KV head share tiles.", metavar="HOW"
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
file_option = click.option(
    "-o", "path", metavar="FILE", help="Write to a file, FILE.json and FILE.csv in these forms; - is stdout."
)
row_outputs = options(json_option, csv_option, file_option)


def outputs(function: Any) -> Any:
    """--json, --csv and -o, whose name chooses the form where neither is asked for: FILE.json, FILE.csv, else text."""

    @wraps(function)
    def command(*, as_json: bool, as_csv: bool, path: str | None, **given: Any) -> Any:
        return function(path=path, **form(path, as_json, as_csv), **given)

    return row_outputs(command)


def form(path: str | None, as_json: bool, as_csv: bool) -> dict[str, bool]:
    """What is asked for, or what the file's name says."""
    ending = "" if as_json or as_csv else (path or "").lower()
    return {"as_json": as_json or ending.endswith(".json"), "as_csv": as_csv or ending.endswith(".csv")}


def counts(given: dict[str, Any], required: tuple[str, ...] = ("N", "d")) -> dict[str, Any]:
    """The problem's options as numbers and names; options that were not given are left out."""
    from .units import parse_count

    lower = {"n": "N", "nk": "Nk"}
    values: dict[str, Any] = {lower.get(name, name): value for name, value in given.items() if value is not None}
    for name in required:
        if name not in values:
            raise InputError(f"--{name}", "nothing", "a whole number from 1", f"give --{name}")
    for name in ("N", "Nk", "d", "batch", "heads", "kv_heads", "splits", "page_size"):
        if name in values:
            values[name] = parse_count(values[name], "--" + name.replace("_", "-"))
    if "elementwise" in values:
        values["elementwise"] = parse_count(values["elementwise"], "--elementwise", least=0, most=10_000)
    return values


def memory(m: str | None, m_elements: str | None, hardware: str | None) -> str | None:
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
