"""Outputs of kernels beside the same steps in NumPy: a factor is seen. Right ones of all schedules agree, as
cuda/test_sectors.py finds with random rows."""

from functools import wraps

import numpy as np
import on_cpu
import pytest

from iosim.core.loop_paths import run_together
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.cuda.machine import generate
from iosim.gpu.jobs import ScheduleJob
from iosim.gpu.judged_runs import in_type
from iosim.gpu.same_steps import AsKernel, slope, slope_of_job
from iosim.oracles.accuracy import FLOOR, UNIT
from iosim.schedules import find

needs_compiler = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
TYPES = [("fp16", "fp16"), ("fp16", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32"), ("fp32", "fp16")]


class Spoiled(AsKernel):
    """The outputs of a kernel that multiplies O by `factor` after it divided it by its sums."""

    factor = 1.0

    def _apply(self, step, outputs, inputs):
        @wraps(step)
        def spoiled(o, *more):
            step(o, *more)
            o *= o.dtype.type(self.factor)

        super()._apply(spoiled if step.__name__ == "normalise" else step, outputs, inputs)


def inputs_of(p, seed):
    rng = np.random.default_rng(seed)
    shapes = {"Q": (p.N, p.d), "K": (p.Nk, p.d), "V": (p.Nk, p.dv)}
    return {name: in_type(rng.standard_normal(shape), p.dtype) for name, shape in shapes.items()}


def slope_of_factor(p, factor):
    """The slope of a job whose kernel multiplies O by a factor."""
    job = ScheduleJob("flash2", p, Tiling(64, 64))
    cores = [p.dtype != "fp32"]

    def output_of(name, head, like):
        def made():
            machine = Spoiled(p.packed, inputs_of(p, head), cores)
            machine.factor = factor
            return machine

        return np.asarray(run_together(made, find("flash2"), job.tiling).array(name), np.float64)

    return slope_of_job(job, cores, ["O"], lambda head: inputs_of(p, head), output_of)


@pytest.mark.parametrize("dtype, acc", TYPES)
def test_a_factor_of_one_and_a_half_thousandth_parts_is_seen_with_every_type(dtype, acc):
    """N = 512, d = 64, one head: also with sums of fp16 or bf16."""
    p = Attention(512, 64, dtype=dtype, acc_dtype=acc)
    assert slope_of_factor(p, 1.0).bias == 0
    for factor in (1.0005, 1 / 1.0005, 1.002):
        found = slope_of_factor(p, factor)
        assert found.bias > found.allowed_bias and found.bias == pytest.approx(abs(factor - 1), rel=0.15)


def test_words_that_are_no_numbers():
    same = np.array([[1.0, np.nan], [2.0, -1.0]])
    assert slope(same, same, 0, 0) == (0, FLOOR), "a word that is not known is not judged"
    assert slope(np.array([[1.0, 5.0], [np.nan, -1.0]]), same, 0, 0).bias == float("inf")
    zeros = np.zeros((2, 2))
    assert slope(zeros, zeros, 0, 0).bias == 0 and slope(zeros + 1, zeros, 0, 0).bias == 1


def test_one_flip_of_a_rounding_is_chance():
    """A word of bf16 that is rounded the other way, alone in its row, is no bias; all words are one."""
    same = np.ones((1, 4))
    flipped = same + np.array([[UNIT["bf16"] * 2, 0, 0, 0]])
    assert slope(flipped, same, UNIT["bf16"], UNIT["fp32"]).bias <= slope(flipped, same, UNIT["bf16"], 0).allowed_bias
    all_off = slope(same * (1 + 2 * UNIT["bf16"]), same, UNIT["bf16"], UNIT["fp32"])
    assert all_off.bias > all_off.allowed_bias


@needs_compiler
def test_tensor_cores_take_rounded_operands(tmp_path):
    """The output of a kernel on tensor cores, whose P is rounded to bf16, is that of NumPy with the same rounding, and
    not that of NumPy without it."""
    p = Attention(48, 32, Nk=80, dtype="bf16", acc_dtype="fp32")
    program = generate(find("flash2"), p, Tiling(16, 16), count=True)
    assert program.kernels[0].tensor_cores
    inputs = inputs_of(p, 3)
    library = on_cpu.build([program], tmp_path)
    output = on_cpu.run(library, 0, program, {name: array[None] for name, array in inputs.items()})[0]["O"][0]
    narrow, wide = (
        run_together(lambda cores=cores: AsKernel(p, inputs, [cores]), find("flash2"), Tiling(16, 16)).array("O")
        for cores in (True, False)
    )
    assert (output == narrow).mean() > 0.99 > (output == wide).mean()
