"""Bytes that attention keeps in device memory, the largest N for a budget, tiles on chip, and the rows of a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..core.problem import TENSORS, Attention
from ..core.tiling import parse_tiles
from ..errors import InputError
from ..schedules import SCHEDULES
from ..search.best import footprint, last_true
from ..tables import Row
from ..units import LARGEST_COUNT, parse_axis, parse_bytes, parse_count

MOST_PROGRAMS = 2**16


class Kept(NamedTuple):
    """Tensors that a way to compute attention keeps in device memory beside Q, K, V and O."""

    name: str
    tensors: tuple[str, ...]


KEPT = (
    Kept("S and P", ("S", "P")),
    Kept("P in the place of S", ("S",)),
    Kept("l and m (FlashAttention)", ("l", "m")),
    Kept("LSE (FlashAttention-2)", ("LSE",)),
    Kept("nothing (inference)", ()),
)


def tensor_bytes(p: Attention, name: str) -> int:
    """Bytes of a tensor in HBM, over batch and heads. K and V count once for each KV head."""
    tensor = TENSORS[name]
    words = p.batch * (p.kv_heads if name in ("K", "V") else p.heads)
    for length in p.shape(tensor):
        words = words * length
    return int(words * p.hbm_bytes(tensor))


def bytes_together(p: Attention, names: tuple[str, ...]) -> int:
    """Bytes of several tensors in HBM."""
    return sum(tensor_bytes(p, name) for name in names)


def tensor_sizes(p: Attention) -> Row:
    """The row of a problem: bytes of its tensors, over batch and heads.

    The traffic of scores writes and reads S and P once each. Its share is of the traffic of Algorithm 0, which moves
    Q, K, V and O once as well.
    """
    traffic = 2 * bytes_together(p, ("S", "P"))
    return {
        "N": p.N,
        "Nk": p.Nk,
        "S_bytes": tensor_bytes(p, "S"),
        "S_and_P_bytes": bytes_together(p, ("S", "P")),
        "score_traffic_bytes": traffic,
        "score_traffic_share": traffic / (traffic + bytes_together(p, ("Q", "K", "V", "O"))),
        "Q_bytes": tensor_bytes(p, "Q"),
        "KV_bytes": bytes_together(p, ("K", "V")),
        "O_bytes": tensor_bytes(p, "O"),
        "l_and_m_bytes": bytes_together(p, ("l", "m")),
        "LSE_bytes": tensor_bytes(p, "LSE"),
    }


def of_length(p: Attention, N: int, Nk: int | None) -> Attention:
    """The problem with N queries and Nk keys; with N keys if Nk is None."""
    return replace(p, N=N, Nk=N if Nk is None else Nk)


def sizes_of_axis(axis: str, p: Attention, Nk: int | None) -> list[Row]:
    """A row for each N of an axis as in 1024,4096 or 1024:32768:x2."""
    axis_N = parse_axis(axis, "--N", lambda text: parse_count(text, "--N"))
    return [tensor_sizes(of_length(p, N, Nk)) for N in axis_N]


def largest_lengths(budget: str, p: Attention, Nk: int | None) -> list[Row]:
    """A row for each entry of KEPT: the largest N = Nk whose Q, K, V, O and kept tensors fit in the budget; 0 if none
    does."""
    if Nk is not None:
        raise InputError("--budget", f"--Nk {Nk} as well", "a budget without --Nk: it is for N = Nk")
    budget_bytes = parse_bytes(budget, p.word_bytes, "--budget")
    rows = []
    for way in KEPT:

        def needed(N: int, way: Kept = way) -> int:
            return bytes_together(replace(p, N=N, Nk=N), ("Q", "K", "V", "O", *way.tensors))

        N = last_true(lambda N: needed(N) <= budget_bytes, LARGEST_COUNT)
        row = {"kept beside Q, K, V, O": way.name, "largest_N": N, "bytes": needed(N) if N else 0}
        rows.append({**row, "budget_bytes": budget_bytes})
    return rows


def tiles_on_chip(tiles: str, p: Attention) -> list[Row]:
    """A row for each tiling as in 64x64,128x64: bytes of a tile of Q, K and V together, and the footprint of flash2,
    which also holds O, S, l and m."""
    rows: list[Row] = []
    for text in tiles.split(","):
        t = parse_tiles(text)
        tile = of_length(p, max(t.rows_q, t.rows_k), None)
        inputs = (t.rows_q * p.d + t.rows_k * (p.d + p.dv)) * p.word_bytes
        row = {"Br": t.rows_q, "Bc": t.rows_k, "QKV_bytes": inputs}
        rows.append({**row, "footprint_bytes": int(footprint(SCHEDULES["flash2"], tile, t).peak_bytes)})
    return rows


def grid(N: str, tiles: str, problem: Attention) -> list[Row]:
    """A row for each program of a one-dimensional grid: which rows of which head it has.

    Programs are numbered (batch index x heads + head) x Tr + block, where a block is a tile of query rows.
    """
    p, t = of_length(problem, parse_count(N, "--N"), None), parse_tiles(tiles)
    blocks = -(-p.N // t.rows_q)
    if p.instances * blocks > MOST_PROGRAMS:
        raise InputError("--grid", f"{p.instances * blocks} programs", f"at most {MOST_PROGRAMS}")
    rows: list[Row] = []
    for program in range(p.instances * blocks):
        instance, block = divmod(program, blocks)
        b, h = divmod(instance, p.heads)
        first = block * t.rows_q
        row = {"program": program, "batch_head": instance, "block": block, "batch": b, "head": h}
        rows.append({**row, "first_row": first, "rows": min(t.rows_q, p.N - first)})
    return rows
