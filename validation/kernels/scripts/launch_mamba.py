"""A training step of mamba's SSD, its norms and its activations."""

import torch
from calls import attempt

B, L, H, P, G, N = 2, 1024, 8, 64, 1, 64


def floats(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


def step(found):
    found = found[0] if isinstance(found, tuple) else found
    found.float().square().mean().backward()


def ssd(**more):
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    x, dt, A = floats(B, L, H, P), floats(B, L, H, dtype=torch.float32), floats(H, dtype=torch.float32)
    return mamba_chunk_scan_combined(x, dt, A, floats(B, L, G, N), floats(B, L, G, N), chunk_size=256, **more)


def layer_norm(**more):
    from mamba_ssm.ops.triton.layer_norm import layer_norm_fn

    return layer_norm_fn(floats(B, L, 1024), floats(1024), floats(1024), residual=floats(B, L, 1024), **more)


def gated():
    from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn

    return rmsnorm_fn(floats(B * L, 1024), floats(1024), None, z=floats(B * L, 1024))


def swiglu():
    from mamba_ssm.ops.triton.k_activations import swiglu

    return swiglu(floats(B, L, 2048))


def update():
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update

    return selective_state_update(
        floats(B, H, P, N), floats(B, H, P), floats(B, H, P), floats(H, P, N), floats(B, G, N), floats(B, G, N)
    )


attempt(lambda: step(ssd(D=floats(H, dtype=torch.float32), dt_bias=floats(H, dtype=torch.float32), dt_softplus=True)))
attempt(lambda: step(ssd(z=floats(B, L, H, P))))
attempt(lambda: step(layer_norm()))
attempt(lambda: step(layer_norm(is_rms_norm=True, prenorm=True)))
attempt(lambda: step(gated()))
attempt(lambda: step(swiglu()))
attempt(update)
