"""`iosim.explain`: the words that a launch of a Triton kernel moves and the resources it needs, without a GPU.

The words are those that programs request, at the addresses that the compiled code computes. How many of the requests
the caches of a GPU serve is not counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from ..answer import Answer, Column, Pieces, Row, Table, numbered, type_of
from ..core.arrays import total
from ..errors import InputError
from ..hardware import Hardware, load
from ..occupancy import blocks_on
from ..units import binary, format_bytes
from .least import least_time, read_once, work_of_programs
from .notes import asked_again, narrow_products, outside, unplaced, viewed
from .read.arguments import read_grid
from .read.compile import Compilation, Resources, is_amd
from .read.kernel import Configuration, Kernel, KernelLaunch
from .sentence import on_gpu, sentence
from .walk.code import DOTS, Code
from .walk.launch import Value
from .walk.places import Fault, place
from .ways import ARGUMENT, WAYS, Way, all_ways, in_views, tensor_row

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..counting.floors import Floor
    from ..timing.bound import LaunchTime
    from .nearest import Nearest
    from .walk.log import Log

FLOOR = ("words", "form", "M_words")
USUAL = "sm_90"  # the target where neither a target nor a GPU is named
COMMON = ("v100", "t4", "a100-80gb", "a10", "l4", "h100", "b200", "rtx-5090", "mi300x")  # a preset for each target
WARPS_ALLOWED = (1, 2, 4, 8, 16, 32)  # a program has at most 1024 threads
OCCUPANCY = {  # {target: (threads, blocks) of a multiprocessor at most}: CUDA C++ Programming Guide, technical
    # specifications per compute capability
    "sm_70": (2048, 32), "sm_75": (1024, 16), "sm_80": (2048, 32), "sm_86": (1536, 16), "sm_89": (1536, 24),
    "sm_90": (2048, 32), "sm_90a": (2048, 32), "sm_100": (2048, 32), "sm_100a": (2048, 32), "sm_120": (1536, 24),
    "sm_120a": (1536, 24),
}  # fmt: skip


Grid = object  # a tuple of numbers, or a function of the arguments


@dataclass(frozen=True, repr=False)
class Explained(Answer):
    """The words that a launch moves and the resources it needs. `tensors` has the words of each argument:
    `tensors["Q"]["reads"]`."""

    kernel: str
    grid: tuple[int, int, int]
    target: str
    triton: str
    num_warps: int
    num_stages: int
    constants: Mapping[str, Value]
    ways: Mapping[str, Mapping[str, Way]]
    """{argument: {kind: requests}}, where a kind is reads, writes or atomics."""
    flops: int
    """FLOPs of matrix products (`tl.dot`)."""
    resources: Resources | None = None
    hardware: Hardware | None = None
    bound: LaunchTime | None = None
    """The least time on the GPU, by resource."""
    nearest: Nearest | None = None
    floor: Floor | None = None
    full_card: int | None = None
    """The floor in words if all multiprocessors of the GPU do an equal share."""
    warnings: list[str] = field(default_factory=list)
    place: str | None = None
    """The line of the script with the launch; None without a script."""
    launches: int = 1
    """The number of equal launches in a script."""

    @property
    def programs(self) -> int:
        return prod(self.grid)

    @property
    def tensors(self) -> dict[str, Row]:
        """Words and bytes of each argument."""
        return {name: dict(tensor_row(ways)) for name, ways in self.ways.items()}

    def total(self, way: str, what: str = "words") -> int:
        """A sum over all arguments."""
        return sum(getattr(ways[way], what) for ways in self.ways.values())

    @property
    def reads(self) -> int:
        return self.total("reads")

    @property
    def writes(self) -> int:
        return self.total("writes")

    @property
    def total_bytes(self) -> int:
        """The bytes of all requests. An atomic word counts once."""
        return sum(self.total(way, "bytes") for way in WAYS)

    @property
    def intensity(self) -> float | None:
        """FLOPs of matrix products a byte."""
        return self.flops / self.total_bytes if self.total_bytes else None

    @property
    def at_least_seconds(self) -> float | None:
        """The least seconds on the GPU; None without one."""
        return self.bound.seconds if self.bound else None

    @property
    def spills(self) -> bool:
        """Whether values of a thread found no register."""
        return self.resources is not None and self.resources.stack_bytes > 0

    @property
    def fits(self) -> bool | None:
        """Whether the shared memory of a program fits in a multiprocessor."""
        if self.resources is None or self.hardware is None:
            return None
        return self.resources.smem_bytes <= self.hardware.shared_memory_per_block_bytes

    @property
    def blocks_per_sm(self) -> int | None:
        """The programs that share a multiprocessor; None if they do not fit, or if the target's limits are unknown."""
        if not self.fits or self.target not in OCCUPANCY or self.resources is None or self.hardware is None:
            return None
        r = self.resources
        size = self.hardware.shared_memory_per_sm_bytes
        return blocks_on(size, r.smem_bytes, 32 * r.num_warps, r.registers, *OCCUPANCY[self.target])

    @property
    def notes(self) -> list[str]:
        return self.warnings

    def to_dict(self) -> Row:
        r, floor = self.resources, self.floor
        return {
            "answer": [self.sentence, *on_gpu(self)],
            "kernel": self.kernel,
            "grid": list(self.grid),
            "programs": self.programs,
            "target": self.target,
            "triton": self.triton,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "constants": {name: plain_value(value) for name, value in self.constants.items()},
            "tensors": self.tensors,
            "reads": self.reads,
            "writes": self.writes,
            "atomics": self.total("atomics"),
            "total": self.reads + self.writes,
            "read_bytes": self.total("reads", "bytes"),
            "write_bytes": self.total("writes", "bytes"),
            "atomic_bytes": self.total("atomics", "bytes"),
            "total_bytes": self.total_bytes,
            "flops": self.flops,
            "intensity": self.intensity,
            "smem_read_bytes": self.bound and self.bound.work.smem_read_bytes,
            "at_least_seconds": self.at_least_seconds,
            "binds": self.bound and self.bound.binds,
            "smem_bytes": r.smem_bytes if r else None,
            "registers": r.registers if r else None,
            "stack_bytes": r.stack_bytes if r else None,
            "fits": self.fits,
            "blocks_per_sm": self.blocks_per_sm,
            "hardware": self.hardware.name if self.hardware else None,
            "floor": floor and {key: getattr(floor, key) for key in FLOOR} | {"ratio": self.moved_words / floor.words},
            "ratio_to_full_card": self.moved_words / self.full_card if self.full_card else None,
            "nearest": self.nearest.to_dict() if self.nearest else None,
            "place": self.place,
            "launches": self.launches,
            "notes": list(self.warnings),
        }

    @property
    def moved_words(self) -> int:
        """Words read, written, and changed by atomics. The floor holds for this sum, in which an atomic counts once."""
        return self.reads + self.writes + self.total("atomics")

    def table(self) -> Table:
        """A row for each argument."""
        label: Row = {"kernel": self.kernel, **{name: plain_value(v) for name, v in self.constants.items()}}
        same = [Column(name, type_of(value)).always(value) for name, value in label.items()]
        return Table((*same, *ARGUMENT), [{"argument": name, **row} for name, row in self.tensors.items()])

    @property
    def sentence(self) -> str:
        """What the launch moves, in a sentence or two."""
        return sentence(self)

    def summary(self) -> str:
        return f"{self.kernel}, {self.programs} programs: {self.reads:,} words read, {self.writes:,} written"

    def pieces(self) -> Pieces:
        return ["\n".join([self.sentence, *on_gpu(self), *self._head()]), self.table(), "\n".join(["", *self._lines()])]

    def _head(self) -> Iterator[str]:
        """The lines that describe the launch."""
        constants = ", ".join(f"{name}={plain_value(value)}" for name, value in self.constants.items())
        if self.place:
            yield self.place + (f", {self.launches} equal launches" if self.launches > 1 else "")
        programs, warps = numbered(self.programs, "program"), numbered(self.num_warps, "warp")
        yield f"{self.kernel}, grid {self.grid}: {programs} of {warps}, {self.target}"
        if constants:
            yield constants
        yield ""

    def _lines(self) -> Iterator[str]:
        """The answer below the table."""
        atomics, r, together = self.total("atomics"), self.resources, self.blocks_per_sm
        changed = f", {atomics:,} changed by atomics" if atomics else ""
        yield f"{self.reads:,} words read and {self.writes:,} written{changed}: {binary(self.total_bytes)}"
        if self.flops:
            yield f"{self.flops:,} FLOPs of matrix products, {self.intensity:.4g} a byte"
        if r:
            stack = f", {r.stack_bytes:,} bytes of stack a thread (spilled registers)" if r.stack_bytes else ""
            yield f"shared memory {format_bytes(r.smem_bytes)} a program, {r.registers} registers a thread{stack}"
        if self.hardware and together:
            yield f"fits on {self.hardware.name}: {numbered(together, 'program')} at a time on a multiprocessor"
        if self.floor:
            room = f", M = {self.floor.M_words:,} words of shared memory and registers" if self.floor.M_words else ""
            what = "exact attention by products, in any order, recomputation allowed"
            yield f"floor of {what}{room}: {self.floor.words:,} words"
        if self.nearest and not self.nearest.equal:
            yield f"{self.nearest.name} is {self.nearest.distance_words:,} words away:"
            yield from ("  " + line for line in self.nearest.differences())


