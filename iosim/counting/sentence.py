"""The answer of a count in a sentence: which schedule wins, by what factor, why, and how far it is from the floor.

Everything in it follows from the counts. The reason names the tensors whose traffic differs most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import TENSORS, mask_matters, narrowed
from ..schedules import SCHEDULES
from ..tables import at_most, excess
from ..units import UNITS
from .bounds import floor_of
from .columns import flags
from .result import Answered, Result, tile_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..core.typing import Attention

BASELINE = "standard"  # results are compared with it if it was counted, as in `ratio_to_standard`
NEAR = 1.01  # results that move up to this factor more are named together with the winner
MAIN = 0.8  # reasons are added until they explain this share of a difference
COST = 0.1  # extra traffic of the winner is named if it is at least this share of what it saves


def answer_of(report: Answered) -> str:
    """The answer of a count, as one text."""
    return " ".join([*lead_lines(report), *reason_lines(report)])


def lead_lines(report: Answered) -> list[str]:
    """The answer in a sentence for each family of the schedules that were counted: the least result, what it moves,
    and how far that is from the floor."""
    return [lead(report, found) for found in by_family(report.results).values()]


def reason_lines(report: Answered) -> list[str]:
    """The sentences that say why, family by family."""
    families = by_family(report.results).values()
    return [line for found in families for line in lines_of_family(report.problem, found, report.M_bytes)]


def winner_of(results: Sequence[Result]) -> Result | None:
    """The result of one family that moves the fewest bytes of those that fit, or that may fit; None if none does."""
    return min((r for r in results if r.total_bytes is not None and r.fits is not False), key=moved_bytes, default=None)


def winners(results: Sequence[Result]) -> list[int]:
    """The indices of the winning results, one for each family."""
    found = [winner_of(of_family) for of_family in by_family(results).values()]
    return [k for k, result in enumerate(results) if any(result is winner for winner in found)]


def by_family(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each family of schedules, in their order."""
    families: dict[str, list[Result]] = {}
    for result in results:
        families.setdefault(SCHEDULES[result.schedule].family, []).append(result)
    return families


def lines_of_family(problem: Attention, results: Sequence[Result], M_bytes: int | None) -> list[str]:
    """The sentences about the results of one family."""
    counted = [r for r in results if r.total_bytes is not None]
    within = [r for r in counted if r.fits is not False]
    winner = winner_of(results)
    if winner is None:
        return []
    baseline = next((r for r in counted if r.schedule == BASELINE and r is not winner), None)
    near = [r for r in within if r is not winner and moved_bytes(r) <= NEAR * moved_bytes(winner)]
    farther = sorted((r for r in within if moved_bytes(r) > NEAR * moved_bytes(winner)), key=moved_bytes)
    other = baseline or next(iter(farther), None) or next((r for r in counted if r not in within), None)
    parts = [comparison(problem, winner, other, M_bytes)] if other else []
    if near:
        parts.append(nearly_as_good(winner, near))
    subject = winner.schedule if near else "It"  # the sentence before may be about others
    if farther and farther[0] is not other:
        parts.append(next_best(problem, winner, farther[0], subject))
    if winner.fits is None:
        parts.append(f"Whether it fits is not known without M: it needs {winner.smem_peak_bytes:,} B of SRAM.")
    return [part for part in parts if part]


def lead(report: Answered, results: Sequence[Result]) -> str:
    """The first sentence about the results of one family: `flash2 196x1 moves 172 MiB; no exact algorithm of its class
    can move less than 162 MiB: 6 % above.`"""
    winner, p = winner_of(results), report.problem
    if winner is None:
        return nothing_fits([r for r in results if r.total_bytes is not None], report.M_bytes)
    name = winner.schedule + tile_sizes(winner) + flags(vars(winner).get("options") or {})
    share, size = winner.ratio_to_floor, about(moved_bytes(winner))
    one_width = moved_bytes(winner) == (winner.total or 0) * p.word_bytes and p.cache_dtype == p.dtype
    text = f"{name} moves {size if one_width or share is None else f'{winner.total:,} words ({size})'}"
    if share is None:
        return text + "."
    which = "no exact algorithm" if report.M_bytes is None else "no exact algorithm of its class"
    if share == 1:
        return f"{text}, and {which} can move less."
    least = floor_of(p, report.M_bytes, SCHEDULES[winner.schedule].family) or 0
    limit = f"less than {about(least * p.word_bytes)}" if one_width else f"fewer than {least:,} words"
    return f"{text}; {which} can move {limit}: {above(share)}."


def about(size: int) -> str:
    """Bytes in the largest binary unit, in three digits: `162 MiB`."""
    unit, factor = next(((u, f) for u, f in UNITS if size >= f), ("B", 1))
    return f"{size / factor:#.3g}".rstrip(".") + f" {unit}" if size % factor else f"{size // factor:,} {unit}"


