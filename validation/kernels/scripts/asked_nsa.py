"""Attention to selected blocks: 512 tokens, 32 query heads and 2 KV heads of 64 words, the last 4 blocks of 32 keys."""

import torch
from native_sparse_attention.ops.parallel import parallel_nsa_fwd

T, H, HQ, D, S, BLOCK = 512, 2, 32, 64, 4, 32
q = torch.randn(1, T, HQ, D, device="cuda", dtype=torch.float16)
k, v = (torch.randn(1, T, H, D, device="cuda", dtype=torch.float16) for _ in range(2))
blocks = torch.arange(T, device="cuda")[None, :, None, None] // BLOCK - torch.arange(S, device="cuda")
blocks = torch.where(blocks < 0, T, blocks).expand(1, T, H, S).contiguous()  # T is a block behind the last one
parallel_nsa_fwd(q, k, v, blocks, S, BLOCK, 0.125)
