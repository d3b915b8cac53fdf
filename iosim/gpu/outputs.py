"""The inputs of a job's kernels, and the errors of their outputs.

The error of softmax attention is judged by a baseline of the same precision (oracles/accuracy.py), that of other
schedules by the roundings that each of their words had. The bias of all of them is judged by the same steps in NumPy
(same_steps.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.problem import DENSE, Attention
from ..counting.roundings import roundings
from ..oracles import accuracy
from ..oracles.accuracy import UNIT, Judge
from ..oracles.attention import attention_output
from ..schedules import Schedule, find
from . import device
from .arrays import DeviceArray, DeviceArrays
from .cuda.machine import generate
from .cuda.program import Program
from .cuda.warp_split import keys_held
from .jobs import Job, OutputErrors, ScheduleJob, runner
from .moved import moved
from .same_steps import Met, slope_of_job

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.typing import Array, Arrays, Bools

    HostRounding = Callable[[NDArray[np.float64], str], Array]  # (array, dtype)

HEADS_CHECKED = 4
EXAMPLE_ULPS = 6  # scores, probabilities and gradients that pass through HBM are rounded there as well
SUMS = 1e-5  # share of the largest output; float32 sums differ by this much when their order changes


# ---------------------------------------------------------------- inputs


def inputs_of(job: Job, scale: float = 1.0, seed: int = 0) -> DeviceArrays:
    """Random inputs of every head, as floats on the device, rounded to the types of their tensors. Q and K are
    multiplied by `scale` before that."""
    if isinstance(job, ScheduleJob) and not is_plain(find(job.name), job.problem):
        return on_device(example_of(job, scale, seed)[1])
    p, xp = job.problem, device.cupy()
    rng = xp.random.default_rng(seed)
    shapes = {"Q": (p.instances, p.N, p.d), "K": (p.batch * p.kv_heads, p.Nk, p.d)}
    shapes["V"] = (p.batch * p.kv_heads, p.Nk, p.dv)
    arrays = {name: rng.standard_normal(shape, dtype=xp.float32) for name, shape in shapes.items()}
    arrays["Q"] *= scale
    arrays["K"] *= scale
    return {name: device.rounded(array, p.dtype) for name, array in arrays.items()}


def is_plain(schedule: Schedule, p: Attention) -> bool:
    """Whether a schedule makes O of Q, K and V that lie in HBM as attention uses them."""
    return schedule.answer is attention_output and not p.cache_text


def example_of(job: ScheduleJob, scale: float = 1.0, seed: int = 0) -> tuple[Program, Arrays, list[Arrays]]:
    """(the program, inputs, arrays of each head) of a schedule's own example."""
    schedule = find(job.name)
    program = generate(schedule, job.problem, job.tiling)
    scaled = dict.fromkeys(("Q", "K", "Krope"), scale) if schedule.softmax_inputs else {}
    return program, *example_inputs(schedule, program, seed, rounded_on_host, scaled)


def example_inputs(
    schedule: Schedule, program: Program, seed: int, rounded: HostRounding, scaled: Mapping[str, float] | None = None
) -> tuple[Arrays, list[Arrays]]:
    """(inputs, arrays of each instance) of a program of the schedule. Inputs have the shape (instances, *axes).

    They are multiplied by the factors of `scaled`, by tensor, and then rounded by `rounded`. The query heads of a group
    share K and V, and what follows from K and V is that of the shared ones.
    """
    p, factors, visible = program.problem, scaled or {}, visible_pairs(program)
    rng, group = np.random.default_rng(seed), p.heads // p.kv_heads
    instances: list[Arrays] = []
    for head in range(p.instances):
        hbm = schedule.example(rng, p, visible)
        arrays = {name: array for name, array in program.arrays.items() if name in hbm}
        shared = {name for name, array in arrays.items() if array.instances < p.instances and head % group}
        hbm |= {name: instances[-1][name] for name in shared}
        if shared and schedule.follows:
            hbm |= {name: array for name, array in schedule.follows(hbm, p, visible).items() if name in hbm}
        for name, array in arrays.items():
            if name not in shared and array.dtype != "int32":
                hbm[name] = rounded(np.asarray(hbm[name], np.float64) * factors.get(name, 1.0), array.dtype)
        instances.append(hbm)
    inputs = {
        name: np.stack([hbm[name] for hbm in instances[:: group if array.instances < p.instances else 1]])
        for name, array in program.arrays.items()
        if name in instances[0]
    }
    return inputs, instances


