"""The walk over code that is written here, operation by operation: what kernels rarely have, and what is refused.

Triton is not needed. What a kernel asks for is compared with a plain loop in Python.
"""

from dataclasses import replace

import numpy as np
import pytest

from iosim.errors import InputError
from iosim.kernels.walk.code import Block, Code, Operation, Type, needed_values
from iosim.kernels.walk.launch import Launch, Tensor
from iosim.kernels.walk.walk import walk

I32, I1, POINTER = Type.of("i32"), Type.of("i1"), Type.of("!tt.ptr<f32>")
TYPES = {"i": I32, "b": I1, "p": POINTER}


def tensor_of(data):
    return Tensor("int32", (len(data),), np.array(data))


class Text:
    """Builds operations: a value is a number with a letter for its type."""

    def __init__(self):
        self.types = {}

    def value(self, letter):
        self.types[len(self.types) + 1] = TYPES[letter]
        return len(self.types)

    def op(self, name, *operands, result=None, into=None, regions=(), targets=(), constant=None, **numbers):
        results = (self.value(result),) if isinstance(result, str) else tuple(result or ())
        types = tuple(self.types[v] for v in results)
        given, inside = tuple(self.types[v] for v in operands), tuple((r,) for r in regions)
        made = Operation(name, operands, results, given, types, inside, numbers, constant, targets=targets)
        into.append(made)
        return results[0] if results else made


class Kernel(Text):
    """A kernel with arguments X (a pointer) and n."""

    def __init__(self):
        super().__init__()
        self.X, self.n = self.value("p"), self.value("i")
        self.body = []
        self.pid = self.op("tt.get_program_id", result="i", into=self.body, axis=0)

    def number(self, value, into=None):
        return self.op("arith.constant", result="i", into=self.body if into is None else into, constant=value)

    def load(self, at, into, kind="tt.load", result=None):
        """A load of one word at an index."""
        address = self.op("tt.addptr", self.X, at, result="p", into=into)
        return self.op(kind, address, result=result, into=into)

    def code(self, *more):
        first = Block((self.X, self.n), tuple(self.body))
        return Code("kernel", ("X", "n"), (POINTER, I32), (first, *(Block((), tuple(b)) for b in more)))

    def words(self, programs, n, *more, data=None):
        """The words that each index of X is asked for."""
        launch = Launch((programs, 1, 1), {"n": n}, {} if data is None else {"X": tensor_of(data)})
        moved = walk(self.code(*more), launch)
        found = {}
        for requests in moved.requests.values():
            for pattern in requests.patterns.values():
                starts, counts = pattern.gather()
                for start, count in zip(starts, counts, strict=True):
                    for offset in pattern.offsets:
                        found[int(start + offset) // 4] = found.get(int(start + offset) // 4, 0) + int(count)
        return found


def counted(indices):
    return {i: indices.count(i) for i in indices}


def test_two_early_ends_share_a_block_that_stands_before_the_second():
    """Programs from n on end in block 1; so do those below 2, whose test stands in block 2."""
    k = Kernel()
    beyond = k.op("arith.cmpi", k.pid, k.n, result="b", into=k.body, predicate=5)
    k.op("cf.cond_br", beyond, into=k.body, targets=((1, 0), (2, 0)))
    ends, second, rest = [], [], []
    k.op("tt.return", into=ends)
    small = k.op("arith.cmpi", k.pid, k.number(2, second), result="b", into=second, predicate=2)
    k.op("cf.cond_br", small, into=second, targets=((1, 0), (3, 0)))
    k.load(k.pid, rest)
    k.op("tt.return", into=rest)
    assert k.words(9, 5, ends, second, rest) == {2: 1, 3: 1, 4: 1}


def test_a_jump_back_is_refused():
    k = Kernel()
    k.op("cf.br", into=k.body, targets=((1, 0),))
    again = []
    k.op("cf.br", into=again, targets=((1, 0),))
    with pytest.raises(InputError, match="a jump back"):
        k.words(1, 1, again)


@pytest.mark.parametrize("change", ["tt.store", "tt.atomic_rmw", "tt.atomic_cas"])
def test_data_that_the_kernel_itself_changes_decide_nothing(change):
    """A program may have changed them before another loads them. Data of other arguments are known still."""
    k, inner = Kernel(), []
    k.types[k.X] = TYPES["p"] = Type.of("!tt.ptr<i32>")
    try:
        found = k.load(k.pid, k.body, result="i")
        k.load(k.pid, inner)
        address = k.op("tt.addptr", k.X, found, result="p", into=inner)
        k.op("scf.yield", into=inner)
        k.op("scf.if", k.op("arith.cmpi", found, k.n, result="b", into=k.body, predicate=2), into=k.body,
             regions=[Block((), tuple(inner))])  # fmt: skip
    finally:
        TYPES["p"] = POINTER
    assert k.code().changed == set() and k.words(3, 2, data=[7, 1, 1, 9])
    inner.insert(-1, Operation(change, (address, found), (), (Type.of("!tt.ptr<i32>"), I32)))
    k.body[-1] = replace(k.body[-1], regions=((Block((), tuple(inner)),),))
    assert k.code().changed == {0}
    with pytest.raises(InputError, match="a decision by what X holds, which the kernel itself changes"):
        k.words(3, 2, data=[7, 1, 1, 9])


@pytest.mark.parametrize("name", ["tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents"])
def test_a_wait_for_the_launch_before_moves_no_word(name):
    """Triton 3.9 has it as an operation of its own."""
    k = Kernel()
    k.op(name, into=k.body)
    k.load(k.pid, k.body, result="i")
    assert k.words(3, 0) == counted([0, 1, 2])


@pytest.mark.parametrize("name", ["tt.call", "tt.descriptor_gather"])
def test_operations_that_may_move_words_unseen_are_refused(name):
    k = Kernel()
    k.op(name, into=k.body)
    with pytest.raises(InputError, match=name):
        k.words(1, 1)


def test_what_only_computes_is_not_looked_at():
    k = Kernel()
    k.types[number := len(k.types) + 1] = Type.of("f32")
    k.op("math.exp", result=[number], into=k.body)
    used = k.op("arith.muli", k.pid, k.pid, result="i", into=k.body)
    unused = k.op("arith.divsi", k.pid, k.n, result="i", into=k.body)
    k.load(used, k.body)
    assert used in needed_values(k.code()) and not {unused, number} & needed_values(k.code())
    assert k.words(3, 0) == counted([0, 1, 4])
