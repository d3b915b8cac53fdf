"""SageAttention, causal, with Q and K in int8: 2,000 tokens, 32 query heads and 8 KV heads of 128 words."""

import torch
from sageattention.triton.attn_qk_int8_per_block_causal import forward

N, H, KV, D = 2000, 32, 8, 128
q, k, v = (torch.zeros(1, h, N, D, device="cuda", dtype=t) for h, t in
           ((H, torch.int8), (KV, torch.int8), (KV, torch.float16)))  # fmt: skip
scales = [torch.ones(1, h, -(-N // rows), 1, device="cuda") for h, rows in ((H, 128), (KV, 64))]
forward(q, k, v, *scales, output_dtype=torch.float16)
