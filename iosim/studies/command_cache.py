"""`iosim cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..commands.answer import Output, answer_all
from ..commands.command import M, Need, named_command
from ..commands.options import (
    PLACES,
    gathered,
    memory_options,
    multiple_option,
    outputs,
    own_option,
    problem_asked,
    problem_options,
    schedule_option,
    text_option,
    tiles_option,
    variant_options,
)
from ..counting.given import Asked, Fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cache_answer import Caches


class Simulated(NamedTuple):
    """The options of a cache, as texts."""

    granularity: str
    line: str | None
    policy: str
    curve: bool
    tensors: str | None

    def caches(self, sizes: Sequence[int], word_bytes: int) -> Caches:
        """The caches of these sizes. Raises InputError for options that exclude each other."""
        from .cache_answer import caches_of

        return caches_of(sizes, word_bytes, self.granularity, self.line, self.policy, self.curve, self.tensors or ())


@named_command(
    "cache",
    needs=(Need("N", ("trace",)), Need("d", ("trace",)), M),
    axes=PLACES,
    usual="flash1",
    first="schedules tiles causal policy line curve trace",
)
@problem_options
@memory_options
@tiles_option("Br x Bc as 64x64; or paper, best with one --M.")
@multiple_option
@schedule_option("Schedules, as a,b or repeated; iosim schedules lists them (default: flash1).")
@variant_options
@own_option("granularity", "The unit of accesses and evictions: line, word or tile.")
@own_option("line", "Bytes of a line (default: 64).")
@own_option("policy", "lru, belady or both.")
@own_option("tensors", "Only these tensors, as in Q,K,V,O.")
@text_option(
    "--trace",
    "Take the accesses from a file of iosim trace or iosim explain --trace (.csv, .jsonl, "
    ".parquet). Words have the size of --dtype unless the file says otherwise.",
    metavar="FILE",
)
@own_option("curve", "Show every size at which the result of the LRU changes.")
@outputs
@gathered(simulated=Simulated)
@problem_asked
def command(asked: Asked, simulated: Simulated, trace: str | None, output: Output) -> None:
    """The traffic of a cache of M bytes in place of the explicit SRAM: LRU and Belady's optimum, with write-backs.

    M may be an axis, as 16KB:1MB:x2. The cache is fully associative. A load that misses fetches its line, a store never
    does.

    Example: iosim cache --N 8192 --d 128 --tiles 64x64 --schedule flash1 --M 100KB
    """
    from itertools import product

    from ..progress import under_way
    from ..schedules import find_all
    from ..units import dtype_bytes, parse_bytes
    from .cache_answer import cache_of, cache_of_file, check_file_alone, sizes_of

    choice = asked.choice
    if trace is not None:
        beside: Fields = {name: value for name, value in asked.given.items() if name != "dtype"}
        beside |= choice._replace(M=None, hardware=None, schedules=())._asdict()
        check_file_alone({**beside, "schedule": choice.schedules})
        word = dtype_bytes(str(asked.given.get("dtype") or "fp16"))
        caches = simulated.caches(sizes_of(choice.M, choice.hardware, word), word)
        with under_way() as tell:
            of_file = cache_of_file(trace, word, caches, tell)
        answer_all([({}, of_file)], output)
        return
    p, under, places = asked.problem, asked.under, asked.places
    sizes = [parse_bytes(place.M, p.word_bytes) for place in places if place.M is not None]
    one = sizes[0] if len(sizes) == 1 else None
    parts = []
    apart = [(place.label, [size]) for place, size in zip(places, sizes, strict=False) if "hardware" in place.label]
    with under_way() as tell:
        for (label, own), schedule in product(apart or [({}, sizes)], find_all(choice.schedules or "flash1")):
            found = cache_of(p, schedule, choice.rule, one, simulated.caches(own, p.word_bytes), under, tell)
            parts.append(({**label, "schedule": schedule.name}, found))
    answer_all(parts, output)
