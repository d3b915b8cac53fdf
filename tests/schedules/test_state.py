"""Attention with a state: every rule and schedule in every machine, against a recurrence, and golden values."""

import random

import numpy as np
import pytest
from paths import ROOT
from verdicts import wrong

import iosim
from iosim import SCHEDULES, Attention, Capacity, Folded, InputError, Machine, Numeric, Tiling, Traffic
from iosim.counting.state_floors import ring_words
from iosim.schedules.state import BY_NAME, RULES, gate_words, rule_of, state_words
from iosim.schedules.state_decode import ring_rows
from iosim.search.best import footprint
from iosim.steps.state import feature_map

FORWARD = ("state-fused", "state-split", "state-tiles", "state-saved", "state-decode", "state-ring", "state-verify")


def problem(name, rule, N, d, dv, **more):
    return SCHEDULES[name].about(Attention(N, d, dv=dv, rule=rule, **more))


# ---------------------------------------------------------------- every rule and schedule, at random


def random_problem(rng, name):
    """A problem of a schedule and a tiling, of random sizes and options."""
    rule = rng.choice(list(RULES))
    options = {"initial_state": rng.random() < 0.5, "final_state": rng.random() < 0.5}
    if rng.random() < 0.3:
        options["padding"] = rng.randint(1, 5)
    if "ring" in [getattr(option, "name", "") for option in SCHEDULES[name].options]:
        options["ring"] = rng.randint(0, 12)
    if name == "state-verify":
        drafts = rng.randint(0, 4)
        options |= {"drafts": drafts, "rollback": rng.choice(["snapshots", "replay"])}
        options |= rng.choice([{}, {"accepted": rng.randint(0, drafts)}])
    if BY_NAME[rule].phi:
        options |= {"normalise": rng.random() < 0.5, "features": rng.choice([0, 0, 1, 5, 9])}
    if rng.random() < 0.3:
        heads = rng.randint(1, 3)
        options |= {"heads": heads * rng.randint(1, 3), "key_heads": heads, "gqa": "pack"}
    p = problem(name, rule, rng.randint(1, 40), rng.randint(1, 9), rng.randint(1, 9), **options).packed
    sizes = {size: rng.randint(1, 10) for size in SCHEDULES[name].more_tiles}
    return p, Tiling(rng.randint(1, 45), 1, **sizes)


def check_random(seed):
    rng = random.Random(seed)
    name = FORWARD[seed % len(FORWARD)]
    p, tiling = random_problem(rng, name)
    assert wrong(SCHEDULES[name], p, tiling, seed=seed) == set(), (name, p.unusual(), tiling)


@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_words_and_outputs_at_random(seed):
    for each in range(seed, seed + 20):
        check_random(each)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 2100, 100))
def test_words_and_outputs_of_many(seed):
    for each in range(seed, seed + 100):
        check_random(each)


# ---------------------------------------------------------------- golden values

GOLDEN = [  # schedule, rule, N, d, dv, chunk, columns: words read and written, and the peak; S_0 given, S_N asked for
    ("state-fused", "linear", 128, 8, 20, 1, None, 4768, 2720, 217),
    ("state-fused", "gdn", 10000, 128, 64, 128, None, 3228192, 648192, 73984),
    ("state-fused", "mamba2", 100, 8, 20, 7, None, 3860, 2160, 608),
    ("state-fused", "mamba2", 8192, 64, 64, 64, None, 1585152, 528384, 24640),
    ("state-split", "linear", 8192, 128, 64, 100, 32, 4726784, 532480, 46096),
    ("state-split", "mamba2", 64, 24, 16, 32, 8, 7680, 1408, 3296),
    ("state-split", "gdn", 10000, 128, 128, 100, 64, 6456384, 1296384, 56792),
    ("state-decode", "mamba2", 64, 8, 8, 1, None, 5760, 4672, 98),
    ("state-decode", "gdn", 64, 8, 8, 1, None, 5824, 4672, 99),
    ("state-saved", "linear", 77, 8, 8, 16, None, 3464, 1000, 832),
    ("state-saved", "linear", 4096, 64, 128, 100, None, 2179072, 868352, 56592),
    ("state-saved", "mamba2", 64, 16, 20, 16, None, 7360, 2880, 1744),
]


@pytest.mark.parametrize("name, rule, N, d, dv, chunk, columns, reads, writes, peak", GOLDEN)
def test_golden_words(name, rule, N, d, dv, chunk, columns, reads, writes, peak):
    p, tiling = problem(name, rule, N, d, dv, initial_state=True, final_state=True), Tiling(chunk, 1, cols_o=columns)
    traffic, room = Traffic(), Capacity()
    Folded(p, traffic, room).run(SCHEDULES[name], tiling)
    assert (sum(traffic.reads.values()), sum(traffic.writes.values()), room.peak_words) == (reads, writes, peak)


