"""Tiles that someone published for a schedule, each with its source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import DENSE, Attention, narrowed
from ..core.tiling import Tiling
from ..schedules import family_of
from ..schedules.registry import FA1, FA2
from ..units import binary
from .libraries import BY_NAME, FA3_TILES, IN_REGISTERS, Equal, by_library, packs_single

if TYPE_CHECKING:
    from ..core.tiling import Rule
    from ..hardware import Hardware
    from .result import Result


class PublishedTiles(NamedTuple):
    """Tiles that someone published for a schedule: a rule or Br x Bc, and their source, for one `d` or for all.

    Tiles of kernels for GPUs have a label in tables, `short`, and `options`: their places in registers, and stages.
    """

    label: str
    schedule: str
    tiles: Rule
    source: str
    d: int | None = None
    short: str = ""
    options: Mapping[str, int] = {}
    splits: int = 1
    """Shares of the keys, if the kernel cuts them."""

    def as_run(self, p: Attention, gpu: bool = True) -> Attention:
        """The problem as the kernel runs it: on a GPU with its registers, and at one query with packed heads."""
        packs = {"gqa": "pack", "mask": DENSE} if self.short and packs_one(p) else {}
        shares = {"splits": self.splits} if self.splits > 1 else {}
        own = by_library(p) if self.short else p
        return narrowed(own, **({} if p.divided or not gpu else self.options), **packs, **shares)


class Published(NamedTuple):
    """Published tiles and their count."""

    tiles: PublishedTiles
    result: Result


PAIRS = [Tiling(Br, Bc) for Br in (128, 64) for Bc in (128, 64)]
CUTLASS = "the kernel behind PyTorch's EFFICIENT_ATTENTION, as it ran on an H200"
OF_FA2 = f"{FA2}, section 3.3: {{64, 128}} x {{64, 128}}"
PUBLISHED = (
    PublishedTiles("FlashAttention", "flash1", "paper", f"{FA1}, Algorithm 1, line 1"),
    PublishedTiles("FlashAttention, block-sparse", "block-sparse", "paper", f"{FA1}, Algorithm 5"),
    *(PublishedTiles("FlashAttention-2", "flash2", t, OF_FA2, short="FA2", options=IN_REGISTERS) for t in PAIRS),
    *(PublishedTiles("FlashAttention-2", "block-sparse-q", t, f"{FA2}, section 3.3, tiles skipped") for t in PAIRS),
    PublishedTiles("memory-efficient", "memory-efficient", Tiling(64, 64), CUTLASS, d=64),
    PublishedTiles("memory-efficient", "memory-efficient", Tiling(64, 128), CUTLASS, d=128),
)
HOPPER_BYTES = 227 * 1024  # of SRAM, for which they were made


def has_their_registers(chip: Hardware) -> bool:
    """Whether a chip has the registers in which the kernels of libraries keep S and O."""
    return chip.register_bytes >= IN_REGISTERS["register_bytes"]


def packs_one(p: Attention) -> bool:
    """Whether the kernels of libraries pack the heads of a problem: there is one query, and no window once those that
    hold all keys are dropped."""
    return packs_single(p, Equal(p.N, p.Nk, p.batch))


def tiles_of_gpus(names: Collection[str], p: Attention, M_bytes: int, chip: Hardware) -> Iterator[PublishedTiles]:
    """The tiles of FlashAttention-2 and FlashAttention-3 for some schedules, a problem and a GPU. At one query they are
    those that each library chooses.

    There are none for sizes and types that these kernels lack, nor under a mask of tiles, which other tiles change, nor
    on a chip that has fewer registers than these kernels fill.
    """
    if not has_their_registers(chip):
        return
    found = [tiles for tiles in PUBLISHED if tiles.short and tiles.schedule in names]
    if max(p.d, p.dv) > max(FA3_TILES) or not found or p.word_bytes != 2 or p.mask.tile_units:
        return
    yield from [chosen("FA2", p, found[0].schedule, chip.sms)] if p.N == 1 else found
    hopper = M_bytes >= HOPPER_BYTES and chip.matrix_unit == BY_NAME["FA3"].unit
    if hopper and p.d == p.dv and (p.mask is DENSE or p.mask.is_causal):
        yield chosen("FA3", p, found[0].schedule, chip.sms)


def chosen(name: str, p: Attention, schedule: str, sms: int) -> PublishedTiles:
    """What a library chooses for a problem, whose requests have equal lengths."""
    library = BY_NAME[name]
    tiles, _, splits = library.choose(p, Equal(p.N, p.Nk, p.batch), sms)
    own = "split-kv" if splits > 1 else schedule
    return PublishedTiles(
        library.label, own, tiles, library.source, short=name, options=library.options, splits=int(splits)
    )


def published_line(rows: Collection[Published], p: Attention) -> list[str]:
    """The line that says what the labels of published tiles mean, and how their kernels run this problem."""
    labels = {tiles.short: tiles.label for tiles, _ in rows}
    if not labels:
        return []
    kernels = f"{', '.join(labels)}: published tiles of {' and '.join(labels.values())}, whose kernels keep S and O in "
    packed = "; they pack the query heads of a KV head" if packs_one(p) else ""
    shares = [f", and {tiles.short} cuts the keys into {tiles.splits} shares" for tiles, _ in rows if tiles.splits > 1]
    return [f"{kernels}registers beside M{packed}{''.join(shares)}"]


def floor_line(chip: Hardware | None, problem: Attention) -> list[str]:
    """The line below a table of a GPU that says which memory its floors are of; none without a GPU."""
    if chip is None or problem.divided or not chip.register_bytes:
        return []
    return [f"x floor: over the floor of M and {binary(chip.register_bytes)} of registers together"]


def times_line(chip: Hardware | None, problem: Attention, results: Sequence[Result] = ()) -> list[str]:
    """The lines below a table of least times: what measured kernels took over theirs, and that a schedule without tiles
    is not compared. None without a GPU, and none with a state: those that were measured are of softmax attention."""
    if chip is None or family_of(problem) != "attention":
        return []
    from ..timing.measured import measured_over_bounds

    whole = sorted({r.schedule for r in results if r.tiling == "ideal" and r.fits and r.at_least_seconds})
    apart = [f"{name} has no thread blocks, so its time leaves out shared memory and is not compared" for name in whole]
    return [measured_over_bounds(), *apart]
