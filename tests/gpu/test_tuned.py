"""Tuned kernels: what they compile to, what they refuse, and, on a GPU, their output and words."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from gpu_here import has_gpu
from nvrtc import compiled, usage

from iosim import Attention, Folded, Traffic
from iosim.core.problem import DENSE
from iosim.errors import InputError
from iosim.gpu.tuned import launch as tuned_module
from iosim.gpu.tuned.launch import COUNTERS, TUNED_FILES, source, tuned
from iosim.masks import parse_mask
from iosim.schedules import find

CAUSAL = parse_mask("causal")
PROBLEMS = [
    (name, d, dtype, CAUSAL if name == "block-sparse-q" else DENSE)
    for name in TUNED_FILES
    for d in (64, 128)
    for dtype in ("fp16", "bf16")
]


def kernel_of(name, d, dtype, mask, **more):
    return tuned(name, Attention(**{"N": 1024, "d": d, "dtype": dtype, "acc_dtype": "fp32", "mask": mask, **more}))


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name, d, dtype, mask", PROBLEMS)
@pytest.mark.parametrize("count", [False, True])
def test_every_kernel_compiles_without_large_spills(name, d, dtype, mask, count):
    kernel = kernel_of(name, d, dtype, mask, lse=name != "standard-tiled")
    _, log = compiled(source(kernel.file), "sm_90a", "-std=c++17", *kernel.options(count))
    found = usage(log)
    assert set(found) == ({"flash2"} if kernel.one_launch else {"scores", "softmax_rows", "output"})
    for registers, spilled_bytes in found.values():
        assert registers <= 168 and spilled_bytes <= 32
    assert "serialized" not in log, "matrix products must overlap"


@pytest.mark.parametrize("Nk", [8, 1000, 8192, 16384, 65536])
def test_a_row_of_scores_fits_the_registers_of_a_block(Nk):
    chunks, threads = kernel_of("standard-tiled", 64, "fp16", DENSE, Nk=Nk).row
    assert threads % 32 == 0 and 32 <= threads <= 1024
    assert (chunks - 1) * threads * 8 < Nk <= chunks * threads * 8


@pytest.mark.parametrize("Nk, panels", [(8, 1), (72, 1), (128, 2), (136, 2), (1000, 15)])
def test_boxes_of_scores_end_with_the_last_whole_panel(monkeypatch, Nk, panels):
    """Panels of 64 columns, 128 bytes apart; a box has those of a tile, for the 32 rows of a warp. (With 8 keys there is
    no whole panel, and the kernel uses none of the map's.)"""
    found = {}
    names = ("dims", "strides", "box")
    monkeypatch.setattr(tuned_module, "_encoded", lambda array, *parts: found.update(zip(names, parts, strict=True)))
    tuned_module.panel_map(SimpleNamespace(shape=(3, 700, Nk)), tuned_module.WARP_ROWS, tuned_module.ROWS_K)
    assert found == {"dims": (64, panels, 700, 3), "strides": (64, Nk, 700 * Nk), "box": (64, 2, 32, 1)}
    assert 64 * panels <= max(64, Nk) < 64 * (panels + 1) + 64


@pytest.mark.parametrize("change, word", [
    ({"name": "flash1"}, "--schedule"), ({"dtype": "fp32"}, "--dtype"), ({"d": 80}, "--d"), ({"mask": parse_mask("window:9")}, "--mask"),
    ({"mask": CAUSAL, "visit_all": True}, "--visit-all"), ({"name": "standard-tiled", "mask": CAUSAL}, "--mask"), ({"name": "standard-tiled", "Nk": 1001}, "--Nk"),
])  # fmt: skip
def test_what_has_no_tuned_kernel_is_refused(change, word):
    with pytest.raises(InputError, match=word):
        kernel_of(**{"name": "flash2", "d": 64, "dtype": "fp16", "mask": DENSE, **change})


@pytest.mark.parametrize("name", TUNED_FILES)
def test_there_is_a_counter_for_every_tensor_that_moves(name):
    kernel = kernel_of(name, 64, "fp16", CAUSAL if name == "block-sparse-q" else DENSE)
    traffic = Traffic()
    Folded(replace(kernel.problem, lse=True), traffic).run(find(name), kernel.tiling)
    moved = {
        (t, way) for t, words in traffic.tensors.items() for way, n in zip(("reads", "writes"), words, strict=True) if n
    }
    assert moved <= set(COUNTERS)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU and CuPy")
@pytest.mark.parametrize("name, d, dtype, mask", PROBLEMS)
def test_words_and_output_on_a_gpu(name, d, dtype, mask):
    import numpy as np

    from iosim.core.shapes import Tile
    from iosim.gpu.tuned.launch import run_tuned
    from iosim.oracles.attention import attention

    kernel = kernel_of(name, d, dtype, mask, N=300, Nk=496, heads=2)
    p, rng = kernel.problem, np.random.default_rng(d)
    inputs = {n: rng.normal(size=(2, rows, d)).astype(np.float32) for n, rows in (("Q", p.N), ("K", p.Nk), ("V", p.Nk))}
    outputs, words = run_tuned(kernel, inputs, count=True)
    visible = (
        None
        if mask is DENSE
        else mask.bind(p, kernel.tiling, True).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()
    )
    expected = attention(inputs["Q"][1], inputs["K"][1], inputs["V"][1], visible)
    assert np.abs(outputs["O"][1].get() - expected).max() < 0.05
    traffic = Traffic()
    Folded(p, traffic).run(find(name), kernel.tiling)
    assert words == {n: (2 * r, 2 * w) for n, (r, w) in traffic.tensors.items()}
