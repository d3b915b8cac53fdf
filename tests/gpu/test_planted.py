"""The four faults that validation/planted.py plants are seen, with g++ in the place of the GPU: a load and a store that
the counter does not see, a count that is 16 words off, an output that is 1.0005 times too large."""

from dataclasses import replace

import on_cpu
import pytest
from spread import spread

from iosim.cuda.machine import generate
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
    sizes = {"N": p.N if p.N < 50 else p.N // 8, "Nk": p.Nk // 8, "heads": heads, "kv_heads": min(p.kv_heads, heads)}
    return replace(job, problem=replace(p, **sizes))


JOBS = [small(job) for job in planted_jobs()]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """(library, programs): each job without a fault, then with each of them."""
    right = [generate(find(job.name), job.problem, job.tiling, count=True) for job in JOBS]
    programs = [*right, *(fault(program) for fault in FAULTS.values() for program in right)]
    return on_cpu.build(programs, tmp_path_factory.mktemp("planted"), requests=True), programs


def evidence(library, number):
    """What the worker and the profiler would find, of a run on the CPU."""
    loaded, programs = library
    job, program = JOBS[number % len(JOBS)], programs[number]
    inputs, instances = example_inputs(find(job.name), programs[number % len(JOBS)], 5, on_cpu.rounded)
    outputs, words, _ = on_cpu.run(loaded, number, program, inputs)
    moved = on_cpu.sectors_moved(loaded, program).values()
    read, written = (32 * sum(pair[way] for pair in moved) for way in (0, 1))
    bias, allowed = on_cpu.slope(job, program, outputs, instances)
    note = {"words": {name: list(pair) for name, pair in words.items()}, "launches": runner(job).launches,
            **runner(job).sizes, "bias": bias, "allowed_bias": allowed}  # fmt: skip
    metrics = {counters.LOADS: read, counters.FROM_L2: read, counters.STORES: written}
    return Evidence(job, note, [counters.ProfiledKernel("k", metrics=metrics)])


@pytest.mark.parametrize("number", range(len(JOBS)), ids=[job.name for job in JOBS])
def test_a_kernel_without_a_fault_agrees(library, number):
    row = verify(evidence(library, number), None)
    assert row["ok"], row["faults"]


PLANTED = [(number, fault) for number in range(len(JOBS)) for fault in FAULTS]


def in_the_short_run(planted):
    """Each fault in half of the jobs, and each job with half of the faults."""
    number, fault = planted
    return (number + list(FAULTS).index(fault)) % 2 == 0


@pytest.mark.parametrize("number, fault", spread(PLANTED, in_the_short_run, lambda x: f"{JOBS[x[0]].name}-{x[1]}"))
def test_a_planted_fault_is_seen(library, fault, number):
    place = (1 + list(FAULTS).index(fault)) * len(JOBS) + number
    row = verify(evidence(library, place), None)
    assert seen(fault, row), row["faults"]


def test_a_fault_needs_its_place():
    program = generate(find("linear"), replace(JOBS[0].problem, lse=False), JOBS[0].tiling)
    with pytest.raises(ValueError, match="has no line like"):
        with_line(program, r"no such line", str)


def test_the_rows_of_the_script_can_be_made():
    """60 rows of all schedules, with kernels that fit; and the tuned kernel that stores an LSE."""
    jobs = list(draw(34, 60, ON_GPU))
    assert len({job.name for job in jobs}) >= 36 and all(runner(job).launches for job in [*jobs, *planted_jobs()])
    assert runner(tuned_lse()).sizes == {"tables": 0}
