"""Integers of pretended tensors: the values that the same operations of PyTorch compute on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..walk.numbers import Elements

MOST_KEPT = 1 << 24  # elements whose values are kept
VALUES = "_iosim_values"
CHANGED: dict[int, object] = {}  # {memory of tensors: its storage}, of those that kernels changed


OTHER = "other operation"
OVERWRITES = ("copy_", "fill_", "zero_")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm", "_grouped_mm", "_int_mm")
SET_UP = re.compile(r"(fill|zero|normal|uniform|random|copy|set)_|_to_copy|clone|detach|lift_fresh|new_\w+|\w+_like")


def kept_values(fake, tell: Callable[[], object], own, ran: Callable[[str], object]):  # type: ignore[no-untyped-def]
    """A mode of PyTorch that keeps the values of integers beside pretended tensors.

    `own(function)` is the script's own implementation of an operator, or None. `tell` is called where a value is asked
    for that is not known, and `ran` with the name of an operation that a GPU would run.
    """
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map

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
            except (DataDependentOutputException, DynamicOutputShapeException):
                if not all(map(known, given)):
                    tell()
                return tree_map(lambda found: pretended(fake, found), computed(function, values, named))
            results = [v for v in tree_flatten(made)[0] if isinstance(v, torch.Tensor)]
            if given and any(v.is_floating_point() for v in results) and (name := name_of(function)):
                ran(name)
            keep(function, values, named, given, results)
            return made

    return Kept()


def name_of(function) -> str:  # type: ignore[no-untyped-def]
    """The name of an operation of PyTorch for people; nothing for views, and for what fills or copies a tensor."""
    name = function._schema.name.rpartition("::")[2]
    views = any(each.alias_info and not each.alias_info.is_write for each in function._schema.returns)
    if views or SET_UP.fullmatch(name):
        return ""
    kinds = {"_scaled_dot_product": "attention", "convolution": "convolution"}
    found = next((kind for start, kind in kinds.items() if name.startswith(start)), OTHER)
    return "matmul" if name in PRODUCTS else found


def keep(function, values, named, given, results) -> None:  # type: ignore[no-untyped-def]
    """Keep the values of the results of an operator beside them, where all that it reads is known."""
    import torch
    from torch.utils._pytree import tree_flatten

    if given and overwritten(function, given[0]):
        CHANGED.pop(given[0].untyped_storage()._cdata, None)
    written = function._schema.is_mutable and any(hasattr(v, VALUES) for v in given)
    if results and all(map(known, given)) and all(whole(v) for v in (*results, *given)):
        try:
            found = computed(function, values, named)
        except Exception:
            return
        for result, value in zip(results, tree_flatten(found)[0], strict=False):
            if isinstance(value, torch.Tensor) and not is_fake(value):
                setattr(result, VALUES, value)
    elif written and hasattr(given[0], VALUES):
        forget(given[0])


def overwritten(function, tensor) -> bool:  # type: ignore[no-untyped-def]
    """Whether all of the memory of a tensor, which a kernel may have changed, gets other values."""
    every = tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()
    return bool(every and function._schema.name.rpartition("::")[2] in OVERWRITES)


def computed(function, values, named):  # type: ignore[no-untyped-def]
    """The result of an operator with values, where unknown ones are 0."""
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import tree_map

    with _disable_current_modes():
        return function(*tree_map(real, values), **tree_map(real, named))


def is_fake(value: object) -> bool:
    """Whether a value is a pretended tensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def whole(tensor) -> bool:  # type: ignore[no-untyped-def]
    """Whether a tensor has few enough integers to keep them."""
    kind = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
    return bool(kind and tensor.numel() <= MOST_KEPT)


def known(tensor) -> bool:  # type: ignore[no-untyped-def]
    """Whether the values of a tensor are known."""
    return not is_fake(tensor) or (hasattr(tensor, VALUES) and tensor.untyped_storage()._cdata not in CHANGED)


def forget(tensor) -> None:  # type: ignore[no-untyped-def]
    """Note that a kernel, which is not run, or an unknown value changes a tensor: its values, and those of its views,
    are not known."""
    if known(tensor) and is_fake(tensor):
        storage = tensor.untyped_storage()
        CHANGED[storage._cdata] = storage


def real(value):  # type: ignore[no-untyped-def]
    """A value as it is on the CPU; a pretended tensor of unknown values is one of zeros."""
    import torch

    if is_fake(value):
        if known(value):
            return getattr(value, VALUES)
        zero = torch.zeros((1,) * value.dim() if value.numel() > MOST_KEPT else value.shape, dtype=value.dtype)
        return zero.expand(value.shape)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def pretended(fake, found):  # type: ignore[no-untyped-def]
    """A result with values as a pretended tensor, which keeps integers."""
    import torch

    if not isinstance(found, torch.Tensor):
        return found
    made = fake.from_tensor(found)
    if whole(found):
        setattr(made, VALUES, found)
    return made


def array_of(tensor):  # type: ignore[no-untyped-def]
    """A pretended tensor as an array of NumPy; zeros where its values are not known."""
    import numpy as np
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    kept = real(tensor) if known(tensor) else None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if kept is not None:
            return kept.numpy().copy()
        return np.broadcast_to(torch.zeros(1, dtype=tensor.dtype).numpy(), tuple(tensor.shape))


def values_of(tensor: object, reach: int) -> Elements | None:
    """The integers of a pretended tensor in the order of memory, from its first to its last; None if they are not
    known."""
    if not known(tensor):
        return None
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        found: Elements = real(tensor).as_strided((reach,), (1,)).numpy().copy()
    return found
