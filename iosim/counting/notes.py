"""Notes on a count: what saves nothing under a mask, tiles that tensor cores cannot use, and the least SRAM.

Each note is a text that names what to try. There is none where nothing is to be said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from ..core.folded import Unsummed
from ..core.machine import Block
from ..core.options import flag
from ..core.problem import DENSE, narrowed, skips_tiles, with_mask
from ..core.shapes import Tile
from ..core.tiling import MMA, Tiling
from ..core.watchers import Watcher
from ..errors import InputError
from ..schedules import CORE, SCHEDULES, Schedule, applies, family_of, reads_cache
from ..search.best import best_tiles
from ..units import format_bytes
from ..verdict import about, joined
from .least_room import name_with, needed
from .result import tiles_said
from .run import run
from .sentence import winners

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..core.machine import Input
    from ..core.problem import Attention
    from ..core.tiling import Rule, RuleName
    from ..core.typing import Size, Step
    from .result import Answered, Result

    class Found(Protocol):
        """A schedule with the rule that chose its tiles, and their sizes."""

        @property
        def schedule(self) -> str: ...

        @property
        def tiling(self) -> str: ...

        @property
        def Br(self) -> int | None: ...

        @property
        def Bc(self) -> int | None: ...


def notes_on_adds(results: Iterable[Result]) -> list[str]:
    """A note for each schedule that adds in HBM: what it moves if an add is one word, and how far that is from the
    floor."""
    notes = {}
    for r in results:
        if r.adds and r.schedule not in notes:
            ratio = r.ratio_to_floor_with_adds
            notes[r.schedule] = (
                f"reads and writes each count all {r.adds:,} adds of {r.schedule}; if an add counts once, because HBM "
                f"adds, it moves {r.total_with_adds:,} words" + (f", {ratio:.4g} times the floor" if ratio else "")
            )
    return list(notes.values())


# ---------------------------------------------------------------- masks and query heads


def notes_on_mask(report: Answered) -> list[str]:
    """Notes on schedules that skip nothing under the report's mask, and on query heads that share nothing."""
    names = [r.schedule for r in report.results]
    return [*mask_notes(report.problem, names), *group_notes(report), *token_notes(report.problem, names)]


def token_notes(problem: Attention, names: Iterable[str]) -> list[str]:
    """A note on one token with a state, if the state before it, or the one after it, is not counted."""
    if family_of(problem) != "state" or problem.N > 1:
        return []
    lacks = [flag(name) for name in ("initial_state", "final_state") if not getattr(problem, name)]
    if not lacks or not any(SCHEDULES[name].reads("final_state") for name in names):
        return []
    return [f"a step of decoding reads the state and writes it, which is counted with {' and '.join(lacks)}"]


def mask_notes(problem: Attention, names: Iterable[str]) -> list[str]:
    """A note if the problem has a mask and some of the schedules skip nothing under it, or if it has none and
    `visit_all` is given; else nothing."""
    if problem.visit_all and problem.mask is DENSE:
        return ["--visit-all changes nothing without a mask"]
    blind = [SCHEDULES[name] for name in dict.fromkeys(names) if blind_to_mask(SCHEDULES[name], problem)]
    if not blind:
        return []
    one = len(blind) == 1
    text = f"{joined(s.name for s in blind)} {'skips' if one else 'skip'} nothing under mask {problem.mask}: "
    text += f"{'its' if one else 'their'} words and FLOPs are those of dense attention"
    asked = [schedule.name for schedule in blind if schedule.skips]
    if asked:
        return [f"{text}; without --visit-all {joined(asked)} {'skips' if len(asked) == 1 else 'skip'} hidden tiles"]
    sisters = filter(None, (sister_that_skips(schedule, problem) for schedule in blind))
    return ["; ".join([text, *dict.fromkeys(f"{s.name} skips hidden tiles" for s in sisters)])]


def group_notes(report: Answered) -> list[str]:
    """Notes if KV heads have latent rows each of their own, and if the query heads of a group read K and V each for
    themselves and would move less together."""
    p = report.problem
    own = f"{p.kv_heads:,} KV heads have latent rows of their own; MLA has one for all heads: --kv-heads 1"
    return [*([own] if p.latent and p.kv_heads > 1 else []), *packing_notes(report)]


def packing_notes(report: Answered) -> list[str]:
    """A note if the winner would move less with --gqa pack: how much less."""
    if report.problem.gqa != "repeat" or report.problem.kv_heads == report.problem.heads:
        return []
    mine = next((report.results[k] for k in winners(report.results)), None)
    packed = None if mine is None else packed_result(report, mine)
    if mine is None or packed is None or packed.fits is False or not packed.total_bytes or not mine.total_bytes:
        return []
    if packed.total_bytes >= mine.total_bytes:
        return []
    less = 100 * (1 - packed.total_bytes / mine.total_bytes)
    return [
        "each query head reads K and V for itself; with --gqa pack the query heads of a KV head share them, and "
        f"{packed.schedule}{tiles_said(packed)} moves {about(packed.total_bytes)}, {less:.3g} % less"
    ]


def packed_result(report: Answered, mine: Result) -> Result | None:
    """A result of a report if the query heads of a KV head shared tiles; None under masks that do not allow it."""
    try:
        p = narrowed(replace(report.problem, gqa="pack"), **(vars(mine).get("options") or {}))
    except InputError:
        return None
    rule: Rule = cast("RuleName", mine.tiling)
    if mine.tiling == "given" and mine.Br and mine.Bc:
        rule = Tiling(mine.Br, mine.Bc, **mine.more_tiles)
    return run(SCHEDULES[mine.schedule], rule, p, report.M_bytes, report.under.multiple, report.under.chip)


