"""`iosim tune`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..counting.given import Asked, Choice, Fields, counts, names_of, several
from ..errors import InputError
from ..options import ANSWER, Kind, flag_of, one_of
from .answer import Output, answer_all
from .command import D, Need, named_command
from .notes import SEARCHED
from .options import (
    PLACES,
    SIDES,
    SIZES_OR_RANGE,
    chip_options,
    flag_option,
    gathered,
    memory_with,
    model_option,
    multiple_option,
    outputs,
    own_option,
    problem_asked,
    problem_options,
    schedule_option,
    size_option,
    text_option,
    variant_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


GOALS, AXES = ("at_most", "x_floor"), ("M", "N")
INSTEAD = {
    "--plot": "iosim plot --picture gap -o FILE.svg draws the curve",
    "--by": "leave it out: with '--hardware' tiles are compared by their least time, else by what they move",
    "--tiles": "iosim tune finds the tiles itself; iosim count --tiles 128x64 counts given ones",
}
LEAST_BLOCKS = (
    "Only tilings with at least this many thread blocks, for example one for each SM. Launches that move less than a "
    "tenth of the words are ignored."
)
OVER = "M (default): --curve goes over every M. N: over every N of the axis --N at one M, for the schedules named."
EVERY = "Show every row: also of schedules that another one dominates, and with --curve every M."
AT_MOST = "Find the least M at which at most so many bytes move over all heads, as 64MiB, and what is proven below it."
DECODE = "With --rule: the best ring of rows beside the state, for decoding token by token. Needs neither --N nor --M."
X_FLOOR = "Find the M at which the least traffic is within this factor of the floor, as 1.2."


class Way(NamedTuple):
    """How the traffic is searched: at one M, at every M of a `curve`, or backwards, for the M of a goal."""

    least_blocks: str | None
    curve: bool
    over: str | None
    at_most: str | None
    x_floor: str | None
    every: bool
    decode: bool

    @property
    def goals(self) -> Fields:
        """The goals that are given."""
        return {name: goal for name in GOALS if (goal := getattr(self, name)) is not None}


@named_command(
    "tune",
    needs=(Need("N", ("over", "decode")), D, Need("M", ("hardware", "curve", "over", "decode", *GOALS))),
    instead=INSTEAD,
    axes=("N", *PLACES),
    usual=SEARCHED,
    first="causal hardware curve over at_most x_floor",
)
@problem_options
@model_option
@memory_with(size_option(" With --curve also a range, as 16KB:1MB.", SIZES_OR_RANGE))
@schedule_option("Only these schedules: a,b or repeated; see iosim schedules. With --curve also flash1:paper.", SIDES)
@multiple_option
@variant_options
@chip_options
@own_option("least_blocks", LEAST_BLOCKS)
@own_option("curve", "Show the M at which the least traffic falls, of all or of a range, instead of one M.")
@text_option("--over", OVER, metavar="M|N", kind=Kind(one_of(*AXES)))
@own_option("at_most", AT_MOST)
@own_option("x_floor", X_FLOOR)
@flag_option("--decode", DECODE)
@flag_option("--all", EVERY, ANSWER, "every")
@outputs
@gathered(way=Way)
@problem_asked
def command(asked: Asked, way: Way, output: Output) -> None:
    """The best schedule and tiles: of least traffic that fit in M, or on a GPU those that allow the least time.

    Published tiles stand beside them. On a GPU a line says which tiles move least, and why they are not the best.

    With --curve it is that for every M, and of the schedules named it says at which M each moves less than the others;
    with --over N, at which N of an axis --N. With --at-most or --x-floor the answer is an M. --hardware is then a GPU
    whose SRAM is compared with that M.

    With --rule and --decode, as in iosim tune --rule gdn --decode --d 128, the answer is a ring: how many rows (k, u)
    of tokens to keep beside a state before it is written. With --drafts it is how a rejected draft leaves the state.

    Example: iosim tune --N 8192 --d 128 --M 100KB
    """
    from ..tuning import least as tune
    from ..units import parse_count

    if way.over not in (None, *AXES):
        raise InputError("--over", way.over, " or ".join(AXES))
    if way.decode:
        show_ring(asked, way, output)
        return
    if way.over == "N":
        show_over_N(asked, way, output)
        return
    if several(str(asked.given["N"])):
        hint = "iosim sweep --what tune takes several, and --over N an axis"
        raise InputError("--N", asked.given["N"], "one value", hint)
    fields, choice = asked.fields, asked.choice
    blocks = 1 if way.least_blocks is None else parse_count(way.least_blocks, "--least-blocks")
    fields |= {"schedules": choice.schedules, "tile_multiple": choice.tile_multiple, "least_blocks": blocks}
    if way.goals:
        show_least_M(way, choice, fields, output)
        return
    if way.curve or way.over:
        check_curve({"--hardware": choice.hardware})
        answer_all([({}, replace(tune.curve(M=choice.M, **fields), every=way.every))], output)
        return
    check_step(choice.M)
    fields |= {"paper_model": choice.paper_model}
    found = ((place.label, tune.tune(**place.fields, **fields)) for place in asked.places)
    answer_all([(label, replace(best, every=way.every)) for label, best in found], output)


def show_least_M(way: Way, choice: Choice, fields: Fields, output: Output) -> None:
    """Write the least M for a goal, beside the SRAM of each GPU that is named."""
    from ..tuning.inverse import check_goal, least_M

    check_goal(list(way.goals), {"--M": choice.M, "--curve": way.curve or None})
    names = names_of(choice.hardware)
    chips: list[Fields] = [{"hardware": name} for name in names] or [{}]
    fields |= {"paper_model": choice.paper_model}
    found = [replace(least_M(**chip, **way.goals, **fields), every=way.every) for chip in chips]
    answer_all([(chip if len(names) > 1 else {}, one) for chip, one in zip(chips, found, strict=True)], output)


def show_ring(asked: Asked, way: Way, output: Output) -> None:
    """Write the best ring of a rule."""
    from ..tuning.ring import ring

    given = {flag_of(name): value for name, value in way._asdict().items() if name not in ("decode", "every") and value}
    given |= {flag_of(name): value for name, value in asked.choice._asdict().items() if value not in (None, (), False)}
    for option, value in given.items():
        raise InputError(option, value, "nothing with --decode", "a ring is the same for every M: leave it out")
    fields = counts(asked.given, required=("d",))
    answer_all([({}, ring(**{name: value for name, value in fields.items() if name not in ("N", "Nk")}))], output)


def show_over_N(asked: Asked, way: Way, output: Output) -> None:
    """Write at which N of an axis each schedule moves less than the others, in each SRAM."""
    from ..tuning.over_N import over_N

    goals = {"--least-blocks": way.least_blocks}
    for option, value in {**goals, **{flag_of(name): goal for name, goal in way.goals.items()}}.items():
        if value is not None:
            raise InputError(option, value, "nothing with --over N", "leave out one of the two")
    check_step(asked.choice.M, "16KB alone with --over N")
    fields = counts({name: text for name, text in asked.given.items() if name != "N"}, required=())
    fields |= asked.choice._replace(M=None, hardware=None)._asdict() | {"N": asked.given["N"]}
    del fields["tiles"]
    answer_all([(place.label, over_N(**{**fields, **place.fields})) for place in asked.places], output)


def check_step(sizes: str | None, instead: str = "--curve for every M of the range") -> None:
    """Raise InputError for a range of M without a step, which only --curve takes."""
    if sizes is not None and sizes.count(":") == 1:
        raise InputError("--M", sizes, "a step, as in 16KB:256KB:x2", f"or {instead}")


def check_curve(sizes: Mapping[str, str | None]) -> None:
    """Raise InputError for options that do not go with --curve."""
    for option, size in sizes.items():
        if size is not None:
            hint = "leave out one of the two, or ask --over N"
            raise InputError(option, size, "nothing with --curve, which goes over every M", hint)
