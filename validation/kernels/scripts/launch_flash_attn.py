"""A training step of flash-attention's layers in Triton: attention, rotary embeddings, norms, losses and products."""

import torch
from calls import attempt

B, N, H, D, V = 2, 1024, 8, 64, 32000


def floats(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


def step(found):
    found = found[0] if isinstance(found, tuple) else found
    found.float().square().mean().backward()


def attention(causal):
    from flash_attn.flash_attn_triton import flash_attn_func

    return flash_attn_func(*(floats(B, N, H, D, dtype=torch.float16) for _ in range(3)), None, causal)


def rotary(**more):
    from flash_attn.layers.rotary import apply_rotary_emb

    half = torch.randn(N, D // 2, device="cuda", dtype=torch.bfloat16)
    return apply_rotary_emb(floats(B, N, H, D), half, half, **more)


def norm(**more):
    from flash_attn.ops.triton.layer_norm import layer_norm_fn

    return layer_norm_fn(floats(B * N, 1024), floats(1024), floats(1024), residual=floats(B * N, 1024), **more)


def loss(**more):
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

    return cross_entropy_loss(floats(B * N, V), torch.randint(0, V, (B * N,), device="cuda"), **more)


def product():
    from flash_attn.ops.triton.linear import triton_linear_act

    return triton_linear_act(floats(B * N, 1024, dtype=torch.float16), floats(1024, 1024, dtype=torch.float16), None)


def swiglu():
    from flash_attn.ops.triton.k_activations import swiglu

    return swiglu(floats(B, N, 2048))


for ask in (
    lambda: attention(False), lambda: attention(True), rotary, lambda: rotary(interleaved=True), norm,
    lambda: norm(is_rms_norm=True, dropout_p=0.1), loss, lambda: loss(label_smoothing=0.1), product, swiglu,
):  # fmt: skip
    attempt(lambda: step(ask()))  # noqa: B023
