"""The player of `iosim report`: a small case of the same shape, event by event, for the winner and two others.

The events are those of a machine that visits every tile, with the lines of the schedule's text that they come from.
player.js shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ..core.event_count import EventCount, count_events
from ..core.folded import Folded
from ..core.machine import Machine
from ..core.problem import DENSE, Attention, narrowed
from ..core.text_lines import box, lines_now
from ..core.tiling import Tiling
from ..counting.report import Report
from ..counting.run import counted_tiling
from ..counting.sentence import winners
from ..drawing.colours import ink_on, tensor_colours
from ..drawing.player import Frame, Played, section_of, small_mask
from ..errors import IosimError
from ..schedules import Schedule, find, require
from ..schedules.selected import KEY_BLOCK
from ..units import binary

if TYPE_CHECKING:
    pass

LONGEST, WIDEST, TILE = 48, 8, 8  # tokens of the longer sequence, words of a row, tokens of a tile
MOST_TOKENS, MOST_TILES = 128, 16  # a side, of a question that is played as it is
MOST_EVENTS, MOST_RIVALS = 4000, 2
USUAL = ("standard-tiled", "flash2")
STORED = ("Q", "K", "V", "S", "P", "O")


class Repeated(EventCount):
    """Counts each load and store of a run, by the lines of the schedule that it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[tuple[tuple[str, int], ...]] = Counter()

    def add(self, turns: int) -> None:
        self.times[tuple((line.function, line.number) for line in lines_now())] += turns


@dataclass(frozen=True)
class Play:
    """The run of one schedule on its problem. `text` has (function, number, source line) of each line to show."""

    name: str
    problem: Attention
    tiling: Tiling
    frames: list[Frame]
    text: list[tuple[str, int, str]]

    @property
    def peak_words(self) -> int:
        """The most words in SRAM at one time."""
        return max((sum(frame.inside.values()) for frame in self.frames), default=0)

    def moved(self) -> dict[str, tuple[int, int]]:
        """{tensor: (words read, words written)}."""
        found: dict[str, tuple[int, int]] = {}
        for event in (frame.event for frame in self.frames if frame.event["words"]):
            reads, writes = found.get(str(event["name"]), (0, 0))
            words = int(event["words"])  # type: ignore[call-overload]
            loads = event["event"] == "load"
            found[str(event["name"])] = (reads + words * loads, writes + words * (not loads))
        return found


