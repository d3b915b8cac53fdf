"""The functions that `py:FILE.py:NAME` names: FlexAttention's `mask_mod(b, h, q_idx, kv_idx)`, as people write them.

The file is run once. The function is called with arrays of positions: q_idx (rows x 1) and kv_idx (1 x keys), int64.
They are tensors of PyTorch on the CPU where the file imports it, else arrays of NumPy; if the first call fails, the
other library is tried. A function that reads b or h is refused: an answer is that of one head, times the heads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ..errors import InputError, suggestion
from .user_file import RUNS, imports_torch, module_of, run, text_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.typing import Bools

    Positions = NDArray[np.int64]

T = TypeVar("T")
MaskMod = Callable[[object, object, object, object], object]
WHERE = "--mask"
ALLOWED = "py:FILE.py:NAME, where NAME is a mask_mod(b, h, q_idx, kv_idx) of the file, or a call that returns one"
SCORE_MOD = ("score", "b", "h", "q_idx", "kv_idx")
SUFFIX = ".py:"
MOST_PAIRS = 2**32  # of queries and keys, which a function is asked about one by one: N = 65,536
PAIRS_AT_ONCE = 2**22


def read_function(text: str, where: str) -> MaskFunction:
    """The function that `FILE.py:NAME` names. A file is not run again unless it or a module beside it has changed."""
    stem, suffix, expression = text.partition(SUFFIX)
    if not stem or not suffix or not expression.strip():
        raise InputError(where, text, ALLOWED)
    path = stem + SUFFIX[:-1]
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(WHERE, path, ALLOWED, why) from None
    found = of_text(path, content, expression.strip())
    if all(text_of(file) == text for file, text in found.beside.items()):
        return found
    of_text.cache_clear()
    return of_text(path, content, expression.strip())


@lru_cache(maxsize=32)
def of_text(path: str, text: str, expression: str) -> MaskFunction:
    """The function of a file with this text."""
    return MaskFunction(path, text, expression)


class MaskFunction:
    """A mask_mod of a file. Called with positions of queries and of keys, it says who sees whom. It is equal only to
    itself."""

    def __init__(self, path: str, text: str, expression: str) -> None:
        self.path, self.text, self.expression = path, text, expression
        self.where = f"{WHERE} py:{path}:{expression}"
        self.beside: dict[str, bytes] = {}
        self.function = self._found()

    def __reduce__(self) -> tuple[object, ...]:
        """Another process runs the same text, whatever the file holds there."""
        return of_text, (self.path, self.text, self.expression)

    def __call__(self, x: Positions, y: Positions) -> Bools:
        """Booleans, True where the queries x see the keys y."""
        import numpy as np

        library = self._library
        found = self._run(lambda: np.asarray(library(self, x, y)))
        if found.dtype != bool:
            raise InputError(self.where, f"values of type {found.dtype}", "truth values, as q_idx >= kv_idx gives them")
        shape = np.broadcast_shapes(x.shape, y.shape)
        if found.ndim > 2 or any(
            own not in (1, size) for own, size in zip(found.shape[::-1], shape[::-1], strict=False)
        ):
            allowed = f"{shape}, or an axis of 1 where it reads only one of q_idx {x.shape} and kv_idx {y.shape}"
            raise InputError(self.where, f"an array of shape {found.shape}", allowed)
        return np.broadcast_to(found, shape)

    def check(self, N: int, Nk: int) -> None:
        """Raise InputError for more pairs of tokens than may be evaluated."""
        if N * Nk > MOST_PAIRS:
            allowed = f"at most {MOST_PAIRS} pairs of tokens, which it is asked about one by one"
            raise InputError(self.where, f"{N * Nk} pairs", allowed, "write the mask with iosim's own predicates")

    def matrix(self, N: int, Nk: int) -> Bools:
        """Booleans (N x Nk), True where visible."""
        import numpy as np

        found, chunk = np.empty((N, Nk), bool), max(1, PAIRS_AT_ONCE // Nk)
        for x in range(0, N, chunk):
            found[x : x + chunk] = self(np.arange(x, min(x + chunk, N))[:, None], np.arange(Nk)[None, :])
        return found

    def head(self, name: str) -> InputError:
        """The error for a function that reads `name`, which is b or h."""
        one = f"def one(b, h, q_idx, kv_idx): return {self.expression}(0, 0, q_idx, kv_idx)"
        allowed = "a mask that is the same for all batches and heads"
        return InputError(self.where, f"a mask that reads {name}", allowed, f"give b and h in the file, as `{one}`")

    def _run(self, what: Callable[[], T], where: str = "") -> T:
        """What the user's code gives. Tensors that it puts on a GPU lie on the CPU."""
        with on_the_cpu() if imports_torch(self.text) and has_torch() else nullcontext():
            return run(what, self.path, where or self.where)

    def _found(self) -> MaskMod:
        """The function, after the file was run."""
        module, self.beside = self._run(lambda: module_of(self.path, self.text), f"{WHERE} py:{self.path}")
        names = vars(module)
        first = self.expression.partition("(")[0].partition(".")[0].strip()
        if first not in names:
            own = [name for name, value in names.items() if callable(value) and not name.startswith("_")]
            hint = suggestion(first, own) or f"it has {', '.join(own) or 'no function'}"
            raise InputError(f"{WHERE} py:{self.path}", first, "a name of the file", hint)
        found: object = self._run(lambda: eval(compile(self.expression, "NAME", "eval"), names))
        if not callable(found):
            raise InputError(self.where, f"a value of type {type(found).__name__}", ALLOWED)
        if (parameters := other_parameters(found)) is not None:
            hint = f"if it returns a mask_mod, call it, as {self.expression}({', '.join(parameters)})"
            if len(parameters) == len(SCORE_MOD):
                hint = f"it takes what a score_mod({', '.join(SCORE_MOD)}) does, which hides no key: leave out --mask"
            raise InputError(self.where, f"a function of ({', '.join(parameters)})", ALLOWED, hint)
        return found

    @cached_property
    def _library(self) -> Callable[[MaskFunction, Positions, Positions], object]:
        """The library that the function works with, tried with one pair. If it works with none, the first one says
        why."""
        import numpy as np

        ways = [with_numpy, with_torch] if has_torch() else [with_numpy]
        ways = ways[::-1] if imports_torch(self.text) else ways
        one = np.zeros((1, 1), np.int64)
        return next((way for way in ways if self._works(way, one)), ways[0])

    def _works(self, way: Callable[[MaskFunction, Positions, Positions], object], one: Positions) -> bool:
        """Whether a call with one pair raises nothing. Reading b or h raises InputError at once."""
        try:
            self._run(lambda: way(self, one, one))
        except InputError as error:
            if error.allowed != RUNS:
                raise
            return False
        return True


