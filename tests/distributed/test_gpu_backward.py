"""The backward pass and the training step across GPUs: gradients, words and room by hand, three machines, floors."""

from collections import Counter

import links_by_hand
import numpy as np
import pytest
from gpu_texts import moved, one_and_others, random_inputs, runs, visible_to

import iosim
from iosim import Attention, Folded, Numeric, Traffic
from iosim.core.levels import Inside
from iosim.core.machine import Machine
from iosim.distributed.inside import Below
from iosim.distributed.messages import Messages
from iosim.distributed.needed import needed
from iosim.distributed.schedules import PASSES, splits_of
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.oracles.backward import forward, gradients

MASKS = ["dense", "causal", "window:3", "documents:10,14"]
SIZES = [
    {"N": 24, "d": 3, "dv": 2, "heads": 4, "kv_heads": 2},
    {"N": 24, "d": 2, "heads": 6, "kv_heads": 1},
    {"N": 12, "Nk": 24, "d": 2, "dv": 3, "heads": 8},
]
ALL = [(kind, name) for kind in ("backward", "step") for name in PASSES[kind]]


def cases(kind, name, mask):
    for sizes in SIZES:
        if not (mask.startswith("documents") and "Nk" in sizes):
            p = Attention(mask=parse_mask(mask), **sizes)
            for P in (1, 2, 3, 4, 6, 12):
                yield from splits_of(PASSES[kind][name], p, P)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind, name", ALL)
def test_three_ways(kind, name, mask):
    """One of the cases; the next test takes the others."""
    one, _ = one_and_others(cases(kind, name, mask), kind + name + mask)
    compare(PASSES[kind][name], one)


@pytest.mark.long
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind, name", ALL)
def test_three_ways_in_the_other_cases(kind, name, mask):
    _, others = one_and_others(cases(kind, name, mask), kind + name + mask)
    for t in others:
        compare(PASSES[kind][name], t)


