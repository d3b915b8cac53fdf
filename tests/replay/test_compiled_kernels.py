"""The fused kernels of compiled models that validation/kernels/compiled.json keeps: iosim says today what it said, and
an H100 measured what docs/compiled.md says."""

import csv
import json

import compiled_on_gpu as kept
import pytest
from paths import DOCS

ENTRIES = json.loads(kept.PREPARED.read_text())
with kept.PREPARED.with_suffix(".csv").open() as file:
    ROWS = [{k: int(v) if v.isdigit() else v for k, v in row.items()} for row in csv.DictReader(file)]


def test_the_gpu_measured_the_kept_kernels_and_the_page_says_how_it_went():
    said = [{"script": e["script"], "kernel": e["kernel"], **e["said"]} for e in ENTRIES]
    assert said == [{key: row[key] for key in said[0]} for row in ROWS]
    page = (DOCS / "compiled.md").read_text()
    assert f"{len(ROWS)} different Triton kernels" in page and f"equal in all {len(ROWS)} kernels" in page
    assert all(row["stores"] == row["said_stores"] and row["registers"] == row["own_registers"] for row in ROWS)
    more = sorted(f"{row['loads'] / row['said_loads']:.4g}" for row in ROWS if row["loads"] != row["said_loads"])
    assert f"those of loads are equal in {len(ROWS) - len(more)}".lower() in page.lower()
    assert more == ["1.007", "1.176", "3.333"] and "1.007 and 1.18 times" in page and "3.33 times" in page
    over = [row["dram_read"] - row["once_read_bytes"] for row in ROWS]
    assert min(over) > 0 and max(over) < 17_000 and "at most 17 kB more" in page


@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_kept_kernels_are_explained_as_they_were(tmp_path):
    """The kept function has only `@triton.jit`, so this also shows that nothing of PyTorch's decorators is counted."""
    from iosim.kernels.explain import Question, explained
    from iosim.kernels.read.kernel import Configuration, Kernel, KernelLaunch
    from iosim.kernels.walk.launch import Tensor

    question = Question("sm_90")
    for entry in ENTRIES:
        values = {n: Tensor(v[0], (v[1],)) if isinstance(v, list) else v for n, v in entry["arguments"].items()}
        kernel = Kernel(kept.function_of(entry, tmp_path))
        launch = KernelLaunch(kernel, tuple(entry["grid"]), values, entry["num_warps"], entry["num_stages"])
        found = explained(launch, Configuration(), question)
        assert kept.said_of(found).items() <= entry["said"].items(), entry["kernel"]
        assert bool(found.warnings) == ("_cat_cos_mul_transpose" in entry["kernel"]), "the only kernel with a note"


@pytest.mark.long
@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_the_models_still_have_the_kept_kernels():
    assert kept.prepared() == ENTRIES
