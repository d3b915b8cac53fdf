"""Counts the launches of a compiled graph: Triton kernels by reading them, products and attention by schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...counting.floors import floor
from ...errors import InputError
from ...hardware import Hardware
from ..explain import Explained, Question, common, explained, preset
from ..read.compile import capability
from .code import UNKNOWN, Buffer, Call, OutputCode
from .inductor import InductorKernel, kernel_of_source
from .pytorch import EFFICIENT, EFFICIENT_BACKWARD, FLASH, FLASH_BACKWARD, may_split, own_tiles

if TYPE_CHECKING:
    from ...core.problem import Attention
    from ...counting.published import Published
    from ...counting.report import Report
    from ...counting.result import Result
    from ...tables import Row

KERNEL, PRODUCT, ATTENTION, OTHER = "kernel", "product", "attention", "other"
PRODUCTS = {"extern_kernels.mm": 0, "extern_kernels.bmm": 0, "extern_kernels.addmm": 1, "extern_kernels.bias_addmm": 1,
            "extern_kernels.baddbmm": 1}  # {name: arguments before the two matrices}  # fmt: skip
TILES = "128x256"  # the first of the configurations of Triton's tutorial 03, for a matrix product
ATTENTIONS = {  # {operator: (first of Q, K, V; place of is_causal)}
    FLASH: (0, 4),
    EFFICIENT: (0, 6),
    FLASH_BACKWARD: (1, 11),
    EFFICIENT_BACKWARD: (1, 11),
}
BACKWARDS = (FLASH_BACKWARD, EFFICIENT_BACKWARD)

SPLITS = "PyTorch may split the keys among thread blocks, with tiles of 64 rows; it asks for more bytes then"
LSE_BYTES = 4  # a log-sum-exp in fp32


class Moved(NamedTuple):
    """What a launch moves, in bytes."""

    read_bytes: int
    write_bytes: int
    atomic_bytes: int = 0

    @property
    def total(self) -> int:
        return self.read_bytes + self.write_bytes + self.atomic_bytes


@dataclass(frozen=True)
class Step:
    """One launch of a step, with its bytes: as asked for, under published tiles, and once."""

    name: str
    kind: str
    how: str
    """How it was counted: a configuration, or a schedule with its tiles. For an operator that is not counted, why."""
    tensors: Mapping[str, Row] = field(default_factory=dict)
    """{argument: words and bytes}, as `iosim explain` has them."""
    moved: Moved | None = None
    """The bytes that are asked for; of products those of the best tiles. None if they are not known."""
    published: Moved | None = None
    once_bytes: int | None = None
    floor_bytes: int | None = None
    flops: int = 0
    smem_bytes: int | None = None
    registers: int | None = None
    notes: tuple[str, ...] = ()
    best: Moved | None = None
    """Of attention: the bytes of the best tiles."""

    @property
    def label(self) -> str:
        """The name in a table: that of a kernel without the list of its operators."""
        if self.kind != KERNEL or len(self.name) <= 40:
            short = self.name.removeprefix("extern_kernels.").removeprefix("aten.")
            return short.removeprefix("_scaled_dot_product_")
        kind, _, rest = self.name.partition("_fused_")
        number = rest.rpartition("_")[2]
        return f"{kind}_{rest[: 36 - len(kind)]}.._{number}"


class Counter:
    """Counts the launches of graphs. Equal launches are counted once."""

    def __init__(self, question: Question, folder: Path) -> None:
        self.question, self.folder = question, folder
        self.hardware = question.hardware or common(question.target)
        self.gpu: Hardware | None = preset(question.target, question.hardware)
        self.kernels: dict[str, InductorKernel] = {}
        self.known: dict[str, Step] = {}

    def steps(self, code: OutputCode, tell: Callable[[str], None]) -> list[Step]:
        """The launches of a graph in order."""
        found = []
        for number, call in enumerate(code.calls, 1):
            tell(f"explaining launch {number} of {len(code.calls)} of a compiled graph")
            known = [name for name in code.data if any(name == getattr(each, "source", "") for each in call.arguments)]
            key = f"{code.kernels.get(call.name)} {call.name} {call.arguments} {call.named}"
            key += "".join(f" {name} {id(code.data[name])}" for name in known)
            if key not in self.known:
                self.known[key] = self.step(code, call)
            found.append(self.known[key])
        return found

    def step(self, code: OutputCode, call: Call) -> Step:
        """One launch. What cannot be counted says why."""
        try:
            if call.is_kernel:
                return self.kernel(code, call)
            if call.name in PRODUCTS:
                return self.product(call)
            if call.name in ATTENTIONS:
                return self.attention(call)
        except InputError as error:
            kind = KERNEL if call.is_kernel else PRODUCT if call.name in PRODUCTS else ATTENTION
            return Step(call.name, kind, str(error).replace(f"{self.folder}/", ""))
        return Step(call.name, OTHER, "an operator of PyTorch, which is not counted")

    # ------------------------------------------------------------------ kernels

    def kernel(self, code: OutputCode, call: Call) -> Step:
        """A launch of a Triton kernel, by its first configuration."""
        source = code.kernels[call.name]
        if source not in self.kernels:
            made = kernel_of_source(call.name, source, self.folder, capability(self.question.target))
            self.kernels[source] = made
        (first, *others) = self.kernels[source].launches(call, code.data)
        answer = explained(*first, self.question)
        words = self.without_resources()
        totals = [answer.total_bytes, *(explained(*other, words).total_bytes for other in others)]
        notes = [f"{call.name}: {note}" for note in answer.warnings]
        if len(set(totals)) > 1:
            notes.append(
                f"{call.name}: PyTorch times {len(totals)} configurations on the GPU, which move {min(totals)} to "
                f"{max(totals)} bytes; the first of them is counted"
            )
        return of_kernel(call.name, answer, tuple(notes))

    def without_resources(self) -> Question:
        """The question about words alone."""
        return replace(self.question, resources=False)

    # ------------------------------------------------------------------ products and attention

    def product(self, call: Call) -> Step:
        """A matrix product, under the best and the published tiles of iosim's schedules."""
        before = PRODUCTS[call.name]
        a, b = (buffer_of(call, k) for k in (before, before + 1))
        bias = buffer_of(call, 0) if before and call.named.get("beta") != 0 else None
        sizes = {"N": a.shape[-2], "d": a.shape[-1], "Nk": b.shape[-1], "batch": prod(a.shape[:-2])}
        report = self.report(sizes, a.dtype, schedules=["matmul-tiled", "matmul-tiled-a", "matmul-tiled-b"])
        best = min((r for r in report.results if r.fits), key=lambda r: r.total or 0)
        known = self.report(sizes, a.dtype, schedules=["matmul-tiled"], tiles=TILES).results[0]
        extra = 0 if bias is None else bias.words * bias.word_bytes
        once = (a.words + b.words + prod(a.shape[:-1]) * b.shape[-1]) * a.word_bytes + extra
        name = f"{call.name} {'x'.join(map(str, (*a.shape[:-2], a.shape[-2], a.shape[-1], b.shape[-1])))}"
        how = f"{best.schedule} {best.Br}x{best.Bc}; published {TILES}"
        return of_schedule((name, PRODUCT, how), best, known, once, None, a.word_bytes, extra)

    def attention(self, call: Call) -> Step:
        """Attention, under the tiles of PyTorch's kernel, the best ones, and the published ones of FlashAttention."""
        q, k, v, causal = attention_of(call)
        backward = call.name in BACKWARDS
        sizes = {"N": q.shape[2], "d": q.shape[3], "Nk": k.shape[2], "batch": q.shape[0], "heads": q.shape[1]}
        more = {"kv_heads": k.shape[1], "mask": "causal" if causal else "dense", "lse": True}
        report = self.report(sizes, q.dtype, schedules=["flash2-bwd" if backward else "flash2"], **more)
        best, gpu = report.results[0], self.known_gpu()
        schedule, tiles = own_tiles(call.name, report.problem, capability(self.question.target), gpu)
        own = self.report(sizes, q.dtype, schedules=[schedule], tiles=tiles, **more).results[0] if tiles else best
        known = least_published(report)
        if tiles and not 0 < (best.total or 0) < (own.total or 0):
            best = own  # it keeps S and O in registers beside M
        how = how_of(own, best if tiles else None, known)
        name = f"{call.name} {'x'.join(map(str, q.shape))}{' causal' * causal}"
        once, least = once_bytes(q, k, v, backward), self.floor_bytes(report.problem, backward)
        step = of_schedule((name, ATTENTION, how), own, known.result if known else own, once, least, q.word_bytes)
        splits = call.name == FLASH and may_split(report.problem, gpu)
        return replace(step, best=moved_by(best), notes=(f"{call.name}: {SPLITS}",) * splits)

    def floor_bytes(self, problem: Attention, backward: bool) -> int | None:
        """The least bytes of attention in the SRAM and the registers of a thread block."""
        if self.gpu is None:
            return None
        on_chip = replace(problem, register_bytes=self.gpu.register_bytes)
        try:
            found = floor(on_chip, self.gpu.sram_bytes, backward=backward)
        except InputError:
            return None
        return int(found.words * problem.word_bytes)

    def known_gpu(self) -> Hardware:
        """The GPU. InputError if there is none for the target."""
        if self.gpu is None:
            raise InputError("--hardware", "no GPU for this target", "a preset, for products and attention")
        return self.gpu

    def report(self, sizes: Mapping[str, int], dtype: str, **more: object) -> Report:
        """The counts of schedules for a problem in the SRAM of the GPU."""
        from ...counting.count import count

        self.known_gpu()
        if dtype == UNKNOWN:
            raise InputError("Inductor's code", "an input without a type", "code with its function get_args")
        given = {"dtype": dtype, "hardware": self.hardware, **{k: n for k, n in sizes.items() if k not in "Nd"}, **more}
        return count(sizes["N"], sizes["d"], **given)  # type: ignore[arg-type]  # options by their names


