"""Launches of Liger's kernels, forwards and backwards."""

import torch
from calls import attempt, made

R, C = 1024, 4096
X, W = (2, R // 2, C), (C,)


def both(found):
    found = found[0] if isinstance(found, tuple) else found
    found.float().sum().backward()


def floats(*shape):
    return torch.zeros(*shape, device="cuda", dtype=torch.float32).requires_grad_()


def name(module, function):
    return getattr(__import__(f"liger_kernel.ops.{module}", fromlist=[function]), function)


CALLS = [
    lambda: name("rms_norm", "LigerRMSNormFunction").apply(made(X), made(W), 1e-6, 0.0, "llama", True),
    lambda: name("rms_norm", "LigerRMSNormFunction").apply(made((40000, 128)), made((128,)), 1e-6, 0.0, "llama", True),
    lambda: name("layer_norm", "LigerLayerNormFunction").apply(made(X), made(W), made(W), 1e-6),
    lambda: name("group_norm", "LigerGroupNormFunction").apply(
        made((16, 64, 512)), made((64,)), made((64,)), 64, 8, 1e-6
    ),
    lambda: name("swiglu", "LigerSiLUMulFunction").apply(made(X), made(X)),
    lambda: name("swiglu", "LigerSiLUMulFunction").apply(made((64, 131072)), made((64, 131072))),
    lambda: name("geglu", "LigerGELUMulFunction").apply(made(X), made(X)),
    lambda: name("softmax", "LigerSoftmaxFunction").apply(made(X)),
    lambda: name("softmax", "LigerSoftmaxFunction").apply(made((16, 131072))),
    lambda: name("sparsemax", "LigerSparsemaxFunction").apply(made(X), -1),
    lambda: name("relu_squared", "LigerReLUSquaredFunction").apply(made(X)),
    lambda: name("poly_norm", "LigerPolyNormFunction").apply(made(X), made((3,)), made((1,)), 1e-6, True),
    lambda: name("dyt", "LigerDyTFunction").apply(made(X), floats(1), made(W), made(W)),
    lambda: name("fused_add_rms_norm", "LigerFusedAddRMSNormFunction").apply(
        made(X), made(X), made(W), 1e-6, 0.0, "llama", True
    ),
    lambda: name("rope", "LigerRopeFunction").apply(
        made((2, 8, 512, 128)), made((2, 4, 512, 128)), made((1, 512, 128)), made((1, 512, 128))
    ),
    lambda: name("qwen2vl_mrope", "LigerQwen2VLMRopeFunction").apply(
        made((2, 8, 512, 128)), made((2, 4, 512, 128)), made((3, 2, 512, 128)), made((3, 2, 512, 128)), [16, 24, 24]
    ),
    lambda: name("llama4_rope", "LigerLlama4RopeFunction").apply(
        made((2, 512, 8, 128)), made((2, 512, 4, 128)), torch.zeros(512, 64, device="cuda", dtype=torch.complex64)
    ),
    lambda: name("cross_entropy", "LigerCrossEntropyFunction").apply(
        made((R, C)), torch.randint(0, C, (R,), device="cuda"), None, -100, 0.0, 0.0, "mean", None, False
    ),
    lambda: name("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction").apply(
        made((R, 512)), made((C, 512)), torch.randint(0, C, (R,), device="cuda")
    ),
    lambda: name("kl_div", "LigerKLDivLossFunction").apply(made((R, C)), made((R, C))),
    lambda: name("jsd", "LigerJSDFunction").apply(made((R, C)), made((R, C))),
    lambda: name("tvd", "LigerTVDLossFunction").apply(made((R, C)), made((R, C))),
    lambda: name("multi_token_attention", "LigerMultiTokenAttentionFunction").apply(
        made((2, 8, 512, 512)), made((8, 8, 3, 3)), None, 1, 1, 1, 8
    ),
    lambda: name("fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction").apply(
        made((2, 8, 512, 64)), made((2, 8, 512, 64)), made((2, 8, 512, 64))
    ),
    lambda: name("grpo_loss", "GrpoLossFunction").apply(
        made((4, 257, C)),
        floats(4, 256),
        floats(4, 256),
        torch.randint(0, C, (4, 256), device="cuda"),
        floats(4),
        torch.ones(4, 256, device="cuda", dtype=torch.int32),
    ),
    lambda: name("experimental.embedding", "LigerEmbeddingFunction").apply(
        made((C, 512)), torch.randint(0, C, (R,), device="cuda")
    ),
    lambda: name("attn_res", "LigerAttnResFunction").apply(made((4, 2, 512, 1024)), made((1024,)), made((1024,)), 1e-6),
    lambda: name("modulated_rms_norm", "LigerModulatedRMSNormFunction").apply(
        made((2, 512, 1024)), made((1024,)), made((2, 1024)), made((2, 1024)), 1e-6
    ),
    lambda: name("swiglu", "LigerFusedGateUpSiLUMulFunction").apply(made((2, 512, 8192))),
    lambda: name("swiglu", "LigerSiLUMulFunction").apply(made((64, 65537)), made((64, 65537))),
    lambda: sum(
        name("fused_ce_tvd", "LigerFusedCETVDFunction").apply(
            made((R, C)), made((R, C)), torch.randint(0, C, (R,), device="cuda")
        )
    ),
    lambda: name("mhc", "mhc_split_sinkhorn_fwd")(
        floats(512, 24),
        floats(24),
        floats(1),
        floats(1),
        floats(1),
        tmax=20,
        pre_eps=1e-6,
        sinkhorn_eps=1e-6,
        post_mult=2.0,
    ),
]
for launch in CALLS:
    attempt(lambda launch=launch: both(launch()))
