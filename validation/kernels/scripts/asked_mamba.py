"""One step of decoding with Mamba-2's state: 16 requests, two of them padding, 64 heads of 64 x 128 words."""

import torch
from mamba_ssm.ops.triton.selective_state_update import selective_state_update

B, H, P, N = 16, 64, 64, 128
state = torch.zeros(32, H, P, N, device="cuda")
x = torch.randn(B, H, P, device="cuda", dtype=torch.bfloat16)
dt = torch.randn(B, H, 1, device="cuda", dtype=torch.bfloat16).expand(B, H, P)
bias, d = (torch.randn(H, 1, device="cuda").expand(H, P) for _ in range(2))
a = torch.randn(H, 1, 1, device="cuda").expand(H, P, N)
b, c = (torch.randn(B, 1, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
places = torch.tensor([3, 5, 7, -1, 1, 2, 8, 9, 10, 11, 12, -1, 13, 14, 15, 16], device="cuda", dtype=torch.int32)
selective_state_update(state, x, dt, a, b, c, d, z=x, dt_bias=bias, dt_softplus=True, state_batch_indices=places)
