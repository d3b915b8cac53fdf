"""Claims: what a text means, and what an impossible one would have to mean."""

from dataclasses import replace

import pytest

from iosim.errors import InputError
from iosim.hardware import load
from iosim.timing.claim import judged, parse_claim

H100 = load("h100")  # 3.35 TB/s, 989.4 TFLOP/s of fp16, 3.865e12 exponentials a second, an L2 of 50 MiB
MIB = 2**20


@pytest.mark.parametrize(
    "text, value, of",
    [
        ("215us", 215e-6, ""),
        ("1,146 µs", 1146e-6, ""),
        ("0.2 ms", 2e-4, ""),
        ("1.5s", 1.5, ""),
        ("40ns", 4e-8, ""),
        ("3.5 TB/s", 3.5e12, "memory"),
        ("900GB/s", 9e11, "memory"),
        ("700 TFLOP/s", 7e14, "matrix"),
        ("1.2PFLOPS", 1.2e15, "matrix"),
    ],
)
def test_what_a_text_claims(text, value, of):
    claim = parse_claim(text)
    assert (claim.value, claim.of, claim.text) == (pytest.approx(value), of, text)


@pytest.mark.parametrize("text", ["", "fast", "215", "0us", "-1us", "3.5TB", "1.2.3s", "7 TiB/s", 215])
def test_what_is_no_claim(text):
    with pytest.raises(InputError, match="a time as 215us"):
        parse_claim(text)


def meanings(text, memory=0, matrix=0, exp=0, chip=H100, dtype="fp16", **others):
    """What a claim would have to mean, by the first word of each."""
    found = judged(parse_claim(text), {"memory": memory, "matrix": matrix, "exp": exp}, chip, dtype, others)
    assert found.possible == (found.seconds >= found.least) and (not found.possible or found.meanings == ())
    return {one.split(",")[0].split(":")[0]: one for one in found.meanings}


def test_a_warm_l2_holds_no_more_than_its_size():
    """100 MiB take 31.3 us from HBM; 50 MiB of them take 15.65, and the L2 takes 6.8."""
    assert "a warm L2" in meanings("16us", memory=100 * MIB) and "a warm L2" not in meanings("15us", memory=100 * MIB)
    assert "a warm L2" in meanings("4us", memory=50 * MIB) and "a warm L2" not in meanings("3us", memory=50 * MIB)
    assert "a warm L2" not in meanings("16us", memory=100 * MIB, matrix=10**11), "products take 101 us"
    assert "a warm L2" not in meanings("16us", memory=100 * MIB, chip=replace(H100, l2_bytes=0))


def test_another_type_needs_its_peak():
    """10^11 FLOPs take 101 us in fp16 and 50.5 in fp8; no peak of int8 is stated."""
    work = {"memory": 1, "matrix": 10**11, "exp": 1}
    found = meanings("60us", **work, fp8=work, int8=work)
    assert found["another type"] == "another type, fp8 (at least 50.53 us)"
    assert "another type" not in meanings("50us", **work, fp8=work)


def test_another_gpu_states_all_rates():
    """Of presets only B200 and GB200 compute so fast; T4, which states no peak of bf16, is not among them."""
    assert meanings("60us", matrix=10**11, dtype="bf16") == {
        "work that was left out": "work that was left out: the time is enough for 59.4 % of the FLOPs",
        "another GPU": "another GPU, as B200 and GB200",
    }


def test_exponentials_may_be_polynomials():
    name = "exponentials that multiply-adds compute"
    assert name in meanings("100us", exp=10**9) and name not in meanings("100us", exp=10**9, matrix=10**12)


def test_a_rate_may_count_more_than_is_needed():
    found = meanings("3TB/s", memory=100 * MIB, matrix=10**11)
    assert next(iter(found.values())) == "2.89 times the bytes that are needed, or more, were counted"
    assert meanings("900TFLOP/s", memory=100 * MIB, matrix=10**11) == {}


@pytest.mark.parametrize("text, more", [("10TB/s", ", and 10TB/s is more than its 3.35 TB/s."), ("3TB/s", " on H100.")])
def test_a_rate_that_no_such_gpu_has_is_said_to_be_one(text, more):
    """Also where another resource binds: 1e12 FLOPs take 1,011 us."""
    (line, *_) = judged(parse_claim(text), {"memory": MIB, "matrix": 10**12, "exp": 0}, H100, "fp16", {}).lines()
    assert line.startswith("Impossible: ") and line.endswith(more)
