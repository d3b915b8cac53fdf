"""The schedules and tiles of the kernels that PyTorch launches for attention, by its own rules for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.tiling import Tiling
from ...counting.published import FA2_TILES

if TYPE_CHECKING:
    from ...core.problem import Attention
    from ...hardware import Hardware

FLASH = "aten._scaled_dot_product_flash_attention"
EFFICIENT = "aten._scaled_dot_product_efficient_attention"
FLASH_BACKWARD, EFFICIENT_BACKWARD = f"{FLASH}_backward", f"{EFFICIENT}_backward"
KIB = 1024
SPLIT_ROWS, SPLIT_SHARE = 64, 0.8  # of the kernel that splits keys, and of the places of a GPU below which it is taken


def own_tiles(name: str, problem: Attention, capability: int, gpu: Hardware) -> tuple[str, Tiling | None]:
    """(schedule, tiles) of an operator's kernel on a GPU, without dropout. The tiles are None where they are not known.

    Sources: csrc/flash_attn/src/flash_{fwd,bwd}_launch_template.h of Dao-AILab/flash-attention, which PyTorch builds;
    mem_eff_attention/kernels/generate_kernels.py of PyTorch. Profiles of both forward kernels agree
    (docs/hardware/other-peoples-kernels.md).
    """
    d = max(problem.d, problem.dv)
    if name == FLASH:
        return "flash2", flash_tiles(d, problem.mask.is_causal, capability, gpu)
    if name == FLASH_BACKWARD:
        return "flash2-bwd", flash_backward_tiles(d, gpu.shared_memory_per_block_bytes)
    if name == EFFICIENT and d <= 128:
        return "memory-efficient", Tiling(64, 64) if d <= 64 else Tiling(64 if capability >= 80 else 32, 128)
    return ("flash2" if name == EFFICIENT else "flash2-bwd"), None


def flash_tiles(d: int, causal: bool, capability: int, gpu: Hardware) -> Tiling:
    """The tiles of FlashAttention-2: other ones on GPUs of capability 8.6 and 8.9, and for wide heads on an A100."""
    width = next(most for most in FA2_TILES if d <= most)
    if 80 < capability < 90 and causal and width in (96, 128):
        return Tiling(64, 64)
    if 80 < capability < 90 and width == 128:
        return Tiling(128, 32)
    block, sm = gpu.shared_memory_per_block_bytes, gpu.shared_memory_per_sm_bytes
    if width == 256 and block >= 128 * KIB and sm < 192 * KIB:
        return Tiling(128, 64)
    return Tiling(*FA2_TILES[width])


def flash_backward_tiles(d: int, block_bytes: int) -> Tiling:
    """The tiles of FlashAttention-2's backward pass, which depend on the shared memory of a thread block."""
    large = block_bytes >= 144 * KIB
    if d <= 64:
        return Tiling(128 if d <= 32 or large else 64, 128)
    if d <= 128:
        return Tiling(64, 128 if d <= 96 or large else 64)
    return Tiling(64, 64 if d <= 192 or large else 32)


def may_split(problem: Attention, gpu: Hardware) -> bool:
    """Whether FlashAttention-2 has too few tiles of queries for a GPU, and so splits the keys if there are many.

    Source: num_splits_heuristic in csrc/flash_attn/flash_api.cpp of Dao-AILab/flash-attention.
    """
    keys = 256 if problem.d <= 64 else 128 if problem.d <= 128 else 64
    tiles = problem.batch * problem.heads * -(-problem.N // SPLIT_ROWS)
    return problem.Nk > keys and tiles < SPLIT_SHARE * 2 * gpu.sms
