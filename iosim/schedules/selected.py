"""Attention to the blocks of keys that an index chooses, with queries or with blocks of keys in the outer loop.

The index is given: an array that names --top-k blocks of --key-block keys for each query. With --gqa pack,
the query heads that share a KV head also share a choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.arrays import smaller
from ..core.dependent_tiles import Moved, Share
from ..core.problem import DENSE, Tensor, narrowed
from ..options import COUNT, Option
from ..oracles import selected as oracle
from .cache import Cache, Keys, cache_room, cache_traffic
from .decode import merge_parts, partial_result, whole_result
from .registry import Schedule, register

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Size, Words
    from .registry import FamilyFields

TOP_K = Option(
    "top_k",
    COUNT,
    "Blocks of keys that each query chooses, for selected (default: 16).",
    16,
    metavar="COUNT",
    also=("topk", "k", "selected-blocks"),
)
KEY_BLOCK = Option(
    "key_block",
    COUNT,
    "Keys of a block, for selected (default: 64).",
    64,
    metavar="ROWS",
    also=("selection-block-size",),
)


def selected(chip: Machine, p: Attention, t: Tiling) -> None:
    """Queries outside: the queries of a choice gather its blocks of keys (NSA; with blocks of one key, DSA)."""
    for x in chip.tiles(choices(p), 1, parallel=True):
        for i in chip.tiles(Share(p.N, p.choice_rows, x), t.rows_q):
            q = chip.load("Q", i)
            whole_result(chip, p, i, q, block_tiles(chip, p, t, x))


def selected_keys_outside(chip: Machine, p: Attention, t: Tiling) -> None:
    """Blocks of keys outside: each is loaded once, and the queries that chose it are gathered (the order of FSA). Each
    pair of a query and a chosen block gives a partial O and its LSE. A second kernel merges those of each query."""
    for c in chip.tiles(chosen_blocks(p), 1, parallel=True):
        entry = chip.load("blocks", c)
        cache = Cache(chip, p)
        for j in chip.tiles(p[KEY_BLOCK], p[KEY_BLOCK]):
            keys = cache.load(keys_of(p, entry, j))
            for u in chip.tiles(Share(choices_made(p), choices_each(p), c), 1):
                who = chip.load("queries", u)
                for i in chip.tiles(p.choice_rows, p.choice_rows):
                    q = chip.load("Q", rows_of(p, i, who, p.N))
                    partial_result(chip, p, i, rows_of(p, i, u, choice_results(p)), q, iter([(j, keys)]))
    for x in chip.tiles(choices(p), 1, parallel=True):
        for i in chip.tiles(Share(p.N, p.choice_rows, x), p.choice_rows):
            merge_parts(chip, p, i, results_of(chip, p, x, i))


# ---------------------------------------------------------------- parts of these


def block_tiles(chip: Machine, p: Attention, t: Tiling, x: Tile) -> Iterator[tuple[Tile, Keys]]:
    """The tiles of keys in the blocks of choice x, each with its K and V on chip."""
    cache = Cache(chip, p)
    for b in chip.tiles(p[TOP_K], 1):
        entry = chip.load("index", x, b)
        for j in chip.tiles(p[KEY_BLOCK], t.rows_k):
            yield j, cache.load(keys_of(p, entry, j))


def results_of(chip: Machine, p: Attention, x: Tile, i: Tile) -> Iterator[Moved]:
    """The rows of the partial results of choice x. A list says where they lie."""
    for b in chip.tiles(p[TOP_K], 1):
        entry, g = chip.load("results", x, b), p.choice_rows
        yield Moved(choice_results(p), i, ((g, entry), (1, i), (-g, x)))


def keys_of(p: Attention, entry: Block, j: Tile) -> Moved:
    """Key tile j of the block of keys that an entry names."""
    return Moved(p.Nk, j, ((p[KEY_BLOCK], entry), (1, j)))


def rows_of(p: Attention, i: Tile, choice: Tile | Block, length: Size) -> Moved:
    """The rows of tile i of a choice, which has `choice_rows` rows. Each earlier choice has as many rows before
    them."""
    return Moved(length, i, ((p.choice_rows, choice), (1, i)))


# ---------------------------------------------------------------- sizes


def choices(p: Attention[Size]) -> Size:
    """Choices of blocks: one for each query, or for the queries that share one."""
    return p.N // p.choice_rows


def top_k(p: Attention[Size]) -> Size:
    """The number of blocks in a choice."""
    return p[TOP_K]


def choices_made(p: Attention[Size]) -> Size:
    """The number of pairs of a choice and one of its blocks."""
    return choices(p) * p[TOP_K]


def choices_each(p: Attention[Size]) -> Size:
    """The number of choices that each block is in, if blocks are chosen evenly."""
    return -(-choices_made(p) // (p.Nk // p[KEY_BLOCK]))


def chosen_blocks(p: Attention[Size]) -> Size:
    """The number of blocks that are in some choice. The last one may be in fewer choices than the others."""
    return -(-choices_made(p) // choices_each(p))


def choice_results(p: Attention[Size]) -> Size:
    """Rows of the partial results of selected-keys-outside: one for each query and block that it chose."""
    return choices_made(p) * p.choice_rows


# ---------------------------------------------------------------- by hand (words of one head)


def selected_traffic(p: Attention, t: Tiling) -> Words:
    """The words of selected. For each tile of its rows a choice reads its blocks and their numbers. Q and O move
    once."""
    tiles = p.N // p.choice_rows * -(-p.choice_rows // t.rows_q)
    lse = {"LSE": (0, p.N)} if p.lse else {}
    keys = cache_traffic(p, tiles * p[TOP_K] * p[KEY_BLOCK], tiles)
    return {"Q": (p.N * p.d, 0), "index": (tiles * p[TOP_K], 0), **keys, "O": (0, p.N * p.dv), **lse}


def keys_outside_traffic(p: Attention, t: Tiling) -> Words:
    """The words of selected-keys-outside. Each chosen block moves once. For each pair of a choice and a block, Q is
    read, and a partial O with its LSE is written and read again. The indices of blocks, of their queries and of the
    results to merge are words as well."""
    made, rows = p.N // p.choice_rows * p[TOP_K], p.N * p[TOP_K]
    each = -(-made // (p.Nk // p[KEY_BLOCK]))
    blocks = -(-made // each)
    return {
        "Q": (rows * p.d, 0),
        **cache_traffic(p, blocks * p[KEY_BLOCK], blocks),
        "blocks": (blocks, 0),
        "queries": (made, 0),
        "results": (made, 0),
        "Opart": (rows * p.dv, rows * p.dv),
        "LSEpart": (rows, rows),
        "O": (0, p.N * p.dv),
        **({"LSE": (0, p.N)} if p.lse else {}),
    }


def selected_room(p: Attention, t: Tiling) -> int:
    """The footprint of flash2 for the rows of a choice and the keys of a block, and one index of a block."""
    rows, keys = min(t.rows_q, p.choice_rows), min(t.rows_k, p[KEY_BLOCK])
    return rows * (p.d + p.dv + 2) + cache_room(p, keys, rows * keys) + 1


def keys_outside_room(p: Attention, t: Tiling) -> int:
    """The larger footprint of the two kernels. The first holds a block of keys with its index, and Q, O, l, m, S and an
    index for the rows of a choice. The second holds two tiles of O, l, m, an LSE and an index."""
    rows = p.choice_rows
    first = 1 + cache_room(p, p[KEY_BLOCK], 1 + rows * (p.d + p.dv + 2) + rows * p[KEY_BLOCK])
    return max(first, rows * (2 * p.dv + 3) + 1)


def whole_blocks(p: Attention) -> Attention:
    """Every query chooses --top-k different blocks of --key-block keys among the Nk keys; no other mask."""
    block = smaller(p[KEY_BLOCK], p.Nk)
    Nk = p.Nk // block * block
    return narrowed(p, key_block=block, Nk=Nk, top_k=smaller(p[TOP_K], Nk // block), mask=DENSE, keep_p=False)


NSA, DSA = "Yuan et al. 2025 (arXiv 2502.11089), NSA", "DeepSeek-AI 2025 (arXiv 2512.02556), DSA"
FSA = "Yan et al. 2025 (arXiv 2508.18224), FSA"
CHOICES = {
    "index": Tensor((choices, top_k), "index"),
    "blocks": Tensor((chosen_blocks,), "index"),
    "queries": Tensor((choices_made,), "index"),
    "results": Tensor((choices, top_k), "index"),
    "Opart": Tensor((choice_results, "dv"), "state"),
    "LSEpart": Tensor((choice_results,), "state"),
}


def example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random Q, K and V, and choices of blocks."""
    return oracle.chosen_blocks(rng, p, p[TOP_K], p[KEY_BLOCK])


def answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """Attention of each query to the keys of its blocks."""
    return oracle.selected_output(hbm, p, p[KEY_BLOCK])


CHOSEN: FamilyFields = {
    "tensors": CHOICES,
    "family": "selected",
    "example": example,
    "answer": answer,
    "about": whole_blocks,
}
register(
    Schedule(
        "selected",
        selected,
        "each query gathers the blocks that it chose",
        f"{NSA}, section 3.4; {DSA}, for blocks of one key",
        formula="R = N d + N top_k (key_block (d + dv) + 1), W = N dv",
        state="a tile of Q with its O, l, m on chip; nothing waits in HBM",
        exact_traffic=selected_traffic,
        footprint=selected_room,
        scales=True,
        options=("lse", TOP_K, KEY_BLOCK),
        known_as="nsa, dsa, moba, native-sparse-attention, deepseek-sparse-attention, sparse-mla, top-k, quest",
        **CHOSEN,
    )
)
register(
    Schedule(
        "selected-keys-outside",
        selected_keys_outside,
        "each block gathers the queries that chose it",
        f"{FSA}, with the merging of split-kv",
        outer="keys",
        rules=("ideal",),
        formula="R = N top_k (d + dv + 3) + Sb (key_block (d + dv) + 1), W = N top_k (dv + 1) + N dv",
        state="a block of K and V on chip; a partial O and LSE of each choice wait in HBM between launches",
        exact_traffic=keys_outside_traffic,
        footprint=keys_outside_room,
        scales=True,
        options=("lse", TOP_K, KEY_BLOCK),
        known_as="fsa, flash-sparse-attention, moba",
        **CHOSEN,
    )
)
