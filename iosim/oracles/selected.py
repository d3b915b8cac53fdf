"""Random choices of blocks of keys, and attention to the chosen keys in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attention import attention, plain_inputs, queries_keys_values

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Arrays, Bools


def chosen_blocks(rng: np.random.Generator, p: Attention, top_k: int, key_block: int) -> Arrays:
    """Random Q, K and V of one head, and choices that use blocks evenly.

    `index` (choices, top_k) names the blocks of each choice. The other arrays are sorted by block: `blocks` names each
    chosen block, and `queries` the choices that have it. `results` (choices, top_k) gives the position in `queries` of
    each pair of a choice and a block.
    """
    import numpy as np

    choices, blocks = p.N // p.choice_rows, p.Nk // key_block
    made = np.arange(choices * top_k)  # pairs in the order of blocks; after the last choice comes the first again
    each = -(-choices * top_k // blocks)  # choices that have a block
    names = rng.permutation(blocks)[: -(-choices * top_k // each)]
    queries = rng.permutation(choices)[made % choices]
    results = np.argsort(queries, kind="stable").reshape(choices, top_k)
    numbers = {"index": names[made // each][results], "blocks": names, "queries": queries, "results": results}
    return {**queries_keys_values(rng, p, None), **numbers}  # type: ignore[dict-item]  # whole numbers


def selected_output(hbm: Arrays, p: Attention, key_block: int) -> Arrays:
    """{"O": attention of each query to the keys of its blocks}."""
    import numpy as np

    plain, seen = plain_inputs(hbm, p), np.zeros((p.N, p.Nk), bool)
    for x, blocks in enumerate(hbm["index"]):
        rows = slice(x * p.choice_rows, (x + 1) * p.choice_rows)
        for block in blocks:
            seen[rows, int(block) * key_block : (int(block) + 1) * key_block] = True
    return {"O": attention(plain["Q"], plain["K"], plain["V"], seen)}


def index_inputs(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random queries and weights of the heads of an index, and its keys. The scores are small and exact in every type.
    So rounding does not change their order. Of equal scores the first is chosen."""
    import numpy as np

    found = queries_keys_values(rng, p, None)
    found["Q"] = rng.integers(-1, 2, size=(p.N, p.d)) * (np.arange(p.d) < 8).astype(float)
    found["K"] = rng.integers(-2, 3, size=(p.Nk, p.d)).astype(float)
    scales = {name: 2.0 ** rng.integers(-1, 2, size=found[name].shape) for name in ("Kscale",) if name in found}
    return {**found, **scales, "weights": rng.integers(1, 4, size=p.N).astype(float)}


def chosen_keys(hbm: Arrays, p: Attention, top_k: int) -> Arrays:
    """The scores of all keys, and the positions of each choice's largest scores, largest first."""
    import numpy as np

    plain = plain_inputs(hbm, p)
    of_heads = np.einsum("nd,kd->nk", plain["Q"], plain["K"]) * (np.einsum("nd,kd->nk", plain["Q"], plain["K"]) > 0)
    scores = (of_heads * plain["weights"][:, None]).reshape(-1, p.choice_rows, p.Nk).sum(axis=1)
    order = np.lexsort((np.broadcast_to(np.arange(p.Nk), scores.shape), -scores), axis=1)[:, :top_k]
    return {"scores": scores, "index": order}  # type: ignore[dict-item]  # whole numbers
