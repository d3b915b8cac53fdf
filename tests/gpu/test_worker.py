"""What runs on the GPU beside the kernels, with NumPy in its place: errors of outputs, and the worker's notes."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from iosim.core.problem import Attention
from iosim.core.rounding import to_bf16
from iosim.core.tiling import Tiling
from iosim.counting.roundings import roundings
from iosim.gpu import outputs, run, worker
from iosim.gpu.jobs import ScheduleJob
from iosim.gpu.moved import moved
from iosim.gpu.ncu import run as ncu
from iosim.masks import parse_mask
from iosim.oracles import accuracy
from iosim.oracles.attention import attention
from iosim.schedules import SCHEDULES, find

SMALL = Attention(100, 16, heads=2, dtype="fp32")


def heads(N=70, Nk=45, d=16, scale=1.0):
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(np.float32) * scale for shape in ((N, d), (Nk, d), (Nk, d))]


def half(x):
    return x.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("rows", [7, 1024])
def test_the_reference_is_the_oracle(monkeypatch, rows):
    monkeypatch.setattr(accuracy, "ROWS_AT_ONCE", rows)
    q, k, v = heads()
    mask = np.random.default_rng(1).random((70, 45)) < 0.3
    mask[5] = False
    assert np.allclose(accuracy.reference(np, q, k, v), attention(q, k, v), atol=1e-14)
    got = accuracy.reference(np, q, k, v, lambda x, n: mask[x : x + n])
    assert np.allclose(got, attention(q, k, v, mask), atol=1e-14) and not got[5].any()


def test_the_baseline_rounds_and_a_wrong_output_is_out():
    q, k, v = (half(x) for x in heads())
    expected = accuracy.reference(np, q, k, v)
    same = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, lambda x: x, 16))
    error = accuracy.largest_error(np, same, expected)
    assert 1e-5 < error < 2e-3
    allowed = accuracy.allowed_error(error, float(abs(expected).max()))
    assert accuracy.largest_error(np, half(expected.astype(np.float32)), expected) <= allowed
    assert accuracy.largest_error(np, expected * 1.01 + 0.01, expected) > allowed
    assert accuracy.largest_error(np, expected * np.nan, expected) == float("inf")


# ---------------------------------------------------------------- the worker, with NumPy in the place of the GPU


class Fake:
    """A runner that computes attention with NumPy; `wrong` spoils one head."""

    launches = ({"smem_bytes": 1, "threads": 32, "tensor_cores": False},)
    sizes = {"tables": 0}  # noqa: RUF012
    wrong = False
    slope = 1.0

    def __init__(self, job):
        self.job, self.p = job, job.problem

    def run(self, inputs, count=False):
        group = self.p.heads // self.p.kv_heads
        kv = [h // self.p.heads * self.p.kv_heads + h % self.p.heads // group for h in range(self.p.instances)]
        mask = outputs.visible_rows(self.job)
        visible = None if mask is None else mask(0, self.p.N)
        o = np.stack([attention(inputs["Q"][h], inputs["K"][kv[h]], inputs["V"][kv[h]], visible)
                      for h in range(self.p.instances)])  # fmt: skip
        if self.wrong:
            o[-1] += 0.1
        o = o * self.slope
        return {"O": o.astype(np.float32)}, moved(find("flash2"), self.p, Tiling(16, 16)).tensors if count else {}

    def call(self, inputs):
        if self.full:
            raise MemoryError("full")
        return lambda: Fake.started.append(self.job)

    started = []  # noqa: RUF012
    full = False


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(worker.device, "cupy", lambda: np)
    monkeypatch.setattr(worker, "runner", Fake)
    monkeypatch.setattr(outputs, "runner", Fake)
    monkeypatch.setattr(worker, "seconds", lambda call: 1e-3)


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_the_worker_measures(no_gpu, mask, monkeypatch):
    problem = replace(SMALL, heads=4, kv_heads=2, batch=2, mask=parse_mask(mask))
    note = worker.measure_job(ScheduleJob("flash2", problem, Tiling(16, 16)))
    assert "failed" not in note, note
    assert note["error"] <= note["allowed_error"] and note["unwritten"] == 0
    assert note["large_logits"]["error"] <= note["large_logits"]["allowed_error"]
    assert json.loads(json.dumps(note)) and note["seconds"] == 1e-3
    monkeypatch.setattr(Fake, "wrong", True)
    note = worker.measure_job(ScheduleJob("flash2", problem, Tiling(16, 16)))
    assert note["error"] > note["allowed_error"]


@pytest.mark.parametrize("full", [False, True])
def test_a_job_is_launched_after_its_marker(no_gpu, monkeypatch, full):
    """Once to warm up and once under the profiler; without memory its marker stands alone."""
    seen, pool = [], SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setattr(
        worker.device, "cupy", lambda: SimpleNamespace(**vars(np), get_default_memory_pool=lambda: pool)
    )
    monkeypatch.setattr(worker, "inputs_of", lambda job: None)
    monkeypatch.setattr(worker, "profiled", lambda launch: (seen.append("marker"), launch()))
    monkeypatch.setattr(Fake, "started", [])
    monkeypatch.setattr(Fake, "full", full)
    note = worker.profile_job(job := ScheduleJob("flash2", SMALL, Tiling(16, 16)))
    assert seen == ["marker"] and Fake.started == ([] if full else [job, job])
    assert note == ({"failed": "MemoryError: full"} if full else {})


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_bias_below_the_allowed_error_is_found(no_gpu, monkeypatch, dtype):
    """1.002 times the right output is within twice the baseline's error in bf16, and near it in fp16."""
    job = ScheduleJob("flash2", Attention(300, 32, dtype=dtype, acc_dtype="fp32", heads=2), Tiling(16, 16))
    monkeypatch.setattr(worker.device, "rounded", lambda x, dtype: roundings_of(x, dtype))
    right = outputs.output_errors(job, 1.0)
    assert right["error"] <= right["allowed_error"] and right["bias"] <= right["allowed_bias"]
    monkeypatch.setattr(Fake, "slope", 1.006 if dtype == "bf16" else 1.002)
    wrong = outputs.output_errors(job, 1.0)
    assert wrong["error"] <= wrong["allowed_error"] * 3 and wrong["bias"] > wrong["allowed_bias"] > 0