def plain_value(value: Value) -> int | float | str | bool | None:
    """A constant of a kernel as a value of JSON."""
    return value if isinstance(value, int | float | str | bool) or value is None else str(value)


# ---------------------------------------------------------------- the function


def explain(
    kernel: object,
    grid: Grid,
    *,
    num_warps: int | None = None,
    num_stages: int | None = None,
    target: str | None = None,
    hardware: str | None = None,
    problem: Attention | None = None,
    roles: Mapping[str, str] | None = None,
    resources: bool = True,
    **arguments: Value,
) -> Explained:
    """The words that a launch of a Triton kernel reads and writes, and the resources of a program. It needs no GPU.

    `arguments` are the kernel's arguments: `Q=iosim.tensor("fp16", (H, N, D)), N=4096, BM=128`. `grid` is a tuple, or a
    function of them. With `problem`, an `iosim.Attention`, the floor and the nearest schedule are found; `roles` says
    which arguments are Q, K, V, O if their names do not. Without `resources` the kernel is not compiled to a binary.
    It is compiled for `target`, by default that of `hardware`, else sm_90.
    Raises InputError, with the line that causes it, if something cannot be known before the kernel runs.
    """
    found = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    chosen, *others = found.choices(arguments)
    if others:
        configurations = f"{len(found.configurations)} configurations of @triton.autotune"
        hint = "give its constants, or ask for all of them (--tune)"
        raise InputError(f"kernel {found.name}", configurations, "one", hint)
    question = Question(aimed(target, hardware)[0], hardware, problem, roles or {}, resources)
    return explained(KernelLaunch(found, grid, arguments, num_warps, num_stages), chosen, question)


