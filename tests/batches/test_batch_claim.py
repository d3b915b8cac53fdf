"""`batch --claim`: what a step needs at least, by hand and beside the least work of one problem, and what is said of it."""

import json
import re

import pytest

import iosim
from iosim.batches.claim import work_of_attention
from iosim.counting.layers import heads_of, read_layers
from iosim.counting.needed import needed_by_problem
from iosim.errors import InputError
from iosim.masks import parse_mask

SERVED = {"d": 128, "heads": 32, "kv_heads": 4, "ways": "pack"}  # K and V of a token are 2,048 bytes
OPTIONS = {"d": 16, "dv": 8, "heads": 4, "kv_heads": 2, "acc_dtype": "fp32"}
GDN = "gdn d=128 heads=32 key-heads=16 * 36"
LINE = ("batch", "--d", 128, "--heads", 32, "--kv-heads", 4, "--hardware", "h100", "--way", "pack")


@pytest.mark.parametrize("new, tokens", [(1, 1), (1, 40), (7, 40), (40, 40)])
@pytest.mark.parametrize("mask", ["dense", "causal", "causal&window:5", "window:0", "window:3", "strided:3"])
@pytest.mark.parametrize(
    "more", [{}, {"kv_dtype": "fp8"}, {"kv_dtype": "int4"}, {"dtype": "fp32"}, {"latent": True}, {"kv_scales": 4}]
)
def test_one_request_needs_what_its_problem_needs(new, tokens, mask, more):
    found = iosim.batch(f"{new}:{tokens}", layers=3, mask=mask, tiles="4x4", **OPTIONS, **more)
    p = iosim.Attention(new, Nk=tokens, batch=3, mask=parse_mask(mask), **OPTIONS, **more)
    work = work_of_attention(found)[p.dtype]
    assert work == needed_by_problem(p)
    if "kv_scales" not in more:  # floors have no scales
        width = {"int4": 0.5, "fp8": 1}.get(more.get("kv_dtype"), p.word_bytes)
        floor = iosim.batch(f"{new}:{tokens}", layers=3, mask=mask, M="1GB", **OPTIONS, **more).floor
        assert floor.form == "compulsory" and work["memory"] >= floor.words * width
        assert work["memory"] == floor.words * width or width < p.word_bytes


def test_the_claim_of_requests_with_one_token_is_that_of_the_floor():
    """One key has p = 1: neither Q nor K is needed. 100,000 rows of V and O of 128 fp16 words take 15.28 us."""
    said = [iosim.batch("100000 * 1:1", 128, hardware="h100", ways="repeat", claim=f"{us}us") for us in (15.2, 15.3)]
    assert [one.claim.possible for one in said] == [False, True]
    assert {one.claim.work["memory"] for one in said} == {said[0].floor.bytes} == {100_000 * 2 * 128 * 2}


@pytest.mark.parametrize("claim", ["4us", "6us"])
def test_keys_of_four_bits(claim):
    """16,384 tokens of 8 KV heads, 64 B a row of K and of V; Q and O of 4 requests have 2 bytes a word."""
    asked = {"d": 128, "heads": 32, "kv_heads": 8, "hardware": "h100", "kv_dtype": "int4", "ways": "pack"}
    found = iosim.batch("4 * 1:4096", claim=claim, **asked)
    assert found.claim.work["memory"] == 2 * 4 * 4096 * 8 * 64 + 2 * 4 * 32 * 128 * 2
    assert found.claim.possible == (claim == "6us")  # 5.03 us


@pytest.mark.parametrize("claim", ["1282us", "1.2822ms", "1282.236us", "3.351TB/s", "3.3501TB/s"])
def test_an_impossible_time_is_seen_to_be_less(claim):
    """32 requests of 65,536 tokens take 1,282.236 us at least: a sentence shows as many digits as tell the two apart."""
    first, second = iosim.batch("32*1:65536", hardware="h100", claim=claim, **SERVED).claim.lines()
    times = [float(text.replace(",", "")) for text in re.findall(r"([\d,.]+) us", first)]
    claimed = times[0] if "/s" in claim else found_in_us(claim)
    assert first.startswith("Impossible") and claimed < times[-1]
    assert "100.0 %" not in second and " 1 times" not in second


def found_in_us(claim):
    return float(claim.removesuffix("us")) if "us" in claim else 1000 * float(claim.removesuffix("ms"))


def test_a_claim_of_the_rate_itself_is_possible():
    said = iosim.batch("32*1:65536", hardware="h100", claim="3.35TB/s", **SERVED).claim.lines()
    assert said[0].startswith("Possible: 3.35TB/s, which is 1,282 us for the 4.00 GiB that are needed, is the 1,282 us")


def test_unequal_requests_by_hand():
    """Three decoding requests, and a chunk of 512 tokens behind 4,096 others under `causal`."""
    found = iosim.batch("2*1:3000, 1:9000, 512:4608", mask="causal", hardware="h100", claim="30us", **SERVED)
    scores = 2 * 3000 + 9000 + 512 * 4096 + 512 * 513 // 2
    tokens, new = 2 * 3000 + 9000 + 4608, 3 + 512
    needed = {"memory": tokens * 2048 + 2 * new * 32 * 128 * 2, "matrix": 4 * 128 * 32 * scores, "exp": 32 * scores}
    assert found.claim.work == needed and found.claim.binds == "matrix"
    assert found.claim.least == needed["matrix"] / 989.4e12 and not found.claim.possible


