"""The reader of a sweep: its axes (sizes, types, masks and options), from strings, numbers, lists, or a TOML file.

Error messages about a file name it, the key, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.options import NUMBERS, OF_STATE, find_option, option_names
from ..core.problem import DENSE, USUAL, Attention
from ..core.tiling import Rule, Tiling, read_tiles
from ..errors import InputError, suggestion
from ..masks import parse_mask
from ..options import FLAG, SIZE, Option, flag_of
from ..reading import Unreadable, read_toml
from ..schedules import Schedule, find, find_all
from ..units import dtype_bytes, parse_axis, parse_bytes, parse_count, type_name
from .columns import COLUMNS, TIMED, every_column, more_columns
from .conditions import check_registers, conditions
from .count import default_schedules
from .given import Fields, Given
from .run import check_sizes, needs_memory, rules_of

if TYPE_CHECKING:
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked


AXES = (*NUMBERS, "dtype", "acc_dtype", "mask", "M", "hardware")

MOST_GRID_POINTS = 10**12  # a grid is never listed, so only its axes take memory

AxisValue = object
"""An axis as it is given: a number, a string, a list of these, or None. `build` checks it."""
Runs = list[tuple[Schedule, Rule]]
"""Schedules, each with a rule for its tiles."""


@dataclass(frozen=True)
class Sweep:
    """A grid of problems, with the schedules and tiles that are counted at each point.

    `sizes` has a list of values for each size in NUMBERS and for M in bytes, or None for the default. `options` are
    those of `Attention` at each point of their axes. `columns` are the columns to show, in order. If it is empty, the
    results and all columns on which they depend are shown.
    `hardware` names the presets whose M are in `sizes`. `own` are axes of options that `count` lacks, for a sweep of
    another command. `notes` are those on what `hardware` implies, and `implied` says whether
    it is the multiple of tiles.
    """

    sizes: dict[str, list[int] | None]
    types: list[tuple[str, str | None]]
    masks: list[Mask]
    multiples: list[int]
    options: list[Fields]
    schedules: tuple[str, ...] = ()
    tiles: tuple[Rule, ...] = ()
    columns: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    own: dict[str, Sequence[object]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    implied: bool = False
    paper_model: bool = False

    @property
    def timed(self) -> bool:
        """Whether every point has a GPU, whose least time decides which tiles are best."""
        return bool(self.hardware) and not self.paper_model

    @property
    def points_of_options(self) -> int:
        """The number of grid points that have the same options and the same tile multiple."""
        return prod(len(x) for x in self.sizes.values() if x is not None) * len(self.types) * len(self.masks)

    @property
    def points(self) -> int:
        """The number of grid points."""
        return self.points_of_options * len(self.options) * len(self.multiples) * prod(map(len, self.own.values()))

    @property
    def rows(self) -> int:
        """The number of rows: one for each grid point, schedule and tile rule."""
        return sum(self.points // len(self.masks) * len(self.runs(mask)) for mask in self.masks)

    def sample(self, mask: Mask) -> Attention:
        """The problem of a grid point with this mask, of size 1, whose keys no more schedules read than others."""
        visit_all = any(options.get("visit_all") for options in self.options)
        names, of_state = ("kv_dtype", "kv_scales"), (OF_STATE, "normalise", "features", "gqa")
        keys = (
            {name: own[name] for name in (*names, *(of_state if own.get(OF_STATE) else ())) if name in own}
            for own in self.options
        )
        kinds = [
            Attention(1, 1, mask=mask, visit_all=visit_all, dtype=dtype, **own)
            for (dtype, _), own in product(self.types, keys)
        ]
        return max(kinds, key=lambda p: (p.kv_scales != "none", p.cache_dtype != p.dtype, len(p.own)))

    def runs(self, mask: Mask) -> Runs:
        """The schedules and tile rules of a grid point with this mask."""
        problem = self.sample(mask)
        chosen = find_all(self.schedules) or default_schedules(problem)
        pairs = [(s, rule) for s in chosen for tiles in self.tiles or (None,) for rule in rules_of(s, tiles, problem)]
        return list(dict.fromkeys(pairs))

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of all rows: those asked for, or all that a row depends on."""
        if self.columns:
            return self.columns
        more_tiles = [schedule.more_tiles for mask in self.masks for schedule, _ in self.runs(mask)]
        needed = {name for options in self.options for name in more_columns(Attention(1, 1, **options), more_tiles)}
        needed |= {"tile_multiple"} if len(self.multiples) > 1 else set()
        needed |= ({"dv"} if self.sizes["dv"] is not None else set()) | (
            {"hardware"} if len(self.hardware) > 1 else set()
        )
        return (*COLUMNS, *(TIMED if self.timed else ()), *(name for name in every_column() if name in needed))


