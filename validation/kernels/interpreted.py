"""Counts small launches a second time, by Triton's own interpreter, and says where its words are those of iosim.

    PYTHONPATH=. python validation/kernels/interpreted.py FOLDER > interpreted.csv

FOLDER is that of corpus.py. The launches are those of launches.toml with the sizes of `small`, because the interpreter
runs one program at a time. Loads, stores and atomics are counted as the tests do (tests/helpers/interpreted.py). The
first configuration of `@triton.autotune` is taken. Words are written as `argument way words of distinct words`.

`same` is `yes`, `no`, `merged` or empty. `merged` means that words differ because the compiler makes one load of two
equal ones, and the interpreter does both: without that pass iosim counts the interpreter's words.

The interpreter has no functions of libdevice. Here they give back what they are given: no word depends on their values,
since iosim refuses a kernel whose addresses do.
"""

from __future__ import annotations

import csv
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from listed import Listed, Ready, listed, ready

from iosim.errors import IosimError
from iosim.kernels.arguments import DTYPES, Tensor

HELPERS = Path(__file__).resolve().parents[2] / "tests" / "helpers"
LIMIT_SECONDS = 120

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
        said = words_of(launch)
        row["said"] = text_of(said)
        found = interpreted(launch)
        row["interpreted"] = text_of(found)
    except (IosimError, Uninterpreted) as error:
        return {**row, "why": str(error).replace(str(folder) + "/", "")}
    if found == said:
        return {**row, "same": "yes"}
    with all_loads():
        return {**row, "same": "merged" if found == words_of(launch) else "no"}


def words_of(launch: Ready) -> Words:
    """What iosim says, in the form of the interpreter."""
    answer = launch.explained(resources=False)
    ways = {name: {way: [w.words, w.distinct_words] for way, w in by.items() if w.words}
            for name, by in answer.ways.items()}  # fmt: skip
    return {name: by for name, by in ways.items() if by}


@contextmanager
def all_loads() -> Iterator[None]:
    """Triton's compiler does not make one load of equal ones meanwhile."""
    from triton._C.libtriton import passes

    merging = passes.common.add_cse
    passes.common.add_cse = lambda manager: None
    try:
        yield
    finally:
        passes.common.add_cse = merging


def text_of(words: Words) -> str:
    """Words in one line."""
    return "; ".join(f"{name} {way} {all_} of {distinct}" for name, by in sorted(words.items())
                     for way, (all_, distinct) in sorted(by.items()))  # fmt: skip


# ---------------------------------------------------------------- the interpreter, in a process of its own


class Uninterpreted(Exception):
    """The interpreter has no answer."""


def interpreted(launch: Ready) -> Words:
    """The words that the interpreter counts. Uninterpreted if it cannot run the kernel."""
    asked = pickle.dumps((launch.listed.path, launch.kernel.name, launch.grid, launch.values, launch.kernel.constants))
    command = [sys.executable, "-W", "ignore", __file__, "--worker"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, check=False, timeout=LIMIT_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Uninterpreted(f"the interpreter takes more than {LIMIT_SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode().strip().splitlines() or [f"exit code {done.returncode}"]
        raise Uninterpreted(f"the interpreter: {said[-1]}")
    found: Words = pickle.loads(done.stdout)
    return {name: by for name, by in found.items() if by}


def work() -> None:
    """Run the launch that is read by the interpreter, and write its words."""
    sys.path.insert(0, str(HELPERS))
    import interpreted as helper  # type: ignore[import-not-found]  # the file of this name in tests/helpers

    from iosim.kernels.load import functions_of_file

    path, name, grid, values, constants = pickle.load(sys.stdin.buffer)
    without_libdevice()
    kernel = functions_of_file(path)[name]
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        kernel = kernel.fn  # type: ignore[attr-defined]
    given = {n: value if n in constants else argument_of(value, helper) for n, value in values.items()}
    sys.stdout.buffer.write(pickle.dumps(helper.counted(kernel, grid, given)))


def without_libdevice() -> None:
    """Functions of libdevice give back what they are given."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as of_cuda

    for module in (libdevice, of_cuda):
        for name in [name for name in vars(module) if not name.startswith("_")]:
            setattr(module, name, lambda value, *more, **named: value)


def argument_of(value: object, helper: object) -> object:
    """An argument as the compiled kernel has it: an array for a tensor, and a scalar of 32 bits for a float."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], "float32"), tl.float32), tl.float32)
    return array_of(value, helper) if isinstance(value, Tensor) else value


def array_of(tensor: Tensor, helper: object) -> object:
    """A tensor's words in memory: its data if they are given, else ones."""
    import numpy as np

    dtype = DTYPES[tensor.dtype][0]
    try:
        kept = np.dtype(dtype)
    except TypeError:  # NumPy has no such type: integers of its size
        kept = np.dtype(f"uint{8 * tensor.word_bytes}")
    data = np.ones(tensor.shape, kept) if tensor.data is None else np.asarray(tensor.data, kept)
    return helper.Array(data, dtype)  # type: ignore[attr-defined]


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
