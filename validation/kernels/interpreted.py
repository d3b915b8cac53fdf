"""Counts small launches a second time, by Triton's own interpreter, and says where its words are those of iosim.

    PYTHONPATH=. python validation/kernels/interpreted.py FOLDER > interpreted.csv

FOLDER is that of corpus.py. The launches are those of launches.toml with the sizes of `small`, because the interpreter
runs one program at a time. Loads, stores and atomics are counted as the tests do
(tests/helpers/triton_interpreter.py). The first configuration of `@triton.autotune` is taken. Words are written as
`argument way words of distinct words`.

`same` is `yes`, `no`, `merged` or empty. `merged` means that words differ because the compiler makes one load of two
equal ones, and the interpreter does both: where the compiler must keep each load, iosim counts the interpreter's words.

The interpreter has no functions of libdevice and no inline assembly. Here they give back what they are given: no word
depends on their values, since iosim refuses a kernel whose addresses do.
"""

from __future__ import annotations

import csv
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import NamedTuple

from listed import Listed, listed, ready

from iosim.errors import IosimError
from iosim.kernels.explain import Explained
from iosim.kernels.walk.launch import DTYPES, Tensor, is_descriptor

HELPERS = Path(__file__).resolve().parents[2] / "tests" / "helpers"
LIMIT_SECONDS = 120
AROUND = 1 << 18  # words before and after a tensor, to which a kernel may reach over its ends

Words = dict[str, dict[str, list[int]]]
"""By argument and way (reads, writes, atomics): words, and distinct words."""


def row_of(one: Listed, folder: Path) -> dict[str, object]:
    """What both say of one launch, or why they are not compared."""
    row = {"package": one.package, "file": one.file, "kernel": one.kernel, "sizes": "", "programs": "",
           "same": "", "said": "", "interpreted": "", "why": ""}  # fmt: skip
    try:
        launch = ready(one)[0]
        texts, _ = one.given(launch.kernel)
        row["sizes"] = ", ".join(f"{name}={text}" for name, text in texts.items() if text.isdigit())
        row["programs"] = str(launch.grid[0] * launch.grid[1] * launch.grid[2])
        said = words_of(launch.explained(resources=False))
        row["said"] = text_of(said)
        found = interpreted(Asked(one.path, launch.kernel.name, launch.grid, launch.values, launch.kernel.constants))
        row["interpreted"] = text_of(found)
    except (IosimError, Uninterpreted) as error:
        return {**row, "why": str(error).replace(str(folder) + "/", "")}
    if found == said:
        return {**row, "same": "yes"}
    with each_load_kept():
        return {**row, "same": "merged" if found == words_of(launch.explained(resources=False)) else "no"}


def words_of(answer: Explained) -> Words:
    """What iosim says, in the form of the interpreter."""
    ways = {name: {way: [w.words, w.distinct_words] for way, w in by.items() if w.words}
            for name, by in answer.ways.items()}  # fmt: skip
    return {name: by for name, by in ways.items() if by}


@contextmanager
def each_load_kept() -> Iterator[None]:
    """A context in which Triton's compiler keeps each load of a kernel. It may not merge, move or remove a volatile
    one."""
    from triton.language.semantic import TritonSemantic

    load = TritonSemantic.load
    TritonSemantic.load = lambda self, *values: load(self, *values[:-1], True)
    try:
        yield
    finally:
        TritonSemantic.load = load


def text_of(words: Words) -> str:
    """Words in one line."""
    return "; ".join(f"{name} {way} {all_} of {distinct}" for name, by in sorted(words.items())
                     for way, (all_, distinct) in sorted(by.items()))  # fmt: skip


# ---------------------------------------------------------------- the interpreter, in a process of its own


class Uninterpreted(Exception):
    """The interpreter has no answer."""


class Asked(NamedTuple):
    """A launch for the interpreter."""

    path: str
    kernel: str
    grid: tuple[int, int, int]
    values: Mapping[str, object]
    constants: Sequence[str]
    """The names of parameters that are constants of the compilation."""
    script: str = ""
    """A script that launches the kernel; without it the kernel's file is read alone."""


