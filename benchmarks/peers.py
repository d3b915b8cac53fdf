"""iosim beside other programs: `python benchmarks/peers.py` prints the table and writes peers.md beside it.

A row is a question that both answer, with the seconds of each, their ratio, and both answers. Each program answers a
smaller question first. Then the two take turns, and the fastest turn of each counts. A peer that is not installed has a
row that says so. `--quick` asks small questions and writes nothing.
"""

import importlib.metadata
import logging
import runpy
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import iosim
from iosim import Attention, Tiling
from iosim.counting.sweep import Chunks
from iosim.counting.sweep_axes import build
from iosim.schedules import find
from iosim.studies import accesses
from iosim.studies.cache import LRU
from iosim.sweeps.row_text import lines_of_csv

PAGE = Path(__file__).with_name("peers.md")
HEADER = "| question | peer | its seconds | iosim's | ratio | its answer | iosim's |\n|---|---|--:|--:|--:|--:|--:|\n"
WORD_BITS, LINE_BYTES = 16, 64


def timed(work):
    """(seconds, result) of one call."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def turns(theirs, ours, quick):
    """((seconds, answer) of a peer, those of iosim)."""
    found = [(timed(theirs), timed(ours)) for _ in range(1 if quick else TURNS)]
    return tuple(min(pair, key=lambda one: one[0]) for pair in zip(*found, strict=True))


TURNS = 5

# ---------------------------------------------------------------- the least words of a matrix product

PRODUCTS, WARM_UP, M = [(256, 256, 256), (250, 384, 100)], (16, 32, 64), 8192
TILED = ("matmul-tiled", "matmul-tiled-a", "matmul-tiled-b")


def least_words(rows, columns, inner):
    """The fewest words of a product in an SRAM of M bytes, over the loop orders and all tiles that fit."""
    return iosim.tune(rows, inner, M, Nk=columns, schedules=TILED).winner.total


STORE = "{{name: {name}, size: {size}, leak_power: 0, area: 0, tensors: {{keep: All}}, actions: [{read}, {write}]}}"
ACTION = "{{name: {name}, energy: {energy}, throughput: inf, latency: 0}}"


def of_accelforge(rows, columns, inner):
    """Its mapping of least energy, where only a bit between HBM and SRAM costs anything."""
    import accelforge
    from accelforge.mapper.FFM.main import map_workload_to_arch

    def store(name, size, energy):
        actions = (ACTION.format(name=name, energy=energy) for name in ("read", "write"))
        return "  - !Memory " + STORE.format(name=name, size=size, **dict(zip(("read", "write"), actions, strict=True)))

    compute = "{name: MAC, leak_power: 0, area: 0, actions: [{name: compute, energy: 0, throughput: 1, latency: 0}]}"
    nodes = [store("HBM", "inf", 1), store("SRAM", 8 * M, 0), f"  - !Compute {compute}"]
    places = {"A": "i, k", "B": "k, j", "C": "i, j"}
    tensors = [f"{{name: {name}, projection: [{at}]{', output: True' * (name == 'C')}}}" for name, at in places.items()]
    sizes = ", ".join(f"{name}: 0 <= {name} < {size}" for name, size in zip("ijk", (rows, columns, inner), strict=True))
    renames = "{input: A, weight: B, output: C}"
    work = [f"  iteration_space_shape: {{{sizes}}}", f"  bits_per_value: {{All: {WORD_BITS}}}", "  einsums:",
            f"  - {{name: C, tensor_accesses: [{', '.join(tensors)}], renames: {renames}}}"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("arch.yaml", "workload.yaml")]
        files[0].write_text("\n".join(["arch:", "  nodes:", *nodes]))
        files[1].write_text("\n".join(["workload:", *work]))
        accelforge.set_n_parallel_jobs(1)
        spec = accelforge.Spec.from_yaml(*files)
        spec.mapper.metrics = accelforge.Metrics.ENERGY
        found = map_workload_to_arch(spec, print_progress=False, eval_in_detail=False)
    return int(found.data["Total<SEP>energy"].iloc[0]) // WORD_BITS


def of_zigzag(rows, columns, inner):
    """Its temporal mapping of least energy, where only a word between HBM and SRAM costs anything."""
    import yaml
    from zigzag.api import get_hardware_performance_zigzag

    def port(kind, *allocation):
        sides = {"bandwidth_min": WORD_BITS, "bandwidth_max": WORD_BITS}
        return {"name": f"{kind[0]}_port_1", "type": kind, **sides, "allocation": list(allocation)}

    def store(size, cost):
        reads, writes = ("I1, tl", "I2, tl", "O, tl", "O, th"), ("I1, fh", "I2, fh", "O, fh", "O, fl")
        ports = [port("read", *reads), port("write", *writes)]
        costs = {"r_cost": cost, "w_cost": cost, "area": 0, "latency": 1, "auto_cost_extraction": False}
        return {"size": size, **costs, "operands": ["I1", "I2", "O"], "ports": ports, "served_dimensions": ["D1", "D2"]}

    units = {"input_precision": [WORD_BITS] * 2, "unit_energy": 0, "unit_area": 0}
    chip = {
        "name": "chip", "operational_array": {**units, "dimensions": ["D1", "D2"], "sizes": [1, 1]},
        "memories": {"sram": store(8 * M, 0), "hbm": store(2**40, 1)},
    }  # fmt: skip
    layer = {
        "id": 0, "name": "C", "operator_type": "Gemm", "equation": "O[b][k]+=I[b][c]*W[c][k]",
        "dimension_relations": [],
        "loop_dims": ["B", "K", "C"], "loop_sizes": [rows, columns, inner], "operand_source": {"I": 0, "W": 0},
        "operand_precision": dict.fromkeys(("I", "W", "O", "O_final"), WORD_BITS),
    }  # fmt: skip
    links = {"O": "O", "W": "I2", "I": "I1"}
    mapping = {"name": "default", "spatial_mapping": {"D1": ["K, 1"], "D2": ["C, 1"]}, "memory_operand_links": links}
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.yaml") for name in ("layer", "chip", "mapping")]
        for file, content in zip(files, ([layer], chip, [mapping]), strict=True):
            file.write_text(yaml.safe_dump(content, sort_keys=False))
        energy, _, _ = get_hardware_performance_zigzag(
            *map(str, files), opt="energy", dump_folder=folder, loma_show_progress_bar=False
        )
    return round(energy)


def product_with(peer):
    """The rows of a peer that maps products."""

    def rows(quick):
        peer(*WARM_UP)
        least_words(*WARM_UP)
        for shape in [WARM_UP] if quick else PRODUCTS:
            theirs, ours = turns(partial(peer, *shape), partial(least_words, *shape), quick)
            assert ours[1] <= theirs[1], "a tiling that iosim did not see"
            yield f"least words of a product {' x '.join(map(str, shape))}, 8 KiB", theirs, ours

    return rows


# ---------------------------------------------------------------- misses of a cache

CACHE = (1024, 64), (32, 32), 16384  # N and d, the tiles of flash1, M


def trace(quick):
    """The accesses of flash1 to Q, K, V and O, in lines, and a text that says which."""
    (N, d), tiles, size = CACHE
    N = 128 if quick else N
    moves = accesses.record(find("flash1"), Attention(N, d), Tiling(*tiles), ("Q", "K", "V", "O"))
    string = accesses.accesses(moves)
    return string, f"LRU misses of flash1, N = {N}, d = {d}, {size // 1024} KiB, {string.total:,} accesses"


def of_libcachesim(numbers):
    turn = runpy.run_path(str(Path(__file__).parent / "cache.py"))["peer"](numbers, CACHE[2])
    return lambda: turn()[1]


def of_pycachesim(numbers):
    """The addresses are those of lines, which are loaded one by one."""
    import cachesim

    memory = cachesim.MainMemory()
    cache = cachesim.Cache("L1", 1, CACHE[2] // LINE_BYTES, LINE_BYTES, "LRU")
    memory.load_to(cache)
    memory.store_from(cache)
    simulator = cachesim.CacheSimulator(cache, memory)
    addresses = [((int(number) * LINE_BYTES,), None) for number in numbers]

    def turn():
        simulator.mark_all_invalid()
        simulator.reset_stats()
        simulator.loadstore(addresses, length=1)
        return cache.stats()["MISS_count"]

    return turn


def misses_with(peer):
    """The row of a peer that simulates caches. iosim finds the misses of every size, and the peer those of one."""

    def rows(quick):
        string, question = trace(quick)
        numbers = runpy.run_path(str(Path(__file__).parent / "cache.py"))["line_by_line"](string)
        turn, mine = peer(numbers), lambda: LRU(string).counts([CACHE[2] // LINE_BYTES])[0].misses
        turn()
        mine()
        theirs, ours = turns(turn, mine, quick)
        assert ours[1] == theirs[1]
        yield question, theirs, ours

    return rows


# ---------------------------------------------------------------- rows as CSV


def by_pandas(table):
    return lambda: table.to_csv(None, index=False, lineterminator="\n").count("\n") - 1


def by_pyarrow(table):
    import pyarrow as pa
    from pyarrow import csv

    made = pa.Table.from_pandas(table, preserve_index=False)

    def write():
        out = pa.BufferOutputStream()
        csv.write_csv(made, out)
        return out.getvalue().to_pybytes().count(b"\n") - 1

    return write


def by_polars(table):
    import polars

    made = polars.from_dict({name: plain(table[name]) for name in table})
    return lambda: made.write_csv().count("\n") - 1


def plain(column):
    """A column as NumPy has it, or as a list of texts and gaps."""
    if str(column.dtype) in ("int64", "float64", "bool"):
        return column.to_numpy()
    return [None if pd.isna(cell) else cell for cell in column.tolist()]


def rows_with(writer):
    """The row of a peer that writes a table, which each program has in its own form before it is timed."""

    def rows(quick):
        most = 20 if quick else 1_000
        axes = {"N": list(range(1000, 1000 + most)), "d": [64, 128], "M": list(range(16384, 16384 + 128 * 512, 512))}
        made = list(Chunks(build(axes, "flash1,flash2", "128x64")))
        table = pd.concat([rows.to_frame() for rows in made], ignore_index=True)
        write = writer(table)
        for work in (writer(table[:99]), lambda: lines_of_csv(made[-1])):
            work()
        theirs, ours = turns(write, lambda: sum(lines_of_csv(rows).count(b"\n") for rows in made), quick)
        assert ours[1] == theirs[1] == len(table)
        yield "rows of a sweep as CSV in memory", theirs, ours

    return rows


PEERS = {  # the name on PyPI, the module, and the rows
    "accelforge": ("accelforge", product_with(of_accelforge)),
    "zigzag-dse": ("zigzag", product_with(of_zigzag)),
    "libcachesim": ("libcachesim", misses_with(of_libcachesim)),
    "pycachesim": ("cachesim", misses_with(of_pycachesim)),
    "pandas": ("pandas", rows_with(by_pandas)),
    "pyarrow": ("pyarrow", rows_with(by_pyarrow)),
    "polars": ("polars", rows_with(by_polars)),
}


def ratio_text(ratio):
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def table(quick=False):
    """The lines of the table."""
    for name, (module, rows) in PEERS.items():
        if find_spec(module) is None:
            yield f"| | {name}: not installed (`pip install {name}`) | | | | | |"
            continue
        peer = f"{name} {importlib.metadata.version(name)}"
        for question, (theirs, its), (ours, mine) in rows(quick):
            seconds = f"{theirs:.3g} | {ours:.3g} | {ratio_text(theirs / ours)}"
            yield f"| {question} | {peer} | {seconds} | {its:,} | {mine:,} |"


def main(quick):
    print(HEADER, end="")
    found = []
    for line in table(quick):
        print(line, flush=True)
        found.append(line)
    if not quick:
        before, rest = PAGE.read_text().split(HEADER, 1)
        PAGE.write_text(before + HEADER + "\n".join(found) + "\n\n" + rest.split("\n\n", 1)[1])


if __name__ == "__main__":
    main(sys.argv[1:] == ["--quick"])
