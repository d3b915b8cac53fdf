"""`iosim cache`."""

from __future__ import annotations

from ..counting.given import memories, memory, problem
from .answer import Output, answer_all
from .command import M, Need, named_command
from .options import (
    PLACES,
    alone,
    memory_options,
    outputs,
    own_option,
    problem_options,
    schedule_option,
    text_option,
    tiles_option,
    variant_options,
)


@named_command("cache", needs=(Need("N", ("trace",)), Need("d", ("trace",)), M), axes=PLACES, usual="flash1")
@problem_options
@memory_options
@tiles_option("Br x Bc as 64x64; or paper, best with one --M.")
@schedule_option("Schedules, as a,b or repeated; iosim schedules lists them (default: flash1).")
@variant_options
@own_option("granularity", "The unit of accesses and evictions: line, word or tile.")
@own_option("line", "Bytes of a line (default: 64).")
@own_option("policy", "lru, belady or both.")
@own_option("tensors", "Only these tensors, as in Q,K,V,O.")
@text_option("--trace", "Take the accesses from a file of iosim trace or iosim explain --trace (.csv, .jsonl, "
             ".parquet). Words have the size of --dtype unless the file says otherwise.", metavar="FILE")  # fmt: skip
@own_option("curve", "Show every size at which the result of the LRU changes.")
@outputs
def command(
    M: str | None, hardware: str | None, tiles: str | None, schedules: tuple[str, ...],
    granularity: str, line: str | None, policy: str, tensors: str | None, trace: str | None, curve: bool,
    output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """The traffic of a cache of M bytes in place of the explicit SRAM: LRU and Belady's optimum, with write-backs.

    M may be an axis, as 16KB:1MB:x2. The cache is fully associative. A load that misses fetches its line, a store never
    does.

    Example: iosim cache --N 8192 --d 128 --tiles 64x64 --schedule flash1 --M 100KB
    """
    from itertools import product

    from ..schedules import find_all
    from ..tracing.cache_answer import cache_of, cache_of_file, caches_of
    from ..units import dtype_bytes, parse_axis, parse_bytes

    if trace is not None:
        alone(given, ("--dtype",), tiles=tiles, schedule=schedules)
        word = dtype_bytes(str(given.get("dtype") or "fp16"))
        size = memory(M, hardware)
        sizes = [] if size is None else parse_axis(size, "--M", lambda text: parse_bytes(text, word))
        caches = caches_of(sizes, word, granularity, line, policy, curve, tensors or ())
        found = cache_of_file(trace, word, caches)
        answer_all([({}, found)], output)
        return
    p = problem(given)
    places = memories(given, M, hardware)
    sizes = [parse_bytes(place.M, p.word_bytes) for place in places if place.M is not None]
    one = sizes[0] if len(sizes) == 1 else None
    parts = []
    apart = [(place.label, [size]) for place, size in zip(places, sizes, strict=False) if "hardware" in place.label]
    for (label, own), schedule in product(apart or [({}, sizes)], find_all(schedules or "flash1")):
        caches = caches_of(own, p.word_bytes, granularity, line, policy, curve, tensors or ())
        found = cache_of(p, schedule, tiles, one, caches)
        parts.append(({**label, "schedule": schedule.name}, found))
    answer_all(parts, output)
