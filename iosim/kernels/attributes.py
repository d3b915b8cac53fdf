"""Attributes of operations that a release of Triton has no binding for, read from the module's text.

Triton 3.9 gives integers by bindings; 3.6 does not. No release gives the targets of a branch, or the order of
`tt.trans`. Operations of one name stand in the text in the order of a walk, because none is nested in another of the
same name.
"""

from __future__ import annotations

import re

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
NEEDED = ("arith.constant", "arith.cmpi", "tt.get_program_id", "tt.make_range", "tt.trans", "cf.br", "cf.cond_br")
AXES = {"x": 0, "y": 1, "z": 2}
NAMED = re.compile(r"\b(axis|start|end) = (-?\d+) : i32")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(-?\d+|true|false)>? :")
CONSTANT_TRUTH = re.compile(r"arith\.constant (?:dense<)?(true|false)\b")
TARGET = re.compile(r"\^bb(\d+)(?:\(([^:)]*):)?")
NAME = re.compile(r'^\s*(?:%[^=]+ = )?"?((?:arith|tt|cf)\.\w+)"?[\s(]')


class Attributes:
    """The lines of a module by the names of their operations, in order. Each line is taken once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, list[str]] = {}
        for line in text.splitlines():
            found = NAME.match(line)
            if found:
                self.lines.setdefault(found[1], []).append(line)

    def take(self, name: str) -> str:
        """The line of the next operation of this name; empty if it has none."""
        return lines.pop(0) if (lines := self.lines.get(name)) else ""

    def left(self) -> list[str]:
        """The lines that were not taken, of operations that need text. If there are any, the order was wrong."""
        return [line for name in NEEDED for line in self.lines.get(name, [])]


def numbers_of(name: str, line: str) -> dict[str, int]:
    """The integer attributes of an operation."""
    if name == "arith.cmpi":
        return {"predicate": PREDICATES.index(line.split("arith.cmpi ")[1].split(",")[0].strip())}
    if name in ("tt.get_program_id", "tt.get_num_programs"):
        return {"axis": AXES[line.split(name)[1].split()[0]]}
    return {key: int(value) for key, value in NAMED.findall(line)}


def constant_of(line: str) -> int | None:
    """The integer of a constant; None for other constants."""
    truth = CONSTANT_TRUTH.search(line)
    if truth:
        return int(truth[1] == "true")
    found = CONSTANT.search(line)
    return int(found[1]) if found else None


def targets_of(line: str) -> tuple[tuple[int, int], ...]:
    """The pairs (target block, number of operands for it) of a branch."""
    return tuple((int(n), len(taken.split(",")) if taken else 0) for n, taken in TARGET.findall(line))


def order_of(line: str) -> tuple[int, ...]:
    """The order of axes of `tt.trans`."""
    found = re.search(r"order = array<i32: ([\d, ]+)>", line)
    return tuple(int(n) for n in found[1].split(",")) if found else ()
