"""Tile events against an algorithm written out by hand, and four file formats that hold the same events."""

import csv
import io
import json

import pytest

from iosim import SCHEDULES, Attention, Capacity, Machine, Tiling, Trace, Traffic, event_file
from iosim.core.event_count import count_events
from iosim.counting.run import measure
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.studies import events as studied
from iosim.timing.products import SharedReads, unit_of

SIZES = ("--N", 6, "--d", 2, "--tiles", "4x3")


def events_of(name, problem, tiling):
    watcher = Trace()
    Machine(problem, watcher).run(SCHEDULES[name], tiling)
    return watcher.events


def rows_of(text):
    return [
        {k: v if k in ("event", "name") else int(v) for k, v in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def test_flash1_by_hand():
    """Algorithm 1 with N = 6, d = 2, Br = 4, Bc = 3 has keys 0-2 and 3-5 outside, and queries 0-3 and 4-5 inside. In
    the first turn the words in SRAM are 6 after K, 12 after V, 20 after Q, 28 after O, 32 after l, 36 after m, 48 after
    S (4 x 3). The ragged turn begins with K and V: 12 + 4."""
    events = events_of("flash1", Attention(6, 2), Tiling(4, 3))
    expected = []
    for key in (0, 3):
        expected += [("load", "K", key, 3, 6), ("load", "V", key, 3, 6)]
        for row, rows in ((0, 4), (4, 2)):
            expected += [("load", "Q", row, rows, 2 * rows), ("load", "O", row, rows, 2 * rows)]
            expected += [("load", "l", row, rows, rows), ("load", "m", row, rows, rows)]
            expected += [("store", "O", row, rows, 2 * rows)]
            expected += [("store", name, row, rows, rows) for name in ("l", "m")]
    assert [(e["event"], e["name"], e["row"], e["rows"], e["words"]) for e in events if e["words"]] == expected
    assert [e["resident_words"] for e in events[:7]] == [6, 12, 20, 28, 32, 36, 48]
    assert events[6]["event"] == "scores" and (events[6]["rows"], events[6]["columns"]) == (4, 3)
    assert next(e for e in events if e["name"] == "Q" and e["row"] == 4)["resident_words"] == 16


@pytest.mark.parametrize("name", SCHEDULES)
def test_events_add_up_to_the_traffic_and_their_number_is_known_before(name):
    schedule, tiling = SCHEDULES[name], Tiling(4, 3)
    p = schedule.about(Attention(13, 3, Nk=10))
    events, traffic, room = [], Traffic(), Capacity()
    seen, known = studied.emit_events(schedule, p, tiling, events.append), count_events(schedule, p, tiling)
    assert seen == len(events) == known.total and known.moves == sum(e["words"] > 0 for e in events)
    reads = SharedReads(unit_of(None, p.dtype))
    Machine(p, traffic, room, reads).run(schedule, tiling)
    for tensor, counted in traffic.tensors.items():
        of = [e for e in events if e["name"] == tensor]
        assert counted == tuple(sum(e["words"] for e in of if e["event"] == kind) for kind in ("load", "store"))
    assert max(e["resident_words"] for e in events) == room.peak_words
    assert sum(e["smem_read_words"] for e in events) == reads.total
    assert measure(schedule, p, tiling)["smem_read_words"] == (None if "ideal" in schedule.rules else reads.total)
    assert events[-1]["launch"] == len(traffic.launches)


def test_hidden_tiles_leave_no_event():
    events = events_of("block-sparse-q", Attention(8, 2, mask=parse_mask("causal")), Tiling(4, 4))
    assert [e["row"] for e in events if (e["event"], e["name"]) == ("load", "K")] == [0, 0, 4]


@pytest.mark.needs("pyarrow")
def test_all_formats_say_the_same(iosim, tmp_path, monkeypatch):
    """Parquet in several row groups."""
    from pyarrow import parquet

    monkeypatch.setattr(event_file, "BATCH", 7)
    args = ("trace", *SIZES, "--schedule", "flash1")
    rows = rows_of(iosim(*args).stdout)
    events = []
    studied.emit_events(SCHEDULES["flash1"], Attention(6, 2), Tiling(4, 3), events.append)
    assert rows == events
    assert [json.loads(line) for line in iosim(*args, "--format", "jsonl").stdout.splitlines()] == rows
    assert iosim(*args, "--json", "--format", "jsonl").stdout == iosim(*args, "--format", "jsonl").stdout
    for ending in ("csv", "jsonl", "parquet"):
        assert iosim(*args, "-o", tmp_path / f"t.{ending}").exit_code == 0
    assert rows_of((tmp_path / "t.csv").read_text()) == rows
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == rows
    table = parquet.ParquetFile(tmp_path / "t.parquet")
    assert table.read().to_pylist() == rows and table.num_row_groups > 2
    assert sorted(f.name for f in tmp_path.iterdir()) == ["t.csv", "t.jsonl", "t.parquet"]


def test_several_schedules_name_theirs(iosim):
    rows = iosim("trace", *SIZES, "--schedule", "flash1,flash2").stdout
    parts = [iosim("trace", *SIZES, "--schedule", name).stdout.splitlines() for name in ("flash1", "flash2")]
    named = [f"{name},{line}" for name, part in zip(("flash1", "flash2"), parts, strict=True) for line in part[1:]]
    assert rows.splitlines() == [f"schedule,{parts[0][0]}", *named]


def test_perfetto_is_a_timeline_of_words(iosim, tmp_path):
    """There are three named tracks and a counter. Moves follow without a gap and end at the total traffic."""
    assert iosim("trace", *SIZES, "--schedule", "flash1", "-o", tmp_path / "t.json").exit_code == 0
    records = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {r["tid"]: r["args"]["name"] for r in records if r["name"] == "thread_name"}
    assert names == {1: "loads", 2: "stores", 3: "steps"}
    now = 0
    for record in records:
        if record["ph"] == "X":
            assert record["ts"] == now and record["tid"] == {"load": 1, "store": 2}[record["cat"]]
            now += record["dur"]
        elif record["ph"] == "i":
            assert record["ts"] == now and record["tid"] == 3
    assert now == 2 * 12 + 2 * 6 * (2 * 2 + 2) + 2 * 6 * (2 + 2), "R = 2Nd + Tc N (2d + 2), W = Tc N (d + 2)"
    events = events_of("flash1", Attention(6, 2), Tiling(4, 3))
    assert [r["args"]["words"] for r in records if r["ph"] == "C"] == [e["resident_words"] for e in events]


def test_too_many_events_leave_no_file(iosim, tmp_path):
    answer = iosim("trace", "--N", 10**6, "--d", 2, "--tiles", "4x4", "-o", tmp_path / "t.csv")
    assert answer.exit_code == 2 and "at most 100000000" in answer.stderr and list(tmp_path.iterdir()) == []


def test_the_limit_holds_where_folding_cannot_know(tmp_path):
    """A schedule that looks at a tile's start cannot be folded. Its events are counted as they come."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            if i.start >= 0:
                chip.load("Q", i)

    def work(emit):
        return studied.emit_events(text, Attention(8, 2), Tiling(1, 1), emit, most=3)

    with pytest.raises(InputError, match="at most 3"):
        event_file.write_events(work, str(tmp_path / "t.csv"), "csv")
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_now_and_then(monkeypatch):
    monkeypatch.setattr(studied, "BATCH", 10)
    said, events = [], []
    run = SCHEDULES["flash2"], Attention(16, 4), Tiling(4, 4)
    seen = studied.emit_events(*run, events.append, progress=said.append)
    assert seen == len(events) and len(said) == seen // 10 and said[0] == f"10 of {seen:,} events"
    assert all(tuple(event) == event_file.RUN_COLUMNS for event in events), "CSV writes the values in this order"
