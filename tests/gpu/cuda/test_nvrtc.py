"""Generated kernels compile for three architectures without a GPU: registers, spills, shared memory from the log."""

import re

import nvrtc
import pytest

from iosim import SCHEDULES, Attention, Tiling
from iosim.core.tiling import parse_tiles
from iosim.gpu.cuda.machine import generate
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.schedules import CORE
from validation.examples import cases

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
FP16, FP32, BF16 = ({"dtype": "fp16", "acc_dtype": "fp32"}, {"dtype": "fp32"}, {"dtype": "bf16", "acc_dtype": "fp32"})


def program(name, tiles, count=False, mask="dense", N=1024, **sizes):
    tiling = Tiling(1, 1) if name == "standard" else parse_tiles(tiles)
    return generate(SCHEDULES[name], Attention(N, mask=parse_mask(mask), **sizes), tiling, count)


PROGRAMS = {
    **{f"{name} fp16": program(name, "64x64", d=64, heads=6, kv_heads=2, mask="causal" if "block" in name else "dense", **FP16)
       for name in CORE},
    "flash2 d=128": program("flash2", "128x64", d=128, **FP16),
    "flash1 bf16 ragged, counted": program("flash1", "48x80", N=1000, Nk=777, d=80, count=True, mask="window:9", **BF16),
    "flash2 fp32": program("flash2", "64x64", d=64, **FP32),
    "standard-tiled fp32 odd": program("standard-tiled", "50x30", N=333, d=31, count=True, **FP32),
    "standard-tiled, rows of 3000": program("standard-tiled", "64x64", N=3000, d=64, **FP16),  # 32 words a thread
    "flash2-bwd with dropout": program("flash2-bwd", "64x64", d=64, dropout=Dropout(0.1, 3), mask="causal", **FP16),
    "split-kv": program("split-kv", "64x64", d=64, splits=3, count=True, **FP16),
    "paged": program("paged", "16x64", d=128, page_size=64, **BF16),
    "memory-efficient causal, ragged": program("memory-efficient", "64x64", N=1000, d=64, mask="causal", **FP16),
    "state-fused": program("state-fused", "64x1", d=64, **FP16),
    "state-fused gdn": program("state-fused", "32x1", d=64, rule="gdn", count=True, **BF16),
    "state-fused kda, ragged": program("state-fused", "20x1", N=333, d=40, rule="kda", initial_state=True,
                                       final_state=True, **FP32),
    "MLA, FP8 rows in pages": program("paged-split-kv", "16x16", N=32, Nk=500, d=576, dv=512, latent=True, count=True,
                                      kv_dtype="fp8", kv_scales="128", **BF16),
    "flash2 with scales, ragged": program("flash2", "20x12", d=24, kv_dtype="fp8", kv_scales="8", **FP32),
    "selected": program("selected", "16x16", N=32, d=64, top_k=8, key_block=32, choice_rows=16, count=True, **FP16),
    "selected-keys-outside": program("selected-keys-outside", "1x1", N=32, d=64, top_k=8, key_block=32, choice_rows=16, **FP16),
    "rows of FlashMLA": program("cache-write", "1x1", N=4, Nk=64, d=576, dv=512, latent=True, kv_dtype="fp8",
                                kv_scales="128", **BF16),
    "indexer": program("indexer", "64x64", N=64, Nk=512, d=128, top_k=64, choice_rows=64, kv_dtype="fp8", kv_scales="128",
                       count=True, **BF16),
    "documents": program("block-sparse-q", "64x64", d=64, mask="documents:300,24,700&(chunk:256|sink:4)", **FP16),
    "block-sparse-q fp16 acc": program("block-sparse-q", "64x64", d=64, dtype="fp16", mask="causal&window:100"),
}  # fmt: skip


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_it_compiles_without_warnings_and_spills(name, arch):
    cubin, log = nvrtc.compiled(PROGRAMS[name].source, arch, *PROGRAMS[name].defines)
    found = nvrtc.usage(log)
    assert cubin[:4] == b"\x7fELF" and "warning" not in log, log
    assert set(found) == {kernel.name for kernel in PROGRAMS[name].kernels}
    for kernel in PROGRAMS[name].kernels:
        registers, spilled = found[kernel.name]
        most = 256 if "ragged" in name else 0  # what is ragged is there twice, for whole tiles and for the last
        assert spilled <= most and 16 <= registers <= 65_536 // kernel.block[0], (kernel.name, found)
    static = [int(n) for n in re.findall(r"(\d+) bytes smem", log)]
    assert max(static, default=0) <= 256, "static shared memory is only for sums over long rows"


def test_tensor_cores_are_really_in_the_code():
    """An instruction that only the 16-bit kernels have: their source asks for it, the others' code is free of it."""
    assert all(k.tensor_cores for k in PROGRAMS["flash2 fp16"].kernels)
    assert not any(k.tensor_cores for k in PROGRAMS["flash2 fp32"].kernels)


@pytest.mark.needs("nvrtc")
def test_a_fault_in_the_source_is_reported():
    with pytest.raises(AssertionError, match="undefined"):
        nvrtc.compiled("__global__ void f() { nothing(); }", "sm_90")


def test_the_self_test_has_its_shapes(tmp_path):
    found = cases(tmp_path)
    assert 60 <= len(found) <= 200 and {case.schedule for case in found} == {*SCHEDULES}
    assert {case.sizes["dtype"] for case in found} == {"fp32", "fp16", "bf16"}
    assert {min(c.sizes["N"] for c in found), max(c.sizes["N"] for c in found)} == {1, 16384}
    assert {min(c.sizes["d"] for c in found), max(c.sizes["d"] for c in found)} == {16, 576}
    assert max(c.sizes.get("heads", 1) for c in found) == 264
