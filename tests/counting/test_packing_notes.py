"""Where query heads share keys, a count that does not pack says what packing would move."""

import re

import pytest

from iosim import count, tune

KV = 2 * 8192 * 128 * 2  # bytes of K and V of a head
QO = 2 * 128 * 2  # bytes of a row of Q and of O


def note_on_packing(found):
    """The note, or an empty text."""
    return "".join(note for note in found.notes if "--gqa pack" in note)


@pytest.mark.parametrize("mask", ["dense", "causal"])
@pytest.mark.parametrize("ask", [count, tune])
def test_decoding_reads_each_kv_head_once(ask, mask):
    found = ask(1, 128, "100KB", Nk=8192, heads=32, kv_heads=8, mask=mask)
    moved = 8 * KV + 32 * QO
    less = 100 * (1 - moved / (32 * (KV + QO)))
    assert f"moves {moved / 2**20:.1f} MiB, {less:.3g} % less" in note_on_packing(found)


def test_the_tiles_that_are_given_are_kept():
    """64 queries of 4 heads are 256 rows: one tile of 256 rows reads K and V once, and 64 rows 4 times, as before."""
    options = {"Nk": 8192, "heads": 32, "kv_heads": 8, "schedules": "flash2"}
    assert "flash2 256x64 moves 33 MiB, 74.4 % less" in note_on_packing(count(64, 128, tiles="256x64", **options))
    assert note_on_packing(count(64, 128, tiles="64x64", **options)) == ""


@pytest.mark.parametrize(
    "options",
    [{"kv_heads": 32}, {"kv_heads": 8, "gqa": "pack"}, {"kv_heads": 8, "mask": "causal"}],
    ids=["no groups", "packed", "a mask that packing excludes"],
)
def test_there_is_no_note_where_packing_changes_nothing(options):
    assert note_on_packing(count(64, 128, "100KB", Nk=8192, heads=32, **options)) == ""


def test_the_packed_answer_is_what_the_note_says():
    options = {"Nk": 4096, "d": 64, "M": "64KB", "heads": 16, "kv_heads": 2}
    told = re.search(r"pack .* (\S+) (\S+) moves ([\d.]+) MiB", note_on_packing(tune(8, **options)))
    (row,) = [r for r in tune(8, gqa="pack", **options).results if r.schedule == told[1]]
    assert told[2] == f"{row.Br}x{row.Bc}" and float(told[3]) == pytest.approx(row.total_bytes / 2**20, rel=5e-3)
