"""Kernels whose loads reach the L1 in many layouts: vectors beside products, transposed and 3D blocks, words of several
widths, rows from tables. layouts.toml has their launches."""

import triton
import triton.language as tl


@triton.jit
def decayed(Q, K, G, A, H: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    """Scores of a chunk times decays between its rows: the gates are needed by rows and by columns of the product."""
    rows, dims = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    a = tl.dot(tl.load(Q + rows[:, None] * D + dims[None]), tl.load(K + rows[None] * D + dims[:, None]))
    g = tl.load(G + rows * H)
    tl.store(A + rows[:, None] * B + tl.arange(0, B)[None], a * tl.exp(g[:, None] - g[None]))


@triton.jit
def gated(X, G, Y, D: tl.constexpr, B: tl.constexpr):
    """Words of 2 bytes beside words of 4."""
    at = (tl.program_id(0) * B + tl.arange(0, B))[:, None] * D + tl.arange(0, D)[None]
    x = tl.load(X + at)
    tl.store(Y + at, (x * tl.exp(tl.load(G + at))).to(x.dtype))


@triton.jit
def transposed(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, cols = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    on = (rows[:, None] < M) & (cols[None] < N)
    x = tl.load(X + cols[None] * M + rows[:, None], mask=on)
    tl.store(Y + rows[:, None] * N + cols[None], x, mask=on)


@triton.jit
def scaled_product(A, B, S, bias, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Weights of 8 bits with a scale and a bias for each column."""
    rows, cols, inner = (
        tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK),
    )  # fmt: skip
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(A + rows[:, None] * K + (k + inner)[None], mask=rows[:, None] < M, other=0.0)
        b = tl.load(B + (k + inner)[:, None] * N + cols[None], mask=cols[None] < N, other=0)
        acc = tl.dot(a, b.to(a.dtype), acc)
    on = cols < N
    acc = acc * tl.load(S + cols, mask=on, other=0.0)[None] + tl.load(bias + cols, mask=on, other=0.0)[None]
    tl.store(C + rows[:, None] * N + cols[None], acc.to(tl.float16), mask=(rows[:, None] < M) & on[None])


@triton.jit
def paged_decode(Q, K, V, TABLE, LENGTHS, O, scale, PAGES, D: tl.constexpr, G: tl.constexpr, PAGE: tl.constexpr):
    """One query of G heads that share keys: pages from a table, a scalar length."""
    seq, rows, dims, at = tl.program_id(0), tl.arange(0, G), tl.arange(0, D), tl.arange(0, PAGE)
    q = tl.load(Q + (seq * G + rows)[:, None] * D + dims[None])
    n = tl.load(LENGTHS + seq)
    m, l = tl.full((G,), float("-inf"), tl.float32), tl.zeros((G,), tl.float32)
    o = tl.zeros((G, D), tl.float32)
    for k in range(0, tl.cdiv(n, PAGE)):
        page = tl.load(TABLE + seq * PAGES + k)
        on = k * PAGE + at < n
        keys = tl.load(K + page * PAGE * D + at[None] * D + dims[:, None], mask=on[None], other=0.0)
        values = tl.load(V + page * PAGE * D + at[:, None] * D + dims[None], mask=on[:, None], other=0.0)
        s = tl.where(on[None], tl.dot(q, keys) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        o = o * tl.exp(m - new)[:, None] + tl.dot(p.to(values.dtype), values)
        l = l * tl.exp(m - new) + tl.sum(p, 1)
        m = new
    tl.store(O + (seq * G + rows)[:, None] * D + dims[None], (o / l[:, None]).to(tl.float16))


@triton.jit
def normed(X, W, Y, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * n + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(W + at, mask=at < n, other=0.0)
    y = x / tl.sqrt(tl.sum(x * x) / n + eps) * w
    tl.store(Y + tl.program_id(0) * n + at, y.to(tl.float16), mask=at < n)


@triton.jit
def rotated(X, C, S, Y, H: tl.constexpr, D: tl.constexpr):
    """All heads of one token share a cosine and a sine."""
    heads, half = tl.arange(0, H)[:, None], tl.arange(0, D // 2)[None]
    at = tl.program_id(0) * H * D + heads * D + half
    c, s = tl.load(C + tl.program_id(0) * D // 2 + half), tl.load(S + tl.program_id(0) * D // 2 + half)
    a, b = tl.load(X + at), tl.load(X + at + D // 2)
    tl.store(Y + at, (a * c - b * s).to(tl.float16))
    tl.store(Y + at + D // 2, (b * c + a * s).to(tl.float16))


@triton.jit
def convolved(X, W, Y, n, T: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """A causal window of T tokens: each row of X is loaded T times."""
    rows, dims = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BD)
    acc = tl.zeros((BN, BD), tl.float32)
    for t in tl.static_range(T):
        row = rows - t
        x = tl.load(X + row[:, None] * BD + dims[None], mask=(row >= 0)[:, None] & (row < n)[:, None], other=0.0)
        acc += x * tl.load(W + t * BD + dims)[None]
    tl.store(Y + rows[:, None] * BD + dims[None], acc.to(tl.float16), mask=rows[:, None] < n)


@triton.jit
def summed(X, W, Y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """A sum along the middle axis of a block of three."""
    a, b, c = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None]
    at = tl.program_id(0) * A * B * C + (a * B + b) * C + c
    x = tl.load(X + at) * tl.load(W + tl.arange(0, B))[None, :, None]
    out = tl.program_id(0) * A * C + tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None]
    tl.store(Y + out, tl.sum(x, 1))


@triton.jit
def bagged(X, INDEX, W, Y, D: tl.constexpr, B: tl.constexpr):
    """The weighted sum of B rows that a table names."""
    rows = tl.load(INDEX + tl.program_id(0) * B + tl.arange(0, B))
    x = tl.load(X + rows[:, None] * D + tl.arange(0, D)[None])
    w = tl.load(W + tl.program_id(0) * B + tl.arange(0, B))
    tl.store(Y + tl.program_id(0) * D + tl.arange(0, D), tl.sum(x * w[:, None], 0))
