"""PyTorch's FlexAttention with a mask of iosim. PyTorch is an argument, so this file does not import it."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, or_
from types import ModuleType
from typing import TYPE_CHECKING, cast

from ..errors import InputError
from ..masks.atoms import Documents, ends
from ..masks.expression import Atom, Expr, atoms, evaluate
from ..masks.mask import Mask

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.typing import Array, Bools

Holds = Callable[["Array", "Array"], "Bools"]  # (query positions, key positions) -> visible
Attend = Callable[[object, object, object], None]  # of Q, K and V on the device


def compiled(torch: ModuleType, p: Attention) -> Attend:
    """A function that runs FlexAttention on Q, K and V of a problem. Its first call compiles a kernel for this problem.
    The block mask of the kernel leaves out hidden tiles."""
    from importlib import import_module

    own = import_module("torch.nn.attention.flex_attention")
    torch._dynamo.reset()  # otherwise PyTorch stops compiling after a few problems
    holds = predicate(p.mask.expr, p.Nk - p.N) if isinstance(p.mask, Mask) else None
    blocks = holds and own.create_block_mask(lambda batch, head, x, y: holds(x, y), None, None, p.N, p.Nk, "cuda")
    attention = torch.compile(own.flex_attention, dynamic=False)

    def attend(q: object, k: object, v: object) -> None:
        with torch.no_grad():
            attention(q, k, v, block_mask=blocks, enable_gqa=p.kv_heads != p.heads)

    return attend


def predicate(expr: Expr, shift: int) -> Holds:
    """The mask as a function of the numbers x of queries and y of keys, for arrays of any library. `shift` is Nk - N.
    Raises InputError for a mask of tiles or of a file, which FlexAttention cannot compute from positions."""
    for atom in atoms(expr):
        if atom.tiles or atom.file:
            raise InputError("--mask", atom.kind, "masks of tokens that are computed from positions, for FlexAttention")
    holds = evaluate(expr, lambda atom: of_atom(atom, shift), joined)
    return lambda x, y: holds(x, y) & (x == x) & (y == y)  # an atom may read only one of x and y


def joined(op: str, parts: list[Holds]) -> Holds:
    """All parts as one predicate. It is a plain loop, which PyTorch's compiler can trace."""
    if op == "~":
        return lambda x, y: ~parts[0](x, y)
    join = and_ if op == "&" else or_

    def holds(x: Array, y: Array) -> Bools:
        found = parts[0](x, y)
        for part in parts[1:]:
            found = join(found, part(x, y))
        return found

    return holds


def of_atom(atom: Atom, shift: int) -> Holds:
    """One atom as a function of positions."""
    see, value = atom.row.see, atom.value
    assert see is not None
    if atom.function is not None:
        mask = atom.function.function
        return lambda x, y: cast("Bools", mask(x * 0, x * 0, x, y))  # it does not read the batch and the head
    n = document_of(ends(value.lengths)) if isinstance(value, Documents) else value
    return cast("Holds", lambda x, y: see(x + shift, y, n))


def document_of(stops: tuple[int, ...]) -> Callable[[Array], Array]:
    """The function that gives the document of each position: the number of documents that end at or before it."""
    return lambda position: cast("Array", sum((position >= stop) * 1 for stop in stops))
