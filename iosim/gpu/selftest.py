"""python -m iosim.gpu.selftest FOLDER: every schedule on this GPU against a float64 reference and the counts.

Needs CuPy and a GPU. Writes FOLDER/selftest.csv and FOLDER/speed.csv; prints both, short, last. Exit code 1 when any
row fails. `--only TEXT` runs the cases whose line contains a text.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import IosimError
from ..experiment import measure, parse_mask
from ..problem import DENSE, Attention
from ..schedules import CORE, SCHEDULES
from ..tiling import Tiling, parse_tiles
from . import device
from .cuda import generate
from .examples import example_arrays, shapes
from .program import Program
from .run import run_on_device
from .speed import Row, speeds

ULP = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
EXAMPLE_ULPS = 6  # scores, probabilities and gradients that pass through HBM are rounded there, too


@dataclass(frozen=True)
class Case:
    """One shape: `sizes` are options of Attention."""

    schedule: str
    tiles: str
    sizes: dict[str, Any]
    mask: str = "dense"
    scale: float = 1.0
    depth: int = 1

    @property
    def tiling(self) -> Tiling:
        return replace(parse_tiles(self.tiles), depth=self.depth)

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        scale = f" x{self.scale:g}" if self.scale != 1 else ""
        return f"{self.schedule} {self.tiles} {sizes} {Path(self.mask).name}{scale}"


def cases(folder: Path) -> list[Case]:
    """At least 60 shapes: sizes, dtypes, masks, heads; tables of masks are written to `folder`."""
    tiles_file, tokens_file = mask_files(folder)
    fp32, fp16 = {"dtype": "fp32"}, {"dtype": "fp16", "acc_dtype": "fp32"}
    bf16, half = {"dtype": "bf16", "acc_dtype": "fp32"}, {"dtype": "fp16"}
    found = [Case("standard", "1x1", {"N": N, "d": d, **t}) for (N, d), t in
             itertools.product([(1, 16), (96, 32), (257, 64)], [fp32, fp16, bf16])]  # fmt: skip
    for name, (sizes, tiles) in itertools.product(["standard-tiled", "flash1", "flash2"], SHAPES):
        found += [Case(name, tiles, {**sizes, **t}) for t in (fp32, fp16, bf16) if fits(sizes, tiles, t)]
    for name in ("block-sparse", "block-sparse-q"):
        for mask in ("causal", "window:200", "causal&window:100", "global:64|strided:64", f"file:{tiles_file}"):
            found.append(Case(name, "64x64", {"N": 1024, "d": 64, "heads": 4, **fp16}, mask))
        found.append(Case(name, "32x48", {"N": 777, "Nk": 1000, "d": 40, "heads": 3, **fp32}, "causal"))
        found.append(Case(name, "16x32", {"N": 256, "d": 128, "heads": 2, **bf16}, f"file:{tokens_file}"))
        found.append(Case(name, "64x64", {"N": 1024, "d": 64, **half}, "~causal"))
    for name in ("standard-tiled", "flash1", "flash2"):
        found.append(Case(name, "64x64", {"N": 500, "d": 64, "heads": 6, "kv_heads": 2, "batch": 3, **fp16}, "causal"))
        found.append(Case(name, "48x32", {"N": 300, "d": 72, "heads": 2, **half}, "window:50"))
        found.append(Case(name, "64x64", {"N": 512, "d": 64, **fp16}, scale=30.0))
    found += [Case(name, tiles, {**sizes, **t}, mask) for name, tiles, sizes, t, mask in large(fp16, bf16)]
    return found + [Case(name, tiles, sizes, mask, depth=depth) for name, tiles, sizes, mask, depth in shapes()]


def large(fp16: Row, bf16: Row) -> list[tuple[str, str, Row, Row, str]]:
    """Long sequences and many heads."""
    decode = {"N": 1, "Nk": 16384, "d": 128, "heads": 32, "kv_heads": 8}
    return [
        ("flash2", "128x64", {"N": 16384, "d": 128}, fp16, "dense"),
        ("flash2", "64x64", {"N": 16384, "d": 64}, fp16, "causal"),
        ("flash1", "64x64", {"N": 16384, "d": 64}, fp16, "dense"),
        ("flash2", "64x64", decode, fp16, "dense"),
        ("standard-tiled", "128x128", {"N": 16384, "d": 64}, fp16, "dense"),
        ("flash2", "64x64", {"N": 2048, "d": 64, "heads": 264}, fp16, "dense"),
        ("flash1", "64x64", {"N": 1024, "d": 64, "heads": 264}, bf16, "dense"),
        ("standard-tiled", "64x64", {"N": 1024, "d": 64, "heads": 132}, fp16, "dense"),
    ]


SHAPES = [
    ({"N": 1, "d": 16}, "64x64"),
    ({"N": 50, "Nk": 33, "d": 24, "dv": 40, "heads": 2}, "16x16"),
    ({"N": 1000, "Nk": 777, "d": 64, "heads": 6, "kv_heads": 2}, "48x40"),
    ({"N": 2048, "d": 128, "heads": 2}, "64x64"),
    ({"N": 640, "d": 256, "heads": 3}, "32x32"),
    ({"N": 1024, "d": 80, "heads": 5}, "128x32"),
]


def fits(sizes: dict[str, Any], tiles: str, types: dict[str, Any]) -> bool:
    """Whether flash1 with these tiles fits in 227 KB."""
    from ..best_tiles import footprint

    room = footprint(SCHEDULES["flash1"], Attention(**sizes, **types), parse_tiles(tiles))
    return bool(room.peak_bytes <= 227 * 1024)


def mask_files(folder: Path) -> tuple[Path, Path]:
    """A random table of 16 x 16 tiles with empty lines, and one of 256 x 256 tokens."""
    rng = np.random.default_rng(1)
    tiles, tokens = rng.random((16, 16)) < 0.4, rng.random((256, 256)) < 0.3
    tiles[3], tiles[:, 5], tokens[7], tokens[:, 9], tokens[64:80] = False, False, False, False, False
    for name, table in (("tiles.npy", tiles), ("tokens.npy", tokens)):
        np.save(folder / name, table)
    return folder / "tiles.npy", folder / "tokens.npy"


def run_case(case: Case) -> Row:
    """Output, counts and shared memory of one case."""
    schedule, tiling = SCHEDULES[case.schedule], case.tiling
    p = schedule.about(Attention(**case.sizes, mask=parse_mask(case.mask)))
    program = generate(schedule, p, tiling, count=True)
    error, baseline, allowed, counts = (of_attention if case.schedule in CORE else of_example)(case, p, program)
    found = {name: {"reads": r, "writes": w} for name, (r, w) in counts.items()}
    wanted = measure(schedule, p, tiling)["tensors"]
    good = {
        "words": same(found, wanted),
        "smem": program.smem_bytes == program.footprint_bytes,
        "output": error <= allowed,
    }
    return {
        "case": str(case),
        "launches": len(program.kernels),
        "tensor_cores": any(kernel.tensor_cores for kernel in program.kernels),
        "words": total(found),
        "simulated_words": total(wanted),
        "smem_bytes": program.smem_bytes,
        "footprint_bytes": program.footprint_bytes,
        "plain_footprint_bytes": program.plain_footprint_bytes,
        "error": error,
        "baseline_error": baseline,
        "allowed_error": allowed,
        "ok": all(good.values()),
        "failed": " ".join(name for name, right in good.items() if not right),
    }


def of_attention(case: Case, p: Attention, program: Program) -> tuple[float, float, float, Any]:
    """(error, that of the same in the types of the case, allowed, words counted) on inputs made on the GPU."""
    xp, tiling = device.cupy(), case.tiling
    rng = xp.random.default_rng(7)
    inputs = {}
    for name in ("Q", "K", "V"):
        array = program.arrays[name]
        values = rng.standard_normal(array.full_shape, np.float32) * (case.scale if name == "Q" else 1.0)
        inputs[name] = rounded(values, array.dtype)
    outputs, counts = run_on_device(program, inputs)
    scores = p.dtype if "S" in program.arrays else str(p.acc_dtype)  # what S is rounded to on its way
    error, baseline, largest = errors(p, tiling, inputs, outputs["O"], scores)
    rounds = counts["O"][1] / (p.instances * p.N * p.dv)  # how often each word of O is rounded to its dtype
    if p.acc_dtype != "fp32":
        rounds += -(-p.Nk // tiling.rows_k)
    allowed = 2 * baseline + (rounds * ULP[p.dtype] + 2e-6) * largest
    return error if bool(xp.isfinite(outputs["O"]).all()) else float("inf"), baseline, allowed, counts


def of_example(case: Case, p: Attention, program: Program) -> tuple[float, float, float, Any]:
    """The same for a schedule's own example. The error is that of the worst tensor, as a part of its largest value."""
    xp = device.cupy()
    inputs, answers = example_arrays(SCHEDULES[case.schedule], p, case.tiling, program, 7, rounded_on_host)
    outputs, counts = run_on_device(program, inputs)
    error = max(largest_of(outputs[name] - xp.asarray(x)) / np.abs(x).max() for name, x in answers.items())
    return error, 0.0, EXAMPLE_ULPS * ULP[p.dtype] + 1e-5, counts