def test_golden_words_of_the_delta_rule_with_saved_states():
    """The golden value counts the inverse of the last chunk, of 96 tokens, as a whole one of 100."""
    p, tiling = problem("state-saved", "gdn", 4096, 128, 128, initial_state=True, final_state=True), Tiling(100, 1)
    traffic, room, rest = Traffic(), Capacity(), 100**2 - 96**2
    Folded(p, traffic, room).run(SCHEDULES["state-saved"], tiling)
    words = sum(traffic.reads.values()) + rest, sum(traffic.writes.values()) + rest
    assert (*words, room.peak_words) == (5841296, 3195280, 77684)


def test_golden_words_of_a_ring():
    """A ring of 32 rows over 100 steps: 32, 32, 32 and 4. A copy of S_0 into the slot is read and written as well."""
    p = problem("state-ring", "mamba2", 100, 16, 20, ring=32, initial_state=True)
    traffic, room = Traffic(), Capacity()
    Folded(p, traffic, room).run(SCHEDULES["state-ring"], Tiling(1, 1))
    words = sum(traffic.reads.values()), sum(traffic.writes.values()), room.peak_words
    assert words == (92898, 3600, 1504)


@pytest.mark.parametrize(
    "rule, chunk, sram",
    [("linear", 64, 163840), ("mamba2", 64, 164096), ("gdn", 64, 164224), ("linear", 96, 225280),
     ("mamba2", 96, 225664), ("gdn", 96, 225856), ("linear", 128, 294912)],
)  # fmt: skip
def test_bytes_of_a_chunk_on_an_h100(rule, chunk, sram):
    """16-bit inputs, fp32 states and products, d = dv = 128."""
    p = problem("state-fused", rule, 8192, 128, 128, dtype="bf16", acc_dtype="fp32")
    assert footprint(SCHEDULES["state-fused"], p, Tiling(chunk, 1)).peak_bytes == sram


@pytest.mark.parametrize("N, d, chunk", [(30, 8, 1), (30, 8, 7), (30, 8, 100), (64, 16, 8)])
def test_words_and_room_of_the_old_linear_attention(N, d, chunk):
    """`linear-causal` read q, k, v once and wrote o once, in d^2 + d + C (4d + 1) + C^2 words."""
    p = problem("state-fused", "linear", N, d, d, normalise=True)
    traffic, room, C = Traffic(), Capacity(), min(chunk, N)
    Folded(p, traffic, room).run(SCHEDULES["state-fused"], Tiling(chunk, 1))
    assert traffic.tensors == {"Q": (N * d, 0), "K": (N * d, 0), "V": (N * d, 0), "O": (0, N * d)}
    assert room.peak_words == d * d + d + C * (4 * d + 1) + C * C


@pytest.mark.parametrize(
    "options, rows",
    [({"dtype": "fp16", "acc_dtype": "fp16"}, 11), ({"dtype": "bf16", "state_dtype": "fp32"}, 16),
     ({"d": 256, "dv": 256, "dtype": "bf16", "state_dtype": "fp32"}, 23)],
)  # fmt: skip
def test_the_best_ring(options, rows):
    """L (L + 1) >= 2 s / rho for the first time: in words 11, and with an fp32 state and 16-bit rows 16 or 23."""
    sizes = {"d": 128, "dv": 128, **options}
    assert ring_rows(Attention(100, rule="linear", **sizes)) == rows
    totals = {L: iosim.count(N=L * 40, rule="linear", ring=L, schedules="state-ring", **sizes)["state-ring"].total_bytes / L
              for L in (rows - 1, rows, rows + 1)}  # fmt: skip
    assert min(totals, key=totals.__getitem__) == rows


def test_a_ring_moves_what_a_step_needs():
    """The mean step of L = 11: the state, its own rows, 5 rows of the ring, and an eleventh of the state written."""
    found = iosim.count(N=1100, d=128, rule="linear", ring=11, schedules="state-ring")["state-ring"]
    assert found.reads == 1100 * (128 * 128 + 3 * 128 + 5 * 256) and found.writes == 1100 * 128 + 100 * 128 * 128


