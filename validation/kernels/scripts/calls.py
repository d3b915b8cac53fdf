"""Calls functions of a package with arguments that are made by the names of their parameters."""

import inspect
import sys
from unittest.mock import MagicMock

import torch

B, T, H, D = 2, 512, 4, 64
DTYPE = torch.bfloat16


def stubs(*names, **given):
    """Stand-ins for modules that the kernels' files import and that their launches do not need."""
    for name in (*names, *given):
        sys.modules[name] = MagicMock(
            **given.get(name, {}), __path__=[], __name__=name, __spec__=None, __version__="99.0.0"
        )


def attempt(launch):
    """Run a function, and say what fails in it."""
    try:
        return launch()
    except Exception as error:
        where = error.__traceback__
        while where.tb_next is not None:
            where = where.tb_next
        print(
            f"{type(error).__name__}: {str(error)[:200]} ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})",
            file=sys.stderr,
        )


def made(shape, dtype=DTYPE):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


def call(function, shapes, backward=True, **given):
    """Run a function forwards and backwards. Parameters get what is `given`, else a tensor of a shape by their name,
    else their default."""
    values = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in given and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            values[name] = given[name]
        elif name in shapes:
            values[name] = made(shapes[name])
    attempt(lambda: run(function, values, backward))


def run(function, values, backward):
    """A function, and what it is derived to."""
    found = function(**values)
    results = [v for v in (found if isinstance(found, tuple | list) else [found]) if isinstance(v, torch.Tensor)]
    results = [v for v in results if v.requires_grad]
    if backward and results:
        sum(v.float().sum() for v in results).backward()
