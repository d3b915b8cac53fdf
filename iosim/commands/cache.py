"""`iosim cache`."""

from __future__ import annotations

import click

from ..counting.given import memory, problem
from ..errors import InputError
from .answer import Output, answer
from .options import memory_options, outputs, problem_options, text_option, variant_options


@click.command("cache")
@problem_options
@memory_options
@text_option("--tiles", "Br x Bc as 64x64; or paper, best with one --M.")
@click.option("--schedule", "name", default="flash1", show_default=True, metavar="NAME")
@variant_options
@text_option(
    "--granularity", "What is accessed and evicted as a whole: line, word or tile.", default="line", show_default=True
)
@text_option("--line", "Bytes of a line (default: 64).", metavar="SIZE")
@text_option("--policy", "lru, belady or both.", default="both", show_default=True)
@text_option("--tensors", "Only these tensors, as in Q,K,V,O.", metavar="NAMES")
@click.option("--curve", is_flag=True, help="Every size at which the result of the LRU changes.")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, tiles: str | None, name: str, granularity: str,
    line: str | None, policy: str, tensors: str | None, curve: bool, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """What a cache of M bytes in place of the explicit SRAM would move: LRU and Belady's optimum, with write-backs.

    M may be an axis, as 16KB:1MB:x2. The cache is fully associative; a load that misses fetches, a store does not.

    Example: iosim cache --N 8192 --d 128 --tiles 64x64 --schedule flash1 --M 100KB
    """
    from .. import tables
    from ..tracing import cache
    from ..tracing.event_file import one_head_run
    from ..units import parse_axis, parse_bytes

    p = problem(given)
    size = memory(m, m_elements, hardware)
    sizes = [] if size is None else parse_axis(size, "--M", lambda text: parse_bytes(text, p.word_bytes))
    if not sizes and not (curve and policy == "lru"):
        raise InputError("--M", "nothing", "a size as in 100KB, or an axis as 16KB:1MB:x2", "or --curve --policy lru")
    if curve and policy == "belady":
        raise InputError("--curve", "--policy belady", "lru or both: one pass gives all sizes of an LRU only")
    if line is not None and granularity != "line":
        raise InputError("--line", f"--granularity {granularity}", "line, where --line is given")
    one = str(sizes[0]) if len(sizes) == 1 else None
    found = cache.compare(
        *one_head_run(p, name, tiles, one), sizes, granularity=granularity, policy=policy, curve=curve,
        line_bytes=64 if line is None else parse_bytes(line, p.word_bytes, "--line"),
        tensors=tuple(dict.fromkeys(tensors.split(","))) if tensors else (),
    )  # fmt: skip
    rows = found["results"]
    answer(rows, found, output, cache.comparison_header(name, found) + tables.table(cache.for_terminal(rows)))
