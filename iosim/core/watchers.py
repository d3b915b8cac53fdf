"""Watchers observe a run: Traffic, Capacity, Flops, Trace. Any number of them may watch one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CapacityError
from .arrays import larger, plus
from .machine import EVENTS as EVENTS
from .machine import Block
from .machine import Watcher as Watcher
from .shapes import Tile

if TYPE_CHECKING:
    from .machine import Input, Machine
    from .typing import Size, Step

    Event = dict[str, str | Size]


class Traffic(Watcher):
    """Words read from HBM and written to it by one head, for each tensor and for each launch."""

    def __init__(self) -> None:
        self.reads: dict[str, Size] = {}
        """Words read, by tensor."""
        self.writes: dict[str, Size] = {}
        """Words written, by tensor."""
        self.launches: list[tuple[Size, Size]] = []
        """(words read, words written) of each launch."""
        self._launch: list[Size] = [0, 0]

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self.reads[tensor] = plus(self.reads.get(tensor, 0), words)
        self._launch[0] = plus(self._launch[0], words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self.writes[tensor] = plus(self.writes.get(tensor, 0), words)
        self._launch[1] = plus(self._launch[1], words)

    def launch_ended(self) -> None:
        self.launches.append((self._launch[0], self._launch[1]))
        self._launch = [0, 0]

    @property
    def steps(self) -> list[tuple[Size, Size]]:
        """The same list as `launches`, under its name in iosim 0.1."""
        return self.launches

    @property
    def tensors(self) -> dict[str, tuple[Size, Size]]:
        """{tensor: (words read, words written)}."""
        names = dict.fromkeys([*self.reads, *self.writes])
        return {name: (self.reads.get(name, 0), self.writes.get(name, 0)) for name in names}

    @property
    def total(self) -> Size:
        """Words read and written, of all tensors."""
        return sum(self.reads.values()) + sum(self.writes.values())


class Capacity(Watcher):
    """The words and bytes in SRAM, and their peaks. Raises CapacityError if the bytes exceed `limit_bytes`."""

    def __init__(self, limit_bytes: int | None = None):
        self.limit_bytes = limit_bytes
        self.words: Size = 0
        """Words in SRAM now."""
        self.bytes: Size = 0
        """Bytes in SRAM now."""
        self.peak_words: Size = 0
        """The most words in SRAM at one time: the footprint."""
        self.peak_bytes: Size = 0
        """The most bytes in SRAM at one time."""
        self._room: dict[Block, tuple[Size, Size]] = {}  # words and bytes of the blocks in SRAM

    def start(self, machine: Machine) -> None:
        self._width = machine.p.sram_bytes

    def allocate(self, block: Block) -> None:
        words = block.words
        size = words * self._width(block.tensor)
        self._room[block] = words, size
        self.words = plus(self.words, words)
        self.bytes = plus(self.bytes, size)
        self.peak_words = larger(self.peak_words, self.words)
        self.peak_bytes = larger(self.peak_bytes, self.bytes)
        if self.limit_bytes is not None and self.bytes > self.limit_bytes:
            raise CapacityError(
                f"block {block.name}: {self.bytes} B would be resident; SRAM holds {self.limit_bytes} B; "
                "try smaller tiles or --tiles best"
            )

    def free(self, block: Block) -> None:
        words, size = self._room.pop(block)
        self.words = self.words - words
        self.bytes = self.bytes - size


class Footprint(NamedTuple):
    """The space that a schedule needs on a chip, without its mask.

    `peak_words` and `peak_bytes` count everything that is on the chip at one time, wherever it is. `smem_bytes` must
    fit in M. `least_smem_bytes` is what it would be with registers without limit.
    """

    peak_words: Size
    peak_bytes: Size
    smem_bytes: Size
    register_bytes: Size = 0
    least_smem_bytes: Size = 0


class Flops(Watcher):
    """Floating-point operations of the matrix products of one head (one multiply-add is 2)."""

    def __init__(self) -> None:
        self.total: Size = 0
        """Operations of all steps."""

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self.total = plus(self.total, flops)


class Trace(Watcher):
    """Passes the tile events of a machine that visits every tile to `emit`, in order, or keeps them in `events`.

    `row` and `rows` are the first row and the number of rows of the tile; `column` and `columns` likewise. `words` is
    the number of words that move. `resident_words` is the number of words in SRAM after the event. `launch` counts
    kernels from 1. A load that moves no words, for an empty line of the mask, is not an event.
    """

    def __init__(self, emit: Callable[[Event], None] | None = None) -> None:
        self.events: list[Event] = []
        self.emit = emit or self.events.append
        self.resident: Size = 0
        self.launch = 1

    def allocate(self, block: Block) -> None:
        self.resident = self.resident + block.words  # not in place: it may be an array that an event holds

    def free(self, block: Block) -> None:
        self.resident = self.resident - block.words

    def launch_ended(self) -> None:
        self.launch += 1

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if words:
            self._add("load", tensor, block, words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._add("store", tensor, block, words)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        self._add(step.__name__, outputs[0].name, outputs[0], 0)

    def _add(self, event: str, name: str, block: Block, words: Size) -> None:
        (row, rows), (column, columns) = extent_of(block)
        self.emit(
            {
                "event": event,
                "name": name,
                "row": row,
                "rows": rows,
                "column": column,
                "columns": columns,
                "words": words,
                "resident_words": self.resident,
                "launch": self.launch,
            }
        )


def extent_of(block: Block) -> list[tuple[int, Size]]:
    """The (start, size) of the rows and of the columns that a block covers. A vector is one column."""
    found: list[tuple[int, Size]] = [(x.start, x.size) if isinstance(x, Tile) else (0, x) for x in block.shape]
    return [*found, (0, 1)][:2]


def same_counts(a: Mapping[str, Sequence[Size]], b: Mapping[str, Sequence[Size]]) -> bool:
    """Whether the words (read, written) of every tensor are equal; a tensor that never moves may be left out."""
    return all(tuple(a.get(name, (0, 0))) == tuple(b.get(name, (0, 0))) for name in {*a, *b})
