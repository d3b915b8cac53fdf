"""Runs launches by Triton's own interpreter, and prints what each argument was asked for: words and distinct words.

Run as a program with TRITON_INTERPRET=1, it reads launches as JSON: [[file, kernel, grid, arguments], ...]. It shares
no code with iosim.
"""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np

TYPES = {"fp16": "float16", "fp32": "float32", "int32": "int32"}


class Array:
    """An array that Triton takes for a tensor. Addresses from `start` to `end` belong to it."""

    def __init__(self, array, dtype=None, around_bytes=0):
        self.array, self.dtype, self.shape = array, dtype or array.dtype, array.shape
        start, end = np.lib.array_utils.byte_bounds(array)
        self.start, self.end = start - around_bytes, end + around_bytes

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)


def arrays(arguments):
    """The arguments, with arrays for tensors and for lists of integers."""
    made = {}
    for name, value in arguments.items():
        if isinstance(value, list) and isinstance(value[0], str):
            made[name] = Array(np.ones(value[1], TYPES[value[0]]))
        else:
            made[name] = Array(np.array(value, "int32")) if isinstance(value, list) else value
    return made


def loop_numbers(*ends, **named):
    """The numbers of a loop as tensors, as compiled code has them. Triton's interpreter gives integers of Python."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    for number in range(*(int(end) for end in ends)):
        yield tl.tensor(TensorHandle(np.array([number], np.int32), tl.int32), tl.int32)


def give_loop_numbers(function, seen):
    """Let a function, and all that it may call, loop over tensors."""
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(function, InterpretedFunction) and function.fn.__globals__ not in seen:
        names = function.fn.__globals__
        seen.append(names)
        for value in list(names.values()):
            give_loop_numbers(value, seen)
        names["range"] = loop_numbers


def counted(kernel, grid, arguments):
    """{argument: {way: [words, distinct words]}} of a launch."""
    from triton.runtime import interpreter

    made = arrays(arguments)
    bases = {name: getattr(value, "base", value) for name, value in made.items()}  # of tensor descriptors
    asked = {name: {} for name, value in bases.items() if isinstance(value, Array)}

    def note(way, pointers, mask):
        places = pointers.data.ravel()
        on = np.broadcast_to(True if mask is None else mask.data, np.shape(pointers.data)).ravel()
        places = places[on.astype(bool)]
        for name in asked:
            inside = (bases[name].start <= places) & (places < bases[name].end)
            if inside.any():
                asked[name].setdefault(way, []).append(places[inside])
            places = places[~inside]
        if places.size:
            raise IndexError(f"{way}: {places.size} words outside of every tensor")

    builder = interpreter.InterpreterBuilder
    load, store, atomic = builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw

    def noted_load(self, pointers, mask, *rest, **named):
        if isinstance(mask, np.ndarray):  # of a descriptor or a block pointer, in Triton 3.6
            mask = interpreter.TensorHandle(mask, interpreter.tl.int1)
        mask.data = mask.data.astype(bool)  # a comparison of two integers of Python has another type
        note("reads", pointers, mask)
        return load(self, pointers, mask, *rest, **named)

    def noted_store(self, pointers, value, mask, *rest, **named):
        note("writes", pointers, mask)
        return store(self, pointers, value, mask, *rest, **named)

    def noted_atomic(self, way, pointers, value, mask, *rest, **named):
        note("atomics", pointers, mask)
        if value.dtype.scalar.is_floating() and value.dtype.scalar.primitive_bitwidth == 16:
            return value  # Triton's interpreter has no atomics of such numbers, and no word depends on them
        return atomic(self, way, pointers, value, mask, *rest, **named)

    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        """Make integers of arrays with one element: NumPy 2.4 does not, and Triton 3.6 asks it to."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    patch_core = interpreter._patch_lang_core

    def patched_core(lang, scope):
        patch_core(lang, scope)
        scope.set_attr(lang, "range", loop_numbers)

    interpreter._patch_lang_tensor, interpreter._patch_lang_core = patched, patched_core
    give_loop_numbers(kernel, [])
    executor = interpreter.GridExecutor
    executor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    executor._restore_args_dev = lambda *_: None
    builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw = (
        noted_load,
        noted_store,
        noted_atomic,
    )
    try:
        kernel[tuple(grid)](**made)
    finally:
        builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw = load, store, atomic
        interpreter._patch_lang_tensor, interpreter._patch_lang_core = patch, patch_core
    return {
        name: {way: [sum(map(len, at)), len(np.unique(np.concatenate(at)))] for way, at in ways.items()}
        for name, ways in asked.items()
    }


if __name__ == "__main__":
    answers = []
    for file, name, grid, arguments in json.load(sys.stdin):
        spec = spec_from_file_location("interpreted_kernels", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        answers.append(counted(getattr(module, name), grid, arguments))
    print(json.dumps(answers))
