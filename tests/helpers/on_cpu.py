"""Runs generated programs on the CPU: shim/shim.h takes the place of cuda/ptx.cuh, g++ compiles, ctypes calls."""

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from paths import ROOT

from iosim.gpu.cuda.machine import PRELUDE_FILES, STEP_FILES, known_steps, prelude
from iosim.gpu.outputs import answers_of
from iosim.gpu.same_steps import slope_of_job
from iosim.schedules import find

SHIM = Path(__file__).parent / "shim" / "shim.h"
PACKAGE = ROOT / "iosim"
WHY_NOT = "" if shutil.which("g++") else "g++ is not installed"
WIDTH = {"fp8": 1, "fp32": 4, "fp16": 2, "bf16": 2, "int32": 4}
PLAIN = ["-fno-exceptions", "-fno-asynchronous-unwind-tables"]  # a sixth less to compile
NUMPY = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32}


# Where a copy begins, and where a lane turns to a piece of it (cuda/tiles.cuh): what is put before each.
MARKS = {
    "constexpr int W = copy_width<ALIGNED, B, G>();": ("new_copy();", 2),
    "f(r0 + e / pieces,": ("at_piece(r0, e),", 1),
    "f(r0 + row_of<pieces, rows>(e),": ("at_piece(r0, e),", 2),
}


def marked(text):
    """The text of cuda/tiles.cuh, with marks that tell the shim the requests of warps."""
    for place, (mark, times) in MARKS.items():
        assert text.count(place) == times, place
        text = text.replace(place, f"{mark} {place}")
    read = "return table[index >> 5]"  # of a bit of a mask's table
    assert text.count(read) == 1
    return text.replace(read, "return table_read(table + (index >> 5))")


def prelude_file(name, requests):
    """The text of a file that all programs include, as the shim needs it."""
    if name == "gpu/cuda/ptx.cuh":
        return ""
    text = (PACKAGE / name).read_text().replace("#pragma once\n", "")
    return marked(text) if requests and name == "gpu/cuda/tiles.cuh" else text


def translation_unit(programs, requests=False, steps=True):
    """One source for many programs, each in a namespace of its own. `requests`: sectors are counted, which is slower.
    Without `steps` only the copies of a program are compiled, and its outputs mean nothing."""
    parts = ["#define IOSIM_COUNT\n" + "#define IOSIM_REQUESTS\n" * requests + '#include "shim.h"\n']
    parts += [prelude_file(name, requests) for name in PRELUDE_FILES if steps or name not in STEP_FILES]
    for name in () if steps else sorted(known_steps()):
        parts.append(f"template <class... X> DEVICE void {name}(const X&...) {{}}\n")
    for k, program in enumerate(programs):
        text = program.source.removeprefix(prelude()).replace('extern "C" ', "static ")
        parts.append(f"namespace p{k} {{\n{text.replace('extern __shared__ Raw16 shared[];', '')}\nstatic Any a[16];\n")
        for kernel in program.kernels:
            arguments = ", ".join(f"a[{n}]" for n in range(len(kernel.tensors) + len(kernel.tables) + 1))
            parts.append(f"static void run_{kernel.name}() {{ {kernel.name}({arguments}); }}\n")
        parts.append("}\n")
        for n, kernel in enumerate(program.kernels):
            parts.append(
                f'extern "C" const char* launch_{k}_{n}(void** given, int backwards) {{ memcpy(p{k}::a, given, sizeof '
                f"p{k}::a); return launch(p{k}::run_{kernel.name}, {kernel.grid[0]}, {kernel.grid[1]}, "
                f"{kernel.block[0]}, {kernel.smem_bytes}, backwards); }}\n"
            )
    return "".join(parts)