def above(share: float) -> str:
    """A ratio above 1 in words: `6 % above`, or `this is 2.5 times that`."""
    if share >= 2:
        return f"this is {excess(share)} times that"
    percent = 100 * (share - 1)
    return f"{percent:.0f} % above" if percent >= 1 else f"{percent:.1g} % above"


def moved_bytes(result: Result) -> int:
    """The bytes that a result moves, which decide who wins."""
    return result.total_bytes or 0


def named(result: Result) -> str:
    """A result by its schedule, tiles and chosen options: `flash2 (196x1)`."""
    about = (tile_sizes(result) + flags(vars(result).get("options") or {})).strip()
    return result.schedule + (f" ({about})" if about else "")


def nothing_fits(counted: Sequence[Result], M_bytes: int | None) -> str:
    """The sentence for the case that no result fits: the least SRAM that any of them needs."""
    if not counted or not M_bytes:
        return "Nothing that was counted fits in this SRAM."
    least = min(counted, key=lambda r: r.smem_peak_bytes or 0)
    share = times(least.smem_peak_bytes or 0, M_bytes)
    return f"Nothing that was counted fits: {named(least)} needs least, {share} times this SRAM."


def comparison(problem: Attention, winner: Result, other: Result, M_bytes: int | None) -> str:
    """The sentence that compares the winner with another result, with the reason."""
    mine, its = (beyond(result, M_bytes) for result in (winner, other))
    return (
        f"{named(winner)}{mine}{',' * bool(mine)} moves {than(winner, other)} {named(other)}{its}"
        f"{why(problem, winner, other)}."
    )


def beyond(result: Result, M_bytes: int | None) -> str:
    """The clause that says that a result does not fit; an empty text if it fits."""
    if result.fits is not False or not M_bytes:
        return ""
    return f", which would need {times(result.smem_peak_bytes or 0, M_bytes)} times this SRAM"


def next_best(problem: Attention, winner: Result, other: Result, subject: str) -> str:
    """The sentence about the next result that fits. `subject` is the winner as the sentence calls it."""
    fits = "the next" if winner.fits is None else "the next that fits"
    reason = why(problem, winner, other, costs=False)
    return f"{subject} moves {than(winner, other)} {named(other)}, {fits}{reason}."


def nearly_as_good(winner: Result, near: Sequence[Result]) -> str:
    """The sentence about results that move as much as the winner, or hardly more."""
    most = max(near, key=moved_bytes)
    verb = "moves" if len(near) == 1 else "move"
    one_width = all((r.total or 0) * moved_bytes(winner) == (winner.total or 0) * moved_bytes(r) for r in near)
    much = "much" if one_width else "many bytes"
    if moved_bytes(most) == moved_bytes(winner):
        return f"{joined(map(named, near))} {verb} as {much}."
    return f"{joined(map(named, near))} {verb} at most {times(moved_bytes(most), moved_bytes(winner))} times as {much}."


def than(winner: Result, other: Result) -> str:
    """The text `3.02x fewer words than`. It compares bytes if types of several widths move."""
    mine, its, unit = winner.total or 0, other.total or 0, "words"
    if mine * moved_bytes(other) != its * moved_bytes(winner):
        mine, its, unit = moved_bytes(winner), moved_bytes(other), "bytes"
    if mine == its:
        return f"as many {unit} as"
    return f"{times(its, mine)}x fewer {unit} than" if its > mine else f"{times(mine, its)}x more {unit} than"


def times(large: float, small: float) -> str:
    """large / small in three digits, or in more if three would show 1."""
    return excess(large / small) if small and large > small else "1" if small else "infinitely"


def distance_to_floor(share: float | None, M_bytes: int | None, subject: str = "It") -> str:
    """The sentence about a ratio to the floor; an empty text if there is none."""
    if share is None:
        return ""
    if share == 1:
        return "No exact algorithm can move less." if M_bytes is None else "No algorithm of its class can move less."
    if M_bytes is None:
        return f"That is {excess(share)} times the compulsory words."
    return f"{subject} is within a factor of {at_most(share)} of the least that any algorithm of its class can move."


# ---------------------------------------------------------------- the reason


class Moved(NamedTuple):
    """The traffic of one tensor in a result: words read and written, and both as passes over the tensor."""

    reads: int
    writes: int
    passes: tuple[int, int] | None
    """None unless they are whole numbers."""
    on_average: bool = False
    """Whether the passes are means: under a mask some words may move more often than others."""
    within: str = ""
    """The tensor in whose rows it comes, so that none of its own words moves."""

    @property
    def total(self) -> int:
        return self.reads + self.writes


