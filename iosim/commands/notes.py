"""Notes below an answer on options of a command line that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ..core.options import VARIANTS, flag
from ..errors import InputError
from ..options import FLAG, OWN, declared

if TYPE_CHECKING:
    from ..schedules import Schedule

NOTES = "iosim.notes"
SEARCHED = " attention"  # the schedules that a command searches if none is named
FAMILIES = {"backward": ("", "backward"), "step": ("", "attention", "backward")}
MOST_READERS = 4
FLAGS = [row.name for row in VARIANTS if row.kind is FLAG]


def note(ctx: click.Context, text: str) -> None:
    """Keep a note about an option that changes nothing. It is written to stderr below the answer."""
    ctx.meta.setdefault(NOTES, []).append(text)


def given_variants(params: Mapping[str, object]) -> list[str]:
    """The options that only some schedules read and that are given, by their names in Python."""
    given = [name for name, value in params.items() if value not in (None, False, "0", 0)]
    return [name for name in given if name in FLAGS or declared(name)]


def check_unread(ctx: click.Context, usual: str) -> None:
    """Look for options of a command line that none of its schedules reads. A command's own option may have the name of
    a schedule's, as --chunk of `batch`."""
    own = {option.name for option in ctx.command.params if getattr(option, "heading", OWN) == OWN}
    given = [name for name in given_variants(ctx.params) if name not in own]
    if ctx.params.get("decode"):  # it refuses what it does not read
        return
    passes = ctx.params.get("passes") or ("backward" if ctx.params.get("backward") else "forward")
    usual = usual if passes == "forward" else " ".join(FAMILIES.get(passes, ()))
    multiple, named = ctx.params.get("tile_multiple") not in (None, "1"), ctx.params.get("schedules") or ()
    if given or multiple:
        tiles = [text for name in ("tiles", "backward_tiles") if (text := ctx.params.get(name)) is not None]
        core = {"core": "state", SEARCHED: " state"}.get(usual, usual) if ctx.params.get("rule") else usual
        check_read(given, named, core, tiles if multiple else None)


def check_read(
    given: Iterable[str], named: Sequence[str], usual: str = "core", multiple_of: Sequence[str] | None = None
) -> None:
    """Write a note for each option that no schedule reads. Raise InputError for a --tile-multiple without a search.

    `given` are fields of the problem. `usual` are the schedules if none is named: names with commas, `core` for
    those of iosim count, `state` for those that it shows with --rule, or families, each after a space. `multiple_of`
    are the tiles to which --tile-multiple was given; None without it.
    """
    from ..schedules import SCHEDULES, find_all
    from ..schedules import usual as usual_of

    whole = usual_of(usual == "state") if usual in ("core", "state") else usual.split(",") if usual else ()
    families = usual.split() if usual[:1] == " " else ()
    every = [s for s in SCHEDULES.values() if s.family in families] if families and given and not named else None
    schedules = find_all(named or (() if families else whole)) if every is None else every
    if multiple_of is not None:
        refuse_multiple(schedules, ",".join(multiple_of))
    for name, readers in unread(given, schedules):
        who = f"with --schedule {','.join(s.name for s in schedules)}" if named else "with these schedules"
        option, others = flag(name), ", ".join(readers[:MOST_READERS]) or "no schedule"
        note(click.get_current_context(), f"{option} changes nothing {who}; it is for {others}")


def unread(given: Iterable[str], schedules: Sequence[Schedule]) -> Iterator[tuple[str, list[str]]]:
    """(field, names of schedules that would read it, of their families if any is) for each field of the problem that
    none of the schedules reads."""
    from ..schedules import SCHEDULES

    for name in given if schedules else ():
        if not any(s.reads(name) for s in schedules):
            families = {s.family for s in schedules}
            readers = [s for s in SCHEDULES.values() if s.reads(name)]
            near = [s.name for s in readers if s.family in families]
            yield name, near or [s.name for s in readers]


def refuse_multiple(schedules: Sequence[Schedule], tiles: str) -> None:
    """Raise InputError for --tile-multiple where no tiles are searched. `tiles` is empty if none were given."""
    ideal = bool(schedules) and all("best" not in s.rules for s in schedules)
    if ideal or (tiles and "best" not in tiles.split(",")):
        found = f"with --schedule {', '.join(s.name for s in schedules)}" if ideal else f"with --tiles {tiles}"
        raise InputError("--tile-multiple", found, "best tiles, which are searched", "leave out --tile-multiple")
