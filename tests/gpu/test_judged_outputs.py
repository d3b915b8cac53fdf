"""Outputs of kernels on a cache of another type, in pages or latent, and of other schedules: judged, with g++ in the
place of the GPU."""

from dataclasses import replace

import numpy as np
import on_cpu
import pytest
from spread import spread

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu import outputs, same_steps
from iosim.gpu.cuda.machine import generate
from iosim.gpu.jobs import ScheduleJob, job_from_json, key_of
from iosim.masks import parse_mask
from iosim.oracles.accuracy import reference as exact
from iosim.schedules import find

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)

MLA = {"d": 40, "dv": 32, "heads": 4, "kv_heads": 1, "gqa": "pack", "latent": True}
FP8 = {"dtype": "bf16", "acc_dtype": "fp32", "kv_dtype": "fp8"}
JOBS = [
    ScheduleJob("flash2", Attention(2, Nk=37, **MLA, **FP8, kv_scales="16"), Tiling(8, 16)),
    ScheduleJob("paged-split-kv", Attention(1, Nk=45, **MLA, dtype="fp32", page_size=7, splits=2), Tiling(4, 5)),
    ScheduleJob("split-kv", Attention(3, 16, Nk=40, heads=2, **FP8, kv_scales="tensor"), Tiling(4, 8)),
    ScheduleJob("flash2-bwd", Attention(24, 16, heads=2, dtype="fp32", mask=parse_mask("causal")), Tiling(8, 8)),
    ScheduleJob("selected", Attention(4, 16, Nk=64, dtype="fp32", top_k=2, key_block=8), Tiling(4, 4)),
    ScheduleJob("matmul-tiled", Attention(20, 12, Nk=17, dtype="fp16", acc_dtype="fp32"), Tiling(8, 8)),
]
NAMES = [job.name for job in JOBS]

NARROW = {"dtype": "fp32", "acc_dtype": "fp16"}
NARROW_SUMS = [
    ScheduleJob(name, Attention(40, 16, Nk=60, heads=2, **NARROW), Tiling(16, 8))
    for name in ("matmul-tiled", "softmax-2pass", "flash2-bwd")
]
ROW_SUMS = [
    ScheduleJob(name, Attention(14, 32, Nk=1700, **NARROW), Tiling(7, 20))
    for name in ("standard-square", "standard-tiled")
]
LARGE_SCORES = ScheduleJob("standard-square", Attention(14, 32, Nk=170, **NARROW), Tiling(7, 20))
WANDERING = [
    ScheduleJob("matmul-naive", Attention(N, 128, Nk=60, dtype="fp16", acc_dtype="fp16"), Tiling(1, 1))
    for N in (16, 40)
]
CAUSAL = Attention(24, 16, Nk=40, heads=6, kv_heads=3, dtype="fp32", mask=parse_mask("causal"))
GROUPS = [
    ScheduleJob(name, find(name).about(CAUSAL), Tiling(1, 1) if name == "standard-bwd" else Tiling(8, 8))
    for name in ("standard-bwd", "flash2-bwd", "small-cache-bwd")
]
HIDDEN = ScheduleJob(
    "flash1-bwd", Attention(40, 16, Nk=6, heads=3, dtype="fp16", mask=parse_mask("causal&~window:9")), Tiling(8, 4)
)
ALL = [*JOBS, *NARROW_SUMS, *ROW_SUMS, LARGE_SCORES, *WANDERING, *GROUPS, HIDDEN]
LONG = [ROW_SUMS[0], WANDERING[1]]


def marked(jobs):
    """The jobs as parameters; those in LONG are long."""
    return spread(jobs, lambda job: job not in LONG, lambda job: f"{job.name}-{job.problem.N}")


