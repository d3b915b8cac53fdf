"""Attention across two GPUs of one host, by generated kernels: from the root of the repository

    PYTHONPATH=. python3 validation/links/on_gpus.py FOLDER

Each GPU runs the schedules inside a GPU (iosim/distributed/inside.py) as CUDA. A generated kernel moves rows from one
GPU to the other by peer access, and counts their words. The GPU that needs the rows runs it and reads them; with
--stored the GPU that has the rows runs it and stores them. FOLDER gets on_gpus.csv, or stored.csv: a row for each
case, tensor and GPU that ran the kernel, with the words that the kernels counted, those of `iosim links`, and the error
of the output. With --times also the time of a hop, and with --once one run without times, for a profiler:

    ncu --clock-control none --kernel-name regex:take --csv --metrics \\
        nvlrx__bytes_data_user.sum,nvltx__bytes_data_user.sum python3 validation/links/on_gpus.py FOLDER --once
"""

from __future__ import annotations

import argparse
import csv
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

import iosim
from iosim.core.machine import Machine
from iosim.core.problem import Attention, Tensor
from iosim.core.tiling import Tiling
from iosim.distributed.inside import DOTS, FIRST, GRADIENTS, HOP
from iosim.gpu.cuda.machine import generate
from iosim.gpu.cuda.program import Program
from iosim.masks import parse_mask
from iosim.oracles.attention import attention
from iosim.oracles.backward import gradients
from iosim.schedules.registry import Schedule

RANKS = 2
Arrays = dict[str, object]
Words = dict[str, int]


class Runner(Protocol):
    """Runs a program on a GPU."""

    def __call__(
        self, rank: int, program: Program, inputs: Mapping[str, object], home: int | None = None
    ) -> tuple[Arrays, dict[str, tuple[int, int]]]:
        """What a program leaves in HBM, and the words that it read and wrote, by tensor. Arrays of inputs may lie on
        the other GPU. What is not given lies on the GPU `home`, or on the one that runs the program."""


@dataclass(frozen=True)
class Case:
    """A scheme of `iosim links` on two GPUs."""

    scheme: str
    p: Attention
    tiles: Tiling
    backward: bool = False
    stored: bool = False
    """Whether the GPU that has rows stores them on the other one. Else the GPU that needs them reads them."""

    @property
    def causal(self) -> bool:
        return str(self.p.mask) == "causal"

    def places(self, rank: int) -> np.ndarray:
        """The tokens of a GPU, in the order of its rows: a block, or in zigzag the chunks r and 2P - 1 - r."""
        chunks = np.arange(self.p.N).reshape(2 * RANKS, -1)
        mine = (rank, 2 * RANKS - 1 - rank) if self.scheme == "zigzag" else (2 * rank, 2 * rank + 1)
        return chunks[list(mine)].ravel()


