"""The weights of 8 experts, 2,048 x 1,500, become fp8: the scale of each row is the least that a block finds."""

import torch
from torchao.prototype.moe_training.kernels.float8_rowwise import triton_fp8_rowwise_3d_transpose_rhs

triton_fp8_rowwise_3d_transpose_rhs(torch.randn(8, 2048, 1500, device="cuda", dtype=torch.bfloat16))
