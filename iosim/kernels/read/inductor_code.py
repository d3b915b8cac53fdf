"""A file `output_code.py` as PyTorch writes it for a compiled graph: its launches are caught as those of any script.

Such a file has the source of each kernel as a text. PyTorch's own decorators in that source say which configurations
there are and how the grid follows from the sizes. Run as a script, the file launches the graph on tensors of its sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NamedTuple

from ...errors import MissingError
from ..pretend.packages import needed
from ..pretend.values import forget
from ..walk.launch import Value
from .kernel import Configuration, Kernel

MARK = "torch._inductor.async_compile"  # a file that PyTorch wrote imports this
Catch = Callable[[Kernel, tuple[Value, ...], Mapping[str, Value]], object]


def is_code(file: Path) -> bool:
    """Whether PyTorch wrote a file."""
    return MARK in file.read_text(encoding="utf-8", errors="replace")


class Launcher(NamedTuple):
    """A kernel of such a file, as the file launches it: its arguments, then sizes that only its grid needs."""

    kernel: Kernel
    meta: Mapping[str, object]
    catch: Catch

    def run(self, *values: Value, stream: object = None) -> None:
        """Catch a launch in place of making it."""
        own = [name for name in self.kernel.parameters if name not in self.kernel.constants]
        extra = dict(zip(self.meta.get("extra_launcher_args", ()), values[len(own) :], strict=False))  # type: ignore[call-overload]
        named = dict(zip(own, values, strict=False))
        self.catch(self.kernel, (), {**named, "grid": lambda given: self.grid({**given, **extra})})

    def grid(self, given: Mapping[str, Value]) -> tuple[int, ...]:
        """The grid of a launch, by the rule that PyTorch has for this kernel."""
        from torch._inductor.runtime.triton_heuristics import GridExpr

        sizes: tuple[int, ...] = GridExpr.from_meta(self.meta, given).eval_slow(given)
        return sizes


@contextmanager
def inductor_code(file: Path, catch: Catch) -> Iterator[None]:
    """A context in which kernels of a file that PyTorch wrote are given to `catch`, once for each launch. Other files
    see nothing of it."""
    if not is_code(file):
        yield
        return
    from unittest import mock

    if find_spec("torch") is None:
        raise needed("torch")
    try:
        from torch._C._dynamo import guards
        from torch._dynamo import testing
        from torch._inductor import async_compile, utils, wrapper_benchmark
        from torch._inductor.runtime import triton_helpers
    except ImportError as error:
        raise MissingError(f"another PyTorch is needed for this script, as that which wrote it: {error}") from None

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="iosim-inductor-")))

        def compiled(own: object, name: str, source: str, device_str: str = "cuda") -> Launcher:
            return launcher(name, source, folder, catch)

        for place, name, function in (
            (async_compile.AsyncCompile, "triton", compiled),
            (triton_helpers, "set_driver_to_gpu", nothing),
            (testing, "rand_strided", unknown(testing.rand_strided)),
            (wrapper_benchmark, "compiled_module_main", lambda name, run: run(times=1, repeat=1)),
            (utils, "print_performance", lambda run, *_, **__: run()),
            (guards, "_reinterpret_tensor", part_of),
            (guards, "assert_size_stride", nothing),
            (guards, "assert_alignment", nothing),
            (guards, "copy_if_misaligned", lambda tensor: tensor),
        ):
            stack.enter_context(mock.patch.object(place, name, function, create=True))
        yield


def nothing(*values: object, **named: object) -> None:
    """Nothing is done."""


def unknown(make: Callable[..., object]) -> Callable[..., object]:  # type: ignore[explicit-any]  # of PyTorch
    """The function that makes the file's inputs, whose integers stand for others: they are not known."""

    def made(*values: object, **named: object) -> object:
        tensor = make(*values, **named)
        forget(tensor)
        return tensor

    return made


def part_of(tensor, size, stride, offset=0):  # type: ignore[no-untyped-def]
    """A tensor of other sizes in the memory of a tensor."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def launcher(name: str, source: str, folder: Path, catch: Catch) -> Launcher:
    """The kernel of a source, with the configurations among which PyTorch would choose by time."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")  # Triton reads the source of a kernel from its file
    spec = spec_from_file_location(f"inductor_{name}", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    tuner = getattr(module, name)
    kernel = Kernel(tuner.fn)
    kernel.configurations = [
        Configuration({k: v for k, v in c.kwargs.items() if k in kernel.parameters}, c.num_warps, c.num_stages)
        for c in tuner.configs
    ]
    return Launcher(kernel, tuner.inductor_meta, catch)
