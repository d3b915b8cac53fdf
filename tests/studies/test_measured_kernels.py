"""Bounds beside kept measurements: no time that is called a bound is above one."""

import csv

import pytest
from paths import VALIDATION

from iosim import hardware, tables
from iosim.core.problem import Attention
from iosim.core.tiling import parse_tiles
from iosim.hardware import configs_folder, load
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.studies.ideal_roofline import rows_of, work_by_kind
from iosim.studies.roofline import kept, measured_beside, roofline, winners

kept_rows = pytest.importorskip("beside_bounds", exc_type=ImportError).kept_rows

GPUS = ("H100", "H200")
SIDES = (16, 64, 128, 256)


def least(schedule, p, tiles, chip):
    """The row of all launches."""
    tiling = parse_tiles(tiles)
    return rows_of(
        schedule, tiling, p, tiling, work_by_kind(schedule, p.packed, tiling).launches, chip, chip.sram_bytes
    )[-1]


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
    """Of the schedules that skip what a mask hides, with all tiles of some sizes, at the peaks of data sheets."""
    chip, beaten, ratios = load(gpu), [], []
    every = [one for one in kept() if one.gpu == gpu]
    for one in every:
        for name in ("flash2", "flash1") if str(one.problem.mask) == "dense" else ("block-sparse-q", "block-sparse"):
            for tiles in [f"{rows}x{keys}" for rows in SIDES for keys in SIDES]:
                row = least(find(name), one.problem, tiles, chip)
                ratios.append(one.seconds / row.bound_seconds)
                if ratios[-1] < 1:
                    beaten.append((one, name, tiles))
    assert beaten == [] and len(ratios) == len(every) * 2 * len(SIDES) ** 2
    assert 1.2 < min(ratios) < 1.5, "a bound far below all measurements would prove nothing"


@pytest.mark.parametrize("gpu", GPUS)
def test_the_time_of_sm_traffic_is_no_bound(gpu):
    """Kernels of PyTorch take less than it, with the very tiles that they have."""
    chip = load(gpu)
    dense = [one for one in kept() if one.gpu == gpu and one.kernel == "torch-cudnn" and one.problem.N > 4000
             and str(one.problem.mask) == "dense"]  # fmt: skip
    rows = [least(find("flash2"), one.problem, "128x128", chip) for one in dense]
    assert sum(one.seconds < row.sm_traffic_seconds for one, row in zip(dense, rows, strict=True)) >= 3


@pytest.mark.parametrize("gpu", GPUS)
def test_generated_and_tuned_kernels_take_longer_than_their_bound(gpu):
    """Each kept row of validation, with its own schedule and tiles."""
    (folder,), chip, ratios = VALIDATION.glob(f"{gpu.lower()}-*"), load(gpu), []
    with open(folder / "rows.csv", newline="") as file:
        every = [row for row in csv.DictReader(file) if row["seconds"] and "file:" not in row["mask"]]
    for row in every:
        sizes = {name: int(row[name]) for name in ("Nk", "batch", "heads")}
        types = {name: row[name] for name in ("dtype", "acc_dtype")}
        p = Attention(int(row["N"]), int(row["d"]), mask=parse_mask(row["mask"]), **sizes, **types)
        bound = least(find(row["schedule"].split()[0]), p, row["tiles"], chip).bound_seconds
        ratios.append(float(row["seconds"]) / bound)
    assert min(ratios) > 1 and len(ratios) > 100


def test_other_problems_have_no_kept_times(ask):
    line = ["roofline", "--N", 4000, "--d", 128, "--heads", 32, "--hardware", "h100", "--schedule", "flash2"]
    found = ask(*line)
    assert found["measured"] == [] and "Measured" not in found["answer"]
    chip, p = load("H100"), Attention(4096, 128, heads=32, dtype="fp16")
    assert measured_beside(chip, p) and not measured_beside(load("A100-80GB"), p)


OTHERS = {
    "dv": {"dv": 64}, "a KV cache in fp8": {"kv_dtype": "fp8"}, "latent": {"dv": 64, "latent": True},
    "scales": {"kv_dtype": "fp8", "kv_scales": 32}, "the gradients": {"schedules": "flash2-bwd"},
    "linear attention": {"schedules": "linear"}, "type": {"dtype": "bf16"}, "P stored": {"keep_p": True},
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
def test_the_winner_has_the_least_bound_and_of_equals_the_fewest_bytes(gpu):
    found = roofline(2048, 64, gpu, heads=4, decode=True)
    for winner in winners(found):
        fitting = [r for r in found.rows if r.launch == "all" and r.fits and r.phase == winner.phase]
        assert all(winner.bound_seconds <= row.bound_seconds * (1 + 1e-9) for row in fitting)
        equal = [row for row in fitting if row.bound_seconds <= winner.bound_seconds * (1 + 1e-12)]
        assert winner.work.total_bytes == min(row.work.total_bytes for row in equal)