def why(problem: Attention, winner: Result, other: Result, costs: bool = True) -> str:
    """The reason for a difference, after a colon: the tensors of which the winner moves less, and with `costs` those of
    which it moves more. An empty text if no tensor differs."""
    names = dict.fromkeys([*other.tensors, *winner.tensors])
    pairs = {name: (moved(problem, winner, name), moved(problem, other, name)) for name in names}
    sign = 1 if (other.total or 0) >= (winner.total or 0) else -1
    saved = {name: sign * (its.total - mine.total) for name, (mine, its) in pairs.items()}
    gains = sum(words for words in saved.values() if words > 0)
    losses = -sum(words for words in saved.values() if words < 0)
    if not gains:
        return ""
    text = f": {clauses(pairs, main_of(saved))}"
    if costs and losses >= COST * gains:
        text += "; but " + clauses(pairs, main_of({name: -words for name, words in saved.items()}))
    return text


def main_of(saved: dict[str, int]) -> list[str]:
    """The tensors with the largest positive differences: as many as explain most of the sum. Tensors of equal
    difference stay together."""
    order = sorted((name for name in saved if saved[name] > 0), key=lambda name: -saved[name])
    total, found, reached = sum(saved[name] for name in order), list[str](), 0
    for name in order:
        if reached >= MAIN * total and saved[name] != saved[found[-1]]:
            break
        found.append(name)
        reached += saved[name]
    return found


def moved(problem: Attention, result: Result, name: str) -> Moved:
    """The traffic of one tensor in a result."""
    words = result.tensors.get(name, {"reads": 0, "writes": 0})
    reads, writes = words["reads"], words["writes"]
    tensor = {**TENSORS, **SCHEDULES[result.schedule].tensors}.get(name)
    p = narrowed(problem, **(vars(result).get("options") or {})).packed
    size = int(p.instances)
    for length in p.shape(tensor) if tensor else ():
        size *= int(length)
    if tensor and tensor.kind == "cache" and name not in p.cache_tensors:
        return Moved(reads, writes, None, within="K")
    if tensor is None or reads % size or writes % size:
        return Moved(reads, writes, None)
    hides = mask_matters(SCHEDULES[result.schedule], problem)
    one_write = tensor.kind == "output" and (reads, writes) == (0, size)  # each word of an output is written
    return Moved(reads, writes, (reads // size, writes // size), hides and not one_write)


def clauses(pairs: dict[str, tuple[Moved, Moved]], names: Sequence[str]) -> str:
    """One clause for each difference, with all tensors that it holds for."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        groups.setdefault(difference(*pairs[name]), []).append(name)
    return joined(f"{joined(found)} {one if len(found) == 1 else many}" for (one, many), found in groups.items())


def difference(mine: Moved, its: Moved) -> tuple[str, str]:
    """The predicate that compares two results' traffic of a tensor: (for one tensor, for several)."""
    if mine.within:
        return f"comes in the rows of {mine.within}", f"come in the rows of {mine.within}"
    if not mine.total:
        return "never goes through HBM", "never go through HBM"
    if not its.total:
        return "goes through HBM", "go through HBM"
    if mine.passes is None or its.passes is None:
        more = mine.total > its.total
        share = times(max(mine.total, its.total), min(mine.total, its.total))
        text = f"{share}x as much" if more else f"{share}x less"
        return f"moves {text}", f"move {text}"
    (did, mine_often), (does, its_often) = done(mine), done(its)
    if mine.passes == (0, 1) and its.passes == (1, 1):
        text = f"{did} {mine_often}, not read as well"
    elif mine.passes == (1, 1) and its.passes == (0, 1):
        text = "read and written once, not only written"
    else:
        text = f"{did} {mine_often}, not " + ("" if did == does else f"{does} ") + its_often
    return f"is {text}", f"are {text}"


def done(traffic: Moved) -> tuple[str, str]:
    """(verb, how often) for the words of a tensor, as ("read", "42 times"), or ("read", "32 times on average")."""
    reads, writes = traffic.passes or (0, 0)
    after = " on average" * traffic.on_average
    if reads and writes:
        if reads == writes:
            return "read and written", often(reads) + after
        return "written", f"{often(writes)} and read {often(reads)}{after}"
    return ("read", often(reads) + after) if reads else ("written", often(writes) + after)


def often(number: int) -> str:
    """A number of times, in words."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def joined(parts: Iterable[str]) -> str:
    """Texts as a list in a sentence: `a, b and c`."""
    *first, last = list(parts)
    if any("," in part or " and " in part for part in (*first, last)):
        return ", and ".join([*first, last])
    return f"{', '.join(first)} and {last}" if first else last
