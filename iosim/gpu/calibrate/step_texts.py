"""The schedules whose kernels calibrate/steps.py measures: flash2 that repeats one step of a tile, and copies of words.

MEASURED_STEPS and SCALAR list what is repeated. The functions below make programs of it, and return the work of a
repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...core.machine import Block, Machine
from ...core.problem import DENSE, Attention
from ...core.shapes import Tile
from ...core.tiling import Tiling
from ...masks import parse_mask
from ...schedules.standard import output_pass, score_pass
from ...steps.passes_and_linear import add_maximum_and_sum, exponentials
from ...steps.softmax import (
    Cost,
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
from ..cuda.machine import generate
from ..cuda.program import Program
from ..cuda.warp_split import WHOLE_TURNS, busiest_rows, row_parts
from ..predict.block_work import (
    COPY,
    LOAD,
    LOAD_CONVERTED,
    LOAD_SCALAR,
    LOAD_VECTOR,
    STORE,
    STORE_SCALAR,
    Unit,
    cost_of,
)

if TYPE_CHECKING:
    from ...core.machine import ScheduleText

TILE_ROWS = 64  # of a tile
MARGIN = 4  # rows of its room that a ragged tile does not use
SHORT, LONG = 16, 81  # the two numbers of repetitions that are compared
UNIT_TYPES: dict[Unit, tuple[str, int]] = {
    "tensor": ("fp16", 16),
    "simt": ("fp32", 8),
}  # {unit: (dtype, rows of a warp)}
MASK = parse_mask("causal")  # hides some words of the tile, which has at least as many keys as queries
WORDS_TOGETHER = 4  # words of S in 16 bytes

TileSize = tuple[int, int]
"""(keys of a tile, d)."""
TILE_SIZES: tuple[TileSize, ...] = ((64, 64), (64, 16))
FEWER_KEYS: tuple[TileSize, ...] = ((64, 64), (16, 64))
ODD: tuple[TileSize, ...] = ((317, 64),)  # a row of S in four whole tiles and a smaller one; its length is odd

Repeat = Callable[[Machine, SimpleNamespace], object]
LOAD_ROWS = "load_Q"


@dataclass(frozen=True)
class MeasuredStep:
    """A step that is repeated on the blocks of a tile, and how its work is counted."""

    repeat: Repeat
    work: Callable[[int, int, int, int], int]
    """The work of one repetition, from (rows, keys, d, bytes of a word): flops of a product, bytes of a copy, else
    words."""
    cost: Cost = COPY
    sizes: tuple[TileSize, ...] = TILE_SIZES
    """Two sizes of tile, which give a fixed time and a rate. For a product a third one, with a smaller output too."""
    whole: bool = True
    """It is measured on whole tiles."""
    ragged: bool = False
    """It is measured on ragged tiles, for which it has another loop (cuda/tiles.cuh, steps/softmax.cuh)."""


def product_flops(rows: int, keys: int, d: int, width: int) -> int:
    return 2 * rows * keys * d


def words_of_scores(rows: int, keys: int, d: int, width: int) -> int:
    return rows * keys


def words_of_output(rows: int, keys: int, d: int, width: int) -> int:
    return rows * d


def bytes_of_rows(rows: int, keys: int, d: int, width: int) -> int:
    return rows * d * width


def on_scores(step: object, repeat: Repeat, ragged: bool = False) -> MeasuredStep:
    """A step over S, whose work depends on the keys and not on d."""
    return MeasuredStep(repeat, words_of_scores, cost_of(step), FEWER_KEYS, ragged=ragged)


def on_output(step: object, repeat: Repeat, ragged: bool = False) -> MeasuredStep:
    """A step over O, whose work depends on d and not on the keys."""
    return MeasuredStep(repeat, words_of_output, cost_of(step), ragged=ragged)


MEASURED_STEPS: dict[str, MeasuredStep] = {
    "scores": MeasuredStep(
        lambda on, at: on.update(at.s, scores, at.q, at.k), product_flops, cost_of(scores), (*TILE_SIZES, (16, 16))
    ),
    "accumulate": MeasuredStep(
        lambda on, at: on.update(at.o, accumulate, at.s, at.v),
        product_flops,
        cost_of(accumulate),
        (*FEWER_KEYS, (16, 16)),
    ),
    "hide": on_scores(hide, lambda on, at: on.update(at.s, hide, at.part)),
    "online_softmax": on_scores(
        online_softmax, lambda on, at: on.update((at.s, at.m, at.l, at.o), online_softmax), ragged=True
    ),
    "softmax_rows": on_scores(softmax_rows, lambda on, at: on.update(at.s, softmax_rows)),
    "add_maximum_and_sum": on_scores(
        add_maximum_and_sum, lambda on, at: on.update((at.m, at.l), add_maximum_and_sum, at.s), ragged=True
    ),
    "exponentials": on_scores(exponentials, lambda on, at: on.update(at.s, exponentials, at.m), ragged=True),
    "normalise": on_output(normalise, lambda on, at: on.update(at.o, normalise, at.l), ragged=True),
    "denormalise": on_output(denormalise, lambda on, at: on.update(at.o, denormalise, at.l)),
    "zeros": on_output(zeros, lambda on, at: on.update(at.o, zeros)),
    # Loads of a tile of K: at the larger size asking takes long, at the smaller one it is mostly latency.
    LOAD: MeasuredStep(
        lambda on, at: on.load("K", at.j), lambda rows, keys, d, width: keys * d * width, sizes=((64, 128), (16, 16))
    ),
    LOAD_ROWS: MeasuredStep(
        lambda on, at: on.load("Q", at.i), bytes_of_rows, sizes=((64, 128), (64, 32)), whole=False, ragged=True
    ),
    LOAD_CONVERTED: MeasuredStep(lambda on, at: on.load("O", at.i), bytes_of_rows),
    LOAD_VECTOR: MeasuredStep(lambda on, at: on.load("l", at.i), lambda rows, keys, d, width: rows * 4),
    STORE: MeasuredStep(lambda on, at: on.store(at.o, "O", at.i), bytes_of_rows, ragged=True),
}
# Copies of single words of 2 bytes: tiles of S whose rows start anywhere in HBM.
SCALAR: dict[str, Callable[[Machine, Tile, Tile, Block], object]] = {
    LOAD_SCALAR: lambda on, i, j, s: on.load("S", i, j),
    STORE_SCALAR: lambda on, i, j, s: on.store(s, "S", i, j),
}
# The launches in which the same copies stand between other steps (`in_passing` of calibrate/steps.py).
PASSING: dict[str, ScheduleText] = {LOAD_SCALAR: output_pass, STORE_SCALAR: score_pass}


def is_product(name: str) -> bool:
    return name in MEASURED_STEPS and bool(MEASURED_STEPS[name].cost.product)


def measured_sizes(name: str) -> tuple[TileSize, ...]:
    """The sizes of tile with which a step is measured."""
    return ODD if name in SCALAR else MEASURED_STEPS[name].sizes


def scalar_text(name: str, times: int) -> ScheduleText:
    """A schedule that copies each tile of a row of S word by word, `times` times."""

    def repeated(chip: Machine, p: Attention, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            for j in chip.tiles(p.Nk, t.rows_k):
                s = chip.compute("S", (i, j), zeros)
                for _ in chip.tiles(times, 1):
                    SCALAR[name](chip, i, j, s)
                chip.store(s, "S", i, j)

    return repeated


def repeated_step(repeat: Repeat, times: int) -> ScheduleText:
    """A schedule like flash2 in which each tile repeats one step `times` times. One block works on all row tiles."""

    def text(chip: Machine, p: Attention, t: Tiling) -> None:
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
    rows: int = TILE_ROWS,
    size: TileSize = TILE_SIZES[0],
    ragged: bool = False,
) -> Program:
    """The program that repeats a step. `ragged`: it has WHOLE_TURNS tiles of rows, then one with MARGIN rows less."""
    keys, d = size
    if name in SCALAR:
        problem = Attention(rows, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32")
        return generate(scalar_text(name, times), problem, Tiling(rows, TILE_ROWS))
    step = MEASURED_STEPS[name]
    N, mask = (WHOLE_TURNS + 1) * rows - MARGIN if ragged else rows, MASK if step.cost.hides else DENSE
    problem = Attention(N, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32", mask=mask)
    return generate(repeated_step(step.repeat, times), problem, Tiling(rows, keys))


def fills_margin(name: str, unit: Unit, ragged: bool) -> bool:
    """Whether a copy of a ragged tile takes as long as that of a whole one, because its margins are filled for tensor
    cores."""
    return ragged and unit == "tensor" and name == LOAD_ROWS


def work_of(name: str, unit: Unit, rows: int, size: TileSize, ragged: bool = False) -> int:
    """The work of one repetition on the last tile, which is the ragged one if there is any."""
    keys, d = size
    if name in SCALAR:
        return rows * keys * 2
    rows -= MARGIN if ragged and not fills_margin(name, unit, ragged) else 0
    return MEASURED_STEPS[name].work(rows, keys, d, 2 if unit == "tensor" else 4)


def chain_of(name: str, unit: Unit, rows: int, size: TileSize, ragged: bool = False) -> int:
    """The work of one repetition if all warps had as much as the busiest one (predict/block_work.py)."""
    work = work_of(name, unit, rows, size, ragged)
    if not ragged or fills_margin(name, unit, ragged):
        return work
    left, own = rows - MARGIN, UNIT_TYPES[unit][1]
    tile = Block(name, (Tile(left + rows, left, rows, 1), size[0]), None, 0)
    at_once = row_parts(tile, WORDS_TOGETHER)[0] if MEASURED_STEPS[name].cost.rows else 1
    return round(work * busiest_rows(tile, rows // own, unit == "tensor", at_once) * (rows // own) / left)
