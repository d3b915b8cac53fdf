"""Weights of 4 bits (nf4) become fp16 again: 4,096,000 of them, in blocks of 64."""

import torch
from bitsandbytes.backends.triton.kernels_4bit import dequantize_4bit_impl

N, BLOCK = 4_096_000, 64
packed = torch.empty(N // 2, device="cuda", dtype=torch.uint8)
absmax = torch.empty(N // BLOCK, device="cuda")
dequantize_4bit_impl(packed, absmax, BLOCK, "nf4", torch.float16, torch.empty(N, device="cuda", dtype=torch.float16))
