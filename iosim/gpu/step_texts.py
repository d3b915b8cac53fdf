"""The texts whose kernels `step_rates.py` measures: a tile of flash2, and one step again and again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..cuts import WHOLE_TURNS, busiest_rows, row_parts
from ..experiment import parse_mask
from ..machine import Block, Tile
from ..problem import DENSE, Attention
from ..schedules.standard import output_pass, score_pass
from ..softmax import (
    accumulate,
    denormalise,
    hide,
    minus_infinity,
    normalise,
    online_softmax,
    scores,
    softmax_rows,
    zeros,
)
from ..steps_more import add_maximum_and_sum, exponentials
from ..tiling import Tiling
from ..works import ROW_STEPS
from .cuda import generate

ROWS = 64
SIZES = ((64, 64), (64, 16))  # keys of a tile, d
FEWER_KEYS = ((64, 64), (16, 64))
# Those whose work falls with the keys, and not with d.
OF_KEYS = ("hide", "online_softmax", "softmax_rows", "add_maximum_and_sum", "exponentials")
# A product, one of less depth, one with less output as well.
PRODUCTS = {"scores": (*SIZES, (16, 16)), "accumulate": (*FEWER_KEYS, (16, 16))}
ODD = ((317, 64),)  # keys of a row, which are four tiles and one that is shorter, and d
# Of a tile of keys, one that takes long to ask for, and one that is mostly latency.
WIDE = {"load": ((64, 128), (16, 16)), "load_Q": ((64, 128), (64, 32))}
MARGIN = 4  # rows less than a tile has room for
# Those that go over a ragged tile in a loop of their own (tiles.cuh, steps.cuh).
OF_RAGGED = ("load_Q", "online_softmax", "add_maximum_and_sum", "exponentials", "normalise", "store")
SHORT, LONG = 16, 81
KINDS = {"tensor": ("fp16", 16), "simt": ("fp32", 8)}  # type, rows of a warp
MASK = parse_mask("causal")  # of a tile where the keys are as many as the queries, or more, it hides some words
WORDS_TOGETHER = 4  # of S, in 16 bytes
Repeat = Callable[[Any, SimpleNamespace], None]

# What is repeated, on the blocks of a tile, and its work of (rows, keys, d, bytes a word): flops of products, bytes of
# a copy, else words.
STEPS: dict[str, tuple[Repeat, Callable[[int, int, int, int], int]]] = {
    "scores": (lambda on, at: on.update(at.s, scores, at.q, at.k), lambda r, c, d, b: 2 * r * c * d),
    "accumulate": (lambda on, at: on.update(at.o, accumulate, at.s, at.v), lambda r, c, d, b: 2 * r * c * d),
    "hide": (lambda on, at: on.update(at.s, hide, at.part), lambda r, c, d, b: r * c),
    "online_softmax": (lambda on, at: on.update((at.s, at.m, at.l, at.o), online_softmax), lambda r, c, d, b: r * c),
    "softmax_rows": (lambda on, at: on.update(at.s, softmax_rows), lambda r, c, d, b: r * c),
    "add_maximum_and_sum": (
        lambda on, at: on.update((at.m, at.l), add_maximum_and_sum, at.s),
        lambda r, c, d, b: r * c,
    ),
    "exponentials": (lambda on, at: on.update(at.s, exponentials, at.m), lambda r, c, d, b: r * c),
    "normalise": (lambda on, at: on.update(at.o, normalise, at.l), lambda r, c, d, b: r * d),
    "denormalise": (lambda on, at: on.update(at.o, denormalise, at.l), lambda r, c, d, b: r * d),
    "zeros": (lambda on, at: on.update(at.o, zeros), lambda r, c, d, b: r * d),
    "load": (lambda on, at: on.load("K", at.j), lambda r, c, d, b: c * d * b),
    "load_Q": (lambda on, at: on.load("Q", at.i), lambda r, c, d, b: r * d * b),
    "load_O": (lambda on, at: on.load("O", at.i), lambda r, c, d, b: r * d * b),
    "load_l": (lambda on, at: on.load("l", at.i), lambda r, c, d, b: r * 4),
    "store": (lambda on, at: on.store(at.o, "O", at.i), lambda r, c, d, b: r * d * b),
}
# Copies of single words, of 2 bytes: tiles of S whose rows start anywhere in HBM.
SCALAR: dict[str, Callable[..., None]] = {
    "load_scalar": lambda on, i, j, s: on.load("S", i, j),
    "store_scalar": lambda on, i, j, s: on.store(s, "S", i, j),
}


def ragged_text_of(name: str, times: int) -> Callable[..., None]:
    """The same of the tiles of a row of S."""

    def repeated(chip: Any, p: Any, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            for j in chip.tiles(p.Nk, t.rows_k):
                s = chip.compute("S", (i, j), zeros)
                for _ in chip.tiles(times, 1):
                    SCALAR[name](chip, i, j, s)
                chip.store(s, "S", i, j)

    return repeated


# The launches in which the same copies stand between other steps.
PASSING = {"load_scalar": output_pass, "store_scalar": score_pass}


def text_of(repeat: Repeat, times: int) -> Callable[..., None]:
    """A row of tiles of flash2 in each block, and one step again and again in each, or not at all. With several rows a
    block has them all."""

    def text(chip: Any, p: Any, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=t.rows_q >= p.N):
            q = chip.load("Q", i)
            o = chip.compute("O", (i, p.dv), zeros)
            l = chip.compute("l", (i,), zeros)
            m = chip.compute("m", (i,), minus_infinity)
            for j in chip.tiles(p.Nk, t.rows_k):
                k, v = chip.load("K", j), chip.load("V", j)
                s = chip.compute("S", (i, j), scores, q, k)
                chip.update((s, m, l, o), online_softmax)
                chip.update(o, accumulate, s, v)
                at = SimpleNamespace(i=i, j=j, q=q, k=k, v=v, s=s, m=m, l=l, o=o, part=p.mask.part(i, j))
                for _ in chip.tiles(times, 1) if times else ():
                    repeat(chip, at)
            chip.store(o, "O", i)

    return text


def program_of(
    name: str,
    dtype: str,
    times: int,
    heads: int,
    rows: int = ROWS,
    size: tuple[int, int] = SIZES[0],
    ragged: bool = False,
) -> Any:
    """`ragged`: there are WHOLE_TURNS tiles of rows, and another that is MARGIN shorter."""
    keys, d = size
    if name in SCALAR:
        problem = Attention(rows, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32")
        return generate(ragged_text_of(name, times), problem, Tiling(rows, ROWS))
    N, mask = (WHOLE_TURNS + 1) * rows - MARGIN if ragged else rows, MASK if name == "hide" else DENSE
    problem = Attention(N, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32", mask=mask)
    return generate(text_of(STEPS[name][0], times), problem, Tiling(rows, keys))


def work_of(name: str, kind: str, rows: int, size: tuple[int, int], ragged: bool = False) -> int:
    """Of the tile that counts, which is the last. Tensor cores want the margins of a copy filled."""
    keys, d = size
    if name in SCALAR:
        return rows * keys * 2
    rows -= MARGIN if ragged and (kind, name) != ("tensor", "load_Q") else 0
    return STEPS[name][1](rows, keys, d, 2 if kind == "tensor" else 4)


def chain_of(name: str, kind: str, rows: int, size: tuple[int, int], ragged: bool = False) -> int:
    """The same if all warps had as much as the busiest, as works.py has it."""
    work = work_of(name, kind, rows, size, ragged)
    if not ragged or (kind, name) == ("tensor", "load_Q"):  # which fills the margins, too
        return work
    left, own = rows - MARGIN, KINDS[kind][1]
    tile = Block(name, (Tile(left + rows, left, rows, 1), size[0]), None, 0)
    at_once = row_parts(tile, WORDS_TOGETHER)[0] if name in ROW_STEPS else 1
    return round(work * busiest_rows(tile, rows // own, kind == "tensor", at_once) * (rows // own) / left)
