"""Attention of gpt-oss-20b: 1,000 tokens, 64 query heads of 64 words, windows of 128 tokens."""

import torch
from gpt_oss.triton.attention import attention

N, KV, EACH, D = 1000, 8, 8, 64
q = torch.randn(1, N, KV, EACH, D, device="cuda", dtype=torch.bfloat16)
k = torch.randn(1, N, KV, D, device="cuda", dtype=torch.bfloat16)
v = torch.randn_like(k)
sinks = torch.randn(KV * EACH, device="cuda", dtype=torch.bfloat16)
attention(q, k, v, sinks, 0.125, 128, torch.zeros(1, dtype=torch.int32, device="cuda"))
