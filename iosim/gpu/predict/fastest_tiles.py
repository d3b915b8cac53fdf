"""The tiles with which the generated kernels of a schedule are fastest, by the time model of `iosim.gpu.predict`.

All candidates are predicted if that takes no more than LIMIT_SECONDS on one core. Otherwise they are first predicted on
a shorter problem with as many thread blocks, and then the best of them on the problem itself, until the limit is
reached. The tiles of least traffic are predicted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ...core.tiling import MMA, Tiling
from ...counting.count import default_schedules
from ...errors import CapacityError, InputError, IosimError
from ...hardware import Hardware, measured_as
from ...schedules import Schedule, find_all, require
from ...schedules.registry import check_family
from ...search.best import best_tiles
from ...tuning.timed_tiles import FastestAnswer, FastestTiles, Progress, TimedTiles, share_of_all, sizes_up_to
from ..cuda.machine import generate
from .generated import check_room, predict_generated
from .on_request import check_compared, seconds_to_predict

if TYPE_CHECKING:
    from ...core.problem import Attention
    from ..cuda.program import Program

LIMIT_SECONDS = 30.0  # about this long for the predictions of each schedule
LEAST_IN_FULL = 3  # so many candidates are always predicted on the problem itself
SHORTEST = 256  # queries and keys of a shorter problem, at least


def fastest(
    problem: Attention,
    hardware: str,
    schedules: str | Sequence[str] = (),
    multiple: int = 1,
    progress: Progress = lambda share: None,
) -> FastestAnswer:
    """The fastest tiles of each schedule on a GPU whose rates were measured: `h100`, `h200`, or a file of `iosim
    calibrate`. InputError for another GPU."""
    chip = measured_as(hardware)
    if chip is None:
        raise InputError(
            "--hardware",
            hardware,
            "h100, h200, or a file of iosim calibrate",
            "the time model needs the rates of a GPU that was measured",
        )
    if problem.divided:
        raise InputError(
            "--predict",
            "generated with --registers or --stages",
            "one SRAM: generated kernels keep tiles in shared memory, and load one at a time",
            "leave out both",
        )
    asked = find_all(schedules) or [s for s in default_schedules(problem) if "ideal" not in s.rules]
    check_family(asked)
    results, missing = list[FastestTiles](), dict[str, str]()
    for number, schedule in enumerate(asked):
        require(schedule, problem)
        whole = partial(share_of_all, progress, number, len(asked))
        try:
            check_compared(schedule, problem)
            results.append(fastest_tiles(schedule, problem, chip, multiple, whole))
        except InputError:
            raise
        except IosimError as error:
            missing[schedule.name] = str(error)
    results.sort(key=lambda found: found.fastest.seconds)
    return FastestAnswer(problem, chip, results, missing, limit_seconds=LIMIT_SECONDS)


def fastest_tiles(
    schedule: Schedule,
    problem: Attention,
    hardware: Hardware,
    multiple: int = 1,
    progress: Progress = lambda share: None,
) -> FastestTiles:
    """The fastest tiles of one schedule, among the candidates that are multiples of `multiple`."""
    p = problem.packed
    tilings = [t for t in candidates(schedule, p, hardware) if t.rows_q % multiple == t.rows_k % multiple == 0]
    if not tilings:
        raise CapacityError("no candidate fits the shared memory of a block")
    costs = [cost(schedule, p, tiling, hardware) for tiling in tilings]
    order = list(range(len(tilings)))
    if sum(costs) > LIMIT_SECONDS:
        short = shorter(schedule, p, tilings, hardware, sum(costs))
        screened = [timed(schedule, short, tiling, hardware) for tiling in told(tilings, progress, 0)]
        order = within(sorted(order, key=lambda n: screened[n].seconds), costs)
    full = [timed(schedule, p, t, hardware) for t in told([tilings[n] for n in order], progress, 0.5)]
    best = min(full, key=lambda found: found.seconds)
    return FastestTiles(best, of_least_traffic(schedule, p, hardware, multiple), len(tilings), len(full))


def candidates(schedule: Schedule, problem: Attention, hardware: Hardware) -> list[Tiling]:
    """All pairs of SIZES whose kernel fits a block's shared memory. Sizes end at the first that holds the whole
    axis."""
    pairs = product(*(sizes_up_to(length) for length in (problem.N, problem.Nk)))
    room = hardware.shared_memory_per_block_bytes
    every = [Tiling(rows_q, rows_k) for rows_q, rows_k in pairs]
    return [tiling for tiling in every if generate(schedule, problem, tiling).smem_bytes <= room]


def cost(schedule: Schedule, problem: Attention, tiling: Tiling, hardware: Hardware) -> float:
    """The approximate seconds that the prediction of these tiles takes."""
    return seconds_to_predict(schedule, generate(schedule, problem, tiling), hardware)


def within(order: list[int], costs: list[float]) -> list[int]:
    """The first candidates of an order whose predictions together stay within the limit, and at least LEAST_IN_FULL."""
    found, spent = list[int](), 0.0
    for n in order:
        if len(found) >= LEAST_IN_FULL and spent + costs[n] > LIMIT_SECONDS / 2:
            break
        found.append(n)
        spent += costs[n]
    return found


def shorter(
    schedule: Schedule, problem: Attention, tilings: list[Tiling], hardware: Hardware, seconds: float
) -> Attention:
    """A problem with fewer queries and keys, and with more heads so that it has as many thread blocks. Predicting its
    candidates takes half of the limit, or more if it cannot be shorter."""
    short = problem
    while seconds > LIMIT_SECONDS / 2 and max(short.N, short.Nk) > SHORTEST:
        N, Nk = (max(1, min(n, SHORTEST), n // 2) for n in (short.N, short.Nk))
        group = problem.heads // problem.kv_heads
        kv_heads = short.kv_heads * -(-short.N // N)
        short = replace(short, N=N, Nk=Nk, heads=group * kv_heads, kv_heads=kv_heads)
        seconds = sum(cost(schedule, short, tiling, hardware) for tiling in tilings)
    return short


def told(tilings: Sequence[Tiling], progress: Progress, start: float) -> Iterator[Tiling]:
    """The tilings, one by one. `progress` is called with the share of the work, from `start` on."""
    share = (1.0 if start else 0.5) - start
    for done, tiling in enumerate(tilings):
        progress(start + share * done / len(tilings))
        yield tiling


def timed(schedule: Schedule, problem: Attention, tiling: Tiling, hardware: Hardware, by: str = "time") -> TimedTiles:
    """The prediction of one tiling."""
    program: Program = generate(schedule, problem, tiling)
    check_room(program, hardware)
    found = predict_generated(schedule, program, hardware)
    if found.time is None:
        raise IosimError("the rates of this GPU are not known")
    blocks = max(prod(kernel.grid) for kernel in program.kernels)
    moved = found.read_bytes + found.write_bytes
    sizes = tiling.rows_q, tiling.rows_k
    return TimedTiles(schedule.name, by, *sizes, found.time.seconds, found.time.bound_by, moved, blocks)


def of_least_traffic(schedule: Schedule, problem: Attention, hardware: Hardware, multiple: int) -> TimedTiles | None:
    """The tiles of least traffic whose kernel fits a block's shared memory, with their time; None if they take too long
    to predict, or if there are none. A kernel aligns its blocks, so it may need slightly more shared memory than its
    tiles."""
    units, M_bytes = max(multiple, MMA if problem.word_bytes == 2 else 1), hardware.sram_bytes
    while (tiling := best_tiles(schedule, problem, M_bytes, units)) is not None:
        beyond = generate(schedule, problem, tiling).smem_bytes - hardware.shared_memory_per_block_bytes
        if beyond <= 0:
            late = cost(schedule, problem, tiling, hardware) > LIMIT_SECONDS
            return None if late else timed(schedule, problem, tiling, hardware, "traffic")
        M_bytes -= beyond
        if M_bytes < 1:
            break
    return None
