"""Runs a user's script without a GPU, and catches its launches of Triton kernels.

The script runs to its end, and each launch is recorded with its arguments in place of being run. If PyTorch is
installed, tensors take no memory; without it a script can use `iosim.tensor`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

from ...answer import numbered
from ...errors import InputError, IosimError
from ...verdict import joined
from ..pretend.cuda import absent_gpu, measures_pretended
from ..pretend.flex import flex_attention
from ..pretend.packages import stand_ins
from ..pretend.tensors import pretended_tensors
from ..pretend.values import OTHER, VALUES, forget
from ..walk.launch import Tensor, Value, is_descriptor
from ..walk.places import place
from .arguments import as_tensor
from .compile import Compilation
from .faults import Overtime, fault, limited
from .inductor_code import inductor_code
from .kernel import Configuration, Kernel, KernelLaunch, options_of_launches, require_triton
from .kernel_file import folder_on_path


@dataclass(frozen=True)
class Caught(KernelLaunch):
    """A launch of a script."""

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
        return quoted(self.path, self.number)

    def check(self) -> None:
        """Raise InputError for arguments that the kernel does not have."""
        for name in self.unknown:
            raise self.kernel.unknown(name, name.removeprefix("argument "))

    def completed(self, chosen: Configuration) -> dict[str, Value]:
        """The arguments with a configuration, and what heuristics gave at the launch."""
        if isinstance(self.grid, Seen):
            found = self.grid.values.get(self.grid.key({**chosen.constants, **self.arguments}))
            if found is not None:
                return found
        return super().completed(chosen)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The key of a launch. Launches with the same key have the same answer."""
        arguments = tuple((name, described(value)) for name, value in self.arguments.items())
        memories = [getattr(value, "memory", 0) for value in self.arguments.values()]
        views = tuple(map(memories.index, memories))
        return id(self.kernel.found), described(self.grid), arguments, views, self.num_warps, self.num_stages


def quoted(path: Path, number: int) -> str:
    """A line of a script, by the name of the file, with its text."""
    return place(str(path), number).replace(str(path), path.name, 1)


def described(value: Value) -> object:
    """The properties of an argument that decide the answer."""
    if isinstance(value, Tensor):
        data = None if value.data is None else blake2b(value.data.tobytes()).digest()
        return value.dtype, value.shape, value.reach, value.offset, data
    if is_descriptor(value):
        return described(value.base), tuple(value.shape), tuple(value.strides), tuple(value.block_shape)
    if isinstance(value, Seen):
        grids = tuple((key, repr(grid)) for key, grid in value.grids.items())
        return grids or (id(value) if callable(value.grid) else repr(value.grid))
    return repr(value)


