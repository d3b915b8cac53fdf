"""Layers of two kinds: a request has a state in some, and a context in the others."""

import json

import pytest

import iosim
from iosim.counting.layers import read_layers, split_layers
from iosim.counting.state_heads import StateHeads, rule_of, transition_of
from iosim.errors import InputError

QWEN = {"d": 256, "heads": 16, "kv_heads": 2, "mask": "causal", "tiles": "64x64"}
GDN = "gdn d=128 heads=32 key-heads=16"


def kinds_of(found):
    return {row["kind"]: row for row in found.to_rows()}


def test_two_problems_are_summed():
    requests = "3 * 1:5000, 512:4608, 64:64"
    mixed = iosim.batch(requests, layers=f"{GDN} * 36, attention*12", **QWEN)
    attention = iosim.batch(requests, layers=12, **QWEN)
    own = kinds_of(mixed)
    assert own["attention"]["total_bytes"] == attention.least.total_bytes
    assert mixed.attention.to_dict() == attention.to_dict()
    assert mixed.total_bytes == own["attention"]["total_bytes"] + own["gdn"]["total_bytes"]
    state, token, o = 128 * 256 * 4, 2 * 128 * 2 + 256 * 2 + 2 * 4 + 2 * 2, 256 * 2  # of a pair of value heads
    reads = 3 * (token + state) + 512 * token + state + 64 * token - 2 * 4
    writes = (3 + 512 + 64) * o + 5 * state
    assert (own["gdn"]["read_bytes"], own["gdn"]["write_bytes"]) == (36 * 16 * reads, 36 * 16 * writes)


def test_a_state_has_one_size_whatever_the_length():
    short, long = (iosim.batch(f"4 * 1:{n}", 128, heads=8, layers="mamba2*10") for n in (1000, 1_000_000))
    assert short.to_rows() == long.to_rows() and short.attention is None
    assert short.kinds[0].kept_bytes == 4 * 10 * 8 * 128 * 128 * 4


def test_the_claim_of_a_thousand_requests():
    """docs/state.md: the fp32 states of 8 value heads and 1024 requests are read and written: 1.07 GB."""
    (kind,) = iosim.batch("1024 * 1:9000", 128, heads=8, layers="gdn*1").kinds
    own = 1024 * 8 * (2 * 256 + 256 + 4 + 2 + 256)
    assert kind.total_bytes - own == 2 * 1024 * 8 * 128 * 128 * 4 == 1_073_741_824


def test_a_ring_moves_less():
    plain = iosim.batch("8 * 1:9000", 128, heads=32, layers=f"{GDN}*36")
    (line,) = plain.lines[1:]
    assert line.startswith("No exact algorithm with fixed addresses, one number a word, from an empty chip, reads less")
    assert "a ring of 18 rows would move" in line
    ring = iosim.batch("8 * 1:9000", 128, heads=32, layers=f"{GDN} ring=18 * 36")
    assert "would move" not in ring.lines[1] and ring.total_bytes < 0.57 * plain.total_bytes
    others = [
        iosim.batch("8 * 1:9000", 128, heads=32, layers=f"{GDN} ring={L} * 36").total_bytes for L in (16, 17, 19, 20)
    ]
    assert min(others) >= ring.total_bytes
    assert ring.kinds[0].kept_bytes == 8 * 36 * 16 * (128 * 256 * 4 + 17 * (128 + 256) * 2)
    narrow = iosim.batch("8 * 1:9000", 128, heads=32, layers=f"{GDN} state=bf16 * 36")
    assert narrow.kinds[0].kept_bytes * 2 == plain.kinds[0].kept_bytes


