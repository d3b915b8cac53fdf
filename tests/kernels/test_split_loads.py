"""Loads that Triton splits into single words are told, with the sizes that are the reason."""

import pytest

from iosim.kernels.notes import split_loads
from iosim.kernels.read.compile import load_widths, side_by_side

PTX = """
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    @%p2 ld.global.b16 { %rs1 }, [ %rd2 + 0 ];
    ld.global.L1::evict_last.v2.b64 { %rd5, %rd6 }, [ %rd2 + 0 ];
    ld.global.nc.u8 %rs4, [ %rd2 ];
    st.global.b16 [ %rd3 ], %rs1;
    ld.shared.b16 %rs2, [ %r9 ];
    @%p9 cp.async.cg.shared.global [ %r5 + 0 ], [ %rd4 + 0 ], 0x10, %r6;
    cp.async.ca.shared.global [ %r5 + 8 ], [ %rd4 + 8 ], 4;
"""


def test_the_widths_of_loads_are_read_from_ptx():
    assert load_widths(PTX) == {16: 3, 2: 1, 1: 1, 4: 1}


TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#blocked1 = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#blocked2 = #ttg.blocked<{sizePerThread = [8, 1], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
  %x = tt.load %a, %m, %o : tensor<1024x!tt.ptr<f32>, #blocked>
  %y = ttg.async_copy_global_to_local %b, %v mask %n : tensor<64x32x!tt.ptr<f16>, #blocked1> -> <64x32xf16, #s>
  %z = tt.load %c : tensor<64x32x!tt.ptr<i64>, #blocked2>
  tt.store %d, %z : tensor<64x32x!tt.ptr<i8>, #blocked1>
"""


def test_the_words_that_a_thread_has_side_by_side_are_read_from_ttgir():
    assert side_by_side(TTGIR) == {4: (16, 16), 2: (16, 16), 8: (8, 8)}
    more = TTGIR + "  %s = tt.load %e : !tt.ptr<f32>\n  %t = tt.load %f : tensor<64x1x!tt.ptr<f16>, #blocked1>\n"
    assert side_by_side(more) == {4: (4, 16), 2: (2, 16), 8: (8, 8)}, "a scalar, and rows of one word"


@pytest.mark.parametrize("widths, wide, scalars, told", [
    ({2: 96}, {2: (16, 16)}, {"M": 1000, "N": 3000, "stride": 1, "K": 64}, True),
    ({2: 96}, {2: (2, 16)}, {"M": 4096, "stride": 1}, False), ({2: 7}, {2: (2, 2)}, {"M": 1000}, False),
    ({2: 9, 16: 10}, {2: (2, 16)}, {"M": 1000}, False), ({4: 96}, {4: (4, 4)}, {"M": 1000}, False),
    ({4: 96}, {4: (16, 16)}, {"M": 1000, "N": 3000}, True), ({}, {}, {"M": 1000}, False),
])  # fmt: skip
def test_a_note_says_which_sizes_are_the_reason(widths, wide, scalars, told):
    notes = split_loads(widths, wide, scalars)
    assert len(notes) == told
    if told:
        assert notes[0].startswith("96 of 96 load instructions are of single words")
        assert notes[0].endswith("multiples of 16; found M = 1000, N = 3000")
        assert f"and the L1 is asked for a sector up to {16 // min(widths)} times" in notes[0]


def test_some_single_words_are_told_where_every_load_has_more_side_by_side():
    """`torch.cat` as Inductor writes it: no size is the reason, and an H100 asked for 3.33 times the sectors."""
    (note,) = split_loads({2: 8, 4: 8, 16: 2}, {2: (16, 16)}, {"xnumel": 3145728})
    assert note.startswith("8 of 18 load instructions are of single words") and "An index or a mask hides" in note
    assert split_loads({2: 8, 4: 8, 16: 2}, {2: (2, 16)}, {"xnumel": 3145728}) == [], "a load may have one word"
    assert split_loads({4: 8, 16: 2}, {2: (16, 16), 4: (16, 16)}, {}) == [], "two words of two bytes"


SUM = """
import triton, triton.language as tl
@triton.jit
def total(X, Y, n, BLOCK: tl.constexpr):
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        at = k + tl.arange(0, BLOCK)
        sums += tl.load(X + at, mask=at < n, other=0.0)
    tl.store(Y, tl.sum(sums))
