"""Which lanes ask the L1 for which words, load instruction by load instruction, in the code that Triton compiles.

After Triton has given values layouts (TTGIR), one load of the source may be several, one for each layout in which it is
needed, and each warp that holds a word loads it. PTX says how many bytes a thread loads at a time: its loads are those
of TTGIR in order, and all bytes of a thread have to come out. So it was with Triton 3.6, 3.7, 3.8 and 3.9.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..walk.code import MEMORY, READS, Code, Operation, Type
from ..walk.requests import Asked
from .layouts import layout_of
from .ttir import places_of

if TYPE_CHECKING:
    from ..walk.code import Places
    from ..walk.numbers import Integers

ALIAS = re.compile(r"^(#\w+) = (.*)$", re.M)
Lines = tuple[tuple[str, str], ...]  # (line, column) in the source, and of the calls around it
NAME = re.compile(r"#\w+\b(?!\.)")
COPY = "async_copy_global_to_local"
LOAD = re.compile(r" : (?:tensor<([\dx]*)x)?!tt\.ptr<(\w+)[^>]*>(?:, (#.*?)>(?= loc| ->))?.* loc\((.*)\)$")
INLINE = re.compile("// (?:begin|end) inline asm")
WIDTH = re.compile(
    r"\bld\.global(?:\.[a-zA-Z][\w:]*)*?(?:\.v(\d))?\.[bsuf](\d+)\s"
    r"|\bcp\.async\.c[ag]\.shared\.global[^;]*?,\s*(0x[0-9a-f]+|\d+)\s*[,;]"
)
SIDE_BY_SIDE = re.compile(r"#\w+\.blocked<\{sizePerThread = \[[1, ]*[2-9]")


class Load(NamedTuple):
    """A load of TTGIR."""

    lines: Lines
    path: tuple[int, ...]
    """The regions that it is in, outermost first."""
    copies: bool
    """Whether it is an asynchronous copy, which brings each word once."""
    shape: tuple[int, ...]
    element_bytes: int
    layout: str
    """Empty for a scalar."""

    def held(self, warps: int) -> Integers | None:
        """The elements of each register of each lane of each warp; None if its layout is not known. All warps load a
        scalar."""
        if not self.layout:
            return np.zeros((warps, 1, 1), np.int64)
        layout = layout_of(self.layout, self.shape)
        return None if layout is None else layout.elements(self.shape, once=self.copies)


def lines_of(places: Places) -> Lines:
    """Lines and columns alone: what Triton kept of an earlier compilation may name another file."""
    return tuple((line, column) for _, line, column in places)


def loads_of(ttgir: str) -> Iterator[Load]:
    """The loads of a kernel's TTGIR, in order."""
    names = dict(ALIAS.findall(ttgir))

    def whole(text: str) -> str:
        return NAME.sub(lambda found: whole(names[found[0]]) if found[0] in names else found[0], text)

    path: list[int] = []
    for number, line in enumerate(ttgir.splitlines()):
        if line.lstrip().startswith("}"):
            del path[-1:]
        copies = COPY in line
        if (copies or " tt.load " in line) and (found := LOAD.search(line)):
            sizes, element, layout, place = found.groups()
            shape = tuple(map(int, sizes.split("x"))) if sizes else ()
            width = Type((), element).element_bytes
            yield Load(lines_of(places_of([whole(place)])), tuple(path), copies, shape, width, whole(layout or ""))
        if line.endswith("{"):
            path.append(number)


def widths_of(ptx: str) -> list[int]:
    """The bytes that a thread loads at a time, for each load and each asynchronous copy of a kernel's PTX. A load that
    is no inline text is not of the kernel: a sine reads a table."""
    found = [(inline, *one) for inline, text in enumerate(INLINE.split(ptx)) for one in WIDTH.findall(text)]
    return [int(size, 0) if size else int(many or 1) * int(bits) // 8 for k, many, bits, size in found if size or k % 2]


def asked_of(code: Code, ttgir: str, ptx: str, warps: int) -> dict[int, Asked] | None:
    """{id of a load in the code: the instructions that it becomes}; None if PTX does not have the loads of TTGIR in
    order. What is compiled to something else, as loads of tensor descriptors, is left out."""
    found: dict[Lines, list[tuple[Load, Asked]]] = {}
    left = widths_of(ptx)
    for load in loads_of(ttgir):
        held, width = load.held(warps), left[0] if left else 0
        if held is None or not width or width % load.element_bytes:
            return None
        many, rest = divmod(held.shape[1] * load.element_bytes, width)
        if rest or left[:many] != [width] * many:
            return None
        del left[:many]
        found.setdefault(load.lines, []).append((load, instructions(held, width // load.element_bytes, load)))
    sources: dict[Lines, list[Operation]] = {}
    for operation in code.operations():
        if MEMORY.get(operation.name) == READS and (lines := lines_of(operation.places)) in found:
            sources.setdefault(lines, []).append(operation)
    each = [(together(found[lines], own), own) for lines, own in sources.items()]
    return None if left else {id(o): asked for asked, own in each if asked for o in own}


def instructions(held: Integers, words: int, load: Load) -> Asked:
    """The instructions of one load, where a thread loads so many words at a time."""
    rows = held.reshape(-1, words * held.shape[2])
    numbers = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)
    split = words == 1 < held.shape[1] and SIDE_BY_SIDE.match(load.layout) is not None
    return Asked(numbers.ravel(), rows.ravel(), split)


def together(found: Sequence[tuple[Load, Asked]], sources: Sequence[Operation]) -> Asked | None:
    """The instructions of each of the loads that stand at one place of the source; None if they are not alike. Of a
    pipelined load those in the loop count: what goes ahead of it is left out at its end."""
    deepest = max(len(load.path) for load, _ in found)
    inner = sorted((pair for pair in found if len(pair[0].path) == deepest), key=lambda pair: pair[0].layout)
    shapes = [*(load.shape for load, _ in inner), *(o.operand_types[0].shape for o in sources)]
    each = Counter(load.layout for load, _ in inner)
    if len({tuple(n for n in shape if n > 1) for shape in shapes}) > 1 or any(n % len(sources) for n in each.values()):
        return None
    parts = [asked for _, asked in inner[:: len(sources)]]
    first = np.cumsum([0, *(part.instructions[-1] + 1 for part in parts)])
    numbers = np.concatenate([part.instructions + n for part, n in zip(parts, first, strict=False)])
    size = prod(shapes[0])
    pairs = np.unique(numbers * size + np.concatenate([part.elements for part in parts]))
    return Asked(*np.divmod(pairs, size), any(part.split for part in parts))
