"""The first sentences about launches: what they move, beside what is possible or with what stands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..answer import numbered, rounded
from ..counting.on_gpu import beside_floors
from ..timing.bound import RESOURCES
from ..timing.measured import LEAST_SECONDS, over_bounds
from ..units import format_bytes, microseconds
from ..verdict import Way, about, joined, lead
from .pretend.flex import FLEX

if TYPE_CHECKING:
    from .explain import Explained
    from .launches import Refused

OFTEN = 1.5  # times that a word is asked for on average, from which on it is said
MOST_NAMED = 4  # tensors or kernels


def sentence(answer: Explained) -> str:
    """What a launch moves: beside the floor and the nearest schedule if its problem is known, else with the tensors
    that cost most. Then whether a program fits."""
    return " ".join([*(beside_floor(answer) if answer.floor else moved(answer)), *room(answer)])


def beside_floor(answer: Explained) -> Iterator[str]:
    """`attention moves 264 MiB; no exact algorithm of its class can move less than 18.8 MiB: this is 14 times
    that. Its words are those of flash2 128x64.` On a GPU whose full card needs more, both ratios stand there."""
    floor, words, chip = answer.floor, answer.moved_words, answer.hardware
    assert floor is not None
    widths = {way.bytes // way.words for ways in answer.ways.values() for way in ways.values() if way.words}
    one, share = len(widths) == 1, words / floor.words
    size = about(answer.total_bytes) if one else f"{words:,} words ({about(answer.total_bytes)})"
    limit = about(floor.words * min(widths)) if one else f"{floor.words:,} words"
    if share < 1:
        yield f"{answer.kernel} moves {size}, {share:.3g} times the floor of this problem: it solves another one."
    elif chip and answer.full_card and answer.full_card > floor.words:
        yield f"{answer.kernel} moves {size}{beside_floors(share, words / answer.full_card, chip)}, {limit}."
    else:
        less = f"{'less' if one else 'fewer'} than {limit}"
        yield lead(
            Way(answer.kernel, answer.total_bytes, over_floor=share, floor=less, shown=size), memory=floor.M_words
        )
    if answer.nearest:
        yield f"{'Its words are those of' if answer.nearest.equal else 'Nearest is'} {answer.nearest.name}."


def moved(answer: Explained) -> Iterator[str]:
    """`attention reads 260 MiB (K and V: 256 MiB, each word 32 times), and writes 4 MiB.`"""
    parts = []
    for verb, way in (("reads", "reads"), ("writes", "writes"), ("changes", "atomics")):
        if size := answer.total(way, "bytes"):
            how = " by atomic operations" if way == "atomics" else ""
            parts.append(f"{verb} {about(size)}{how}{most_of(answer, way)}")
    yield f"{answer.kernel} {joined(parts) if parts else 'moves nothing'}."


def most_of(answer: Explained, way: str) -> str:
    """The tensors with the most bytes of a kind, and how often each of their words is asked for on average; nothing if
    they have all bytes, as they are shown, and no word is asked for often. Lanes of one request that ask for the same
    word share a sector: then the bytes of sectors that the L1 is asked for stand there too."""
    asked = {name: ways[way] for name, ways in answer.ways.items() if ways[way].bytes}
    most = max(each.bytes for each in asked.values())
    largest = {name: each for name, each in asked.items() if each.bytes == most}
    often = [each.words / each.distinct_words for each in largest.values() if not each.unplaced_words]
    times = f", each word {rounded(often[0])} times" if often and min(often) == max(often) >= OFTEN else ""
    sectors = sum(each.l1_bytes or each.sector_bytes for each in largest.values())
    if times and 0 < OFTEN * sectors < most * len(largest):
        times += f"; {about(sectors)} of sectors"
    size = about(most * len(largest))
    every = size == about(answer.total(way, "bytes")) and not times
    return "" if every else f" ({joined([*largest][:MOST_NAMED])}: {size}{times})"


def room(answer: Explained) -> Iterator[str]:
    """That a program does not fit; nothing if it does, or if that is not known."""
    if answer.fits is False and answer.resources and answer.hardware:
        most = format_bytes(answer.hardware.shared_memory_per_block_bytes)
        needs = format_bytes(answer.resources.smem_bytes)
        yield f"It does not fit: {answer.hardware.name} gives a program at most {most} of shared memory, not {needs}."


def on_gpu(answer: Explained) -> Iterator[str]:
    """The line on the least time: what binds, what kernels took over such a bound, multiprocessors without a program,
    and spilled registers, whose traffic is no word of an argument."""
    chip, bound = answer.hardware, answer.bound
    parts = []
    if chip and bound and bound.seconds and answer.fits is not False:
        parts.append(f"At least {microseconds(bound.seconds)} on {chip.name}: {RESOURCES[bound.binds]}{over(answer)}.")
    if chip and answer.programs < chip.sms:
        idle = f"{chip.sms - answer.programs} idle"
        parts.append(f"{numbered(answer.programs, 'program')} for {chip.sms} multiprocessors: {idle}.")
    if answer.spills and answer.resources:
        parts.append(
            f"Registers spill, {answer.resources.stack_bytes:,} bytes a thread: no number here has those words."
        )
    if parts:
        yield " ".join(parts)


def over(answer: Explained) -> str:
    """What kernels like this took over such a bound, after a semicolon; nothing if it has no products, or spills."""
    like = next((one for one in over_bounds() if "Triton" in one.kind), None)
    if like is None or not answer.flops or answer.spills:
        return ""
    least = f"where it was {microseconds(LEAST_SECONDS)} or more"
    return f"; {like.kind} took {like.least:.1f} to {like.most:.1f} times such a bound on {joined(like.gpus)}, {least}"


def first_line(answers: Sequence[Explained], refused: Sequence[Refused], ranked: bool) -> str:
    """What is said above several answers, or above one if launches have none: those without an answer, the bytes of all
    or the best of several configurations, and what does not fit."""
    several = [] if len(answers) == 1 else [best_of(answers)] if ranked else [of_all(answers), *too_large(answers)]
    return " ".join([*without_answer(refused), *several])


def of_all(answers: Sequence[Explained]) -> str:
    """The bytes of several launches: `5 launches of 3 kernels ask for 1.20 GiB in all, 1.10 GiB of it matmul.`"""
    kernels: dict[str, int] = {}
    for answer in answers:
        kernels[answer.kernel] = kernels.get(answer.kernel, 0) + answer.launches * answer.total_bytes
    most = max(kernels, key=kernels.__getitem__)
    share = f", {about(kernels[most])} of it {most}" if len(kernels) > 1 else ""
    launches = f"{sum(answer.launches for answer in answers):,} launches of {numbered(len(kernels), 'kernel')}"
    return f"{launches} ask for {about(sum(kernels.values()))} in all{share}."


def best_of(answers: Sequence[Explained]) -> str:
    """The first of several configurations, which are ranked, how many can be, and those that have its words as well:
    they differ in warps and stages alone."""
    best, several = answers[0], f"{len(answers)} configurations"
    if best.fits is False:
        return f"None of the {several} of {best.kernel} fits."
    if best.spills:
        return f"All of the {several} of {best.kernel} that fit spill registers: none is ranked."
    able = [answer for answer in answers if answer.fits is not False and not answer.spills]
    known = "" if best.fits is None else f" the {len(able)} that fit and do not spill of"
    alike = [answer for answer in able if (answer.constants, answer.ways) == (best.constants, best.ways)]
    same = f"{len(alike)} configurations" if len(alike) < len(able) else "All of them" if able[2:] else "Both"
    more = f" {same} move the same words, with other warps or stages: only a run tells them apart." * (len(alike) > 1)
    own = ", ".join(f"{name}={value}" for name, value in best.constants.items()) or "any of its options"
    warps = "" if len(alike) > 1 else f", {numbered(best.num_warps, 'warp')}"
    takes = f"moves least with {own}{warps}, of{known} {several}: {about(best.total_bytes)}"
    if best.bound and best.hardware:
        least = f"{microseconds(best.bound.seconds)} on {best.hardware.name}, and {RESOURCES[best.bound.binds]}"
        takes = f"may take least time with {own}{warps}, of{known} {several}: at least {least}"
    return f"{best.kernel} {takes}.{more}"


def without_answer(refused: Sequence[Refused]) -> Iterator[str]:
    """The kernels that have no answer, and the end of a script before its last line; nothing if there is neither."""
    names = [*dict.fromkeys(one.kernel for one in refused if one.kernel)]
    if len(names) < len({one.kernel for one in refused}):
        yield "The script ended early."
    if names:
        more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        hint = f": {FLEX}" if any("flex_attention" in name for name in names) else ""
        yield f"No answer for {joined([*names[:MOST_NAMED], *more])}{hint}."


def too_large(answers: Sequence[Explained]) -> Iterator[str]:
    """The kernels that do not fit; nothing if all do."""
    if names := [*dict.fromkeys(answer.kernel for answer in answers if answer.fits is False)]:
        yield f"{joined(names)} {'does' if len(names) == 1 else 'do'} not fit."
