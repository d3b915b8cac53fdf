"""The schedules inside a GPU as generated kernels, compiled for the CPU: output, and the words that they move."""

import numpy as np
import pytest
from inside_by_hand import SCHEDULES

from iosim import Attention, Folded, Tiling, Traffic
from iosim.core.problem import DENSE
from iosim.masks import parse_mask

on_cpu = pytest.importorskip("on_cpu", exc_type=ImportError)
generate = pytest.importorskip("iosim.gpu.cuda.machine").generate

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
CASES = [
    (schedule, mask, dtype)
    for schedule in SCHEDULES
    for mask, dtype in (("dense", "fp32"), ("causal" if schedule.skips else "dense", "fp16"))
]


def problem(mask, dtype):
    d = 16 if dtype == "fp16" else 5
    return Attention(37, d, Nk=29, dv=d, mask=parse_mask(mask), dtype=dtype, acc_dtype="fp32")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    made = [generate(schedule, problem(*rest), Tiling(16, 16), count=True) for schedule, *rest in CASES]
    return made, on_cpu.build(made, tmp_path_factory.mktemp("hops"))


def rounded(array, dtype):
    return on_cpu.decode(on_cpu.encode(array, dtype), dtype).astype(np.float64)


@pytest.mark.parametrize("k", range(len(CASES)), ids=[f"{s.name}-{mask}-{dtype}" for s, mask, dtype in CASES])
def test_a_kernel_computes_and_moves_what_the_simulation_says(programs, k):
    made, library = programs
    schedule, mask, dtype = CASES[k]
    p, traffic = problem(mask, dtype), Traffic()
    visible = None if p.mask is DENSE else p.mask.bind(p, Tiling(1, 1)).visible_at(np.arange(37), np.arange(29))
    machine = Folded(p, traffic).run(schedule, Tiling(16, 16))
    given = schedule.example(np.random.default_rng(k), p, visible)
    types = {name: p.hbm_type(tensor) for name, tensor in machine.tensors.items()}
    known = {name: rounded(x, types[name]) if name in types else x for name, x in given.items()}
    inputs = {name: known[name][None] for name in made[k].arrays if name in known}
    outputs, counted, pointers = on_cpu.run(library, k, made[k], inputs, False)
    for name, wanted in schedule.answer(known, p, visible).items():
        np.testing.assert_allclose(outputs[name][0], wanted, atol=3e-2 * max(1, np.abs(wanted).max()), err_msg=name)
    assert counted == pointers == {name: (int(r), int(w)) for name, (r, w) in traffic.tensors.items()}
