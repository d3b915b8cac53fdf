"""Launches of unsloth's kernels."""

import torch
from calls import attempt, made, stubs

stubs(
    "unsloth_zoo",
    "unsloth_zoo.patching_utils",
    "unsloth_zoo.loss_utils",
    "unsloth_zoo.temporary_patches",
    "unsloth_zoo.temporary_patches.common",
    "unsloth_zoo.log",
    "unsloth.bnb_availability",
    **{"unsloth_zoo.utils": {"Version": lambda text: tuple(int(n) for n in str(text).split("+")[0].split(".")[:3])}},
    **{
        "unsloth.device_type": {
            "DEVICE_TYPE": "cuda",
            "DEVICE_COUNT": 1,
            "DEVICE_TYPE_TORCH": "cuda",
            "is_hip": lambda: False,
            "ALLOW_PREQUANTIZED_MODELS": False,
            "ALLOW_BITSANDBYTES": False,
        }
    },
)
from unsloth.kernels import cross_entropy_loss, fp8, geglu, layernorm, rms_layernorm, rope_embedding, swiglu  # noqa: E402

X, W = (2, 512, 4096), (4096,)


def both(found):
    found.float().sum().backward()


attempt(lambda: both(rms_layernorm.Fast_RMS_Layernorm.apply(made(X), made(W), 1e-6, False)))
attempt(lambda: both(rms_layernorm.Fast_RMS_Layernorm.apply(made(X), made(W), 1e-6, True)))
attempt(lambda: both(layernorm.Fast_Layernorm.apply(made(X), made(W), made(W), 1e-6)))
labels = torch.randint(0, 32000, (2, 512), device="cuda")
attempt(lambda: both(cross_entropy_loss.Fast_CrossEntropyLoss.apply(made((1024, 32000)), labels.view(-1), 0, 0)))
labels = torch.randint(0, 128256, (64,), device="cuda")
attempt(lambda: both(cross_entropy_loss.Fast_CrossEntropyLoss.apply(made((64, 128256)), labels, 0, 0)))
cos, sin = torch.randn(512, 64, device="cuda"), torch.randn(512, 64, device="cuda")
heads = (2, 8, 512, 128)
attempt(lambda: both(rope_embedding.Fast_RoPE_Embedding.apply(made((2, 512, 8, 128)), cos, sin)))
attempt(lambda: both(rope_embedding.Fast_RoPE_Embedding_QK.apply(made(heads), made(heads), cos, sin, None)[0]))
flat = (1024, 11008)
for name in ("geglu_exact_forward_kernel", "geglu_approx_forward_kernel"):
    attempt(lambda name=name: getattr(geglu, name)(made((2, 512, 11008)), made((2, 512, 11008))))
for name in ("geglu_exact_backward_kernel", "geglu_approx_backward_kernel"):
    attempt(lambda name=name: getattr(geglu, name)(made(flat), made(flat), made(flat)))
attempt(lambda: swiglu.swiglu_fg_kernel(made((2, 512, 11008)), made((2, 512, 11008))))
attempt(lambda: swiglu.swiglu_DWf_DW_dfg_kernel(made(flat), made(flat), made(flat)))
weight = torch.zeros(4096, 4096, device="cuda", dtype=torch.float8_e4m3fn)
scale = torch.zeros(32, 32, device="cuda")
attempt(lambda: fp8.weight_dequant_block(weight, scale))
attempt(lambda: fp8.act_quant(torch.zeros(1024, 4096, device="cuda", dtype=torch.bfloat16)))
attempt(
    lambda: fp8.w8a8_block_fp8_matmul_triton(
        torch.zeros(1024, 4096, device="cuda", dtype=torch.float8_e4m3fn),
        weight,
        torch.zeros(1024, 32, device="cuda"),
        scale,
        [128, 128],
    )
)
