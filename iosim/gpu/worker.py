"""The worker: a process that runs jobs on the GPU and notes what it finds.

`python -m iosim.gpu.worker profile|measure JOBS.json NOTES.jsonl [FILE.py ...]`, where the last files register
schedules. `measure` counts words with the instrumented kernels, compares outputs with float64, and times launches with
events. `profile` is for Nsight Compute: it launches each job once, after a marker, between profilerStart and
profilerStop. Each job adds one JSON line to the notes. PyTorch is imported only for jobs that run one of its kernels.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..errors import IosimError
from ..schedules import find
from . import device, flex
from .jobs import FLEX, TORCH, Job, Note, ScheduleJob, TorchJob, job_from_json, runner
from .ncu.counters import MARKERS
from .outputs import inputs_of, output_errors

REPEATS = 10
FLUSH_BYTES = 1 << 30
LARGE_LOGITS = 8.0  # scale of Q and K in the second output check
FAULTED = 4  # exit code

Start = Callable[[], None]  # starts launches on the current stream


def main(mode: str, jobs_path: str, notes_path: str, *load: str) -> None:
    """Run the jobs of a file and write their notes. Exit with FAULTED after a fault that leaves the GPU unusable."""
    for file in load:
        runpy.run_path(file)
    jobs = json.loads(Path(jobs_path).read_text(encoding="utf-8"))
    work = {"profile": profile_job, "measure": measure_job}[mode]
    with open(notes_path, "w", encoding="utf-8") as notes:
        for job in jobs:
            note: Note = {"job": job, **work(job_from_json(job))}
            notes.write(json.dumps(note) + "\n")
            notes.flush()
            if "failed" in note and not device_lives():
                sys.exit(FAULTED)
            device.cupy().get_default_memory_pool().free_all_blocks()


def device_lives() -> bool:
    """Whether this process can still use the GPU. It cannot after an illegal access."""
    try:
        device.cupy().cuda.Device().synchronize()
    except Exception:
        return False
    return True


# ---------------------------------------------------------------- under the profiler


def profile_job(job: Job) -> Note:
    """Launch a job once, after a marker. Compilation and warm-up are not profiled."""
    try:
        launch = starter_of(job)
        launch()
    except Exception as error:  # one job's failure is its own row, whatever it was
        profiled(_nothing)
        return {"failed": one_line(error)}
    profiled(launch)
    launch = _nothing  # gives its memory back
    device.cupy().get_default_memory_pool().free_all_blocks()
    return {}


def profiled(launch: Start) -> None:
    """Launch under the profiler, after a marker."""
    xp = device.cupy()
    xp.cuda.Device().synchronize()
    marker = xp.RawKernel(f'extern "C" __global__ void {MARKERS[0]}() {{}}', MARKERS[0])
    marker((1,), (1,), ())
    xp.cuda.Device().synchronize()
    xp.cuda.runtime.profilerStart()
    marker((1,), (1,), ())
    launch()
    xp.cuda.Device().synchronize()
    xp.cuda.runtime.profilerStop()


def _nothing() -> None: ...


def starter_of(job: Job) -> Start:
    """The launches of a job, ready to be started."""
    return torch_call(job) if isinstance(job, TorchJob) else runner(job).call(inputs_of(job))


def torch_call(job: TorchJob) -> Start:
    """A call of FlexAttention, or of PyTorch's scaled_dot_product_attention with one backend."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    p = job.problem
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[p.dtype]
    shapes = [(p.batch, p.heads, p.N, p.d), (p.batch, p.kv_heads, p.Nk, p.d), (p.batch, p.kv_heads, p.Nk, p.dv)]
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype) for shape in shapes)
    if job.name == FLEX:
        attend = flex.compiled(torch, p)
        return lambda: attend(q, k, v)
    options = {"is_causal": p.mask.is_causal, "enable_gqa": p.kv_heads != p.heads}

    def call() -> None:
        with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, TORCH[job.name])):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    return call


# ---------------------------------------------------------------- without the profiler


def measure_job(job: Job) -> Note:
    """The note on a job: words, output errors and time of a schedule's kernels, or only the time of others."""
    try:
        if not isinstance(job, ScheduleJob):
            return {"seconds": seconds(starter_of(job))}
        return measure_kernels(job)
    except Exception as error:  # as above
        return {"failed": one_line(error)}


def measure_kernels(job: ScheduleJob) -> Note:
    """The note on the kernels of a schedule."""
    kernels = runner(job)
    counted = kernels.run(inputs_of(job), count=True)[1]
    words = {name: list(pair) for name, pair in counted.items()}
    found: Note = {"words": words, "launches": list(kernels.launches)}
    found.update(kernels.sizes)
    found.update(output_errors(job, 1.0))
    if find(job.name).softmax_inputs:
        found["large_logits"] = output_errors(job, LARGE_LOGITS)
    found["seconds"] = seconds(kernels.call(inputs_of(job)))
    return found


def one_line(error: Exception) -> str:
    """An error as one line. The type of an IosimError is left out, because its message says enough."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, IosimError) else f"{type(error).__name__}: {text}"


def seconds(call: Start) -> float:
    """The median time of some launches, each with an empty L2 before it."""
    return 1e-3 * device.milliseconds(call, REPEATS, device.cupy().empty(FLUSH_BYTES, np.uint8))


USAGE = "usage: python -m iosim.gpu.worker profile|measure JOBS.json NOTES.jsonl [FILE.py ...]"

if __name__ == "__main__":
    if len(sys.argv) < 4:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except IosimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
