"""A product whose K = 7,168 is cut into 16 parts of 448, which are no multiple of the block of 128."""

import torch
from aiter.ops.triton.gemm.basic.gemm_a16w16_atomic import gemm_a16w16_atomic

x, w = (torch.randn(rows, 7168, device="cuda", dtype=torch.bfloat16) for rows in (64, 256))
config = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "NUM_KSPLIT": 16}
more = {
    "cache_modifier": "",
    "num_warps": 4,
    "num_stages": 2,
    "waves_per_eu": 2,
    "matrix_instr_nonkdim": 16,
    "kpack": 1,
}
gemm_a16w16_atomic(x, w, torch.float32, None, {**config, **more})