@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_words_of_a_verification(accepted):
    """4 drafts and one more token, T = 5, of which A stay. Snapshots write T states; a replay writes T rows, an L-th of
    the state, and reads A (L - 1) / 2 rows."""
    s, own, row, T, A, L, steps = 16 * 24, 2 * 16 + 24 + 2, 16 + 24 + 1, 5, accepted + 1, 4, 40
    sizes = {"N": steps, "d": 16, "dv": 24, "rule": "gdn", "drafts": 4, "accepted": accepted, "ring": L}
    found = {
        how: iosim.count(**sizes, rollback=how, schedules="state-verify")["state-verify"]
        for how in ("snapshots", "replay")
    }
    assert (found["snapshots"].reads, found["snapshots"].writes) == (steps * (s + T * own), steps * (T * 24 + T * s))
    assert found["replay"].reads == steps * (s + T * own) + steps * row * A * (L - 1) // 2
    assert found["replay"].writes == steps * (T * 24 + T * row) + steps // L * s


def test_a_verification_without_drafts_is_a_step_of_decoding():
    sizes = {"N": 30, "d": 8, "dv": 12, "rule": "kda", "initial_state": True}
    one = iosim.count(**sizes, drafts=0, rollback="snapshots", schedules="state-verify")["state-verify"]
    assert one.tensors == iosim.count(**sizes, schedules="state-decode")["state-decode"].tensors


def test_each_step_of_decoding_has_its_floor():
    """The state and own words are read in every step, whatever one does; the ring writes the state least often."""
    found = iosim.count(N=110, d=16, rule="gdn", M="4KB", schedules="state-decode,state-ring")
    floor = next(b.words for b in found.bounds if b.name == "state-decode: compulsory")
    assert floor == 110 * (16 * 16 + 4 * 16 + 2) <= found["state-ring"].total < found["state-decode"].total
    assert all(r.ratio_to_standard is None for r in found.results), "standard attention computes something else"


# ---------------------------------------------------------------- what a rule says


def test_the_rows_of_rules():
    """A rule has its gate words, and models are names of rows."""
    words = {name: gate_words(Attention(4, 7, dv=3, rule=name)) for name in BY_NAME}
    assert words["linear"] == words["retnet"] == 0 and words["mamba2"] == words["deltanet"] == 1
    assert words["gdn"] == 2 and words["gla"] == 7 and words["kda"] == 8
    assert rule_of(Attention(4, 7)) is RULES["linear"]
    assert state_words(Attention(4, 7, dv=3)) == 21 and state_words(Attention(4, 7, dv=3, normalise=True)) == 28


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_values_of_one_give_ones(rows):
    """The weights of a query sum to 1. If each column is divided by the sum of keys, a common mistake, they do not."""
    p = problem("state-fused", "linear", 11, 4, 3, normalise=True)
    hbm = {**SCHEDULES["state-fused"].example(np.random.default_rng(5), p, None), "V": np.ones((11, 3))}
    o = Numeric(p, hbm).run(SCHEDULES["state-fused"], Tiling(rows, 1)).array("O")
    np.testing.assert_allclose(o, 1, atol=1e-14)


def test_the_feature_map_is_positive_and_continuous():
    x = np.array([-800.0, -1.0, -1e-12, 0.0, 1e-12, 3.0])
    np.testing.assert_allclose(feature_map(x), [0, np.exp(-1), 1, 1, 1, 4], atol=1e-11)
    assert (feature_map(x[1:]) > 0).all()


def test_a_gate_of_zero_writes_nothing_and_a_delta_overwrites():
    """With b = 0 the delta rule leaves the state at 0. With b = 1 and a repeated unit key, the last value is read."""
    p = problem("state-fused", "deltanet", 6, 4, 3)
    key = np.tile([[1.0, 0, 0, 0]], (6, 1))
    hbm = {"Q": key, "K": key, "V": np.arange(18.0).reshape(6, 3), "beta": np.ones(6)}
    run = Numeric(p, hbm).run(SCHEDULES["state-fused"], Tiling(4, 1))
    np.testing.assert_allclose(run.array("O"), hbm["V"], atol=1e-13)
    still = Numeric(p, {**hbm, "beta": np.zeros(6)}).run(SCHEDULES["state-fused"], Tiling(4, 1))
    assert not still.array("O").any()


def test_the_state_must_fit():
    """The recurrence needs the state, and q, k, v, o and the product of one token."""
    d = 16
    for words, fits in ((d * d + 4 * d + 1, True), (d * d + 4 * d, False)):
        found = iosim.count(64, d, f"{words}el", rule="linear", schedules=["state-fused"]).results[0]
        assert found.fits is fits and (not fits or found.Br == 1)


# ---------------------------------------------------------------- questions


