"""The self-test: runs every schedule on this GPU and compares output, words and shared memory with the expected ones.

`PYTHONPATH=. python3 validation/selftest.py FOLDER` needs CuPy and a GPU. It writes FOLDER/selftest.csv and
FOLDER/speed.csv, and prints both, shortened, at the end. The exit code is 1 if any row fails. `--only TEXT` runs the
cases whose line contains the text, and `--no-speed` leaves out the speeds.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from iosim.core.problem import DENSE, Attention
from iosim.core.tiling import Tiling
from iosim.counting.run import measure
from iosim.errors import IosimError
from iosim.gpu import device
from iosim.gpu.cuda.machine import generate
from iosim.gpu.cuda.program import Program
from iosim.gpu.outputs import allowed_of_example, rounded_on_host
from iosim.gpu.run import run_on_device
from iosim.oracles.accuracy import UNIT
from iosim.schedules import CORE, SCHEDULES
from validation.examples import Case, cases, example_arrays
from validation.speed import speeds

if TYPE_CHECKING:
    from iosim.core.typing import Words
    from iosim.gpu.arrays import DeviceArray, DeviceArrays

Row = dict[str, object]


def run_case(case: Case) -> Row:
    """The row of one case: output, counts and shared memory. `failed` names the checks that failed."""
    schedule, tiling = SCHEDULES[case.schedule], case.tiling
    p = case.problem.packed
    program = generate(schedule, p, tiling, count=True)
    plain = case.schedule in CORE and not p.latent and p.kv_scales == "none"
    error, baseline, allowed, counts = of_attention(program, case.scale) if plain else of_example(case, program)
    simulated = measure(schedule, p, tiling)["tensors"]
    wanted: Words = {name: (words["reads"], words["writes"]) for name, words in simulated.items()}
    good = {
        "words": same_words(counts, wanted),
        "smem": program.smem_bytes == program.footprint_bytes,
        "output": error <= allowed,
    }
    return {
        "case": str(case),
        "launches": len(program.kernels),
        "tensor_cores": any(kernel.tensor_cores for kernel in program.kernels),
        "words": total_words(counts),
        "simulated_words": total_words(wanted),
        "smem_bytes": program.smem_bytes,
        "footprint_bytes": program.footprint_bytes,
        "plain_footprint_bytes": program.plain_footprint_bytes,
        "error": error,
        "baseline_error": baseline,
        "allowed_error": allowed,
        "ok": all(good.values()),
        "failed": " ".join(name for name, right in good.items() if not right),
    }


def of_attention(program: Program, scale: float) -> tuple[float, float, float, Words]:
    """(error, baseline error, allowed error, words counted) of attention, on inputs made on the GPU. Q is multiplied by
    `scale`.

    The baseline is the same attention computed in the types of the problem.
    """
    p, tiling, xp = program.problem, program.tiling, device.cupy()
    rng = xp.random.default_rng(7)
    inputs = {}
    for name in ("Q", "K", "V"):
        array = program.arrays[name]
        values = rng.standard_normal(array.full_shape, np.float32) * (scale if name == "Q" else 1.0)
        inputs[name] = device.rounded(values, array.dtype)
    outputs, counts = run_on_device(program, inputs)
    scores = p.dtype if "S" in program.arrays else str(p.acc_dtype)  # the type that S is rounded to on its way
    error, baseline, largest = errors(p, tiling, inputs, outputs["O"], scores)
    rounds = counts["O"][1] / (p.instances * p.N * p.dv)  # times that each word of O is rounded to its dtype
    if p.acc_dtype != "fp32":
        rounds += -(-p.Nk // tiling.rows_k)
    allowed = 2 * baseline + (rounds * UNIT[p.dtype] + 2e-6) * largest
    return error if bool(xp.isfinite(outputs["O"]).all()) else float("inf"), baseline, allowed, counts


def of_example(case: Case, program: Program) -> tuple[float, float, float, Words]:
    """(error, 0, allowed error, words counted) on a schedule's own example. An error is a share of the largest value of
    its tensor; that of the worst tensor counts."""
    xp = device.cupy()
    inputs, answers = example_arrays(SCHEDULES[case.schedule], program, 7, rounded_on_host)
    outputs, counts = run_on_device(program, inputs)
    error = max(largest_of(outputs[name] - xp.asarray(x)) / np.abs(x).max() for name, x in answers.items())
    rounds = max(counts[name][1] / x.size for name, x in answers.items())  # roundings of each word
    return error, 0.0, allowed_of_example(rounds, program.problem.dtype), counts


def total_words(words: Words) -> int:
    """Words read and written, of all tensors."""
    return sum(map(sum, words.values()))


def same_words(found: Words, wanted: Words) -> bool:
    """Whether the words of every tensor are equal; a tensor that never moves may be left out."""
    return all(found.get(name, (0, 0)) == wanted.get(name, (0, 0)) for name in {*found, *wanted})


def errors(
    p: Attention, tiling: Tiling, inputs: DeviceArrays, output: DeviceArray, scores: str
) -> tuple[float, float, float]:
    """(largest error against float64, largest error of the baseline, largest true value), over the rows of at most four
    instances."""
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


def largest_of(x: DeviceArray) -> float:
    """The largest absolute value; infinite where one is NaN."""
    value = float(device.cupy().abs(x).max())
    return value if value == value else float("inf")


def softmax(
    p: Attention, q: DeviceArray, k: DeviceArray, v: DeviceArray, visible: DeviceArray | None, scores: str | None = None
) -> DeviceArray:
    """The softmax attention of some rows, in float64. With `scores`, the name of a type, it is in float32 with
    roundings: S to that type, P and O to the problem's dtype."""
    xp, kind = device.cupy(), np.float32 if scores else np.float64
    q, k, v = (x.astype(kind) for x in (q, k, v))
    s = q @ k.T * kind(q.shape[1] ** -0.5)
    s = device.rounded(s, scores) if scores else s
    if visible is not None:
        s[~visible] = -np.inf
    top = s.max(axis=1, keepdims=True)
    weights = xp.exp(s - xp.where(xp.isneginf(top), kind(0), top))
    sums = weights.sum(axis=1, keepdims=True)
    weights = device.rounded(weights, p.dtype) if scores else weights
    o = weights @ v / xp.where(sums == 0, kind(1), sums)
    return device.rounded(o, p.dtype) if scores else o


