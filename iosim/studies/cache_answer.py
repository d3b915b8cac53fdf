"""A cache in place of the explicit SRAM: its traffic beside that of the SRAM, as `iosim.cache` answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np

from ..answer import Column, Row, Table, columns_of, in_order
from ..core.options import flag
from ..core.problem import Attention
from ..core.tiling import read_tiles
from ..counting.asked import asked
from ..counting.conditions import PAPER, Conditions, conditions
from ..counting.given import memory
from ..counting.names import takes_options
from ..errors import InputError, suggestion
from ..masks import parse_mask
from ..schedules import Schedule, find
from ..search.best import footprint
from ..units import dtype_bytes, parse_axis, parse_bytes
from ..verdict import about, joined
from .accesses import Accesses, Moves, accesses, record
from .cache import LRU, CacheCounts, belady
from .events import one_head_run
from .granularities import POLICIES

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import Rule, TilesAsked
    from .trace_file import MovesOfFile

Tell = Callable[[str], None]
"""Takes a text about the progress."""
Peak = tuple[int | None, int | None]
USUAL_SCHEDULE = "flash1"


@dataclass(frozen=True)
class Caches:
    """Caches of `sizes` bytes: their units, how they replace them, and the tensors they hold (all if there are none).

    With `curve`, the LRU has a row for every size at which a count of it changes.
    """

    sizes: Sequence[int]
    granularity: str
    line_bytes: int
    policy: str
    curve: bool
    tensors: tuple[str, ...]


def caches_of(
    sizes: Sequence[int],
    word_bytes: int,
    granularity: str,
    line: int | str | None,
    policy: str,
    curve: bool,
    tensors: str | Sequence[str],
) -> Caches:
    """The caches that are asked for. Raises InputError for options that exclude each other."""
    if not sizes and not (curve and policy == "lru"):
        raise InputError("--M", "nothing", "a size as in 100KB, or an axis as 16KB:1MB:x2", "or --curve --policy lru")
    if curve and policy == "belady":
        raise InputError("--curve", "--policy belady", "lru or both: one pass gives all sizes of an LRU only")
    if line is not None and granularity != "line":
        raise InputError("--line", f"--granularity {granularity}", "line, where --line is given")
    line_bytes = 64 if line is None else parse_bytes(line, word_bytes, "--line")
    if policy not in POLICIES:
        raise InputError("--policy", policy, ", ".join(POLICIES), suggestion(policy, POLICIES))
    names = tensors.split(",") if isinstance(tensors, str) else tensors
    return Caches(sizes, granularity, line_bytes, policy, curve, tuple(dict.fromkeys(filter(None, names))))


def compare(caches: Caches, moves: Moves | MovesOfFile, peak: Peak, tell: Tell = lambda text: None) -> Row:
    """The traffic of caches beside that of the moves themselves, which need `peak` (words, bytes) of SRAM: the keys of
    the JSON.

    `M_bytes` of a result is the M asked for, and `used_bytes` the part of it that whole units fill. `x_scratchpad` is
    the bytes of a cache over those of the explicit SRAM. `optimal` says whether Belady's rule is the optimum for these
    objects.
    """
    tell("putting the accesses in order")
    string = accesses(moves, caches.granularity, caches.line_bytes)
    sizes = list(dict.fromkeys(caches.sizes))
    if any(size < string.unit_bytes for size in sizes):
        raise InputError("--M", f"{min(sizes)} B", f"at least one {caches.granularity} of {string.unit_bytes} B")
    found = [*lru_counts(caches, string, sizes, tell), *belady_counts(caches, string, sizes, tell)]
    own = moves.total_bytes  # none under a mask that hides all
    return {
        "accesses": string.total,
        "objects": len(np.unique(string.ids)),
        "granularity": caches.granularity,
        "unit_bytes": string.unit_bytes,
        "optimal": not string.whole or len(np.unique(string.weights)) == 1,
        "scratchpad": scratchpad(moves, peak),
        "results": [
            {**vars(c), "M_bytes": M, "used_bytes": c.M_bytes, "x_scratchpad": c.total_bytes / own if own else None}
            for M, c in found
        ],
    }


def lru_counts(caches: Caches, string: Accesses, sizes: list[int], tell: Tell) -> list[tuple[int, CacheCounts]]:
    """(M, the counts of its LRU) of each size, or of every size at which they change."""
    if caches.policy == "belady":
        return []
    tell(f"{len(string.ids):,} accesses through an LRU of every size")
    lru = LRU(string)
    if caches.curve:
        return [(found.M_bytes, found) for found in lru.counts(lru.breakpoints())]
    return [*zip(sizes, lru.counts([size // string.unit_bytes for size in sizes]), strict=True)]


def belady_counts(caches: Caches, string: Accesses, sizes: list[int], tell: Tell) -> list[tuple[int, CacheCounts]]:
    """(M, the counts of Belady's optimum) of each size."""
    best: dict[int, CacheCounts] = {}
    capacities = {size: size // string.unit_bytes for size in sizes if caches.policy != "lru"}
    for capacity in dict.fromkeys(capacities.values()):
        tell(f"{len(string.ids):,} accesses through Belady's cache of {capacity * string.unit_bytes:,} B")
        best[capacity] = belady(string, capacity)
    return [(size, best[capacity]) for size, capacity in capacities.items()]


def scratchpad(moves: Moves | MovesOfFile, peak: Peak) -> Row:
    """The words and bytes that are read and written without a cache, and the SRAM that this needs."""
    tensors = {name: {"reads": int(read), "writes": int(written)} for name, (read, written) in moves.tensors.items()}
    reads, writes = (sum(words[kind] for words in tensors.values()) for kind in ("reads", "writes"))
    total = {"reads": reads, "writes": writes, "total": reads + writes, "total_bytes": moves.total_bytes}
    return {**total, "sram_peak_words": peak[0], "sram_peak_bytes": peak[1], "tensors": tensors}


def header(name: str, found: Row) -> str:
    """The lines above the table: what was accessed, and what the explicit SRAM moves."""
    own, kind = cast("Row", found["scratchpad"]), found["granularity"]
    unit = f"{found['accesses']:,} {kind} accesses, to {found['objects']:,} {'tiles' if kind == 'tile' else 'runs'}"
    greedy = "\nbelady: tiles of several sizes leave whole, farthest first: a good choice only"
    room = own["sram_peak_bytes"]
    itself = "without a cache it moves" if room is None else f"its explicit SRAM of {room:,} B moves"
    moved = f"{itself} {own['total']:,} words, {own['total_bytes']:,} B"
    return f"{name}: {unit}\n{moved}{greedy * (not found['optimal'])}\n"


COUNTS: list[Column[Row]] = columns_of(
    CacheCounts,
    Column("policy", "string", "policy"),
    Column("M_bytes", heading="M_bytes"),
    Column("misses", heading="misses"),
    Column("write_backs", heading="write_backs", spare=2),
    Column("fetched_bytes", heading="fetched_bytes", spare=3),
    Column("written_bytes", heading="written_bytes", spare=1),
)
SHARE: Column[Row] = Column("x_scratchpad", "number", "x SRAM's bytes", ".4f")
RESULTS = [*COUNTS, Column("used_bytes", heading="used_bytes"), SHARE]
SHOWN = ("policy", "M_bytes", "misses", "write_backs", "fetched_bytes", "written_bytes", "x_scratchpad")


def table_of(name: str, title: str, found: Row, notes: tuple[str, ...] | None = None) -> Table:
    """A comparison as an answer. People see M in whole lines beside M if they differ."""
    rows = cast("list[Row]", found["results"])
    used = ["used_bytes"] if any(row["used_bytes"] != row["M_bytes"] for row in rows) else []
    shown = in_order(RESULTS, [*SHOWN[:2], *used, *SHOWN[2:]])
    if notes is not None:
        found = {**found, "notes": [*notes]}
    table = Table(RESULTS, rows, title, found, shown=shown, notes=notes or ())
    return replace(table, text=[*lead(rows, cast("Row", found["scratchpad"])), header(name, found), table])


def lead(rows: Sequence[Row], own: Row) -> list[str]:
    """The sentence on what each policy moves in the smallest cache, beside what the program's own SRAM moves."""
    least = min((cast("int", row["M_bytes"]) for row in rows), default=0)
    moved = [
        (NAMES[str(row["policy"])], cast("int", row["fetched_bytes"]) + cast("int", row["written_bytes"]))
        for row in rows
        if row["M_bytes"] == least
    ]
    parts = [f"{name} moves {about(size)}" for name, size in moved]
    beside = f"loads and stores by the program move {about(cast('int', own['total_bytes']))}"
    return [f"In a cache of {about(least)} {joined(parts)}; {beside}."] if parts else []


NAMES = {"lru": "LRU", "belady": "Belady's choice"}


def cache_of(
    p: Attention,
    schedule: Schedule,
    tiles: Rule | None,
    one: int | None,
    caches: Caches,
    under: Conditions = PAPER,
    tell: Tell = lambda text: None,
) -> Table:
    """The caches for one schedule. `one` is the M in bytes for which paper and best tiles are chosen. `tell` gets texts
    about the progress."""
    run = one_head_run(schedule, p, tiles, one, under.multiple)
    tell(f"recording the loads and stores of {schedule.name}")
    moves, room = record(*run, caches.tensors), footprint(*run)
    found = compare(caches, moves, (cast("int", room.peak_words), cast("int", room.peak_bytes)), tell)
    return table_of(schedule.name, f"{schedule.name}, {asked(p)}", found, under.notes)


def cache_of_file(path: str, word_bytes: int, caches: Caches, tell: Tell = lambda text: None) -> Table:
    """The caches for the loads and stores of a file of events, whose words have `word_bytes` bytes."""
    from .trace_file import moves_of_file

    tell(f"reading {path}")
    moves = moves_of_file(path, word_bytes, caches.tensors)
    peak = moves.peak_words
    return table_of(path, path, compare(caches, moves, (peak, None if peak is None else peak * word_bytes), tell))


@takes_options()
def cache(
    N: int | None = None,
    d: int | None = None,
    M: int | str | Sequence[int | str] | None = None,
    *,
    trace: str | PathLike[str] | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    tile_multiple: int | None = None,
    tiles: TilesAsked | None = None,
    schedule: str | Schedule = USUAL_SCHEDULE,
    granularity: str = "line",
    line: int | str | None = None,
    policy: str = "both",
    tensors: str | Sequence[str] = (),
    curve: bool = False,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Table:
    """The traffic of a cache of M bytes in place of the explicit SRAM: a Table with a row for each policy and M.

    - `M`: one size, several, or an axis as `16KB:1MB:x2`; or the SRAM of a `hardware`, under the conditions that
      `count` names.
    - `granularity`: the unit of accesses and evictions: `line`, `word` or `tile`. A line has `line` bytes, by default
      64.
    - `policy`: `lru`, `belady` or `both`.
    - `tensors`: the tensors to include, as `"Q,K,V"`; by default all.
    - `curve`: show every size at which the result of the LRU changes.
    - `trace`: a file of `iosim trace` or `iosim explain --trace`, in place of a schedule and its problem.
    - Other options are those of `count`.

    Raises InputError for whatever is not allowed.
    """
    if trace is not None:
        own = {"N": N, "d": d, **{name: value for name, value in options.items() if name != "dtype"}}
        own |= {"tiles": tiles, "tile_multiple": tile_multiple, "paper_model": paper_model}
        check_file_alone({**own, "mask": mask != "dense", "schedule": schedule})
        word_bytes = dtype_bytes(options.get("dtype", "fp16"))
        caches = caches_of(sizes_of(M, hardware, word_bytes), word_bytes, granularity, line, policy, curve, tensors)
        return cache_of_file(fspath(trace), word_bytes, caches)
    if N is None or d is None:
        raise InputError("N and d", "nothing", "a number for each", "or trace=FILE")
    rule = read_tiles(tiles)
    under = conditions(hardware, options, tile_multiple, paper_model, tiles)
    p = Attention(N, d, mask=parse_mask(mask), **under.options)
    sizes = sizes_of(M, hardware, p.word_bytes)
    one = sizes[0] if len(sizes) == 1 else None
    caches = caches_of(sizes, p.word_bytes, granularity, line, policy, curve, tensors)
    return cache_of(p, find(schedule), rule, one, caches, under)


def check_file_alone(beside: Mapping[str, object]) -> None:
    """Raise InputError for an option of a problem or a schedule, by its name, beside a file of events."""
    for name, value in beside.items():
        if value and value != USUAL_SCHEDULE:
            raise InputError(
                "--trace", flag(name), "a file alone: it has the loads and stores already", "leave one out"
            )


def sizes_of(M: int | str | Sequence[int | str] | None, hardware: str | None, word_bytes: int) -> Sequence[int]:
    """The sizes of M in bytes."""
    several = M if M is None or isinstance(M, int | str) else ",".join(map(str, M))
    size = memory(several, hardware)
    return [] if size is None else parse_axis(size, "--M", lambda text: parse_bytes(text, word_bytes))
