"""The machine that writes CUDA: `generate` turns a schedule into a program of kernels. It needs no GPU.

The other three machines count, carry arrays, or visit every tile (core/). Here each file does one part of the work:

- record.py runs the schedule's function once and keeps its statements, launch by launch.
- plan.py decides on threads and tensor cores, and places the blocks.
- write.py writes a kernel, with barriers from barriers.py and expressions from expressions.py.

The kernels call tile steps, which are written by hand: CUDA in steps/*.cuh, on the types and copies of cuda/*.cuh.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...core.dependent_tiles import Stretch
from ...core.folded import Folded
from ...core.problem import DENSE, Attention, Tensor
from ...core.shapes import product
from ...core.tiling import Tiling
from ...core.watchers import Capacity
from ...errors import InputError, InternalError, IosimError, ScheduleError
from .expressions import turns_of
from .mask_tables import Tables
from .plan import ROW_WORDS, grid_loop, make_plan, padded_size, tensors_of
from .program import HbmArray, Kernel, Program
from .record import Body, LoadNode, Recorder, StepNode, StoreNode, SymbolicTile, statements
from .write import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...core.machine import Block, ScheduleLike, ScheduleText
    from ...core.shapes import Tile
    from ...core.typing import Size

STEP_NAMES = ("softmax", "passes", "backward", "state", "state_backward")
STEP_FILES = tuple(f"steps/{name}.cuh" for name in STEP_NAMES)
PRELUDE_FILES = ("gpu/cuda/ptx.cuh", "gpu/cuda/tiles.cuh", "gpu/cuda/mma.cuh", "gpu/cuda/products.cuh", *STEP_FILES)
KERNEL_DTYPES = ("fp32", "fp16", "bf16")
MOST_INSTANCES = 65_535  # of a grid along y (CUDA programming guide)
MOST_POSITIONS = 2**30  # of an axis: the sum of two positions is an int; words have 64 bits


def generate(
    schedule: ScheduleLike | ScheduleText,
    problem: Attention,
    tiling: Tiling,
    count: bool = False,
    tensor_cores: bool | None = None,
    row_words: int = ROW_WORDS,
) -> Program:
    """The CUDA C++ program of a Schedule, or of the function of one, for one problem and one tiling.

    `count` compiles the word counters in. `tensor_cores`: None uses them if dtype and sizes allow it, False never, True
    raises InputError if no launch can use them. `row_words`: words of the largest tile for each thread if all threads
    share each row. Raises InputError for dtypes, and ScheduleError for steps, that have no CUDA.
    """
    problem = problem.packed
    check_problem(problem)
    recorder = Recorder(problem).run(schedule, tiling)
    p, tensors, launches = cast("Attention", recorder.p), recorder.tensors, recorder.launches
    check_axes(p, tensors)
    steps = check_steps(launches)
    plans = [make_plan(p, body, tensor_cores is not False, row_words) for body in launches]
    if tensor_cores and not any(plan.tensor_cores for plan in plans):
        allowed = "fp16 or bf16, d a multiple of 16, tiles of 16 or more"
        raise InputError("tensor cores", f"{p.dtype}, {tiling}", allowed)
    counters = counters_of(launches)
    tables = None if p.mask is DENSE else Tables(p.mask)
    name = name_of(schedule)
    names = [name] if len(launches) == 1 else [f"{name}_{k}" for k in range(len(launches))]
    writers = [Writer(name, p, tensors, plan, tables, counters) for name, plan in zip(names, plans, strict=True)]
    kernels = [kernel_of(writer, body) for writer, body in zip(writers, launches, strict=True)]
    constants = tables.constants if tables else ""
    source = "\n".join([prelude(), constants, *steps, *(kernel.source for kernel in kernels)])
    rounded, plain = padded_footprints(schedule, p, tiling, [plan.tensor_cores for plan in plans])
    program = Program(
        name,
        problem,
        tiling,
        tuple(kernels),
        source,
        arrays_of(p, tensors, launches),
        rounded,
        plain,
        tuple(counters),
        tables.arguments if tables else {},
        filled_before(schedule, launches),
        count,
    )
    if program.smem_bytes < program.footprint_bytes:
        sizes = f"laid out in {program.smem_bytes} B, but {program.footprint_bytes} B live at once"
        raise InternalError(f"{name}: {sizes}")
    return program


def kernel_of(writer: Writer, body: Body) -> Kernel:
    """One launch: its source, grid, threads and arguments."""
    source, loop, plan = writer.kernel(body), grid_loop(body), writer.plan
    turns = 1 if loop is None else turns_of(loop.tile)
    return Kernel(
        writer.name,
        source,
        (turns, writer.p.instances, 1),
        (plan.threads, 1, 1),
        plan.smem_bytes,
        tuple(dict.fromkeys(name for names in tensors_of(body) for name in names)),
        writer.table_arguments,
        plan.tensor_cores,
        plan.blocks,
    )


def name_of(schedule: ScheduleLike | ScheduleText) -> str:
    """The name of a schedule or a function, in a form that a C name may contain."""
    return re.sub(r"\W", "_", str(getattr(schedule, "name", None) or getattr(schedule, "__name__", "")))


def check_problem(p: Attention) -> None:
    """Raise InputError for a problem that no kernel can be generated for."""
    for option, dtype in (("--dtype", p.dtype), ("--acc-dtype", str(p.acc_dtype))):
        if dtype not in KERNEL_DTYPES:
            raise InputError(option, dtype, f"{', '.join(KERNEL_DTYPES)} on a GPU")
    if p.cache_dtype not in (*KERNEL_DTYPES, "fp8"):
        raise InputError("--kv-dtype", p.cache_dtype, f"{', '.join(KERNEL_DTYPES)}, fp8 on a GPU")
    if p.instances > MOST_INSTANCES:
        raise InputError("--heads x --batch", p.instances, f"at most {MOST_INSTANCES} on a GPU")


def check_axes(p: Attention, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError for an axis whose positions are no ints in a kernel."""
    for name, tensor in tensors.items():
        if (longest := max(p.shape(tensor))) > MOST_POSITIONS:
            found = f"{longest} positions of {name}"
            raise InputError("an axis of a kernel", found, f"at most {MOST_POSITIONS}", "try smaller sizes")


