"""Launches of the kernels of tritonbench's operators."""

import torch
import triton
from calls import attempt, made
from tritonbench.operators.bf16xint16_gemm import kernel as mixed
from tritonbench.operators.gather_gemv.triton_gather_gemv import triton_gemv_0
from tritonbench.operators.gemm import partition_k, triton_matmul
from tritonbench.operators.int4_gemm import kernel as int4
from tritonbench.operators.layer_norm.tutorial import layer_norm
from tritonbench.operators.low_mem_dropout import kernels as dropout
from tritonbench.operators.sum import kernels as sums
from tritonbench.operators.vector_add.kernels import triton_add_kernel
from tritonbench.operators.vector_exp.kernels import triton_exp_kernel
from tritonbench.operators.welford import triton_welford as welford

N = 98432
x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
each = (triton.cdiv(N, 1024),)
attempt(lambda: triton_add_kernel[each](x, y, torch.empty_like(x), N, BLOCK_SIZE=1024))
attempt(lambda: triton_exp_kernel[each](x, torch.empty_like(x), N, BLOCK_SIZE=1024))
attempt(lambda: dropout._triton_dropout[each](x, y > 0, torch.empty_like(x), N, 0.5, BLOCK_SIZE=1024))
attempt(lambda: dropout._seeded_triton_dropout[each](x, torch.empty_like(x), N, 0.5, 123, BLOCK_SIZE=1024))
attempt(lambda: layer_norm(made((1151, 8192)), (8192,), made((8192,)), made((8192,)), 1e-5).sum().backward())
for norm in (welford.fused_native_layer_norm, welford.fused_native_layer_norm_no_welford):
    attempt(lambda norm=norm: norm(made((8192,)), made((8192,)), made((1024, 8192))))
a, b = (torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
attempt(lambda: triton_matmul.matmul(a.half(), b.half().T.contiguous()))
attempt(lambda: partition_k.matmul_partition_k(a, b.T.contiguous(), triton_reduce=True))
attempt(lambda: mixed.bf16xbf16_matmul(a, b.T.contiguous()))
attempt(lambda: mixed.bf16xint16_matmul(a, torch.zeros(1024, 512, device="cuda", dtype=torch.int16)))
attempt(lambda: int4.matmul(a, torch.zeros(512, 512, device="cuda", dtype=torch.int8)))
experts = torch.randn(8, 2048, 2048, device="cuda", dtype=torch.bfloat16)
chosen = torch.tensor([1, 5], device="cuda")
attempt(lambda: triton_gemv_0(experts, chosen, torch.randn(2048, device="cuda", dtype=torch.bfloat16)))
matrix = torch.randn(256, 384, device="cuda")
attempt(lambda: sums.triton_sum_kernel_scalar_result[(4,)](x, torch.zeros(1, device="cuda"), 4000, BLOCK_SIZE_M=1024))
sizes = {"dim": 1, "BLOCK_SIZE_NON_REDUCE_DIM": 32, "BLOCK_SIZE_REDUCE_DIM": 32}
for kernel in (sums.triton_sum_kernel_1D_result_sum_then_buffer, sums.triton_sum_kernel_1D_result_buffer_then_sum):
    attempt(lambda kernel=kernel: kernel[(8,)](matrix, torch.empty(256, device="cuda"), 256, 384, **sizes))
