"""The requests of one argument in numbers: words, bytes and sectors that are read, written, or changed by atomics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..answer import Column, Columns, Row
from ..hardware import SECTOR_BYTES
from .walk.code import ATOMICS, READS, WRITES
from .walk.requests import joined

if TYPE_CHECKING:
    from .walk.launch import Tensor
    from .walk.numbers import Integers
    from .walk.requests import Requests

WAYS = (READS, WRITES, ATOMICS)
MEMORY_BYTES = 1 << 62  # more than all addresses


@dataclass(frozen=True)
class Way:
    """The requests of one kind to one argument. Words and bytes count every lane of a request."""

    words: int = 0
    bytes: int = 0
    distinct_words: int = 0
    """Words that are requested at least once."""
    distinct_bytes: int = 0
    sector_bytes: int = 0
    """Bytes of the sectors that requests touch. A sector counts once for each request. The L1 is asked for at least
    these bytes."""
    l1_bytes: int | None = field(default=None, compare=False)
    """Bytes of the sectors that load instructions of warps ask the L1 for, once for each; None if that is not known. It
    depends on warps and stages, which words do not."""
    masked_lanes: int = 0
    """Lanes that a mask turns off."""
    outside_words: int = 0
    """Distinct words before the start or after the end of the tensor."""
    unplaced_words: int = 0
    """Words whose addresses are data that nobody gave. They are in words and bytes, and in no other number."""

    @classmethod
    def of(cls, requests: Requests, word_bytes: int, tensor_bytes: int) -> Way:
        """The sums over `requests` to a tensor of `tensor_bytes`."""
        first, end = requests.covered()
        inside = (end.clip(0, tensor_bytes) - first.clip(0, tensor_bytes)).sum()
        covered, asked = int((end - first).sum()), requests.asked_sectors
        return cls(
            requests.words,
            requests.byte_count,
            covered // word_bytes,
            covered,
            SECTOR_BYTES * requests.sectors,
            None if asked is None else SECTOR_BYTES * asked,
            requests.lanes - requests.words,
            (covered - int(inside)) // word_bytes,
            requests.unplaced_words,
        )


def all_ways(tensors: Mapping[str, Tensor], requests: Mapping[tuple[str, ...], Requests]) -> dict[str, dict[str, Way]]:
    """{argument: {kind: its requests}}. After the arguments come tensors whose addresses are loaded from them."""
    found = {}
    for name in dict.fromkeys([*tensors, *(name for name, *_ in requests)]):
        tensor, own = tensors.get(name), {way: requests.get((name, way)) for way in WAYS}
        size = MEMORY_BYTES if tensor is None else tensor.reach * tensor.word_bytes
        width = None if tensor is None else tensor.word_bytes
        none = Way(l1_bytes=0)
        found[name] = {way: none if r is None else Way.of(r, width or r.word_bytes, size) for way, r in own.items()}
    return found


def in_views(tensors: Mapping[str, Tensor], requests: Mapping[tuple[str, ...], Requests]) -> dict[tuple[str, str], int]:
    """{(argument, kind): its distinct bytes that an argument before it has too, where both are views of one memory}."""
    found = {}
    views = Counter(tensor.memory for tensor in tensors.values() if tensor.memory)
    for kind in WAYS:
        union: dict[int, tuple[Integers, Integers]] = {}
        for name, tensor in tensors.items():
            if views[tensor.memory] > 1 and (name, kind) in requests:
                first, end = (at + tensor.offset * tensor.word_bytes for at in requests[name, kind].covered())
                own, before = (first, end), union.get(tensor.memory)
                union[tensor.memory] = own if before is None else joined(iter((before, own)))
                if before is not None:
                    found[name, kind] = length(before) + length(own) - length(union[tensor.memory])
    return {key: again for key, again in found.items() if again}


def length(intervals: tuple[Integers, Integers]) -> int:
    """The bytes of intervals that do not overlap."""
    return int((intervals[1] - intervals[0]).sum())


ARGUMENT: Columns[Row] = (
    Column("argument", "string", "argument"),
    Column("reads", heading="reads"),
    Column("writes", heading="writes"),
    Column("atomics", heading="atomics", spare=2),
    Column("read_bytes"),
    Column("write_bytes"),
    Column("atomic_bytes"),
    Column("distinct_reads", heading="distinct_reads"),
    Column("distinct_writes"),
    Column("times_read", "number", "times_read"),
    Column("read_sector_bytes"),
    Column("write_sector_bytes"),
    Column("l1_read_bytes"),
    Column("masked_lanes", heading="masked_lanes", spare=1),
    Column("outside_words"),
)


def tensor_row(ways: Mapping[str, Way]) -> Iterator[tuple[str, int | float | None]]:
    """The (key, number) pairs of one argument in the JSON."""
    read, written, changed = (ways[way] for way in WAYS)
    yield from (("reads", read.words), ("writes", written.words), ("atomics", changed.words))
    yield from (("read_bytes", read.bytes), ("write_bytes", written.bytes), ("atomic_bytes", changed.bytes))
    reads, writes = (None if way.unplaced_words else way.distinct_words for way in (read, written))
    yield from (("distinct_reads", reads), ("distinct_writes", writes))
    yield "times_read", round(read.words / reads, 6) if reads else None
    sectors = (None if way.unplaced_words else way.sector_bytes for way in (read, written))
    yield from zip(("read_sector_bytes", "write_sector_bytes"), sectors, strict=True)
    yield "l1_read_bytes", read.l1_bytes
    yield "masked_lanes", sum(way.masked_lanes for way in ways.values())
    yield "outside_words", sum(way.outside_words for way in ways.values())