def decoded(array, dtype):
    return on_cpu.decode(on_cpu.encode(np.asarray(array), dtype), dtype).astype(np.float32)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The kernels of all jobs, compiled once."""
    folder = tmp_path_factory.mktemp("outputs")

    def program_of(job):
        return generate(find(job.name), job.problem, job.tiling, count=True)

    return on_cpu.Libraries(ALL, program_of, folder, lambda k: ALL[k] not in LONG)


@pytest.fixture
def on_the_cpu(libraries, monkeypatch):
    """Kernels run on the CPU. `spoil` maps their inputs to those that they see."""
    spoil = {"inputs": lambda inputs: inputs}

    class OnCpu:
        def __init__(self, job):
            self.program, self.library, self.number = libraries[ALL.index(job)]
            self.launches = [{"tensor_cores": kernel.tensor_cores} for kernel in self.program.kernels]

        def run(self, inputs, count=False):
            inputs = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
            return on_cpu.run(self.library, self.number, self.program, spoil["inputs"](inputs))[:2]

    monkeypatch.setattr(outputs, "runner", OnCpu)
    monkeypatch.setattr(outputs.device, "cupy", lambda: np)
    monkeypatch.setattr(outputs.device, "rounded", decoded)
    return spoil


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_right_outputs_are_right(on_the_cpu, job):
    for scale in (1.0, 8.0):
        found = outputs.output_errors(job, scale)
        assert found["error"] <= found["allowed_error"] < 0.2 * scale and not found["unwritten"], found
        assert found.get("bias", 0) <= found.get("allowed_bias", 0)
        assert found["bias"] <= found["allowed_bias"] < 2e-3


@pytest.mark.parametrize("job, tensor", [*zip(JOBS, ("Kscale", "Krope", "Vscale", "dO", "index", "A"), strict=True)])
def test_a_wrong_input_is_a_wrong_output(on_the_cpu, job, tensor):
    """The kernel sees a tensor that is 2 % larger, or other blocks of keys."""

    def spoiled(inputs):
        name = tensor if tensor in inputs else "K"
        array = inputs[name]
        return {**inputs, name: (array + 1) % 8 if name == "index" else array * 1.02}

    on_the_cpu["inputs"] = spoiled
    found = outputs.output_errors(job)
    assert found["error"] > found["allowed_error"] or found["bias"] > found["allowed_bias"]


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_jobs_travel_whole(job):
    """Every option that changes the kernels is in the job's JSON. Options with their usual values are left out."""
    assert job_from_json(job.to_json()) == job and key_of(job_from_json(job.to_json())) == key_of(job)
    assert "latent" not in ScheduleJob("flash2", Attention(8, 4), Tiling(2, 2)).to_json()
    for more in ({"depth": 8}, {"rows_o": 4, "cols_o": 2}, {"cols_o": 2}, {"kept": 4}):
        other = replace(job, tiling=replace(job.tiling, **more))
        assert job_from_json(other.to_json()) == other and key_of(other) != key_of(job)
    other = replace(job, problem=replace(job.problem, dv=job.problem.dv - 1))
    assert key_of(other) != key_of(job)


@pytest.fixture
def judged(on_the_cpu):
    """judged(job, scale=1.0): the errors of a job. Its kernels see inputs times `scale`."""

    def errors(job, scale=1.0):
        on_the_cpu["inputs"] = lambda inputs: {name: array * scale for name, array in inputs.items()}
        return outputs.output_errors(job)

    return errors


@pytest.mark.parametrize("job", marked(ROW_SUMS))
def test_row_sums_in_a_narrow_type_are_rounded_after_each_tile(job, judged):
    """A score of standard-square is a sum of parts of d, and a row sum one of many tiles: both are rounded each time.
    Found on an H100 with 6709 keys, where a right kernel failed."""
    found = judged(job)
    assert 2e-5 < found["error"] <= found["allowed_error"] < 0.05 and found["bias"] <= found["allowed_bias"]


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_the_error_of_the_same_steps_is_allowed_too(scale, judged, monkeypatch):
    """With large scores in a narrow type a right kernel was more than twice as far off, on an H100, as a baseline that
    adds in another order. Here the baseline is exact. Inputs that are not those of the answer are still seen."""
    monkeypatch.setattr(outputs.accuracy, "baseline", lambda xp, q, k, v, rounded, visible: exact(xp, q, k, v, visible))
    found = judged(LARGE_SCORES, scale)
    assert found["baseline_error"] == 0 < found["error"]
    assert (found["error"] <= found["allowed_error"]) == (found["bias"] <= found["allowed_bias"]) == (scale == 1)


@pytest.mark.parametrize("job", marked(WANDERING))
@pytest.mark.parametrize("scale", [1.0, 1.02])
def test_a_sum_that_is_rounded_often_may_wander(scale, job, judged, monkeypatch):
    """Each of 128 products is added in fp16, as matmul-naive did on an H100. The same steps in NumPy would take too long
    there. The error is more than the roundings of each word explain, and less than what chance does."""
    monkeypatch.setattr(same_steps, "MOST_TILES", 0)
    found = judged(job, scale)
    assert "bias" not in found and found["error"] > outputs.allowed_of_example(1, "fp16")
    assert (found["error"] <= found["allowed_error"]) == (scale == 1) and found["allowed_error"] < 0.02


@pytest.mark.parametrize("job", marked(GROUPS))
def test_heads_of_a_group_have_what_follows_from_the_keys_they_share(job, judged, monkeypatch):
    """O and LSE of other keys made outputs that nothing could judge: found on an H100, with 6 heads over 3."""
    monkeypatch.setattr(same_steps, "MOST_TILES", 0)  # so that the same steps excuse nothing
    found = judged(job)
    assert found["error"] <= found["allowed_error"] < 1e-4


def test_an_output_under_a_mask_that_hides_every_pair_is_judged(judged):
    """Gradients of 0, where the judge divided by 0 on an H100: no key is more than 9 before a query."""
    p = HIDDEN.problem
    assert not p.mask.bind(p, HIDDEN.tiling).visible_pairs()
    found = judged(HIDDEN)
    assert found["error"] == 0 and found["bias"] == 0 and not found["unwritten"]


@pytest.mark.parametrize("tiles", ["8x16", "8x20", "8x100"])
def test_keys_that_all_stay_on_chip_round_like_others(iosim, tiles):
    """flash2-pinned with Bc >= Nk loads no tile of other keys."""
    done = iosim("verify", "--cpu", "--schedule", "flash2-pinned", "--N", 16, "--d", 8, "--tiles", tiles)
    assert done.exit_code == 0, done.output
