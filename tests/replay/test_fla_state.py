"""Attention with a state in flash-linear-attention 0.6.0: words of every launch, and what an H100 moved beside them."""

import csv
import os

import fla_state
import pytest
from paths import ROOT

FOLDER = ROOT / "validation" / "kernels"
ROWS = fla_state.own(fla_state.read_rows(FOLDER))
with (FOLDER / "fla_h100.csv").open(newline="") as file:
    H100 = list(csv.DictReader(file))
WORDS = {(row["call"], row["kernel"]): row for row in ROWS}
TOKENS = 8192 * 16  # of all heads
STEPS = 128 * 16


@pytest.mark.parametrize(
    "call, reads, writes",
    [("gdn", 2250.0625, 811), ("deltanet", 2296, 874), ("simple-gla", 1682.25, 387), ("linear", 1664, 386),
     ("linear-fused", 768, 258), ("gla", 3988, 561.5), ("kda", 5712.75, 1107)],
)  # fmt: skip
def test_words_of_a_token_and_value_head(call, reads, writes):
    own = [row for row in ROWS if row["call"] == call]
    assert (sum(row["reads"] for row in own) / TOKENS, sum(row["writes"] for row in own) / TOKENS) == (reads, writes)


def test_words_of_a_step_of_decoding():
    """The state is read and written once. GDN reads q and k for each of 16 blocks of 8 columns."""
    (row,) = (row for row in ROWS if row["call"] == "gdn-decode")
    state = 128 * 128
    assert row["reads"] + row["writes"] == 37_152 * STEPS
    assert row["reads"] == (state + 16 * (2 * 128 + 2) + 128) * STEPS and row["writes"] == (state + 128) * STEPS


# Launches whose loads reach the L1 more than once for some of their words.
MORE_SECTORS = {
    "gdn": {"kkt", "o"}, "deltanet": {"inverse"}, "simple-gla": {"o"}, "kda": {"inter", "w and u", "o"},
    "gla": {"h", "inter", "intra", "o"}, "linear-decode": {"step"},
}  # fmt: skip


def test_an_h100_moved_the_counted_sectors():
    """Loads over words and over sectors are given with two or more decimals. Their quotient is what is counted, sectors
    over words."""
    assert {(row["call"], row["kernel"]) for row in H100} == {*WORDS}
    for row in H100:
        said = WORDS[row["call"], row["kernel"]]
        words, sectors = float(row["read_over_words"]), float(row["read_over_sectors"])
        off = (0.005 + 0.005 * words / sectors) / sectors
        assert said["read_sectors"] / said["read_bytes"] == pytest.approx(words / sectors, abs=off), row
    more = {(row["call"], row["launch"]) for row in H100 if float(row["read_over_sectors"]) > 1.005}
    assert more == {(call, launch) for call, launches in MORE_SECTORS.items() for launch in launches}


def test_an_h200_moved_what_the_h100_did():
    """Loads differ by at most 0.8 %, where the L1 serves some of them."""
    for row in H100:
        found = WORDS[row["call"], row["kernel"]]
        assert fla_state.ratio(found, "loads / words") == pytest.approx(
            float(row["read_over_words"]), rel=0.008, abs=0.005
        )
        assert fla_state.ratio(found, "stores / words") == pytest.approx(float(row["written_over_words"]), abs=0.05)


def test_an_h200_moved_the_counted_sectors():
    """Stores to the byte, but for one launch of GLA. Loads of 18 of 31 launches to the byte; no launch loads less, nor
    reads from DRAM less than its distinct words."""
    own = [row["kernel"] for row in ROWS if row["stores"] != row["write_sectors"]]
    assert own == ["chunk_gla_fwd_A_kernel_intra_sub_intra"]
    exact = [row for row in ROWS if row["loads"] == row["read_sectors"]]
    assert (len(exact), len(ROWS)) == (18, 31) and all(row["loads"] >= row["read_sectors"] for row in ROWS)
    assert all(1 <= fla_state.ratio(row, "DRAM / distinct") < 1.05 for row in ROWS)


def test_the_l1_is_asked_for_what_explain_says():
    """All loads of 31 launches to the byte. In 13 the L1 is asked for some words several times: `o` loads its 64 gates, each
    in a sector of its own, as rows of two products, over 4 of 8 warps, and as columns that all 8 have."""
    assert [row["loads"] for row in ROWS] == [row["asked_of_l1"] for row in ROWS] and len(ROWS) == 31
    more = {(row["call"], row["kernel"]): row["asked_of_l1"] - row["read_sectors"] for row in ROWS}
    assert sum(size > 0 for size in more.values()) == 13
    gates, programs = 64 * 32, 128 * 16
    assert more["gdn", "chunk_fwd_kernel_o"] == more["simple-gla", "chunk_fwd_kernel_o"] == 11 * gates * programs
    assert more["gdn", "chunk_gated_delta_rule_fwd_kkt_solve_kernel"] == gates * programs


@pytest.mark.long
@pytest.mark.needs("triton")
@pytest.mark.needs("torch")
@pytest.mark.needs("fla")
@pytest.mark.parametrize("call", ["linear-fused", "gdn-decode"])
def test_kept_words_are_those_of_today(call, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    for found in fla_state.explained(call):
        assert {name: WORDS[call, found["kernel"]][name] for name in found} == found