class Asking(NamedTuple):
    """The additions of a sweep of another command than `count`: axes of options that `count` lacks, and every M at
    every preset. That command decides whether M is needed."""

    own: dict[str, Sequence[object]]
    M_of_each: bool


def build(
    values: dict[str, AxisValue],
    schedules: AxisValue = (),
    tiles: AxisValue = None,
    tile_multiple: AxisValue = None,
    columns: tuple[str, ...] = (),
    asking: Asking | None = None,
    paper_model: object = False,
    **options: AxisValue,
) -> Sweep:
    """The sweep over axes (AXES) and options of `Attention`. Those options and `tile_multiple` are axes too.

    `asking` holds the additions for a sweep of another command than `count`. With `hardware` every point has the
    conditions of a GPU, unless there is `paper_model`.

    Raises InputError, which names the option, for any fault.
    """
    found = {name: option_axis(option, options.pop(name)) for name in list(options) if (option := axis_named(name))}
    axes = {name: values_of for name, values_of in found.items() if values_of}  # an empty one is not given
    given_multiples, chips = count_axis("tile_multiple", tile_multiple), split(values.get("hardware"))
    for registers in axes.get("register_bytes", ()):
        check_registers(registers, chips)
    points = [{**options, **dict(zip(axes, point, strict=True))} for point in product(*axes.values())]
    sizes: dict[str, list[int] | None] = {name: read_counts(values, name) for name in NUMBERS}
    for name in ("N", "d"):
        if sizes[name] is None:
            raise InputError(f"--{name}", "nothing", "an axis as in 1024,4096 or 1024:8192:x2")
    dtypes = types(values, "dtype") or [str(USUAL["dtype"])]
    accumulators: Sequence[str | None] = types(values, "acc_dtype") or [None]
    narrowest = min(dtypes, key=dtype_bytes)
    under = conditions(chips, {**values, "dtype": narrowest}, given_multiples[0], paper_model is True, tiles)
    masks = read_masks(values.get("mask"))
    multiples = [parse_count(multiple or under.multiple, "--tile-multiple") for multiple in given_multiples]
    each = [under.of(dtype, {"acc_dtype": acc}) for dtype, acc in product(dtypes, accumulators)]
    if chips and values.get("M") is not None and not (asking and asking.M_of_each):
        raise InputError("--M", values["M"], "one of --M, --hardware")
    given_M = read_memory(values.get("M"), dtypes)
    sizes["M"] = read_presets(chips, given_M) if chips else given_M
    sweep = Sweep(
        sizes,
        [(own["dtype"], own["acc_dtype"]) for own in each],
        masks,
        multiples,
        points,
        tuple(schedule_names(schedules)),
        tuple(read_rules(tiles)),
        columns,
        tuple(chip for chip in chips for _ in given_M or [0]),
        asking.own if asking else {},
        under.notes,
        given_multiples == [None],
        paper_model is True,
    )
    check_sweep(sweep, needs_M=asking is None)
    return sweep


def types(values: dict[str, AxisValue], name: str) -> list[str]:
    """The element types of an axis, each once."""
    return list(dict.fromkeys(type_name(text, flag_of(name)) for text in split(values.get(name))))


def split(value: AxisValue, between: str = ",") -> list[str]:
    """The parts of `a,b`, or of a list of such strings, without repetitions."""
    if value is None:
        return []
    values = [value] if isinstance(value, str | int | float) else list(cast("Sequence[object]", value))
    return list(dict.fromkeys(part.strip() for v in values for part in str(v).split(between)))


def schedule_names(value: AxisValue) -> list[str]:
    """The names of schedules, which may be Schedules."""
    values = [value] if value is None or isinstance(value, str | Schedule) else list(cast("Sequence[object]", value))
    return split([find(v).name if isinstance(v, Schedule) else v for v in values if v is not None])


