"""Speed of `iosim cache` on the flash1 trace N = 8192, d = 128, 64x64, 64-byte lines: `python benchmarks/cache.py`.

With libcachesim installed (pip install libcachesim) the same accesses go through its LRU in the same run. The two take
turns, so that other work on the machine slows both.
"""

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from iosim import Attention, Tiling
from iosim.schedules import find
from iosim.studies import accesses, cache, reuse_distance

ACCESSES, MISSES, M = 12_648_448, 8_454_144, 102_400
TURNS = 5
FROM_SCHEDULE = "iosim, from the schedule to LRU misses and write-backs of every size"
ALONE = "iosim, the LRU of every size alone"
BELADY = "iosim, Belady at 100 KiB alone"
PEER = "libCacheSim, LRU misses at 100 KiB"


def seconds(work, repeat=5):
    """The least of some runs: other work on the machine only adds to a time."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def record():
    moves = accesses.record(find("flash1"), Attention(8192, 128), Tiling(64, 64), ("Q", "K", "V", "O"))
    return accesses.accesses(moves)


def line_by_line(string):
    """The number of the line of every access."""
    first = np.cumsum(string.weights) - string.weights
    count = string.weights[string.ids]
    return np.repeat(first[string.ids] - (np.cumsum(count) - count), count) + np.arange(count.sum())


def lines_only(lines):
    """The accesses without runs: every line is an object of weight 1."""
    return reuse_distance.needs(lines, np.ones(lines.max() + 1, np.int64))


def replay(string):
    """The misses at 100 KiB, after finding the misses and write-backs of every size."""
    return cache.LRU(string).counts([M // 64])[0].misses


def peer(lines, size=M):
    """A turn of libCacheSim's LRU, made ready: a function that returns (seconds, misses)."""
    import libcachesim as lcs

    layout = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
    table = np.zeros(len(lines), layout)
    table["time"], table["object"], table["size"], table["next"] = np.arange(len(lines)), lines + 1, 64, -2
    with tempfile.NamedTemporaryFile(suffix=".oracleGeneral.bin", delete=False) as file:
        table.tofile(file)
    reader = lcs.TraceReader(file.name, lcs.TraceType.ORACLE_GENERAL_TRACE)
    Path(file.name).unlink()  # the reader has it mapped

    def turn():
        reader.reset()
        start = time.perf_counter()
        ratio, _ = lcs.LRU(cache_size=size).process_trace(reader)
        return time.perf_counter() - start, round(ratio * len(lines))

    return turn


def main():
    string = record()
    assert string.total == ACCESSES and replay(string) == MISSES
    lines = line_by_line(string)
    turn, theirs = peer(lines) if find_spec("libcachesim") else None, []
    times = {FROM_SCHEDULE: [], ALONE: [], BELADY: []}
    for _ in range(TURNS):
        times[FROM_SCHEDULE].append(seconds(lambda: replay(record()), 1))
        times[ALONE].append(seconds(lambda: replay(string), 1))
        times[BELADY].append(seconds(lambda: cache.belady(string, M // 64), 1))
        theirs += [turn()] if turn else []
    times = {what: min(found) for what, found in times.items()}
    assert int(np.count_nonzero(lines_only(lines) > M // 64)) == MISSES
    times["reuse distances line by line"] = seconds(lambda: lines_only(lines), 1)
    if theirs:
        assert {misses for _, misses in theirs} == {MISSES}
        times[PEER] = min(theirs)[0]
    print("| what | s | million accesses a second | x libCacheSim |\n|---|---|---|---|")
    for what, time_s in times.items():
        ratio = f"{times[PEER] / time_s:.1f}" if theirs else ""
        print(f"| {what} | {time_s:.3f} | {ACCESSES / time_s / 1e6:.1f} | {ratio} |")


if __name__ == "__main__":
    main()
