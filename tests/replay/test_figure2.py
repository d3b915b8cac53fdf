"""validation/figure2/measure.py runs what it says, and writes rows and pages."""

import csv
import json
import re
import sys
from typing import ClassVar

import numpy as np
import nvrtc
import pytest
from gpu_here import has_gpu
from paths import ROOT

from iosim.errors import MissingError
from iosim.gpu import device, worker
from iosim.gpu.jobs import job_from_json, runner
from iosim.schedules import find
from validation.figure2 import measure as figure2
from validation.figure2 import page


@pytest.fixture(scope="module")
def plan():
    return list(figure2.jobs())


def labels(plan, panel):
    return [(f.name, f.problem.acc_dtype, f.tiling.rows_q, f.tiling.rows_k, str(f.problem.mask))
            for name, f, _ in plan if name == panel]  # fmt: skip


# ---------------------------------------------------------------- what is run


def test_the_blocks_of_the_middle_panel(plan):
    """Every size whose tiles fit in 232448 B, with 64 on the other side as long as that fits."""
    middle = labels(plan, "middle")
    sizes = {(name, acc): [] for name, acc, *_ in middle}
    for name, acc, rows, keys, _ in middle:
        sizes[name, acc].append((rows, keys))
    small = [16, 32, 64, 128, 256]
    assert sizes["flash1", "fp16"] == [(64, n) for n in [*small, 512]]
    assert sizes["flash1", "fp32"] == [(64, n) for n in small] + [(32, 512)]
    assert sizes["flash2", "fp16"] == [(n, 64) for n in [*small, 512]]
    assert sizes["flash2", "fp32"] == [(n, 64) for n in small]


def test_every_kernel_fits_and_is_on_tensor_cores(plan):
    for _, *passes in plan:
        for job in filter(None, passes):
            launches = runner(job).launches
            assert max(launch["smem_bytes"] for launch in launches) <= figure2.SHARED_BYTES
            assert any(launch["tensor_cores"] for launch in launches)


def test_the_words_are_those_of_the_page_of_the_middle(plan, iosim, monkeypatch):
    """flash1 with fp16 accumulators moves Tc N (3d + 4) + 2Nd words of 2 bytes; the page counts as much at 64 to 512."""
    monkeypatch.chdir(ROOT)
    counted = {r["Bc"]: r["total_bytes"]
               for r in csv.DictReader(iosim("sweep", "configs/sweeps/fig2-middle.toml").stdout.splitlines())}  # fmt: skip
    seen = 0
    for _, job, _ in plan:
        if (job.name, job.problem.acc_dtype) == ("flash1", "fp16"):
            row = figure2.described("middle", job)
            words = 1024 * (2 * 1024 * 64 + 1024 // row["Bc"] * 1024 * (3 * 64 + 4))
            assert (row["words"], row["sm_bytes"]) == (words, 2 * words)
            seen += str(row["sm_bytes"]) == counted.get(str(row["Bc"]))
    assert seen == len(counted) == 4


def test_the_shares_of_the_right_panel(plan):
    """Shares are exactly 1 to 1/16, forward and backward. The forward pass stores what the backward pass reads."""
    right = [(forward, backward) for panel, forward, backward in plan if panel == "right"]
    assert [figure2.density(job) for job, _ in right] == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16] * 2
    for forward, backward in right:
        assert backward.name == forward.name + "-bwd" and figure2.density(backward) == figure2.density(forward)
        given = {*runner(forward).program.arrays, "dO"}
        read = {name for name, (reads, _) in words_of(backward).items() if reads}
        assert read - {"dQ", "D"} <= given, "dQ starts at 0, D is made by the first launch"


def words_of(job):
    from iosim.gpu.moved import moved

    return moved(find(job.name), job.problem, job.tiling).tensors


def test_flops_are_proportional_to_the_share(plan):
    for _, forward, backward in (x for x in plan if x[0] == "right"):
        for job, products in ((forward, 2), (backward, 5)):
            row = figure2.described("right", job)
            assert row["flops"] == products * 2 * 4096**2 * 64 * 128 * row["density"]


@pytest.mark.needs("nvrtc")
def test_the_sources_compile(plan):
    """The smallest and the largest blocks of each series compile without spills."""
    chosen = {}
    for panel, *passes in plan:
        for job in filter(None, passes):
            series = chosen.setdefault((panel, job.name, job.problem.acc_dtype), [])
            series.append(job)
    for series in chosen.values():
        for job in (series[0], series[-1]):
            program = runner(job).program
            found = nvrtc.usage(nvrtc.compiled(program.source, "sm_90", *program.defines)[1])
            assert set(found) == {kernel.name for kernel in program.kernels}
            assert all(spilled == 0 for _, spilled in found.values())


def test_the_jobs_are_plain_json(plan):
    forward = [job for _, job, _ in plan]
    assert [job_from_json(job) for job in json.loads(json.dumps([job.to_json() for job in forward]))] == forward


# ---------------------------------------------------------------- the run, with times that are made up


class Cupy:
    def get_default_memory_pool(self):
        return self

    def free_all_blocks(self): ...


