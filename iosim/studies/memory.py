"""What attention keeps in memory, in bytes: scores, inputs, row statistics; the largest N for a budget; a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..core.problem import TENSORS, Attention
from ..core.tiling import parse_tiles
from ..errors import InputError
from ..schedules import SCHEDULES
from ..search.best import footprint, last_true
from ..units import LARGEST_COUNT, parse_axis, parse_bytes, parse_count

MOST_PROGRAMS = 2**16
Row = dict[str, Any]


class Kept(NamedTuple):
    """What a way to compute attention holds in device memory beside Q, K, V and O."""

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
    """Bytes of a tensor in HBM over batch and heads; K and V once for each KV head."""
    tensor = TENSORS[name]
    words = p.batch * (p.kv_heads if name in ("K", "V") else p.heads)
    for length in p.shape(tensor):
        words = words * length
    return int(words * p.hbm_bytes(tensor))


def together(p: Attention, names: tuple[str, ...]) -> int:
    return sum(tensor_bytes(p, name) for name in names)


def sizes(p: Attention) -> Row:
    """One row: bytes over batch and heads. Traffic of scores: S written and read, P written and read; its share is of
    that and of Q, K, V, O moved once, which is what Algorithm 0 moves."""
    traffic = 2 * together(p, ("S", "P"))
    return {
        "N": p.N,
        "Nk": p.Nk,
        "S_bytes": tensor_bytes(p, "S"),
        "S_and_P_bytes": together(p, ("S", "P")),
        "score_traffic_bytes": traffic,
        "score_traffic_share": traffic / (traffic + together(p, ("Q", "K", "V", "O"))),
        "Q_bytes": tensor_bytes(p, "Q"),
        "KV_bytes": together(p, ("K", "V")),
        "O_bytes": tensor_bytes(p, "O"),
        "l_and_m_bytes": together(p, ("l", "m")),
        "LSE_bytes": tensor_bytes(p, "LSE"),
    }


def of_length(p: Attention, N: int, Nk: int | None) -> Attention:
    """The problem with N queries and Nk keys (None: as many)."""
    return replace(p, N=N, Nk=N if Nk is None else Nk)


def sizes_of_axis(axis: str, p: Attention, Nk: int | None) -> list[Row]:
    """A row for each N of an axis as in 1024,4096 or 1024:32768:x2."""
    axis_N = parse_axis(axis, "--N", lambda text: parse_count(text, "--N"))
    return [sizes(of_length(p, N, Nk)) for N in axis_N]


def largest(budget: str, p: Attention, Nk: int | None) -> list[Row]:
    """For each way, the largest N = Nk whose Q, K, V, O and what it keeps take at most the budget (0: none does)."""
    if Nk is not None:
        raise InputError("--budget", f"--Nk {Nk} as well", "a budget without --Nk: it is for N = Nk")
    budget_bytes = parse_bytes(budget, p.word_bytes, "--budget")
    rows = []
    for way in KEPT:

        def needed(N: int, way: Kept = way) -> int:
            return together(replace(p, N=N, Nk=N), ("Q", "K", "V", "O", *way.tensors))

        N = last_true(lambda N: needed(N) <= budget_bytes, LARGEST_COUNT)
        row = {"kept beside Q, K, V, O": way.name, "largest_N": N, "bytes": needed(N) if N else 0}
        rows.append({**row, "budget_bytes": budget_bytes})
    return rows


def tiles_on_chip(tiles: str, p: Attention) -> list[Row]:
    """Bytes of one tile of Q, of K and of V; and the footprint of flash2, which has O, S, l and m as well."""
    rows = []
    for text in tiles.split(","):
        t = parse_tiles(text)
        tile = of_length(p, max(t.rows_q, t.rows_k), None)
        inputs = (t.rows_q * p.d + t.rows_k * (p.d + p.dv)) * p.word_bytes
        row = {"Br": t.rows_q, "Bc": t.rows_k, "QKV_bytes": inputs}
        rows.append({**row, "footprint_bytes": int(footprint(SCHEDULES["flash2"], tile, t).peak_bytes)})
    return rows


def grid(N: str, tiles: str, problem: Attention) -> list[Row]:
    """A row for each program of a one-dimensional grid, blocks of query rows innermost:
    program = (batch index x heads + head) x Tr + block."""
    p, t = of_length(problem, parse_count(N, "--N"), None), parse_tiles(tiles)
    blocks = -(-p.N // t.rows_q)
    if p.instances * blocks > MOST_PROGRAMS:
        raise InputError("--grid", f"{p.instances * blocks} programs", f"at most {MOST_PROGRAMS}")
    rows = []
    for program in range(p.instances * blocks):
        instance, block = divmod(program, blocks)
        b, h = divmod(instance, p.heads)
        first = block * t.rows_q
        row = {"program": program, "batch_head": instance, "block": block, "batch": b, "head": h}
        rows.append({**row, "first_row": first, "rows": min(t.rows_q, p.N - first)})
    return rows