def take(chip: Machine, p: Attention, t: Tiling) -> None:
    """Rows of X, which the other GPU has, come to this one."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        chip.store(chip.load("X", i), "Y", i)


MOVED = {"X": Tensor(("N", "d"), "input"), "Y": Tensor(("N", "d"), "output")}
TAKE = Schedule("take", take, "rows of another GPU", tensors=MOVED)


def moved(case: Case, run: Runner, rank: int, rows: object, heads: int) -> tuple[object, int]:
    """Rows of the other GPU, copied to GPU `rank`, and the words that went from one to the other."""
    p = Attention(case.p.N // RANKS, case.p.d, heads=heads, dtype=case.p.dtype, acc_dtype="fp32")
    copy = generate(TAKE, p, Tiling(64, 64), count=True)
    outputs, words = run(1 - rank if case.stored else rank, copy, {"X": rows}, home=rank)
    return outputs["Y"], words["Y"][1] if case.stored else words["X"][0]


def visit(case: Case, rank: int, other: int, folder: Path) -> Attention:
    """The problem of the rows of a GPU with the keys of one, under the mask that they have there."""
    n = case.p.N // RANKS
    p = replace(case.p, N=n, Nk=n, mask=parse_mask("dense"))
    if not case.causal:
        return p
    seen = case.places(rank)[:, None] >= case.places(other)[None, :]
    if seen.all():
        return p
    file = folder / f"{case.scheme}-{rank}-{other}.npy"
    np.save(file, seen)
    return replace(p, mask=parse_mask(f"file:{file}"))


def ring(case: Case, shards: list[Arrays], run: Runner, folder: Path) -> tuple[list[Arrays], list[Words]]:
    """Queries stay, and the keys of the other GPU come: O, l and m of each GPU, and the words that it received."""
    outputs, received = [], []
    for rank in range(RANKS):
        own = {name: shards[rank][name] for name in "QKV"}
        state, _ = run(rank, generate(FIRST, visit(case, rank, rank, folder), case.tiles, count=True), own)
        keys, words = keys_of_other(case, shards, run, rank)
        later = {"Q": own["Q"], **keys, **state}
        done, _ = run(rank, generate(HOP, visit(case, rank, 1 - rank, folder), case.tiles, count=True), later)
        outputs.append(done)
        received.append(words)
    return outputs, received


def keys_of_other(case: Case, shards: list[Arrays], run: Runner, rank: int) -> tuple[Arrays, Words]:
    """K and V of the other GPU, here, and the words that came."""
    found = {name: moved(case, run, rank, shards[1 - rank][name], case.p.heads) for name in "KV"}
    return {name: rows for name, (rows, _) in found.items()}, {name: words for name, (_, words) in found.items()}


def ring_backward(case: Case, shards: list[Arrays], run: Runner, folder: Path) -> tuple[list[Arrays], list[Words]]:
    """After a forward pass, whose words are not counted: the keys come again, and their gradients go home."""
    states, _ = ring(case, shards, run, folder)
    found, parts, received = [], [], []
    for rank in range(RANKS):
        queries = {"Q": shards[rank]["Q"], "dO": shards[rank]["dO"], "LSE": log_sum_exp(states[rank])}
        rows = {"dO": queries["dO"], "O": states[rank]["O"]}
        queries |= run(rank, generate(DOTS, visit(case, rank, rank, folder), case.tiles, count=True), rows)[0]
        own = {**queries, **{name: shards[rank][name] for name in "KV"}}
        mine, _ = run(rank, generate(GRADIENTS, visit(case, rank, rank, folder), case.tiles, count=True), own)
        keys, words = keys_of_other(case, shards, run, rank)
        later = {**queries, **keys, "dQ": mine["dQ"]}
        both, _ = run(rank, generate(GRADIENTS, visit(case, rank, 1 - rank, folder), case.tiles, count=True), later)
        found.append({**mine, "dQ": both.get("dQ", mine["dQ"])})
        parts.append({name: both.get(name, nothing(mine[name])) for name in ("dK", "dV")})
        received.append(words)
    for rank in range(RANKS):
        for name in ("dK", "dV"):
            rows, words = moved(case, run, rank, parts[1 - rank][name], case.p.heads)
            found[rank][name] = added(found[rank][name], rows)
            received[rank][f"{name}part"] = words
    return found, received


def log_sum_exp(state: Arrays) -> object:
    """LSE of each row, on its GPU."""
    return where(state["m"], lambda: state["m"] + np.log(state["l"]))  # type: ignore[operator, call-overload]


def added(mine: object, its: object) -> object:
    """The sum of two arrays of one GPU."""
    return where(mine, lambda: mine + its)  # type: ignore[operator]


def nothing(array: object) -> object:
    """Zeros in place of an array, of a visit in which nothing is visible."""
    return where(array, lambda: array * 0)  # type: ignore[operator]


def where(array: object, compute: Callable[[], object]) -> object:
    """What is computed on the GPU of an array."""
    if isinstance(array, np.ndarray):
        return compute()
    with array.device:  # type: ignore[attr-defined]
        return compute()


def ulysses(case: Case, shards: list[Arrays], run: Runner, folder: Path) -> tuple[list[Arrays], list[Words]]:
    """Each GPU gathers half of the heads of all tokens, and sends their O home."""
    p, n, half = case.p, case.p.N // RANKS, case.p.heads // RANKS
    gathered, received = [], []
    for rank in range(RANKS):
        mine = slice(rank * half, (rank + 1) * half)
        there = {name: moved(case, run, rank, shards[1 - rank][name][mine], half) for name in "QKV"}  # type: ignore[index]
        parts = {name: (shards[rank][name][mine], rows) for name, (rows, _) in there.items()}  # type: ignore[index]
        whole = {name: joined(parts[name] if rank == 0 else parts[name][::-1]) for name in "QKV"}
        flash2 = generate(iosim.SCHEDULES["flash2"], replace(p, heads=half, kv_heads=half), case.tiles, count=True)
        done, _ = run(rank, flash2, whole)
        gathered.append(done["O"])
        received.append({name: words for name, (_, words) in there.items()})
    outputs = []
    for rank in range(RANKS):
        rows = slice(rank * n, (rank + 1) * n)
        home = where(gathered[1 - rank], partial(rows_together, gathered[1 - rank], rows))  # rows that lie together
        o, received[rank]["Oheads"] = moved(case, run, rank, home, half)
        own = gathered[rank][:, rows]  # type: ignore[index]
        outputs.append({"O": joined((own, o) if rank == 0 else (o, own), axis=0)})
    return outputs, received


def rows_together(array: np.ndarray, rows: slice) -> object:
    """Rows of all heads in memory of their own."""
    return array[:, rows].copy()


def joined(parts: tuple[object, ...], axis: int = 1) -> object:
    """Arrays of one GPU as one, on that GPU."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts, axis)  # type: ignore[arg-type]
    import cupy

    with first.device:  # type: ignore[attr-defined]
        return cupy.concatenate(parts, axis)


