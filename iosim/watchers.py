"""What is observed of a run: Traffic, Capacity, Flops, Trace. Any number of them may watch one machine."""

from __future__ import annotations

from typing import Any

from .elementwise import larger, plus
from .errors import CapacityError
from .machine import Tile


class Watcher:
    """Sees every event of a machine. Words are exact integers (or arrays of them), of one head."""

    def start(self, machine: Any) -> None: ...

    def load(self, block: Any, tensor: str, words: Any) -> None: ...

    def store(self, block: Any, tensor: str, words: Any) -> None: ...

    def allocate(self, block: Any) -> None: ...

    def free(self, block: Any) -> None: ...

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None: ...

    def launch_ended(self) -> None: ...


class Traffic(Watcher):
    """Words read and written, for each tensor and for each launch.

    With arrays, `bound` adds up what the counts can be at most, in Python integers: below 2^63 nothing wrapped.
    """

    def __init__(self) -> None:
        self.reads: dict[str, Any] = {}
        self.writes: dict[str, Any] = {}
        self.steps: list[tuple[Any, Any]] = []
        self._step = [0, 0]

    def load(self, block: Any, tensor: str, words: Any) -> None:
        self.reads[tensor] = plus(self.reads.get(tensor, 0), words)
        self._step[0] = plus(self._step[0], words)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self.writes[tensor] = plus(self.writes.get(tensor, 0), words)
        self._step[1] = plus(self._step[1], words)

    def launch_ended(self) -> None:
        self.steps.append((self._step[0], self._step[1]))
        self._step = [0, 0]

    @property
    def tensors(self) -> dict[str, tuple[Any, Any]]:
        """tensor -> (words read, words written)."""
        names = dict.fromkeys([*self.reads, *self.writes])
        return {name: (self.reads.get(name, 0), self.writes.get(name, 0)) for name in names}

    @property
    def total(self) -> Any:
        return sum(self.reads.values()) + sum(self.writes.values())


class Capacity(Watcher):
    """Words and bytes resident together, and their peaks. With `limit_bytes` it raises where they do not fit."""

    def __init__(self, limit_bytes: int | None = None):
        self.limit_bytes = limit_bytes
        self.words: Any = 0
        self.bytes: Any = 0
        self.peak_words: Any = 0
        self.peak_bytes: Any = 0
        self._room: dict[Any, tuple[Any, Any]] = {}  # of what is resident: words and bytes

    def start(self, machine: Any) -> None:
        self._width = machine.p.sram_bytes

    def allocate(self, block: Any) -> None:
        words = block.words
        self._room[block] = words, words * self._width(block.tensor)
        self.words = plus(self.words, words)
        self.bytes = plus(self.bytes, self._room[block][1])
        self.peak_words = larger(self.peak_words, self.words)
        self.peak_bytes = larger(self.peak_bytes, self.bytes)
        if self.limit_bytes is not None and self.bytes > self.limit_bytes:
            raise CapacityError(
                f"block {block.name}: {self.bytes} B would be resident; SRAM holds {self.limit_bytes} B; "
                "try smaller tiles or --tiles best"
            )

    def free(self, block: Any) -> None:
        words, size = self._room.pop(block)
        self.words = self.words - words
        self.bytes = self.bytes - size


class Flops(Watcher):
    """Floating-point operations of the matrix products (one multiply-add is 2)."""

    def __init__(self) -> None:
        self.total: Any = 0

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        self.total = plus(self.total, flops)


class Trace(Watcher):
    """Labelled tile events, in order, of a machine that visits every tile: handed to `emit`, or kept in `events`.

    `row`, `rows`, `column`, `columns` say which part of the tensor or block; `words` move, `resident_words` are in
    SRAM after the event; `launch` counts kernels from 1. What moves no word (an empty line of the mask) is no event.
    """

    def __init__(self, emit: Any = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.emit = emit or self.events.append
        self.resident, self.launch = 0, 1

    def allocate(self, block: Any) -> None:
        self.resident += block.words

    def free(self, block: Any) -> None:
        self.resident -= block.words

    def launch_ended(self) -> None:
        self.launch += 1

    def load(self, block: Any, tensor: str, words: Any) -> None:
        if words:
            self._add("load", tensor, block, words)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self._add("store", tensor, block, words)

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        self._add(step.__name__, outputs[0].name, outputs[0], 0)

    def _add(self, event: str, name: str, block: Any, words: Any) -> None:
        (row, rows), (column, columns) = spans(block)
        labels = {"event": event, "name": name, "row": row, "rows": rows, "column": column, "columns": columns}
        self.emit({**labels, "words": words, "resident_words": self.resident, "launch": self.launch})


def spans(block: Any) -> list[tuple[int, int]]:
    """(start, size) of the rows and of the columns that a block covers; a vector is one column."""
    found = [(x.start, x.size) if isinstance(x, Tile) else (0, x) for x in block.shape]
    return [*found, (0, 1)][:2]
