"""The index of sparse attention: a score for each query and key, and the keys of the largest scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arrays import smaller
from ..core.dependent_tiles import Share
from ..core.problem import DENSE, Tensor, narrowed
from ..oracles.selected import chosen_keys, index_inputs
from ..steps.passes import add_scores, largest, weighted_sums
from ..steps.softmax import zeros
from .cache import Cache, cache_traffic
from .registry import Schedule, register
from .selected import DSA, TOP_K, choices, top_k

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Words


def indexer(chip: Machine, p: Attention, t: Tiling) -> None:
    """The lightning indexer: a key's score is the sum of w_h max(q_h k, 0) over the heads h of the index. A second
    kernel takes the keys of the largest scores."""
    for x in chip.tiles(choices(p), 1, parallel=True):
        for i in chip.tiles(Share(p.N, p.choice_rows, x), p.choice_rows):
            q, w = chip.load("Q", i), chip.load("weights", i)
            cache = Cache(chip, p, keys_only=True)
            for j in chip.tiles(p.Nk, t.rows_k):
                k = cache.scaled("K", j)
                s = chip.compute("S", (i, j), zeros)
                chip.update(s, add_scores, q, k)
                r = chip.compute("scores", (x, j), weighted_sums, s, w)
                chip.store(r, "scores", x, j)
    for x in chip.tiles(choices(p), 1, parallel=True):
        row = chip.load("scores", x)
        best = chip.compute("index", (x, p[TOP_K]), largest, row)
        chip.store(best, "index", x)


def indexer_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (d + 1) + X Nk (d + 1), W = X (Nk + top_k), for X choices.

    Q of all heads of the index and the weights are read once, and the keys once for each choice. The scores are
    written, and read again to find the largest.
    """
    chosen = p.N // p.choice_rows
    keys = {name: words for name, words in cache_traffic(p, chosen * p.Nk, chosen).items() if name != "V"}
    return {
        "Q": (p.N * p.d, 0),
        "weights": (p.N, 0),
        **{name: words for name, words in keys.items() if name != "Vscale"},
        "scores": (chosen * p.Nk, chosen * p.Nk),
        "index": (0, chosen * p[TOP_K]),
    }


def indexer_room(p: Attention, t: Tiling) -> int:
    """The larger footprint of the two kernels. The first holds Q and w of a choice and a tile of keys, and with them
    the scales of these keys, or S and a tile of scores. The second holds all scores of a choice and the chosen keys."""
    rows, keys = p.choice_rows, min(t.rows_k, p.Nk)
    scales = 0 if p.kv_scales in ("none", "tensor") else -(-p.d // int(p.kv_scales))
    whole = int(p.kv_scales == "tensor")
    first = rows * (p.d + 1) + whole + keys * p.d + max(keys * scales, (rows + 1) * keys)
    return max(first, p.Nk + p[TOP_K])


def of_keys(p: Attention) -> Attention:
    """An index sees all of its keys, and chooses no more than there are."""
    return narrowed(p, top_k=smaller(p[TOP_K], p.Nk), mask=DENSE, keep_p=False, lse=False, latent=False)


def answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """The scores of all keys, and the positions of the largest scores of each choice."""
    return chosen_keys(hbm, p, p[TOP_K])


register(
    Schedule(
        "indexer",
        indexer,
        "scores of an index, and the keys of the largest",
        f"{DSA}, the lightning indexer",
        formula="R = N (d + 1) + N Nk (d + 1), W = N (Nk + top_k)",
        state="Q of a choice on chip; its scores wait in HBM between launches",
        exact_traffic=indexer_traffic,
        footprint=indexer_room,
        scales=True,
        tensors={
            "weights": Tensor(("N",), "state"),
            "scores": Tensor((choices, "Nk"), "state"),
            "index": Tensor((choices, top_k), "index"),
        },
        family="indexer",
        example=index_inputs,
        answer=answer,
        options=(TOP_K,),
        about=of_keys,
        known_as="lightning-indexer, dsa-indexer, top-k",
    )
)