def small_case(p: Attention) -> Attention:
    """The problem for one head of K and V, with fewer tokens and shorter rows: 48 tokens of the longer sequence, and 8
    words of the longer rows. A mask keeps its form, and its lengths shrink in proportion. All other options stay, but
    writes before the start are no event, and blocks of chosen keys shrink if there would be only one."""
    by, narrow = max(1.0, max(p.N, p.Nk) / LONGEST), max(1.0, max(p.d, p.dv) / WIDEST)

    def small(words: int, scale: float) -> int:
        return max(1, round(words / scale))

    sizes = {"N": small(p.N, by), "Nk": small(p.Nk, by), "d": small(p.d, narrow), "dv": small(p.dv, narrow)}
    if 2 * p[KEY_BLOCK] > sizes["Nk"]:
        sizes["key_block"] = small(p[KEY_BLOCK], by)
    group = min(p.heads // p.kv_heads, max(1, LONGEST // sizes["N"])) if p.gqa == "pack" else 1
    dense = narrowed(p, **sizes, batch=1, heads=group, kv_heads=1, key_heads=0, count_init=False, mask=DENSE)
    try:
        return replace(dense, mask=small_mask(p.mask, by))
    except IosimError:  # a mask from a file, or one whose lengths no longer add up
        return dense


def play(schedule: Schedule, p: Attention, tiling: Tiling) -> Play:
    """The run of a schedule. Raises IosimError for a problem that it does not accept."""
    require(schedule, p)
    played = Played()
    Machine(p.packed, played).run(schedule, tiling)
    text = [(line.function, line.number, source) for line, source in box(played.lines)]
    return Play(schedule.name, p.packed, tiling, played.frames, text)


def plays(found: Report) -> tuple[Attention, list[Play]]:
    """The problem that is played, and the runs of the winner and of two of its rivals, in the order of the report.

    The problem is that of the report if it is small enough to be watched, else a small case of it. The rivals are the
    usual ones if they were counted, else the first ones. A run that is too long to be watched is left out.
    """
    own = own_tilings(found) if is_watchable(found) else {}
    p = found.problem if own else small_case(found.problem)
    asked = list(dict.fromkeys(result.schedule for result in found.results))
    names = [name for name in USUAL if name in asked] if set(USUAL) <= set(asked) else asked
    rivals = islice((run for name in names if (run := short_play(find(name), p, own.get(name)))), MOST_RIVALS)
    runs = {run.name: run for run in rivals}
    best = winner(found)
    if best and best not in runs and (run := short_play(find(best), p, own.get(best))):
        runs[best] = run
    return p, [runs[name] for name in asked if name in runs]


def own_tilings(found: Report) -> dict[str, Tiling]:
    """The tiles of each schedule of a report: those of its last result that fits, else of its last one."""
    counted = [result for result in found.results if result.total is not None]
    best = [result for result in counted if result.fits is not False]
    return {result.schedule: counted_tiling(result) for result in (*counted, *best)}


def is_watchable(found: Report) -> bool:
    """Whether a report's problem is played as it is: one head, and few tokens and tiles a side."""
    p = found.problem
    tiled = [t for name, t in own_tilings(found).items() if "ideal" not in find(name).rules]
    few = all(-(-p.N // t.rows_q) <= MOST_TILES and -(-p.Nk // t.rows_k) <= MOST_TILES for t in tiled)
    return bool(tiled) and few and max(p.N, p.Nk) <= MOST_TOKENS and p.instances == 1 and not p.count_init


def winner(found: Report) -> str | None:
    """The schedule that wins in the answer of a report; None if nothing fits."""
    return next((found.results[k].schedule for k in winners(found.results)), None)


def short_play(schedule: Schedule, p: Attention, own: Tiling | None = None) -> Play | None:
    """The run of a schedule with its `own` tiles, else with tiles of TILE rows; None if it is too long or if the
    schedule refuses the problem."""
    p = schedule.about(p)
    small = Tiling(1, 1) if "ideal" in schedule.rules else Tiling(min(TILE, p.packed.N), min(TILE, p.Nk))
    tiling = own or small
    with suppress(IosimError):
        if count_events(schedule, p.packed, tiling).total <= MOST_EVENTS:
            return play(schedule, p, tiling)
    return None


def small_memory(found: Report, runs: Sequence[Play]) -> int:
    """M of what is played in words. It is the question's M if the question is played as it is. Of a small case it is
    the largest need of the runs. If a run of the report does not fit, M is smaller in
    the same ratio, so that the run overflows in the picture too. If nothing fits, every run overflows."""
    peak = max(run.peak_words for run in runs)
    if is_watchable(found) or found.M_words is None:
        return found.M_words or peak
    if winner(found) is None:
        needs = [r.smem_peak_bytes for r in found.results if r.smem_peak_bytes]
        least = min(needs, default=0) / (found.M_bytes or 1)
        return max(1, int(min(run.peak_words for run in runs) / max(1.0, least)))
    names = {run.name for run in runs}
    given = [
        r
        for r in found.results
        if r.schedule in names and r.fits is False and r.tiling == "given" and r.sram_peak_bytes
    ]
    over = max((float(r.sram_peak_bytes or 0) / (found.M_bytes or 1) for r in given), default=1.0)
    return max(1, int(peak / max(1.0, over)))


def data_of(found: Report, runs: Sequence[Play]) -> dict[str, object]:
    """The data of player.js, as values of JSON."""
    names = dict.fromkeys(name for run in runs for name in (*run.moved(), *(n for f in run.frames for n in f.inside)))
    colours = tensor_colours([*names])
    return {
        "M": small_memory(found, runs),
        "colours": {name: [colour, ink_on(colour)] for name, colour in colours.items()},
        "runs": [run_data(run, real_times(found, run)) for run in runs],
    }


def real_times(found: Report, run: Play) -> Mapping[tuple[tuple[str, int], ...], int]:
    """The number of times that each load and store of a run happens with the real sizes, over all heads.

    Empty where nothing fits, and for a schedule that cannot be folded.
    """
    results = [r for r in found.results if r.schedule == run.name and r.total and r.fits is not False]
    schedule, watcher, instances = find(run.name), Repeated(), found.problem.packed.instances
    if results:
        with suppress(IosimError):
            Folded(found.problem.packed, watcher).run(schedule, counted_tiling(results[-1]))
    return {lines: instances * times for lines, times in watcher.times.items()}


def run_data(run: Play, times: Mapping[tuple[tuple[str, int], ...], int]) -> dict[str, object]:
    """A run for JSON. An event is [kind, name, row, rows, column, columns, words, blocks in SRAM, lines, times].

    `times` says how often its line does this in the real run; 0 where nothing moves, or if it is not known.
    """
    numbers = {(function, number): k for k, (function, number, _) in enumerate(run.text)}
    moved = run.moved()
    stored = [name for name in dict.fromkeys([*STORED, *moved]) if name in moved or name in STORED]
    events = [
        [
            *(frame.event[key] for key in ("event", "name", "row", "rows", "column", "columns", "words")),
            frame.inside,
            [numbers[line] for line in frame.lines if line in numbers],
            times.get(tuple(frame.lines), 0) if frame.event["words"] else 0,
        ]
        for frame in run.frames
    ]
    return {
        "name": run.name,
        "tiles": f"{run.tiling.rows_q}x{run.tiling.rows_k}",
        "tensors": {name: shape_of(name, run) for name in stored},
        "events": events,
        "text": [source for _, _, source in run.text],
        "peak": run.peak_words,
    }


def shape_of(name: str, run: Play) -> list[int]:
    """[rows, columns, rows of a tile, columns of a tile] of a tensor in HBM."""
    p = run.problem
    touched = [frame.event for frame in run.frames if frame.event["name"] == name and frame.event["words"]]
    if not touched:
        rows, columns = (p.Nk if name in "KV" else p.N), (p.Nk if name in "SP" else p.d)
        high, wide = run.tiling.rows_k if name in "KV" else run.tiling.rows_q, run.tiling.rows_k
        return [rows, columns, high, wide if name in "SP" else columns]
    ends = [[int(e[a]) + int(e[b]) for e in touched] for a, b in (("row", "rows"), ("column", "columns"))]  # type: ignore[call-overload]
    tile = [max(int(e[key]) for e in touched) for key in ("rows", "columns")]  # type: ignore[call-overload]
    return [max(ends[0]), max(ends[1]), *tile]


def player_html(found: Report) -> str:
    """The section of the player as HTML; empty if no schedule of the report has a run that can be watched."""
    p, runs = plays(found)
    return section_of(about(found, p, runs), data_of(found, runs)) if runs else ""


def about(found: Report, p: Attention, runs: Sequence[Play]) -> str:
    """The sentences on how the small case differs from the question."""
    less = " The mask cannot be made smaller, so the example is dense." * (p.mask is DENSE is not found.problem.mask)
    less += " The writes that --count-init counts come before these runs." * found.problem.count_init
    many = " All schedules move words at the same speed, so the one that moves fewest is done first." * (len(runs) > 1)
    return (
        f"{compared(found, p, small_memory(found, runs))}{less} Each event is one of the schedule's own run.{many}"
        f"{shown_winner(found, runs)} Dashed tiles are never in HBM."
    )


def compared(found: Report, p: Attention, M: int) -> str:
    """The sentences on the sizes of the example, with M in words, and on those of the question."""
    real, M_words = found.problem, found.M_words or 0
    if p is real:
        memory = f"M = {M:,} words" if found.M_words else f"no M: the bar is {M:,} words, the most that a run needs"
        return f"This is the question itself: {sizes(p, '')} and {memory}."
    several = real.batch * real.heads > 1
    less = M_words > M and p.N * p.Nk * p.d < real.N * real.Nk * real.d
    heads = f"{p.heads} query heads that share K and V" if p.heads > 1 else "one head"
    of_example = sizes(p, heads if several else "")
    of_question = sizes(real, f"batch {real.batch} x heads {real.heads}" if several else "")
    return (
        f"The example {'is smaller than' if less else 'differs from'} the question. It has {of_example} and M = {M:,} "
        f"words. The question has {of_question}"
        + (f" and M = {M_words:,} words ({binary(found.M_bytes)})." if found.M_bytes else ", without an M.")
    )


def sizes(p: Attention, heads: str) -> str:
    """The sizes of a problem, its heads and its mask as text."""
    values = [f"dv = {p.dv}"] * (p.dv != p.d)
    parts = [heads] * bool(heads) + [f"N = {p.N}", f"Nk = {p.Nk}", f"d = {p.d}", *values]
    return ", ".join(parts + [f"mask {p.mask}"] * (p.mask is not DENSE)) + p.cache_text


def shown_winner(found: Report, runs: Sequence[Play]) -> str:
    """The sentence on the schedule that wins in the question, or on the fact that nothing fits."""
    best = winner(found)
    if best is None:
        return " Nothing that was counted fits in the question's M, so nothing fits here."
    if len({find(r.schedule).family for r in found.results}) > 1:
        return ""
    unseen = "" if any(run.name == best for run in runs) else "; its run is too long to be shown"
    return f" {best} moves the fewest bytes in the question{unseen}."
