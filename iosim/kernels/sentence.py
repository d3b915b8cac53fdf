"""The first sentences about launches: what they move, beside what is possible or with what stands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..answer import numbered, rounded
from ..verdict import Way, about, joined, lead

if TYPE_CHECKING:
    from .explain import Explained

OFTEN = 1.5  # times that a word is read on average, from which on it is said
MOST_NAMED = 4  # tensors


def sentence(answer: Explained) -> str:
    """What a launch moves: beside the floor and the nearest schedule if its problem is known, else with the tensors
    that it reads often. Then whether a program fits."""
    return " ".join([*(beside_floor(answer) if answer.floor else moved(answer)), *room(answer)])


def beside_floor(answer: Explained) -> Iterator[str]:
    """`attention moves 264 MiB; no exact algorithm of its class can move less than 18.8 MiB: this is 14 times
    that. Its words are those of flash2 128x64.`"""
    floor, words = answer.floor, answer.moved_words
    assert floor is not None
    widths = {way.bytes // way.words for ways in answer.ways.values() for way in ways.values() if way.words}
    one, share = len(widths) == 1, words / floor.words
    size = about(answer.total_bytes) if one else f"{words:,} words ({about(answer.total_bytes)})"
    limit = f"less than {about(floor.words * min(widths))}" if one else f"fewer than {floor.words:,} words"
    if share < 1:
        yield f"{answer.kernel} moves {size}, {share:.3g} times the floor of this problem: it solves another one."
    else:
        own = Way(answer.kernel, answer.total_bytes, over_floor=share, floor=limit, shown=size)
        yield lead(own, memory=floor.M_words)
    if answer.nearest:
        yield f"{'Its words are those of' if answer.nearest.equal else 'Nearest is'} {answer.nearest.name}."


def moved(answer: Explained) -> Iterator[str]:
    """`attention reads 260 MiB, K and V 32 times, and writes 4 MiB.`"""
    parts = []
    for verb, way in (("reads", "reads"), ("writes", "writes"), ("changes", "atomics")):
        if size := answer.total(way, "bytes"):
            often = often_read(answer) if way == "reads" else "by atomic operations" if way == "atomics" else ""
            parts.append(f"{verb} {about(size)}" + f", {often}" * bool(often))
    yield f"{answer.kernel} {joined(parts) if parts else 'moves nothing'}."


def often_read(answer: Explained) -> str:
    """The tensors that are read most often, by the times that a word of them is read on average: `K and V 32 times`;
    nothing if none is read often."""
    alike: dict[float, list[str]] = {}
    for name, ways in answer.ways.items():
        read = ways["reads"]
        if read.distinct_words and not read.unplaced_words and read.words >= OFTEN * read.distinct_words:
            alike.setdefault(read.words / read.distinct_words, []).append(name)
    if not alike:
        return ""
    times, names = max(alike.items())
    return f"{joined(names[:MOST_NAMED])} {rounded(times)} times"


def room(answer: Explained) -> Iterator[str]:
    """That a program does not fit; nothing if it does, or if that is not known."""
    from ..units import format_bytes

    if answer.fits is False and answer.resources and answer.hardware:
        most = format_bytes(answer.hardware.shared_memory_per_block_bytes)
        needs = format_bytes(answer.resources.smem_bytes)
        yield f"It does not fit: {answer.hardware.name} gives a program at most {most} of shared memory, not {needs}."


def of_all(answers: Sequence[Explained]) -> str:
    """The bytes of several launches: `5 launches of 3 kernels ask for 1.20 GiB in all.`"""
    launches, kernels = sum(answer.launches for answer in answers), {answer.kernel for answer in answers}
    size = about(sum(answer.launches * answer.total_bytes for answer in answers))
    return f"{launches:,} launches of {numbered(len(kernels), 'kernel')} ask for {size} in all."