def read_rules(value: AxisValue) -> list[Rule]:
    """The rules of tiles. `(128, 64)` and a Tiling are one; a text as `best,128x64` and a list may be several."""
    one = isinstance(value, Tiling) or (isinstance(value, tuple) and all(isinstance(size, int) for size in value))
    values = [value] if one or value is None or isinstance(value, str) else list(cast("Sequence[object]", value))
    asked = [part for v in values for part in (split(v) if isinstance(v, str) else [cast("TilesAsked | None", v)])]
    return list(dict.fromkeys(rule for part in asked if (rule := read_tiles(part)) is not None))


def read_axis(value: AxisValue, where: str, parse: Callable[[str | int], int]) -> list[int] | None:
    """The values of an axis of numbers, each read by `parse`; None if it is not given."""
    if value is None:
        return None
    values = cast("list[str | int]", list(value) if isinstance(value, list | tuple | range) else [value])
    if not values or not all(isinstance(v, int | str) and not isinstance(v, bool) for v in values):
        raise InputError(where, value, "whole numbers, or texts as in 1024:8192:x2")
    return list(dict.fromkeys(x for v in values for x in parse_axis(v, where, parse)))


def read_counts(values: dict[str, AxisValue], name: str) -> list[int] | None:
    """An axis of whole numbers; None if it is not given."""
    where = flag_of(name)
    return read_axis(values.get(name), where, lambda text: parse_count(text, where))


def count_axis(name: str, value: AxisValue) -> Sequence[int | None]:
    """An axis of an option that is a whole number."""
    return read_counts({name: value}, name) or [None]


def axis_named(name: str) -> Option | None:
    """The option of this name if it may have several values; None if it may not."""
    option = find_option(name)
    return option if option and option.axis else None


def option_axis(option: Option, value: AxisValue) -> Sequence[object]:
    """The values of an option of `Attention`; its default if none is given."""
    if option.kind.ranges:
        found = read_axis(value, option.flag, lambda text: option.kind.number(text, option.flag))
        return [option.default] if found is None else found
    return split(value)


def own_axis(option: Option, value: AxisValue) -> Sequence[object]:
    """The values of an option that a question of --what has and `count` lacks. Sizes in words are not allowed, because
    a word differs from point to point."""
    if option.kind is FLAG and value is not True:
        raise InputError(option.flag, value, "true or false")
    if option.kind is SIZE and any("el" in part.lower() for part in split(value)):
        raise InputError(option.flag, value, "bytes as 64 or 1KB in a sweep")
    if option.kind is FLAG:
        return [True]
    if option.kind.ranges:
        return option_axis(option, value)
    return [option.read(part) for part in split(value, option.kind.between)]


def read_masks(value: AxisValue) -> list[Mask]:
    """The masks of a string, in which semicolons separate them, or of a list, or one mask."""
    several = value.split(";") if isinstance(value, str) else value or ["dense"]
    masks = several if isinstance(several, list | tuple) else [several]
    return [parse_mask(mask) for mask in cast("list[str | Mask]", masks)]


def read_memory(value: AxisValue, dtypes: Sequence[str]) -> list[int] | None:
    """The axis of M in bytes; None if it is not given. Sizes in words, as 51200el, need a single type."""
    word = Attention(1, 1, dtype=dtypes[0]).word_bytes
    sizes = read_axis(value, "--M", lambda text: parse_bytes(text, word))
    if any("el" in part.lower() for part in split(value)) and len(dtypes) > 1:
        raise InputError("--M", value, "bytes where there are several --dtype, since words differ in size")
    return sizes


def read_presets(names: Sequence[str], given: Sequence[int] | None) -> list[int]:
    """The M of each preset; if M is given, all given values for each preset."""
    from ..hardware import load

    return [M for chip in map(load, names) for M in given or [chip.sram_bytes]]


def check_sweep(sweep: Sweep, needs_M: bool = True) -> None:
    """Raise InputError for a fault of a sweep, before anything is counted or written."""
    check_rules(sweep, needs_M)
    check_points(sweep.points_of_options)
    for options in sweep.options:
        for dtype, acc in sweep.types:
            Attention(1, 1, dtype=dtype, acc_dtype=acc, **options)
        for heads in sweep.sizes["heads"] or [1]:
            for kv in sweep.sizes["kv_heads"] or [heads]:
                Attention(1, 1, heads=heads, kv_heads=kv)
    for options in sweep.options:  # `gqa` = pack does not allow every mask
        for mask, n in product(sweep.masks, sweep.sizes["N"] or []):
            if mask is not DENSE:
                Attention(n, 1, mask=mask, **options)
    check_points(sweep.points)


