"""Tiles that someone published for a schedule, each with its source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..schedules.registry import FA1, FA2

if TYPE_CHECKING:
    from ..core.tiling import Rule
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


class Published(NamedTuple):
    """Published tiles and their count."""

    tiles: PublishedTiles
    result: Result


PAIRS = [Tiling(Br, Bc) for Br in (128, 64) for Bc in (128, 64)]
CUTLASS = "the kernel behind PyTorch's EFFICIENT_ATTENTION, as it ran on an H200"
OF_FA2 = f"{FA2}, section 3.3: {{64, 128}} x {{64, 128}}"
IN_REGISTERS = {"register_bytes": 256 * 1024}  # of an SM; the kernels keep S and O there
PUBLISHED = (
    PublishedTiles("FlashAttention", "flash1", "paper", f"{FA1}, Algorithm 1, line 1"),
    PublishedTiles("FlashAttention, block-sparse", "block-sparse", "paper", f"{FA1}, Algorithm 5"),
    *(PublishedTiles("FlashAttention-2", "flash2", t, OF_FA2, short="FA2", options=IN_REGISTERS) for t in PAIRS),
    *(PublishedTiles("FlashAttention-2", "block-sparse-q", t, f"{FA2}, section 3.3, tiles skipped") for t in PAIRS),
    PublishedTiles("memory-efficient", "memory-efficient", Tiling(64, 64), CUTLASS, d=64),
    PublishedTiles("memory-efficient", "memory-efficient", Tiling(64, 128), CUTLASS, d=128),
)
FA2_TILES = {32: (128, 128), 64: (128, 128), 96: (128, 64), 128: (128, 64), 192: (128, 64), 256: (64, 64)}
"""{most d: (Br, Bc)} that FlashAttention-2 takes on an H100, without dropout: csrc/flash_attn/src/
flash_fwd_launch_template.h of Dao-AILab/flash-attention."""
FA3 = "Shah et al. 2024 (arXiv 2407.08608); hopper/tile_size.h of its repository, Dao-AILab/flash-attention"
OF_FA3 = {64: (192, 192, 128), 96: (192, 144, 144), 128: (128, 176, 128), 192: (128, 112, 112), 256: (128, 80, 80)}
"""{most d: (Br, Bc without a mask, Bc under `causal`)} of FlashAttention-3, for 16-bit types."""
HOPPER_BYTES = 227 * 1024  # of SRAM, for which they were made


def tiles_of_gpus(names: Collection[str], p: Attention, M_bytes: int) -> Iterator[PublishedTiles]:
    """The tiles of FlashAttention-2 and FlashAttention-3 for some schedules, a problem and the SRAM of a GPU.

    There are none for sizes and types that these kernels lack, nor under a mask of tiles, which other tiles change.
    """
    width = next((d for d in OF_FA3 if max(p.d, p.dv) <= d), None)
    found = [tiles for tiles in PUBLISHED if tiles.short and tiles.schedule in names]
    if width is None or not found or p.word_bytes != 2 or p.mask.tile_units:
        return
    yield from found
    if M_bytes >= HOPPER_BYTES and p.d == p.dv and (p.mask is DENSE or p.mask.is_causal):
        Br, dense, causal = OF_FA3[width]
        tiles = Tiling(Br, dense if p.mask is DENSE else causal)
        chip = IN_REGISTERS | {"stages": 2}
        yield PublishedTiles("FlashAttention-3", found[0].schedule, tiles, FA3, short="FA3", options=chip)


def published_line(rows: Collection[Published]) -> list[str]:
    """The line that says what the labels of published tiles mean."""
    labels = {tiles.short: tiles.label for tiles, _ in rows}
    whose = f"{' and '.join(labels.values())}, whose kernels keep S and O in registers beside M"
    return [f"{', '.join(labels)}: published tiles of {whose}"] if labels else []