@lru_cache(maxsize=1)
def prelude() -> str:
    """The CUDA that every program starts with."""
    return "".join(source_of(name).replace("#pragma once\n", "") for name in PRELUDE_FILES)


def source_of(file: str) -> str:
    """The text of a file of the package."""
    return (Path(__file__).parent.parent.parent / file).read_text()


@lru_cache(maxsize=1)
def known_steps() -> frozenset[str]:
    """The names of iosim's own steps, which have CUDA."""
    return frozenset(name for file in STEP_FILES for name in re.findall(r"STEP (\w+)\(", source_of(file)))


def check_steps(launches: list[Body]) -> list[str]:
    """The CUDA of the steps that bring their own, as `step.cuda = "..."`. Raises ScheduleError for a step without
    CUDA."""
    steps = {
        node.step.__name__: node.step for body in launches for node in statements(body) if isinstance(node, StepNode)
    }
    for name, step in steps.items():
        ours, of_iosim = name in known_steps(), step.__module__.startswith(__package__.partition(".")[0] + ".")
        if ours and not of_iosim:
            raise ScheduleError(f"step {name!r} has the name of a step of iosim, whose CUDA it would get: rename it")
        if of_iosim and not ours:
            raise ScheduleError(f"no kernel can be generated, step {name!r} has no CUDA: verify --cpu runs it in NumPy")
        if not ours and not hasattr(step, "cuda"):
            raise ScheduleError(
                f"step {name!r} has no CUDA: use those that have ({', '.join(sorted(known_steps()))}), or give it its "
                f'own as {name}.cuda = "template <class B> STEP {name}(const B& block) {{ ... }}"'
            )
    return [step.cuda for step in steps.values() if hasattr(step, "cuda")]


