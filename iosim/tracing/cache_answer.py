"""A cache in place of the explicit SRAM, as `iosim.cache` answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Unpack, cast

from ..core.problem import Attention
from ..core.tiling import tiles_text
from ..counting.asked import asked
from ..counting.count import KEYWORDS, check_names
from ..counting.given import memory
from ..errors import InputError
from ..grid import Grid
from ..masks import parse_mask
from ..notebook import Table
from ..schedules import find
from ..units import dtype_bytes, parse_axis, parse_bytes
from .cache import compare, compare_file, comparison_header, for_terminal
from .event_file import one_head_run

if TYPE_CHECKING:
    from ..core.tiling import TilesAsked
    from ..core.typing import Mask
    from ..counting.typing import ProblemOptions
    from ..grid import Pieces
    from ..schedules import Schedule
    from ..tables import Row
    from .cache import Comparison

TAKEN = (
    "N", "d", "M", "trace", "hardware", "tiles", "schedule", "granularity", "line", "policy", "tensors", "curve",
    "mask",
)  # fmt: skip


def cache(
    N: int | None = None,
    d: int | None = None,
    M: int | str | Sequence[int | str] | None = None,
    *,
    trace: str | PathLike[str] | None = None,
    hardware: str | None = None,
    tiles: TilesAsked | None = None,
    schedule: str | Schedule = "flash1",
    granularity: str = "line",
    line: int | str | None = None,
    policy: str = "both",
    tensors: str | Sequence[str] = (),
    curve: bool = False,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Table:
    """The traffic of a cache of M bytes in place of the explicit SRAM: a Table with a row for each policy and M.

    - `M`: one size, several, or an axis as `16KB:1MB:x2`; or the SRAM of a `hardware`.
    - `granularity`: the unit of accesses and evictions: `line`, `word` or `tile`. A line has `line` bytes, by default
      64.
    - `policy`: `lru`, `belady` or `both`.
    - `tensors`: the tensors to include, as `"Q,K,V"`; by default all.
    - `curve`: show every size at which the result of the LRU changes.
    - `trace`: a file of `iosim trace` or `iosim explain --trace`, in place of a schedule and its problem.
    - Other options are those of `count`.

    Raises InputError for whatever is not allowed.
    """
    check_names("cache", options, KEYWORDS, TAKEN)
    if trace is not None:
        problem: dict[str, object] = {
            "N": N,
            "d": d,
            "tiles": tiles,
            **options,
            "mask": mask if mask != "dense" else "",
        }
        return of_file_alone(fspath(trace), problem, M, hardware, granularity, line, policy, tensors, curve)
    if N is None or d is None:
        raise InputError("N and d", "nothing", "a number for each", "or trace=FILE")
    p = Attention(N, d, mask=parse_mask(mask), **options)
    sizes = sizes_of(M, hardware, p.word_bytes)
    one = sizes[0] if len(sizes) == 1 else None
    return cache_of(p, schedule, tiles_text(tiles), sizes, one, granularity, line, policy, tensors, curve)


def sizes_of(M: int | str | Sequence[int | str] | None, hardware: str | None, word_bytes: int) -> Sequence[int]:
    """The sizes of M in bytes."""
    several = M if M is None or isinstance(M, int | str) else ",".join(map(str, M))
    size = memory(several, None, hardware)
    return [] if size is None else parse_axis(size, "--M", lambda text: parse_bytes(text, word_bytes))


def of_file_alone(
    path: str, problem: Mapping[str, object], M: int | str | Sequence[int | str] | None, hardware: str | None,
    granularity: str, line: int | str | None, policy: str, tensors: str | Sequence[str], curve: bool,
) -> Table:  # fmt: skip
    """The caches for a file of events. Raises InputError for options of a problem, except dtype."""
    beside = [name for name, value in problem.items() if value and name != "dtype"]
    if beside:
        raise InputError("trace", beside[0], "a file alone: it has the loads and stores already", "leave one out")
    word_bytes = dtype_bytes(str(problem.get("dtype") or "fp16"))
    return cache_of_file(path, word_bytes, sizes_of(M, hardware, word_bytes), granularity, line, policy, tensors, curve)


def cache_of(
    p: Attention, schedule: str | Schedule, tiles: str | None, sizes: Sequence[int], one: int | None, granularity: str,
    line: int | str | None, policy: str, tensors: str | Sequence[str], curve: bool,
) -> Table:  # fmt: skip
    """The caches of `sizes` bytes for one schedule. `one` is the M for which paper and best tiles are
    chosen."""
    line_bytes = checked(sizes, granularity, line, policy, curve, p.word_bytes)
    name = find(schedule).name
    found = compare(
        *one_head_run(p, name, tiles, None if one is None else str(one)), sizes, granularity=granularity,
        policy=policy, curve=curve, line_bytes=line_bytes, tensors=names_of(tensors),
    )  # fmt: skip
    return table_of(name, f"{name}, {asked(p)}", found)


def cache_of_file(
    path: str, word_bytes: int, sizes: Sequence[int], granularity: str, line: int | str | None, policy: str,
    tensors: str | Sequence[str], curve: bool,
) -> Table:  # fmt: skip
    """The caches of `sizes` bytes for the loads and stores of a file of events, whose words have `word_bytes`
    bytes."""
    line_bytes = checked(sizes, granularity, line, policy, curve, word_bytes)
    found = compare_file(path, word_bytes, sizes, granularity=granularity, policy=policy, curve=curve,
                         line_bytes=line_bytes, tensors=names_of(tensors))  # fmt: skip
    return table_of(path, path, found)


def checked(
    sizes: Sequence[int], granularity: str, line: int | str | None, policy: str, curve: bool, word_bytes: int
) -> int:
    """The bytes of a line. Raises InputError for options that exclude each other."""
    if not sizes and not (curve and policy == "lru"):
        raise InputError("--M", "nothing", "a size as in 100KB, or an axis as 16KB:1MB:x2", "or --curve --policy lru")
    if curve and policy == "belady":
        raise InputError("--curve", "--policy belady", "lru or both: one pass gives all sizes of an LRU only")
    if line is not None and granularity != "line":
        raise InputError("--line", f"--granularity {granularity}", "line, where --line is given")
    return 64 if line is None else parse_bytes(line, word_bytes, "--line")


def names_of(tensors: str | Sequence[str]) -> tuple[str, ...]:
    """The tensors that are asked for, each once."""
    return tuple(dict.fromkeys(filter(None, tensors.split(",") if isinstance(tensors, str) else tensors)))


def table_of(name: str, title: str, found: Comparison) -> Table:
    """A comparison as an answer."""
    rows = found["results"]
    table = Grid(for_terminal(rows), ("written_bytes", "write_backs", "fetched_bytes"))
    text: Pieces = [comparison_header(name, found).removesuffix("\n"), table]
    return Table(title, rows, cast("Row", found), text)
