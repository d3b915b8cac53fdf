"""What published libraries do with requests, by the rules of their own code: tiles, packed heads, shares of the keys.

A rule is read from the source beside it, for fp16 and bf16. It sees the problem of a request with the window that a
library is given, the lengths of all requests, and the multiprocessors of the GPU. A mask that is no window and that
hides no key is dense. All kernels keep S and O in registers beside M.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..core.arrays import largest, smaller
from ..core.problem import DENSE, narrowed
from ..core.tiling import Tiling

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.typing import Size

IN_REGISTERS = {"register_bytes": 256 * 1024}  # of an SM
FA2_TILES = {32: (128, 128), 64: (128, 128), 96: (128, 64), 128: (128, 64), 192: (128, 64), 256: (64, 64)}
"""{most d: (Br, Bc)} that FlashAttention-2 takes on an H100, without dropout."""
FA2_SPLIT_TILES = {64: (64, 256), 128: (64, 128), 256: (64, 64)}
"""{most d: (Br, Bc)} of its kernel that splits the keys."""
FA3_TILES = {64: (192, 192), 96: (192, 144), 128: (128, 176), 192: (128, 112), 256: (128, 80)}
FA3_MASKED = {64: (192, 128), 96: (192, 144), 128: (128, 128), 192: (128, 112), 256: (128, 80)}
FA3_WINDOW = {64: (192, 128), 96: (192, 128), 128: (128, 128), 192: (128, 96), 256: (128, 64)}
"""{most d: (Br, Bc)} of FlashAttention-3 without a mask, under `causal`, and under a window."""
MOST_SPLITS = 128
FULL, GOOD = 0.8, 0.85  # the share of an SM's places that is enough, and of the best efficiency that is good enough
PREFIX_TOKENS, PREFIX_REQUESTS = 256, 8  # the least of a cascade in vLLM
SEGMENTS, SEGMENT_KEYS, SEQUENCE_BLOCKS = 16, 16, 128  # of vLLM's Triton kernel


class Requests(Protocol):
    """The lengths of requests: numbers, or an array with one for each shape."""

    @property
    def new(self) -> Size: ...
    @property
    def tokens(self) -> Size: ...
    @property
    def requests(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def of_any_length(self) -> bool: ...
    def sum(self, values: Size, /) -> int: ...


class Equal(NamedTuple):
    """Requests of equal lengths, in a call that takes one length for all."""

    new: int
    tokens: int
    requests: int = 1
    of_any_length: bool = False

    @property
    def longest(self) -> int:
        """The tokens of the longest request."""
        return self.tokens

    def sum(self, value: Size, /) -> int:
        """The sum of a number of each request."""
        return int(value) * self.requests  # type: ignore[arg-type]


class Choice(NamedTuple):
    """What a library chooses: tiles, whether the query heads of a KV head are rows of one tile, and the shares of the
    keys of each request."""

    tiles: Tiling
    packs: bool = False
    splits: Size = 1


class Library(NamedTuple):
    """A library: its name in tables and in full, what it does, its rule, the source, and what its kernel has beside M.

    `counts_sms` says that its rule needs the multiprocessors of a GPU. `unit` is the matrix unit that its kernel needs.
    """

    name: str
    label: str
    text: str
    choose: Callable[[Attention, Requests, int], Choice]
    source: str
    options: Mapping[str, int] = IN_REGISTERS
    counts_sms: bool = False
    unit: str = ""


def by_library(p: Attention) -> Attention:
    """The problem as a library runs it: it skips hidden tiles, and the short tile of queries is the last."""
    from ..schedules.flash import SHORT_TILE

    return narrowed(p, visit_all=False, **{SHORT_TILE.name: SHORT_TILE.default})


def lacks(p: Attention) -> str:
    """Why these kernels cannot run a problem; an empty text if they can."""
    if p.word_bytes != 2 or p.latent or p.kv_scales != "none" or p.cache_dtype != p.dtype or max(p.d, p.dv) > 256:
        return "its kernels take fp16 and bf16, and up to d = 256"
    return ""


def group_of(p: Attention) -> int:
    """Query heads that share a KV head."""
    return p.heads // p.kv_heads


def of_width(table: Mapping[int, tuple[int, int]], p: Attention) -> Tiling:
    """The tiles of a table for the first width that d and dv do not exceed."""
    return Tiling(*next(tiles for most, tiles in table.items() if max(p.d, p.dv) <= most))


def single(r: Requests) -> bool:
    """Whether every request has one query."""
    return r.sum(r.new) == r.requests


def packs_single(p: Attention, r: Requests) -> bool:
    """Whether FlashAttention-2 packs heads: those of requests with one query, without dropout, where it sees no window.
    A call with one length for all has by then dropped a window of at least so many keys; a call with the length of each
    drops it later."""
    before, _ = window_of(p)
    dropped = before is not None and before >= r.longest and not r.of_any_length
    seen = p.mask is DENSE or p.mask.is_causal or dropped
    return single(r) and group_of(p) > 1 and p.dropout is None and seen


def flash_attention_2(p: Attention, r: Requests, sms: int) -> Choice:
    """Keys are split if heads are packed, and for one query in a call with one length for all."""
    packs = packs_single(p, r)
    if sms and single(r) and p.dropout is None and (packs or not r.of_any_length):
        tiles = of_width(FA2_SPLIT_TILES, p)
        blocks = r.requests * (p.kv_heads * -(-group_of(p) // tiles.rows_q) if packs else p.heads)
        splits = splits_of(blocks, 2 * sms, -(-r.longest // tiles.rows_k))
        if splits > 1:
            return Choice(tiles, packs, splits)
    return Choice(of_width(FA2_TILES, p), packs)


def splits_of(blocks: int, places: int, tiles: int) -> int:
    """The shares of FlashAttention-2: the fewest that fill whole waves nearly as well as the best number does."""
    if blocks >= FULL * places:
        return 1
    most = min(MOST_SPLITS, places, tiles)
    other = [s for s in range(1, most + 1) if s == 1 or ceil(tiles / s) != ceil(tiles / (s - 1))]
    full = {s: blocks * s / places / ceil(blocks * s / places) for s in other}
    return next(s for s in other if full[s] >= GOOD * max(full.values()))


def flash_attention_3(p: Attention, r: Requests, sms: int) -> Choice:
    """Heads of requests of unequal lengths are always packed. A window that hides no key before is dropped, and
    `causal` from one query."""
    before, after = window_of(p)
    local = p.mask is not DENSE and (after is None or (before is not None and before < r.longest - 1))
    tiles = FA3_WINDOW if local else FA3_MASKED if after == 0 and not single(r) else FA3_TILES
    return Choice(of_width(tiles, p), group_of(p) > 1)


def window_of(p: Attention) -> tuple[int | None, int | None]:
    """The most keys before and after its own that a query sees; None where the mask has no bound."""
    if p.mask is DENSE:
        return None, None
    from ..masks.strips import reach

    return reach(p.mask)


def keys_in_reach(p: Attention, r: Requests, Br: int) -> Size:
    """The keys of each request that FlashInfer shares out: all, or under a window those of a tile, in whole pages."""
    from ..schedules.decode import PAGE_SIZE

    window, page = window_of(p)[0], int(p[PAGE_SIZE])
    return r.tokens if window is None else smaller(r.tokens, -(-(window + Br) // page) * page)


def flashinfer(p: Attention, r: Requests, sms: int) -> Choice:
    """The mean of the packed rows decides about Br, and one length of shares is chosen so that the blocks fit into two
    for each multiprocessor."""
    mean = r.sum(r.new) * group_of(p) // r.requests
    Br = 128 if mean > 64 and p.dv < 256 else 64 if mean > 16 else 16
    return Choice(Tiling(Br, 64), group_of(p) > 1, -(-keys_in_reach(p, r, Br) // share_tokens(p, r, sms, Br)))


def share_tokens(p: Attention, r: Requests, sms: int, Br: int) -> int:
    """Tokens of a share in FlashInfer, in whole pages: the fewest with which the blocks of a KV head have a place."""
    from ..schedules.decode import PAGE_SIZE

    page = int(p[PAGE_SIZE])
    pages, tiles = -(-keys_in_reach(p, r, Br) // page), -(-r.new * group_of(p) // Br)
    most = 2 * sms // p.kv_heads
    low, high = max(128 // page, 1), largest(pages)
    while low < high:
        middle = (low + high) // 2
        if r.sum(tiles * -(-pages // middle)) > most:  # in int64: two shares, or as many again as are few enough
            low = middle + 1
        else:
            high = middle
    return low * page


def vllm_cascades(p: Attention, r: Requests, sms: int, prefix: int) -> bool:
    """Whether vLLM runs a cascade over a prefix of all requests: for single tokens whose heads are packed, if its model
    of waves is shorter."""
    if prefix < PREFIX_TOKENS or r.requests < PREFIX_REQUESTS:
        return False
    if not (single(r) and group_of(p) > 1):
        return True
    tiles = ceil(prefix / 128)
    together = ceil(p.heads * ceil(r.requests / 128) / sms) * tiles
    apart = ceil(r.requests * p.kv_heads * ceil(group_of(p) / 128) * tiles / sms)
    return together < apart


def vllm_triton(p: Attention, r: Requests, sms: int) -> Choice:
    """16 packed rows, and up to 16 shares of whole tiles if few requests have one new token each.

    It loads no key after the last one that its rows see, as tiles of one key would.
    """
    group = group_of(p)
    height = 16 if group <= 16 else 1 << (group - 1).bit_length()
    Br = height // group * group
    if single(r) and r.requests <= SEQUENCE_BLOCKS // p.kv_heads:
        tiles = -(-r.tokens // SEGMENT_KEYS)
        return Choice(Tiling(Br, SEGMENT_KEYS), group > 1, -(-tiles // -(-tiles // SEGMENTS)))
    return Choice(Tiling(Br, 1), group > 1)


LIBRARIES = (
    Library(
        "FA2",
        "FlashAttention-2",
        "FlashAttention-2: heads packed and keys split only if every request has one new token",
        flash_attention_2,
        "Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp and src/flash_fwd_launch_template.h",
    ),
    Library(
        "FA3",
        "FlashAttention-3",
        "FlashAttention-3: heads always packed",
        flash_attention_3,
        "Shah et al. 2024 (arXiv 2407.08608); Dao-AILab/flash-attention, hopper/heuristics.h and hopper/tile_size.h",
        {**IN_REGISTERS, "stages": 2},
        unit="wgmma",
    ),
    Library(
        "FlashInfer",
        "FlashInfer",
        "Br from the mean of the packed rows, and shares of one length that fill the GPU",
        flashinfer,
        "flashinfer-ai/flashinfer, include/flashinfer/attention/scheduler.cuh and utils.cuh",
        counts_sms=True,
    ),
    Library(
        "vLLM",
        "vLLM",
        "FlashAttention-3, with a cascade over the prefix of all requests if its rule says so",
        flash_attention_3,
        "vllm-project/vllm, vllm/v1/attention/backends/flash_attn.py, use_cascade_attention",
        {**IN_REGISTERS, "stages": 2},
        counts_sms=True,
    ),
    Library(
        "vLLM-Triton",
        "vLLM's Triton kernel",
        "16 packed rows, and 16 shares for few single tokens",
        vllm_triton,
        "vllm-project/vllm, vllm/v1/attention/ops/triton_unified_attention.py",
    ),
)
BY_NAME = {library.name: library for library in LIBRARIES}