@pytest.mark.parametrize("rule", ["linear", "retnet", "mamba2", "gla", "deltanet", "gdn", "kda"])
@pytest.mark.parametrize("request_", ["64:64", "64:640", "1:9"])
def test_a_layer_moves_what_its_schedule_counts(rule, request_):
    """To the byte, but for the first decays without a state before them, which a schedule reads too."""
    new, tokens = map(int, request_.split(":"))
    (kind,) = iosim.batch(request_, 16, dv=8, heads=3, layers=f"{rule} state=fp32").kinds
    options = {"rule": rule, "initial_state": new < tokens, "final_state": True, "state_dtype": "fp32"}
    counted = iosim.count(new, 16, dv=8, heads=3, acc_dtype="fp32", schedules="state-fused", chunk=8, **options)
    first = 0 if new < tokens else {"mamba2": 1, "gdn": 1, "gla": 16, "kda": 16}.get(rule, 0) * 4 * 3
    assert (kind.read_bytes + first, kind.write_bytes) == (
        counted.results[0].read_bytes,
        counted.results[0].write_bytes,
    )


def test_nothing_is_said_of_decoding_where_no_request_decodes():
    assert len(iosim.batch("512:512, 1:1", 128, layers="gdn*2").lines) == 1


def test_rows_of_a_ring_and_of_states_are_those_of_the_pages():
    """The best rings with appended rows: 16 of 128 x 128, 18 of a pair, 23 of 256 x 256; in fp32 and 16 bit."""
    pairs = [(128, 128, 1), (128, 128, 2), (256, 256, 1)]
    assert [StateHeads(rule_of("kda"), *sizes, 1).best_ring for sizes in pairs] == [16, 18, 23]
    of = [transition_of(rule_of(name)) for name in ("linear", "retnet", "mamba2", "gla", "deltanet")]
    assert of == ["none", "scalar", "scalar", "diagonal", "matrix"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("softmax*3", "--layers: found 'softmax'"),
        ("gdn**3", "--layers: found 'gdn**3'"),
        ("3*gdn*3", "--layers: found '3*gdn*3'"),
        ("gdn width=3 * 2", "--layers gdn width=3 * 2: found 'width'"),
        ("attention d=64 * 2", "those of a layer with a state"),
        ("attention*2, attention*3", "attention once"),
        ("gdn d=0 * 2", "--layers gdn, d"),
        ("gdn heads=6 key-heads=4 * 2", "key-heads: found 4"),
        ("gdn*0", "found '0'"),
    ],
)
def test_what_is_no_layer_is_refused(text, said):
    with pytest.raises(InputError, match=said.replace("*", r"\*")):
        iosim.batch("1:64", 64, layers=text)


def test_layers_are_read_in_both_orders():
    assert split_layers("36 * gdn, 12*attention") == split_layers("gdn*36,attention * 12")
    assert split_layers("12") == split_layers(12) == (12, [])
    assert read_layers("gdn")[0].layers == 1


def test_the_command_line(iosim, tmp_path):
    line = ("batch", "--requests", "4 * 1:3000", "--d", 128, "--heads", 32, "--kv-heads", 8, "--tiles", "64x64")
    layers = ("--layers", "gdn*36, attention*12")
    done = iosim(*line, *layers)
    assert done.exit_code == 0 and done.stdout.startswith("A step moves ")
    found = json.loads(iosim(*line, *layers, "--json").stdout)
    assert sum(row["total_bytes"] for row in found["kinds"]) == found["step_bytes"]
    assert found["ways"] == json.loads(iosim(*line, "--layers", 12, "--json").stdout)["ways"]
    rows = iosim(*line, *layers, "--csv").stdout.splitlines()
    assert rows[0].startswith("layers,kind,moved_by,kept_bytes") and len(rows) == 3
    refused = iosim(*line, "--layers", "gdn*36", "-o", tmp_path / "x.svg")
    assert refused.exit_code == 2 and "ways of attention" in refused.stderr
    drawn = iosim(*line, *layers, "-o", tmp_path / "y.svg")
    assert drawn.exit_code == 0 and (tmp_path / "y.svg").exists()
