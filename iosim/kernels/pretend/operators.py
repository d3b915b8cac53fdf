"""Operators that a script adds to PyTorch: its functions run, where pretended tensors would only take their shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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
