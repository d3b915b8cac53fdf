"""Plain C++ of ptx.cuh, which the emulation of the other tests replaces, with denormal floats flushed as in CuPy's kernels."""

import ctypes
import platform
import subprocess

import numpy as np
import on_cpu
import pytest
from paths import ROOT

from iosim.core.rounding import of_e4m3_bits

FLUSHED = """
#include <cstring>
#include <xmmintrin.h>
struct fp8 { unsigned char bits; };
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
%s
extern "C" void convert(const unsigned char* words, float* floats) {
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush results, and take denormal operands as zero
    for (int k = 0; k < 256; ++k) floats[k] = to_float(fp8{words[k]});
    _mm_setcsr(_mm_getcsr() & ~0x8040);
}
"""


def body(text, beginning):
    """A function of ptx.cuh, up to the brace that ends it."""
    begin = text.index(beginning)
    return text[begin : text.index("\n}\n", begin) + 3].replace("DEVICE", "static")


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the flag that flushes denormals is set by an x86 instruction"
)
def test_words_of_8_bits_are_exact_where_denormals_are_flushed(tmp_path):
    text = (ROOT / "iosim/cuda/ptx.cuh").read_text()
    (tmp_path / "convert.cpp").write_text(FLUSHED % body(text, "DEVICE float to_float(fp8 x)"))
    made = subprocess.run(["g++", "-O1", "-shared", "-fPIC", tmp_path / "convert.cpp", "-o", tmp_path / "convert.so"])
    assert made.returncode == 0
    words, floats = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    convert = ctypes.CDLL(str(tmp_path / "convert.so")).convert
    convert(words.ctypes.data_as(ctypes.c_void_p), floats.ctypes.data_as(ctypes.c_void_p))
    np.testing.assert_array_equal(floats, of_e4m3_bits(words).astype(np.float32))