def check_rules(sweep: Sweep, needs_M: bool) -> None:
    """Raise InputError for tiles that a schedule does not take, and for tile rules that need M if it was not given."""
    for mask in sweep.masks:
        for schedule, rule in sweep.runs(mask):
            if isinstance(rule, Tiling):
                check_sizes(schedule, rule)
            elif needs_M and sweep.sizes["M"] is None and needs_memory(schedule, rule, sweep.sample(mask)):
                raise InputError("--M", "nothing", "an axis as in 16KB:256KB:x2", "or give --tiles as 128x64")


def check_points(points: int) -> None:
    """Raise InputError for more grid points than a sweep may have."""
    if points > MOST_GRID_POINTS:
        raise InputError("sweep", f"{points} grid points", f"at most {MOST_GRID_POINTS}")


OTHER_KEYS = ("M", "hardware", "paper_model", "tiles", "tile_multiple", "schedule", "columns")

TomlTable = dict[str, object]
"""The values of a TOML table, by key."""
Asked = Callable[[TomlTable], "Asking | None"]
"""A function that takes the options of another command out of a table."""


def keys_of(file: str) -> TomlTable:
    """The keys of a TOML file; InputError if it cannot be read."""
    try:
        return read_toml(file)
    except Unreadable as error:
        raise InputError("config", file, "a TOML file that can be read", str(error)) from None


def option_keys() -> dict[str, Option]:
    """The options of a problem, by their keys in a file."""
    return {option.key: option for name in option_names() if (option := find_option(name))}


def read_sweep(file: str, own_keys: Sequence[str]) -> TomlTable:
    """The values of the `[sweep]` table of a file, or of its top level if it has none. Options of a problem have their
    names in Python. `own_keys` are the keys of options that `count` lacks."""
    whole = keys_of(file)
    table = whole.get("sweep", whole)
    if not isinstance(table, dict):
        raise InputError(f"{file}: sweep", table, "a table")
    options = option_keys()
    known = (*options, *OTHER_KEYS, *own_keys)
    for key, value in table.items():
        if key not in known:
            raise InputError(f"{file}: key", key, ", ".join(known), suggestion(key, known))
        if (key == "paper_model" or (key in options and options[key].kind is FLAG)) and not isinstance(value, bool):
            raise InputError(f"{file}: {key}", value, "true or false")
        if not isinstance(value, str | int | bool | list) or (
            isinstance(value, list) and not all(isinstance(v, str | int) for v in value)
        ):
            raise InputError(f"{file}: {key}", value, "a whole number, a text, or a list of these")
    return {options[key].name if key in options else key: value for key, value in table.items()}


def sweep_of(
    file: str | None,
    given: Given,
    M: str | None,
    schedules: tuple[str, ...],
    tile_multiple: str | None,
    known: Sequence[str],
    own_keys: Sequence[str] = (),
    asking: Asked = lambda values: None,
) -> Sweep:
    """The sweep that a file and options describe together. An option wins over the file. `known` are the columns that
    may be asked for; all may if it is empty. `asking` takes the options that `count` lacks, whose keys are `own_keys`,
    out of the values."""
    from .sweep_axes import AXES, build

    values = {} if file is None else read_sweep(file, own_keys)
    in_file = {name: values.pop(name, usual) for name, usual in (("schedule", ()), ("tile_multiple", None))}
    chosen = schedules or in_file["schedule"]
    multiple = in_file["tile_multiple"] if tile_multiple is None else tile_multiple
    values |= {name: value for name, value in given.items() if value not in (None, False)}
    if M is not None:
        values["M"] = M
    values["schedules"] = chosen
    other = asking(values)
    chosen = values.pop("schedules", ())
    if (M is not None or given.get("hardware") is not None) and not (other and other.M_of_each):  # an option wins
        values.pop("hardware" if M is not None else "M", None)
    tiles, columns = values.pop("tiles", None), columns_of(values.pop("columns", None), known)
    options = {name: values.pop(name) for name in [*values] if name not in AXES}
    return build(values, chosen, tiles, multiple, columns, other, **options)


def columns_of(names: object, known: Sequence[str]) -> tuple[str, ...]:
    """The columns that `N,total` names, or a list of such strings. InputError for one that is not known."""
    from .sweep_axes import split

    columns = tuple(split(names))
    for name in columns if known else ():
        if name not in known:
            raise InputError("--columns", name, ", ".join(known), suggestion(name, known))
    return columns
