"""Which words of a tensor each thread holds: the layouts of Triton's TTGIR.

A layout places the registers of a thread, the lanes of a warp and the warps of a program on the elements of a tensor.
Each of the three goes by doubling steps, as Triton's linear layouts do: the element of a register is that of register 0
moved by the steps of the bits of its number. A step of nothing repeats the same elements.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..walk.numbers import Integers

Step = tuple[int, ...]  # elements along each axis
KIND = re.compile(r"#(?:ttg|triton_gpu)\.(\w+)<\{(.*)\}>")
NUMBERS = re.compile(r"(\w+) = (\[[\d\[\], ]*\]|\d+)")
REGISTERS, LANES, WARPS = range(3)


class Layout(NamedTuple):
    """The steps of the registers of a thread, of the lanes of a warp, and of the warps of a program."""

    registers: list[Step]
    lanes: list[Step]
    warps: list[Step]

    def in_shape(self, shape: Sequence[int]) -> Layout:
        """The layout on a tensor of this shape: steps beyond it repeat elements, further registers hold the rest."""
        kept = Layout(*([tuple(s if s < n else 0 for s, n in zip(step, shape, strict=True)) for step in part]
                        for part in self))  # fmt: skip
        for axis, size in enumerate(shape):
            reach = max([1, *(2 * step[axis] for part in kept for step in part)])
            while reach < size:
                kept.registers.append(along(axis, reach, len(shape)))
                reach *= 2
        return kept

    def elements(self, shape: Sequence[int], once: bool) -> Integers:
        """The numbers of the elements that are held, by warp, register and lane. Registers that repeat others are left
        out; with `once` lanes and warps that do so as well."""
        weights = [prod(shape[k + 1 :]) for k in range(len(shape))]
        numbers = [[sum(s * w for s, w in zip(step, weights, strict=True)) for step in part] for part in self]
        held = [spread(n for n in part if n or not (once or k == REGISTERS)) for k, part in enumerate(numbers)]
        return held[WARPS][:, None, None] ^ held[REGISTERS][:, None] ^ held[LANES]


def spread(steps: Iterable[int]) -> Integers:
    """The place of each number, by the steps of its bits."""
    found = np.zeros(1, np.int64)
    for step in steps:
        found = np.concatenate([found, found ^ step])
    return found


def along(axis: int, step: int, rank: int) -> Step:
    """A step along one axis."""
    return tuple(step if k == axis else 0 for k in range(rank))


def doubled(parts: Iterable[tuple[int, int, int]], rank: int) -> Layout:
    """The layout in which each (part, axis, count) goes on along its axis where those before it end."""
    found, reach = Layout([], [], []), [1] * rank
    for part, axis, count in parts:
        end = reach[axis] * count
        while reach[axis] < end:
            found[part].append(along(axis, reach[axis], rank))
            reach[axis] *= 2
    return found


# ---------------------------------------------------------------- kinds of layouts


def blocked(of: dict[str, list[int]]) -> Layout:
    sizes = of["sizePerThread"], of["threadsPerWarp"], of["warpsPerCTA"]
    return doubled(((part, axis, sizes[part][axis]) for part in range(3) for axis in of["order"]), len(of["order"]))


def product(of: dict[str, list[int]]) -> Layout:
    """The result of mma.sync or wgmma: tiles of 8 x 8, two columns a lane. Warps of mma.sync go along rows first."""
    warps, wgmma = of["warpsPerCTA"], of["versionMajor"] == [3]
    rank = len(warps)
    rows, columns = of["instrShape"][:2] if wgmma else of["instrShape"][-2:]
    m, n = rank - 2, rank - 1
    order = range(rank) if wgmma else range(rank)[::-1]
    tile = [(REGISTERS, n, 2), (LANES, n, 4), (LANES, m, 8), (REGISTERS, m, rows // 8), (REGISTERS, n, columns // 8)]
    return doubled([*tile, *((WARPS, axis, warps[axis]) for axis in order)], rank)


def linear(of: dict[str, list[int]]) -> Layout:
    steps = (of[name] for name in ("register", "lane", "warp"))
    return Layout(*([tuple(step) for step in part] for part in steps))  # type: ignore[arg-type]


KINDS: dict[str, Callable[[dict[str, list[int]]], Layout]] = {
    "blocked": blocked, "nvidia_mma": product, "linear": linear,
}  # fmt: skip


def layout_of(text: str, shape: Sequence[int]) -> Layout | None:
    """The layout of a text without names of other texts, on a tensor of this shape; None if its kind is not known."""
    found = KIND.fullmatch(text)
    if not found:
        return None
    kind, inner = found.groups()
    if kind == "slice":
        dim, _, parent = inner.partition(", parent = ")
        axis = int(dim.removeprefix("dim = "))
        whole = layout_of(parent, [*shape[:axis], 1, *shape[axis:]])
        return whole and Layout(*([step[:axis] + step[axis + 1 :] for step in part] for part in whole))
    numbers = {name: n if isinstance(n := literal_eval(own), list) else [n] for name, own in NUMBERS.findall(inner)}
    several = any(n > 1 for n in numbers.get("CTAsPerCGA", [])) or numbers.get("CGALayout")
    if kind not in KINDS or several or numbers.get("versionMajor", [2]) not in ([2], [3]):
        return None
    try:
        return KINDS[kind](numbers).in_shape(shape)
    except (KeyError, ValueError, IndexError):  # a text of another release
        return None
