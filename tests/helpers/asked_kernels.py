"""Kernels that read and write as ten published ones do (validation/kernels/asked.csv), with the same arguments.

They compute less: tests count what they move. A value that is loaded is used, or the compiler would leave the load out.
"""

import triton
import triton.language as tl


@triton.jit
def banded(Q, K, V, Sinks, M, Out, Start_q, N, H, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, W: tl.constexpr):
    """Tiles of keys from W behind the first query of a tile on."""
    start, i, head = tl.load(Start_q), tl.program_id(0), tl.program_id(1)
    rows, cols, dims = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(Q + (head * N + rows[:, None]) * D + dims)
    m, o = tl.zeros((BM,), tl.float32) + tl.load(Sinks + head % H), tl.zeros((BM, D), tl.float32)
    for at in range(tl.maximum(start, start + i * BM - W), start + (i + 1) * BM, BN):
        tile = (head * N + at + cols[:, None]) * D + dims
        s = tl.dot(q, tl.trans(tl.load(K + tile)))
        m = tl.maximum(m, tl.max(s, 1))
        o += tl.dot(s.to(q.dtype), tl.load(V + tile))
    tl.store(M + head * N + rows, m)
    tl.store(Out + (head * N + rows[:, None]) * D + dims, o)


@triton.jit
def with_scales(
    Q, K, V, Q_scale, K_scale, Out, n, GROUP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Causal, with a scale for each tile of Q and of K."""
    i, head = tl.program_id(0), tl.program_id(1)
    rows, cols, dims = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(Q + (head * n + rows[:, None]) * D + dims, mask=rows[:, None] < n)
    scale, o = tl.load(Q_scale + head * tl.cdiv(n, BM) + i), tl.zeros((BM, D), tl.float32)
    for at in range(0, (i + 1) * BM, BN):
        tile, on = (head // GROUP * n + at + cols[:, None]) * D + dims, at + cols[:, None] < n
        s = tl.dot(q, tl.trans(tl.load(K + tile, mask=on))).to(tl.float32)
        s *= scale * tl.load(K_scale + head // GROUP * tl.cdiv(n, BN) + at // BN)
        o += tl.dot(s.to(tl.float16), tl.load(V + tile, mask=on))
    tl.store(Out + (head * n + rows[:, None]) * D + dims, o.to(tl.float16), mask=rows[:, None] < n)


@triton.jit
def unpacked(a_ptr, c_ptr, absmax_ptr, n, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    """Two numbers of each byte. Each lane loads the scale of its block."""
    at = tl.program_id(0) * SPLIT + tl.arange(0, SPLIT)
    pair, scale = tl.load(a_ptr + at, mask=at < n), tl.load(absmax_ptr + at * 2 // BLOCK, mask=at < n)
    both = tl.interleave((pair >> 4) * scale, (pair & 15) * scale)
    out = tl.program_id(0) * SPLIT * 2 + tl.arange(0, SPLIT * 2)
    tl.store(c_ptr + out, both, mask=out < 2 * n)


@triton.jit
def state_step(
    state_ptr, x_ptr, dt_ptr, dt_bias_ptr, A_ptr, B_ptr, C_ptr, D_ptr, z_ptr, out_ptr, state_batch_indices_ptr, H,
    P: tl.constexpr, N: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """A step of a state whose place is data; below 0 it is padding. Numbers of a head are one word."""
    b, h = tl.program_id(1), tl.program_id(2)
    rows, cols = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    place, own = tl.load(state_batch_indices_ptr + b), (b * H + h) * P + rows
    if place < 0:
        tl.store(out_ptr + own, 0.0)
        return
    at = state_ptr + ((place * H + h) * P + rows[:, None]) * N + cols
    step = (tl.load(dt_ptr + b * H + h) + tl.load(dt_bias_ptr + h)) * tl.load(A_ptr + h)
    x, c = tl.load(x_ptr + own), tl.load(C_ptr + b * N + cols)
    state = tl.load(at) * step + tl.load(B_ptr + b * N + cols) * x[:, None]
    tl.store(at, state)
    out = tl.sum(state * c, 1) + x * tl.load(D_ptr + h + 0 * rows)
    tl.store(out_ptr + own, out * tl.load(z_ptr + own))


@triton.jit
def latent_split(
    Q, K_Buffer, V_Buffer, kv_indptr, kv_indices, Att_Out, Att_Lse, num_kv_splits,
    H: tl.constexpr, DV: tl.constexpr, DPE: tl.constexpr, BN: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """A share of the keys of a request, for all heads: rows that data name, of DV + DPE words."""
    b, part = tl.program_id(0), tl.program_id(2)
    first = tl.load(kv_indptr + b)
    n, parts = tl.load(kv_indptr + b + 1) - first, tl.load(num_kv_splits + b)
    size = tl.cdiv(tl.cdiv(n, parts), LEAST) * LEAST
    start, end = size * part, tl.minimum(size * part + size, n)
    heads, dims, more = tl.arange(0, H), tl.arange(0, DV), DV + tl.arange(0, DPE)
    if start < end:
        row = Q + (b * H + heads[:, None]) * (DV + DPE)
        q, rope, m, o = (
            tl.load(row + dims),
            tl.load(row + more),
            tl.zeros((H,), tl.float32),
            tl.zeros((H, DV), tl.float32),
        )
        for at in range(start, end, BN):
            keys = at + tl.arange(0, BN)
            rows = tl.load(kv_indices + first + keys, mask=keys < end, other=0)[:, None] * (DV + DPE)
            k = tl.load(K_Buffer + rows + dims, mask=keys[:, None] < end, other=0.0)
            s = tl.dot(q, tl.trans(k))
            s += tl.dot(rope, tl.trans(tl.load(K_Buffer + rows + more, mask=keys[:, None] < end, other=0.0)))
            m = tl.maximum(m, tl.max(s, 1))
            o += tl.dot(s.to(q.dtype), tl.load(V_Buffer + rows + dims, mask=keys[:, None] < end, other=0.0))
        at = (b * H + heads) * tl.num_programs(2) + part
        tl.store(Att_Out + at[:, None] * DV + dims, o)
        tl.store(Att_Lse + at, m)


@triton.jit
def behind_a_cache(
    Q_Extend, K_Extend, V_Extend, O_Extend, K_Buffer, V_Buffer, qo_indptr, kv_indptr, kv_indices,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """New tokens of unequal requests: cached keys in the rows that data name, if the window reaches them, then new ones."""
    b, head, i = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    new, old = tl.load(qo_indptr + b), tl.load(kv_indptr + b)
    n, cached = tl.load(qo_indptr + b + 1) - new, tl.load(kv_indptr + b + 1) - old
    rows, cols, dims = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    if i * BM < n:
        at_q = ((new + rows[:, None]) * H + head) * D + dims
        q, o = tl.load(Q_Extend + at_q, mask=rows[:, None] < n, other=0.0), tl.zeros((BM, D), tl.float32)
        for at in range(0, cached, BN):
            if at + BN > cached + i * BM - W + 1:
                on = at + cols < cached
                place = tl.load(kv_indices + old + at + cols, mask=on, other=0)
                tile = (place[:, None] * (H // GROUP) + head // GROUP) * D + dims
                s = tl.dot(q, tl.trans(tl.load(K_Buffer + tile, mask=on[:, None], other=0.0)))
                o += tl.dot(s.to(q.dtype), tl.load(V_Buffer + tile, mask=on[:, None], other=0.0))
        end = tl.minimum(n, (i + 1) * BM)
        for at in range(0, end, BN):
            on = at + cols[:, None] < end
            tile = ((new + at + cols[:, None]) * (H // GROUP) + head // GROUP) * D + dims
            s = tl.dot(q, tl.trans(tl.load(K_Extend + tile, mask=on, other=0.0)))
            o += tl.dot(s.to(q.dtype), tl.load(V_Extend + tile, mask=on, other=0.0))
        tl.store(O_Extend + at_q, o, mask=rows[:, None] < n)


@triton.jit
def of_experts(
    a_ptr, b_ptr, c_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr, N, K, tokens,
    TOP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A tile of tokens of one expert, and of columns of its weights."""
    columns = tl.cdiv(N, BN)
    i, j = tl.program_id(0) // columns, tl.program_id(0) % columns
    if i * BM >= tl.load(num_tokens_post_padded_ptr):
        return
    token, expert = tl.load(sorted_token_ids_ptr + i * BM + tl.arange(0, BM)), tl.load(expert_ids_ptr + i)
    on, cols, inner, c = (
        token[:, None] < tokens,
        j * BN + tl.arange(0, BN),
        tl.arange(0, BK),
        tl.zeros((BM, BN), tl.float32),
    )
    for k in range(0, K, BK):
        a = tl.load(a_ptr + (token[:, None] // TOP) * K + k + inner, mask=on, other=0.0)
        c = tl.dot(a, tl.load(b_ptr + expert.to(tl.int64) * N * K + cols[None, :] * K + k + inner[:, None]), c)
    tl.store(c_ptr + token[:, None] * N + cols, c, mask=on)


@triton.jit
def of_blocks(
    q, k, v, o, lse, block_indices, T, H, G: tl.constexpr, D: tl.constexpr, S: tl.constexpr, BS: tl.constexpr
):
    """A token: the query heads of a KV head, and blocks of keys that data name and that begin before it."""
    t, h = tl.program_id(0), tl.program_id(2)
    heads, keys, dims = h * G + tl.arange(0, G), tl.arange(0, BS), tl.arange(0, D)
    mine = (t * H * G + heads[:, None]) * D + dims
    x, m, out = tl.load(q + mine), tl.zeros((G,), tl.float32), tl.zeros((G, D), tl.float32)
    for i in range(S):
        first = tl.load(block_indices + (t * H + h) * S + i).to(tl.int32) * BS
        if (first <= t) & (first >= 0):
            tile, on = ((first + keys[:, None]) * H + h) * D + dims, first + keys[:, None] < T
            s = tl.dot(x, tl.trans(tl.load(k + tile, mask=on, other=0.0)))
            m = tl.maximum(m, tl.max(s, 1))
            out += tl.dot(s.to(x.dtype), tl.load(v + tile, mask=on, other=0.0))
    tl.store(o + mine, out)
    tl.store(lse + t * H * G + heads, m)


@triton.jit
def least_scales(input_ptr, scales_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """The least scale of a row among the tiles of its columns, by an atomic operation of each tile."""
    rows, cols = tl.program_id(1) * BK + tl.arange(0, BK), tl.program_id(2) * BN + tl.arange(0, BN)
    on = (rows[:, None] < K) & (cols < N)
    x = tl.load(input_ptr + (tl.program_id(0) * K + rows[:, None]) * N + cols, mask=on, other=0.0)
    tl.atomic_min(scales_ptr + tl.program_id(0) * K + rows, 1.0 / tl.max(tl.abs(x).to(tl.float32), 1), mask=rows < K)


@triton.jit
def in_parts(
    a_ptr,
    b_ptr,
    c_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PARTS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """A share of K, which is added to C. Its mask counts blocks of BK, though a share has SIZE."""
    part, j = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    rows, cols, inner = tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    blocks, c = tl.cdiv(SIZE, BK), tl.zeros((BM, BN), tl.float32)
    for k in range(part * blocks, (part + 1) * blocks):
        at, on = part * SIZE + (k - part * blocks) * BK + inner, inner < K - k * BK
        a = tl.load(a_ptr + rows[:, None] * K + at[None, :], mask=on[None, :], other=0.0)
        c = tl.dot(a, tl.load(b_ptr + cols[None, :] * K + at[:, None], mask=on[:, None], other=0.0), c)
    tl.atomic_add(c_ptr + rows[:, None] * N + cols, c)