def rounded_on_host(array: Any, dtype: str) -> Any:
    return device.cupy().asnumpy(rounded(array, dtype)).astype(np.float64)


def total(words: dict[str, Any]) -> int:
    return sum(sum(x.values()) for x in words.values())


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Equal words for every tensor; one that never moves may be left out."""
    none = {"reads": 0, "writes": 0}
    return all(found.get(name, none) == wanted.get(name, none) for name in {*found, *wanted})


def errors(p: Attention, tiling: Tiling, inputs: Row, output: Any, scores: str) -> tuple[float, float, float]:
    """(largest error against float64, that of the same in the types of the case, largest true value), over the rows
    of at most four instances."""
    xp = device.cupy()
    worst = baseline = largest = 0.0
    bound = None if p.mask is DENSE else p.mask.bind(p, tiling, True)
    for head in sorted({0, p.instances // 3, p.instances // 2, p.instances - 1}):
        kv = head // p.heads * p.kv_heads + head % p.heads // (p.heads // p.kv_heads)
        q, k, v = inputs["Q"][head], inputs["K"][kv], inputs["V"][kv]
        chunk = max(1, 2**26 // p.Nk)
        for x in range(0, p.N, chunk):
            rows = slice(x, min(x + chunk, p.N))
            size = rows.stop - rows.start
            visible = None if bound is None else xp.asarray(bound.visible(x, size, 0, p.Nk))
            true = softmax(p, q[rows], k, v, visible)
            plain = softmax(p, q[rows], k, v, visible, scores)
            worst = max(worst, largest_of(output[head][rows] - true))
            baseline = max(baseline, largest_of(plain - true))
            largest = max(largest, largest_of(true))
    return worst, baseline, largest


def largest_of(x: Any) -> float:
    value = float(device.cupy().abs(x).max())
    return value if value == value else float("inf")


def softmax(p: Attention, q: Any, k: Any, v: Any, visible: Any, scores: str | None = None) -> Any:
    """Plain softmax attention of some rows, in float64; or in float32, with S rounded to `scores`, P and O to dtype."""
    xp, kind = device.cupy(), np.float32 if scores else np.float64
    q, k, v = (x.astype(kind) for x in (q, k, v))
    s = q @ k.T * kind(q.shape[1] ** -0.5)
    s = rounded(s, scores) if scores else s
    if visible is not None:
        s[~visible] = -np.inf
    top = s.max(axis=1, keepdims=True)
    weights = xp.exp(s - xp.where(xp.isneginf(top), kind(0), top))
    sums = weights.sum(axis=1, keepdims=True)
    weights = rounded(weights, p.dtype) if scores else weights
    o = weights @ v / xp.where(sums == 0, kind(1), sums)
    return rounded(o, p.dtype) if scores else o


def rounded(x: Any, dtype: str) -> Any:
    return device.from_device(device.to_device(x, dtype), dtype).astype(np.float32)


# ---------------------------------------------------------------- the table


def write_csv(path: Path, rows: list[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(arguments: list[str]) -> int:
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    folder = Path(arguments[0] if arguments and not arguments[0].startswith("--") else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print(device.name(), flush=True)
    begin, rows = time.time(), []
    for case in [case for case in cases(folder) if only in str(case)]:
        try:
            rows.append(run_case(case))
        except Exception as fault:  # one case must not hide the others
            rows.append({"case": str(case), "ok": False, "failed": f"{type(fault).__name__}: {str(fault)[:300]}"})
        write_csv(folder / "selftest.csv", rows)
    speed = [] if "--no-speed" in arguments else speeds()
    write_csv(folder / "speed.csv", speed)
    shown = ("error", "baseline_error", "smem_bytes", "failed")
    for row in rows:
        print("ok  " if row["ok"] else "FAIL", row["case"], *(f"{n}={show(row[n])}" for n in shown if row.get(n)))
    for row in speed:
        print("    ", row["kernel"], *(f"{n}={show(v)}" for n, v in row.items() if n != "kernel"))
    right = sum(row["ok"] for row in rows)
    print(f"{right} of {len(rows)} cases right, {time.time() - begin:.0f} s; CSV in {folder}")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except IosimError as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
