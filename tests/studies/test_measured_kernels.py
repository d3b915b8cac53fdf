"""Bounds beside kept measurements: no time that is called a bound is above one."""

import pytest

from iosim import Tiling, hardware, tables
from iosim.core.problem import Attention
from iosim.counting.needed import problem_times
from iosim.hardware import configs_folder, load
from iosim.schedules import find
from iosim.studies.roofline import kept, measured_beside, roofline
from iosim.timing.bound import time_at_least
from iosim.timing.measured import measured_over_bounds, over_bounds

kept_rows = pytest.importorskip("beside_bounds", exc_type=ImportError).kept_rows
over_bounds_text = pytest.importorskip("over_bounds", exc_type=ImportError).text

GPUS = ("H100", "H200")
SIDES = (64, 128, 256)


def test_the_kept_times_are_those_of_the_profiles():
    """Each call of PyTorch's kernels once, with the shorter time of two runs."""
    text = (configs_folder() / "measured" / "kernels.csv").read_text()
    assert text == tables.to_csv(kept_rows())
    assert len(kept()) > 140 and {one.gpu for one in kept()} == set(GPUS)
    assert {one.kernel for one in kept()} == {
        "torch-flash",
        "torch-cudnn",
        "torch-efficient",
        "torch-math",
        "torch-flex",
    }


@pytest.mark.parametrize("gpu", GPUS)
def test_no_bound_is_above_a_kept_time(gpu):
    """Of flash2 and flash1 with the tiles that PyTorch's kernels may have; what any kernel needs is less still."""
    chip, every = load(gpu), [one for one in kept() if one.gpu == gpu]
    beaten, nearest = [], []
    for one in every:
        times = problem_times(one.problem, chip)
        tiles = [Tiling(rows, keys) for rows in SIDES for keys in SIDES]
        bounds = [time_at_least(find("flash2"), one.problem, tiling, chip).seconds for tiling in tiles]
        assert max(times.values()) <= min(bounds)
        nearest.append(one.seconds / max(times.values()))
        beaten += [one] * (nearest[-1] < 1)
    assert beaten == [] and 1.2 < min(nearest) < 1.5, "a bound far below all measurements would prove nothing"


def test_times_over_bounds_are_those_of_today():
    assert (configs_folder() / "measured" / "over_bounds.json").read_text() == over_bounds_text()
    assert len(over_bounds()) == 2
    for one in over_bounds():
        assert 1 < one.least < one.median < one.most and one.kernels >= 20
        assert f"{one.kind} took {one.least:.1f} to {one.most:.1f} times it" in measured_over_bounds()


def test_other_problems_have_no_kept_times(ask):
    line = ["roofline", "--N", 4000, "--d", 128, "--heads", 32, "--hardware", "h100", "--schedule", "flash2"]
    found = ask(*line)
    assert found["measured"] == [] and "Measured" not in found["answer"]
    chip, p = load("H100"), Attention(4096, 128, heads=32, dtype="fp16")
    assert measured_beside(chip, p) and not measured_beside(load("A100-80GB"), p)


OTHERS = {
    "dv": {"dv": 64}, "a KV cache in fp8": {"kv_dtype": "fp8"}, "latent": {"dv": 64, "latent": True},
    "scales": {"kv_dtype": "fp8", "kv_scales": 32}, "the gradients": {"schedules": "flash2-bwd"},
    "linear attention": {"schedules": "state-fused"}, "type": {"dtype": "bf16"}, "P stored": {"keep_p": True},
    "nothing skipped": {"mask": "causal", "visit_all": True},
}  # fmt: skip
ALIKE = {
    "lse": {"lse": True},
    "pages": {"schedules": "paged", "page_size": 32},
    "kv": {"kv_dtype": "fp16"},
    "stages": {"stages": 2},
}


@pytest.mark.parametrize("options", [pytest.param(given, id=name) for name, given in {**OTHERS, **ALIKE}.items()])
def test_what_computes_something_else_has_no_kept_times(options):
    """A time of another problem would be wrong beside the bound; that of a backward pass is above a kept forward pass."""
    found = roofline(8192, 128, "h100", **{"heads": 32, "schedules": "flash2", **options})
    assert ("Measured on H100" in str(found)) == bool(found.to_dict()["measured"]) == (options in ALIKE.values())


@pytest.mark.parametrize("gpu", hardware.names())
def test_the_winner_has_the_least_bound(gpu):
    """Of times within a hundredth of it the fewest bytes win."""
    for phase in roofline(2048, 64, gpu, heads=4, decode=True).phases:
        (best,) = phase.best
        fitting = [r for r in phase.report.results if r.fits]
        least = min(r.at_least_seconds for r in fitting)
        near = [r for r in fitting if r.at_least_seconds <= 1.01 * least]
        assert best in near and best.total_bytes == min(r.total_bytes for r in near)
