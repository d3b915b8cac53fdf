"""What runs on the GPU in a process of its own: `python -m iosim.gpu.worker profile|measure JOBS.json NOTES.jsonl
[FILE.py ...]`; the files register schedules.

`measure` counts words with the instrumented kernels, compares outputs with float64, and times launches with events.
`profile` launches each job once, after a marker, between profilerStart and profilerStop: for Nsight Compute.
Each job adds one JSON line to the notes. PyTorch is imported only for jobs that run one of its kernels.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..cuts import keys_held
from ..errors import IosimError
from ..folded import Folded
from ..problem import DENSE
from ..schedules import find
from ..watchers import Traffic, Watcher
from . import accuracy, device
from .counters import ELSEWHERE, MARKERS
from .jobs import TORCH, WAIT, Job, problem_of, runner, tiling_of

HEADS_CHECKED = 4
REPEATS = 10
FLUSH_BYTES = 1 << 30
LARGE_LOGITS = 8.0  # scale of Q and K in the second output check
FAULTED = 4  # exit code


def main(mode: str, jobs_path: str, notes_path: str, *load: str) -> None:
    for file in load:
        runpy.run_path(file)
    jobs = json.loads(Path(jobs_path).read_text(encoding="utf-8"))
    work = {"profile": profile_job, "measure": measure_job}[mode]
    with open(notes_path, "w", encoding="utf-8") as notes:
        for job in jobs:
            note = {"job": job, **work(job)}
            notes.write(json.dumps(note) + "\n")
            notes.flush()
            if "failed" in note and not device_lives():
                sys.exit(FAULTED)
            device.cupy().get_default_memory_pool().free_all_blocks()


def device_lives() -> bool:
    """Whether this process can still use the GPU: after an illegal access it cannot."""
    try:
        device.cupy().cuda.Device().synchronize()
    except Exception:
        return False
    return True


# ---------------------------------------------------------------- under the profiler


def profile_job(job: Job) -> dict[str, Any]:
    """One launch (of each kernel) of a job, marked; compiled and warmed up outside of what is profiled. A job with
    `places` is launched so often, its arrays in other memory each time."""
    for place in range(job.get("places", 1)):
        try:
            launch = call_of(job, place)
            launch()
        except Exception as error:  # one job's failure is its own row, whatever it was
            if not place:
                profiled(_nothing)
            return {"failed": describe(error)}
        profiled(launch, ELSEWHERE if place else MARKERS[0])
        launch = _nothing  # gives its memory back
        device.cupy().get_default_memory_pool().free_all_blocks()
    return {}


def profiled(launch: Callable[[], None], name: str = MARKERS[0]) -> None:
    """What the profiler sees: a marker, then the launch."""
    xp = device.cupy()
    xp.cuda.Device().synchronize()
    marker = xp.RawKernel(f'extern "C" __global__ void {name}() {{}}', name)
    marker((1,), (1,), ())
    xp.cuda.Device().synchronize()
    xp.cuda.runtime.profilerStart()
    marker((1,), (1,), ())
    launch()
    xp.cuda.Device().synchronize()
    xp.cuda.runtime.profilerStop()


def _nothing() -> None: ...


def call_of(job: Job, place: int = 0) -> Any:
    if job["run"] == WAIT:
        return device.waiting(job["milliseconds"] * 1_000_000)
    return torch_call(job) if job["run"] in TORCH else runner(job).call(inputs_of(job), place)


def torch_call(job: Job) -> Any:
    """A call of PyTorch's scaled_dot_product_attention with one backend."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    p = problem_of(job)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[p.dtype]
    shapes = [(p.batch, p.heads, p.N, p.d), (p.batch, p.kv_heads, p.Nk, p.d), (p.batch, p.kv_heads, p.Nk, p.dv)]
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype) for shape in shapes)
    options = {"is_causal": str(p.mask) == "causal", "enable_gqa": p.kv_heads != p.heads}

    def call() -> None:
        with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, TORCH[job["run"]])):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    return call


# ---------------------------------------------------------------- without the profiler


def measure_job(job: Job) -> dict[str, Any]:
    """Words, output errors and time of a generated or tuned kernel; the time alone of one of PyTorch's."""
    try:
        if job["run"] in TORCH:
            return {"seconds": seconds(torch_call(job))}
        kernels = runner(job)
        words = kernels.run(inputs_of(job), count=True)[1]
        found = {"words": words, "launches": kernels.launches, **kernels.sizes, **output_errors(job, 1.0)}
        found["large_logits"] = output_errors(job, LARGE_LOGITS)
        return {**found, "seconds": seconds(kernels.call(inputs_of(job)))}
    except Exception as error:  # as above
        return {"failed": describe(error)}


