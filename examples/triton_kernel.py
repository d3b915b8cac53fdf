"""A FlashAttention forward pass in Triton: the skeleton of some lecture notes, three findings of `explain`, and
the kernel put right. It needs Triton (`pip install 'iosim[triton]'`) and no GPU.

The mistakes are E16 to E18 of validation/sources/README.md. Run it: `python examples/triton_kernel.py`.
"""

import triton
import triton.language as tl

import iosim


@triton.jit
def untyped(Q, O, D):
    """How the notes take D: as an ordinary argument."""
    dims = tl.arange(0, D)
    tl.store(O + dims, tl.load(Q + dims))


@triton.jit
def skeleton(Q, K, V, O, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TWICE: tl.constexpr):
    """As in the notes, with D made a constant. With TWICE the offset of the block is in the pointer and in `rows`."""
    i, head = tl.program_id(0), tl.program_id(1)
    dims, rows = tl.arange(0, D), i * BM + tl.arange(0, BM)
    start = head * N * D + (i * BM * D if TWICE else 0)
    q = tl.load(Q + start + rows[:, None] * D + dims[None, :])
    m, l = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    o = tl.zeros((BM, D), tl.float32)
    for j in range(0, tl.cdiv(N, BN)):
        own = tl.arange(0, BN)
        cols = j * BN + own
        inside = own < N  # without the offset of the block of keys
        k = tl.load(K + head * N * D + cols[None, :] * D + dims[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(V + head * N * D + cols[:, None] * D + dims[None, :], mask=inside[:, None], other=0.0)
        s = tl.dot(q, k) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p, share = tl.exp(s - new[:, None]), tl.exp(m - new)
        l = l * share + tl.sum(p, 1)
        o = o * share[:, None] + tl.dot(p.to(v.dtype), v)
        m = new
    tl.store(O + start + rows[:, None] * D + dims[None, :], (o / l[:, None]).to(O.dtype.element_ty))


@triton.jit
def corrected(Q, K, V, O, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The offset of a block is added once, keys beyond N are not read, and their scores are -inf."""
    i, head = tl.program_id(0), tl.program_id(1) * N * D
    dims, rows = tl.arange(0, D), i * BM + tl.arange(0, BM)
    of_q = head + rows[:, None] * D + dims[None, :]
    q = tl.load(Q + of_q, mask=rows[:, None] < N, other=0.0)
    m, l = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    o = tl.zeros((BM, D), tl.float32)
    for j in range(0, tl.cdiv(N, BN)):
        cols = j * BN + tl.arange(0, BN)
        k = tl.load(K + head + cols[None, :] * D + dims[:, None], mask=cols[None, :] < N, other=0.0)
        v = tl.load(V + head + cols[:, None] * D + dims[None, :], mask=cols[:, None] < N, other=0.0)
        s = tl.where(cols[None, :] < N, tl.dot(q, k) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, share = tl.exp(s - new[:, None]), tl.exp(m - new)
        l = l * share + tl.sum(p, 1)
        o = o * share[:, None] + tl.dot(p.to(v.dtype), v)
        m = new
    tl.store(O + of_q, (o / l[:, None]).to(O.dtype.element_ty), mask=rows[:, None] < N)


N, D, HEADS = 200, 64, 8
TENSORS = {name: iosim.tensor("fp16", (HEADS, N, D)) for name in "QKVO"}
LAUNCH = {**TENSORS, "scale": D**-0.5, "N": N, "D": D, "BM": 64, "BN": 64}
GRID = (triton.cdiv(N, 64), HEADS)


def found(kernel, **arguments):
    """What `explain` finds wrong with a launch, without the line that it shows: a refusal, else notes."""
    try:
        return [note.partition(" (")[0] for note in iosim.explain(kernel, GRID, resources=False, **arguments).notes]
    except iosim.InputError as error:
        return [error.found]


if __name__ == "__main__":
    print("1:", *found(untyped, Q=TENSORS["Q"], O=TENSORS["O"], D=D))
    print("2:", *found(skeleton, **LAUNCH, TWICE=True))
    print("3:", *found(skeleton, **LAUNCH, TWICE=False), sep="\n   ")
    right = iosim.explain(corrected, GRID, problem=iosim.Attention(N, D, heads=HEADS), **LAUNCH)
    print("corrected:", right.sentence, *right.notes)