class Seen:
    """What heuristics and the function of a grid give for each configuration of a kernel, as it is at the launch: they
    may ask for a GPU, or read variables of the script that change later."""

    def __init__(self, kernel: Kernel, given: Mapping[str, Value], grid: Value) -> None:
        self.kernel, self.given, self.grid = kernel, given, grid
        self.names = [*{name for c in kernel.configurations for name in c.constants}]
        self.values: dict[tuple[Value, ...], dict[str, Value]] = {}
        self.grids: dict[tuple[Value, ...], Value] = {}
        defaults = {p.name: p.default for p in kernel.function.params if p.has_default}
        for chosen in kernel.choices(given):
            with suppress(Exception):  # it is called again, and then the error is told
                values = kernel.completed(given, chosen)
                self.values[self.key(values)] = values
                if callable(grid):
                    self.grids[self.key(values)] = grid({**defaults, **values})

    def key(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        """The values by which configurations differ."""
        return tuple(values.get(name) for name in self.names)

    def __call__(self, values: Mapping[str, Value]) -> Value:
        """The grid with these values of arguments and constants."""
        key = self.key(values)
        if key in self.grids or not callable(self.grid):
            return self.grids.get(key, self.grid)
        return self.grid(values)

    @property
    def __code__(self) -> object:
        """The code of the grid's function, whose line is told if it fails."""
        return getattr(self.grid, "__code__", None)


@dataclass
class ScriptRun:
    """What a script did: its launches in order, the error that ended it early or None, and notes."""

    path: Path
    launches: list[Caught] = field(default_factory=list)
    early: str | None = None
    missing: set[str] = field(default_factory=set)
    """The packages that are not installed, whose place stand-ins took."""
    notes: list[str] = field(default_factory=list)
    flex: list[tuple[str, str]] = field(default_factory=list)
    """(the line, the way round) of each call of FlexAttention."""
    operations: dict[str, list[int]] = field(default_factory=dict)
    """The lines of the script with operations of PyTorch that a GPU would run, by their names."""

    def tell(self, text: str) -> None:
        """Note something once."""
        if text not in self.notes:
            self.notes.append(text)

    def tell_line(self, text: str) -> None:
        """Note, with the line of the script where it is so first, that a number is not known."""
        if not any(note.startswith(text) for note in self.notes):
            self.tell(f"{text}, first at {quoted(self.path, line_of(self.path))}")

    def uncounted(self) -> list[str]:
        """A note on PyTorch's own operations: `2 matmuls (line 14) of PyTorch are not counted`."""
        parts = []
        for name, lines in sorted(self.operations.items(), key=lambda each: each[0] == OTHER):
            first, last = min(lines), max(lines)
            where = f"line {first}" if first == last else f"lines {first} to {last}"
            parts.append(f"{numbered(len(lines), name)} ({where})")
        verb = "is" if [len(lines) for lines in self.operations.values()] == [1] else "are"
        return [f"{joined(parts)} of PyTorch {verb} not counted"] if parts else []


def caught_launches(file: str, capability: int = 90, seconds: float | None = None) -> ScriptRun:
    """The launches of a script, which is ended after so many seconds."""
    require_triton()
    if "\0" in file or not Path(file).is_file():
        raise InputError("--script", file, "a Python file that launches kernels")
    found = ScriptRun(Path(file).resolve())
    pretended = tensors(found, capability)  # before missing packages have stand-ins
    flex = flex_attention(lambda why: found.flex.append((quoted(found.path, line_of(found.path)), why)))
    with ExitStack() as stack:
        missing = stack.enter_context(stand_ins(found.path.stem, found.path.parent))
        for each in (
            folder_on_path(found.path.parent),
            absent_gpu(capability),
            launches_caught(found, capability),
            measures_pretended(found.tell, found.tell_line),
            pretended,
            flex,
            inductor_code(found.path, lambda *launch: found.launches.append(note(found.path, *launch))),
            redirect_stdout(sys.stderr),
        ):
            stack.enter_context(each)
        try:
            with limited(seconds):
                run_as_main(found.path)
        except IosimError:
            raise
        except Overtime as error:
            found.early = f"after {seconds:g} s (--timeout), at {fault(error, found.path).rpartition(':')[0]}"
        except SystemExit as error:
            if error.code not in (0, None) or not found.launches:
                found.early = f"{fault(error, found.path)}"
        except Exception as error:
            found.early = fault(error, found.path)
    found.missing = missing
    found.notes += found.uncounted()
    return found


def run_as_main(path: Path) -> None:
    """Run a file as Python does with a file on its command line."""
    import runpy
    from unittest import mock

    with mock.patch.object(sys, "argv", [str(path)]):
        runpy.run_path(str(path), run_name="__main__")


def tensors(run: ScriptRun | None = None, capability: int = 90) -> AbstractContextManager[None]:
    """A context in which PyTorch's tensors take no memory, if PyTorch is installed."""
    if find_spec("torch") is None:
        return nullcontext()
    if run is None:
        return pretended_tensors(capability)
    return pretended_tensors(
        capability, run.tell_line, lambda name: run.operations.setdefault(name, []).append(line_of(run.path))
    )


def without_pytorch(run: ScriptRun) -> str:
    """The end of a message about a script that imports PyTorch, if it is not installed; else nothing."""
    text = run.path.read_text(errors="replace")
    imported = "torch" in run.missing or re.search(r"^\s*(import\b[^#]*|from\s+)\btorch\b", text, re.MULTILINE)
    if find_spec("torch") is not None or not imported:
        return ""
    return (
        "; PyTorch is not installed, so its tensors have no shapes here: pip install torch (its CPU build is enough), "
        "or give the script tensors of iosim.tensor"
    )


# ---------------------------------------------------------------- one launch


def note(path: Path, kernel: Kernel, values: tuple[Value, ...], named: Mapping[str, Value]) -> Caught:
    """The caught launch of a kernel with its arguments."""
    number = line_of(path)
    given = {**dict(zip(kernel.parameters, values, strict=False)), **named}
    where = f"{path.name}, line {number}: argument"
    arguments = {name: kept(given[name], f"{where} {name}") for name in kernel.parameters if name in given}
    warps, stages = (n if isinstance(n := given.get(name), int) else None for name in ("num_warps", "num_stages"))
    more = tuple(f"argument {k + 1}" for k in range(len(kernel.parameters), len(values)))
    unknown = tuple(f"argument {name}" for name in named if name not in {*kernel.parameters, *options_of_launches()})
    grid = Seen(kernel, arguments, given.get("grid"))
    return Caught(kernel, grid, arguments, warps, stages, path, number, more + unknown)


def kept(value: Value, where: str) -> Value:
    """An argument as it is at the launch: a tensor with its present values."""
    if is_descriptor(value):
        value = copy(value)
        value.base = as_tensor(value.base, where)
        return value
    tensor = as_tensor(value, where)
    return value if tensor is None else tensor


def line_of(path: Path) -> int:
    """The line of the script that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    return frame.f_lineno


class Compiled:
    """What a launch or a warm-up gives a script: a compiled kernel. It is compiled when something of it is read."""

    def __init__(self, run: ScriptRun, launch: Caught, capability: int) -> None:
        self._run, self._launch, self._capability = run, launch, capability

    @cached_property
    def _made(self) -> Compilation:
        launch = self._launch
        chosen = launch.kernel.choices(launch.arguments)[0]
        values = launch.completed(chosen)
        return Compilation(launch.kernel, values, f"sm_{self._capability}", *launch.options(chosen, values))

    def forget_changed(self, given: Mapping[str, Value]) -> None:
        """Forget the integers that the launch changes, among the arguments as they were handed to it."""
        tensors = {name: value.base if is_descriptor(value) else value for name, value in given.items()}
        kept = {name: value for name, value in tensors.items() if hasattr(value, VALUES)}
        with suppress(InputError):  # a kernel that does not compile has no answer
            for number in self._made.code.changed if kept else ():
                forget(kept.get(self._made.code.name_of(number)))

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self._made.resources.registers

    @property
    def n_spills(self) -> int:
        """Spilled words of a thread."""
        return self._made.resources.stack_bytes // 4

    @property
    def metadata(self) -> object:
        """The shared memory and the warps of a program."""
        r = self._made.resources
        return SimpleNamespace(shared=r.smem_bytes, num_warps=r.num_warps, name=self._launch.kernel.name)

    @property
    def asm(self) -> Mapping[str, object]:
        """The code that the compiler makes, by its kind: ttir, ttgir, llir, ptx and cubin."""
        return self._made.texts

    def _init_handles(self) -> None:
        """Nothing is loaded onto a GPU."""

    def __getitem__(self, grid: Value) -> object:
        kernel = self._launch.kernel
        return lambda *values, **named: self._run.launches.append(
            note(self._run.path, kernel, values, {"grid": grid, **named})
        )


@contextmanager
def launches_caught(found: ScriptRun, capability: int) -> Iterator[None]:
    """Append each launch of a Triton kernel in a script to `found`, in place of running it."""
    from unittest import mock

    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    different: dict[object, Compiled] = {}  # equal launches are kept once, for the sake of their integers

    def run(self: object, *values: Value, **named: Value) -> Compiled:
        launch = launch_of(self, values, named)
        made = different.setdefault(launch.key, Compiled(found, launch, capability))
        made.forget_changed({**dict(zip(launch.kernel.parameters, values, strict=False)), **named})
        if not named.get("warmup"):
            found.launches.append(made._launch)
        return made

    def launch_of(self: object, values: tuple[Value, ...], named: Mapping[str, Value]) -> Caught:
        kernel = Kernel(self)
        if isinstance(self, Autotuner):
            configs = pruned(self, values, named)
            kernel.configurations = [Configuration.of(config) for config in configs]
            self.best_config = configs[0]
        return note(found.path, kernel, values, named)

    with mock.patch.object(JITFunction, "run", run), mock.patch.object(Autotuner, "run", run):
        yield


def pruned(tuner, values, named):  # type: ignore[no-untyped-def]
    """The configurations of `@triton.autotune` that its own rules leave for a launch; all if they cannot be run."""
    tuner.nargs = dict(zip(tuner.arg_names, values, strict=False))
    try:
        return list(tuner.prune_configs(dict(named))) or tuner.configs
    except Exception:
        return tuner.configs
    finally:
        tuner.nargs = None