def compare(scheme, t):
    p, given, visible = t.problem, random_inputs(t.problem), visible_to(t, scheme)
    g = p.heads // p.kv_heads
    given["dO"] = np.random.default_rng(5).normal(size=(p.N, p.heads, p.dv))
    of_head = [(given["Q"][:, h], given["K"][:, h // g], given["V"][:, h // g]) for h in range(p.heads)]
    found = [gradients(*of_head[h], given["dO"][:, h], visible) for h in range(p.heads)]
    if scheme.kind == "backward":  # what a forward pass leaves
        ahead = [forward(*one, visible) for one in of_head]
        given |= {name: np.stack([one[name] for one in ahead], axis=1) for name in ("O", "LSE")}
    traffic, messages = Traffic(), Messages(t.ranks)
    machine = Numeric(t.run, given, traffic, messages).run(scheme.bind(t), scheme.tiling(t))
    np.testing.assert_allclose(machine.array("dQ"), np.stack([one["dQ"] for one in found], axis=1), atol=1e-10)
    for name in ("dK", "dV"):
        sums = [sum(found[h][name] for h in range(k * g, (k + 1) * g)) for k in range(p.kv_heads)]
        np.testing.assert_allclose(machine.array(name), np.stack(sums, axis=1), atol=1e-10)
    (folded, room), (unrolled, _) = runs(scheme, t)
    assert moved(folded) == moved(unrolled) == moved(traffic) == links_by_hand.words(scheme, t)
    assert room.peak_words == links_by_hand.room(scheme, t)
    assert links_by_hand.sent(scheme, t) == messages.pairs()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind, name", ALL)
def test_the_words_inside_are_the_same_folded_and_unrolled(kind, name, mask):
    scheme, p = PASSES[kind][name], Attention(24, 3, heads=4, kv_heads=2, mask=parse_mask(mask))
    for t in [t for P in (2, 4) for t in splits_of(scheme, p, P)]:
        found = [Inside(Below(t, 600)) for _ in range(2)]
        for machine, watcher in zip((Folded, Machine), found, strict=True):
            machine(t.run, watcher).run(scheme.bind(t), scheme.tiling(t))
        assert found[0].tensors == found[1].tensors and found[0].bytes == found[1].bytes > 0


def test_types_of_gradients_that_go_home():
    """4 KV heads on 8 GPUs, accumulators of 4 bytes: Ulysses sends parts of dK and dV as fp16, an all-gather as fp32."""
    sizes = {"heads": 8, "kv_heads": 4, "acc_dtype": "fp32", "passes": "backward"}
    found = iosim.links(64, 4, 8, schedules="ulysses,all-gather", **sizes)
    ulysses, gathered = found["ulysses"], found["all-gather"]
    statistics = sum(ulysses.tensors.get(name, 0) for name in ("LSE", "D"))
    assert {"dKheads", "dVheads"} <= ulysses.tensors.keys() and statistics > 0
    assert ulysses.received_bytes == 2 * (ulysses.received_words - statistics) + 4 * statistics
    parts = gathered.tensors["dKpart"] + gathered.tensors["dVpart"]
    assert gathered.received_bytes == 2 * (gathered.received_words - parts) + 4 * parts


def test_words_of_the_page():
    """Keys come P - 1 times, and their gradients go home in P - 1 hops, or in P as it is coded."""
    N, G, w, P = 64, 4, 5 + 3, 4
    found = {
        kind: iosim.links(N, 5, P, dv=3, heads=8, kv_heads=G, passes=kind, schedules="ring,ring-coded,all-gather")
        for kind in ("forward", "backward", "step")
    }
    assert found["backward"]["ring"].received_words == 2 * (P - 1) * N * G * w
    assert found["backward"]["ring-coded"].received_words == (2 * P - 1) * N * G * w
    assert found["backward"]["all-gather"].received_words == 2 * (P - 1) * N * G * w
    for name in ("ring", "ring-coded"):
        both = found["forward"][name].received_words + found["backward"][name].received_words
        assert found["step"][name].received_words == both
    assert found["step"]["all-gather"].received_words == 2 * (P - 1) * N * G * w, "K and V are kept"


def test_bytes_as_measured_with_pytorch():
    """PyTorch's ring on 4 GPUs in bf16 receives 11 shards of K and V backward, 3 of them keys and 4 sums in fp32."""
    found = iosim.links(
        64, 8, 4, heads=4, dtype="bf16", acc_dtype="fp32", passes="backward", schedules="ring-coded,ring"
    )
    shard = 64 // 4 * 4 * 16 * 2
    assert found["ring-coded"].mean_received_bytes == 11 * shard and found["ring"].mean_received_bytes == 9 * shard


def test_floors_are_met_to_the_word():
    """P3 backward and P3s: the ring for many heads a KV head, Ulysses for few; in a step who keeps K and V."""
    many = {"heads": 64, "kv_heads": 4}
    for kind, name, theorem in (
        ("backward", "ring", "P3"),
        ("backward", "all-gather", "P3"),
        ("step", "all-gather", "P3s"),
    ):
        r = iosim.links(4096, 16, 4, passes=kind, **many)[name]
        assert (r.ratio_to_floor, r.theorem) == (1.0, theorem), (kind, name)
    assert iosim.links(4096, 16, 4, passes="step", **many)["ring"].ratio_to_floor == 1.5
    for kind, theorem in (("backward", "P3"), ("step", "P3s")):
        r = iosim.links(4096, 16, 4, heads=8, passes=kind)["ulysses"]
        assert (r.ratio_to_floor, r.theorem) == (1.0, theorem)


@pytest.mark.parametrize("kind", ["backward", "step"])
@pytest.mark.parametrize("P", [2, 4, 8])
def test_crossovers_are_exact(kind, P):
    for g in range(1, 3 * P):
        found = iosim.links(64, 4, P, heads=8 * g, kv_heads=8, passes=kind, schedules="ring,ulysses")
        ring, ulysses = (
            found[name].received_words - sum(found[name].tensors.get(x, 0) for x in ("LSE", "D"))
            for name in ("ring", "ulysses")
        )
        assert (ring <= ulysses) == (g >= found.crossings[0].least) == (found.crossings[1].most >= P)


@pytest.mark.parametrize("kind", ["forward", "backward", "step"])
def test_passing_queries_is_best_up_to_some(kind):
    """In words with statistics: LSE forward, LSE and D backward."""
    most = iosim.links(1024, 8, 8, Nk=8704, heads=16, kv_heads=4, passes=kind).crossings[2].most
    assert (
        most
        == {"forward": 16 * 8704 // (17 * 4), "backward": 32 * 8704 // (26 * 4), "step": 48 * 8704 // (43 * 4)}[kind]
    )
    for N in (most // 8 * 8, most // 8 * 8 + 8):
        found = iosim.links(N, 8, 8, Nk=8704, heads=16, kv_heads=4, passes=kind, schedules="pass-q,ring")
        assert (found["pass-q"].received_words <= found["ring"].received_words) == (most >= N)


def test_passing_queries_in_a_backward_pass():
    """3 d + 2 words a row, where a key has 4 d: fewer without grouped queries. With few queries it is on P3's floor."""
    P, N, d, H = 8, 512, 16, 4
    found = iosim.links(N, d, P, heads=H, passes="backward", schedules="pass-q,ring")
    assert found["pass-q"].received_words == (P - 1) * N * H * (3 * d + 2) < found["ring"].received_words
    assert found["ring"].received_words * 3 == (P - 1) * N * H * 3 * d * 4, "3/4 without statistics"
    for ranks in (2, 3, 4, 8):
        of = iosim.links(24, 64, ranks, heads=24, passes="backward", schedules="pass-q,ulysses")
        assert (of["ulysses"].received_words < of["pass-q"].received_words) == (ranks >= 3)
    step = iosim.links(N, d, P, heads=H, passes="step", schedules="pass-q")["pass-q"]
    forward = iosim.links(N, d, P, heads=H, schedules="pass-q")["pass-q"]
    assert step.received_words == found["pass-q"].received_words + forward.received_words
    few = iosim.links(64, 16, 8, Nk=8192, heads=8, kv_heads=8, passes="backward", schedules="pass-q")["pass-q"]
    assert (few.ratio_to_floor, few.theorem) == (1.0, "P3")


@pytest.mark.parametrize("layout, share", [("ring", 1 / 2), ("zigzag", 3 / 4)])
def test_only_needed_keys_and_gradients(layout, share):
    """Half of the keys with tokens in order, 3/4 in zigzag order; and both floors are met by large groups."""
    for kind, beta in (("backward", 4), ("step", 6)):
        found = iosim.links(8192, 16, 4, heads=64, kv_heads=2, mask="causal", passes=kind,
                            schedules=f"{layout},{layout}-needed")  # fmt: skip
        whole, needed = found[layout], found[f"{layout}-needed"]
        assert whole.received_words == 3 * 8192 * 2 * beta * 16 and whole.needed_to_sent == share
        assert needed.received_words == whole.needed_words == share * whole.received_words
        if kind == "backward":
            assert (needed.ratio_to_floor, needed.theorem) == (
                1.0,
                f"causal {'blocks' if layout == 'ring' else layout}",
            )


@pytest.mark.parametrize(
    "mask", ["dense", "causal", "causal&window:5", "documents:10,14", "global:3", "documents:4,20&causal"]
)
@pytest.mark.parametrize("kind", ["forward", "backward", "step"])
def test_what_a_mesh_needs(kind, mask):
    """Token by token: a row for each GPU of its row of the mesh that has a key that it sees, and so for a key."""
    scheme = PASSES[kind]["mesh"]
    for t in cases(kind, "mesh", mask):
        p, b, rows, keys = t.problem, t.keys_apart, 0, 0
        for r in range(t.ranks):
            mine = np.arange(r // b * b * t.n, (r // b + 1) * b * t.n)
            columns = np.concatenate([np.arange(s * t.nk, (s + 1) * t.nk) for s in range(r % b, t.ranks, b)])
            seen = t.all_visible[np.ix_(mine, columns)]
            rows += int((seen.any(axis=1) & (mine // t.n != r)).sum()) * p.heads
            keys += int((seen.any(axis=0) & (columns // t.nk != r)).sum()) * p.kv_heads
        forward = {"Q": rows * p.d, "Opart": rows * p.dv, "LSEpart": rows, "K": keys * p.d, "V": keys * p.dv}
        back = {"dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}
        back |= {"dKpart": keys * p.d, "dVpart": keys * p.dv}
        ahead = {name: forward[name] for name in "QKV"}
        wanted = {"forward": forward, "backward": {**back, **ahead}, "step": {**forward, **back}}[kind]
        found = needed(scheme, t, links_by_hand.arrivals(scheme, t).found)
        assert +Counter(found) == +Counter(wanted)
        assert all(found[name] <= words for name, words in links_by_hand.words(scheme, t).items())
        assert mask != "dense" or +Counter(found) == links_by_hand.words(scheme, t)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["forward", "backward", "step"])
def test_what_a_ring_of_groups_needs(kind, mask):
    """Of keys that go round those that a row of the other group sees, as where only these are sent. Words that a group
    exchanges are whole tokens: a mask leaves out none of them."""
    for name in ("ring", "zigzag", "ring-coded", "ulysses", "usp", "usp-zigzag"):
        scheme, groups = PASSES[kind][name], 0
        for t in cases(kind, name, mask):
            if t.layout != "blocks" and mask != "causal":
                continue
            ahead = links_by_hand.forward_words(f"{name}-needed", t) if kind != "backward" else {}
            back = links_by_hand.backward_words(f"{name}-needed", t, kind == "step") if kind != "forward" else {}
            found = needed(scheme, t, links_by_hand.arrivals(scheme, t).found)
            assert +Counter(found) == +(Counter(ahead) + Counter(back)), (name, t)
            groups += t.apart > 1
        assert groups or name not in ("ulysses", "usp")


@pytest.mark.parametrize("mask", MASKS)
def test_what_rows_that_go_round_need(mask):
    scheme = PASSES["backward"]["pass-q"]
    for t in cases("backward", "pass-q", mask):
        seen = t.all_visible.reshape(t.problem.N, t.ranks, t.nk).any(axis=2)
        rows = sum(
            int(seen[r * t.n : (r + 1) * t.n].sum() - seen[r * t.n : (r + 1) * t.n, r].sum()) for r in range(t.ranks)
        )
        found = Counter(needed(scheme, t, links_by_hand.arrivals(scheme, t).found))
        assert found["LSE"] == found["D"] == rows * t.problem.heads and found["Q"] == found["dQpart"]


def test_what_has_no_backward_pass():
    with pytest.raises(InputError, match="with --pass backward"):
        iosim.links(1, 8, 4, Nk=64, passes="backward", schedules="tree")
    with pytest.raises(InputError, match="--latent"):
        iosim.links(64, 8, 4, passes="step", latent=True, dv=4)
    with pytest.raises(InputError, match="--pass"):
        iosim.links(64, 8, 4, passes="both")