def buffer_of(call: Call, place: int) -> Buffer:
    """An argument of an operator that is a tensor."""
    found = call.arguments[place] if place < len(call.arguments) else None
    if not isinstance(found, Buffer):
        raise InputError(call.name, f"argument {place + 1}: {found}", "a tensor whose shape is known")
    return found


def attention_of(call: Call) -> tuple[Buffer, Buffer, Buffer, bool]:
    """(Q, K, V, whether the mask is causal) of a call of attention."""
    first, place = ATTENTIONS[call.name]
    q, k, v = (buffer_of(call, first + n) for n in range(3))
    causal = len(call.arguments) > place and call.arguments[place] is True
    if causal and q.shape[-2] != k.shape[-2]:
        raise InputError(call.name, f"causal with N = {q.shape[-2]} and Nk = {k.shape[-2]}", "equal sizes")
    return q, k, v, causal


def once_bytes(q: Buffer, k: Buffer, v: Buffer, backward: bool) -> int:
    """The bytes of each word of attention once. A backward pass also reads O and dO, and writes dQ, dK and dV."""
    rows = prod(q.shape[:-1])
    words = q.words + k.words + v.words + rows * v.shape[-1]
    return (2 if backward else 1) * q.word_bytes * words + LSE_BYTES * rows


def least_published(report: Report) -> Published | None:
    """The published tiles of a report that fit and move least."""
    fits = [one for one in report.published if one.result.fits]
    return min(fits, key=lambda one: one.result.total or 0, default=None)


