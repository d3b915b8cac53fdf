"""`iosim cache --trace`: a file of events has the misses of the schedule that it was written by."""

import json

import pytest

LINES = {
    "flash1": "--N 100 --d 24 --tiles 16x12 --schedule flash1",
    "flash2, causal": "--N 96 --d 16 --tiles 32x16 --schedule block-sparse-q --causal",
    "matmul": "--N 64 --d 48 --tiles 16x32 --schedule matmul-tiled-b",
    "bytes": "--N 64 --d 16 --tiles 16x16 --schedule flash2 --dtype fp32",
    "split": "--N 64 --d 16 --tiles 16x16 --schedule split-kv",
}


def written(iosim, folder, line, end):
    path = folder / f"trace.{end}"
    found = iosim("trace", *line.split(), "-o", path)
    assert found.exit_code == 0, found.output
    return path


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("more", ["--curve", "--granularity tile", "--line 32 --tensors K,V"])
def test_a_file_has_the_misses_of_its_schedule(iosim, ask, tmp_path, name, more):
    if "matmul" in name and "K,V" in more:
        more = "--line 32 --tensors A"
    path = written(iosim, tmp_path, LINES[name], "csv")
    dtype = ["--dtype", "fp32"] if "fp32" in LINES[name] else []
    own = ask("cache", *LINES[name].split(), "--M", "2KB,8KB", *more.split())
    read = ask("cache", "--trace", path, "--M", "2KB,8KB", *dtype, *more.split())
    assert read["results"] == own["results"] and read["accesses"] == own["accesses"]
    for key in ("reads", "writes", "total_bytes", "tensors"):
        assert read["scratchpad"][key] == own["scratchpad"][key]


@pytest.mark.needs("pyarrow")
def test_parquet(iosim, ask, tmp_path):
    csv, parquet = (written(iosim, tmp_path, LINES["split"], end) for end in ("csv", "parquet"))
    both = [ask("cache", "--trace", path, "--M", "2KB")["results"] for path in (csv, parquet)]
    assert both[0] == both[1]


def event(**more):
    return {"event": "load", "name": "X", "row": 0, "rows": 1, "column": 0, "columns": 16, "words": 16, **more}


def test_words_may_differ_and_an_atomic_operation_loads_and_stores(ask, tmp_path):
    events = [event(word_bytes=4), event(name="C", event="atomic", word_bytes=8), event(event="scores", name="S")]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    found = ask("cache", "--trace", path, "--M", "1KB", "--policy", "lru")
    assert found["scratchpad"]["tensors"] == {"X": {"reads": 16, "writes": 0}, "C": {"reads": 16, "writes": 16}}
    assert found["scratchpad"]["total_bytes"] == 16 * 4 + 32 * 8 and found["scratchpad"]["sram_peak_words"] is None
    assert found["results"][0]["fetched_bytes"] == 64 + 128 and found["results"][0]["written_bytes"] == 128


def test_rows_before_the_first(ask, tmp_path):
    """A kernel may reach before its tensor. What lies there is no word of the tensor before."""
    path = tmp_path / "events.jsonl"
    events = [event(name="W"), *(event(row=row) for row in (-1, 0, -1))]
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    (row,) = ask("cache", "--trace", path, "--M", "1KB", "--policy", "lru", "--line", 32)["results"]
    assert (row["accesses"], row["misses"]) == (4, 3)


@pytest.mark.parametrize("text, end, message", [
    ("", "csv", "a file of iosim trace"),
    ("event,name,row,rows,column,columns\nload,X,0,1,zero,4\n", "csv", "event 1: column: found 'zero'; allowed: a whole number"),
    ("schedule,event,name\nflash1,load,X\n", "csv", "found 'a column schedule'; allowed: the events of one schedule"),
    ("{", "jsonl", "a file of iosim trace"),
    ("[1]\n", "jsonl", "a file with loads and stores"),
    ("{}", "json", "a file that ends in .csv, .jsonl or .parquet"),
    ("x", "svg", "--trace: found"),
])  # fmt: skip
def test_faults_of_a_file(iosim, tmp_path, text, end, message):
    path = tmp_path / f"events.{end}"
    path.write_text(text)
    found = iosim("cache", "--trace", path, "--M", "1KB")
    assert found.exit_code == 2 and message in found.stderr and found.stdout == "", found.stderr
