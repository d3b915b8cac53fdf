"""At the largest sizes that are admitted, each command says what Python's integers say; beyond int64 nothing wraps."""

import csv
import io

import numpy as np
import pytest

from iosim.core.arrays import total
from iosim.units import LARGEST_COUNT as L

T = 2**40


def flash2(N, Nk, d, Br):
    """Words of one head: Q and O once, K and V for each tile of queries."""
    return 2 * N * d + 2 * Nk * d * -(-N // Br)


def best_rows(M_words, d):
    """The most rows beside one key: 2 d + Br (2 d + 3) words, as docs/conventions.md has the footprint."""
    return (M_words - 2 * d) // (2 * d + 3)


def of(found, where, **known):
    """The only row with these values."""
    (row,) = (row for row in found[where] if known.items() <= row.items())
    return row


def of_grid(text):
    """{N: row} of the CSV of a sweep."""
    return {int(row["N"]): row for row in csv.DictReader(io.StringIO(text))}


def test_counts_floors_and_tiles(ask):
    every = ["--N", L, "--d", L, "--heads", L, "--batch", L, "--schedule", "flash2", "--tiles"]
    assert ask("count", *every, f"{L}x{L}")["results"][0]["total"] == L**2 * flash2(L, L, L, L)
    assert ask("count", *every, "1x1")["results"][0]["total_bytes"] == 2 * L**2 * flash2(L, L, L, 1)
    asked, Br = ["--N", L, "--d", 64, "--M", "100KB"], best_rows(51200, 64)
    for command, more in (("count", ["--schedule", "flash2", "--tiles", "best"]), ("tune", ["--schedule", "flash2"])):
        (row,) = ask(command, *asked, *more)["results"]
        assert (row["Br"], row["total"]) == (Br, flash2(L, L, 64, Br)), command
    assert of(ask("bounds", *asked), "bounds", name="compulsory")["words"] == 4 * L * 64
    steps = ask("tune", "--curve", *asked[:4], "--schedule", "flash2", "--tile-multiple", T)
    assert of(steps, "curve", Br=T)["total"] == flash2(L, L, 64, T)


def test_packed_rows(ask, iosim):
    asked = ["--d", 64, "--heads", L, "--kv-heads", 1, "--gqa", "pack", "--schedule", "flash2", "--tiles", "64x64"]
    row = ask("count", "--N", 1, "--Nk", L, *asked)["results"][0]
    assert row["total"] == flash2(L, L, 64, 64)
    found = iosim("count", "--N", 2, *asked)
    assert found.exit_code == 2 and f"2 queries of each of {L} query heads" in found.output
    assert f"at most {L} packed rows" in found.output and "--gqa repeat" in found.output


def test_a_state(ask):
    """q, k, v, two gates and o of each token and value head, and beside these the state that is handed on."""
    asked = ["--rule", "gdn", "--N", L, "--d", L, "--heads", L, "--key-heads", 16]
    row = of(ask("count", *asked, "--schedule", "state-fused"), "results", schedule="state-fused")
    assert row["total"] == L * L * (4 * L + 2)
    row = of(ask("links", *asked, "--ranks", 8), "results", schedule="state-hand-on")
    assert row["received_bytes"] == 7 * 2 * L**3


def test_grids_in_arrays(iosim):
    grid = f"--N 1024,{L} --heads 1,{L} --d 64 --schedule flash2 --tiles 64x64 --csv"
    found = iosim("sweep", *grid.split())
    rows = [(int(row["N"]), int(row["heads"]), int(row["total"])) for row in csv.DictReader(io.StringIO(found.stdout))]
    assert {*rows} == {(N, heads, heads * flash2(N, N, 64, 64)) for N in (1024, L) for heads in (1, L)}
    wide = iosim("sweep", "--N", f"1,{L}", "--d", 2**20, "--dv", 2**44, "--rule", "linear", "--schedule", "state-fused",
                 "--tiles", "1x1", "--csv")  # fmt: skip
    assert int(of_grid(wide.stdout)[1]["sram_peak_words"]) > 2**64
    assert int(of_grid(wide.stdout)[L]["total"]) == L * (2 * 2**20 + 2 * 2**44)


@pytest.mark.needs("pyarrow")
def test_parquet_says_what_it_cannot_hold(iosim, tmp_path):
    for what in (["tune", "--M", "100KB"], ["links", "--ranks", 8]):
        asked = ["--N", L, "--d", T, "--heads", 1024, "-o", tmp_path / "rows.parquet"]
        found = iosim("sweep", "--what", *what, *asked)
        assert found.exit_code == 2 and "counts below 2^63 in Parquet; CSV has no limit" in found.output


def test_batches(ask, iosim):
    """Best tiles are chosen by exact bytes, and the blocks of requests are summed beyond int64."""
    asked = ["--d", 64, "--M", "100KB", "--way", "repeat"]
    row = ask("batch", "--requests", f"{T}:{T}, 5:7", "--heads", 3, *asked)["ways"][0]
    Br = best_rows(51200, 64)
    assert row["tiles"] == f"{Br}x1" and row["total"] == 3 * (flash2(T, T, 64, Br) + flash2(5, 7, 64, Br))
    row = ask("batch", "--requests", f"{L}:{L}", "--heads", 16, "--layers", L, *asked)["ways"][0]
    assert row["total"] == 16 * L * flash2(L, L, 64, Br) and row["blocks"] == 16 * -(-L // Br)
    for line, fault in (
        (f"--requests {T}:{T} --heads {2**20} --kv-heads 1 --way pack", f"at most {L} packed rows; --way repeat"),
        (f"--requests {T}:{T} --causal --chunk 16", "at most 10000000; try a larger --chunk"),
    ):
        found = iosim("batch", "--d", 64, "--M", "100KB", *line.split())
        assert found.exit_code == 2 and fault in found.output
    rows = 2**36 * 16  # the shares of FlashInfer: products of tiles and pages are beyond int64
    row = ask("batch", "--requests", f"{2**36}:{2**36}", "--d", 64, "--heads", 16, "--kv-heads", 1, "--way",
              "FlashInfer", "--hardware", "h100")["ways"][0]  # fmt: skip
    assert row["total"] == flash2(rows, 2**36, 64, 128)


def test_requests_with_a_prefix_in_common(iosim, tmp_path):
    lines = '{"new": 200000000000000, "cached": 512, "prefix": 512}\n' * 3
    (tmp_path / "requests.jsonl").write_text(lines)
    found = iosim("batch", "--requests", tmp_path / "requests.jsonl", "--d", 64, "--M", "100KB", "--way", "cascade")
    assert found.exit_code == 2 and f"600000000000000 tokens of one problem'; allowed: at most {L}" in found.output


def test_device_memory(ask):
    """One length after the other, or an axis in arrays: Q of all heads is beyond int64, K and scores are not."""
    N, heads, d = 2**22, 2**22, 2**20
    rows = ask("memory", "--N", f"{N},{2 * N}", "--Nk", 1, "--heads", heads, "--kv-heads", 1, "--d", d)["results"]
    assert [row["Q_bytes"] for row in rows] == [2 * heads * N * d, 4 * heads * N * d]
    assert [row["S_bytes"] for row in rows] == [2 * heads * N, 4 * heads * N]
    every = ["--heads", L, "--batch", L, "--d", L]
    assert ask("memory", "--N", L, *every)["results"][0]["KV_bytes"] == 4 * L**4


def test_caches(ask, iosim, tmp_path):
    """Each of Q, K, V and O has 2^52 lines; K and V are loaded for both tiles of Q, and no line is there again."""
    asked = ["--schedule", "flash2", "--M", "100KB", "--policy", "lru"]
    for d, ok in ((2**18, True), (2**20, False), (L, False)):
        found = iosim("cache", "--N", 2**39, "--d", d, "--tiles", f"{2**38}x{2**39}", *asked, "--json")
        assert (found.exit_code == 0) == ok and ("less than 4611686018427387904; try" in found.output) != ok
    row = ask("cache", "--N", 2**39, "--d", 2**18, "--tiles", f"{2**38}x{2**39}", *asked)["results"][0]
    assert (row["misses"], row["total_bytes"]) == (6 * 2**52, 6 * 2**58)
    file = tmp_path / "trace.csv"
    head, load = "event,name,row,rows,column,columns,resident_words\n", f"load,A,0,{2**31},0,{2**28},{10**30}\n"
    file.write_text(head + 3 * load)
    found = ask("cache", "--trace", file, "--M", "100KB", "--policy", "lru")
    assert found["scratchpad"]["total"] == 3 * 2**59 and found["scratchpad"]["sram_peak_words"] == 10**30
    assert found["results"][0]["misses"] == 3 * 2**54
    file.write_text(head + 16 * load.replace(str(2**28), str(2**29)))
    fault = iosim("cache", "--trace", file, "--M", "100KB")
    assert fault.exit_code == 2 and f"found {2**65}; allowed: less than {2**62}" in fault.output
    for wrong in (load.replace(str(2**31), "9" * 16), load.replace(str(2**31), "-1")):
        file.write_text(head + wrong)
        fault = iosim("cache", "--trace", file, "--M", "100KB")
        assert fault.exit_code == 2 and "a whole number of at most 15 digits" in fault.output


def test_links(ask):
    asked = ["--N", L, "--d", L, "--heads", L, "--batch", L, "--ranks", 8]
    row = of(ask("links", *asked), "results", schedule="ring")
    assert row["received_words"] == 7 * 2 * L**4
    row = of(ask("links", *asked, "--causal"), "results", schedule="ring-needed")
    assert row["received_words"] == 28 * 2 * L**4 // 8


def test_least_times(ask):
    found = ask("roofline", "--N", L, "--d", 64, "--heads", L, "--hardware", "h100", "--tiles", "64x64", "--schedule",
                "flash2")  # fmt: skip
    row = found["results"][0]
    assert row["read_bytes"] + row["write_bytes"] == 2 * L * flash2(L, L, 64, 64)


def test_total():
    large = np.array([2**62, 2**62, 5])
    assert total(large) == 2**63 + 5 and total(-large) == -(2**63) - 5
    assert total(np.zeros(0, np.int64)) == 0 and total(np.array([2**70, 1], object)) == 2**70 + 1