def test_a_rule_alone_asks_about_states():
    """Without --schedule the schedules of states are shown, and without M chunks are those of published kernels."""
    found = iosim.count(8192, 128, rule="gdn", heads=32, key_heads=16)
    assert found.results[0].schedule == "state-fused" and {r.Br for r in found.results} == {64}
    assert found["state-fused"].total == 32 * 8192 * (2 * 128 + 128 + 2 + 128)
    assert iosim.count(8192, 128, rule="gdn", chunk=32)["state-fused"].Br == 32
    best = iosim.tune(8192, 128, M="227KB", rule="gdn", acc_dtype="fp32", tile_multiple=16)
    assert next(r.Br for r in best.results if r.schedule == "state-fused") == 96


def test_bytes_are_the_words_of_each_tensor_times_its_type():
    """A decay has 4 bytes, b has those of the inputs, and a state those of --state-dtype."""
    sizes = {"N": 10, "d": 8, "dv": 8, "rule": "gdn", "initial_state": True}
    bytes_of = {}
    for kind in ("fp32", "bf16"):
        found = iosim.count(**sizes, dtype="bf16", state_dtype=kind)["state-fused"]
        bytes_of[kind] = found.read_bytes
        assert found.reads == 10 * 26 + 64
    assert bytes_of["bf16"] == 10 * (24 * 2 + 4 + 2) + 64 * 2 and bytes_of["fp32"] == bytes_of["bf16"] + 64 * 2


@pytest.mark.parametrize(
    "given, said",
    [({"mask": "window:3"}, "--padding"), ({"mask": "causal"}, "causal by itself"), ({"key_heads": 3}, "divisor"),
     ({"chunk": 4, "tiles": "2x1", "schedules": "state-fused"}, "as --chunk says"), ({"Nk": 5}, "Nk"), ({"rule": "gdn", "normalise": True}, "linear")],
)  # fmt: skip
def test_what_a_state_refuses(given, said):
    asked = {"N": 8, "d": 4, "rule": "linear", "heads": 4, **given}
    with pytest.raises(InputError, match=said):
        iosim.count(**asked)


@pytest.mark.parametrize("old", ["linear", "linear-causal"])
def test_an_old_name_says_what_to_type(old):
    with pytest.raises(InputError, match="--rule linear --normalise"):
        iosim.count(8, 4, "1KB", schedules=old)


def test_padding_moves_nothing():
    one, other = (iosim.count(20, 4, rule="gdn", padding=n)["state-fused"] for n in (0, 5))
    assert one.total * 15 == other.total * 20


def test_value_heads_that_are_packed_read_q_and_k_once():
    """16 key heads and 32 value heads: 2d words of q and k a token and key head, dv, g and dv of each value head. The
    floor, which shares q and k, is met but for the first decay of each head."""
    sizes = {"N": 8192, "d": 128, "rule": "gdn", "heads": 32, "key_heads": 16, "chunk": 64}
    found, apart = (iosim.count(**sizes, gqa=how) for how in ("pack", "repeat"))
    packed = found["state-fused"]
    assert (packed.reads, packed.writes) == (8192 * (16 * 256 + 32 * 130), 8192 * 32 * 128)
    assert packed.total == 101_187_584, "docs/schedules/state.md"
    assert packed.reads + packed.writes == next(b.words for b in found.bounds if b.name == "state: compulsory") + 32
    assert packed.sram_peak_words == 2 * 128 * 128 + 64 * (4 * 128 + 2) + 64 * 64
    assert apart["state-fused"].total - packed.total == 8192 * 16 * 256
    both = [
        iosim.count(**{**sizes, "N": 9, "chunk": 0}, gqa=how, schedules="state-decode")["state-decode"]
        for how in ("pack", "repeat")
    ]
    assert both[1].total - both[0].total == 9 * 16 * 256


