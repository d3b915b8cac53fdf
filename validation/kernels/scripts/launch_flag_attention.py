"""A training step of FlagAttention, and its kernels for decoding."""

import torch
from calls import attempt
from flag_attn import flash_attention, paged_attention, piecewise_attention

B, H, N, D = 2, 8, 1024, 64


def floats(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16).requires_grad_()


def step(found):
    found = found[0] if isinstance(found, tuple) else found
    found.float().square().mean().backward()


def three(n=N):
    return floats(B, H, n, D), floats(B, H, N, D), floats(B, H, N, D)


attempt(lambda: step(flash_attention(*three(), causal=True)))
attempt(lambda: step(flash_attention(*three(), causal=False, return_log_normalizer=True)))
attempt(lambda: flash_attention(*(x.detach() for x in three(1)), causal=False, return_total_attention=True))
q, k, v = three()
attempt(lambda: step(piecewise_attention(q, q, k, k, v, 256, causal=True)))
pages = torch.randperm(256, device="cuda", dtype=torch.int32).view(4, 64)
lengths = torch.tensor([1000, 17, 512, 300], device="cuda", dtype=torch.int32)
cache = torch.zeros(256, 2, 16, D, device="cuda", dtype=torch.float16)
query = torch.zeros(4, 8, D, device="cuda", dtype=torch.float16)
attempt(lambda: paged_attention(query, cache, cache, lengths, pages, 0.125, 1024))