@dataclass(frozen=True)
class Question:
    """The options of a question about launches: the GPU, the problem to compare with, and the parts of the answer."""

    target: str = USUAL
    hardware: str | None = None
    problem: Attention | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    resources: bool = True
    tune: bool = False
    timeout: float | None = None
    """The seconds that the user's code may take."""
    log: Log | None = None
    """The log that receives the requests of the only launch."""
    tell: Callable[[str], None] = lambda text: None
    """Called with what is under way, before a walk that may take long."""


def explained(asked: KernelLaunch, chosen: Configuration, question: Question) -> Explained:
    """The answer for one configuration."""
    import triton

    from .walk.walk import walk

    kernel, target = asked.kernel, question.target
    values = asked.completed(chosen)
    warps, stages = asked.options(chosen, values)
    if warps not in WARPS_ALLOWED:
        raise InputError("num_warps (--warps)", warps, ", ".join(map(str, WARPS_ALLOWED)))
    amd = question.resources and is_amd(target)
    made = Compilation(kernel, values, target, warps, stages)
    launch = made.launch(read_grid(grid_of(asked.grid, made.bound) if callable(asked.grid) else asked.grid))
    question.tell(f"explaining {kernel.name}: {launch.programs:,} programs")
    own = made.resources if question.resources and not is_amd(target) else None
    moved = walk(made.code, launch, log=question.log, asked=(own and made.asked) or {})
    ways, again = all_ways(made.tensors, moved.requests), in_views(made.tensors, moved.requests)
    chip = preset(target, question.hardware)
    each = work_of_programs(made.code, moved.times, launch.programs, chip)
    answer = Explained(
        kernel.name,
        launch.grid,
        target,
        str(triton.__version__),
        warps,
        stages,
        {name: made.bound[name] for name in kernel.constants},
        ways,
        total(each["flops"]),
        own,
        chip,
        bound=None if chip is None else least_time(made.code, ways, each, chip, again),
        warnings=[
            *outside(made.tensors, ways, lambda: walk(made.code, launch, by_line=True)),
            *unplaced(moved.unplaced, ways),
            *viewed(made.tensors, again),
            *([f"{target}: words only; shared memory and registers are those of GPUs of NVIDIA"] if amd else []),
        ],
    )
    if own is not None:
        unit = None if chip is None else chip.matrix_unit
        split = any(asked.split for asked in (made.asked or {}).values())
        answer.warnings.extend(asked_again(ways, split, own.load_widths, made.scalars))
        answer.warnings.extend(narrow_products(own.product_reads, read_once(made.code, chip), unit))
    return answer if question.problem is None else beside(answer, made.code, question.problem, question.roles)


