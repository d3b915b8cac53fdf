"""PyTorch's tensors without memory, on a GPU that is not there. Small tensors of integers keep their values.

PyTorch's own fake tensors have the shapes. A fake tensor of integers also keeps its values, which the same operations
compute on the CPU. So page tables, lengths and routes that a script makes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..walk.numbers import Elements

MOST_KEPT = 1 << 24  # elements whose values are kept
VALUES = "_iosim_values"


@contextmanager
def pretended_tensors() -> Iterator[None]:
    """A context in which new tensors are pretended and PyTorch reports an H100."""
    from unittest import mock

    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    cuda = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_capability": lambda *_: (9, 0), "synchronize": lambda *_: None, "init": lambda: None,
        "get_device_name": lambda *_: "NVIDIA H100 80GB HBM3", "get_device_properties": lambda *_: properties(),
        "empty_cache": lambda: None, "set_device": lambda *_: None, "is_initialized": lambda: True,
        "manual_seed": lambda *_: None, "manual_seed_all": lambda *_: None, "current_stream": mock.MagicMock(),
        "device": mock.MagicMock(), "Event": mock.MagicMock(), "Stream": mock.MagicMock(), "stream": mock.MagicMock(),
    }  # fmt: skip
    with ExitStack() as stack:
        for name, answer in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, create=True))
        stack.enter_context(mock.patch.object(torch, "allclose", lambda *_, **__: True))
        stack.enter_context(mock.patch.object(torch.testing, "assert_close", lambda *_, **__: None))
        stack.enter_context(mock.patch.object(FakeTensor, "device", property(device_for(FakeTensor.device.fget))))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(kept_values())
        stack.enter_context(on_the_cpu())
        yield


def on_the_cpu():  # type: ignore[no-untyped-def]
    """A mode of PyTorch in which tensors lie on the CPU and say that they lie on a GPU.

    PyTorch without CUDA cannot do everything with a pretended tensor of a GPU.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    said = {
        torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
        torch.Tensor.device.__get__: torch.device("cuda", 0),  # type: ignore[attr-defined]
        torch.Tensor.get_device: 0,
    }

    def cpu(value: object) -> object:
        if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
            return torch.device("cpu")
        return value

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
            if function in said:
                return said[function]
            if function is torch.Tensor.cuda:
                return values[0]
            if function is torch.device:
                return function(*values, **(named or {}))
            named = {name: value for name, value in (named or {}).items() if name != "pin_memory"}
            return function(*tree_map(cpu, values), **tree_map(cpu, named))

    return OnTheCpu()


def device_for(own: Callable[[object], object]) -> Callable[[object], object]:
    """The device of a pretended tensor: a GPU where a script reads `x.device`, and the CPU for PyTorch itself.

    PyTorch reads `x.device` as well, so the running instruction decides who is asking.
    """
    import dis
    import sys

    import torch

    def device(tensor: object) -> object:
        frame = sys._getframe(1)
        inside = str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
        read = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("LOAD_ATTR")
        return torch.device("cuda", 0) if read and not inside else own(tensor)

    return device


def properties() -> object:
    """The properties of an H100 that launches ask PyTorch for."""
    from types import SimpleNamespace

    return SimpleNamespace(
        multi_processor_count=132,
        total_memory=80 << 30,
        major=9,
        minor=0,
        name="NVIDIA H100 80GB HBM3",
        shared_memory_per_block_optin=232_448,
        shared_memory_per_multiprocessor=233_472,
        warp_size=32,
        L2_cache_size=50 << 20,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65_536,
    )


def kept_values():  # type: ignore[no-untyped-def]
    """A mode of PyTorch that keeps the values of integers beside pretended tensors."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_flatten, tree_map

    def whole(tensor: torch.Tensor) -> bool:
        kind = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
        return kind and tensor.numel() <= MOST_KEPT

    def real(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return getattr(value, VALUES) if hasattr(value, VALUES) else value
        return torch.device("cpu") if isinstance(value, torch.device) else value

    class Kept(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
            named = dict(named or {})
            if named.get("device") is not None:  # a function of PyTorch may ask for a GPU where no other mode looks
                named["device"] = torch.device("cpu")
            given = [v for v in tree_flatten((values, named))[0] if isinstance(v, torch.Tensor)]
            if function is torch.ops.aten._local_scalar_dense.default and hasattr(given[0], VALUES):
                with _disable_current_modes():
                    return getattr(given[0], VALUES).item()
            made = function(*values, **named)
            results = [v for v in tree_flatten(made)[0] if isinstance(v, torch.Tensor)]
            known = all(hasattr(v, VALUES) or not isinstance(v, FAKE) for v in given)
            if results and known and all(whole(v) for v in (*results, *given)):
                with _disable_current_modes():
                    try:
                        found = function(*tree_map(real, values), **tree_map(real, named))
                    except Exception:
                        return made
                for result, value in zip(results, tree_flatten(found)[0], strict=False):
                    if isinstance(value, torch.Tensor) and not isinstance(value, FAKE):
                        setattr(result, VALUES, value)
            elif function._schema.is_mutable:
                for v in given[:1]:
                    if hasattr(v, VALUES):
                        delattr(v, VALUES)  # its value is no longer known
            return made

    from torch._subclasses.fake_tensor import FakeTensor

    FAKE = FakeTensor
    return Kept()


def values_of(tensor: object, reach: int) -> Elements | None:
    """The integers of a pretended tensor in the order of memory, from its first to its last; None if they are not
    known."""
    kept = getattr(tensor, VALUES, None)
    if kept is None:
        return None
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        found: Elements = kept.as_strided((reach,), (1,)).numpy().copy()
    return found
