"""The four faults that validation/planted.py plants are seen, with g++ in the place of the GPU: a load and a store that
the counter does not see, a count that is 16 words off, an output that is 1.0005 times too large."""

from dataclasses import replace
from functools import cache

import on_cpu
import pytest
from spread import spread

from iosim.gpu.cuda.machine import generate
from iosim.gpu.jobs import runner
from iosim.gpu.ncu import counters
from iosim.gpu.outputs import example_inputs
from iosim.gpu.verdict import Evidence, verify
from iosim.schedules import find
from validation.planted import FAULTS, planted_jobs, seen, tuned_lse, with_line
from validation.random_rows import ON_GPU, draw

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)


def small(job):
    """A job of the same layout with fewer queries, keys and heads."""
    p = job.problem
    heads = min(p.heads, 4 if p.gqa == "pack" else 2)
    sizes = {
        "N": p.N if p.N < 50 else p.N // 8,
        "Nk": min(p.Nk // 8, 160),
        "heads": heads,
        "kv_heads": min(p.kv_heads, heads),
    }
    return replace(job, problem=replace(p, **sizes))


JOBS = [small(job) for job in planted_jobs()]


PLANTED = [(number, fault) for number in range(len(JOBS)) for fault in FAULTS]
CASES = [*((number, None) for number in range(len(JOBS))), *PLANTED]


def in_the_short_run(case):
    """Each job without a fault, each fault in half of the jobs, and each job with half of the faults."""
    number, fault = case
    return fault is None or (number + list(FAULTS).index(fault)) % 2 == 0


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The programs of all cases, compiled when one is asked for."""

    @cache
    def right(number):
        job = JOBS[number]
        return generate(find(job.name), job.problem, job.tiling, count=True)

    def program_of(case):
        number, fault = case
        return FAULTS[fault](right(number)) if fault else right(number)

    folder = tmp_path_factory.mktemp("planted")
    return on_cpu.Libraries(CASES, program_of, folder, lambda k: in_the_short_run(CASES[k]), requests=True)


def evidence(libraries, number, fault=None):
    """What the worker and the profiler would find, of a run on the CPU."""
    job, (program, loaded, place) = JOBS[number], libraries[CASES.index((number, fault))]
    inputs, instances = example_inputs(find(job.name), libraries.program(number), 5, on_cpu.rounded)
    outputs, words, _ = on_cpu.run(loaded, place, program, inputs)
    moved = on_cpu.sectors_moved(loaded, program).values()
    read, written = (32 * sum(pair[way] for pair in moved) for way in (0, 1))
    bias, allowed = on_cpu.slope(job, program, outputs, instances)
    note = {"words": {name: list(pair) for name, pair in words.items()}, "launches": runner(job).launches,
            **runner(job).sizes, "bias": bias, "allowed_bias": allowed}  # fmt: skip
    metrics = {counters.LOADS: read, counters.FROM_L2: read, counters.STORES: written}
    return Evidence(job, note, [counters.ProfiledKernel("k", metrics=metrics)])


@pytest.mark.parametrize("number", range(len(JOBS)), ids=[job.name for job in JOBS])
def test_a_kernel_without_a_fault_agrees(libraries, number):
    row = verify(evidence(libraries, number), None)
    assert row["ok"], row["faults"]


@pytest.mark.parametrize("number, fault", spread(PLANTED, in_the_short_run, lambda x: f"{JOBS[x[0]].name}-{x[1]}"))
def test_a_planted_fault_is_seen(libraries, fault, number):
    row = verify(evidence(libraries, number, fault), None)
    assert seen(fault, row), row["faults"]


def test_a_fault_needs_its_place():
    program = generate(find("state-fused"), replace(JOBS[0].problem, lse=False), JOBS[0].tiling)
    with pytest.raises(ValueError, match="has no line like"):
        with_line(program, r"no such line", str)


def test_the_rows_of_the_script_can_be_made():
    """60 rows of all schedules, with kernels that fit; and the tuned kernel that stores an LSE."""
    jobs = list(draw(34, 60, ON_GPU))
    assert len({job.name for job in jobs}) >= 36 and all(runner(job).launches for job in [*jobs, *planted_jobs()])
    assert runner(tuned_lse()).sizes == {"tables": 0}
