"""What a schedule moves and computes, over all heads: words, bytes and FLOPs, from the folded machine. Needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.folded import Folded
from ..core.problem import Attention, as_moved, narrowed
from ..core.watchers import Flops, Traffic

if TYPE_CHECKING:
    from ..core.machine import ScheduleLike, ScheduleText
    from ..core.tiling import S, Tiling
    from ..core.typing import Size

DECIMALS = 12  # of seconds that are shown; the profiler counts nanoseconds


@dataclass(frozen=True)
class Moved:
    """The traffic and the operations of a schedule, over all heads."""

    tensors: dict[str, tuple[int, int]]
    """{tensor: (words read, words written)} by the multiprocessors."""
    read_bytes: int
    write_bytes: int
    flops: int


def moved(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> Moved:
    """What a schedule moves with one tiling."""
    traffic, flops = Traffic(), Flops()
    machine = Folded(as_moved(schedule, problem), traffic, flops).run(schedule, tiling)
    n = problem.instances
    tensors = {name: (n * int(reads), n * int(writes)) for name, (reads, writes) in traffic.tensors.items()}
    width = {name: problem.hbm_bytes(machine.tensors[name]) for name in tensors}
    read_bytes, write_bytes = (sum(words[way] * width[name] for name, words in tensors.items()) for way in (0, 1))
    return Moved(tensors, read_bytes, write_bytes, n * int(flops.total))


def moved_bytes(
    schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]
) -> tuple[Size, Size]:
    """(bytes read, bytes written), of all heads. Sizes and tiles may be arrays."""
    traffic = Traffic()
    tensors = Folded(as_moved(schedule, problem), traffic).run(schedule, tiling).tensors
    width = {name: problem.hbm_bytes(tensors[name]) for name in traffic.tensors}
    reads, writes = (
        problem.instances * sum(words * width[name] for name, words in way.items())
        for way in (traffic.reads, traffic.writes)
    )
    return reads, writes


def launch_words(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> list[tuple[int, int]]:
    """(words read, words written) of each launch, of one head."""
    traffic = Traffic()
    Folded(problem, traffic).run(schedule, tiling)
    return [(int(reads), int(writes)) for reads, writes in traffic.launches]


def in_whole_tiles(p: Attention[S], t: Tiling[S]) -> Attention[S]:
    """The problem with both lengths rounded up to whole tiles: bulk copies (TMA) always load a whole one."""
    return narrowed(p, N=-(-p.N // t.rows_q) * t.rows_q, Nk=-(-p.Nk // t.rows_k) * t.rows_k)