def visible_pairs(program: Program) -> Bools | None:
    """(N, Nk) booleans, or None where nothing is hidden."""
    p = program.problem
    return None if p.mask is DENSE else p.mask.bind(p, program.tiling, True).visible(0, p.N, 0, p.Nk)


def answers_of(schedule: Schedule, program: Program, hbm: Arrays) -> Arrays:
    """The answers of one instance, in float64, to its rounded inputs."""
    return schedule.answer(hbm, program.problem, visible_pairs(program))


def rounded_on_host(array: NDArray[np.float64], dtype: str) -> Array:
    """The values of an array, rounded to a type on the GPU."""
    return device.on_host(device.rounded(array, dtype)).astype(np.float64)


# ---------------------------------------------------------------- errors


def output_errors(job: ScheduleJob, scale: float = 1.0) -> OutputErrors:
    """The largest error and bias of some heads, and the largest that are allowed. Outputs start as NaN."""
    schedule = find(job.name)
    if is_plain(schedule, job.problem):
        return plain_errors(job, scale)
    return cache_errors(job, scale) if schedule.softmax_inputs else example_errors(job)


def plain_errors(job: ScheduleJob, scale: float) -> OutputErrors:
    """The errors of attention on Q, K and V."""
    p, inputs = job.problem, inputs_of(job, scale)
    outputs = runner(job).run(inputs)[0]
    output = outputs["O"].reshape(p.instances, p.N, p.dv)
    kv = [head // p.heads * p.kv_heads + head % p.heads // (p.heads // p.kv_heads) for head in range(p.instances)]
    heads = {head: (inputs["Q"][head], inputs["K"][kv[head]], inputs["V"][kv[head]]) for head in checked(p)}
    found, hbm_of = judged(job, output, heads, heads), partial(plain_hbm, p.packed, inputs)
    return beside_steps(job, found, outputs, hbm_of, hbm_of)


def plain_hbm(p: Attention, inputs: DeviceArrays, head: int) -> Arrays:
    """Q, K and V of a head of a packed problem, as NumPy arrays."""
    kv = head // p.heads * p.kv_heads + head % p.heads // (p.heads // p.kv_heads)
    q = inputs["Q"].reshape(p.instances, p.N, p.d)
    arrays = {"Q": q[head], "K": inputs["K"][kv], "V": inputs["V"][kv]}
    return {name: np.asarray(device.on_host(array), np.float32) for name, array in arrays.items()}


def biased(
    job: ScheduleJob,
    outputs: DeviceArrays,
    hbm_of: Callable[[int], Arrays],
    names: Sequence[str] = ("O",),
    met: Met = lambda name, head, same: None,
) -> OutputErrors:
    """The bias of outputs against the same steps in NumPy, and the largest that is allowed; nothing if that run would
    take too long."""
    p, cores = job.problem.packed, [launch["tensor_cores"] for launch in runner(job).launches]

    def output_of(name: str, head: int, like: Array) -> Array:
        return np.asarray(device.on_host(outputs[name].reshape(p.instances, *like.shape)[head]), np.float64)

    found = slope_of_job(job, cores, names, hbm_of, output_of, met)
    return {} if found is None else {"bias": min(found.bias, 1e300), "allowed_bias": found.allowed_bias}


def beside_steps(
    job: ScheduleJob,
    found: OutputErrors,
    outputs: DeviceArrays,
    hbm_of: Callable[[int], Arrays],
    attention_of: Callable[[int], Arrays],
) -> OutputErrors:
    """The errors with the bias against the same steps in NumPy, whose own error explains as much as the baseline's
    does: large scores in a narrow type leave sums that each order of them rounds in its own way.

    `hbm_of` gives the inputs of a head, and `attention_of` its Q, K and V.
    """
    xp, visible, same_error = device.cupy(), visible_rows(job), 0.0

    def met(name: str, head: int, same: Array) -> None:
        nonlocal same_error
        q, k, v = (xp.asarray(attention_of(head)[tensor]) for tensor in "QKV")
        wanted = accuracy.reference(xp, q, k, v, visible)
        same_error = max(same_error, accuracy.largest_error(xp, xp.asarray(same), wanted))

    bias = biased(job, outputs, hbm_of, met=met)
    return {**found, **bias, "allowed_error": max(found["allowed_error"], accuracy.TIMES_BASELINE * same_error)}


def cache_errors(job: ScheduleJob, scale: float) -> OutputErrors:
    """The errors of attention on keys and values in pages, in latent rows, or with scales. The kernels round each
    scaled word to the type of Q, and so does the baseline."""
    p, xp = job.problem.packed, device.cupy()
    _, inputs, instances = example_of(job, scale)
    outputs = runner(job).run(on_device(inputs))[0]
    output = outputs["O"].reshape(p.instances, p.N, p.dv)
    softmax_inputs = find(job.name).softmax_inputs
    assert softmax_inputs is not None, "the caller chose such schedules"
    plain = {head: softmax_inputs(instances[head], p) for head in checked(p)}
    exact = {head: (xp.asarray(x["Q"]), xp.asarray(x["K"]), xp.asarray(x["V"])) for head, x in plain.items()}
    narrow = {
        head: (device.rounded(q, p.dtype), device.rounded(k, p.dtype), device.rounded(v, p.dtype))
        for head, (q, k, v) in exact.items()
    }
    found = judged(job, output, exact, narrow)
    return beside_steps(job, found, outputs, instances.__getitem__, lambda head: softmax_inputs(instances[head], p))


def on_device(inputs: Arrays) -> DeviceArrays:
    """The inputs on the device."""
    return {name: device.cupy().asarray(array) for name, array in inputs.items()}


Heads = Mapping[int, tuple[DeviceArray, DeviceArray, DeviceArray]]  # Q, K and V of some heads


def judged(job: ScheduleJob, output: DeviceArray, exact: Heads, inputs: Heads) -> OutputErrors:
    """The errors of `output` (instances, N, dv) in some heads. Its answer belongs to the inputs `exact`, the baseline
    to the `inputs`, which are rounded."""
    p, xp = job.problem.packed, device.cupy()
    visible, rounds, held = visible_rows(job), roundings(find(job.name), p, job.tiling), held_keys(job)
    sums = -(-p.Nk // held) if held and p.acc_dtype != "fp32" else 0  # sums of tensor cores in a narrow type
    narrow, accumulate = (partial(device.rounded, dtype=dtype) for dtype in (p.dtype, str(p.acc_dtype)))
    places = rounds._replace(tile=min(job.tiling.rows_k, rounds.tile))._asdict()
    rounded = accuracy.Rounded(narrow, accumulate, **places, held=held)
    judge = Judge(xp, p.dtype, cut=sums * UNIT[str(p.acc_dtype)])
    for head, (q, k, v) in exact.items():
        same = accuracy.baseline(xp, *inputs[head], rounded, visible)
        judge.add(output[head], same, accuracy.reference(xp, q, k, v, visible))
    return {
        "error": min(judge.error, 1e300),
        "baseline_error": judge.baseline_error,
        "allowed_error": judge.allowed_error,
        "bias": min(judge.bias, 1e300),
        "allowed_bias": judge.allowed_bias,
        "unwritten": int(xp.isnan(output).sum()),
    }


def example_errors(job: ScheduleJob) -> OutputErrors:
    """The errors of a schedule's own example. Each is a share of the largest value of its tensor; that of the worst
    tensor counts. Twice the error of the same steps in NumPy is allowed, or what the roundings of each word explain."""
    p, xp = job.problem.packed, device.cupy()
    program, inputs, instances = example_of(job)
    outputs, _ = runner(job).run(on_device(inputs))
    schedule, words = find(job.name), moved(find(job.name), p, job.tiling).tensors
    error, rounds, unwritten, names = 0.0, 1.0, 0, list(answers_of(schedule, program, instances[0]))
    t = job.tiling
    sums = max(-(-p.N // t.rows_q), -(-p.Nk // t.rows_k), -(-p.d // t.depth))
    for head in checked(p):
        for name, wanted in answers_of(schedule, program, instances[head]).items():
            found = outputs[name].reshape(p.instances, *wanted.shape)[head]
            worst = accuracy.largest_error(xp, found, xp.asarray(wanted)) / size_of(wanted)
            error, unwritten = max(error, worst), unwritten + int(xp.isnan(found).sum())
            rounds = max(rounds, words[name][1] / (p.instances * wanted.size))
    same_error = 0.0

    def met(name: str, head: int, same: Array) -> None:
        nonlocal same_error
        wanted = answers_of(schedule, program, instances[head])[name]
        same_error = max(same_error, accuracy.largest_error(np, of_host(same), of_host(wanted)) / size_of(wanted))

    bias = biased(job, outputs, instances.__getitem__, names, met)
    allowed = allowed_of_example(rounds, p.dtype) + (0.0 if bias else wandered(sums, str(p.acc_dtype)))
    return {
        "error": min(error, 1e300),
        "baseline_error": min(same_error, 1e300),
        "allowed_error": max(allowed, accuracy.TIMES_BASELINE * same_error + SUMS),
        "unwritten": unwritten,
        **bias,
    }


def size_of(wanted: Array) -> float:
    """The largest value of an answer, by which its errors are divided; 1 where the mask hides every pair."""
    return float(np.abs(wanted).max()) or 1.0


def of_host(array: Array) -> DeviceArray:
    """A NumPy array, typed as a DeviceArray (of NumPy or CuPy)."""
    return cast("DeviceArray", array)


def allowed_of_example(rounds: float, dtype: str) -> float:
    """The largest error of an example whose words were each rounded so many times."""
    return (EXAMPLE_ULPS + rounds - 1) * UNIT[dtype] + SUMS


def wandered(sums: int, dtype: str) -> float:
    """How far the error of a sum may go that is rounded so many times on the way, each time up or down by chance.

    A rounding is off by at most a unit u of what is summed so far, and by u / sqrt(3) in the mean square. That sum
    grows from 0, so its mean square is half of the last one.
    """
    return accuracy.DEVIATIONS * UNIT[dtype] * (sums / 6) ** 0.5


def checked(p: Attention) -> list[int]:
    """The heads whose outputs are checked."""
    return sorted({round(x) for x in np.linspace(0, p.instances - 1, HEADS_CHECKED)})


def held_keys(job: ScheduleJob) -> int | None:
    """The number of keys after which tensor cores round O; None if the kernel does not use them."""
    on_tensor_cores = any(launch["tensor_cores"] for launch in runner(job).launches)
    return keys_held(job.tiling.rows_k) if on_tensor_cores else None


def visible_rows(job: ScheduleJob) -> accuracy.Rows | None:
    """A function visible(first row, rows) -> bool (rows, Nk) on the device; None for a dense mask."""
    p = job.problem.packed
    if p.mask is DENSE:
        return None
    bound = p.mask.bind(p, job.tiling, True)
    return lambda x, rows: device.cupy().asarray(bound.visible(x, rows, 0, p.Nk))