def other_parameters(function: Callable[..., object]) -> list[str] | None:  # type: ignore[explicit-any]  # any function
    """The names of a function's parameters if it cannot be called with four values; None if it can."""
    try:
        own = signature(function)
        own.bind(0, 0, 0, 0)
    except TypeError:
        return [name for name, p in own.parameters.items() if p.default is Parameter.empty]
    except ValueError:  # a function of C has no signature
        return None
    return None


# ---------------------------------------------------------------- NumPy and PyTorch


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return "torch" in sys.modules or find_spec("torch") is not None


class Head:
    """b or h for arrays of NumPy. `read` is set by any use."""

    def __init__(self) -> None:
        self.read = False

    def used(self, *_: object, **__: object) -> NoReturn:
        self.read = True
        raise TypeError("it is not known")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __floordiv__ = used
    __rfloordiv__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = used
    __xor__ = __rxor__ = __lshift__ = __rshift__ = __neg__ = __invert__ = __abs__ = __int__ = __float__ = used
    __index__ = __bool__ = __len__ = __iter__ = __getitem__ = __array__ = __array_ufunc__ = __array_function__ = used
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = used  # type: ignore[assignment]


def with_numpy(mask: MaskFunction, x: Positions, y: Positions) -> object:
    """What the function answers to arrays of NumPy."""
    heads = {"b": Head(), "h": Head()}
    try:
        return mask.function(heads["b"], heads["h"], x, y)
    finally:
        for name, head in heads.items():
            if head.read:
                raise mask.head(name)


def with_torch(mask: MaskFunction, x: Positions, y: Positions) -> object:
    """What the function answers to tensors of PyTorch, which lie on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves

    heads = {"b": torch.tensor(0), "h": torch.tensor(0)}
    read: list[str] = []
    made = ("new_ones", "new_zeros", "new_full", "new_empty", "new_tensor")
    harmless = {getattr(torch.Tensor, name) for name in made}
    harmless |= {getattr(torch.Tensor, name).__get__ for name in ("device", "dtype", "shape", "is_cuda")}

    class Watch(TorchFunctionMode):
        """Notes which of b and h a call takes."""

        def __torch_function__(self, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
            if function not in harmless:
                given = tree_leaves((values, named))
                read.extend(name for name, head in heads.items() if any(value is head for value in given))
            return function(*values, **(named or {}))

    try:
        with Watch(), torch.no_grad():
            found = mask.function(heads["b"], heads["h"], torch.from_numpy(x), torch.from_numpy(y))
    finally:
        if read:
            raise mask.head(read[0])
    return found.numpy() if isinstance(found, torch.Tensor) else found


def on_the_cpu() -> AbstractContextManager[object]:
    """A mode of PyTorch in which tensors asked for on a GPU are made on the CPU: a mask needs their values only."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    def cpu(value: object) -> object:
        on_gpu = isinstance(value, torch.device | str) and str(value).partition(":")[0] == "cuda"
        return torch.device("cpu") if on_gpu else value

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
            if function is torch.Tensor.cuda:
                return values[0]
            return function(*tree_map(cpu, values), **tree_map(cpu, named or {}))

    return OnTheCpu()
