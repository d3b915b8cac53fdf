"""Speed of `iosim cache` on the flash1 trace N = 8192, d = 128, 64x64, 64-byte lines: `python benchmarks/cache.py`.

With libcachesim installed (pip install libcachesim) the same accesses go through its LRU in the same run.
"""

import tempfile
import time
from importlib.util import find_spec

import numpy as np

from iosim import Attention, Tiling, accesses, cache, reuse
from iosim.schedules import find

ACCESSES, MISSES, M = 12_648_448, 8_454_144, 102_400


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


def lines_only(lines, fast):
    """The same without runs: every line is an object of weight 1."""
    return reuse.needs(lines, np.ones(lines.max() + 1, np.int64), fast)


def peer(lines):
    """libCacheSim's LRU: (seconds, misses)."""
    import libcachesim as lcs

    layout = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
    table = np.zeros(len(lines), layout)
    table["time"], table["object"], table["size"], table["next"] = np.arange(len(lines)), lines + 1, 64, -2
    with tempfile.NamedTemporaryFile(suffix=".oracleGeneral.bin") as file:
        table.tofile(file)
        file.flush()
        reader = lcs.TraceReader(file.name, lcs.TraceType.ORACLE_GENERAL_TRACE)
        times = []
        for _ in range(3):
            reader.reset()
            start = time.perf_counter()
            ratio, _ = lcs.LRU(cache_size=M).process_trace(reader)
            times.append(time.perf_counter() - start)
    return min(times), round(ratio * len(lines))


def main():
    string = record()
    assert string.total == ACCESSES and cache.LRU(string).counts([M // 64])[0].misses == MISSES
    lines = line_by_line(string)
    times = {
        "iosim, schedule to tile moves to string": seconds(record),
        "iosim, LRU of every size, misses and write-backs": seconds(lambda: cache.LRU(string).counts([M // 64])),
        "iosim, Belady at 100 KiB": seconds(lambda: cache.belady(string, M // 64)),
    }
    if find_spec("numba"):
        assert int(np.count_nonzero(lines_only(lines, True) > M // 64)) == MISSES
        times["reuse distances line by line, Numba"] = seconds(lambda: lines_only(lines, True), 3)
    assert int(np.count_nonzero(lines_only(lines, False) > M // 64)) == MISSES
    times["reuse distances line by line, NumPy"] = seconds(lambda: lines_only(lines, False), 1)
    if find_spec("libcachesim"):
        times["libCacheSim, LRU at 100 KiB"], misses = peer(lines)
        assert misses == MISSES
    print("| what | s | million accesses a second |\n|---|---|---|")
    for what, time_s in times.items():
        print(f"| {what} | {time_s:.3f} | {ACCESSES / time_s / 1e6:.1f} |")


if __name__ == "__main__":
    main()
