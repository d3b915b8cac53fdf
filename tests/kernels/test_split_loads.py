"""Loads that Triton splits into single words are told, with the sizes that are the reason."""

import pytest

from iosim.kernels.notes import split_loads
from iosim.kernels.read.compile import load_widths

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


@pytest.mark.parametrize(
    "widths, scalars, told",
    [
        ({2: 96}, {"M": 1000, "N": 3000, "stride": 1, "K": 64}, True),
        ({2: 96}, {"M": 4096, "stride": 1}, False),
        ({2: 9, 16: 10}, {"M": 1000}, False),
        ({2: 7}, {"M": 1000}, False),
        ({4: 96}, {"M": 1000}, False),
        ({}, {"M": 1000}, False),
    ],
)
def test_a_note_says_which_sizes_are_the_reason(widths, scalars, told):
    notes = split_loads(widths, scalars)
    assert len(notes) == told
    if told:
        assert notes[0].startswith("96 of 96 load instructions are of single words")
        assert "multiples of 16; found M = 1000, N = 3000. A" in notes[0]


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
    assert set(ragged[0]) == {2} and "found N = 50, K = 50. A" in ragged[1][-1]
