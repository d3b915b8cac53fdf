"""Kernels of sglang's attention, with keys and values at places of a table."""

import torch
from calls import attempt
from sglang.kernels.ops.attention import decode_attention, prefill_attention


def floats(*shape, dtype=torch.bfloat16):
    return torch.zeros(*shape, device="cuda", dtype=dtype)


q, kv = floats(4, 16, 128), floats(4096, 4, 128)
starts = torch.tensor([0, 1000, 1500, 2100, 2500], device="cuda", dtype=torch.int32)
places = torch.randperm(4096, device="cuda")[:2500]
splits = torch.full((4,), 8, device="cuda", dtype=torch.int32)
sums = floats(4, 16, 8, 128, dtype=torch.float32), floats(4, 16, 8, dtype=torch.float32)
first, lengths = torch.tensor([0, 512], device="cuda"), torch.tensor([512, 100], device="cuda")
attempt(lambda: decode_attention.decode_attention_fwd(
    q, kv, kv, torch.empty_like(q), starts, places, *sums, splits, 8, 0.1, 1.0, 1.0))  # fmt: skip
attempt(lambda: prefill_attention.context_attention_fwd(
    floats(612, 16, 128), floats(612, 4, 128), floats(612, 4, 128), floats(612, 16, 128), first, lengths,
    512))  # fmt: skip
