"""Kernels of lightllm's Llama model."""

import torch
from calls import attempt


def floats(*shape, dtype=torch.float16):
    return torch.zeros(*shape, device="cuda", dtype=dtype)


def name(module, function):
    return getattr(__import__(f"lightllm.{module}", fromlist=[function]), function)


LLAMA = "models.llama.triton_kernel"
lengths = torch.tensor([512, 100], device="cuda", dtype=torch.int32)
starts = torch.tensor([0, 512], device="cuda", dtype=torch.int32)
pages = torch.randperm(4096, device="cuda", dtype=torch.int32)[:2048].view(2, 1024)
requests = torch.tensor([0, 1], device="cuda", dtype=torch.int32)
q, kv = floats(612, 16, 128), floats(4096, 4, 128)
CALLS = [
    lambda: name(f"{LLAMA}.rmsnorm", "rmsnorm_forward")(floats(512, 4096), floats(4096), 1e-6),
    lambda: name(f"{LLAMA}.silu_and_mul", "silu_and_mul_fwd")(floats(512, 8192), floats(512, 4096)),
    lambda: name(f"{LLAMA}.rotary_emb", "rotary_emb_fwd")(q, floats(612, 4, 128), floats(612, 64), floats(612, 64)),
    lambda: name(f"{LLAMA}.context_flashattention_nopad", "context_attention_fwd")(
        q, kv, kv, torch.empty_like(q), requests, starts, lengths, torch.zeros_like(lengths), 512, pages),
    lambda: name(f"{LLAMA}.context_flashattention_nopad", "context_attention_fwd_no_prompt_cache")(
        q, floats(612, 4, 128), floats(612, 4, 128), torch.empty_like(q), starts, lengths, 512),
    lambda: name("common.basemodel.triton_kernel.destindex_copy_kv", "destindex_copy_kv")(
        floats(612, 4, 128), torch.arange(612, device="cuda", dtype=torch.int32), kv),
    lambda: name("models.bloom.triton_kernel.layernorm", "layernorm_forward")(
        floats(512, 4096), floats(4096), floats(4096), 1e-6),
]  # fmt: skip
for ask in CALLS:
    attempt(ask)
