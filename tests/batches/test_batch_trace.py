"""Traces: ten lines are replayed, and every step is the batch that it says it is."""

import csv
import io
import json

import numpy as np
import pytest
from paths import DOCS, ROOT

import iosim
from iosim.batches.trace import Policy, Replay, read_trace, replayed, requests_at
from iosim.errors import InputError

LINES = [
    (1300, 3, [1, 2, 3]), (1500, 5, [1, 2, 4]), (700, 1, [5, 6]), (1024, 2, [1, 2]), (2000, 4, [1, 2, 7, 8]),
    (512, 2, [9]), (513, 2, [9, 10]), (100, 9, [11]), (1400, 2, [1, 2, 3]), (90, 1, []),
]  # fmt: skip
FIELDS = {"d": 16, "heads": 4, "kv_heads": 2, "tiles": "16x8"}
LINE = ["--d", "16", "--heads", "4", "--kv-heads", "2", "--tiles", "16x8"]


@pytest.fixture
def trace():
    path = ROOT / "tests" / "data" / "trace.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["input_length"], row["output_length"], row["hash_ids"]) for row in rows] == LINES
    return str(path)


def steps_of(trace, **policy):
    return [
        (step.new.tolist(), step.tokens.tolist(), step.saved) for step in Replay(read_trace(trace), Policy(**policy))
    ]


def test_the_first_steps_by_hand(trace):
    """1000 new tokens a step and three requests. Blocks have 512 tokens."""
    found = steps_of(trace, max_tokens=1000, max_requests=3)
    # The first input takes two steps: 1000, then 300. The second finds blocks that are whole by then: one of 512.
    assert found[0] == ([1000], [1000], 0)
    assert found[1] == ([300, 700], [1300, 512 + 700], 512)
    # The first decodes its second token. The second has 288 tokens left; the third computes its 700 tokens.
    assert found[2] == ([1, 288, 700], [1301, 1500, 700], 512)
    # The third ended with its only token. The fourth has 1024 tokens: one block is found, one is computed again.
    assert found[3] == ([1, 1, 512], [1302, 1501, 1024], 1024)


def test_every_token_is_computed_once(trace):
    for policy in (
        {"max_tokens": 50, "max_requests": 2},
        {"max_tokens": 4000},
        {"max_tokens": 300, "chunk": 64},
        {"max_tokens": 1},
    ):
        steps = steps_of(trace, **policy)
        limits = Policy(**policy)
        assert all(sum(new) <= limits.max_tokens and len(new) <= limits.max_requests for new, _, _ in steps)
        ends = sorted(tokens for _, all_tokens, _ in steps for tokens in all_tokens)
        for n, m, _ in LINES:  # each decoding step of a request has one token more
            assert all(n + k in ends for k in range(1, m))
        decoded = sum(m - 1 for _, m, _ in LINES)
        computed = sum(sum(new) for new, _, _ in steps) - decoded
        assert computed <= sum(n for n, _, _ in LINES)
        if limits.chunk:
            assert max(max(new) for new, _, _ in steps) <= limits.chunk


@pytest.mark.parametrize(
    "policy",
    [
        {"max_tokens": 1000, "max_requests": 3},
        {"max_tokens": 300, "chunk": 128},
        pytest.param({"max_tokens": 3, "max_requests": 5}, marks=pytest.mark.long),
    ],
)
def test_every_row_is_the_batch_of_its_step(trace, policy):
    found = iosim.replay(trace, **FIELDS, **policy)
    rows = found.to_rows()
    shared = 0
    some = range(len(rows)) if len(rows) < 40 else np.linspace(0, len(rows) - 1, 25).astype(int)
    for k in some:
        requests = requests_at(trace, Policy(**policy), k)
        step = iosim.batch(requests, **FIELDS, mask="causal")
        row = rows[k]
        assert (row["step"], row["requests"]) == (k, len(requests))
        assert (row["tokens"], row["distinct_tokens"]) == (step.batch.tokens, step.batch.distinct_tokens)
        assert row["distinct_bytes"] == step.distinct_bytes
        for way in ("repeat", "pack", "split", "paged", "paged-tiles", "paged-split", "FA2", "FA3"):
            if way not in {one.way for one in step}:  # nothing is hidden from single tokens
                continue
            assert row[f"{way.replace('-', '_')}_bytes"] == step[way].total_bytes, (k, way)
        shares = "cascade" in {one.way for one in step}
        assert row["cascade_bytes"] == step["cascade" if shares else "pack"].total_bytes
        shared += shares
    assert shared > 1 or policy["max_tokens"] == 3  # three tokens a step seldom let requests meet


def test_the_summary_is_the_sum_of_the_rows(trace):
    found = iosim.replay(trace, **FIELDS, max_tokens=1000, max_requests=3)
    rows = found.to_rows()
    tokens, distinct = (sum(row[name] for row in rows) for name in ("tokens", "distinct_tokens"))
    assert found.logical_over_distinct == tokens / distinct > 1
    assert {way["way"]: way["total_bytes"] for way in found.ways}["pack"] == sum(row["pack_bytes"] for row in rows)
    assert f"{tokens / distinct:.3f} times as many tokens" in found.answer and len(found.to_frame()) == len(rows)
    longest = np.mean([row["longest_tokens"] * row["requests"] / row["tokens"] for row in rows])
    assert found.longest_over_mean == pytest.approx(longest, rel=1e-12)


