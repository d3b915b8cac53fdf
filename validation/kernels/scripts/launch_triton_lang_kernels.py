"""A training step of the kernels of triton-lang/kernels."""

import torch
from calls import attempt


def floats(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16).requires_grad_()


def step(found):
    found.float().square().mean().backward()


def attention(causal):
    from kernels.flash_attention import attention

    return attention(*(floats(2, 8, 1024, 64) for _ in range(3)), causal, 0.125)


def loss():
    from kernels.cross_entropy import cross_entropy

    return cross_entropy(floats(512, 4096), torch.randint(0, 4096, (512,), device="cuda"))


def product():
    from kernels.matmul import matmul

    return matmul(floats(512, 512).detach(), floats(512, 512).detach())


attempt(lambda: step(attention(False)))
attempt(lambda: step(attention(True)))
attempt(lambda: step(loss()))
attempt(product)
