"""`iosim links`: floors met to the word, crossovers on both sides, sentences, nodes, bad input, and speed."""

import csv
import io
import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import iosim
from iosim.distributed.answer import floor_text
from iosim.distributed.arrivals import Load
from iosim.distributed.counted import STATISTICS, Machines, Split
from iosim.distributed.schedules import PASSES, splits_of
from iosim.errors import InputError
from iosim.masks import parse_mask

LLAMA = {"N": 131072, "d": 128, "heads": 32, "kv_heads": 8}


@pytest.fixture(scope="module")
def llama():
    return iosim.links(ranks=8, mask="causal", hardware="h100", **LLAMA)


# ---------------------------------------------------------------- floors


def test_the_schemes_of_the_theorem_meet_it_to_the_word():
    """P3: the ring from g = P - 1 on, Ulysses below, and passing Q with few queries; each on a problem of its own."""
    for heads, name in ((56, "ring"), (56, "all-gather"), (56, "ulysses"), (48, "ulysses"), (8, "ulysses")):
        r = iosim.links(4096, 16, 8, heads=heads, kv_heads=8)[name]
        assert (r.ratio_to_floor, r.theorem, r.received_words) == (1.0, "P3", r.floor_words), (heads, name)
    few = iosim.links(64, 16, 8, Nk=8192, heads=8, kv_heads=8)["pass-q"]
    assert (few.ratio_to_floor, few.theorem) == (1.0, "P3")
    assert few.received_words - few.tensors["LSEpart"] == few.floor_words


def test_the_mesh_meets_the_floor_of_balanced_work():
    """N = 65,536 and d = 128, one head on 64 GPUs: 3,670,016 words a GPU, where a ring has 16,515,072."""
    found = iosim.links(65536, 128, 64)
    mesh, ring = found["mesh"], found["ring"]
    assert (mesh.split, mesh.theorem, f"{mesh.ratio_to_floor:.3f}") == ("8 rows x 8 columns", "P1", "1.000")
    assert mesh.received_words - mesh.tensors["LSEpart"] == mesh.floor_words == 64 * 3_670_016
    assert ring.mean_received_words == 16_515_072 and ring.ratio_to_floor == 4.5


def test_a_ring_of_nodes_meets_the_floor_of_nodes():
    """P3 for 4 nodes: g = 8 >= 3, so heads within a node and keys round the nodes is the least between nodes."""
    usp = iosim.links(8192, 16, nodes="4x8", heads=64, kv_heads=8, schedules="usp")["usp"]
    assert usp.split == "heads 8 x ring 4"
    assert (usp.ratio_to_node_floor, usp.node_theorem, usp.node_words) == (1.0, "P3", 3 * 8192 * 8 * 32)