SCHEMES = {"ring": ring, "zigzag": ring, "ulysses": ulysses}
BACKWARD = {"ring": ring_backward, "zigzag": ring_backward}


def cases(large: bool = False) -> list[Case]:
    """The cases that are run. Large ones take a time that can be measured."""
    if large:
        p = Attention(32768, 128, heads=16, dtype="fp16", acc_dtype="fp32")
        return [Case("ring", p, Tiling(64, 64))]
    p = Attention(1556, 64, heads=4, dtype="fp16", acc_dtype="fp32")
    causal = replace(p, mask=parse_mask("causal"))
    return several(p, causal, Tiling(64, 64))


def several(p: Attention, causal: Attention, tiles: Tiling) -> list[Case]:
    """All schemes on a problem, rings under its causal mask too, and backward passes in fp32."""
    found = [Case(name, p, tiles) for name in SCHEMES]
    found += [Case(name, causal, tiles) for name in ("ring", "zigzag")]
    small = Tiling(min(32, tiles.rows_q), min(32, tiles.rows_k))
    return [*found, *(Case(name, replace(q, dtype="fp32"), small, True) for name in BACKWARD for q in (p, causal))]


def inputs_of(case: Case) -> dict[str, np.ndarray]:
    """Q, K, V and dO of all heads, in the type of the case."""
    rng = np.random.default_rng(case.p.N)
    shape, kind = (case.p.heads, case.p.N, case.p.d), np.float16 if case.p.dtype == "fp16" else np.float32
    return {name: rng.normal(size=shape).astype(kind) for name in ("Q", "K", "V", "dO")}