def describe(error: Exception) -> str:
    """One line; our own errors say enough by themselves."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, IosimError) else f"{type(error).__name__}: {text}"


def inputs_of(job: Job, scale: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Random Q, K, V of every head, in float32 on the device, rounded to what the kernel is given."""
    p, xp = problem_of(job), device.cupy()
    rng = xp.random.default_rng(seed)
    shapes = {"Q": (p.instances, p.N, p.d), "K": (p.batch * p.kv_heads, p.Nk, p.d)}
    shapes["V"] = (p.batch * p.kv_heads, p.Nk, p.dv)
    arrays = {name: rng.standard_normal(shape, dtype=xp.float32) for name, shape in shapes.items()}
    arrays["Q"] *= scale
    arrays["K"] *= scale
    return {name: rounded(array, p.dtype) for name, array in arrays.items()}


def rounded(array: Any, dtype: str) -> Any:
    return device.from_device(device.to_device(array, dtype), dtype).astype(np.float32)


def output_errors(job: Job, scale: float) -> dict[str, Any]:
    """The largest error over some heads, and what is allowed. Outputs start poisoned with NaN."""
    p, xp = problem_of(job), device.cupy()
    inputs = inputs_of(job, scale)
    outputs, _ = runner(job).run(inputs)
    found = outputs["O"].reshape(p.instances, p.N, p.dv)
    visible, (travels, divided) = visible_rows(job), roundings(job)
    worst = base = largest = 0.0
    for head in sorted({round(x) for x in np.linspace(0, p.instances - 1, HEADS_CHECKED)}):
        kv = head // p.heads * p.kv_heads + head % p.heads // (p.heads // p.kv_heads)
        q, k, v = inputs["Q"][head], inputs["K"][kv], inputs["V"][kv]
        expected = accuracy.reference(xp, q, k, v, visible)
        same = accuracy.baseline(xp, q, k, v, lambda x: rounded(x, p.dtype), lambda x: rounded(x, str(p.acc_dtype)),
                                 job["tiles"][1], visible, travels, divided, held_keys(job))  # fmt: skip
        worst = max(worst, accuracy.largest_error(xp, found[head], expected))
        base = max(base, accuracy.largest_error(xp, same, expected))
        largest = max(largest, float(xp.max(xp.abs(expected))))
    unwritten = int(xp.isnan(found).sum())
    allowed = accuracy.allowed_error(base, largest)
    return {"error": min(worst, 1e300), "baseline_error": base, "allowed_error": allowed, "unwritten": unwritten}


class Divided(Watcher):
    """Notes whether a tile of scores is divided by its sum before the product with V, not O after it."""

    found = False

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        by_keys = not isinstance(outputs[0].shape[-1], int)
        self.found |= by_keys and len(outputs[0].shape) == 2 and getattr(step, "__name__", "") == "normalise"


def roundings(job: Job) -> tuple[set[str], bool]:
    """Tensors that the schedule both stores and loads, and whether it divides P before its product. No mask changes
    that."""
    traffic, divided = Traffic(), Divided()
    Folded(replace(problem_of(job), mask=DENSE), traffic, divided).run(find(job["run"]), tiling_of(job))
    return {name for name, (reads, writes) in traffic.tensors.items() if reads and writes}, divided.found


def held_keys(job: Job) -> int | None:
    """Keys after which O is rounded, where that is less than a tile."""
    return keys_held(job["tiles"][1]) if any(launch["tensor_cores"] for launch in runner(job).launches) else None


def visible_rows(job: Job) -> Any:
    """visible(first row, rows) -> bool (rows, Nk) on the device, or None for a dense mask."""
    p = problem_of(job)
    if p.mask is DENSE:
        return None
    bound = p.mask.bind(p, tiling_of(job), True)
    return lambda x, rows: device.cupy().asarray(bound.visible(x, rows, 0, p.Nk))


def seconds(call: Any) -> float:
    """The median of some launches, from DRAM."""
    return 1e-3 * device.milliseconds(call, REPEATS, device.cupy().empty(FLUSH_BYTES, np.uint8))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except IosimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
