"""A grid is described, not listed, and any cut of it has the same rows: in parts, in processes, in files of any form."""

import pickle
import tracemalloc
from bisect import bisect_left

import pandas as pd
import pytest

from iosim import sweep
from iosim.core.problem import DENSE
from iosim.counting import sweep as counted
from iosim.counting.sweep import Chunks
from iosim.counting.sweep_axes import build
from iosim.errors import InputError
from iosim.sweeps.parts import Work, make_chunks

GRID = {"N": "64:256:+64", "d": 8, "M": "10,2KB,9KB,17KB,64KB", "mask": "dense;causal;strided:5", "dtype": "fp16,fp32"}


@pytest.fixture
def plan(monkeypatch):
    """A grid whose masks have different numbers of rows, in chunks of some points."""
    monkeypatch.setattr(counted, "CHUNK_ROWS", 20)
    monkeypatch.setattr(counted, "SLOW_POINTS", 3)
    return build(GRID, ("flash1", "flash2-bwd-second-pass"), "best", "1,8", (), page_size="16,32")


@pytest.fixture(scope="module")
def tables():
    """The tables of the chunks of that plan, computed once."""
    return {}


def tables_of(plan, tables):
    if not tables:
        tables.update(enumerate(Chunks(plan)))
    return list(tables.values())


def test_chunks_are_found_by_their_number_and_by_their_rows(plan, tables):
    chunks, firsts, row = Chunks(plan), [], 0
    for number, rows in enumerate(tables_of(plan, tables)):
        assert chunks.first_row(number) == row and 0 < len(rows) <= chunks.most_rows
        firsts.append(row)
        row += len(rows)
    assert row == plan.rows == chunks.first_row(len(chunks)) and len(chunks) == len(firsts) > 50
    assert [chunks.at_row(k) for k in range(row + 1)] == [bisect_left(firsts, k) for k in range(row + 1)]


def test_rows_do_not_depend_on_chunks(plan, tables, monkeypatch):
    pieces = pd.concat([rows.to_frame() for rows in tables_of(plan, tables)], ignore_index=True)
    monkeypatch.undo()
    whole = pd.concat([rows.to_frame() for rows in Chunks(plan)], ignore_index=True)
    assert pieces.to_csv() == whole.to_csv()
    assert list(whole["mask"].unique()) == ["dense", "causal", "strided:5"]


@pytest.mark.parametrize("part_rows", [1, 77, 10**9])
def test_parts_have_every_chunk_once(plan, part_rows):
    work = Work(plan, "csv", part_rows)
    parts = [work.chunks_of(part) for part in range(len(work))]
    assert [k for part in parts for k in part] == list(range(len(work.chunks))) and all(parts)
    assert len(work) == 1 or all(
        work.rows_of_part - work.chunks.most_rows <= sum(len(rows) for rows in make_chunks(work, part))
        for part in range(min(3, len(work) - 1))
    )


def test_a_thousand_million_points_are_a_small_object():
    tracemalloc.start()
    plan = build({"N": "1024:8191:+7", "d": "8:8192:+8", "M": "1024:1048576:+1024"}, "flash1,flash2", "128x64")
    work = Work(plan, "csv")
    last = work.chunks[len(work.chunks) - 1].to_frame()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.points == 2**30 and work.rows == 2**31 and len(work) == 2**14
    assert (last["N"].iloc[-1], last["d"].iloc[-1], last["M_bytes"].iloc[-1]) == (1024 + 7 * 1023, 8192, 2**20)
    assert len(pickle.dumps(work)) < 20_000 and most < 50e6
    assert last["total"].iloc[-1] == sweep(N=8185, d=8192, M=2**20, schedules="flash2", tiles="128x64")["total"][0]


def test_what_cannot_be_in_memory_is_refused_by_the_function():
    with pytest.raises(InputError, match="in memory"):
        sweep(N="1:10000:+1", d="1:10000:+1", M="1KB")
    with pytest.raises(InputError, match="at most 1000000000000"):
        build({"N": "1:100000:+1", "d": "1:100000:+1", "M": "1:1000:+1"})


def test_the_mask_that_hides_nothing_stays_itself_in_another_process():
    assert pickle.loads(pickle.dumps(DENSE)) is DENSE
