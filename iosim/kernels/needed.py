"""The values of a kernel that decide the words that it moves: all that addresses, masks and bounds depend on."""

from __future__ import annotations

from collections.abc import Iterable

from .code import MEMORY, Code, Operation

MASK_AT = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}  # the index of the mask among the operands
# How many of the first operands decide control flow.
CONTROL = {"scf.for": 3, "scf.if": 1, "scf.while": 0, "scf.condition": 1, "cf.cond_br": 1, "cf.br": 0}


def pointer_of(operation: Operation) -> int:
    """The operand with the address that an operation loads from or stores to."""
    return operation.operands[0]


def mask_of(operation: Operation) -> int | None:
    """The operand with the mask of an operation; None without one."""
    at = MASK_AT.get(operation.name)
    return operation.operands[at] if at is not None and len(operation.operands) > at else None


def needed_values(code: Code) -> set[int]:
    """The values that addresses, masks, loop bounds and conditions depend on."""
    arrows = dependencies(code)
    found: set[int] = set()
    wanted = [value for operation in code.operations() for value in asked_by(operation)]
    while wanted:
        value = wanted.pop()
        if value not in found:
            found.add(value)
            wanted += arrows.get(value, ())
    return found


def asked_by(operation: Operation) -> Iterable[int]:
    """The operands of an operation that are needed even if its results are not."""
    if operation.name in MEMORY:
        mask = mask_of(operation)
        return (pointer_of(operation),) if mask is None else (pointer_of(operation), mask)
    if operation.name == "scf.while" or operation.acts or operation.name in ("cf.cond_br", "scf.condition"):
        return operation.operands[: CONTROL.get(operation.name, 0)]
    return ()


def dependencies(code: Code) -> dict[int, list[int]]:
    """{value: values that it is computed from}."""
    arrows: dict[int, list[int]] = {}
    for operation in code.operations():
        for value, source in flows(operation):
            arrows.setdefault(value, []).append(source)
        for block, number in ((b, k) for b in [operation] for k in range(len(b.targets))):
            target, taken = block.targets[number]
            first = CONTROL[block.name] + sum(n for _, n in block.targets[:number])
            sources = block.operands[first : first + taken]
            for value, source in zip(code.blocks[target].arguments, sources, strict=True):
                arrows.setdefault(value, []).append(source)
                arrows[value] += block.operands[: CONTROL[block.name]]
    return arrows


def flows(operation: Operation) -> Iterable[tuple[int, int]]:
    """Pairs (value, a value that it is computed from) of an operation's results and of the arguments of its blocks."""
    control = operation.operands[: CONTROL.get(operation.name, 0)]
    if operation.name == "scf.for":
        (body,), inits, yielded = operation.regions[0], operation.operands[3:], end_of(operation, 0)
        yield from ((body.arguments[0], bound) for bound in control)
        for result, argument, init, last in zip(operation.results, body.arguments[1:], inits, yielded, strict=True):
            yield from ((v, s) for v in (result, argument) for s in (init, last, *control))
    elif operation.name == "scf.if":
        for number in range(len(operation.regions)):
            yield from zip(operation.results, end_of(operation, number), strict=False)
        yield from ((result, control[0]) for result in operation.results)
    elif operation.name == "scf.while":
        (before,), (after,) = operation.regions
        condition, *passed = end_of(operation, 0)
        yield from zip(before.arguments, operation.operands, strict=True)
        yield from zip(before.arguments, end_of(operation, 1), strict=True)
        yield from ((v, s) for v, s in zip(after.arguments, passed, strict=True))
        yield from ((v, s) for v, last in zip(operation.results, passed, strict=True) for s in (last, condition))
    else:
        yield from ((result, source) for result in operation.results for source in operation.operands)


def end_of(operation: Operation, region: int) -> tuple[int, ...]:
    """The operands of the last operation of a region, which has one block; none if the region is empty."""
    blocks = operation.regions[region]
    return blocks[0].operations[-1].operands if blocks else ()
