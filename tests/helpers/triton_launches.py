"""Launches of the kernels in triton_kernels.py: (kernel, grid, arguments). A tensor is its type and its shape."""

TABLE = [2, -1, 0, 5, 2]
VALUES = [3, 1, 1, 0, 2, 3, 3, 0, 7, 1]


def attention(N, D, heads, BM, BN, causal):
    tensor = ("fp16", (heads, N, D))
    sizes = {"scale": 0.125, "N": N, "D": D, "BM": BM, "BN": BN, "CAUSAL": causal}
    return "attention", (-(-N // BM), heads), {**dict.fromkeys("QKVO", tensor), **sizes}


def matmul(M, N, K, BM, BN, BK):
    tensors = {"A": ("fp16", (M, K)), "B": ("fp16", (K, N)), "C": ("fp16", (M, N))}
    sizes = {"M": M, "N": N, "K": K, "BM": BM, "BN": BN, "BK": BK, "GROUP": 2}
    return "matmul", (-(-M // BM) * -(-N // BN),), {**tensors, **sizes}


def paged(requests, D, heads, kv_heads, BM, PAGE):
    """Requests (new tokens, all tokens) over pages that lie in another order."""
    new, seen = zip(*requests, strict=True)
    width, group = -(-max(seen) // PAGE), heads // kv_heads
    number = width * len(requests)
    table = [(7 * place + 3) % number for place in range(number)]  # a permutation if 7 does not divide the number
    starts = [sum(new[:k]) for k in range(len(new) + 1)]
    q, cache = ("fp16", (starts[-1], heads, D)), ("fp16", (number, PAGE, kv_heads, D))
    tensors = {"Q": q, "K": cache, "V": cache, "O": q, "TABLE": table, "STARTS": starts, "SEEN": list(seen)}
    sizes = {"scale": 0.25, "width": width, "D": D, "GROUP": group, "BM": BM, "PAGE": PAGE}
    return "paged", (len(requests), kv_heads, -(-max(new) * group // BM)), {**tensors, **sizes}


REQUESTS = [(20, 100), (1, 77), (33, 33), (5, 130)]
LAUNCHES = {
    "add": ("add", (3,), {**dict.fromkeys("XYZ", ("fp32", (700,))), "n": 700, "BLOCK": 256}),
    "add, one word": ("add", (1,), {**dict.fromkeys("XYZ", ("fp32", (1,))), "n": 1, "BLOCK": 16}),
    "softmax": ("softmax", (3,), {"X": ("fp32", (7, 40)), "Y": ("fp32", (7, 40)), "rows": 7, "cols": 33, "stride": 40, "BLOCK": 64}),
    "matmul": matmul(64, 64, 64, 32, 32, 32),
    "matmul, ragged": matmul(70, 50, 40, 32, 16, 16),
    "attention": attention(64, 16, 2, 32, 16, False),
    "attention, causal": attention(96, 16, 2, 32, 16, True),
    "attention, ragged": attention(50, 16, 1, 32, 16, False),
    "attention, ragged and causal": attention(50, 16, 3, 16, 32, True),
    "gather": ("gather", (6,), {"X": ("fp32", (6, 40)), "Y": ("fp32", (5, 40)), "TABLE": TABLE, "n": 5, "width": 40, "BLOCK": 64}),
    "gather, in steps": ("gather", (5,), {"X": ("fp32", (6, 40)), "Y": ("fp32", (5, 40)), "TABLE": TABLE, "n": 5, "width": 40, "BLOCK": 16}),
    "tiles": ("tiles", (3,), {"X": ("fp16", (40, 56)), "Y": ("fp16", (40, 56)), "M": 40, "N": 56, "BM": 16, "BN": 32}),
    "paged": paged(REQUESTS, 16, 6, 2, 16, 16),
    "extremes": ("extremes", (3,), {"X": ("fp32", (150,)), "HIGH": ("fp32", (1,)), "LOW": ("fp32", (40,)), "n": 150, "BLOCK": 64}),
    "layers": ("layers", (3, 2), {**dict.fromkeys("XY", ("fp16", (2, 40, 16))), "E": 2, "N": 40, "B": 16, "D": 16}),
    "turns": ("turns", (9,), {"X": ("fp32", (64,)), "Y": ("fp32", (64,)), "n": 7, "BLOCK": 8}),
    "either": ("either", (5,), {**dict.fromkeys("XYZ", ("fp32", (75,))), "PAGES": [1, 2, 3, 1, 2], "MORE": [5, 4, 6, 7, 9], "n": 70, "BLOCK": 16}),
    "histogram": ("histogram", (2,), {"X": VALUES, "COUNTS": ("int32", (8,)), "n": 10, "BLOCK": 8}),
}  # fmt: skip
