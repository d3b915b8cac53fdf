"""Lines of a sweep have the bytes that `str`, `repr`, pandas and json give."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from iosim.cells import Cells, Chunk
from iosim.counting import sweep
from iosim.counting.sweep_axes import build
from iosim.errors import InputError
from iosim.sweeps import row_text
from iosim.sweeps.parts import Work
from iosim.sweeps.run import write_file


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(sweep, "CHUNK_ROWS", 9_000)


PLANS = {
    "as they come": build({"N": "100:900:+100", "d": [16, 64], "M": "4KB:64KB:x4"}),
    "nothing fits": build({"N": [64, 4096], "d": [64, 512], "M": [8, 64, 2048, "100KB"]}),
    "without M": build({"N": "1:20:+1", "d": 8}, ["flash1", "standard"], "16x16"),
    "masks": build({"N": [64, 96], "d": 8, "M": "2KB", "mask": ["causal", "window:4&causal", "dense"]}),
    "options": build({"N": [64, 96], "d": 8, "M": "2KB"}, ["split-kv", "small-cache"], lse=True, splits=[1, 3], gqa="pack"),
    "counts above 2^63": build({"N": [64, 2**40], "d": 2**10, "M": "1MB"}, ["flash2", "standard"], "64x64"),
    "several chunks": build({"N": "1:6000:+1", "d": 8, "M": "2KB"}, ["flash1", "flash2"], "16x16"),
    "one column, with gaps": build({"N": [64, 4096], "d": 64, "M": [8, "9KB"]}, columns=("ratio_to_floor",)),
    "a column of texts": build({"N": [64, 4096], "d": 64, "M": [8, "9KB"]}, columns=("schedule", "Br")),
}  # fmt: skip


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_lines_are_those_of_pandas_and_json(plan, tmp_path):
    parts = [rows.to_frame() for rows in sweep.Chunks(plan)]
    write_file(Work(plan, "csv"), str(tmp_path / "out.csv"))
    wanted = "".join(p.to_csv(index=False, header=k == 0, lineterminator="\n") for k, p in enumerate(parts))
    assert (tmp_path / "out.csv").read_text() == wanted
    write_file(Work(plan, "jsonl"), str(tmp_path / "out.jsonl"))
    rows = [row for p in parts for row in p.astype(object).where(p.notna(), None).to_dict("records")]
    wanted = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    assert (tmp_path / "out.jsonl").read_text() == wanted


def test_every_float_and_integer_is_written_as_python_writes_it():
    chance = np.random.default_rng(7)
    floats = np.concatenate([chance.random(2_000), 10 ** chance.uniform(-8, 18, 2_000), [0.0, 5e-324, -1.5, 1e22, 0.3]])
    integers = chance.integers(0, 2**63 - 1, len(floats)) >> chance.integers(0, 63, len(floats))
    rows = Chunk({"x": Cells.full(floats), "%s": Cells.full(integers)})
    texts = [(repr(x), str(n)) for x, n in zip(floats.tolist(), integers.tolist(), strict=True)]
    assert row_text.lines_of_csv(rows).decode() == "".join(f"{x},{n}\n" for x, n in texts)
    assert row_text.lines_of_json(rows).decode() == "".join(f'{{"x":{x},"%s":{n}}}\n' for x, n in texts)


def test_texts_are_quoted_where_they_must_be():
    masks = Cells.full(np.array([0, 1]), ('file:a,"b".txt', "file:é.txt"))
    rows = Chunk({"mask": masks, "n": Cells.of([-1, 10**30])})
    frame = rows.to_frame()
    assert row_text.lines_of_csv(rows).decode() == frame.to_csv(index=False, header=False, lineterminator="\n")
    assert [json.loads(line) for line in row_text.lines_of_json(rows).splitlines()] == frame.to_dict("records")


@pytest.mark.needs("pyarrow")
def test_parquet_is_written_in_groups(tmp_path, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr(sweep, "PART_ROWS", 5_000)
    plan, out = PLANS["several chunks"], str(tmp_path / "out.parquet")
    write_file(Work(plan, "parquet"), out)
    assert parquet.ParquetFile(out).num_row_groups > 1
    read, wanted = pd.read_parquet(out), pd.concat([rows.to_frame() for rows in sweep.Chunks(plan)], ignore_index=True)
    pd.testing.assert_frame_equal(read, wanted, check_dtype=False, check_categorical=False)


@pytest.mark.needs("pyarrow")
def test_counts_that_int64_does_not_hold_are_decimals_in_parquet(tmp_path):
    plan, out = PLANS["counts above 2^63"], str(tmp_path / "out.parquet")
    write_file(Work(plan, "parquet"), out)
    wanted = pd.concat([rows.to_frame() for rows in sweep.Chunks(plan)])
    assert list(map(int, pd.read_parquet(out)["flops"])) == list(wanted["flops"]) and max(wanted["flops"]) > 2**63
    with pytest.raises(InputError, match="38 digits"):
        write_file(Work(build({"N": 2**48, "d": 2**40}, ["flash2"], "64x64"), "parquet"), out)


@pytest.mark.needs("pyarrow")
def test_memory_does_not_grow_with_a_sweep_to_parquet(tmp_path):
    """A million rows take at most 150 MB more than a hundred thousand; all of them at once would take 370 MB."""
    code = """
import resource, sys
from iosim.counting.sweep_axes import build
from iosim.sweeps.parts import Work
from iosim.sweeps.run import write_file
plan = build({"N": list(range(1000, 1000 + int(sys.argv[1]))), "d": [64, 128], "M": "16KB:266KB:+1KB"}, ["flash1", "flash2"], "128x64")
write_file(Work(plan, "parquet"), sys.argv[2])
print(plan.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    said = [
        subprocess.check_output([sys.executable, "-c", code, str(n), str(tmp_path / "out.parquet")])
        for n in (100, 1000)
    ]
    (few, little), (many, much) = (map(int, text.split()) for text in said)
    assert few > 100_000 and many > 1_000_000 and much - little < 150 * 1024


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+cmd", "-1", "@sum", "\ttab"])
def test_texts_that_begin_as_formulas_are_written_as_texts(text):
    found = row_text.header(["name", "n"]) + row_text.lines_of_csv(
        Chunk({"name": Cells.of([text]), "n": Cells.of([-3])})
    )
    assert list(csv.DictReader(io.StringIO(found.decode()))) == [{"name": "'" + text, "n": "-3"}]
