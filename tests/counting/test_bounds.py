"""A statement about dense attention is no statement about a masked one; an order ends where the inputs are more."""

import csv
import io

import pytest

from iosim import count
from iosim.counting.bounds import SEARCHED

MASKED = ["block-sparse-q", "flash1-bwd"]


@pytest.mark.parametrize("schedule", MASKED)
def test_under_a_mask_nothing_is_proven(schedule):
    dense = count(4096, 64, "64KB", schedules=[schedule]).bounds
    masked = count(4096, 64, "64KB", schedules=[schedule], mask="window:0").bounds
    assert [b.name for b in dense] == [b.name for b in masked] and len(dense) >= 3
    for before, after in zip(dense, masked, strict=True):
        assert before.valid
        if after.kind == SEARCHED:
            assert after.valid and after.condition == before.condition
        else:
            assert after.valid is False and after.condition == f"dense attention; {before.condition}"


def test_a_floor_that_holds_is_never_above_what_is_counted():
    for mask in ("dense", "causal", "window:0", "global:1", "strided:64"):
        found = count(256, 64, "64KB", schedules=["block-sparse-q"], tiles="4x4", mask=mask)
        floors = [b.words for b in found.bounds if b.kind == "floor" and b.valid]
        assert len(floors) == (mask == "dense") and all(words <= found.results[0].total for words in floors)
    sparse = count(2048, 64, "64KB", schedules=["block-sparse-q"], tiles="4x4", mask="window:0 & global:8")
    assert sparse.results[0].total < sparse.bounds[0].words, "which is why"


@pytest.mark.parametrize("M, valid", [(64 * 512, True), (64 * 512 + 1, False)])
def test_no_order_beyond_Nd(M, valid):
    found = {b.name: b for b in count(512, 64, f"{M}el", schedules=["flash2"]).bounds}
    for name in ("N^2 d^2 / M", "Saha and Ye 2024"):
        assert (found[name].valid is valid and "M <= Nd" in found[name].condition) or valid
    assert found["compulsory"].valid


def test_attainable_is_of_what_was_counted():
    one = {b.name: b for b in count(512, 64, "64KB", schedules=["flash1"]).bounds}["attainable"]
    assert "counted here" in one.source


def test_detail_in_csv(iosim):
    args = ("count", "--N", 64, "--d", 8, "--M", "4KB", "--schedule", "flash1", "--detail", "--csv")
    rows = list(csv.DictReader(io.StringIO(iosim(*args).stdout)))
    for tiling in ("paper", "best"):
        here = [row for row in rows if row["tiling"] == tiling]
        total = count(64, 8, "4KB", schedules=["flash1"])["flash1", tiling].reads
        assert {row["part"] for row in here} == {*(f"tensor {x}" for x in "QKVOlm"), "step 1"}
        for kind in ("tensor", "step"):
            assert sum(int(row["reads"]) for row in here if row["part"].startswith(kind)) == total
        assert all(row["N"] == "64" and row["Br"] for row in here)