def test_sums_that_tensor_cores_may_cut_are_allowed_more_bias():
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(200, 16))
    plain, cut = accuracy.Judge(np, "fp16"), accuracy.Judge(np, "fp16", cut=0.01)
    for judge in (plain, cut):
        judge.add(exact * 0.995, half(exact), exact)
    assert plain.bias == cut.bias and plain.allowed_bias < plain.bias < cut.allowed_bias == plain.allowed_bias + 0.01


def roundings_of(x, kind):
    """float32 that holds the values of a narrower type."""
    found = x.astype(np.float32)
    return {"fp16": half, "bf16": to_bf16}.get(kind, lambda x: x)(found)


def test_what_is_allowed_is_twice_the_baseline_and_what_float32_sums_differ_by():
    assert accuracy.allowed_error(3e-4, 0.0) == 6e-4
    assert accuracy.allowed_error(0.0, 0.5) == pytest.approx(5e-6)


@pytest.mark.parametrize("name, travels, divided, sums", [
    ("flash1", {"O", "l", "m"}, False, 30), ("flash2", set(), False, 30), ("standard-tiled", {"S", "P"}, False, 100),
    ("attention-2pass", set(), True, 30), ("attention-3pass", set(), True, 30), ("memory-efficient", set(), False, 30),
    ("standard-square", {"S", "P"}, True, 1),
])  # fmt: skip
def test_what_is_rounded_on_the_way_comes_from_the_text(name, travels, divided, sums):
    assert roundings(find(name), SMALL, Tiling(32, 30))[:2] == (travels, divided)
    assert roundings(find(name), SMALL, Tiling(32, 30)).sums == sums


def test_a_p_that_is_divided_before_its_product_is_rounded_then():
    """As attention-2pass does it, key tile after key tile, with sums, scores and quotients in fp16."""
    q, k, v = (half(x) for x in heads(N=200, Nk=200))
    s = half(q @ k.T / 4)
    e, sums = np.exp(s - s.max(axis=1, keepdims=True)), np.zeros((len(s), 1), np.float32)
    for y in range(0, 200, 45):
        sums = half(sums + e[:, y : y + 45].sum(axis=1, keepdims=True))
    p, o = half(half(e) / sums), np.zeros((len(s), v.shape[1]), np.float32)
    for y in range(0, 200, 45):
        o = half(o + p[:, y : y + 45] @ v[y : y + 45])
    found = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, half, 45, divided=True))
    assert accuracy.largest_error(np, found, o) <= 2**-11 and (found == o).mean() > 0.9
    undivided = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, half, 45))
    assert (found == undivided).mean() < 0.5, "it is another rounding"