def test_a_packed_ring_is_the_best_of_its_class():
    """Two value heads of a key head, states in fp32: 18 rows (docs/state.md), and the bytes of D2 beside what the delta
    rule appends and the steps' own words."""
    sizes = {"d": 128, "rule": "deltanet", "heads": 2, "key_heads": 1, "dtype": "fp16", "state_dtype": "fp32"}
    found = iosim.count(N=180, **sizes, gqa="pack", schedules="state-ring")["state-ring"]
    state, row, own = 2 * 128 * 128 * 4, 3 * 128 * 2, (4 * 128 + 2) * 2
    assert found.tensors["slot"] == {"reads": 180 * state // 4, "writes": 10 * state // 4}
    assert found.read_bytes == 180 * (state + own) + 180 * row * 17 // 2
    appended = 170 * 2 * 128 * 2  # U, of all but the last step of each ring
    assert found.total_bytes - appended - 180 * (own + 2 * 128 * 2) == ring_words(180, state, row) + state


def test_packed_states_that_are_saved_read_k_once_a_pass():
    sizes = {"N": 96, "d": 16, "dv": 24, "rule": "gdn", "heads": 3, "key_heads": 1, "chunk": 32}
    apart, packed = (
        iosim.count(**sizes, gqa=how, schedules="state-saved")["state-saved"] for how in ("repeat", "pack")
    )
    q, k = 96 * 16, 4 * 96 * 16
    read = [[found.tensors[name]["reads"] for name in "KQ"] for found in (apart, packed)]
    assert read == [[3 * k, 3 * q], [k, q]]
    assert apart.total - packed.total == 2 * (q + k)


@pytest.mark.parametrize("how", ["snapshots", "replay"])
def test_a_packed_verification_moves_what_tune_says(how):
    """16 key heads and 32 value heads, 4 drafts: the bytes of `tune --decode --drafts` beside a step's own words."""
    sizes = {"rule": "gdn", "heads": 32, "key_heads": 16, "state_dtype": "fp32", "drafts": 4}
    found = iosim.ring(128, **sizes)
    rows = [row for row in found if row["rollback"] == how]
    best = min(rows, key=lambda row: row["total_bytes"])
    N = 10 * best["steps"]
    one = iosim.count(N=N, d=128, **sizes, gqa="pack", rollback=how, schedules="state-verify")["state-verify"]
    own = 5 * (16 * 2 * 128 * 2 + 32 * (2 * 128 * 2 + 4 + 2))
    assert one.total_bytes / N == pytest.approx(best["total_bytes"] + own)


@pytest.mark.parametrize("name", ["state-tiles", "state-bwd", "state-bwd-saved"])
def test_other_schedules_pack_no_value_heads(name):
    with pytest.raises(InputError, match="pack"):
        iosim.count(8, 4, "4KB", rule="mamba2", heads=4, key_heads=2, gqa="pack", schedules=name)


def test_packed_value_heads_have_no_normaliser():
    with pytest.raises(InputError, match="no normaliser"):
        iosim.count(
            8, 4, "4KB", rule="linear", normalise=True, heads=4, key_heads=2, gqa="pack", schedules="state-fused"
        )


def test_more_drafts_than_there_are_cannot_be_accepted():
    fault = "--accepted: found 3; allowed: at most --drafts 2; --drafts 3 verifies as many"
    with pytest.raises(InputError, match=fault):
        iosim.count(4, 4, rule="gdn", drafts=2, accepted=3, schedules="state-verify")


def test_a_visit_of_every_tile_is_alike():
    p = problem("state-fused", "kda", 23, 4, 6)
    seen = Traffic()
    Machine(p, seen).run(SCHEDULES["state-fused"], Tiling(5, 1))
    assert seen.tensors == SCHEDULES["state-fused"].exact_traffic(p, Tiling(5, 1))


def test_schedules_of_a_state_have_a_rule_in_every_answer(ask):
    """Without --rule they are those of linear attention, and the answer says so."""
    for command, more in (("count", []), ("tune", ["--M", "100KB"])):
        found = ask(command, "--schedule", "state-fused", "--N", 64, "--d", 16, *more)
        assert found["problem"]["rule"] == "linear", command
    said = iosim.count(64, 16, schedules="state-fused,state-bwd")
    assert "linear, with a state: N = 64" in str(said) and "attention: N" not in str(said)
    assert iosim.count(64, 16, "9KB", schedules="state-fused,flash2").problem.rule == ""


def test_one_token_says_which_ends_of_the_state_are_counted():
    """s + 2d + dv + 2 words are read and s + dv written in a step of decoding; without ends, no word of a state."""
    asked = {"rule": "gdn", "schedules": "state-fused"}
    plain = iosim.count(1, 128, **asked)
    (note,) = (text for text in plain.notes if "decoding" in text)
    assert note.endswith("which is counted with --initial-state and --final-state")
    assert "with --final-state" in " ".join(iosim.count(1, 128, initial_state=True, **asked).notes)
    step = iosim.count(1, 128, initial_state=True, final_state=True, **asked)
    assert step["state-fused"].total == 2 * 128**2 + 4 * 128 + 2 and "decoding" not in " ".join(step.notes)
    assert plain["state-fused"].total == 4 * 128 + 2
    assert "decoding" not in " ".join(iosim.count(2, 128, **asked).notes)


def test_the_name_of_the_rule_stands_in_one_place():
    for file in ("core/problem.py", "schedules/registry.py", "schedules/__init__.py", "counting/asked.py"):
        assert 'get("rule")' not in (text := (ROOT / "iosim" / file).read_text()) and '"rule" in' not in text, file
