"""Launches of vLLM's attention kernels, with pages of 16 tokens in a random order."""

import torch
from calls import attempt, stubs


class Platform:
    """What the package asks about the machine."""

    is_rocm = is_xpu = is_cpu = staticmethod(lambda: False)
    is_cuda = is_cuda_alike = has_device_capability = is_device_capability = staticmethod(lambda *_: True)
    fp8_dtype = staticmethod(lambda: torch.float8_e4m3fn)
    get_device_capability = staticmethod(lambda *_: (9, 0))


stubs(
    "vllm.logger",
    "vllm._custom_ops",
    "vllm.platforms.rocm",
    "vllm._aiter_ops",
    "vllm._ipex_ops",
    "vllm.distributed",
    "vllm.distributed.parallel_state",
    "vllm.utils",
    "vllm.utils.torch_utils",
    "vllm.envs",
    "vllm.model_executor",
    "vllm.model_executor.layers",
    "vllm.model_executor.layers.batch_invariant",
    "vllm.model_executor.layers.quantization",
    "vllm.model_executor.layers.quantization.utils",
    "vllm.model_executor.layers.quantization.utils.quant_utils",
    **{"vllm.platforms": {"current_platform": Platform()}},
    **{"vllm.utils.math_utils": {"cdiv": lambda a, b: -(-a // b)}},
    **{"vllm.model_executor.layers.batch_invariant": {"vllm_is_batch_invariant": lambda: False}},
    **{"vllm.triton_utils": {"triton": __import__("triton"), "tl": __import__("triton").language, "HAS_TRITON": True}},
)
from vllm.v1.attention.ops import (  # noqa: E402
    chunked_prefill_paged_decode,
    common,
    prefix_prefill,
    triton_decode_attention,
    triton_merge_attn_states,
    triton_prefill_attention,
    triton_reshape_and_cache_flash,
    triton_unified_attention,
)

S, HQ, HK, D, PAGE, PAGES, LONGEST = 4, 16, 4, 128, 16, 512, 1024
KIND = torch.bfloat16


def floats(*shape, dtype=KIND):
    return torch.zeros(*shape, device="cuda", dtype=dtype)


table = torch.randperm(PAGES, device="cuda", dtype=torch.int32)[: S * LONGEST // PAGE].view(S, -1)
seen = torch.tensor([1024, 777, 512, 100], device="cuda", dtype=torch.int32)
cache = (PAGES, PAGE, HK, D)


def unified(each):
    """Every sequence asks with `each` tokens."""
    starts = torch.arange(S + 1, device="cuda", dtype=torch.int32) * each
    q = floats(S * each, HQ, D)
    segments = (S * each, HQ, 16)
    triton_unified_attention.unified_attention(
        q=q,
        k=floats(*cache),
        v=floats(*cache),
        out=torch.empty_like(q),
        cu_seqlens_q=starts,
        max_seqlen_q=each,
        seqused_k=seen,
        max_seqlen_k=LONGEST,
        softmax_scale=D**-0.5,
        causal=True,
        window_size=(-1, -1),
        block_table=table,
        softcap=0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        seq_threshold_3D=128,
        num_par_softmax_segments=16,
        softmax_segm_output=floats(*segments, 128, dtype=torch.float32),
        softmax_segm_max=floats(*segments, dtype=torch.float32),
        softmax_segm_expsum=floats(*segments, dtype=torch.float32),
    )


attempt(lambda: unified(64))
attempt(lambda: unified(1))
starts = torch.arange(S + 1, device="cuda", dtype=torch.int32)
one = torch.ones((), device="cuda")
old = (PAGES, HK, D // 8, PAGE, 8), (PAGES, HK, D, PAGE)
attempt(
    lambda: chunked_prefill_paged_decode.chunked_prefill_paged_decode(
        query=floats(S, HQ, D),
        key=floats(S, HK, D),
        value=floats(S, HK, D),
        output=floats(S, HQ, D),
        kv_cache_dtype="auto",
        key_cache=floats(*old[0]),
        value_cache=floats(*old[1]),
        block_table=table,
        query_start_loc=starts,
        seq_lens=seen,
        max_seq_len=LONGEST,
        max_query_len=1,
        k_scale=one,
        v_scale=one,
        sm_scale=D**-0.5,
    )
)
starts64 = torch.arange(S + 1, device="cuda", dtype=torch.int32) * 64
for more in ({}, {"alibi_slopes": floats(HQ, dtype=torch.float32)}):
    attempt(
        lambda more=more: prefix_prefill.context_attention_fwd(
            floats(S * 64, HQ, D),
            floats(S * 64, HK, D),
            floats(S * 64, HK, D),
            floats(S * 64, HQ, D),
            "auto",
            floats(*old[0]),
            floats(*old[1]),
            table,
            starts64,
            seen,
            LONGEST,
            64,
            one,
            one,
            **more,
        )
    )
attempt(
    lambda: triton_prefill_attention.context_attention_fwd(
        floats(S * 64, HQ, D),
        floats(S * 64, HK, D),
        floats(S * 64, HK, D),
        floats(S * 64, HQ, D),
        starts64[:-1],
        torch.full((S,), 64, device="cuda", dtype=torch.int32),
        64,
    )
)
for heads in (HK, HQ):
    attempt(
        lambda heads=heads: triton_decode_attention.decode_attention_fwd(
            floats(S, HQ, D),
            floats(PAGES, PAGE, heads, D),
            floats(PAGES, PAGE, heads, D),
            floats(S, HQ, D),
            floats(S, HQ, dtype=torch.float32),
            table,
            seen,
            floats(S, HQ, 8, D + 1, dtype=torch.float32),
            8,
            D**-0.5,
            PAGE,
        )
    )
attempt(
    lambda: triton_merge_attn_states.merge_attn_states(
        floats(256, HQ, D),
        floats(256, HQ, D),
        floats(HQ, 256, dtype=torch.float32),
        floats(256, HQ, D),
        floats(HQ, 256, dtype=torch.float32),
    )
)
slots = torch.randperm(PAGES * PAGE, device="cuda")[:256]
attempt(
    lambda: triton_reshape_and_cache_flash.triton_reshape_and_cache_flash(
        floats(256, HK, D), floats(256, HK, D), floats(*cache), floats(*cache), slots, "auto", one, one
    )
)
attempt(
    lambda: triton_reshape_and_cache_flash.triton_reshape_and_cache_flash_diffkv(
        floats(256, HK, D), floats(256, HK, D), floats(PAGES, PAGE, HK, 2 * D), slots, "auto", one, one
    )
)
attempt(lambda: common.correct_attn_out(floats(256, HQ, D), floats(4, 256, HQ, dtype=torch.float32), 1, None))
lengths = torch.tensor([10, 20, 30], device="cuda", dtype=torch.int32)
attempt(lambda: common.pack_seq_triton(floats(60, HQ, D), lengths))
attempt(lambda: common.unpack_seq_triton(floats(3, 30, HQ, D), lengths))
