"""What published libraries do with a batch, by their own rules: a way for each library. Imports NumPy.

A rule chooses tiles, whether heads are packed, the number of shares of the keys, and whether there is a cascade. What
that moves is counted by the schedules as in any other way. Kernels keep S and O in registers beside M. Their block
tables are not counted, and where a request has several shares, no tile of keys is skipped under a mask.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ..core.problem import DENSE
from ..core.tiling import Tiling
from ..counting.published import FA2_TILES, IN_REGISTERS, OF_FA3
from ..schedules import SCHEDULES
from ..schedules.decode import PAGE_SIZE, SPLITS
from .cascade import LEVEL, MERGE
from .launches import Launch, part_of_keys, rows
from .shapes import Shapes, shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.typing import Size
    from .asked import Batch

FA2_SOURCE = "Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp and src/flash_fwd_launch_template.h"
FA3_SOURCE = "Dao-AILab/flash-attention, hopper/heuristics.h and hopper/tile_size.h"
FLASHINFER_SOURCE = "flashinfer-ai/flashinfer, include/flashinfer/attention/scheduler.cuh and utils.cuh"
VLLM_SOURCE = "vllm-project/vllm, vllm/v1/attention/backends/flash_attn.py, use_cascade_attention"
TRITON_SOURCE = "vllm-project/vllm, vllm/v1/attention/ops/triton_unified_attention.py"

FA2_SPLIT_KEYS = {64: 256, 128: 128, 256: 64}
"""{most d: Bc} of its kernel that splits the keys, whose Br is 64."""
MOST_SPLITS = 128
FULL, GOOD = 0.8, 0.85  # the share of an SM's places that is enough, and of the best efficiency that is good enough
PREFIX_TOKENS, PREFIX_REQUESTS = 256, 8  # the least of a cascade in vLLM
SEGMENTS, SEGMENT_KEYS, SEQUENCE_BLOCKS = 16, 16, 128  # of vLLM's Triton kernel


def of_width(table: dict[int, int] | dict[int, tuple[int, int]] | dict[int, tuple[int, int, int]], batch: Batch) -> int:
    """The first key of a table that is at least d and dv; 0 if there is none."""
    return next((d for d in table if max(batch.problem.d, batch.problem.dv) <= d), 0)


def in_registers(batch: Batch) -> dict[str, int]:
    """The registers of kernels on a GPU, unless others are given."""
    return {} if batch.problem.divided else dict(IN_REGISTERS)


# ---------------------------------------------------------------- why a rule says nothing


def unlike(batch: Batch) -> str:
    """Why these kernels cannot run a batch."""
    p = batch.problem
    if p.word_bytes != 2 or p.latent or p.kv_scales != "none" or p.cache_dtype != p.dtype or max(p.d, p.dv) > 256:
        return "its kernels take fp16 and bf16, and up to d = 256"
    if batch.mask is not DENSE and batch.packed_mask is None:
        return f"it has no mask as {batch.mask}"
    return ""


def unlike_without_chip(batch: Batch) -> str:
    """Why a rule that counts multiprocessors says nothing about a batch."""
    return unlike(batch) or ("" if batch.multiprocessors else "its rule needs the multiprocessors of --hardware")


# ---------------------------------------------------------------- FlashAttention


def flash_attention_2(batch: Batch) -> list[Launch]:
    """FlashAttention-2: heads are packed only if every request has one new token, and only then keys are split."""
    packs = batch.single and batch.group > 1
    if packs and batch.multiprocessors:
        Bc = FA2_SPLIT_KEYS[of_width(FA2_SPLIT_KEYS, batch)]
        blocks = batch.shapes.requests * batch.problem.kv_heads * -(-batch.group // 64)
        splits = splits_of(blocks, 2 * batch.multiprocessors, -(-int(batch.shapes.tokens.max()) // Bc))
        if splits > 1:
            return shares(batch, batch.shapes, [splits] * len(batch.shapes), Tiling(64, Bc))
    return rows(batch, packs, tiles=Tiling(*FA2_TILES[of_width(FA2_TILES, batch)]), options=in_registers(batch))


def splits_of(blocks: int, places: int, tiles: int) -> int:
    """The shares of FlashAttention-2: the fewest that fill whole waves nearly as well as the best number does."""
    if blocks >= FULL * places:
        return 1
    most = min(MOST_SPLITS, places, tiles)
    other = [s for s in range(1, most + 1) if s == 1 or ceil(tiles / s) != ceil(tiles / (s - 1))]
    full = {s: blocks * s / places / ceil(blocks * s / places) for s in other}
    return next(s for s in other if full[s] >= GOOD * max(full.values()))


def flash_attention_3(batch: Batch) -> list[Launch]:
    """FlashAttention-3: heads of a batch of unequal lengths are always packed."""
    return rows(batch, batch.group > 1, tiles=fa3_tiles(batch), options=in_registers(batch))


def fa3_tiles(batch: Batch) -> Tiling:
    """The tiles of FlashAttention-3."""
    Br, dense, masked = OF_FA3[of_width(OF_FA3, batch)]
    return Tiling(Br, dense if batch.mask is DENSE else masked)


# ---------------------------------------------------------------- FlashInfer


def flashinfer(batch: Batch) -> list[Launch]:
    """FlashInfer: heads are packed, the mean of the packed rows decides about Br, and one length of shares is chosen so
    that the blocks fit into two for each multiprocessor."""
    group, p = batch.group, batch.problem
    mean = batch.new_tokens * group // batch.shapes.requests
    Br = 128 if mean > 64 and p.dv < 256 else 64 if mean > 16 else 16
    length = share_tokens(batch, Br)
    splits = -(-batch.shapes.tokens // length)
    return shares(batch, batch.shapes, splits.tolist(), Tiling(Br, 64))


def share_tokens(batch: Batch, Br: int) -> int:
    """Tokens of a share in FlashInfer, in whole pages: the fewest with which the blocks of a KV head have a place."""
    page = int(batch.problem[PAGE_SIZE])
    pages = -(-batch.shapes.tokens // page)
    tiles = -(-batch.shapes.new * batch.group // Br)
    most = 2 * (batch.multiprocessors or 1) // batch.problem.kv_heads
    low, high = max(128 // page, 1), int(pages.max())
    while low < high:
        middle = (low + high) // 2
        if batch.shapes.sum(tiles * -(-pages // middle)) > most:
            low = middle + 1
        else:
            high = middle
    return low * page


def shares(batch: Batch, found: Shapes, splits: Sequence[int], tiles: Tiling) -> list[Launch]:
    """The launches of requests with a number of shares each: those with one share store O at once."""
    several, packs, options = np.array(splits) > 1, batch.group > 1, in_registers(batch)
    launches = []
    if several.any():
        part = found.picked(several)
        more: dict[str, Size] = {**options, SPLITS.name: np.array(splits)[several]}
        launches.append(Launch(SCHEDULES["split-kv"], part, packs, more, tiles, share=part_of_keys))
    if not several.all():
        launches += rows(batch, packs, found.picked(~several), tiles, options)
    return launches


# ---------------------------------------------------------------- vLLM


def vllm(batch: Batch) -> list[Launch]:
    """vLLM over FlashAttention-3: a cascade over the prefix that all requests have in common, if its rule says so."""
    prefix = common_prefix(batch)
    if not has_cascade(batch, prefix):
        return flash_attention_3(batch)
    packs, tiles, options = batch.group > 1, fa3_tiles(batch), in_registers(batch)
    rest = [(one.new, one.tokens - prefix) for one in batch.requests]
    left = shapes(rest, [one.times for one in batch.requests], batch.shape_of)
    one = shapes([(batch.new_tokens, prefix)], [1], [-1])
    merged = shapes([(batch.new_tokens, 1)], [1], [-1])
    return [
        Launch(LEVEL, one, packs, options, tiles, sees_all=True),
        Launch(LEVEL, left, packs, options, tiles),
        Launch(MERGE, merged, packs, {**options, SPLITS.name: 2}, tiles, sees_all=True),
    ]


def common_prefix(batch: Batch) -> int:
    """Tokens that all requests have in common, in whole pages."""
    every = sum(node.tokens for node in batch.tree.shared if len(node.users) == len(batch.requests))
    page = int(batch.problem[PAGE_SIZE])
    return every // page * page


def has_cascade(batch: Batch, prefix: int) -> bool:
    """Whether vLLM runs a cascade: for single tokens whose heads are packed, if its model of waves is shorter."""
    number = batch.shapes.requests
    if prefix < PREFIX_TOKENS or number < PREFIX_REQUESTS:
        return False
    if not (batch.single and batch.group > 1):
        return True
    places, tiles = batch.multiprocessors or 1, ceil(prefix / 128)
    together = ceil(batch.problem.heads * ceil(number / 128) / places) * tiles
    apart = ceil(number * batch.problem.kv_heads * ceil(batch.group / 128) * tiles / places)
    return together < apart


def vllm_triton(batch: Batch) -> list[Launch]:
    """vLLM's Triton kernel: 16 packed rows, and up to 16 shares of whole tiles if few requests have one new token each.

    It loads no key after the last one that its rows see, as tiles of one key would.
    """
    height = 16 if batch.group <= 16 else 1 << (batch.group - 1).bit_length()
    Br = height // batch.group * batch.group
    if batch.single and batch.shapes.requests <= SEQUENCE_BLOCKS // batch.problem.kv_heads:
        tiles = -(-batch.shapes.tokens // SEGMENT_KEYS)
        splits = -(-tiles // -(-tiles // SEGMENTS))
        return shares(batch, batch.shapes, splits.tolist(), Tiling(Br, SEGMENT_KEYS))
    return rows(batch, batch.group > 1, tiles=Tiling(Br, 1), options=in_registers(batch))
