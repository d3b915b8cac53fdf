"""The count of one schedule with one tiling: its values, its columns, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..answer import Answer, Column, Columns, Pieces, Row, Table, columns_of, numbered
from ..units import binary, format_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .conditions import Conditions


MAPS = ("more_tiles", "tensors", "steps", "options")  # fields of results that hold several numbers


@dataclass(frozen=True, repr=False)
class Result(Answer):
    """The count of one schedule with one tiling.

    Words, bytes and operations are over all heads and batches. A field is None if it needs an M that was not given, or
    if no tiles fit.
    """

    schedule: str
    """The name of the schedule."""
    tiling: str
    """The rule that chose the tiles: `ideal`, `paper`, `best`, or `given`."""
    Br: int | None = None
    """Query rows of a tile; None for `ideal`, which has no tiles."""
    Bc: int | None = None
    """Key rows of a tile; None for `ideal`."""
    fits: bool | None = None
    """Whether the footprint is at most M."""
    sram_peak_words: int | None = None
    """The footprint: the most words in SRAM at one time, of one head, without the mask."""
    sram_peak_bytes: int | None = None
    """The footprint in bytes."""
    reads: int | None = None
    """Words read from HBM."""
    writes: int | None = None
    """Words written to HBM."""
    total: int | None = None
    """Words read and written."""
    read_bytes: int | None = None
    """Bytes read from HBM."""
    write_bytes: int | None = None
    """Bytes written to HBM."""
    total_bytes: int | None = None
    """Bytes read and written."""
    flops: int | None = None
    """Floating-point operations of the matrix products (one multiply-add is 2)."""
    flops_per_byte: float | None = None
    """`flops` over `total_bytes`."""
    ratio_to_order: float | None = None
    """`total` over N Nk d^2 / M of all heads, the order of Dao et al. 2022, Theorem 2. None for what is not attention's
    forward pass. Without M it is that of the footprint of given tiles."""
    ratio_to_standard: float | None = None
    """`total` over the `total` of the schedule `standard`. None unless the schedule is a forward pass of attention."""
    ratio_to_floor: float | None = None
    """`total` over the floor of counting/floors.py; without M, over that of an SRAM with room for given tiles. None if
    they do not fit in M."""
    adds: int | None = None
    """Words that are added in HBM, as by atomic adds. `reads` and `writes` each count every one of them."""
    total_with_adds: int | None = None
    """Words moved if each add counts once, and neither as a read nor as a write: R + W + A, as in docs/floors.md."""
    ratio_to_floor_with_adds: float | None = None
    """`total_with_adds` over the floor, which holds for it too."""
    smem_peak_bytes: int | None = None
    """The part of the footprint that must fit in M: all of it, unless tiles may live in registers."""
    register_peak_bytes: int | None = None
    """The most bytes of tiles that live in registers at one time."""
    least_smem_bytes: int | None = None
    """The value of `smem_peak_bytes` if registers had no limit."""
    smem_read_words: int | None = None
    """Words that matrix units read from shared memory (timing/products.py), by the rule of the GPU that is named, else
    by that of wgmma."""
    at_least_seconds: float | None = None
    """The least time on the GPU that is named (timing/bound.py)."""
    binds: str | None = None
    """What binds in that time: `memory`, `l2`, `shared`, `matrix` or `exp`."""
    ratio_to_full_card: float | None = None
    """`total` over the floor of a full card, whose multiprocessors all work alike (counting/full_card.py)."""
    blocks: int | None = None
    """Thread blocks over all heads, on the GPU that is named."""
    limit: str | None = None
    """The resource that is too small for tiles that do not fit: `registers` if they would fit in M with more registers,
    else `shared memory`."""
    more_tiles: dict[str, int] = field(default_factory=dict, hash=False)
    """Tile sizes beside Br and Bc, by their names in `Tiling`."""
    tensors: dict[str, dict[str, int]] = field(default_factory=dict, hash=False)
    """`{tensor: {"reads": words, "writes": words}}`."""
    steps: list[dict[str, int]] = field(default_factory=list, hash=False)
    """`{"reads": words, "writes": words}` of each kernel launch, in order. The name `steps` is that of iosim 0.1."""

    def table(self) -> Table:
        return Table(columns_of(type(self), *(Column(name, "object") for name in MAPS)), [self])

    def pieces(self) -> Pieces:
        return [result_text(self)]

    def to_dict(self) -> Row:
        return asdict(self) | {one.name: one.value(self) for one in RESULT if one.type and one.of}

    def summary(self) -> str:
        return moved(self)


class Labelled(Protocol):
    """Published tiles: who published them, and into how many shares they cut the keys."""

    @property
    def label(self) -> str: ...

    @property
    def splits(self) -> int: ...


class Answered(Protocol):
    """An answer with a result for each schedule and tiling, of one problem and one SRAM."""

    @property
    def problem(self) -> Attention: ...

    @property
    def M_bytes(self) -> int | None: ...

    @property
    def results(self) -> Sequence[Result]: ...

    @property
    def published(self) -> Sequence[tuple[Labelled, Result]]: ...

    @property
    def under(self) -> Conditions: ...


class Tiled(Protocol):
    """An object with tile sizes. If Br is None, there are none to show."""

    @property
    def Br(self) -> int | None: ...

    @property
    def Bc(self) -> int | None: ...

    @property
    def more_tiles(self) -> Mapping[str, int]: ...


# ---------------------------------------------------------------- texts


def more_sizes(sizes: Mapping[str, object]) -> str:
    """Tile sizes as `--tiles` takes them after the first slash: `depth=8/rows_o=4`."""
    return "/".join(f"{name}={size}" for name, size in sizes.items())


def tile_sizes(result: Tiled) -> str:
    """Tile sizes as `--tiles` takes them, after a space; an empty string if there are none."""
    if not result.Br:
        return ""
    return f" {result.Br}x{result.Bc}" + ("/" + more_sizes(result.more_tiles) if result.more_tiles else "")


OUTPUT_TILES = "rows_o, cols_o: rows and columns of a tile of an output"
SAID = {
    "kept": ("key", "kept", "kept: keys that stay in SRAM for the whole run"),
    "rows_s": ("row", "of scores", "rows_s: rows of scores of a tile in the softmax"),
    "depth": (None, "depth", "depth: positions of a product's summed axis that are in SRAM at a time"),
    "rows_o": ("row", "of an output", OUTPUT_TILES),
    "cols_o": ("column", "of an output", OUTPUT_TILES),
}
"""{further size of tiles: (what it counts, what a sentence says of it, what a line below a table says it is)}."""


def tiles_said(result: Tiled) -> str:
    """Tile sizes as sentences say them, after a space: ` 512x1 (35 keys kept)`."""
    more = ", ".join(size_said(name, size) for name, size in result.more_tiles.items())
    return (f" {result.Br}x{result.Bc}" if result.Br else "") + (f" ({more})" if more else "")


def size_said(name: str, size: int) -> str:
    """A further size of tiles in words: `35 keys kept`, `depth 8`."""
    thing, rest, _ = SAID[name]
    return f"{rest} {size:,}" if thing is None else f"{numbered(size, thing)} {rest}"


def tiles_legend(results: Iterable[Tiled]) -> list[str]:
    """The line below a table that says what the further sizes of its tiles are; none without such sizes."""
    names = {name for result in results for name in result.more_tiles}
    said = dict.fromkeys(text for name, (*_, text) in SAID.items() if name in names)
    return [f"tiles: Br x Bc; {'; '.join(said)}"] if said else []


def tiles_cell(result: Result) -> str:
    """The tiles of a result as tables show them: `196x1`, and of a rule that does not search, `paper 100x100`."""
    sizes = tile_sizes(result).strip()
    return sizes if sizes and result.tiling in ("best", "given") else f"{result.tiling} {sizes}".rstrip()


def verdict(result: Result) -> str:
    """Whether a result fits, as tables show it."""
    if result.total is None:
        return "nothing fits"
    return {True: "yes", False: "NO", None: "-"}[result.fits]


def moved(result: Result) -> str:
    """A result as its schedule, tiles and words: `flash2 best 196x1, 90,177,536 words, 172 MiB`."""
    name = f"{result.schedule} {result.tiling}{tile_sizes(result)}"
    if result.total is None or result.total_bytes is None:
        return f"{name}, nothing fits"
    unfit = ", does not fit" if result.fits is False else ""
    return f"{name}, {result.total:,} words, {binary(result.total_bytes)}{unfit}"


def least_of(results: Sequence[Result]) -> str:
    """The least result of those that fit or may fit, as text after a semicolon; empty if there is none."""
    fitting = [r for r in results if r.total is not None and r.fits is not False]
    return f"; least: {moved(min(fitting, key=lambda r: r.total_bytes or 0))}" if fitting else ""


def result_text(result: Result) -> str:
    """One result in words, with units."""
    if result.total_bytes is None or result.sram_peak_bytes is None:
        return f"{result.schedule} ({result.tiling} tiles): nothing fits"
    tiles = f"{result.tiling} tiles" + tile_sizes(result)
    lines = [
        f"{result.schedule}, {tiles}: {result.reads:,} words read, {result.writes:,} written, {result.total:,} in all "
        f"({binary(result.total_bytes)}); SRAM peak {result.sram_peak_words:,} words, "
        f"{format_bytes(result.sram_peak_bytes)}; fits: {verdict(result)}"
    ]
    lines += [f"  {name}: {t['reads']:,} words read, {t['writes']:,} written" for name, t in result.tensors.items()]
    return "\n".join(lines)


def add_columns(results: Iterable[Result]) -> Columns[Result]:
    """The columns about adds, if any of the results has some."""
    return ADDS if any(result.adds for result in results) else ()


def in_microseconds(seconds: float | None) -> str | None:
    """A time as tables show it."""
    return None if seconds is None else f"{seconds * 1e6:,.1f}"


# ---------------------------------------------------------------- columns

NEEDS: Columns[Result] = (
    Column("schedule", "string", "schedule"),
    Column("tiling", "string"),
    Column("Br"),
    Column("Bc"),
    Column("tiles", None, "tiles", cell=tiles_cell, folds=True),
    Column("fits", "boolean", "fits", cell=verdict),
    Column("sram_peak_words"),
    Column("sram_peak_bytes", heading="SRAM bytes", spare=5),
)
SHARED = Column[Result]("smem", None, "SRAM bytes", spare=5, of=lambda r: r.smem_peak_bytes or r.sram_peak_bytes)
"""What must fit in M, for a table without columns of registers. Kernels of published tiles have registers beside M."""
PLACES: Columns[Result] = (  # if tiles may live in registers too
    Column("smem_peak_bytes", heading="shared bytes"),
    Column("register_peak_bytes", heading="register bytes"),
    Column("limit", "string"),
)
MOVES: Columns[Result] = (
    Column("reads", heading="reads", spare=4),
    Column("writes", heading="writes", spare=3),
    Column("total", heading="total words", spare=6),
    Column("read_bytes"),
    Column("write_bytes"),
    Column("total_bytes", heading="bytes", cell="bytes", spare=1),
    Column("flops"),
    Column("ratio_to_standard", "number", "x standard", ".3f", spare=2),
    Column("ratio_to_floor", "number", "x floor", ".3f"),
    Column("ratio_to_order", "number"),
    Column("smem_read_words"),
)
RESULT = (*NEEDS, *MOVES)
TIMES: Columns[Result] = (  # on the GPU that is named
    Column("blocks", heading="blocks", spare=1),
    Column("at_least_seconds", "number"),
    Column(
        "us", None, "us at least", lambda r: None if r.at_least_seconds is None else f"{r.at_least_seconds * 1e6:,.1f}"
    ),
    Column("binds", "string", "binds"),
    Column("ratio_to_full_card", "number", "x full card", ".3f", spare=7),
)
ADDS: Columns[Result] = (  # if a schedule adds in HBM
    Column("adds", heading="adds", spare=3),
    Column("total_with_adds", heading="R + W + A", spare=2),
    Column("ratio_to_floor_with_adds", "number", "x floor with adds", ".3f", spare=1),
)
ORDER: Column[Result] = Column("ratio_to_order", "number", "x N^2d^2/M", ".3f", spare=3)
SMEM_READS: Column[Result] = Column("smem_read_words", heading="from shared memory", spare=2)
"""For people who ask for details."""
MORE_TILES: Column[Result] = Column("more_tiles", "string", of=lambda r: more_sizes(r.more_tiles))