def interpreted(asked: Asked, limit_seconds: float = LIMIT_SECONDS) -> Words:
    """The words that the interpreter counts. Uninterpreted if it cannot run the kernel."""
    try:
        sent = pickle.dumps(tuple(asked))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise Uninterpreted(f"an argument cannot be given to another process: {error}") from None
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--worker"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    try:
        done = subprocess.run(
            command, input=sent, capture_output=True, check=False, timeout=limit_seconds, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Uninterpreted(f"the interpreter takes more than {limit_seconds} s") from None
    if done.returncode:
        said = done.stderr.decode().strip().splitlines() or [f"exit code {done.returncode}"]
        raise Uninterpreted(f"the interpreter: {said[-1]}")
    found: Words = pickle.loads(done.stdout)
    return {name: by for name, by in found.items() if by}


def work() -> None:
    """Run the launch that is read by the interpreter, and write its words."""
    sys.path.insert(0, str(HELPERS))
    import triton_interpreter as helper  # type: ignore[import-not-found]

    from iosim.kernels.read.kernel_file import functions_of

    out, sys.stdout = sys.stdout, sys.stderr
    asked = Asked(*pickle.load(sys.stdin.buffer))
    without_machine_code()
    kernel = launched_by(asked) if asked.script else functions_of(asked.path)[0][asked.kernel]
    while hasattr(kernel, "configs") or hasattr(kernel, "values"):  # @triton.autotune and @triton.heuristics
        kernel = kernel.fn  # type: ignore[attr-defined]
    given = {n: v if n in asked.constants else argument_of(v, helper) for n, v in asked.values.items()}
    out.buffer.write(pickle.dumps(helper.counted(kernel, asked.grid, given)))


class Reached(BaseException):
    """A script has come to the launch of a kernel. It is no Exception, which the scripts would catch."""


def launched_by(asked: Asked) -> object:
    """The kernel as a script has it at its first launch."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpretedFunction

    from iosim.kernels.pretend.cuda import absent_gpu, measures_pretended
    from iosim.kernels.pretend.packages import stand_ins
    from iosim.kernels.read.kernel_file import folder_on_path
    from iosim.kernels.read.script import run_as_main, tensors

    def run(self: object, *values: object, **named: object) -> None:
        function = self
        if isinstance(self, Autotuner):
            self.best_config = self.configs[0]
        while not isinstance(function, InterpretedFunction):
            function = function.fn  # type: ignore[attr-defined]
        if (function.fn.__code__.co_filename, function.fn.__name__) == (asked.path, asked.kernel):
            raise Reached(function)

    path = Path(asked.script)
    before = InterpretedFunction.run, Autotuner.run
    InterpretedFunction.run, Autotuner.run = run, run
    try:
        with (
            folder_on_path(path.parent), stand_ins(path.stem, path.parent), absent_gpu(),
            measures_pretended(lambda text: None, lambda text: None), tensors(),
        ):  # fmt: skip
            run_as_main(path)
    except Reached as reached:
        return reached.args[0]
    finally:
        InterpretedFunction.run, Autotuner.run = before
    raise SystemExit(f"{path.name} does not launch {asked.kernel} where Triton interprets")


def without_machine_code() -> None:
    """Functions of libdevice and inline assembly give back what they are given. Constants of bf16, which the
    interpreter does not have, are ones."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as of_cuda
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    for module in (libdevice, of_cuda):
        for name in [name for name in vars(module) if not name.startswith("_")]:
            setattr(module, name, lambda value, *more, **named: value)
    one = np.array([0x3F80], "uint16")
    InterpreterBuilder.get_bf16 = lambda self, value: TensorHandle(one, tl.bfloat16)
    InterpreterBuilder.create_inline_asm = lambda self, text, constraints, values, types, *more: Results(values, types)


class Results:
    """The results of an operation, of these types, with the numbers of its first operand."""

    def __init__(self, values: Sequence[object], types: Sequence[object]) -> None:
        self.values, self.types = values, types

    def get_result(self, number: int) -> object:
        from triton.runtime.interpreter import TensorHandle, _get_np_dtype

        kind = self.types[number].scalar  # type: ignore[attr-defined]
        return TensorHandle(self.values[0].data.astype(_get_np_dtype(kind)), kind)  # type: ignore[attr-defined]


def argument_of(value: object, helper: object) -> object:
    """An argument as the compiled kernel has it: an array for a tensor, and a scalar of 32 bits for a float."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], "float32"), tl.float32), tl.float32)
    if is_descriptor(value):
        value = copy(value)
        value.base = array_of(value.base, helper)  # type: ignore[arg-type]
    return array_of(value, helper) if isinstance(value, Tensor) else value


def array_of(tensor: Tensor, helper: object) -> object:
    """A tensor's words in memory, from its first to its last: its data if they are given, else ones."""
    import numpy as np

    dtype = DTYPES[tensor.dtype][0]
    try:
        kept = np.dtype(dtype)
    except TypeError:  # NumPy has no such type: integers of its size
        kept = np.dtype(f"uint{8 * tensor.word_bytes}")
    words = np.ones(tensor.reach, kept) if tensor.data is None else np.asarray(tensor.data, kept).ravel()
    memory = np.concatenate([np.ones(AROUND, kept), words, np.ones(AROUND, kept)])[AROUND:]
    strides = [tensor.word_bytes * tensor.stride(axis) for axis in range(len(tensor.shape))]
    data = np.lib.stride_tricks.as_strided(memory, tensor.shape, strides)
    return helper.Array(data, {"int1": "bool"}.get(dtype, dtype), AROUND * tensor.word_bytes)  # type: ignore[attr-defined]


def main() -> int:
    """Print a row for each launch, and their sum. A difference is exit code 1."""
    if sys.argv[1] == "--worker":
        work()
        return 0
    folder = Path(sys.argv[1]).resolve()
    rows = [row_of(one, folder) for one in listed(folder, small=True)]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    same = [row["same"] for row in rows]
    counts = ", ".join(f"{same.count(one)} {one or 'not compared'}" for one in ("yes", "merged", "no", ""))
    print(f"{len(rows)} launches: {counts}", file=sys.stderr)
    return int("no" in same)


if __name__ == "__main__":
    sys.exit(main())