def how_of(own: Result, best: Result | None, known: Published | None) -> str:
    """The tiles that attention is counted with, and others beside them. `best` is None if those of PyTorch are not
    known."""
    whose = "as PyTorch" if best else "the best tiles: those of PyTorch are not known"
    text = f"{own.schedule} {own.Br}x{own.Bc}, {whose}"
    if known:
        text += f"; published {known.result.Br}x{known.result.Bc} of {known.tiles.label}"
    return text + (f"; best {best.schedule} {best.Br}x{best.Bc}" if best not in (None, own) else "")


def of_kernel(name: str, answer: Explained, notes: tuple[str, ...]) -> Step:
    """The launch of a Triton kernel that was explained."""
    ways = [way for each in answer.ways.values() for way in each.values()]
    distinct = [way.distinct_bytes for way in ways]
    once = sum(n for n in distinct if n is not None) if None not in distinct else None
    moved = Moved(*(answer.total(way, "bytes") for way in ("reads", "writes", "atomics")))
    how = ", ".join(f"{name}={value}" for name, value in answer.constants.items())
    resources = answer.resources
    return Step(
        name,
        KERNEL,
        how,
        answer.tensors,
        moved,
        moved,
        once,
        None,
        answer.flops,
        resources.smem_bytes if resources else None,
        resources.registers if resources else None,
        notes,
    )


def of_schedule(
    named: tuple[str, str, str],
    best: Result,
    known: Result,
    once: int,
    least: int | None,
    word_bytes: int,
    bias_bytes: int = 0,
) -> Step:
    """The launch of a product or of attention, which reads `bias_bytes` beside what its schedule moves. `named` are
    its name, its kind, and how it is counted."""
    name, kind, how = named
    tensors = tensors_of(best, word_bytes)
    moved, published = moved_by(best, bias_bytes), moved_by(known, bias_bytes)
    return Step(name, kind, how, tensors, moved, published, once, least, int(best.flops or 0))


def moved_by(result: Result, more_bytes: int = 0) -> Moved:
    """What a schedule moves, and `more_bytes` that are read beside it."""
    return Moved(int(result.read_bytes or 0) + more_bytes, int(result.write_bytes or 0))


def tensors_of(result: Result, word_bytes: int) -> dict[str, Row]:
    """The words and bytes of each tensor of a schedule, with the keys of a kernel's arguments."""
    found: dict[str, Row] = {}
    for name, words in result.tensors.items():
        reads, writes = words["reads"], words["writes"]
        sizes = {"read_bytes": word_bytes * reads, "write_bytes": word_bytes * writes, "atomic_bytes": 0}
        found[name] = {"reads": reads, "writes": writes, "atomics": 0, **sizes}
    return found