@pytest.mark.parametrize("mask", ["dense", "causal", "causal&window:100"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_nothing_is_below_its_floor(mask, ranks):
    for heads, kv_heads in ((8, 8), (16, 2), (8, 1)):
        found = iosim.links(1024, 8, ranks, heads=heads, kv_heads=kv_heads, mask=mask)
        ratios = [r.ratio_to_floor for r in found.results if r.ratio_to_floor is not None]
        assert min(ratios, default=1) >= 1 and (ratios or "window" in mask)


# ---------------------------------------------------------------- crossovers


@pytest.mark.parametrize("P", [2, 4, 8])
def test_the_ring_beats_ulysses_from_g_on(P):
    for g in range(1, 2 * P):
        found = iosim.links(1024, 8, P, heads=8 * g, kv_heads=8, schedules="ring,ulysses")
        (by_g, by_P, _), ring, ulysses = found.crossings, found["ring"], found["ulysses"]
        assert (ring.received_words <= ulysses.received_words) == (g >= by_g.least) == (by_P.most >= P)
        assert by_g.least == P - 1 and by_g.here == g and by_P.most == g + 1


# ---------------------------------------------------------------- what a row says


def test_published_shares(llama):
    """A contiguous causal ring is at most P / (2 P - 1) busy, 53.3 % for 8 GPUs; it needs half of what it sends."""
    assert llama["ring"].balance == pytest.approx(8 / 15, abs=1e-5) and llama["zigzag"].balance == 1
    needed = {name: llama[name].needed_to_sent for name in ("ring", "zigzag", "striped", "all-gather", "ring-coded")}
    assert needed == pytest.approx({"ring": 0.5, "zigzag": 0.75, "striped": 0.99997, "all-gather": 0.5,
                                    "ring-coded": 0.4375}, abs=1e-5)  # fmt: skip
    assert llama["ring-needed"].received_words * 2 == llama["ring"].received_words
    assert llama["ring"].mean_received_words == 7 * 16384 * 8 * 256


def test_seconds_are_those_of_the_peaks(llama):
    ring, h100 = llama["ring"], llama.machines
    assert ring.link_seconds == ring.largest_received_bytes / 450e9
    assert ring.arithmetic_seconds == ring.largest_flops / 989.4e12
    pairs = 131072 * 131073 // 2
    assert ring.flops == 2 * 256 * pairs * 32 and h100.memory_bytes == 80 * 2**30
    assert llama.best.schedule == "ulysses"


@pytest.mark.parametrize("nodes", [None, "2x4"])
def test_what_is_exchanged_hides_behind_nothing(nodes):
    """usp in groups of u GPUs on r nodes: Q, O, K and V of a group, and (r - 1) shards of u GPUs in hops, by hand."""
    rates = {"link": "450GB", "network": "50GB", "hardware": "h100", "nodes": nodes}
    found = iosim.links(65536, 128, 8, heads=32, kv_heads=8, schedules="ring,usp,ulysses,mesh", **rates)
    usp, n = found["usp"], 65536 // 8
    u, r = (int(part.split()[-1]) for part in usp.split.split(" x "))
    assert u * r == 8
    exchanged = (u - 1) * n * 2 * (32 // u * 256 + 8 // u * 256)
    hops = (r - 1) * u * n * (8 // u) * 256 * 2
    assert exchanged + hops == usp.largest_received_bytes
    assert usp.exchange_seconds == pytest.approx(exchanged / 450e9)
    assert usp.hop_seconds == pytest.approx(hops / (50e9 if nodes else 450e9))
    for one in found.results:
        assert one.seconds == one.exchange_seconds + max(one.hop_seconds, one.arithmetic_seconds, one.hbm_seconds)
    assert found["ring"].exchange_seconds == 0 and found["ulysses"].hop_seconds == found["mesh"].hop_seconds == 0
    assert found["ulysses"].exchange_seconds == pytest.approx(found["ulysses"].link_seconds, rel=0 if not nodes else 1)


@pytest.mark.parametrize("of", ["forward", "backward", "step"])
def test_what_comes_from_other_nodes_is_summed_pair_by_pair(of):
    """For every scheme and split, and nodes of every size: words that are counted for many senders and GPUs at once."""
    tried = set()
    for name, scheme in PASSES[of].items():
        for mask in ("dense", "causal", "window:5"):
            p = iosim.Attention(24, 2, heads=12, kv_heads=3, mask=parse_mask(mask))
            for t in splits_of(scheme, p, 12):
                for node in (1, 2, 3, 4, 6):
                    split = Split(scheme, t, Machines(12, node))
                    each = [pair_by_pair(split, r, node) for r in range(12)]
                    assert split.each == each, (name, mask, t.apart, t.keys_apart, node)
                    tried.add((name, node))
    assert len(tried) == 5 * len(PASSES[of])


def pair_by_pair(split, r, node):
    """What a GPU receives, sender by sender."""
    found, apart, hops = [0] * 7, split.t.apart, split.rings
    for arrival in split.loads.arrivals(r):
        for sender in arrival.senders:
            words = arrival.of(sender) * (sender != r)
            far, exchanged = sender // node != r // node, not hops or sender // apart == r // apart
            moved, free = words * split.widths[arrival.tensor], words * (arrival.tensor in STATISTICS)
            more = words, moved, far * words, far * moved, far * free, exchanged * moved, far * exchanged * moved
            found = [one + n for one, n in zip(found, more, strict=True)]
    return tuple(found)


def test_a_thousand_gpus_are_asked_about_few_senders(monkeypatch):
    """Words are counted for many senders at once: 2^20 tokens on 1,024 GPUs, in one node and in 128."""
    asked = []
    to = Load.to
    monkeypatch.setattr(Load, "to", lambda *about: asked.append(about) or to(*about))
    for where in ({"ranks": 1024}, {"nodes": "128x8"}):
        iosim.links(2**20, 128, heads=32, kv_heads=8, mask="causal", hardware="h100", **where)
    assert 0 < len(asked) < 2**15


@pytest.mark.parametrize("where", ["--ranks 1024", "--nodes 128x8"])
def test_a_thousand_gpus_need_no_numpy(where):
    """Its import takes as long as `iosim count`."""
    line = f"iosim links {where} --N 1048576 --d 128 --heads 32 --kv-heads 8 --causal --hardware h100"
    code = f"import sys; sys.argv = {line.split()}; from iosim.__main__ import main; main()"
    code = f"import atexit; atexit.register(lambda: print('numpy' in sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nFalse\n") and "usp-zigzag" in done.stdout


@pytest.mark.parametrize("nodes, theorem", [("4x8", "causal zigzag"), ("2x16", None)])
def test_groups_in_zigzag_order_have_floors_of_their_own(nodes, theorem):
    """A GPU has a block of one chunk; a node has the two chunks of its group, if it is one group."""
    row = iosim.links(16384, 16, nodes=nodes, heads=64, kv_heads=8, mask="causal", schedules="usp-zigzag")["usp-zigzag"]
    assert row.theorem in ("causal blocks", "P4") and row.ratio_to_floor >= 1 and row.balance == 1
    assert row.node_theorem == theorem if row.split == "heads 8 x ring 4" else True
    assert row.ratio_to_node_floor is None or row.ratio_to_node_floor >= 1


@pytest.mark.parametrize("mask, times", [("dense", 1), ("causal", 2)])
def test_a_hop_hides_from_the_formula_of_the_page(mask, times):
    """S/P >= (G/H) w F / (2 B) without a mask, and twice that with a causal one."""
    found = iosim.links(ranks=8, mask=mask, hardware="h100", **LLAMA)["ring"]
    formula = times * (8 / 32) * 2 * 989.4e12 / (2 * 450e9)
    assert found.hides_from_tokens == pytest.approx(formula, abs=2)


def test_the_memory_of_a_ring_by_hand():
    """Q, O, l and m of N / P tokens and two shards of K and V, O, l and m in fp32."""
    ring = iosim.links(ranks=8, hardware="h100", **LLAMA)["ring"]
    n = 131072 // 8
    assert ring.memory_bytes == n * 32 * (128 * 2 + 128 * 4 + 8) + 2 * n * 8 * 256 * 2 and ring.fits
    assert iosim.links(ranks=8, hardware="h100", memory="100MB", **LLAMA)["ring"].fits is False


def test_keys_of_a_narrow_type_take_less_memory():
    """Q, O, l and m of 1,024 tokens in 2 bytes, and two shards of K and V in 1."""
    ring = iosim.links(65536, 128, 64, kv_dtype="fp8", schedules="ring")["ring"]
    assert ring.memory_bytes == 1024 * (128 * 2 + 2) * 2 + 2 * 1024 * 256


def test_what_fits_wins():
    found = iosim.links(ranks=8, memory="400MB", **LLAMA)
    fitting = {r.schedule for r in found.results if r.fits}
    assert fitting == {r.schedule for r in found.results if r.memory_bytes <= 400 * 2**20} != set()
    assert found.best.schedule in fitting and len(fitting) < len(found.results)


@pytest.mark.parametrize(
    "memory, split", [(None, "2 rows x 4 columns"), ("4200KiB", "4 rows x 2 columns"), ("1KiB", "2 rows x 4 columns")]
)
def test_the_split_that_receives_least_is_taken_of_those_that_fit(memory, split):
    """2 x 4 GPUs receive 2,240,512 B and need 4,384 KiB; 4 x 2 receive 2,494,464 B and need 4,112 KiB."""
    found = iosim.links(8192, 128, 8, Nk=10240, acc_dtype="fp32", schedules="mesh", memory=memory)["mesh"]
    room = {"2 rows x 4 columns": (2240512, 4489216), "4 rows x 2 columns": (2494464, 4210688)}
    assert found.split == split and (found.largest_received_bytes, found.memory_bytes) == room[split]


def test_a_split_that_cannot_be_counted_leaves_out_no_other():
    """Rings of 512 GPUs are too long for a window in zigzag order; the best of the others receives least."""
    given = {"N": 4096, "d": 8, "ranks": 1024, "heads": 32, "kv_heads": 8, "mask": "window:64", "hardware": "h100"}
    assert iosim.links(**given, schedules="usp-zigzag")["usp-zigzag"].split == "heads 8 x ring 128"
    with pytest.raises(InputError, match="found 512"):
        iosim.links(**given, schedules="usp-zigzag:2x512")


@pytest.mark.parametrize("memory", ["1KB", "300MB", "400MB", "1GB"])
@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_memory_that_is_not_kept_to_is_no_reason_for_a_floor(memory, mask):
    """P2 holds for schedules that fit, so a row that does not is not below its floor."""
    for r in iosim.links(ranks=8, memory=memory, mask=mask, **LLAMA).results:
        assert r.ratio_to_floor >= 1 and (r.fits or r.theorem != "P2")


def test_a_window_is_counted_in_every_layout(iosim):
    """131,072 tokens: no pair of tokens is looked at, and what comes is what the windows of a GPU's rows reach."""
    options = "--ranks 8 --N 131072 --d 128 --heads 32 --kv-heads 8 --mask causal&window:4096 --csv"
    rows = {row["schedule"]: row for row in csv.DictReader(io.StringIO(iosim("links", *shlex.split(options)).stdout))}
    assert int(rows["ring-needed"]["received_words"]) == 7 * 4096 * 8 * 256
    assert int(rows["zigzag-needed"]["received_words"]) == 14 * 4096 * 8 * 256
    assert len(rows) == 14 and all(row["needed_words"] for row in rows.values())


def test_packed_documents_are_counted_row_by_row():
    """131,072 tokens: two documents of half the tokens, then one that is three quarters of them."""
    sizes = {"N": 131072, "d": 128, "ranks": 8, "heads": 32, "kv_heads": 8}
    two = iosim.links(mask="documents:65536,65536", **sizes)
    assert two["ring-needed"].received_words == 8 * 3 * 16384 * 8 * 256 and two["ring"].balance == 1
    assert two["mesh"].needed_words < two["mesh"].received_words
    one = iosim.links(mask="causal&documents:98304,32768", **sizes)
    pairs = 98304 * 98305 // 2 + 32768 * 32769 // 2
    assert one["ring"].flops == 2 * 256 * 32 * pairs
    needed = sum(range(6)) + 1  # GPUs 0 to 5 have the first document
    assert one["ring-needed"].received_words == needed * 16384 * 8 * 256


def test_a_batch_is_so_many_sequences():
    one, three = (iosim.links(64, 4, 4, heads=4, batch=b, M="4KB", mask="causal") for b in (1, 3))
    for a, b in zip(one.results, three.results, strict=True):
        for name in ("received_words", "largest_received_bytes", "hbm_words", "memory_bytes", "flops", "needed_words"):
            assert getattr(b, name) == (None if getattr(a, name) is None else 3 * getattr(a, name)), name
        assert b.floor_words is None or b.floor_words >= 3 * a.floor_words


@pytest.mark.parametrize(("P", "kv"), [(2, 4), (4, 2), (8, 1), (16, 1)])
def test_heads_split_over_gpus_are_the_attention_of_one_with_its_heads(P, kv):
    """Tensor parallel: Q, K, V and O of 8 KV heads and 32 query heads over P GPUs; a KV head that several need is in
    each."""
    sizes = {"N": 4096, "d": 64, "mask": "causal", "hardware": "h100"}
    found = iosim.links(ranks=P, heads=32, kv_heads=8, **sizes)
    row, one = found.by_heads, iosim.links(ranks=1, heads=32 // P, kv_heads=kv, **sizes)["ring"]
    assert (row.received_words, row.largest_received_bytes, row.tensors, row.theorem) == (0, 0, {}, None)
    assert (row.memory_bytes, row.hbm_bytes, row.seconds) == (one.memory_bytes, one.hbm_bytes, one.seconds)
    heads = 32 // P
    tensors = 4096 * 64 * (2 * heads + 2 * 2 * kv + 4 * heads)  # Q, K and V; O in the type of accumulators
    assert row.memory_bytes == tensors + 2 * 4096 * heads * 4, "and two statistics of each row"
    assert row.flops == found["ring"].flops and found.best is not row
    assert f"Heads split over {P} GPUs (tensor parallel): 0 words in attention" in found.to_dict()["answer"]
    assert found.to_dict()["by_heads"]["memory_bytes"] == row.memory_bytes


def test_heads_that_do_not_divide_have_no_row_of_their_own():
    """Nor have schemes that are named, nor a backward pass that would add up a KV head's gradients across GPUs."""
    sizes = {"N": 960, "d": 16, "heads": 8, "kv_heads": 4}
    assert iosim.links(ranks=3, **sizes).by_heads is None and iosim.links(ranks=1, **sizes).by_heads is None
    assert iosim.links(ranks=8, **sizes).by_heads and iosim.links(ranks=8, schedules="ring", **sizes).by_heads is None
    assert iosim.links(ranks=8, passes="backward", **sizes).by_heads is None
    assert iosim.links(ranks=4, passes="step", **sizes).by_heads.received_words == 0


def test_decoding(iosim):
    found = iosim("links", *shlex.split("--ranks 8 --N 1 --Nk 65536 --d 128 --heads 32 --kv-heads 8 --csv")).stdout
    rows = {row["schedule"]: row for row in csv.DictReader(io.StringIO(found))}
    assert set(rows) == {"tree", "gathered-q", "tensor parallel"}
    for row in map(rows.get, ("tree", "gathered-q")):
        assert row["theorem"] == "decoding" and float(row["ratio_to_floor"]) == 1
        assert int(row["received_words"]) == 7 * 32 * (128 + 128 + 1)


@pytest.mark.parametrize("causal", ["", "--causal"])
def test_decoding_takes_as_long_as_the_cache_takes_to_read(ask, causal):
    """1M keys of 8 KV heads on 8 GPUs: 512 MiB a GPU, which 64 query heads share, at 3.35 TB/s; by hand."""
    options = f"--ranks 8 --N 1 --Nk 1M --d 128 --heads 64 --kv-heads 8 --hardware h100 {causal}"
    cache = 2**20 // 8 * 8 * 256 * 2
    for row in ask("links", *shlex.split(options))["results"]:
        assert cache < row["hbm_least_bytes"] < 1.001 * cache and cache < row["hbm_bytes"] < 1.001 * cache
        assert row["hbm_seconds"] == row["hbm_least_bytes"] / 3.35e12 > 30 * row["arithmetic_seconds"]
        assert row["seconds"] == row["exchange_seconds"] + row["hbm_seconds"]
    for how, times in (("repeat", 8), ("pack", 1)):
        found = ask("links", *shlex.split(options), "--gqa", how)
        assert not any("implies --gqa" in note for note in found["notes"])
        assert [round(row["hbm_bytes"] / cache, 2) for row in found["results"]] == [times, times]
        assert all(cache < row["hbm_least_bytes"] < 1.001 * cache for row in found["results"])


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_gathered_queries_of_fewer_kv_heads_than_gpus_are_optimal(ask, kv_heads):
    """The rows of a problem lie on several GPUs, and the floor of decoding holds for rows anywhere."""
    found = ask("links", *shlex.split(f"--ranks 8 --N 1 --Nk 65536 --d 128 --heads 32 --kv-heads {kv_heads}"))
    row = next(row for row in found["results"] if row["schedule"] == "gathered-q")
    assert (row["theorem"], row["ratio_to_floor"]) == ("decoding", 1)


@pytest.mark.parametrize("kv, memory, words", [("fp16", "1540KiB", 770 * 2**10), ("fp8", "1028KiB", 1028 * 2**10)])
def test_memory_holds_words_of_the_narrowest_type(ask, kv, memory, words):
    """With just enough memory for a ring, P2 is the largest floor."""
    options = f"--ranks 64 --N 65536 --d 128 --memory {memory} --kv-dtype {kv} --causal --schedule ring"
    (row,) = ask("links", *shlex.split(options))["results"]
    assert row["fits"] and row["theorem"] == "P2" and f"holds {words:,} words" in row["condition"]
    assert row["ratio_to_floor"] > 1


# ---------------------------------------------------------------- forms of the answer


def test_json_csv_and_detail(iosim, ask):
    options = shlex.split("--ranks 4 --N 64 --d 8 --heads 4 --mask causal --schedule ring,zigzag-needed")
    found = ask("links", *options, "--detail")
    pairs = found["pairs"]
    for result in found["results"]:
        own = [pair for pair in pairs if pair["schedule"] == result["schedule"]]
        assert sum(pair["words"] for pair in own) == result["received_words"]
        assert sum(pair["bytes"] for pair in own) == result["received_bytes"]
    assert {(x["sender"], x["receiver"]) for x in pairs if x["schedule"] == "ring"} == {(3, 0), (0, 1), (1, 2), (2, 3)}
    rows = list(csv.DictReader(io.StringIO(iosim("links", *options, "--detail", "--csv").stdout)))
    assert [row["words"] for row in rows] == [str(pair["words"]) for pair in pairs]
    plain = list(csv.DictReader(io.StringIO(iosim("links", *options, "--csv").stdout)))
    assert [row["received_words"] for row in plain] == [str(r["received_words"]) for r in found["results"]]
    assert plain[0]["ranks"] == "4" and plain[0]["heads"] == "4"
    assert json.loads(iosim("links", *options, "--json").stdout).keys() == found.keys() - {"pairs"}


def test_the_function_is_not_the_package():
    from iosim.distributed import floors

    assert callable(iosim.links) and floors.LAYOUTS and isinstance(iosim.links(8, 4, 2), iosim.Links)
    assert repr(iosim.links(8, 4, 2)).startswith("<Links: N = 8, d = 4, 2 GPUs")


# ---------------------------------------------------------------- given splits


@pytest.mark.parametrize("name, splits", [("usp", ["2x4", "4x2"]), ("mesh", ["2x4", "4x2"])])
def test_given_splits_have_a_row_each(name, splits):
    """In the order of the column `split`, with words by hand; the best of them is the row without a split."""
    S, d, H, G, P = 1024, 4, 24, 8, 8
    found = iosim.links(S, d, P, heads=H, kv_heads=G, schedules=[f"{name}:{split}" for split in splits]).results
    for r, (a, b) in zip(found, ((2, 4), (4, 2)), strict=True):
        if name == "usp":
            words, split = S * (H + G) * 2 * d * (a - 1) // a + S * G * 2 * d * (b - 1), f"heads {a} x ring {b}"
        else:
            words, split = S * H * (2 * d + 1) * (b - 1) + S * G * 2 * d * (a - 1), f"{a} rows x {b} columns"
        assert (r.schedule, r.split, r.received_words) == (name, split, words)
    best = iosim.links(S, d, P, heads=H, kv_heads=G, schedules=name)[name]
    assert best.received_words == min(r.received_words for r in found)


# ---------------------------------------------------------------- the best, and what is said of it


def test_of_schemes_with_equal_bytes_the_balanced_one_is_best():
    """g = P: all rings receive the same in their busiest GPU. Those whose GPUs wait are best only among themselves."""
    sizes = {"heads": 64, "kv_heads": 8, "mask": "causal"}
    found = iosim.links(131072, 128, 8, **sizes)
    assert (found.best.schedule, found.best.balance) == ("zigzag-needed", 1) and "wait" not in found.to_dict()["answer"]
    assert "its GPUs wait" in iosim.links(131072, 128, 8, **sizes, schedules="ring").pieces()[0]
    step = iosim.links(131072, 128, 8, heads=64, kv_heads=4, mask="causal", passes="step", hardware="h100")
    assert step.best.schedule == "zigzag-needed" and step.pieces()[0].startswith(
        "Of those that share the work evenly, zig"
    )


def test_nodes_are_asked_of_the_network_first():
    """Ulysses over 4 nodes moves fewer bytes in all, and three times as many between the nodes."""
    sizes = {"heads": 64, "kv_heads": 8, "nodes": "4x8", "schedules": "ring,ulysses,usp-zigzag", "mask": "causal"}
    found = iosim.links(131072, 128, link="450GB", network="50GB", **sizes)
    usp, ulysses = found["usp-zigzag"], found["ulysses"]
    assert found.best is usp and ulysses.network_bytes == 3 * usp.network_bytes
    assert "48 MiB over the network, of 174 MiB," in found.pieces()[0]
    few = replace(ulysses, mean_received_bytes=1, largest_received_bytes=1)
    assert replace(found, results=[usp, few]).best is usp
    step = iosim.links(131072, 128, passes="step", **{**sizes, "schedules": "mesh,usp-zigzag"})
    assert step.best.schedule == "usp-zigzag" and step["mesh"].network_bytes < step["usp-zigzag"].network_bytes


@pytest.mark.parametrize("fits, there", [(True, True), (None, True), (False, False)])
def test_what_does_not_fit_is_not_in_the_verdict(llama, fits, there):
    twin = replace(llama.best, schedule="twin", fits=fits)
    assert ("twin" in replace(llama, results=[*llama.results, twin]).to_dict()["answer"]) == there


def test_only_what_meets_a_floor_is_said_to_be_it(llama):
    """A ratio that rounds to 1.000 is none."""
    ratios = {1.0: "the floor", 1.0004: "1.0004 times the floor", 4.5: "4.500 times the floor"}
    for ratio, said in ratios.items():
        assert floor_text(replace(llama["ulysses"], ratio_to_floor=ratio)) == f"; the mean over GPUs is {said}"
    assert floor_text(replace(llama["ulysses"], ratio_to_floor=None)) == ""


def test_where_nothing_fits_a_note_names_gpus_on_which_something_does():
    found = iosim.links(ranks=8, memory="100MB", **LLAMA)
    more = int(re.search(r"with --ranks (\d+) (\w+) fits", found.notes[-1])[1])
    for ranks, fits in ((more // 2, False), (more, True)):
        assert any(row.fits for row in iosim.links(ranks=ranks, memory="100MB", **LLAMA).results) == fits
    assert "try fewer tokens or heads" in iosim.links(ranks=8, memory="1KB", **LLAMA).notes[-1]
    assert "with --nodes 4x4 ulysses fits" in iosim.links(nodes="2x4", memory="300MB", **LLAMA).notes[-1]


def test_zigzag_order_under_a_window_is_looked_at_for_each_pair_of_gpus():
    given = {"N": 131072, "d": 16, "ranks": 512, "mask": "causal&window:4096"}
    found = iosim.links(**given)
    assert "at most 256" in found.left_out["zigzag"] and "striped" in [row.schedule for row in found.results]
    with pytest.raises(InputError, match="at most 256"):
        iosim.links(**given, schedules="ring,zigzag")


# ---------------------------------------------------------------- bad input


def test_python_refuses_what_the_command_refuses():
    with pytest.raises(InputError, match="--ranks"):
        iosim.links(64, 8)
    with pytest.raises(InputError, match="--kv-scales"):
        iosim.links(64, 8, 4, kv_scales="tensor")
    with pytest.raises(InputError, match="did you mean 'ranks'"):
        iosim.links(64, 8, rank=4)


def test_a_million_tokens_on_a_thousand_gpus():
    """Less than a tenth of a second of computing, and in 128 nodes twice that; the allowance is for a busy machine."""
    iosim.links(2**10, 128, 16, heads=16, mask="causal", hardware="h100")
    start = time.process_time()
    found = iosim.links(2**20, 128, 1024, heads=128, kv_heads=8, mask="causal", hardware="h100")
    assert time.process_time() - start < 1 and len(found.results) == 12
    assert found["ring"].mean_received_words == 1023 * 1024 * 8 * 256


@pytest.mark.parametrize("what", ["forward", "backward", "step"])
def test_a_mask_that_shows_nothing_needs_nothing(what):
    found = iosim.links(N=64, d=8, heads=4, ranks=4, mask="~window:99", hardware="h100", passes=what)
    least = min(found.results, key=lambda one: one.received_words)
    assert least.received_words == 0 and {one.balance for one in found.results} == {1.0}
    assert {one.flops for one in found.results} == {0} and {one.hides_from_tokens for one in found.results} == {None}
