"""A Triton kernel of Inductor with its configurations and its grid, from the source in Inductor's code.

The source is run under a GPU that is not there: its decorators, which are PyTorch's, choose the configurations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import InputError, MissingError
from ..pretend.cuda import absent_gpu
from ..read.kernel import Configuration, Kernel, KernelLaunch, require_triton
from ..walk.launch import Value
from .code import UNKNOWN, Argument, Buffer, Call

if TYPE_CHECKING:
    from ..walk.numbers import Elements


@dataclass(frozen=True)
class InductorKernel:
    """A kernel, with a launch for each of its configurations in the order in which Inductor tries them."""

    kernel: Kernel
    configurations: tuple[Configuration, ...]
    grids: tuple[object, ...]
    types: Mapping[str, str]
    """{parameter: type}, as `*bf16` or `i32`."""
    extra: tuple[str, ...] = ()
    """Names of arguments that come after the parameters and give the grid, as those of FlexAttention's kernels do."""

    def launches(self, call: Call, data: Mapping[str, Elements]) -> Iterator[tuple[KernelLaunch, Configuration]]:
        """The launch of a call under each configuration. `data` are integers of inputs."""
        names = [name for name in self.kernel.parameters if name not in self.kernel.constants] + [*self.extra]
        if len(names) != len(call.arguments):
            raise InputError(call.name, f"{len(call.arguments)} arguments", f"{len(names)}: {', '.join(names)}")
        given = {
            name: argument(value, self.types.get(name, ""), data)
            for name, value in zip(names, call.arguments, strict=True)
        }
        for chosen, grid in zip(self.configurations, self.grids, strict=True):
            constants = {name: value for name, value in chosen.constants.items() if name in self.kernel.parameters}
            sizes = grid.eval_slow({**given, **chosen.constants})  # type: ignore[attr-defined]
            own = {name: value for name, value in given.items() if name not in self.extra}
            launch = KernelLaunch(self.kernel, sizes, {**own, **constants}, chosen.num_warps, chosen.num_stages)
            yield launch, Configuration()


def argument(value: Argument, pointer: str, data: Mapping[str, Elements]) -> Value:
    """An argument of a kernel. A buffer without a type has that of the kernel's pointer, and one that is an input, or
    all of one in another shape, has its integers where they are known."""
    if not isinstance(value, Buffer):
        return value
    made = value.tensor(pointer.removeprefix("*").replace("i1", "bool") if value.dtype == UNKNOWN else "")
    known = data.get(value.source)
    return replace(made, data=known) if known is not None and known.size == made.reach and not made.offset else made


@contextmanager
def kernel_folder() -> Iterator[Path]:
    """A folder for the files of kernels. Triton reads the source of a kernel from its file."""
    require_triton()
    with TemporaryDirectory(prefix="iosim-inductor-") as folder:
        yield Path(folder)


def kernel_of_source(name: str, source: str, folder: Path, capability: int) -> InductorKernel:
    """The kernel of a source in Inductor's code."""
    from unittest import mock

    try:
        import torch
        from torch._inductor.runtime import triton_helpers
        from torch._inductor.runtime.triton_heuristics import GridExpr
    except ImportError:
        advice = "pip install torch (its CPU build is enough)"
        raise MissingError(f"kernels of Inductor use functions of PyTorch, which is not installed: {advice}") from None
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    with ExitStack() as stack:
        stack.enter_context(absent_gpu(capability))
        stack.enter_context(mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None))
        stack.enter_context(mock.patch.object(torch.cuda, "is_available", lambda: True))  # PyTorch's choices ask for it
        tuner = getattr(module_of(name, path), name)
    configurations = tuple(Configuration(dict(c.kwargs), c.num_warps, c.num_stages) for c in tuner.configs)
    grids = tuple(GridExpr.from_meta(tuner.inductor_meta, config) for config in tuner.configs)
    extra = tuple(tuner.inductor_meta.get("extra_launcher_args", ()))
    return InductorKernel(Kernel(tuner.fn), configurations, grids, dict(tuner.triton_meta["signature"]), extra)


def module_of(name: str, path: Path) -> ModuleType:
    """The module of a file."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"inductor_{name}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