def test_a_p_that_travels_is_normalised_first():
    q, k, v = (half(x) for x in heads())
    s = q @ k.T / 4
    weights = np.exp(s - s.max(axis=1, keepdims=True))
    expected = half(half(weights / weights.sum(axis=1, keepdims=True)) @ v)
    found = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, lambda x: x, 45, travels={"P"}))
    assert accuracy.largest_error(np, found, expected) <= 2**-11, "an ulp of fp16 below 1, from sums in another order"
    assert (found == expected).mean() > 0.9


@pytest.mark.parametrize("tensor", ["S", "O"])
def test_what_travels_is_rounded_between_tiles(tensor):
    """A schedule that keeps a tensor in HBM in fp16 between its tiles is allowed that rounding, and no other."""
    q, k, v = (half(x) for x in heads(N=200, Nk=200, scale=3.0))
    exact = accuracy.reference(np, q, k, v)
    stays = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, lambda x: x, 20))
    travels = accuracy.baseline(np, q, k, v, accuracy.Rounded(half, lambda x: x, 20, travels={tensor}))
    errors = [accuracy.largest_error(np, x, exact) for x in (stays, travels)]
    assert 1.05 * errors[0] < errors[1] < 0.1, errors
    in_fp32 = [
        accuracy.baseline(np, q, k, v, accuracy.Rounded(lambda x: x, lambda x: x, 20, travels=t))
        for t in ((), {tensor})
    ]
    assert accuracy.largest_error(np, *in_fp32) < 2e-5, "without a narrow type nothing changes"


def test_files_that_register_schedules_are_run_first(tmp_path):
    """`iosim --load FILE verify` hands FILE to the worker: without it the schedule is unknown there."""
    (tmp_path / "mine.py").write_text(
        "import iosim\nfrom iosim.schedules import find\n"
        "iosim.register(iosim.Schedule(name='mine_from_a_file', text=find('flash2').text, summary='again'))\n"
    )
    (tmp_path / "jobs.json").write_text("[]")
    worker.main("measure", str(tmp_path / "jobs.json"), str(tmp_path / "notes"), str(tmp_path / "mine.py"))
    try:
        assert "mine_from_a_file" in SCHEDULES
    finally:
        SCHEDULES.pop("mine_from_a_file", None)
    command = ncu.worker_command([], tmp_path / "notes", False, ["mine.py"])
    assert command[-1] == "mine.py"


def test_o_is_rounded_as_often_as_the_kernel_has_to():
    """Of 432 keys 16 are held at a time: 27 roundings a tile. Of 96 all are, and without tensor cores as well."""
    q, k, v = (half(x) for x in heads(Nk=864))
    expected = accuracy.reference(np, q, k, v)
    whole, often = (accuracy.baseline(np, q, k, v, accuracy.Rounded(half, half, 432, held=held)) for held in (None, 16))
    assert accuracy.largest_error(np, often, expected) > accuracy.largest_error(np, whole, expected)
    assert np.array_equal(whole, accuracy.baseline(np, q, k, v, accuracy.Rounded(half, half, 432, held=432)))
    exact = [accuracy.baseline(np, q, k, v, accuracy.Rounded(half, lambda x: x, 432, held=held)) for held in (None, 16)]
    assert np.allclose(*exact, atol=1e-3), "only roundings differ"
    p = Attention(864, 16, dtype="fp16", acc_dtype="fp16")
    assert [outputs.held_keys(ScheduleJob("flash1", p, Tiling(16, keys))) for keys in (96, 432)] == [96, 16]
    assert outputs.held_keys(ScheduleJob("flash1", replace(p, dtype="fp32", acc_dtype="fp32"), Tiling(16, 432))) is None


@pytest.mark.parametrize("name", ["state-decode", "state-ring"])
def test_a_tensor_that_kernels_change_in_place_is_an_output(name, monkeypatch):
    """The state in its slot is given, and it is what the steps leave."""
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(run.device, "cupy", lambda: SimpleNamespace(cuda=cuda, **vars(np)))
    monkeypatch.setattr(run.device, "launch", lambda program, kernel, arrays, tables, counts: arrays["slot"].fill(7))
    job = ScheduleJob(name, Attention(4, 8, rule="gdn", dtype="fp32"), Tiling(1, 1))
    program, inputs, _ = outputs.example_of(job)
    found, _ = run.run_on_device(program, outputs.on_device(inputs))
    assert {*found} >= {"O", "slot"} and (found["slot"] == 7).all() and "Q" not in found
