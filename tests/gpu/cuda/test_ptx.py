"""Plain C++ of ptx.cuh, which the emulation of the other tests replaces, with denormal floats flushed as in CuPy's kernels."""

import ctypes
import platform
import subprocess

import numpy as np
import on_cpu
import pytest
from paths import ROOT

from iosim.core.rounding import e4m3_bits, of_e4m3_bits

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


ENCODE = """
#include <cmath>
#include <cstring>
#include <xmmintrin.h>
struct fp8 { unsigned char bits; };
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
%s
extern "C" void convert(const float* floats, unsigned char* words, int count) {
    _mm_setcsr(_mm_getcsr() | 0x8040);
    for (int k = 0; k < count; ++k) {
        fp8 word;
        from_float(floats[k], word);
        words[k] = word.bits;
    }
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
    text = (ROOT / "iosim/gpu/cuda/ptx.cuh").read_text()
    (tmp_path / "convert.cpp").write_text(FLUSHED % body(text, "DEVICE float to_float(fp8 x)"))
    made = subprocess.run(["g++", "-O1", "-shared", "-fPIC", tmp_path / "convert.cpp", "-o", tmp_path / "convert.so"])
    assert made.returncode == 0
    words, floats = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    convert = ctypes.CDLL(str(tmp_path / "convert.so")).convert
    convert(words.ctypes.data_as(ctypes.c_void_p), floats.ctypes.data_as(ctypes.c_void_p))
    np.testing.assert_array_equal(floats, of_e4m3_bits(words).astype(np.float32))


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="as above")
def test_floats_are_rounded_to_the_nearest_word_of_8_bits(tmp_path):
    """Every word, the middle between two and the floats beside it, what is too large or too small, and random floats."""
    text = (ROOT / "iosim/gpu/cuda/tiles.cuh").read_text()
    (tmp_path / "encode.cpp").write_text(ENCODE % body(text, "DEVICE void from_float(float x, fp8& result)"))
    made = subprocess.run(["g++", "-O1", "-shared", "-fPIC", tmp_path / "encode.cpp", "-o", tmp_path / "encode.so"])
    assert made.returncode == 0
    words = of_e4m3_bits(np.arange(127, dtype=np.uint8)).astype(np.float32)
    middles = (words[1:] + words[:-1]) / 2
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=50_000).astype(np.float32) * np.exp2(rng.uniform(-12, 11, 50_000)).astype(np.float32)
    near = [np.nextafter(middles, np.float32(end)) for end in (0, 500)]
    floats = np.concatenate([words, middles, *near, drawn, [460, 464, 1e9, 1e-9, np.nan]]).astype(np.float32)
    floats = np.concatenate([floats, -floats])
    found = np.zeros(len(floats), np.uint8)
    convert = ctypes.CDLL(str(tmp_path / "encode.so")).convert
    convert(floats.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p), len(floats))
    expected = e4m3_bits(floats)
    number = ~np.isnan(floats)
    np.testing.assert_array_equal(found[number], expected[number])
    assert (found[~number] % 128 == 127).all() and (expected[~number] % 128 == 127).all()
