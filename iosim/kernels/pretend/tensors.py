"""PyTorch's tensors without memory, on a GPU that is not there. Small tensors of integers keep their values.

PyTorch's own fake tensors have the shapes. A fake tensor of integers also keeps its values, which the same operations
compute on the CPU. So page tables, lengths and routes that a script makes are known. Floating-point numbers are not
computed: where a script asks for their value, it is 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from .cuda import answers

if TYPE_CHECKING:
    from ..walk.numbers import Elements

MOST_KEPT = 1 << 24  # elements whose values are kept
VALUES = "_iosim_values"
PLACE_BITS = 36  # the addresses of tensors are 64 GiB apart


@contextmanager
def pretended_tensors(capability: int = 90, tell: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A context in which new tensors are pretended and PyTorch reports a GPU.

    `tell` is called when a script asks for a value that is not known and is said to be 0.
    """
    from unittest import mock

    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    from .operators import implementations, run_by

    with ExitStack() as stack:
        for name, answer in answers(capability).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer, create=True))
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, create=True))
        stack.enter_context(mock.patch.object(torch, "allclose", lambda *_, **__: True))
        stack.enter_context(mock.patch.object(torch.testing, "assert_close", lambda *_, **__: None))
        stack.enter_context(mock.patch.object(torch.nn.Module, "_apply", applied))
        stack.enter_context(mock.patch.object(FakeTensor, "device", property(device_for(FakeTensor.device.fget))))
        own = stack.enter_context(implementations())
        fake = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(kept_values(fake, tell, lambda function: run_by(own, function, on_the_cpu)))
        stack.enter_context(on_the_cpu())
        yield


def applied(module, function, recurse=True):  # type: ignore[no-untyped-def]
    """`torch.nn.Module._apply`, as in `.to` and `.half`, for tensors that cannot be exchanged in place."""
    import torch

    for child in module.children() if recurse else ():
        child._apply(function)
    with torch.no_grad():
        for name, old in module._parameters.items():
            if old is not None and (new := function(old)) is not old:
                module._parameters[name] = torch.nn.Parameter(new, old.requires_grad)
        for name, old in module._buffers.items():
            if old is not None:
                module._buffers[name] = function(old)
    return module


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

    places: dict[int, int] = {}  # {memory of a tensor: its address}

    def address(tensor: torch.Tensor) -> int:
        """An address of its own for each memory, so far apart that no two tensors overlap."""
        memory = tensor.untyped_storage()._cdata
        return places.setdefault(memory, (len(places) + 1) << PLACE_BITS) + tensor.storage_offset() * tensor.itemsize

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
            if function is torch.Tensor.data_ptr:
                return address(values[0])
            if function is torch.Tensor.numpy:
                return array_of(values[0])
            if function is torch.Tensor.__format__ and values[0].dim() == 0:
                return format(values[0].item(), values[1])
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

    import torch

    def device(tensor: object) -> object:
        frame = sys._getframe(1)
        inside = str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
        read = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("LOAD_ATTR")
        return torch.device("cuda", 0) if read and not inside else own(tensor)

    return device


def kept_values(fake, tell, own):  # type: ignore[no-untyped-def]
    """A mode of PyTorch that keeps the values of integers beside pretended tensors.

    `own(function)` is the script's own implementation of an operator, or None.
    """
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_flatten, tree_map

    depends_on_values = DataDependentOutputException, DynamicOutputShapeException

    def whole(tensor: torch.Tensor) -> bool:
        kind = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
        return kind and tensor.numel() <= MOST_KEPT

    def known(tensor: object) -> bool:
        return hasattr(tensor, VALUES) or not isinstance(tensor, FakeTensor)

    def real(value: object) -> object:
        if isinstance(value, torch.Tensor) and isinstance(value, FakeTensor):
            if known(value):
                return getattr(value, VALUES)
            zero = torch.zeros((1,) * value.dim() if value.numel() > MOST_KEPT else value.shape, dtype=value.dtype)
            return zero.expand(value.shape)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def computed(function, values, named):  # type: ignore[no-untyped-def]
        """The result with values, where unknown ones are 0."""
        with _disable_current_modes():
            return function(*tree_map(real, values), **tree_map(real, named))

    def pretended(found: object) -> object:
        """A result with values as pretended tensors."""
        if not isinstance(found, torch.Tensor):
            return found
        made = fake.from_tensor(found)
        if whole(found):
            setattr(made, VALUES, found)
        return made

    class Kept(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
            named = dict(named or {})
            if named.get("device") is not None:  # a function of PyTorch may ask for a GPU where no other mode looks
                named["device"] = torch.device("cpu")
            if (run := own(function)) is not None:
                with self:
                    return run(*values, **named)
            given = [v for v in tree_flatten((values, named))[0] if isinstance(v, torch.Tensor)]
            try:
                made = function(*values, **named)
            except depends_on_values:
                if not all(map(known, given)):
                    tell()
                return tree_map(pretended, computed(function, values, named))
            results = [v for v in tree_flatten(made)[0] if isinstance(v, torch.Tensor)]
            if results and all(map(known, given)) and all(whole(v) for v in (*results, *given)):
                try:
                    found = computed(function, values, named)
                except Exception:
                    return made
                for result, value in zip(results, tree_flatten(found)[0], strict=False):
                    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                        setattr(result, VALUES, value)
            elif function._schema.is_mutable:
                for v in given[:1]:
                    if hasattr(v, VALUES):
                        delattr(v, VALUES)  # its value is no longer known
            return made

    return Kept()


def array_of(tensor):  # type: ignore[no-untyped-def]
    """A pretended tensor as an array of NumPy; zeros where its values are not known."""
    import numpy as np
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    kept = getattr(tensor, VALUES, None) if isinstance(tensor, FakeTensor) else tensor
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if kept is not None:
            return kept.numpy().copy()
        return np.broadcast_to(torch.zeros(1, dtype=tensor.dtype).numpy(), tuple(tensor.shape))


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