# ---------------------------------------------------------------- the table


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows to a CSV file, with the columns of all of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def cell_text(value: object) -> str:
    """A value as the printed table shows it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(arguments: list[str]) -> int:
    """Run the self-test; its exit code."""
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    folder = Path(arguments[0] if arguments and not arguments[0].startswith("--") else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print(device.name(), flush=True)
    begin, rows = time.time(), list[Row]()
    for case in [case for case in cases(folder) if only in str(case)]:
        try:
            rows.append(run_case(case))
        except Exception as fault:  # one case must not hide the others
            rows.append({"case": str(case), "ok": False, "failed": f"{type(fault).__name__}: {str(fault)[:300]}"})
        write_rows(folder / "selftest.csv", rows)
    speed = [] if "--no-speed" in arguments else speeds()
    write_rows(folder / "speed.csv", speed)
    shown = ("error", "baseline_error", "smem_bytes", "failed")
    for row in rows:
        values = {name: value for name, value in row.items() if name in shown and value}
        found = (f"{name}={cell_text(values[name])}" for name in shown if name in values)
        print("ok  " if row["ok"] else "FAIL", row["case"], *found)
    for line in speed:
        print(
            "    ", line["kernel"], *(f"{name}={cell_text(value)}" for name, value in line.items() if name != "kernel")
        )
    right = sum(row["ok"] for row in rows)
    print(f"{right} of {len(rows)} cases right, {time.time() - begin:.0f} s; CSV in {folder}")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except IosimError as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
