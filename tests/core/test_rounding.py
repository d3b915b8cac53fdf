"""bf16 and fp8 on the grids of their definitions, and runs that really round to them."""

import numpy as np
import pytest

from iosim import Attention, Numeric, Tiling
from iosim.core.rounding import e4m3_bits, of_e4m3_bits, rounder, to_bf16, to_e4m3, to_fp16
from iosim.schedules import find

E4M3 = sorted({s * m * 2.0**e for s in (1, -1) for e in range(-6 - 3, 9 - 3) for m in range(16) if m * 2.0**e <= 448})


def test_bf16_is_the_nearest_of_8_bits_ties_to_even():
    for x, expected in ((1 + 2**-8, 1), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7), (-3.0, -3.0)):
        assert to_bf16(np.float32(x)) == expected
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * 1e3
    found = to_bf16(x)
    mantissa, _ = np.frexp(found)
    assert (
        (mantissa * 2**8 % 1 == 0).all() and (np.abs(found - x) <= np.abs(x) * 2**-8).all() and found.shape == x.shape
    )
    special = np.array([np.inf, -np.inf, np.nan, 0], np.float32)
    assert np.array_equal(to_bf16(special), special, equal_nan=True)


def test_fp16_is_what_numpy_makes_of_it():
    """At every number of fp16, halfway to the next one, and at the numbers of float32 beside those."""
    with np.errstate(all="ignore"):
        numbers = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
        halfway = numbers + np.spacing(numbers.astype(np.float16)).astype(np.float32) / 2
        x = np.concatenate([near for one in (numbers, halfway)
                            for near in (one, *(np.nextafter(one, np.float32(end)) for end in (-np.inf, np.inf)))])  # fmt: skip
        x = np.append(x, np.float32([1e9, -1e9, 65519.99, 65520, -65520, 1e-30, -1e-30, 0, -0.0])).reshape(3, -1)
        expected = x.astype(np.float16).astype(np.float32)
    found = to_fp16(x)
    assert found.dtype == np.float32 and np.array_equal(found, expected, equal_nan=True)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(x)].all()
    for shown in (np.s_[:, -9:], np.s_[:, ::2], np.s_[0]):  # few numbers, and arrays that are not contiguous
        assert np.array_equal(to_fp16(x[shown]), expected[shown], equal_nan=True)


def test_e4m3_is_the_nearest_on_its_grid():
    grid = np.array(E4M3)
    assert len(grid) == 2 * (7 + 8 * 15 - 1) + 1 and to_e4m3(grid).tolist() == grid.tolist()
    x = np.random.default_rng(0).normal(size=400).astype(np.float32) * np.float32(2) ** np.arange(-10, 10).repeat(20)
    found = to_e4m3(x)
    nearest = np.abs(grid[:, None] - x).min(axis=0)
    assert set(found.tolist()) <= set(grid.tolist()) and np.allclose(np.abs(found - x), nearest)
    assert (
        to_e4m3(np.float32(1e9)) == 448
        and to_e4m3(np.float32(-500)) == -448
        and to_e4m3(np.float32(-np.inf)) == -np.inf
    )
    assert to_e4m3(np.float32(17)) == 16 and to_e4m3(np.float32(19)) == 20, "ties go to even"


def test_words_of_8_bits_and_their_numbers():
    words = np.arange(256, dtype=np.uint8)
    numbers = of_e4m3_bits(words)
    assert np.isnan(numbers[[127, 255]]).all() and list(numbers[[1, 8, 56, 126]]) == [2.0**-9, 2.0**-6, 1.0, 448.0]
    assert (np.diff(numbers[:127]) > 0).all() and (numbers[128:255] == -numbers[:127]).all()
    right = np.isfinite(numbers)
    assert (e4m3_bits(numbers)[right] == words[right]).all() and (e4m3_bits(numbers)[~right] == 127).all()
    values = np.random.default_rng(2).normal(scale=100, size=5000).astype(np.float32)
    assert (of_e4m3_bits(e4m3_bits(values)) == to_e4m3(values)).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["flash1", "flash2", "standard"])
def test_a_run_in_a_type_holds_nothing_else(dtype, name):
    p, rng, step = Attention(20, 8, dtype=dtype), np.random.default_rng(1), rounder(dtype)
    inputs = {tensor: step(rng.normal(size=(20, 8)).astype(np.float32)) for tensor in "QKV"}
    machine = Numeric(p, inputs, double=False).run(find(name), Tiling(4, 6))
    for array in machine.hbm.values():
        assert array.dtype == np.float32 and np.array_equal(step(array), array)
    exact = Numeric(p, inputs, double=False)
    exact._rounded = lambda array, dtype: array
    assert np.abs(exact.run(find(name), Tiling(4, 6)).array("O") - machine.array("O")).max() > 1e-4
