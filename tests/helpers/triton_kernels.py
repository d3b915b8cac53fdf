"""Small kernels in Triton, as a user would write them. Tests count what they move; nothing here is run on a GPU."""

import triton
import triton.language as tl


@triton.jit
def add(X, Y, Z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    on = at < n
    tl.store(Z + at, tl.load(X + at, mask=on) + tl.load(Y + at, mask=on), mask=on)


@triton.jit
def softmax(X, Y, rows, cols, stride, BLOCK: tl.constexpr):
    """One row after the other: a program takes every row whose number it reaches by steps of the grid."""
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(X + row * stride + at, mask=at < cols, other=float("-inf"))
        e = tl.exp(x - tl.max(x, 0))
        tl.store(Y + row * stride + at, e / tl.sum(e, 0), mask=at < cols)


@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """Tiles in groups, rows that wrap around, and pointers that move along K."""
    pid = tl.program_id(0)
    rows_of_tiles, columns_of_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * columns_of_tiles)
    first = group * GROUP
    size = min(rows_of_tiles - first, GROUP)
    i = first + (pid % (GROUP * columns_of_tiles)) % size
    j = (pid % (GROUP * columns_of_tiles)) // size
    rows, cols, inner = (i * BM + tl.arange(0, BM)) % M, (j * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    a = A + rows[:, None] * K + inner[None, :]
    b = B + inner[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=inner[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=inner[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    r, c = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    tl.store(C + r[:, None] * N + c[None, :], acc.to(tl.float16), mask=(r[:, None] < M) & (c[None, :] < N))


@triton.jit
def attention(Q, K, V, O, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """FlashAttention forward: a program for each tile of queries and each head."""
    i, head = tl.program_id(0), tl.program_id(1) * N * D
    rows, dims = i * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(Q + head + rows[:, None] * D + dims[None, :], mask=rows[:, None] < N, other=0.0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    o = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((i + 1) * BM, N) if CAUSAL else N
    for start in range(0, end, BN):
        cols = start + tl.arange(0, BN)
        k = tl.load(K + head + cols[None, :] * D + dims[:, None], mask=cols[None, :] < N, other=0.0)
        v = tl.load(V + head + cols[:, None] * D + dims[None, :], mask=cols[:, None] < N, other=0.0)
        s = tl.where(cols[None, :] < N, tl.dot(q, k) * scale, float("-inf"))
        if CAUSAL:
            s = tl.where(rows[:, None] >= cols[None, :], s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        o = o * tl.exp(m - new)[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * tl.exp(m - new) + tl.sum(p, 1)
        m = new
    tl.store(O + head + rows[:, None] * D + dims[None, :], (o / l[:, None]).to(tl.float16), mask=rows[:, None] < N)


@triton.jit
def attend(Q, K, V, O, scale, n, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """That of validation/shared_reads.py: whole tiles, and Q in shared memory."""
    at = tl.program_id(1) * n * D
    rows, dims = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, D)
    q = tl.load(Q + at + rows[:, None] * D + dims[None, :])
    m = tl.full((BR,), float("-inf"), tl.float32)
    l = tl.zeros((BR,), tl.float32)
    o = tl.zeros((BR, D), tl.float32)
    for first in range(0, n, BC):
        keys = first + tl.arange(0, BC)
        k = tl.load(K + at + keys[None, :] * D + dims[:, None])
        v = tl.load(V + at + keys[:, None] * D + dims[None, :])
        s = tl.dot(q, k) * scale
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - top[:, None])
        factor = tl.exp2(m - top)
        l = l * factor + tl.sum(p, 1)
        o = tl.dot(p.to(tl.float16), v, o * factor[:, None])
        m = top
    tl.store(O + at + rows[:, None] * D + dims[None, :], (o / l[:, None]).to(tl.float16))


@triton.jit
def gather(X, Y, TABLE, n, width, BLOCK: tl.constexpr):
    """Rows of X that a table names; a program that has no row ends early."""
    row = tl.program_id(0)
    if row >= n:
        return
    source = tl.load(TABLE + row)
    if source < 0:
        tl.store(Y + row * width + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < width)
    else:
        at = 0
        while at < width:
            on = at + tl.arange(0, BLOCK) < width
            tl.store(
                Y + row * width + at + tl.arange(0, BLOCK),
                tl.load(X + source * width + at + tl.arange(0, BLOCK), mask=on),
                mask=on,
            )
            at += BLOCK


@triton.jit
def tiles(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A copy by tensor descriptors (TMA)."""
    x = tl.make_tensor_descriptor(X, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    y = tl.make_tensor_descriptor(Y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    for j in range(0, tl.cdiv(N, BN)):
        y.store([tl.program_id(0) * BM, j * BN], x.load([tl.program_id(0) * BM, j * BN]))


@triton.jit
def histogram(X, COUNTS, n, BLOCK: tl.constexpr):
    """An atomic addition for each word, at a place that the word itself names."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0)
    tl.atomic_add(COUNTS + x, 1, mask=at < n)


@triton.jit
def extremes(X, HIGH, LOW, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0.0)
    tl.atomic_max(HIGH, tl.max(tl.abs(x), 0))
    tl.atomic_min(LOW + at // 4, x, mask=at < n)


@triton.jit
def layers(X, Y, E, N, B: tl.constexpr, D: tl.constexpr):
    one = tl.make_tensor_descriptor(X, [E, N, D], [N * D, D, 1], [1, B, D])
    two = tl.make_tensor_descriptor(Y, [E, N, D], [N * D, D, 1], [1, B, D])
    start = tl.program_id(0) * B
    x = one.load([tl.program_id(1), start, 0]).reshape([B, D])
    two.store([tl.program_id(1), start, 0], (x + x).reshape([1, B, D]))


@triton.jit
def turns(X, Y, n, BLOCK: tl.constexpr):
    """Loops that programs leave one after the other, values that they carry, branches, and early ends."""
    number = tl.program_id(0)
    if number >= n:
        return
    total = 0
    for i in range(number, n, 2):
        total += number
        tl.store(Y + i, tl.load(X + i + number))
    tl.store(Y + total, 1.0)
    at = number
    while at < 2 * n:
        tl.store(Y + at, 2.0)
        at = 2 * at + 1
    if number < 2:
        tl.store(X + number, 3.0)
        place = 2 * number
    else:
        place = number + at
    tl.store(Y + place, 4.0)
    if number < 3:
        return
    lanes = 6 * number + tl.arange(0, BLOCK)
    tl.store(Y + lanes, tl.load(X + lanes, mask=lanes < 3 * n), mask=lanes < 3 * n)


@triton.jit
def either(X, Y, Z, PAGES, MORE, n, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    at = number * BLOCK + tl.arange(0, BLOCK)
    source = tl.where(number % 3 == 0, X, Y)
    if number % 2 == 0:
        target, pages = Z, PAGES
    else:
        target, pages = Y + 1, MORE
    page = tl.load(pages + number)
    tl.store(target + at, tl.load(source + at // page, mask=at < n), mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(X, Y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(Y + at, tl.load(X + at))
    else:
        tl.store(Y + at, tl.load(X + at, mask=at < n), mask=at < n)


@triton.jit
def paged(
    Q, K, V, O, TABLE, STARTS, SEEN, scale, width, D: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Requests of unequal lengths over a cache in pages: a program for each request, KV head, and tile of rows. The query
    heads of a group are rows of a tile, and pages after the last key that a tile sees are left out."""
    request, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, seen = tl.load(STARTS + request), tl.load(SEEN + request)
    new = tl.load(STARTS + request + 1) - first
    start = tl.program_id(2) * BM
    if start >= new * GROUP:
        return
    rows, dims, inside = start + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, PAGE)
    query, on = rows // GROUP, rows < new * GROUP
    at = ((first + query) * heads + head) * GROUP + rows % GROUP
    q = tl.load(Q + at[:, None] * D + dims[None, :], mask=on[:, None], other=0.0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    o = tl.zeros((BM, D), tl.float32)
    last = tl.minimum(new - 1, (start + BM - 1) // GROUP)
    for page in range(0, tl.cdiv(seen - new + last + 1, PAGE)):
        keys = page * PAGE + inside
        place = (tl.load(TABLE + request * width + page) * PAGE + inside) * heads + head
        k = tl.load(K + place[None, :] * D + dims[:, None], mask=keys[None, :] < seen, other=0.0)
        v = tl.load(V + place[:, None] * D + dims[None, :], mask=keys[:, None] < seen, other=0.0)
        s = tl.where(keys[None, :] <= seen - new + query[:, None], tl.dot(q, k) * scale, float("-inf"))
        bigger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - bigger[:, None])
        o = o * tl.exp(m - bigger)[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * tl.exp(m - bigger) + tl.sum(p, 1)
        m = bigger
    tl.store(O + at[:, None] * D + dims[None, :], (o / l[:, None]).to(tl.float16), mask=on[:, None])
