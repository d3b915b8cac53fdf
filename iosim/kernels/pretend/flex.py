"""FlexAttention in a script: PyTorch makes its kernel when it is compiled, so a call has no answer here.

What is said has the line of `iosim count` that counts the same problem.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

MODULE = "torch.nn.attention.flex_attention"
FLEX = (
    "FlexAttention's kernel follows lists of key blocks that are not known here; iosim count --mask py:FILE.py:NAME "
    "counts it with the mask_mod of your script, and its gradients with --pass backward"
)


def flex_attention(tell: Callable[[str], None]) -> AbstractContextManager[object]:
    """A context in which a call of FlexAttention is told, if PyTorch is installed."""
    from unittest import mock

    if find_spec("torch") is None:
        return nullcontext()
    import torch

    class Made(torch.autograd.Function):
        """The output, and gradients, without values."""

        @staticmethod
        def forward(ctx, *given):  # type: ignore[no-untyped-def]
            ctx.given = given
            return given[0].new_empty(*given[0].shape[:-1], given[2].shape[-1])

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return tuple(map(torch.empty_like, ctx.given))

    def called(query, key, value, score_mod=None, block_mask=None, *_, return_lse=False, return_aux=None, **named):  # type: ignore[no-untyped-def]
        tell(way_round(query, key, value, score_mod, block_mask))
        out = Made.apply(query, key, value)
        state = query.new_empty(query.shape[:-1], dtype=torch.float32)
        if return_aux is not None:
            return out, SimpleNamespace(lse=state, max_scores=state)
        return (out, state) if return_lse else out

    return mock.patch(f"{MODULE}.flex_attention", called)


def way_round(query, key, value, score_mod, block_mask) -> str:  # type: ignore[no-untyped-def]
    """The line of `iosim count` for a call, and what that does not count."""
    batch, heads, N, d = query.shape
    sizes = {"N": N, "Nk": key.shape[2], "d": d, "dv": value.shape[3], "batch": batch, "heads": heads}
    sizes |= {"kv-heads": key.shape[1], "dtype": str(query.dtype).removeprefix("torch.")}
    code = getattr(getattr(block_mask, "mask_mod", None), "__code__", None)
    named = [f"--mask py:{code.co_filename}:{code.co_name}"] if code else []
    line = " ".join(["iosim count", *(f"--{name} {n}" for name, n in sizes.items()), *named])
    gradients = "; --pass backward counts its gradients" if query.requires_grad else ""
    captured = "; tensors that its score_mod reads are not in that" if score_mod is not None else ""
    return f"its kernel is made when it is compiled. This counts its problem: {line}{gradients}{captured}"