def grid_of(grid: Callable[[Mapping[str, Value]], Value], arguments: Mapping[str, Value]) -> Value:
    """The grid that a function of the arguments gives."""
    try:
        return grid(arguments)
    except Exception as error:
        code = getattr(grid, "__code__", None)
        where = "grid" if code is None else f"grid ({place(code.co_filename, code.co_firstlineno)})"
        raise Fault(
            where, f"{type(error).__name__}: {error}", "a function of the arguments that gives a tuple"
        ) from None


def preset(target: str, hardware: str | None) -> Hardware | None:
    """The GPU that a target is compared with: `hardware`, else a common GPU with that target."""
    name = hardware or common(target)
    return load(name) if name else None


@cache
def common(target: str) -> str | None:
    """The preset that a target is compared with if no GPU is named."""
    return next((name for name in COMMON if load(name).target == target.removesuffix("a")), None)


def aimed(target: str | None, hardware: str | None) -> tuple[str, list[str]]:
    """(the target to compile for: the given one, else that of the GPU; notes, if these are not the same)."""
    own = None if hardware is None else load(hardware).target
    if own and target and target.removesuffix("a") != own:
        return target, [f"compiled for {target}, as --target says; --hardware {hardware} is {own}"]
    if hardware and not own and not target:
        return USUAL, [f"compiled for {USUAL}: {hardware} has no key target; --target names another"]
    return target or own or USUAL, []


def beside(answer: Explained, code: Code, problem: Attention, roles: Mapping[str, str]) -> Explained:
    """The answer with the floor and the nearest schedule."""
    from ..counting.floors import floor
    from ..counting.full_card import full_card_floor
    from .nearest import nearest, tensor_names
    from .notes import hidden_by_causal, other_sizes

    names = tensor_names(answer.ways, roles)
    words = {names[a]: (w["reads"].words, w["writes"].words + w["atomics"].words) for a, w in answer.ways.items()}
    moved = {name: pair for name, pair in words.items() if pair != (0, 0)}
    stores_lse = words.get("LSE", (0, 0))[1] > 0
    chip = answer.hardware
    size, registers = (chip.sram_bytes, chip.register_bytes) if chip else (None, 0)
    room = replace(problem, register_bytes=registers)
    alike, shapes = replace(problem, lse=stores_lse), products(code)
    found = nearest(moved, alike, shapes)
    by_tensor = {names[a]: ways for a, ways in answer.ways.items()}
    notes = [*other_sizes(by_tensor, problem), *hidden_by_causal(found, alike, shapes)]
    return replace(
        answer,
        warnings=[*answer.warnings, *notes],
        nearest=found,
        floor=floor(room, size),
        full_card=None if chip is None else full_card_floor(room, size, chip, "flash2"),
    )


def products(code: Code) -> list[tuple[int, int]]:
    """The shapes of the matrix products in a kernel. That of a tile of scores is Br x Bc."""
    found = [o.types[0].shape[-2:] for o in code.operations() if o.name in DOTS]
    return [(a, b) for a, b in found][:1]
