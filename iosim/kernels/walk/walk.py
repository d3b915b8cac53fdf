"""The walk over a kernel's code: every request of every program, without computing what the kernel computes.

Only values that addresses, masks and bounds depend on are computed, for many programs at once. `on` says which
programs run the current code. A branch that no program takes is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from .code import DOTS, MEMORY, READS, Block, Code, Operation, needed_values
from .launch import Launch
from .numbers import Choice, Known, Mask, Number, Pointer, Unknown
from .operations import RULES, as_mask, as_number, either, result_of
from .places import Refusal, place_of
from .requests import Requests
from .work import COUNTED

if TYPE_CHECKING:
    from ...errors import InputError
    from .log import Log
    from .numbers import Integers, Truths
    from .requests import Asked

    Values = dict[int, Known]

CHUNK_LANES = 1 << 22  # programs at a time, times the longest axis of a tensor
MOST_TURNS = 10_000_000  # iterations of a `while`
BRANCHES = ("cf.br", "cf.cond_br")
HARMLESS = {  # operations that move no words of arguments
    *RULES, *DOTS, *BRANCHES, "tt.get_program_id", "tt.get_num_programs", "tt.return", "tt.fp_to_fp", "tt.clampf",
    "tt.mulhiui", "tt.precise_sqrt", "tt.precise_divf", "tt.extern_elementwise", "tt.elementwise_inline_asm",
    "tt.int_to_ptr", "tt.ptr_to_int", "tt.join", "tt.split", "tt.cat", "tt.gather", "tt.histogram", "tt.assert",
    "tt.print", "ub.poison", "gpu.barrier", "ttg.barrier", "tt.make_tensor_descriptor", "tt.fp4_to_fp",
    "llvm.intr.assume", "tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents",
}  # fmt: skip


@dataclass
class Moved:
    """The requests of a launch by (argument, kind), and how often each program ran each block with arithmetic."""

    requests: dict[tuple[str, ...], Requests] = field(default_factory=dict)
    times: dict[int, Integers] = field(default_factory=dict)
    by_line: bool = False
    """Whether the key of a request also has the line of its operation, with the text."""
    log: Log | None = None
    """The log that receives each request in order."""
    unplaced: dict[tuple[str, ...], InputError] = field(default_factory=dict)
    """{key of requests: why the addresses of some of them are not known}."""
    asked: Mapping[int, Asked] = field(default_factory=dict)
    """{id of a load: its instructions}, as far as they are known."""


def walk(
    code: Code,
    launch: Launch,
    by_line: bool = False,
    log: Log | None = None,
    asked: Mapping[int, Asked] = MappingProxyType({}),
) -> Moved:
    """All requests of a launch. Raises Refusal if something about them cannot be known."""
    moved = Moved(by_line=by_line, log=log, asked=asked)
    if log is not None:
        log.tensors = launch.tensors
    needed = needed_values(code)
    blocks = [id(block) for block in code.every_block() if any(o.name in COUNTED for o in block.operations)]
    moved.times = {block: np.zeros(launch.programs, np.int64) for block in blocks}
    longest = max((n for o in code.operations() for t in o.types for n in t.shape), default=1)
    step = max(1, CHUNK_LANES // longest)
    for first in range(0, launch.programs, step):
        Programs(code, launch, needed, moved, first, min(step, launch.programs - first)).run()
    return moved


def in_order_of_jumps(blocks: Sequence[Block]) -> list[int]:
    """The blocks of a body that can be reached, each after all blocks that lead to it. Raises Refusal for a jump
    back."""
    found: list[int] = []
    under_way: list[int] = []

    def visit(number: int) -> None:
        under_way.append(number)
        last = blocks[number].operations[-1]
        for target, _ in last.targets:
            if target in under_way:
                raise Refusal(last, "a jump back")
            if target not in found:
                visit(target)
        under_way.pop()
        found.append(number)

    visit(0)
    return found[::-1]


class Programs:
    """A group of programs of a launch that run together."""

    def __init__(self, code: Code, launch: Launch, needed: set[int], moved: Moved, first: int, count: int) -> None:
        self.code, self.launch, self.needed, self.moved = code, launch, needed, moved
        numbers = np.arange(first, first + count, dtype=np.int64)
        x, y, _ = launch.grid
        self.ids = (numbers % x, numbers // x % y, numbers // (x * y))
        self.first, self.count = first, count
        self.values: Values = {}

    # ------------------------------------------------------------ values

    def run(self) -> None:
        """Run the blocks of the kernel's body, each after all blocks that lead to it."""
        self.start()
        places = [np.zeros(self.count, bool) for _ in self.code.blocks]
        places[0] |= True
        for number in in_order_of_jumps(self.code.blocks):
            block, on = self.code.blocks[number], places[number]
            if on.any():
                self.run_block(block, on)
                for target, taken, values in self.branches(block.operations[-1], on):
                    self.enter(self.code.blocks[target], values, taken, places[target])
                    places[target] |= taken

    def start(self) -> None:
        """Give the kernel's arguments their values: addresses, and integers that are known."""
        code = self.code
        arguments = zip(code.blocks[0].arguments, code.arguments, code.types, strict=True)
        for number, (value, name, type) in enumerate(arguments):
            if type.is_pointer:
                self.values[value] = Pointer(number, Number.constant(0, 0))
            elif name in self.launch.scalars and type.is_integer:
                scalar = Number.constant(self.launch.scalars[name], 0)
                self.values[value] = Mask.of(scalar.array != 0) if type.bits == 1 else scalar

    def branches(self, last: Operation, on: Truths) -> Iterator[tuple[int, Truths, tuple[int, ...]]]:
        """(target, programs that jump there, operands for it) of the branch at the end of a block."""
        if last.name not in BRANCHES:
            return
        ways = [on]
        if last.name == "cf.cond_br":
            condition = self.truth(last, last.operands[0])
            ways = [on & condition, on & ~condition]
        for (target, values), way in zip(last.jumps(), ways, strict=True):
            yield target, way, values

    def enter(self, block: Block, values: Sequence[int], on: Truths, before: Truths) -> None:
        """Give the arguments of a block their values, for the programs that are `on`."""
        for argument, value in zip(block.arguments, values, strict=True):
            if argument in self.needed:
                new = self.values[value]
                old = self.values.get(argument) if before.any() else None
                self.values[argument] = new if old is None else self.either(block.operations[0], on, new, old)

    def either(self, operation: Operation, on: Truths, new: Known, old: Known) -> Known:
        """The new value for programs that are `on`, and the old one for others."""
        return new if on.all() else either(operation, on, new, old)

    def number(self, operation: Operation, value: int) -> Integers:
        """A scalar integer of each program."""
        return np.broadcast_to(as_number(self.values[value], operation).array.reshape(-1), (self.count,))

    def truth(self, operation: Operation, value: int) -> Truths:
        """A scalar truth value of each program."""
        return np.broadcast_to(as_mask(self.values[value], operation).array.reshape(-1), (self.count,))

    # ------------------------------------------------------------ operations

    def run_block(self, block: Block, on: Truths) -> None:
        """Run operations in order."""
        if id(block) in self.moved.times:
            self.moved.times[id(block)][self.first : self.first + self.count] += on
        for operation in block.operations:
            self.run_operation(operation, on)

    def run_operation(self, operation: Operation, on: Truths) -> None:
        """Run one operation, if its effect or its result is needed."""
        wanted = any(result in self.needed for result in operation.results)
        if operation.name in MEMORY:
            pointer = self.values[operation.pointer]
            self.request(operation, pointer, on)
            if wanted:
                self.values[operation.results[0]] = self.loaded(operation, pointer, on)
        elif operation.name.startswith("scf."):
            if wanted or operation.acts:
                getattr(self, "run_" + operation.name.removeprefix("scf."), self.refuse)(operation, on)
        elif operation.name not in HARMLESS and not operation.name.startswith(("arith.", "math.")):
            self.refuse(operation, on)
        elif wanted:
            self.compute(operation)

    def refuse(self, operation: Operation, on: Truths) -> None:
        raise Refusal(operation, operation.name)

    def compute(self, operation: Operation) -> None:
        """Compute a value that is needed."""
        if operation.name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = operation.numbers["axis"]
            array = self.ids[axis] if operation.name == "tt.get_program_id" else np.array([self.launch.grid[axis]])
            self.values[operation.results[0]] = Number.of(array.astype(np.int64))
            return
        missing = [k for k, value in enumerate(operation.operands) if value not in self.values]
        if missing:
            what = f"a floating-point number ({operation.operand_types[missing[0]].element})"
            self.values.update(dict.fromkeys(operation.results, Unknown(Refusal(operation, what))))
            return
        try:
            if operation.results[0] in self.code.holders:
                address = self.values[operation.operands[0]]
                offset = address if isinstance(address, Unknown) else as_number(address, operation)
                self.values[operation.results[0]] = Pointer(~self.code.holders[operation.results[0]], offset)
                return
            if len(operation.results) != 1:
                raise Refusal(operation, f"{operation.name} in an address, a mask or a loop bound")
            self.values[operation.results[0]] = result_of(operation, [self.values[v] for v in operation.operands])
        except Refusal as error:  # it may decide nothing but addresses
            self.values.update(dict.fromkeys(operation.results, Unknown(error)))

    def request(self, operation: Operation, pointer: Known, on: Truths) -> None:
        """Record the memory request of an operation at these addresses."""
        if isinstance(pointer, Choice):
            self.request(operation, pointer.yes, on & pointer.where)
            self.request(operation, pointer.no, on & ~pointer.where)
            return
        mask = operation.mask
        if isinstance(pointer, Unknown):
            raise pointer.error
        if not isinstance(pointer, Pointer):
            raise Refusal(operation, "an address that is no argument of the kernel")
        if self.moved.log is not None and pointer.argument < 0:
            raise Refusal(operation, "an address that is loaded, in a trace")
        type = operation.operand_types[0]
        key: tuple[str, ...] = self.code.name_of(pointer.argument), MEMORY[operation.name]
        key += (place_of(operation),) if self.moved.by_line else ()
        where = None if mask is None else as_mask(self.values[mask], operation)
        width = type.pointee.element_bytes
        if isinstance(pointer.offset, Unknown):
            self.request_anywhere(key, pointer.offset, where, type.shape, width, on)
            return
        if key not in self.moved.requests:
            log = self.moved.log
            told = None if log is None else partial(log.note, key[0], key[1])
            self.moved.requests[key] = Requests(told, whole=self.moved.by_line)
        if self.moved.log is not None:
            self.moved.log.first, self.moved.log.number = self.first, self.moved.log.number + 1
        asked = self.moved.asked.get(id(operation))
        self.moved.requests[key].add(pointer.offset, where, type.shape, width, on, asked)

    def request_anywhere(
        self, key: tuple[str, ...], reason: Unknown, mask: Mask | None, shape: tuple[int, ...], width: int, on: Truths
    ) -> None:
        """Record the words of a request whose addresses are not known."""
        if self.moved.log is not None:
            raise reason.error
        self.moved.unplaced.setdefault(key, reason.error)
        self.moved.requests.setdefault(key, Requests()).add_anywhere(mask, shape, width, on)

    def loaded(self, operation: Operation, pointer: Known, on: Truths) -> Known:
        """The values of a load, from the data of its argument."""
        if isinstance(pointer, Choice):
            ways = (pointer.yes, on & pointer.where), (pointer.no, on & ~pointer.where)
            return either(operation, pointer.where, *(self.loaded(operation, *way) for way in ways))
        mask = operation.mask
        assert isinstance(pointer, Pointer)
        name = self.code.name_of(pointer.argument)
        tensor = self.launch.tensors.get(name)
        data = None if tensor is None else tensor.data
        type = operation.types[0]
        if not type.is_integer:
            return Unknown(Refusal(operation, f"a floating-point number ({type.element}) loaded from {name}"))
        if MEMORY[operation.name] != READS or data is None:
            given = MEMORY[operation.name] == READS and pointer.argument >= 0
            way = f"--arg {name}=FILE.npy"
            if tensor and tensor.memory:
                way = f"fill {name} in the script before the launch (copy_), if a kernel has changed it"
            hint = f"give its values: {way}" if given else ""
            return Unknown(Refusal(operation, f"what is loaded from {name} decides an address, a mask or a loop", hint))
        if pointer.argument in self.code.changed:
            return Unknown(Refusal(operation, f"a decision by what {name} holds, which the kernel itself changes"))
        if isinstance(pointer.offset, Unknown):
            return pointer.offset
        lanes = (1,) * len(type.shape)
        here = on.reshape(-1, *lanes)
        if mask is not None:
            here = here & as_mask(self.values[mask], operation).array
        flat = data.reshape(-1)
        at = pointer.offset.array // type.element_bytes
        at, here = np.broadcast_arrays(at, here)
        if (here & ((at < 0) | (at >= len(flat)))).any():
            raise Refusal(operation, f"a load outside of {name}, which has {len(flat)} words")
        found = np.where(here, flat[np.where(here, at, 0)].astype(np.int64), 0)
        return Mask.of(found & 1 != 0) if type.bits == 1 else Number.of(found)

    # ------------------------------------------------------------ loops and branches

    def run_if(self, operation: Operation, on: Truths) -> None:
        condition = self.truth(operation, operation.operands[0])
        ways: list[tuple[Truths, list[Known | None]]] = []
        for region, way in enumerate((on & condition, on & ~condition)):
            if way.any() and operation.regions[region:] and operation.regions[region]:
                self.run_block(operation.regions[region][0], way)
                ways.append((way, [self.values.get(v) for v in operation.end_of(region)]))
        for number, result in enumerate(operation.results):
            if result in self.needed and ways:
                (way, values), *rest = ways
                found = values[number]
                assert found is not None
                for _, others in rest:
                    other = others[number]
                    assert other is not None
                    found = self.either(operation, way, found, other)
                self.values[result] = found

    def run_for(self, operation: Operation, on: Truths) -> None:
        body = operation.regions[0][0]
        first, end, step = (self.number(operation, value) for value in operation.operands[:3])
        if (step[on] <= 0).any():
            raise Refusal(operation, "a loop whose step is not above 0")
        turns = np.where(on, np.maximum(0, -(-(end - first) // np.maximum(step, 1))), 0)
        carried = Carried(self, body.arguments[1:], operation.operands[3:], operation.end_of(0), operation.results)
        carried.start()
        for turn in range(int(turns.max(initial=0))):
            now = turns > turn
            self.values[body.arguments[0]] = Number.of(first + turn * step if first.any() else turn * uniform(step))
            self.run_block(body, now)
            carried.turn(operation, now)
        carried.end()

    def run_while(self, operation: Operation, on: Truths) -> None:
        (before,), (after,) = operation.regions
        condition, *passed = operation.end_of(0)
        carried = Carried(self, before.arguments, operation.operands, operation.end_of(1), ())
        carried.start()
        now = on
        results: dict[int, Known] = {}
        for _ in range(MOST_TURNS):
            self.run_block(before, now)
            goes = now & self.truth(operation, condition)
            for result, argument, value in zip(operation.results, after.arguments, passed, strict=True):
                if result in self.needed:
                    old = results.get(result)
                    new = self.values[value]
                    results[result] = new if old is None else self.either(operation, now, new, old)
                if argument in self.needed:
                    self.values[argument] = self.values[value]
            now = goes
            if not now.any():
                self.values.update(results)
                return
            self.run_block(after, now)
            carried.turn(operation, now)
        raise Refusal(operation, f"a loop of more than {MOST_TURNS} iterations")


class Carried:
    """The values that a loop passes from one iteration to the next.

    If a result is needed after the loop, programs that have left the loop keep theirs.
    """

    def __init__(
        self,
        programs: Programs,
        arguments: Sequence[int],
        inits: Sequence[int],
        last: Sequence[int],
        results: Sequence[int],
    ) -> None:
        self.programs = programs
        needed, results = programs.needed, results or [-1] * len(arguments)
        self.paths = [path for path in zip(arguments, inits, last, results, strict=True) if {path[0], path[3]} & needed]

    def start(self) -> None:
        """Set the values before the first iteration."""
        values = self.programs.values
        values.update({argument: values[init] for argument, init, _, _ in self.paths})

    def turn(self, operation: Operation, on: Truths) -> None:
        """Set the values after an iteration of the programs that are `on`."""
        values, needed = self.programs.values, self.programs.needed
        new = {argument: values[last] for argument, _, last, _ in self.paths}
        for argument, _, _, result in self.paths:
            if result in needed:
                new[argument] = self.programs.either(operation, on, new[argument], values[argument])
        values.update(new)

    def end(self) -> None:
        """Set the results of the loop after the last iteration."""
        values = self.programs.values
        values.update({result: values[argument] for argument, _, _, result in self.paths if result >= 0})


def uniform(array: Integers) -> Integers:
    """An array of one element where all are equal."""
    return array[:1] if (array == array[0]).all() else array
