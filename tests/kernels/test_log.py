"""`iosim explain --trace`: the requests of a kernel, one after another, are those of its schedule."""

import csv
import json

import numpy as np
import pytest
from paths import TESTS

from iosim.event_file import EVENT_COLUMNS
from iosim.kernels.walk.log import MORE_COLUMNS, MOST_EVENTS, Log, rectangles

needs_triton = pytest.mark.needs("triton")
FILE = TESTS / "helpers" / "triton_kernels.py"
TILE = EVENT_COLUMNS[:7]


def words_of(tiles, width):
    """Every word of some tiles, as often as it is asked for."""
    found = []
    for row, column, rows, columns, times in tiles.tolist():
        words = [(row + r) * width + column + c for r in range(rows) for c in range(columns)]
        assert times % len(words) == 0
        found += words * (times // len(words))
    return sorted(found)


@pytest.mark.parametrize("words, width, tiles", [
    (range(8, 40), 16, [[0, 8, 1, 8, 8], [1, 0, 1, 16, 16], [2, 0, 1, 8, 8]]),
    ([3, 4, 19, 20, 35, 36], 16, [[0, 3, 3, 2, 6]]),
    ([7, 7, 7, 8, 8, 8], 16, [[0, 7, 1, 2, 6]]),
    ([-17, -16, -1], 16, [[-2, 15, 1, 1, 1], [-1, 0, 1, 1, 1], [-1, 15, 1, 1, 1]]),
])  # fmt: skip
def test_tiles_that_cover_words(words, width, tiles):
    found = rectangles(np.array(words, np.int64), width)
    assert found.tolist() == tiles and words_of(found, width) == sorted(words)


def test_tiles_of_random_words():
    draw = np.random.default_rng(2026)
    for _ in range(50):
        width = int(draw.integers(1, 9))
        words = np.unique(draw.integers(0, 60, draw.integers(1, 40)))
        assert words_of(rectangles(words, width), width) == words.tolist()


def test_a_trace_that_is_too_long_ends_early():
    from iosim.errors import InputError

    log = Log()
    with pytest.raises(InputError, match="--trace: found '5000001 events or more'; allowed: at most 5000000"):
        log.note("X", "reads", np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(MOST_EVENTS + 1, np.int64))


def launch(heads, *more):
    tensors = [f"--arg={name}=fp16[{heads},N,D]" for name in "QKVO"]
    return ["explain", FILE, "--kernel", "attention", "--grid", f"cdiv(N, BM), {heads}", *tensors, "--arg", "scale=1",
            "--arg", "N=50", "--const", "D=16", "--const", "BM=32", "--const", "BN=16", "--const", "CAUSAL=True",
            "--no-resources", *more]  # fmt: skip


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@needs_triton
def test_the_requests_of_attention_are_the_events_of_its_schedule(iosim, tmp_path):
    """The same loads and stores in the same order, word for word: the kernel's and those of the schedule's text."""
    mine, own = tmp_path / "kernel.csv", tmp_path / "schedule.csv"
    assert iosim(*launch(1, "--trace", mine)).exit_code == 0
    schedule = ["--schedule", "block-sparse-q", "--tiles", "32x16", "--causal", "-o", own]
    assert iosim("trace", "--N", 50, "--d", 16, *schedule).exit_code == 0
    moves = [row for row in rows(own) if row["event"] in ("load", "store")]
    assert [[row[c] for c in TILE] for row in rows(mine)] == [[row[c] for c in TILE] for row in moves] and moves


@needs_triton
def test_a_cache_takes_the_file(iosim, ask, tmp_path):
    iosim(*launch(1, "--trace", tmp_path / "kernel.csv"))
    schedule = ["--schedule", "block-sparse-q", "--tiles", "32x16", "--causal"]
    own = ask("cache", "--N", 50, "--d", 16, *schedule, "--M", "1KB,4KB")
    assert ask("cache", "--trace", tmp_path / "kernel.csv", "--M", "1KB,4KB")["results"] == own["results"]


@needs_triton
@pytest.mark.parametrize("name", ["softmax", "matmul, ragged", "gather", "tiles", "histogram", "add"])
def test_words_of_a_trace_are_those_of_the_answer(name):
    import test_triton
    from triton_launches import LAUNCHES

    from iosim.kernels.read.compile import Compilation
    from iosim.kernels.read.kernel_file import kernel_of
    from iosim.kernels.walk.walk import walk

    kernel, grid, arguments = LAUNCHES[name]
    values = {key: test_triton.value_of(given) for key, given in arguments.items()}
    made = Compilation(kernel_of(str(FILE), kernel), values, "sm_90", 4, 3)
    log = Log()
    moved = walk(made.code, made.launch((*grid, 1, 1)[:3]), log=log)
    sums = {}
    for event in log.events():
        key = event["name"], {"load": "reads", "store": "writes", "atomic": "atomics"}[event["event"]]
        sums[key] = sums.get(key, 0) + event["words"]
    assert sums == {key: requests.words for key, requests in moved.requests.items() if requests.words}


@needs_triton
def test_other_formats(iosim, tmp_path):
    for end in ("jsonl", "json"):
        assert iosim(*launch(1, "--trace", tmp_path / f"trace.{end}")).exit_code == 0
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert (
        tuple(events[0]) == (*EVENT_COLUMNS, *MORE_COLUMNS)
        and events[0]["resident_words"] is None
        and len(events) == 16
    )
    slices = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["dur"] for e in slices] == [e["words"] for e in events]


@needs_triton
@pytest.mark.parametrize("more, message", [
    (("--trace", "-"), "--trace: found 'stdout'; allowed: a file"),
    (("--trace", "x.csv", "--tune"), "--trace: found '--tune'"),
    (("--trace", "/no/such/folder/x.csv"), "--trace: found '/no/such/folder/x.csv'; allowed: a file in a folder that"),
    (("--trace", "x.svg"), "--trace: found 'x.svg'; allowed: a file that ends in .csv"),
])  # fmt: skip
def test_faults(iosim, more, message):
    found = iosim(*launch(1, *more))
    assert found.exit_code == 2 and message in found.stderr and found.stdout == "", found.stderr
