"""PyTorch's tensors without memory, on a GPU that is not there. Small tensors of integers keep their values.

PyTorch's own fake tensors have the shapes. A fake tensor of integers also keeps its values, which the same operations
compute on the CPU. So page tables, lengths and routes that a script makes are known. Floating-point numbers are not
computed: where a script asks for their value, it is 0. Functions of operators that a script adds to PyTorch run, where
fake tensors alone would only take their shapes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from .cuda import CUDA_VERSION, answers
from .values import array_of, kept_values

UNKNOWN = "floating-point numbers are not computed: where the script asks for one it is 0"
AS_CODE = "run the model with TORCH_COMPILE_DEBUG=1 where there is a GPU, and give the output_code.py that it writes"
Function = Callable[..., object]  # type: ignore[explicit-any]  # an operator takes any arguments
RUN_ON_GPU = ("", "CUDA", "cuda", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "default")


@contextmanager
def implementations() -> Iterator[dict[str, Function]]:
    """A context in which the implementations of operators are collected: {"namespace::name": function}."""
    from unittest import mock

    import torch
    from torch.library import Library

    found: dict[str, Function] = {}
    custom_op, triton_op, impl, of_library = (
        torch.library.custom_op,
        getattr(torch.library, "triton_op", None),
        torch.library.impl,
        Library.impl,
    )

    def made_by(original):  # type: ignore[no-untyped-def]
        def make(name, function=None, /, **named):  # type: ignore[no-untyped-def]
            if function is None:
                return lambda given: make(name, given, **named)
            found[name] = function
            return original(name, function, **named)

        return make

    def implement(first, types, func=None, **named):  # type: ignore[no-untyped-def]
        if isinstance(first, Library):  # the form impl(library, name, key), a decorator whose `types` is the name
            return impl(first, types, *([] if func is None else [func]), **named)
        if func is None:
            return lambda given: implement(first, types, given, **named) or given
        if any(each in RUN_ON_GPU for each in ([types] if isinstance(types, str) else types)):
            found[first if "::" in first else f"{named['lib'].ns}::{first}"] = func
        return impl(first, types, func, **named)

    def implement_in(library, name, function, dispatch_key="", **named):  # type: ignore[no-untyped-def]
        if isinstance(name, str) and (dispatch_key or library.dispatch_key or "") in RUN_ON_GPU:
            found[name if "::" in name else f"{library.ns}::{name}"] = function
        return of_library(library, name, function, dispatch_key, **named)

    places = {"custom_op": made_by(custom_op), "impl": implement, "wrap_triton": lambda kernel: kernel}
    if triton_op is not None:
        places["triton_op"] = made_by(triton_op)
    with ExitStack() as stack:
        for name, function in places.items():
            stack.enter_context(mock.patch.object(torch.library, name, function, create=True))
        stack.enter_context(mock.patch.object(Library, "impl", implement_in))
        yield found


def run_by(found: dict[str, Function], operator: object, inside: Callable[[], object]) -> Function | None:
    """The function that runs an operator, inside of a context; None for PyTorch's own operators."""
    name = getattr(operator, "_schema", operator)
    function = found.get(str(getattr(name, "name", "")))
    if function is None:
        return None

    def run(*values: object, **named: object) -> object:
        with inside():  # type: ignore[attr-defined]
            return function(*values, **named)

    return run


def torch_of(text: str) -> AbstractContextManager[None]:
    """A context for code with this text: tensors take no memory, if PyTorch is installed and the text names it."""
    return pretended_tensors() if "torch" in text and importlib.util.find_spec("torch") is not None else nullcontext()


PLACE_BITS = 40  # the addresses of tensors are 1 TiB apart


@contextmanager
def pretended_tensors(
    capability: int = 90, tell: Callable[[str], object] = str, ran: Callable[[str], object] = str
) -> Iterator[None]:
    """A context in which new tensors are pretended and PyTorch reports a GPU.

    `tell` is called with a note when a script asks for a value that is not known and is said to be 0, or for a time.
    `ran` is called with the name of each of PyTorch's own operations that a GPU would run.
    """
    from unittest import mock

    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with ExitStack() as stack:
        for name, answer in answers(capability, tell).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer, create=True))
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, create=True))
        stack.enter_context(mock.patch.object(torch._C._dynamo.guards, "_empty_strided_cuda", strided, create=True))
        stack.enter_context(mock.patch.object(torch.version, "cuda", CUDA_VERSION))
        stack.enter_context(mock.patch.object(torch, "allclose", lambda *_, **__: True))
        stack.enter_context(mock.patch.object(torch.testing, "assert_close", lambda *_, **__: None))
        stack.enter_context(mock.patch.object(torch, "compile", not_compiled(tell)))
        stack.enter_context(mock.patch.object(torch.nn.Module, "_apply", applied))
        stack.enter_context(mock.patch.object(FakeTensor, "device", property(device_for(FakeTensor.device.fget))))
        own = stack.enter_context(implementations())
        fake = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(
            kept_values(fake, lambda: tell(UNKNOWN), lambda function: run_by(own, function, on_the_cpu), ran)
        )
        stack.enter_context(on_the_cpu())
        yield


def not_compiled(tell: Callable[[str], object]):  # type: ignore[no-untyped-def]
    """`torch.compile`, which leaves a model as it is."""

    def compile(model=None, **named):  # type: ignore[no-untyped-def]
        tell(f"torch.compile is not followed: {AS_CODE}")
        return model if model is not None else lambda model: model

    return compile


def strided(size, stride, dtype):  # type: ignore[no-untyped-def]
    """A tensor of the pretended GPU, as the code that torch.compile writes makes it."""
    import torch

    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


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

    never = torch.Tensor, torch.Size, int, type(None)  # these name no device
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
            named = {name: tree_map(cpu, value) for name, value in (named or {}).items() if name != "pin_memory"}
            return function(*(v if isinstance(v, never) else tree_map(cpu, v) for v in values), **named)

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
