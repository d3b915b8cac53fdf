"""Cascade attention: keys that several requests have in common are read once for all of their queries.

Each node of the prefix tree is a problem whose queries are the new tokens of all requests below it. What is left of a
request is a problem of its own. Both give a partial O and its LSE, and a last launch merges those of each query, as
split-kv does. Imports NumPy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ..core.problem import Tensor
from ..schedules.cache import Cache, Keys
from ..schedules.decode import SPLITS, merge_results, partial_result
from ..schedules.registry import Schedule
from .launches import Launch, rows
from .shapes import shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words
    from .asked import Batch


def level(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 with a partial result: queries are the outer loop, and O and its LSE are stored."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i, where=p.mask.row(i))
        partial_result(chip, p, i, i, q, keys_seen(chip, p, t, i))


def keys_seen(chip: Machine, p: Attention, t: Tiling, i: Tile) -> Iterator[tuple[Tile, Keys]]:
    """The tiles of keys that a tile of queries sees, each with its K and V on chip."""
    cache = Cache(chip, p)
    for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
        yield j, cache.load(j)


def merge_levels(chip: Machine, p: Attention, t: Tiling) -> None:
    """O from the partial results of the levels. `splits` is their number."""
    merge_results(chip, p, t, p[SPLITS], p[SPLITS] * p.N)


# ---------------------------------------------------------------- by hand (words of one head)


def level_traffic(p: Attention, t: Tiling) -> Words:
    """Q is read once, K and V for every query tile that sees them, and O and LSE are written once, as in flash2."""
    from ..schedules.flash import queries_outside_traffic

    words = queries_outside_traffic(p, t)
    return {
        **{name: moved for name, moved in words.items() if name != "O"},
        "Opart": (0, p.N * p.dv),
        "LSEpart": (0, p.N),
    }


def merge_traffic(p: Attention, t: Tiling) -> Words:
    """Each level's O and LSE are read once, and O is written once."""
    rows = p[SPLITS] * p.N
    return {"Opart": (rows * p.dv, 0), "LSEpart": (rows, 0), "O": (0, p.N * p.dv)}


def rows_of_levels(p: Attention[Size]) -> Size:
    """Rows of the partial results of all levels."""
    return p[SPLITS] * p.N


SOURCE = "Ye et al. 2024, Cascade Inference (FlashInfer); Juravsky et al. 2024, Hydragen (arXiv 2402.05099)"
LEVEL = Schedule(
    "cascade-level",
    level,
    "Q outer over the keys of one level, with a partial O and LSE",
    SOURCE,
    options=("visit_all",),
    skips=True,
    scales=True,
    exact_traffic=level_traffic,
    tensors={"Opart": Tensor(("N", "dv"), "state"), "LSEpart": Tensor(("N",), "state")},
)
MERGE = Schedule(
    "cascade-merge",
    merge_levels,
    "O from the partial O and LSE of all levels",
    SOURCE,
    options=(SPLITS,),
    keys_in_a_row=lambda p: 1,
    exact_traffic=merge_traffic,
    tensors={"Opart": Tensor((rows_of_levels, "dv"), "state"), "LSEpart": Tensor((rows_of_levels,), "state")},
)


# ---------------------------------------------------------------- the launches of a batch


def cascade(batch: Batch) -> list[Launch]:
    """The launches of a cascade: the nodes of the prefix tree, what is left of each request below one, the merges by
    number of levels, and requests without a shared prefix. A request below k nodes has k + 1 partial results."""
    tree, requests, packs = batch.tree, batch.requests, batch.group > 1
    nodes = [(sum(requests[user].new for user in node.users), node.tokens) for node in tree.shared]
    below, merged = [], defaultdict[int, Counter[int]](Counter)
    for index, path in tree.paths.items():
        prefix = sum(tree.shared[node].tokens for node in path)
        below.append((requests[index].new, requests[index].tokens - prefix))
        merged[len(path) + 1][requests[index].new] += 1
    alone = [(one, batch.shape_of[k]) for k, one in enumerate(requests) if k not in tree.paths]
    left = shapes([one[:2] for one, _ in alone], [one.times for one, _ in alone], [of for _, of in alone])
    return [
        Launch(LEVEL, shapes(nodes, [1] * len(nodes), [-1] * len(nodes)), packs, sees_all=True),
        Launch(LEVEL, shapes(below, [1] * len(below), [batch.shape_of[index] for index in tree.paths]), packs),
        *(merge(levels, new, packs) for levels, new in sorted(merged.items())),
        *(rows(batch, packs, left) if alone else []),
    ]


def merge(levels: int, new: Mapping[int, int], packs: bool, options: Mapping[str, Size] | None = None) -> Launch:
    """The launch that merges the partial results of so many levels, for {new tokens: requests}."""
    found = shapes([(size, 1) for size in new], [*new.values()], [-1] * len(new))
    return Launch(MERGE, found, packs, {**(options or {}), SPLITS.name: levels}, sees_all=True, stage=1)
