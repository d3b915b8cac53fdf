"""vLLM's unified attention with a page table."""

import torch
from vllm.v1.attention.ops.triton_unified_attention import unified_attention

S, HQ, HK, D, PAGE, PAGES, LONGEST = 4, 16, 4, 128, 16, 512, 1024
q = torch.zeros(64 + S - 1, HQ, D, device="cuda", dtype=torch.bfloat16)
cache = torch.zeros(PAGES, PAGE, HK, D, device="cuda", dtype=torch.bfloat16)
table = torch.randperm(PAGES, device="cuda", dtype=torch.int32)[: S * LONGEST // PAGE].view(S, -1)
seen = torch.tensor([1024, 777, 512, 100], device="cuda", dtype=torch.int32)
starts = torch.tensor([0, 64, 65, 66, 67], device="cuda", dtype=torch.int32)
unified_attention(
    q, cache, cache, torch.empty_like(q), starts, 64, seen, LONGEST, 0.1, True, (-1, -1), table, 0.0, None, None, None
)
