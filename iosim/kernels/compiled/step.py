"""The answer for what `torch.compile` makes of a script: the launches of its graphs, and the bytes of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...answer import Answer, Column, Columns, Pieces, Row, Table, numbered, rounded
from .code import OutputCode
from .inductor import kernel_folder
from .steps import ATTENTION, KERNEL, OTHER, PRODUCT, TILES, Counter, Step

if TYPE_CHECKING:
    from ..explain import Question


@dataclass(frozen=True)
class CompiledGraph:
    """A graph: its name, where the script ran it, and its launches. `runs` is None where nothing was run."""

    name: str
    place: str
    steps: list[Step]
    runs: int | None = None


@dataclass(frozen=True)
class Launch:
    """A launch, with the graph that it stands in."""

    graph: str
    step: Step


LAUNCHES: Columns[Launch] = (
    Column("graph", "string", "graph", of=lambda launch: launch.graph),
    Column("launch", "string", of=lambda launch: launch.step.name),
    Column("label", None, "launch", of=lambda launch: launch.step.label),
    Column("kind", "string", of=lambda launch: launch.step.kind),
    Column("read_bytes", of=lambda launch: launch.step.moved and launch.step.moved.read_bytes),
    Column("write_bytes", of=lambda launch: launch.step.moved and launch.step.moved.write_bytes),
    Column("atomic_bytes", of=lambda launch: launch.step.moved and launch.step.moved.atomic_bytes),
    Column("total_bytes", "integer", "bytes", "bytes", of=lambda launch: launch.step.moved and launch.step.moved.total),
    Column("published_bytes", "integer", "published", "bytes",
           of=lambda launch: launch.step.published and launch.step.published.total),
    Column("once_bytes", "integer", "once", "bytes", of=lambda launch: launch.step.once_bytes),
    Column("floor_bytes", "integer", "floor", "bytes", spare=3, of=lambda launch: launch.step.floor_bytes),
    Column("flops", of=lambda launch: launch.step.flops),
    Column("smem_bytes", "integer", "smem", "bytes", spare=2, of=lambda launch: launch.step.smem_bytes),
    Column("registers", "integer", "registers", spare=1, of=lambda launch: launch.step.registers),
    Column("how", "string", of=lambda launch: launch.step.how),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Compiled(Answer):
    """What the graphs of a step launch and move. `kernel` and `tensors` are those of `iosim explain`: the words of each
    launch, by its graph and its place in it."""

    target: str
    graphs: list[CompiledGraph]
    kernel: str = "torch.compile"

    @property
    def launches(self) -> list[Launch]:
        """The launches of all graphs, in order."""
        return [Launch(graph.name, step) for graph in self.graphs for step in graph.steps]

    @property
    def steps(self) -> list[Step]:
        return [launch.step for launch in self.launches]

    @property
    def tensors(self) -> dict[str, Row]:
        """The words and bytes of each argument of each launch."""
        return {
            f"{graph.name} {number} {step.name}: {argument}": dict(row)
            for graph in self.graphs
            for number, step in enumerate(graph.steps, 1)
            for argument, row in step.tensors.items()
        }

    def total(self, of: Callable[[Step], int | None]) -> int:
        """A sum over the launches for which it is known."""
        return sum(of(step) or 0 for step in self.steps)

    @property
    def totals(self) -> dict[str, int]:
        """The sums of a step: each graph once."""
        return {
            "total_bytes": self.total(lambda step: step.moved and step.moved.total),
            "published_bytes": self.total(lambda step: step.published and step.published.total),
            "once_bytes": self.total(lambda step: step.once_bytes),
            "flops": self.total(lambda step: step.flops),
        }

    @property
    def failed(self) -> list[tuple[str, Step]]:
        """(place, launch) of what iosim should count and cannot."""
        return [
            (graph.place, step)
            for graph in self.graphs
            for step in graph.steps
            if step.moved is None and step.kind != OTHER
        ]

    @property
    def uncounted(self) -> list[Step]:
        """The launches whose bytes are not known."""
        return [step for step in self.steps if step.moved is None]

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for step in self.steps for note in step.notes))

    def to_dict(self) -> Row:
        return {
            "kernel": self.kernel,
            "target": self.target,
            "graphs": [
                {"name": g.name, "place": g.place, "runs": g.runs, "launches": len(g.steps)} for g in self.graphs
            ],
            "launches": self.table().to_rows(),
            "tensors": self.tensors,
            **self.totals,
            "uncounted": [step.name for step in self.uncounted],
            "notes": self.notes,
        }

    def table(self) -> Table:
        return Table(LAUNCHES, self.launches)

    def summary(self) -> str:
        graphs = numbered(len(self.graphs), "graph")
        return f"torch.compile: {graphs}, {self._count}, {self.totals['total_bytes']:,} bytes"

    def pieces(self) -> Pieces:
        return ["\n".join([self.sentence, "", *self._graphs(), ""]), self.table(), "\n".join(["", *self._lines()])]

    @property
    def sentence(self) -> str:
        """The bytes of a step, in a sentence."""
        from ...units import format_bytes

        asked, once = self.totals["total_bytes"], self.totals["once_bytes"]
        times = f", {rounded(asked / once)} times each word once" if once else ""
        tiled = ", if products have their best tiles" if any(step.kind == PRODUCT for step in self.steps) else ""
        return f"A step makes {self._count} and asks for {format_bytes(asked)}{times}{tiled}.{self._attention()}"

    @property
    def _count(self) -> str:
        """The number of launches, with its noun."""
        return f"{len(self.steps)} launch{'es' * (len(self.steps) != 1)}"

    def _attention(self) -> str:
        """The bytes of PyTorch's attention kernels, beside those of the best tiles."""
        from ...units import binary

        pairs = [(step.moved.total, step.best.total) for step in self.steps if step.moved and step.best]
        own, best = (sum(each) for each in zip(*pairs, strict=True)) if pairs else (0, 0)
        if own == best:
            return ""
        return f" Its attention asks for {binary(own)}; with the best tiles it would be {binary(best)}."

    def _graphs(self) -> Iterator[str]:
        """A line for each graph."""
        for graph in self.graphs:
            kernels = sum(step.kind == KERNEL for step in graph.steps)
            runs = "" if graph.runs is None else f", run {numbered(graph.runs, 'time')}"
            parts = (
                f"{numbered(kernels, 'Triton kernel')}, {numbered(len(graph.steps) - kernels, 'operator')} of PyTorch"
            )
            yield f"{graph.name}: {parts}, {self.target}{runs} ({graph.place})"

    def _lines(self) -> Iterator[str]:
        """The sums below the table, and how products and attention were counted."""
        from ...units import format_bytes

        published, once = (format_bytes(self.totals[key]) for key in ("published_bytes", "once_bytes"))
        yield f"with published tiles {published}; each word once {once}"
        kinds = {step.kind for step in self.steps}
        if PRODUCT in kinds:
            yield f"products: the best tiles of matmul-tiled, -a and -b; published {TILES} of Triton's tutorial"
        if ATTENTION in kinds:
            own = [step.how for step in self.steps if step.kind == ATTENTION and step.moved]
            yield from (f"attention: {how}" for how in dict.fromkeys(own))
        if self.uncounted:
            names = ", ".join(dict.fromkeys(step.label for step in self.uncounted))
            yield f"not counted: {names}"


def compiled(
    codes: Sequence[tuple[OutputCode, str, int | None]], question: Question, tell: Callable[[str], None]
) -> Compiled:
    """The answer for graphs: (code, place, runs) of each. Equal launches are counted once."""
    names = unique([code.name or "graph" for code, _, _ in codes])
    with kernel_folder() as folder:
        counter = Counter(question, folder)
        graphs = [
            CompiledGraph(name, place, counter.steps(code, tell), runs)
            for name, (code, place, runs) in zip(names, codes, strict=True)
        ]
    return Compiled(question.target, graphs)


def unique(names: list[str]) -> list[str]:
    """The names, with numbers after those that stand there twice."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return found
