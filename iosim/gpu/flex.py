"""PyTorch's FlexAttention with a mask of iosim. PyTorch is an argument, so this file does not import it."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, or_
from types import ModuleType
from typing import TYPE_CHECKING, cast

from ..core.problem import DENSE, Attention
from ..errors import InputError
from ..masks.expression import Atom, Expr, Join
from ..masks.segments import ends

if TYPE_CHECKING:
    from ..core.typing import Array, Bools
    from ..masks.mask import Mask

Holds = Callable[[object, object], "Bools"]  # (query positions, key positions) -> visible
Attend = Callable[[object, object, object], None]  # of Q, K and V on the device


def compiled(torch: ModuleType, p: Attention) -> Attend:
    """A function that runs FlexAttention on Q, K and V of a problem. Its first call compiles a kernel for this problem.
    The block mask of the kernel leaves out hidden tiles."""
    from importlib import import_module

    own = import_module("torch.nn.attention.flex_attention")
    torch._dynamo.reset()  # otherwise PyTorch stops compiling after a few problems
    holds = None if p.mask is DENSE else predicate(cast("Mask", p.mask).expr, p.Nk - p.N)
    blocks = holds and own.create_block_mask(lambda batch, head, x, y: holds(x, y), None, None, p.N, p.Nk, "cuda")
    attention = torch.compile(own.flex_attention, dynamic=False)

    def attend(q: object, k: object, v: object) -> None:
        with torch.no_grad():
            attention(q, k, v, block_mask=blocks, enable_gqa=p.kv_heads != p.heads)

    return attend


def predicate(expr: Expr, shift: int) -> Holds:
    """The mask as a function of positions x of queries and y of keys, for arrays of any library. `shift` is Nk - N.
    Raises InputError for a mask of tiles or of a file, which FlexAttention cannot compute from positions."""
    if isinstance(expr, Join):
        parts = [predicate(part, shift) for part in expr.parts]
        if expr.op == "~":
            return lambda x, y: ~parts[0](x, y)
        return joined(parts, and_ if expr.op == "&" else or_)
    found = of_atom(expr, shift)
    if expr.tiles or found is None:
        raise InputError("--mask", expr.kind, "masks of tokens that are computed from positions, for FlexAttention")
    return cast("Holds", found)


def joined(parts: list[Holds], join: Callable[[Bools, Bools], Bools]) -> Holds:
    """All parts as one predicate. It is a plain loop, which PyTorch's compiler can trace."""

    def holds(x: object, y: object) -> Bools:
        found = parts[0](x, y)
        for part in parts[1:]:
            found = join(found, part(x, y))
        return found

    return holds


def of_atom(atom: Atom, shift: int) -> Callable[..., object] | None:  # type: ignore[explicit-any]
    """One atom as a function of positions; None for an atom that has no formula."""
    size = atom.size

    def document(position: Array) -> Array:
        """The number of documents that end at or before a position."""
        return cast("Array", sum((position >= end) * 1 for end in ends(atom.lengths)))

    formulas: dict[str, Callable[..., object]] = {  # type: ignore[explicit-any]
        "dense": lambda x, y: x == x,
        "causal": lambda x, y: y <= x + shift,
        "window": lambda x, y: (x - y <= size) & (y - x <= size),
        "global": lambda x, y: (x < size) | (y < size),
        "sink": lambda x, y: (y < size) & (x == x),
        "strided": lambda x, y: x % size == y % size,
        "chunk": lambda x, y: x // size == y // size,
        "documents": lambda x, y: document(x) == document(y),
    }
    return formulas.get(atom.kind)
