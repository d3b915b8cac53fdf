"""sglang: decoding with latent attention, a prefill behind cached tokens under a window, and a product of experts."""

import random

import torch
import triton.language as tl
from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd
from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd
from sglang.kernels.ops.moe.fused_moe_triton_kernels import invoke_fused_moe_kernel

bf16 = torch.bfloat16


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def starts(lengths):
    return ints([sum(lengths[:k]) for k in range(len(lengths) + 1)])


def decode(lengths, heads=16, splits=8):
    """Heads of 576 words, of which 512 are the value too."""
    cache = torch.randn(8192, 1, 576, device="cuda", dtype=bf16)
    partial = torch.empty(len(lengths), heads, splits, 512, device="cuda")
    lse = torch.empty(len(lengths), heads, splits, device="cuda")
    q = torch.randn(len(lengths), heads, 576, device="cuda", dtype=bf16)
    at = torch.randperm(8192, device="cuda", dtype=torch.int32)[: sum(lengths)]
    out, each = torch.empty(len(lengths), heads, 512, device="cuda", dtype=bf16), ints([splits] * len(lengths))
    decode_attention_fwd(
        q, cache, cache[..., :512], out, starts(lengths), at, partial, lse, each, splits, 0.1, 1.0, 1.0
    )


def extend(cached, new, window, heads=32, kv_heads=8, d=128):
    q, k, v, o = (torch.randn(sum(new), h, d, device="cuda", dtype=bf16) for h in (heads, kv_heads, kv_heads, heads))
    caches = [torch.randn(4096, kv_heads, d, device="cuda", dtype=bf16) for _ in range(2)]
    at = torch.randperm(4096, device="cuda")[: sum(cached)]
    extend_attention_fwd(
        q, k, v, o, *caches, starts(new), starts(cached), at, None, True, None, max(new), 1.0, 1.0,
        sliding_window_size=window - 1,
    )  # fmt: skip


def experts(tokens=64, experts=8, top=2, K=4096, N=3584, rows=16):
    """Tokens choose their experts at random (seed 0)."""
    random.seed(0)
    chosen = [random.sample(range(experts), top) for _ in range(tokens)]
    order, of = [], []
    for e in range(experts):
        own = [t * top + j for t in range(tokens) for j in range(top) if chosen[t][j] == e]
        order += own + [tokens * top] * (-len(own) % rows)
        of += [e] * -(-len(own) // rows)
    config = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
    a, b, c = (torch.empty(*s, device="cuda", dtype=bf16) for s in ((tokens, K), (experts, N, K), (tokens, top, N)))
    invoke_fused_moe_kernel(
        a, b, None, c, None, None, None, torch.rand(tokens, top, device="cuda"),
        ints(chosen), ints(order), ints(of), ints([len(order)]), False, top, config, tl.bfloat16,
        False, False, False, False, False,
    )  # fmt: skip


decode([4096, 1000, 300, 17])
extend([1000, 0, 300], [200, 129, 64], window=512)
experts()