def test_tokens_in_common_are_read_once():
    requests = [
        {"new": 1, "cached": 4000, "prefix": "system:1024"},
        {"new": 1, "cached": 3000, "prefix": "system:1024"},
    ]
    work = iosim.batch(requests, hardware="h100", claim="1us", **SERVED).claim.work
    assert work["memory"] == (4001 + 3001 - 1024) * 2048 + 2 * 2 * 32 * 128 * 2
    assert work["exp"] == 32 * (4001 + 3001)


@pytest.mark.parametrize(
    "claim, possible, more",
    [
        ("815.86us", False, {}),
        ("5.264 TB/s", False, {}),
        ("700 TFLOP/s", False, {}),
        ("815.86us", True, {"kv_dtype": "fp8"}),
        ("1.3ms", True, {}),
        ("5.264 TB/s", True, {"hardware": "b200"}),
    ],
)
def test_a_published_rate_of_decoding(claim, possible, more):
    """32 requests of 65,536 tokens: 4 GiB of K and V at 3.35 TB/s take 1,282 us."""
    found = iosim.batch("32*1:65536", **{"hardware": "h100", "claim": claim, **SERVED, **more})
    assert found.claim.possible == possible and found.claim.binds == "memory"
    assert found.claim.work["memory"] * (2 if more.get("kv_dtype") else 1) > 2**32
    assert str(found).startswith("Possible: " if possible else "Impossible: ")
    assert found.to_dict()["claim"]["possible"] == possible and found.answer.startswith(found.claim.lines()[0])


def test_a_time_between_what_is_needed_and_all_ways():
    """32 MiB of K and V take 10 us of the whole HBM; the one block of `repeat` reads them by one multiprocessor."""
    asked = {"d": 128, "hardware": "h100", "ways": "repeat"}
    said = [str(iosim.batch("1:65536", claim=claim, **asked)) for claim in ("11us", "10s")]
    assert said[0].startswith("Possible: 11us is 1.1 times the 10.02 us")
    assert ["It is less than the bound of all ways below." in text for text in said] == [True, False]


def test_layers_of_two_kinds():
    """The states of 36 layers move beside the keys and values of 12."""
    both = iosim.batch("4*1:9000", hardware="h200", layers=f"{GDN}, attention*12", claim="1us", **SERVED)
    parts = [iosim.batch("4*1:9000", hardware="h200", layers=of, claim="1us", **SERVED) for of in (GDN, 12)]
    assert both.claim.work["memory"] == sum(part.claim.work["memory"] for part in parts)
    assert both.claim.work["exp"] == parts[1].claim.work["exp"] and "exp" not in parts[0].claim.work
    assert both.to_dict()["claim"]["binds"] == "memory" and str(both).startswith("Impossible: 1us")
    (kind,) = parts[0].kinds
    assert parts[0].claim.work == {"memory": kind.total_bytes}


def test_what_a_claim_about_states_would_have_to_mean():
    """36 layers with 32 value heads read and write 4.83 GB of states for 32 requests."""
    asked = {"hardware": "h200", "d": 128, "layers": GDN}
    states = 32 * 36 * 32 * 128 * 128 * 4
    found = iosim.batch("32*1:9000", claim="0.6ms", **asked).claim
    assert 2 * states < found.work["memory"] < 1.01 * 2 * states and not found.possible
    assert [one.split(" (")[0] for one in found.meanings[:3]] == [
        "states in 16 bit", "a ring of 18 rows, mean step", "states that are read and not written"
    ]  # fmt: skip
    unwritten = (found.work["memory"] - states) / 4.8e12
    assert found.meanings[2].endswith(f"(at least {1e6 * unwritten:.1f} us)")
    ring = iosim.batch("32*1:9000", claim="0.7ms", **{**asked, "layers": GDN.replace("heads=16", "heads=16 ring=18")})
    heads = heads_of(read_layers(GDN)[0], iosim.Attention(1, 128))
    assert ring.claim.work["memory"] == round(32 * sum(heads.ring_step(18))) and ring.claim.possible
    prefill = iosim.batch("2*64:64", claim="1us", **asked).claim
    assert not any("ring" in one for one in prefill.meanings)


@pytest.mark.parametrize(
    "claim, more, said",
    [
        ("1us", {}, "a GPU, whose rates decide it"),
        ("fast", {"hardware": "h100"}, "a time as 215us"),
        ("3TFLOP/s", {"hardware": "h100", "layers": GDN}, "FLOPs depend on chunks"),
    ],
)
def test_what_cannot_be_judged(claim, more, said):
    with pytest.raises(InputError, match=said):
        iosim.batch("1:40", 128, claim=claim, **more)


def test_a_claim_decides_the_exit_code(iosim):
    done = [iosim(*LINE, "--requests", "32*1:65536", "--claim", claim) for claim in ("816us", "1.3ms")]
    assert [one.exit_code for one in done] == [1, 0]
    assert done[0].stdout.startswith("Impossible: 816us is less than the 1,282 us that HBM (4.00 GiB at 3.35 TB/s)")
    both = iosim(*LINE, "--hardware", "h100,b200", "--requests", "32*1:65536", "--claim", "816us", "--json")
    assert both.exit_code == 1 and [one["claim"]["possible"] for one in json.loads(both.stdout)["answers"]] == [
        False,
        True,
    ]