"""


@pytest.mark.parametrize("n, told", [(9000, True), (9008, False)])
def test_a_sum_of_words_of_four_bytes(n, told, tmp_path):
    """The mask of a size that is no multiple of 16 splits loads of 16 bytes into four."""
    pytest.importorskip("triton")
    from iosim import explain, tensor
    from iosim.kernels.read.kernel_file import kernel_of

    (tmp_path / "sums.py").write_text(SUM)
    X, Y = tensor("fp32", (n,)), tensor("fp32", (1,))
    found = explain(kernel_of(str(tmp_path / "sums.py"), "total"), (1,), X=X, Y=Y, n=n, BLOCK=1024)
    assert len(found.warnings) == told and all("a sector up to 4 times" in note for note in found.warnings)


def test_the_compiler_splits_loads_of_a_ragged_matrix_product():
    """Triton's own PTX: rows of 48 words begin at multiples of 16 words, rows of 50 words do not."""
    pytest.importorskip("triton")
    import triton_kernels

    from iosim import explain, tensor

    def widths(size):
        a, b, c = tensor("fp16", (64, size)), tensor("fp16", (size, size)), tensor("fp16", (64, size))
        sizes = {"M": 64, "N": size, "K": size, "BM": 64, "BN": 64, "BK": 32, "GROUP": 1}
        found = explain(triton_kernels.matmul, (1,), A=a, B=b, C=c, **sizes)
        return found.resources.load_widths, found.warnings

    whole, ragged = widths(48), widths(50)
    assert min(whole[0]) >= 4 and whole[1] == []
    assert set(ragged[0]) == {2} and ragged[1][-1].endswith("found N = 50, K = 50")


GATED = """
import triton, triton.language as tl
@triton.jit
def gated(X, G, Y, D: tl.constexpr, B: tl.constexpr):
    at = (tl.program_id(0) * B + tl.arange(0, B))[:, None] * D + tl.arange(0, D)[None]
    x = tl.load(X + at)
    tl.store(Y + at, (x * tl.exp(tl.load(G + at))).to(x.dtype))
"""


@pytest.mark.parametrize("dtype, told", [("bf16", True), ("fp32", False)])
def test_wide_words_beside_narrow_ones_are_loaded_in_halves(dtype, told, tmp_path):
    """A layout has 8 words of a thread side by side for the sake of the 16-bit tensor: 32 bytes of the gates. With a
    layout of their own they are 16 bytes. On an H100 loads of k, v and such gates asked for 1.50 times their sectors,
    which is (2 + 2 + 2 * 4) / (2 + 2 + 4) bytes."""
    pytest.importorskip("triton")
    from iosim import explain, tensor
    from iosim.kernels.read.kernel_file import kernel_of

    (tmp_path / "gated.py").write_text(GATED)
    X, G = tensor(dtype, (512, 64)), tensor("fp32", (512, 64))
    found = explain(kernel_of(str(tmp_path / "gated.py"), "gated"), (8,), X=X, G=G, Y=X, D=64, B=64)
    assert set(found.resources.load_widths) == {16}
    assert [note.startswith("loads of words of 4 bytes have more than 16") for note in found.warnings] == [True] * told


SLICED = """
import triton, triton.language as tl
@triton.jit
def decayed(Q, K, G, A, H: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    rows, dims = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    a = tl.dot(tl.load(Q + rows[:, None] * D + dims[None]), tl.load(K + rows[None] * D + dims[:, None]))
    g = tl.load(G + rows * H)
    tl.store(A + rows[:, None] * B + tl.arange(0, B)[None], a * tl.exp(g[:, None] - g[None]))
"""


def test_a_vector_for_the_columns_of_a_product_is_loaded_by_every_warp(tmp_path):
    """Triton loads few words again in the layout of the product, once by rows and once by columns. Gates of 16 heads lie
    64 bytes apart, so that each word is a sector, and each warp asks for those of its rows and of its columns."""
    pytest.importorskip("triton")
    import re

    from iosim import tensor
    from iosim.kernels.read.compile import Compilation
    from iosim.kernels.read.kernel_file import kernel_of

    (tmp_path / "decayed.py").write_text(SLICED)
    tensors = {"Q": ("fp16", (512, 64)), "K": ("fp16", (512, 64)), "G": ("fp32", (512, 16)), "A": ("fp32", (512, 64))}
    given = {name: tensor(*of) for name, of in tensors.items()} | {"H": 16, "D": 64, "B": 64}
    made = Compilation(kernel_of(str(tmp_path / "decayed.py"), "decayed"), given, "sm_90", 8, 3)
    loads = re.findall(r"tt\.load .*tensor<64x!tt\.ptr<f32>, (.*?)>> loc", made.texts["ttgir"])
    assert [re.sub(r"parent = #mma\d?", "product", found) for found in loads] == [
        "#ttg.slice<{dim = 1, product}", "#ttg.slice<{dim = 0, product}"]  # fmt: skip
    assert "warpsPerCTA = [8, 1]" in made.texts["ttgir"] or "warpsPerCTA = [4, 2]" in made.texts["ttgir"]