def counters_of(launches: list[Body]) -> list[tuple[str, str]]:
    """(tensor, "reads" or "writes") for every word of the array `counts`, in its order."""
    found: dict[tuple[str, str], None] = {}
    for body in launches:
        reads, writes = tensors_of(body)
        found.update(dict.fromkeys([*((n, "reads") for n in reads), *((n, "writes") for n in writes)]))
    return list(found)


def filled_before(schedule: ScheduleLike | ScheduleText, launches: list[Body]) -> tuple[str, ...]:
    """The tensors that the host fills: those read before they are written, and those of which not all words are
    written: a part of an axis, or what the schedule calls `initialised`."""
    stores = [node for body in launches for node in statements(body) if isinstance(node, StoreNode)]
    parts = [node.tensor for node in stores for x in node.place if isinstance(parent_of(x), Stretch)]
    return tuple(dict.fromkeys([*read_first(launches), *getattr(schedule, "initialised", ()), *parts]))


def parent_of(x: Tile | Size) -> Tile | None:
    """The part of an axis that the loop of a tile goes over; None if it is a whole axis, or there is no loop."""
    return x.parent if isinstance(x, SymbolicTile) else None


def read_first(launches: list[Body]) -> tuple[str, ...]:
    """The tensors that are both read and written, and read first."""
    met: set[str] = set()
    first: dict[str, None] = {}
    both = {name for body in launches for name in tensors_of(body)[0]} & {n for b in launches for n in tensors_of(b)[1]}
    for body in launches:
        for node in statements(body):
            if isinstance(node, LoadNode | StoreNode) and node.tensor in both and node.tensor not in met:
                if isinstance(node, LoadNode):
                    first[node.tensor] = None
                met.add(node.tensor)
    return tuple(first)


def arrays_of(p: Attention, tensors: dict[str, Tensor], launches: list[Body]) -> dict[str, HbmArray]:
    """The arrays in HBM that the launches read and write, by tensor."""
    names = dict.fromkeys(name for body in launches for group in tensors_of(body) for name in group)
    found = {}
    for name in names:
        spec = tensors[name]
        instances = p.batch * p.kv_heads if spec.shared else p.instances
        found[name] = HbmArray(name, p.shape(spec), instances, p.hbm_type(spec), spec.initial)
    return found


class Peaks(Capacity):
    """The peak of every launch by itself, in bytes. `rounded`: tiles are rounded up to multiples of 16."""

    def __init__(self, rounded: bool) -> None:
        super().__init__()
        self.rounded = rounded
        self.launches: list[int] = []

    def allocate(self, block: Block) -> None:
        self.bytes += self._bytes_of(block)
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def free(self, block: Block) -> None:
        self.bytes -= self._bytes_of(block)

    def _bytes_of(self, block: Block) -> int:
        return product(padded_size(x, self.rounded) for x in block.shape) * self._width(block.tensor)

    def launch_ended(self) -> None:
        self.launches.append(int(self.peak_bytes))
        self.peak_bytes = 0


def padded_footprints(
    schedule: ScheduleLike | ScheduleText, p: Attention, tiling: Tiling, rounded: list[bool]
) -> tuple[int, int]:
    """Peak bytes in SRAM: (with tiles rounded up to multiples of 16 in the launches marked `rounded`, without)."""
    plain, padded = Peaks(False), Peaks(True)
    Folded(replace(p, mask=DENSE), plain, padded).run(schedule, tiling)
    chosen = [b if wanted else a for a, b, wanted in zip(plain.launches, padded.launches, rounded, strict=True)]
    return max(chosen), max(plain.launches)


def why_not(schedule: ScheduleLike | ScheduleText) -> str:
    """The reason why a schedule has no kernels; empty if it has. This generates kernels for a small problem to which
    the schedule applies."""
    problem = getattr(schedule, "about", lambda p: p)(Attention(32, 16, dtype="fp32"))
    try:
        generate(schedule, problem, Tiling(16, 16))
    except IosimError as error:
        return str(error)
    return ""