@pytest.fixture
def pretended(monkeypatch):
    """A pretended GPU: its times are the words plus a constant. The dict that is returned names schedules that fail."""
    wrong = {}

    def timed(job):
        p = job.problem
        ms = 0.05 + sum(map(sum, words_of(job).values())) / p.instances / 2**20
        return {"ms": ms, "error": 1e-4, "allowed_error": 1e-3, "failed": wrong.get(job.name, "")}

    monkeypatch.setattr(device, "name", lambda: "a GPU")
    monkeypatch.setattr(device, "cupy", Cupy)
    monkeypatch.setattr(worker, "inputs_of", lambda job: {})
    monkeypatch.setattr(figure2, "forward_pass", lambda job, inputs: timed(job))
    monkeypatch.setattr(figure2, "backward_pass", lambda forward, job, inputs: {"ms": timed(job)["ms"]})
    monkeypatch.setattr(figure2, "gradients", lambda job: {"error": 1e-3, "allowed_error": 3e-3, "failed": ""})
    return wrong


def run(folder, monkeypatch, *more):
    monkeypatch.setattr(sys, "argv", ["figure2.py", str(folder), *more])
    return figure2.main()


def test_a_run_and_its_pages(tmp_path, monkeypatch, pretended, plan, capsys):
    monkeypatch.setattr(page, "PAPERS", tmp_path)
    for name in page.PAGES:
        (tmp_path / name).write_text(f"# {name}\n\nProse.\n")
    assert run(tmp_path, monkeypatch) == 0
    with open(tmp_path / "figure2.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(1 + bool(backward) for _, _, backward in plan) and all(row["ms"] for row in rows)
    assert run(tmp_path, monkeypatch, "--page") == 0
    for name, panel in (("fig2-middle.md", "middle"), ("fig2-right.md", "right")):
        text = (tmp_path / name).read_text()
        timed = [row for row in rows if row["panel"] == panel]
        assert text.startswith(f"# {name}\n\nProse.\n\n## Measured\n") and text.count("<!-- figure2 -->") == 1
        assert f"against float64: {len(timed)} of {len(timed)}" in text and "a GPU, " in text
        assert page.filled(text, tmp_path, name) == text
    assert len(re.findall(r"^\| flash", (tmp_path / "fig2-middle.md").read_text(), re.M)) == 23
    text = (tmp_path / "fig2-right.md").read_text()
    assert len(re.findall(r"^\| block-sparse", text, re.M)) == 10 and text.count("rank correlation with s 1.00") == 6


def test_what_fails_is_said(tmp_path, monkeypatch, pretended):
    pretended["flash2"] = "output"
    assert run(tmp_path, monkeypatch) == 1
    text = page.filled("", tmp_path, "fig2-middle.md")
    assert text.count("Failed: flash2 ") == 11 and "Failed: flash1" not in text


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_is_missing(tmp_path, monkeypatch):
    with pytest.raises(MissingError):
        run(tmp_path, monkeypatch)


def test_without_a_measurement_no_page_is_written(tmp_path, monkeypatch):
    with pytest.raises(MissingError, match="measure on a GPU first"):
        run(tmp_path, monkeypatch, "--page")


def test_jobs_needs_no_gpu(tmp_path, monkeypatch, capsys, plan):
    assert run(tmp_path / "none", monkeypatch, "--jobs") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + sum(1 + bool(back) for _, _, back in plan)


class Kernels:
    """A runner that records its inputs and runs nothing."""

    given: ClassVar[list] = []

    def __init__(self, job):
        self.job = job

    def run(self, inputs):
        return {"O": "the O that was left", "l": 1, "m": 2}, {}

    def call(self, inputs):
        self.given.append((self.job, inputs))
        return lambda: None


@pytest.fixture
def pass_of(monkeypatch):
    monkeypatch.setattr(figure2, "runner", Kernels)
    monkeypatch.setattr(device, "cupy", lambda: np)
    monkeypatch.setattr(worker, "seconds", lambda call: 0.002)
    monkeypatch.setattr(device, "milliseconds", lambda call, repeats: 7.0)
    Kernels.given.clear()

    def forward(**found):
        errors = {"error": 1e-4, "allowed_error": 1e-3, "unwritten": 0, "baseline_error": 1.0, **found}
        monkeypatch.setattr(worker, "output_errors", lambda job, scale: errors)
        return figure2.forward_pass({"run": "flash1"}, {"Q": np.zeros((2, 8, 4))})

    return forward


def test_a_forward_pass_is_timed_and_compared(pass_of):
    assert pass_of() == {"ms": 2.0, "error": 1e-4, "allowed_error": 1e-3, "failed": ""}
    for wrong in ({"error": 2e-3}, {"error": float("nan")}, {"unwritten": 3}):
        assert pass_of(**wrong)["failed"] == "output"


def test_a_backward_pass_gets_what_the_forward_one_left(pass_of):
    inputs = {"Q": np.zeros((2, 8, 4)), "K": "k", "V": "v"}
    assert figure2.backward_pass({"run": "forward"}, {"run": "backward"}, inputs) == {"ms": 7.0}
    ((job, given),) = Kernels.given
    assert job == {"run": "backward"} and given["O"] == "the O that was left" and given["K"] == "k"
    assert given["dO"].shape == (2, 8, 4) and abs(given["dO"]).min() > 0


def test_a_kernel_that_cannot_start_is_one_failed_row(pass_of, monkeypatch):
    def fail(self, inputs):
        raise ValueError("no room")

    monkeypatch.setattr(Kernels, "call", fail)
    assert pass_of() == {"failed": "ValueError: no room"}
    backward = figure2.backward_pass({"run": "x"}, {"run": "y"}, {"Q": np.zeros((1, 2, 2))})
    assert backward == {"failed": "ValueError: no room"}
