"""The answer about a batch in sentences: what moves least and why, and what unequal lengths cost. Imports NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..answer import rounded
from ..core.problem import narrowed
from ..counting.libraries import FA2_TILES, lacks, of_width
from ..counting.sentence import distance_to_floor, times
from ..units import decimal
from .moved import LENGTHS_BYTES, Moved, moved_by
from .requests import Request
from .ways import BY_NAME

if TYPE_CHECKING:
    from .answer import Batched

NEAR = 1.01  # ways that move up to this factor more are named together with the best


def least_of(ways: Sequence[Moved]) -> Moved | None:
    """The way that moves the fewest bytes of those that fit, or that may fit; None if none does."""
    return min((way for way in ways if way.fits is not False), key=lambda way: way.total_bytes, default=None)


def answer_lines(found: Batched) -> list[str]:
    """The sentences of an answer."""
    best = least_of(found.ways)
    if best is None:
        least = min(found.ways, key=lambda way: way.smem_peak_bytes)
        share = times(least.smem_peak_bytes, found.batch.M_bytes or 1)
        return [f"Nothing that was counted fits: {least.way} needs least, {share} times this SRAM."]
    lines = [winner(found.ways, best), distance_to_floor(best.ratio_to_floor, found.batch.M_bytes, best.way)]
    more = streams(found, best), unequal(found, best), lengths(found), shared(found)
    return [line for line in (*lines, *more) if line]


def winner(ways: Sequence[Moved], best: Moved) -> str:
    """The sentence that compares the best way with the one that moves most, and names those that are as good."""
    others = [way for way in ways if way is not best and way.fits is not False]
    if not others:
        return f"{best.way} moves {best.total:,} words."
    near = [way.way for way in others if way.total_bytes <= NEAR * best.total_bytes]
    last = max(others, key=lambda way: way.total_bytes)
    share = times(last.total_bytes, best.total_bytes)
    along = f" {', '.join(near)} {'moves' if len(near) == 1 else 'move'} at most 1.01 times as much." if near else ""
    if last.way in near:
        return f"{best.way} moves least, {best.total_bytes:,} B.{along}"
    return f"{best.way} moves {share}x fewer bytes than {last.way}: {why(best, last)}.{along}"


def why(best: Moved, last: Moved) -> str:
    """The reason for a difference between two ways."""
    mine, its = best.kv_times_read, last.kv_times_read
    reasons = []
    if its > mine * 1.005:
        reasons.append(f"keys and values are read {often(mine)}, not {often(its)}")
    parts = [name for name in last.tensors if name not in best.tensors]
    if parts and (not reasons or share_of(last, parts) > 0.1):
        reasons.append(f"{' and '.join(parts)} {'never goes' if len(parts) == 1 else 'never go'} through HBM")
    return ", and ".join(reasons) or "it reads Q fewer times"


def share_of(way: Moved, names: Sequence[str]) -> float:
    """The share of the bytes of some tensors."""
    return sum(way.tensors[name]["bytes"] for name in names) / way.total_bytes


def often(number: float) -> str:
    """A number of times, as `once` or `4.02 times`."""
    return "once" if abs(number - 1) < 0.005 else f"{rounded(number)} times"


def streams(found: Batched, best: Moved) -> str:
    """The sentence about two figures that people print for a batch of several new tokens a request: the keys and
    values of the cache for each new token, and each key and value once."""
    batch = found.batch
    if batch.single or batch.tokens == batch.new_tokens:
        return ""
    stream, once = stream_bytes(found), once_bytes(found)
    way = next((way for way in found.ways if way.way == "repeat"), best)
    kept = sum(way.tensors.get(name, {"bytes": 0})["bytes"] for name in batch.problem.cache_tensors)
    rows = way.tiles.split("x")[0]
    shared = f"the queries of a tile of {rows} rows share what it loads"
    several = batch.problem.heads > batch.problem.kv_heads
    why = "each query head loads the keys and values of its KV head" if several and kept > stream else shared
    return (
        f"A stream of the cached keys and values for each new token would be {stream:,} B ({decimal(stream)}), and "
        f"each key and value once is {once:,} B ({decimal(once)}): {way.way} reads {kept:,} B of them "
        f"({decimal(kept)}), because {why}."
    )


def token_bytes(found: Batched) -> int:
    """The bytes of keys and values of one token, over all KV heads and layers."""
    from ..core.problem import TENSORS

    p = narrowed(found.batch.problem, N=1, Nk=1)
    each = sum(p.length(TENSORS[name].axes[1]) * p.hbm_bytes(TENSORS[name]) for name in p.cache_tensors)
    return each * p.kv_heads * p.batch


def stream_bytes(found: Batched) -> int:
    """The bytes of keys and values if each new token reads the cached ones of its request by itself."""
    shapes = found.batch.shapes
    return shapes.sum((shapes.tokens - shapes.new).astype(object) * shapes.new) * token_bytes(found)


def once_bytes(found: Batched) -> int:
    """The bytes of keys and values, each once."""
    return found.batch.distinct_tokens * token_bytes(found)


def unequal(found: Batched, best: Moved) -> str:
    """The sentence about what unequal lengths cost: the largest block, and requests padded to the longest."""
    batch = found.batch
    if len(batch.shapes) == 1:
        return ""
    parts = []
    if best.largest_block is not None:
        parts.append(
            f"the largest block of {best.way} moves {rounded(best.largest_block)} times the words of the mean block"
        )
    padded = padded_bytes(found, best)
    if padded is not None:
        parts.append(
            f"padded to the longest request it would move {times(padded, best.total_bytes)} times as many bytes"
        )
    text = ", and ".join(parts)
    return f"Lengths are unequal: {text}." if text else ""


def padded_bytes(found: Batched, best: Moved) -> int | None:
    """The bytes that a way would move if all requests were as long as the longest; None if it cannot be run so."""
    batch, way = found.batch, BY_NAME.get(best.way)
    longest = Request(int(batch.shapes.new.max()), int(batch.shapes.tokens.max()), batch.shapes.requests)
    alike = replace(batch, requests=[longest])
    if way is None or way.fails(alike):
        return None
    return moved_by(alike, way, None, 1).total_bytes


def lengths(found: Batched) -> str:
    """The sentence about the cumulative lengths that a kernel for unequal lengths loads beside its schedule."""
    name = "pack" if found.batch.single and found.batch.group > 1 else "repeat"
    way = next((way for way in found.ways if way.way == name), None)
    batch = found.batch
    if way is None or batch.shapes.requests == 1 or lacks(batch.problem) or way.tiles != tiles_of_torch(found):
        return ""
    grid = way.grid_blocks * batch.layers
    return (
        f"PyTorch's kernel for unequal lengths also loads {LENGTHS_BYTES} B of lengths in each of the {grid:,} blocks "
        f"of its grid: {way.way} then reads {way.read_bytes + way.lengths_bytes:,} B."
    )


def tiles_of_torch(found: Batched) -> str:
    """The tiles of PyTorch's kernel, which is FlashAttention-2, as a way has them."""
    tiles = of_width(FA2_TILES, found.batch.problem)
    return f"{tiles.rows_q}x{tiles.rows_k}"


def shared(found: Batched) -> str:
    """The sentence about tokens that several requests have in common."""
    batch = found.batch
    if not batch.tree.shared:
        return ""
    number = len(batch.tree.shared)
    parts = "one prefix" if number == 1 else f"{number} parts of prefixes"
    return (
        f"{batch.tokens:,} tokens are {batch.distinct_tokens:,} distinct ones: several requests have {parts} in "
        "common, and the floor counts each token once."
    )
