"""Runs a script and catches its launches: each is recorded with its arguments, and none is run.

If PyTorch is installed, its tensors take no memory (pretend.py). Without it a script can use `iosim.tensor`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ..errors import InputError, IosimError
from .absent import absent_gpu
from .arguments import Value, as_tensor
from .compile import Kernel, require_triton
from .load import fault, folder_on_path, stand_ins
from .places import place


@dataclass(frozen=True)
class Caught:
    """A launch of a script: its kernel, its grid (a tuple or a function of the arguments), and its arguments."""

    kernel: Kernel
    grid: Value
    arguments: Mapping[str, Value]
    num_warps: int | None
    num_stages: int | None
    path: Path
    number: int
    unknown: tuple[str, ...] = ()
    """Arguments that are neither parameters of the kernel nor options of a launch."""

    @property
    def line(self) -> str:
        """The line of the script with the launch."""
        return f"{self.path.name}, line {self.number}"

    @property
    def quoted(self) -> str:
        """The line of the script with the launch, and its text."""
        return place(str(self.path), self.number).replace(str(self.path), self.path.name, 1)

    def check(self) -> None:
        """Raise InputError for arguments that the kernel does not have."""
        for name in self.unknown:
            raise self.kernel.unknown(name, name.removeprefix("argument "))

    @property
    def key(self) -> tuple[object, ...]:
        """The key of a launch. Launches with the same key have the same answer."""
        return (id(self.kernel.found), str(self.grid) if not callable(self.grid) else "",
                tuple((name, described(value)) for name, value in self.arguments.items()),
                self.num_warps, self.num_stages)  # fmt: skip


def described(value: Value) -> object:
    """The properties of an argument that decide the answer."""
    from .arguments import Tensor

    if isinstance(value, Tensor):
        data = None if value.data is None else value.data.tobytes()
        return value.dtype, value.shape, value.reach, value.offset, data
    return repr(value)


def caught_launches(file: str, capability: int = 90) -> tuple[list[Caught], str | None]:
    """(the launches of a script in order, the error that ended it early or None)."""
    require_triton()
    if "\0" in file or not Path(file).is_file():
        raise InputError("--script", file, "a Python file that launches kernels")
    path = Path(file).resolve()
    found: list[Caught] = []
    early = None
    with ExitStack() as stack:
        take = partial(note_in, found, path)
        for each in (folder_on_path(path.parent), stand_ins(path.stem, path.parent), absent_gpu(capability),
                     launches_caught(take), tensors(), redirect_stdout(sys.stderr)):  # fmt: skip
            stack.enter_context(each)
        try:
            run_as_main(path)
        except IosimError:
            raise
        except SystemExit:
            pass
        except Exception as error:
            early = fault(error, path)
    return found, early


def note_in(
    found: list[Caught], path: Path, kernel: object, values: tuple[Value, ...], named: Mapping[str, Value]
) -> None:
    """Append a launch to `found`."""
    found.append(note(path, kernel, values, named))


def run_as_main(path: Path) -> None:
    """Run a file as Python does with a file on its command line."""
    import runpy

    before = sys.argv
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before


def tensors() -> AbstractContextManager[None]:
    """A context in which PyTorch's tensors take no memory, if PyTorch is installed."""
    if find_spec("torch") is None:
        return nullcontext()
    from .pretend import pretended_tensors

    return pretended_tensors()


def without_pytorch(file: str) -> str:
    """The end of a message about a script that names PyTorch, if it is not installed; else nothing."""
    if find_spec("torch") is not None or not re.search(r"\btorch\b", Path(file).read_text(errors="replace")):
        return ""
    return (
        "; PyTorch is not installed, so its tensors have no shapes here: pip install torch (its CPU build is enough), "
        "or give the script tensors of iosim.tensor"
    )


def note(path: Path, found: object, values: tuple[Value, ...], named: Mapping[str, Value]) -> Caught:
    """The caught launch of a kernel with its arguments."""
    kernel, number = Kernel(found), line_of(path)
    given = {**dict(zip(kernel.parameters, values, strict=False)), **named}
    arguments = {}
    for name in kernel.parameters:
        if name in given:
            value = given[name]
            tensor = as_tensor(value, f"{path.name}, line {number}: argument {name}")
            arguments[name] = value if tensor is None else tensor
    warps, stages = (n if isinstance(n := given.get(name), int) else None for name in ("num_warps", "num_stages"))
    more = tuple(f"argument {k + 1}" for k in range(len(kernel.parameters), len(values)))
    unknown = tuple(f"argument {name}" for name in named if name not in {*kernel.parameters, *options_of_launches()})
    return Caught(kernel, given.get("grid"), arguments, warps, stages, path, number, more + unknown)


def options_of_launches() -> set[str]:
    """The keywords of a launch that are not arguments of its kernel."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return {"grid", "warmup", "device", "stream", "device_type", "bin_ids", *CUDAOptions.__dataclass_fields__}


def line_of(path: Path) -> int:
    """The line of the script that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    return frame.f_lineno


@contextmanager
def launches_caught(take: Callable[[object, tuple[Value, ...], Mapping[str, Value]], None]) -> Iterator[None]:
    """Call `take` for each launch of a Triton kernel, in place of running it."""
    from triton import testing
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    def run(self: object, *values: Value, **named: Value) -> None:
        take(self, values, named)

    def once(function: Callable[[], Value], *values: Value, **named: Value) -> float:
        function()
        return 1.0

    before = JITFunction.run, Autotuner.run, testing.do_bench
    JITFunction.run, Autotuner.run, testing.do_bench = run, run, once
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run, testing.do_bench = before