def answers_of(case: Case, whole: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """O of all heads in float64, or its gradients."""
    p = case.p
    visible = np.tri(p.N, dtype=bool) if case.causal else None
    heads = [{name: x[h].astype(float) for name, x in whole.items()} for h in range(p.heads)]
    if not case.backward:
        return {"O": np.stack([attention(x["Q"], x["K"], x["V"], visible) for x in heads])}
    found = [gradients(x["Q"], x["K"], x["V"], x["dO"], visible) for x in heads]
    return {name: np.stack([each[name] for each in found]) for name in ("dQ", "dK", "dV")}


def shards_of(case: Case, whole: Mapping[str, np.ndarray], put: Callable[[int, np.ndarray], object]) -> list[Arrays]:
    """The rows that each GPU has."""
    return [
        {name: put(rank, np.ascontiguousarray(x[:, case.places(rank)])) for name, x in whole.items()}
        for rank in range(RANKS)
    ]


def predicted(case: Case) -> dict[str, int]:
    """The words of each tensor that `iosim links` says all GPUs receive together."""
    p = case.p
    fields = {"heads": p.heads, "dtype": p.dtype, "acc_dtype": "fp32", "mask": str(p.mask), "M": "227KB",
              "passes": "backward" if case.backward else "forward"}  # fmt: skip
    (row,) = iosim.links(p.N, p.d, RANKS, schedules=case.scheme, **fields).to_dict()["results"]
    return row["tensors"]


def rows_of(case: Case, run: Runner, put: Callable[[int, np.ndarray], object], folder: Path) -> list[dict[str, object]]:
    """A row for each tensor and GPU that ran the kernel of its move: the words that it counted, those of iosim, and the
    error of the output of the GPU that got the rows."""
    whole = inputs_of(case)
    shards = shards_of(case, whole, put)
    outputs, received = (BACKWARD if case.backward else SCHEMES)[case.scheme](case, shards, run, folder)
    answers, said = answers_of(case, whole), predicted(case)
    rows = []
    for rank, (found, words) in enumerate(zip(outputs, received, strict=True)):
        error = max(
            float(np.abs(host(found[name]).astype(float) - answer[:, case.places(rank)]).max())
            for name, answer in answers.items()
        )
        assert {*words} == {*said}, (words, said)
        for name, counted in words.items():
            rows.append({"scheme": case.scheme, "pass": "backward" if case.backward else "forward",
                         "mask": str(case.p.mask), "dtype": case.p.dtype, "N": case.p.N, "d": case.p.d,
                         "heads": case.p.heads, "gpu": 1 - rank if case.stored else rank, "tensor": name,
                         "counted_words": counted,
                         "iosim_words": said[name] // RANKS, "equal": counted * RANKS == said[name],
                         "error": f"{error:.2e}"})  # fmt: skip
    return rows


def host(array: object) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()  # type: ignore[attr-defined]


# ---------------------------------------------------------------- two GPUs


class Gpus:
    """Runs programs on one of two GPUs. What is given to a kernel may lie on the other one."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.kernels: dict[tuple[int, str, str], object] = {}
        for rank in range(RANKS):
            with cupy.cuda.Device(rank):
                cupy.cuda.runtime.deviceEnablePeerAccess(1 - rank)

    def put(self, rank: int, array: np.ndarray) -> object:
        with self.cupy.cuda.Device(rank):
            return self.cupy.asarray(array)

    def kernel(self, rank: int, program: Program, number: int) -> object:
        from iosim.gpu import device

        kernel = program.kernels[number]
        key = (rank, program.source, kernel.name)
        if key not in self.kernels:
            self.kernels[key] = device._function.__wrapped__(
                program.source, program.defines, kernel.name, kernel.smem_bytes
            )
        return self.kernels[key]

    def start(self, rank: int, program: Program, arrays: Mapping[str, object], tables: Mapping[str, object],
              counts: object) -> None:  # fmt: skip
        for number, kernel in enumerate(program.kernels):
            given = [arrays[name] for name in kernel.tensors] + [tables[name] for name in kernel.tables]
            found = self.kernel(rank, program, number)
            found(kernel.grid, kernel.block, (*given, counts), shared_mem=kernel.smem_bytes)  # type: ignore[operator]

    def made(self, rank: int, program: Program, inputs: Mapping[str, object]) -> Arrays:
        """The arrays of a program: its inputs, and the others on a GPU."""
        from iosim.gpu.run import make_arrays

        with self.cupy.cuda.Device(rank):
            here = {
                name: self.cupy.zeros(array.full_shape, np.float32)
                for name, array in program.arrays.items()
                if name in inputs
            }
            found = make_arrays(program, here)
            self.cupy.cuda.Device(rank).synchronize()
        return {name: inputs.get(name, array) for name, array in found.items()}

    def run(
        self, rank: int, program: Program, inputs: Mapping[str, object], home: int | None = None
    ) -> tuple[Arrays, dict[str, tuple[int, int]]]:
        cp = self.cupy
        arrays = self.made(rank if home is None else home, program, inputs)
        with cp.cuda.Device(rank):
            tables = {name: cp.asarray(words) for name, words in program.tables.items()}
            counts = cp.zeros(max(1, len(program.counters)), np.uint64)
            self.start(rank, program, arrays, tables, counts)
            cp.cuda.Device(rank).synchronize()
            found = program.counts_by_tensor(counts.get())
        outputs = {name: array for name, array in arrays.items() if found.get(name, (0, 0))[1]}
        return outputs, found


def times(gpus: Gpus, case: Case, folder: Path) -> list[dict[str, object]]:
    """Milliseconds of what GPU 0 does in a ring: its own keys, the hop, and the keys that came, beside the bounds."""
    cp, p, n = gpus.cupy, case.p, case.p.N // RANKS
    shards = shards_of(case, inputs_of(case), gpus.put)
    first = generate(FIRST, visit(case, 0, 0, folder), case.tiles)
    come = generate(TAKE, Attention(n, p.d, heads=p.heads, dtype="fp16", acc_dtype="fp32"), Tiling(64, 64))
    with cp.cuda.Device(0):
        o = cp.empty((p.heads, n, p.d), np.float32)
        l, m = (cp.empty((p.heads, n), np.float32) for _ in range(2))
        here = cp.empty((p.heads, n, p.d), np.float16)
        none = cp.zeros(1, np.uint64)
        work = {
            "own keys": lambda: gpus.start(0, first, {**shards[0], "O": o, "l": l, "m": m}, {}, none),
            "a hop: K by the generated kernel": lambda: gpus.start(0, come, {"X": shards[1]["K"], "Y": here}, {}, none),
            "a hop: K by a copy": lambda: here.data.copy_from_device_async(
                shards[1]["K"].data, here.nbytes, cp.cuda.Stream.null
            ),  # type: ignore[attr-defined]
        }
        rows = []
        for what, start in work.items():
            start()
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            begin.record()
            for _ in range(10):
                start()
            end.record()
            end.synchronize()
            moved = 0 if what == "own keys" else here.nbytes
            each = cp.cuda.get_elapsed_time(begin, end) / 10
            rate = f"{moved / each / 1e6:.1f}" if moved else ""
            rows.append({"what": what, "milliseconds": f"{each:.4f}", "link_bytes": moved, "GB_per_second": rate})
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """The exit code: 1 if a case failed, a word differs, or an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--stored", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    gpus = Gpus()
    with TemporaryDirectory() as masks:
        rows, failed = [], 0
        for case in cases():
            try:
                found = rows_of(replace(case, stored=given.stored), gpus.run, gpus.put, Path(masks))
            except Exception:
                failed += 1
                print(case, traceback.format_exc(), flush=True)
                continue
            rows += found
            write(given.folder / ("stored.csv" if given.stored else "on_gpus.csv"), rows)
            for row in found:
                print(*row.values(), sep=",", flush=True)
        if given.times and not given.once:
            found = times(gpus, cases(large=True)[0], Path(masks))
            write(given.folder / "times.csv", found)
            for row in found:
                print(*row.values(), sep=",", flush=True)
    return int(failed > 0 or not all(row["equal"] and float(str(row["error"])) < 4e-3 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