def build(programs, folder, name="kernels", optimise="-O0", requests=False, steps=True):
    """A shared library of all programs. With `requests`, `sectors_moved` tells what a run touched. Without `steps` only
    copies are made."""
    source, library = Path(folder) / f"{name}.cpp", Path(folder) / f"{name}.so"
    source.write_text(translation_unit(programs, requests, steps))
    command = ["g++", "-std=c++17", optimise, *PLAIN, "-w", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", f"-I{SHIM.parent}"]
    done = subprocess.run([*command, str(source), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, re.sub(r"\n.*note:.*", "", done.stderr)[:4000]
    loaded = ctypes.CDLL(str(library))
    loaded.moved.restype = ctypes.c_longlong
    loaded.requests.restype = ctypes.POINTER(Requests)
    return loaded


class Libraries:
    """The programs of cases, compiled when one of them is asked for: those of the short run together, and the others
    together."""

    def __init__(self, cases, program_of, folder, short, requests=False):
        self.folder, self.short, self.requests, self.built = folder, short, requests, {}
        self.groups = [[k for k in range(len(cases)) if short(k) == which] for which in (False, True)]
        self.program = cache(lambda k: program_of(cases[k]))

    def __getitem__(self, k):
        """(program k, its library, its number there)."""
        which = self.short(k)
        if which not in self.built:
            group = [self.program(n) for n in self.groups[which]]
            self.built[which] = build(group, self.folder, f"kernels{which:d}", requests=self.requests)
        return self.program(k), self.built[which], self.groups[which].index(k)


def lines_of(program, pattern):
    """(number of the kernel, number of the line) of each whole line that matches a pattern."""
    return [
        (n, line)
        for n, kernel in enumerate(program.kernels)
        for line, text in enumerate(kernel.source.splitlines())
        if re.fullmatch(pattern, text.strip())
    ]


def without(program, n, line):
    """A copy of a program without one line of one kernel."""
    kernels, lines = list(program.kernels), program.kernels[n].source.splitlines(True)
    kernels[n] = replace(kernels[n], source="".join(lines[:line] + lines[line + 1 :]))
    source = program.source.replace(program.kernels[n].source, kernels[n].source)
    return replace(program, source=source, kernels=tuple(kernels))


CODES = np.arange(127)  # of the positive numbers of E4M3, from the exponent and the 3 bits of each
E4M3 = np.where(CODES < 8, CODES % 8 * 2.0**-9, (8 + CODES % 8) * 2.0 ** (CODES // 8 - 10))


def encode(array, dtype):
    if dtype == "fp8":  # the code of the nearest number
        size = np.minimum(np.nan_to_num(np.abs(array), nan=0), E4M3[-1])
        above = np.searchsorted(E4M3, size).clip(1)
        nearest = above - (size - E4M3[above - 1] <= E4M3[above] - size)
        return np.where(np.isnan(array), 127, nearest | np.where(np.signbit(array), 128, 0)).astype(np.uint8)
    if dtype == "int32":
        return np.nan_to_num(array, nan=-1).astype(np.int32)
    if dtype != "bf16":
        return np.ascontiguousarray(array, NUMPY[dtype])
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def decode(array, dtype):
    if dtype == "fp8":
        return (np.append(E4M3, np.nan)[array % 128] * np.where(array < 128, 1, -1)).astype(np.float32)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else array


def rounded(array, dtype):
    """The array as an element type holds it, in float64."""
    return decode(encode(array, dtype), dtype).astype(np.float64)


def run(library, k, program, inputs, backwards=False):
    """Run program k of a library -> (written tensors as floats, words that the kernels counted, words by the pointers)."""
    arrays = {}
    for name, array in program.arrays.items():
        fill = array.initial if name in program.starts and array.initial is not None else np.nan
        value = inputs[name].reshape(array.full_shape) if name in inputs else np.full(array.full_shape, fill)
        arrays[name] = encode(value, array.dtype)
    counts = np.zeros(len(program.counters), np.uint64)
    library.forget_all()
    for name, array in arrays.items():
        library.announce(
            ctypes.c_void_p(array.ctypes.data), ctypes.c_longlong(array.nbytes), WIDTH[program.arrays[name].dtype]
        )
    for words in program.tables.values():
        library.announce(ctypes.c_void_p(words.ctypes.data), ctypes.c_longlong(words.nbytes), words.itemsize)
    for n, kernel in enumerate(program.kernels):
        values = [arrays[x] for x in kernel.tensors] + [program.tables[x] for x in kernel.tables] + [counts]
        given = (ctypes.c_void_p * 16)(*(x.ctypes.data for x in values))
        launch = getattr(library, f"launch_{k}_{n}")
        launch.restype = ctypes.c_char_p
        fault = launch(given, int(backwards))
        assert not fault, fault.decode()
    pointers = {name: (library.moved(n, 0), library.moved(n, 1)) for n, name in enumerate(arrays)}
    outputs = {
        name: decode(x, program.arrays[name].dtype)
        for name, x in arrays.items()
        if pointers[name][1] or name not in inputs
    }
    return outputs, program.counts_by_tensor(counts), pointers


def slope(job, program, outputs, instances):
    """The slope of a job's outputs beside those of the same steps in NumPy (gpu/same_steps.py)."""
    schedule, p = find(job.name), job.problem.packed
    found = {name: np.asarray(array, np.float64) for name, array in outputs.items()}

    def output_of(name, head, like):
        return found[name].reshape(p.instances, *like.shape)[head]

    cores, names = (
        [kernel.tensor_cores for kernel in program.kernels],
        list(answers_of(schedule, program, instances[0])),
    )
    return slope_of_job(job, cores, names, instances.__getitem__, output_of)


class Requests(ctypes.Structure):
    """The list of this name in shim.h."""

    _fields_ = (("list", ctypes.POINTER(ctypes.c_int)), ("count", ctypes.c_longlong), ("room", ctypes.c_longlong))

    def sectors(self):
        """The sectors that the requests touched, each request by itself. Lanes that ask together have equal rows."""
        if not self.count:
            return 0
        rows = np.ctypeslib.as_array(self.list, (self.count, 8))
        rows = rows[np.lexsort(rows.T)]
        return 1 + int((rows[1:] != rows[:-1]).any(axis=1).sum())


def sectors_moved(library, program):
    """{tensor or table of the mask: (sectors read, sectors written)} of the last run, each request of a warp by itself."""
    return {
        name: tuple(library.requests(n, way).contents.sectors() for way in (0, 1))
        for n, name in enumerate([*program.arrays, *program.tables])
    }