def keys_notes(problem: Attention) -> list[str]:
    """A note on the usual schedules that a count leaves out, because they cannot read the keys of a problem."""
    out = [name for name in CORE if not reads_cache(SCHEDULES[name], problem)]
    return [f"{joined(out)} are left out: they read K and V only in the type of Q, without scales"] if out else []


def blind_to_mask(schedule: Schedule, problem: Attention) -> bool:
    """Whether a mask hides scores of a schedule but saves it no word: it skips no tile, it takes masks, and it is not
    made for this mask alone."""
    if problem.mask is DENSE or problem.packed.mask is DENSE or skips_tiles(schedule, problem):
        return False
    takes = schedule.about(problem).mask is not DENSE
    return takes and schedule.about(replace(problem, mask=DENSE)).mask is DENSE


def sister_that_skips(schedule: Schedule, problem: Attention) -> Schedule | None:
    """The first schedule with the same outer loop that skips hidden tiles."""
    same = (s for s in SCHEDULES.values() if (s.family, s.outer) == (schedule.family, schedule.outer))
    return next((s for s in same if skips_tiles(s, problem) and applies(s, problem)), None)


# ---------------------------------------------------------------- tensor cores


TENSOR_DTYPES = ("fp16", "bf16", "fp8", "int8")


class Products(Watcher):
    """The tiles along the sides of matrix products. A product with a single row is one of a vector: it is left out."""

    def __init__(self) -> None:
        self.sides: set[Tile] = set()

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        if getattr(step, "flops", None):
            tiles = {x for b in (*outputs, *inputs) if isinstance(b, Block) for x in b.shape if isinstance(x, Tile)}
            if all(tile.length != 1 for tile in tiles):
                self.sides |= tiles


def suits_tensor_cores(problem: Attention, schedule: str, Br: int, Bc: int) -> bool:
    """Whether each of Br and Bc is a multiple of 16 or covers its axis, where it is a side of a matrix product."""
    p, watcher = with_mask(problem.packed), Products()
    Unsummed(p, watcher).run(SCHEDULES[schedule], Tiling(Br, Bc))
    sizes = {tile.extent for tile in watcher.sides}
    return not any(size % MMA and size < axis and size in sizes for size, axis in ((Br, p.N), (Bc, p.Nk)))


def on_tensor_cores(p: Attention) -> bool:
    """Whether kernels compute the products of a problem on tensor cores: its type is one of theirs, and rows are long
    enough."""
    return p.dtype in TENSOR_DTYPES and min(p.d, p.dv) >= MMA


def tile_notes(
    found: Sequence[tuple[Attention, Found]], M_bytes: int | None = None, names: Iterable[str] = (), instead: str = ""
) -> list[str]:
    """A note if the best tiles of some problems are of no use to tensor cores, though these suit the problem; else
    nothing. With M there is none if no other tiles of the schedules `names` fit. `instead` names other options beside
    --tile-multiple."""
    odd = [
        f"{one.schedule} ({one.Br}x{one.Bc})"
        for problem, one in found
        if one.tiling == "best"
        and one.Br
        and one.Bc
        and on_tensor_cores(problem)
        and not suits_tensor_cores(problem, one.schedule, one.Br, one.Bc)
    ]
    tried = [(SCHEDULES[name], p.packed) for name in dict.fromkeys(names) for p, _ in found] if odd else []
    if not odd or (M_bytes and not any(best_tiles(schedule, p, M_bytes, MMA) for schedule, p in tried)):
        return []
    return [
        f"tensor cores take multiples of {MMA}, unlike the tiles of {joined(odd)}: try --tile-multiple {MMA}{instead}"
    ]


def notes_on_tiles(report: Answered, instead: str = "") -> list[str]:
    """A note on winners whose tiles tensor cores cannot use; `instead` names what finds others beside
    --tile-multiple."""
    found = [(report.problem, report.results[k]) for k in winners(report.results)]
    return tile_notes(found, report.M_bytes, (r.schedule for r in report.results if r.tiling == "best"), instead)


# ---------------------------------------------------------------- the SRAM

FOOTPRINT = "M is not given: the floor of given tiles is that of an SRAM with room for them"


def room_notes(problem: Attention, M_bytes: int | None, results: Sequence[Result], multiple: int = 1) -> list[str]:
    """A note if M is not given, or if no result of a count fits in it."""
    if M_bytes is None:
        return [FOOTPRINT] if any(r.ratio_to_floor and r.tiling == "given" for r in results) else []
    if not results or any(r.fits is not False for r in results):
        return []
    needs = {name_with(r, multiple): needed(r, problem, multiple) for r in results}
    least = min(needs, key=needs.__getitem__)
    text, tried = f"nothing fits in {format_bytes(M_bytes)}", f"{least} needs {format_bytes(needs[least])}"
    if needs[least] <= M_bytes:
        return [f"{text}: try smaller tiles, or --tiles best to find those that fit; {tried}"]
    text += f": {tried}, the least of what was counted" if " with " in " ".join(needs) else ""
    if any(SCHEDULES[r.schedule].family == "attention" for r in results):
        text += "; iosim tune searches all schedules, and some of them need less"
    return [text]
