"""Attention without the N x Nk matrix: linear attention, and sparse attention that gathers the keys of each query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import DENSE, Tensor, narrowed
from ..oracles.matmul_softmax_linear import linear_attention
from ..steps.passes_and_linear import (
    add_keys,
    add_sum,
    add_to_state,
    earlier_products,
    features,
    read_normaliser,
    read_state,
)
from ..steps.softmax import accumulate, normalise, zeros
from .flash import flash_footprint, queries_outside, queries_outside_traffic
from .registry import Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Words

KATHAROPOULOS = "Katharopoulos et al. 2020 (arXiv 2006.16236)"


def linear(chip: Machine, p: Attention, t: Tiling) -> None:
    """phi(Q) (phi(K)^T V), with each row divided by phi(q) . sum phi(k). All keys go into the state first."""
    state = chip.compute("state", (p.d, p.dv), zeros)
    z = chip.compute("z", (p.d,), zeros)
    for j in chip.tiles(p.Nk, t.rows_k):
        add_tile(chip, j, state, z)
    for i in chip.tiles(p.N, t.rows_q):
        o, l = read_tile(chip, p, i, state, z)[1:]
        chip.update(o, normalise, l)
        chip.store(o, "O", i)
    chip.free(state, z)


def linear_causal(chip: Machine, p: Attention, t: Tiling) -> None:
    """Linear attention under a causal mask. The keys of earlier tiles are in the running state. The keys of the query's
    own tile are added by products inside the tile."""
    state = chip.compute("state", (p.d, p.dv), zeros)
    z = chip.compute("z", (p.d,), zeros)
    for i in chip.tiles(p.N, t.rows_q):
        q, o, l = read_tile(chip, p, i, state, z)
        k, v = add_tile(chip, i, state, z)
        s = chip.compute("S", (i, i), earlier_products, q, k)
        chip.update(l, add_sum, s)
        chip.update(o, accumulate, s, v)
        chip.update(o, normalise, l)
        chip.store(o, "O", i)
    chip.free(state, z)


def add_tile(chip: Machine, j: Tile, state: Block, z: Block) -> tuple[Block, Block]:
    """Add a tile of keys and values to the state."""
    k, v = chip.load("K", j), chip.load("V", j)
    chip.update(k, features)
    chip.update(state, add_to_state, k, v)
    chip.update(z, add_keys, k)
    return k, v


def read_tile(chip: Machine, p: Attention, i: Tile, state: Block, z: Block) -> tuple[Block, Block, Block]:
    """(phi(Q), O, its normaliser) of a tile of queries, from the state."""
    q = chip.load("Q", i)
    chip.update(q, features)
    o = chip.compute("O", (i, p.dv), read_state, q, state)
    l = chip.compute("l", (i,), read_normaliser, q, z)
    return q, o, l


# ---------------------------------------------------------------- by hand (words of one head)


def linear_traffic(p: Attention, t: Tiling) -> Words:
    """R = N d + Nk (d + dv), W = N dv, for all tiles: every word moves once. The state never leaves the chip."""
    return {"Q": (p.N * p.d, 0), "K": (p.Nk * p.d, 0), "V": (p.Nk * p.dv, 0), "O": (0, p.N * p.dv)}


def linear_footprint(p: Attention, t: Tiling) -> int:
    """The words of the state, d dv + d, plus the larger of two: a tile of K and V; a tile of Q and O with l."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return p.d * p.dv + p.d + max(keys * (p.d + p.dv), rows * (p.d + p.dv + 1))


def causal_footprint(p: Attention, t: Tiling) -> int:
    """d dv + d + Br (2d + 2dv + 1) + Br^2 words: the state, tiles of Q, K, V and O, one normaliser a row, products."""
    rows = min(t.rows_q, p.N)
    return p.d * p.dv + p.d + rows * (2 * p.d + 2 * p.dv + 1) + rows * rows


def dense(p: Attention) -> Attention:
    """One state for all queries: nothing can be hidden from one of them."""
    return narrowed(p, mask=DENSE, keep_p=False)


def causal(p: Attention) -> Attention:
    """A query sees the keys up to its own position."""
    from ..masks.mask import parse

    return narrowed(p, Nk=p.N, mask=parse("causal"), keep_p=False)


STATE = {"state": Tensor(("d", "dv"), "state"), "z": Tensor(("d",), "state")}

for name, text, footprint, about, summary, source, known_as in (
    ("linear", linear, linear_footprint, dense, "linear attention, phi = elu + 1: state on chip",
     f"{KATHAROPOULOS}, equations 5 to 7", "linear-attention, performer"),
    ("linear-causal", linear_causal, causal_footprint, causal, "linear attention with a causal mask: a running state",
     f"{KATHAROPOULOS}, equations 8 to 12", "causal-linear, causal-linear-attention"),
):  # fmt: skip
    register(
        Schedule(
            name,
            text,
            summary,
            source,
            known_as=known_as,
            formula="R = N d + Nk (d + dv), W = N dv",
            state="phi(K)^T V and sum phi(K) on chip; nothing waits in HBM",
            exact_traffic=linear_traffic,
            footprint=footprint,
            tensors=STATE,
            family="linear",
            answer=linear_attention,
            about=about,
        )
    )

register(
    Schedule(
        "local-gather",
        queries_outside,
        "sparse attention, each query gathering its keys",
        "unstructured sparse attention without reuse; flash2 in tiles of 1 x 1",
        rules=("ideal",),
        options=("lse", "keep_p"),
        skips=True,
        dominated_by="flash2",
        formula="R = N d + N Nk (d + dv), W = N dv",
        state="one row of Q and O with l, m on chip; nothing waits in HBM",
        exact_traffic=queries_outside_traffic,
        footprint=flash_footprint,
        scales=True,
        known_as="gather, local, local-attention",
    )
)