def test_files_and_folders(trace, iosim, tmp_path):
    policy = ["--trace", trace, "--max-tokens", "300", "--max-requests", "3", "--chunk", "128"]
    printed = iosim("batch", *policy, *LINE, "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    for name in ("x.csv", "x.jsonl"):
        done = iosim("batch", *policy, *LINE, "-o", tmp_path / name)
        assert done.exit_code == 0 and "times as many tokens" in done.stdout
    assert (tmp_path / "x.csv").read_text() == printed
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [{name: str(value) for name, value in line.items()} for line in lines] == rows
    folder = f"{tmp_path / 'steps'}/"
    assert iosim("batch", *policy, *LINE, "-o", folder).exit_code == 0
    assert (tmp_path / "steps" / "part-00000000.csv").read_text() == printed
    again = iosim("batch", *policy, *LINE, "-o", folder)
    assert again.exit_code == 2 and "--resume" in again.stderr
    (tmp_path / "steps" / "part-00000000.csv").unlink()
    assert iosim("batch", *policy, *LINE, "-o", folder, "--resume").exit_code == 0
    assert (tmp_path / "steps" / "part-00000000.csv").read_text() == printed
    other = iosim("batch", *policy, *LINE, "--dtype", "fp32", "-o", folder, "--resume")
    assert other.exit_code == 2 and "dtype" in other.stderr
    assert iosim("gather", folder, "-o", tmp_path / "all.csv").exit_code == 0
    assert (tmp_path / "all.csv").read_text() == printed


def test_parts_are_whole_chunks(trace, monkeypatch):
    from iosim.batches import trace_rows
    from iosim.sweeps.parts import make_chunks

    monkeypatch.setattr(trace_rows, "CHUNK_STEPS", 4)
    found = iosim.replay(trace, **FIELDS, max_tokens=300)
    work = trace_rows.TraceWork(found.traced, "csv", 8)
    steps = [
        step for part in range(len(work)) for rows in make_chunks(work, part) for step in rows.columns["step"].to_list()
    ]
    assert steps == list(range(work.rows)) and len(work) == -(-work.rows // 8) > 1


def test_a_step_is_shown_as_a_batch(trace, iosim, tmp_path):
    line = ["batch", "--trace", trace, "--max-tokens", "1000", "--max-requests", "3", *LINE, "--causal"]
    found = json.loads(iosim(*line, "--step", "3", "--way", "pack", "--json").stdout)
    assert iosim(*line, "--step", "3", "-o", tmp_path / "x.svg").exit_code == 0
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
    assert found["batch"]["requests"] == 3 and found["batch"]["tokens"] - found["batch"]["distinct_tokens"] == 1024


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("", "--trace", "at least one request"),
        ('{"input_length": 5, "output_length": 1, "hash_ids": [1]}\n{"input_length": 5\n', "line 2, column", "JSON"),
        ("[]\n", "line 1", "output_length"),
        ('{"input_length": 5}\n', "line 1", "output_length"),
        ('{"input_length": 0, "output_length": 1}\n', "line 1, input_length", "from 1"),
        ('{"input_length": 5, "output_length": 1, "hash_ids": ["x"]}\n', "line 1, hash_ids", "list of numbers"),
        ('{"input_length": 5, "output_length": 1, "hash_ids": [1, 2]}\n', "line 1, hash_ids", "at most one for each 512"),
    ],
)  # fmt: skip
def test_faults_in_traces(text, place, word, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        replayed(str(path), Policy())
    assert place in caught.value.where and word in str(caught.value)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--requests", "1:2"], "--step"), (["--way", "pack"], "--step"), (["--step", "99999"], "from 0 to"),
        (["--resume"], "a folder"), (["--part-rows", "5"], "a folder"), (["--max-tokens", "0"], "from 1"),
        (["--M", "1KB,2KB"], "one value"), (["--chunk", "5,6"], "whole number"), (["-o", "x.xlsx"], ".csv"),
    ],
)  # fmt: skip
def test_faults_beside_a_trace(more, word, trace, iosim):
    done = iosim("batch", "--trace", trace, *LINE, *more)
    assert done.exit_code == 2 and word in done.stderr and not done.stdout


def test_options_of_traces_need_one(iosim):
    for option in (["--max-tokens", "5"], ["--step", "1"], ["--resume"]):
        done = iosim("batch", "--requests", "1:5", "--d", "8", *option)
        assert done.exit_code == 2 and "--trace FILE.jsonl" in done.stderr


WAYS = ("repeat", "pack", "paged", "paged-tiles", "FA2", "FA3", "cascade")
"""The columns of the page."""


def test_the_page_has_what_was_kept_of_a_public_trace():
    """validation/batch_trace.py made these numbers from a trace that is not kept here."""
    rows = list(csv.DictReader((ROOT / "validation" / "batch_trace.csv").open()))
    page = (DOCS / "batch.md").read_text()
    saved = [1 - float(row["cascade x each word once"]) / float(row["pack x each word once"]) for row in rows]
    assert f"a cascade saves {100 * min(saved):.0f} to {100 * max(saved):.0f} %" in " ".join(page.split())
    for row in rows:
        for name in WAYS:
            assert float(row[f"{name} x each word once"]) > 1
        cells = [row["max_requests"], f"{int(row['steps']):,}", row["logical_over_distinct"], row["longest_over_mean"]]
        cells += [row[f"{name} x each word once"] for name in WAYS]
        assert f"| {' | '.join(cells)} |" in page
        share = int(row["tokens"]) / int(row["distinct_tokens"])
        assert f"{share:.3f}" == row["logical_over_distinct"]
