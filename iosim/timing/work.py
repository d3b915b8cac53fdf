"""The work of each launch of a schedule: bytes, products, exponentials, what shared memory serves, thread blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from ..core.arrays import plus, smaller
from ..core.problem import TENSORS, Attention, as_moved, mask_matters, narrowed
from ..core.watchers import Watcher
from ..search.best import kept
from .blocks import Blocks
from .products import SharedReads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..core.machine import Block, Input, Machine, ScheduleLike
    from ..core.shapes import Shape
    from ..core.tiling import Tiling
    from ..core.typing import Size, Step
    from .products import MatrixUnit

    # The operations of one kind: products of factors, from the shapes of a step's arguments.
    OperationTerms = Callable[..., Iterable[Shape]]  # type: ignore[explicit-any]  # each step has arguments of its own


@dataclass(frozen=True)
class Work:
    """The work of one launch, over all heads. Of an Attention[Size] its numbers are arrays, with one for each problem.

    `touched` are the bytes of each tensor that are read or written at least once, {("read", "Q"): bytes}: what HBM
    moves with an ideal L2. `smem_write_bytes` are those that copies bring into shared memory. `added_bytes` are those
    of the `read_bytes` that belong to atomic adds: the L2 adds, so no multiprocessor loads them.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    matrix_flops: int = 0
    exps: int = 0
    smem_read_words: int = 0
    smem_read_bytes: int = 0
    smem_write_bytes: int = 0
    added_bytes: int = 0
    blocks: int = 1
    touched: Mapping[tuple[str, str], int] = field(default_factory=dict, hash=False)
    unmarked: frozenset[str] = frozenset()
    """Steps whose exponentials nobody stated."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all loads and stores. An atomic add is one of each."""
        return self.read_bytes + self.write_bytes

    @property
    def l2_bytes(self) -> int:
        """Bytes between multiprocessors and the L2, to which an atomic add only sends its words."""
        return self.total_bytes - self.added_bytes

    @property
    def floor_bytes(self) -> int:
        """Bytes that move if each word of a tensor is touched once."""
        return sum(self.touched.values())


NUMBERS = (
    "read_bytes", "write_bytes", "matrix_flops", "exps", "smem_read_words", "smem_read_bytes", "smem_write_bytes",
    "blocks",
)  # fmt: skip
"""The numbers of a Work."""


class WorkByLaunch(Watcher):
    """The work of one head by launch, as `Work` of all heads; `blocks` are filled in by `work_of`."""

    def __init__(self, unit: MatrixUnit) -> None:
        self.launches: list[Work] = []
        self.reads = SharedReads(unit)
        self._restart()

    def _restart(self) -> None:
        self._moved: dict[tuple[str, str], Size] = {}
        self._flops: Size = 0
        self._exps: Size = 0
        self._unmarked: set[str] = set()
        self._read = self.reads.total

    def start(self, machine: Machine) -> None:
        self.machine, self.p = machine, machine.p
        self.reads.start(machine)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self.reads.load(block, tensor, words)
        self._move("read", tensor, words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._move("write", tensor, words)

    def _move(self, way: str, tensor: str, words: Size) -> None:
        moved = self.p.in_bytes(self.machine.tensors[tensor], words) * self.p.instances
        self._moved[way, tensor] = plus(self._moved.get((way, tensor), 0), moved)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.reads.step(step, outputs, inputs, flops)
        self._flops = plus(self._flops, flops)
        work: tuple[OperationTerms, OperationTerms] | None = getattr(step, "work", None)
        if work is None:
            self._unmarked.add(step.__name__)
            return
        shapes = [getattr(x, "shape", ()) for x in (*outputs, *inputs)]
        self._exps = plus(self._exps, sum(self.machine.total(term) for term in work[0](*shapes)))

    def launch_ended(self) -> None:
        n, moved = self.p.instances, self._moved
        words = (self.reads.total - self._read) * n
        sizes = {name: self.p.whole_bytes(self.machine.tensors[name]) for _, name in moved}
        loaded = sum(many for (way, _), many in moved.items() if way == "read")
        added = sum(moved.get(("read", name), 0) for name in self.machine.adds)
        numbers = {
            "read_bytes": loaded,
            "write_bytes": sum(moved.values()) - loaded,
            "matrix_flops": self._flops * n,
            "exps": self._exps * n,
            "smem_read_words": words,
            "smem_read_bytes": words * self.p.word_bytes,
            "smem_write_bytes": loaded - added,
            "added_bytes": added,
        }
        own = {key: many for key, many in moved.items() if key[0] == "write" or key[1] not in self.machine.adds}
        touched = {key: cast("int", smaller(many, sizes[key[1]])) for key, many in own.items()}
        work = Work(**cast("dict[str, int]", numbers), touched=touched, unmarked=frozenset(self._unmarked))
        self.launches.append(work)
        self.reads.launch_ended()
        self._restart()


@kept
def work_of(
    schedule: ScheduleLike, problem: Attention[Size], tiling: Tiling[Size], unit: MatrixUnit
) -> tuple[Work, ...]:
    """The work of each launch. A mask that only hides moves no word and saves no step, and one in tiles is another mask
    with tiles of another size."""
    found = walked(schedule, problem, tiling, unit)
    if not mask_matters(schedule, problem) or problem.mask.tile_units:
        return found
    p = problem.packed
    keys = walked(schedule, narrowed(p, heads=p.kv_heads), replace(tiling, rows_q=p.N), unit)
    queries = walked(schedule, p, replace(tiling, rows_k=p.Nk), unit)
    shared = {name for name, one in {**TENSORS, **getattr(schedule, "tensors", {})}.items() if one.shared}
    return tuple(seen_once(*launches, shared) for launches in zip(found, keys, queries, strict=True))


def seen_once(work: Work, keys: Work, queries: Work, shared: set[str]) -> Work:
    """The work of a launch under a mask, whose tiles of queries see some keys in common. What all of them see, in
    tiles, is what a walk with one tile of queries loads for each KV head: `keys`. `queries` is a walk with one tile of
    keys, and `shared` are the tensors that query heads share."""
    touched = {}
    for (way, name), many in work.touched.items():
        other = (keys if name in shared else queries).touched.get((way, name), many)
        touched[way, name] = cast("int", smaller(many, other))
    return replace(work, touched=touched)


def walked(
    schedule: ScheduleLike, problem: Attention[Size], tiling: Tiling[Size], unit: MatrixUnit
) -> tuple[Work, ...]:
    """The work of each launch, in which a tensor is touched whole if so many words of it move."""
    p = as_moved(schedule, problem.packed)
    watcher = WorkByLaunch(unit)
    machine = Blocks(p, watcher).run(schedule, tiling)
    blocks = [cast("int", many * p.instances) for many in machine.launches]
    return tuple(replace(work, blocks=many) for work, many in zip(watcher.launches, blocks, strict=True))
