"""What kernels load from the tables of a mask: counted, and by kernels that run on the CPU; and how `verify` judges it."""

import on_cpu
import pytest
from test_sectors import ran

from iosim import Attention, Tiling
from iosim.gpu.cuda.mask_reads import mask_reads
from iosim.gpu.jobs import ScheduleJob
from iosim.gpu.ncu import counters
from iosim.gpu.ncu.counters import ProfiledKernel
from iosim.gpu.verdict import Evidence, verify
from iosim.gpu.verdict_rows import verdict_table
from iosim.hardware import SECTOR_BYTES
from iosim.masks import parse_mask
from iosim.schedules import find

MODS = """
def band(b, h, q, k):
    return (q >= k) & (q - k <= 64)


def near(b, h, q, k):
    return (q - k <= 40) & (k - q <= 40)
"""
# schedule, N, keys, mask, tiles, type of accumulators
CASES = [
    ("flash2", 352, 352, "py:{}:band", (32, 32), "fp16"),
    ("flash2", 352, 352, "py:{}:near", (32, 32), "fp32"),
    ("flash2", 352, 352, "~py:{}:near", (16, 48), "fp32"),
    ("standard-tiled", 352, 352, "py:{}:band", (32, 32), "fp32"),
    ("flash1", 330, 350, "py:{}:band", (33, 50), "fp32"),
    ("flash2", 352, 352, "py:{}:near&causal", (32, 32), "fp32"),
    ("flash2", 352, 352, "causal&py:{}:near", (32, 32), "fp32"),
]


@pytest.fixture
def mods(tmp_path):
    path = tmp_path / "mods.py"
    path.write_text(MODS)
    return path


def job_of(case, mods):
    name, N, Nk, mask, tiles, acc = case
    p = Attention(N, 16, Nk=Nk, heads=2, acc_dtype=acc, mask=parse_mask(mask.format(mods)))
    return ScheduleJob(name, p, Tiling(*tiles))


@pytest.mark.long
@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
def test_sectors_are_those_of_kernels_on_the_cpu(mods, tmp_path):
    """A mask that is nothing but a function is exact; where another atom may decide, no kernel reads more."""
    jobs, exact = [job_of(case, mods) for case in CASES], 0
    for job, _, _, _, _, sectors in ran(jobs, tmp_path):
        said, (loaded, _) = mask_reads(find(job.name), job.problem, job.tiling), sectors["file0"]
        assert loaded * SECTOR_BYTES == said.read_bytes if said.exact else loaded * SECTOR_BYTES <= said.read_bytes, job
        exact += said.exact
    assert 4 <= exact < len(CASES)


def test_the_bits_of_the_issue(mods):
    """A query sees its own key and 64 before it: of 17 x 17 tiles 17 on the diagonal and 15 at distance 2 hide a part.
    Lanes look at 8 neighbouring bits of a tile of 32 keys, so the 32 requests of a tile are 8 sectors each."""
    p = Attention(544, 32, heads=32, mask=parse_mask(f"py:{mods}:band"))
    found = mask_reads(find("flash2"), p, Tiling(32, 32))
    assert found == (32 * 32 * 32 * 32, 32 * 32 * 32 * 8 * SECTOR_BYTES, True)
    assert mask_reads(find("flash2"), Attention(544, 32, mask=parse_mask("causal")), Tiling(32, 32)) is None
    small = Attention(64, 32, mask=parse_mask(f"py:{mods}:band"))
    assert mask_reads(find("flash2"), small, Tiling(32, 32)) is None, "its bits are constants of the source"


def test_long_documents_are_a_table():
    documents = parse_mask("documents:2000,2000")
    assert mask_reads(find("flash2"), Attention(4000, 16, mask=documents), Tiling(64, 64)).exact is False
    assert (
        mask_reads(find("flash2"), Attention(2000, 16, mask=parse_mask("documents:900,1100")), Tiling(64, 64)) is None
    )


@pytest.mark.parametrize("more, ok", [(0, True), (-1, False), (1, False)])
def test_verify_counts_the_bits_beside_the_words(mods, more, ok):
    """A kernel that loads its words and the mask's bits is right; one that loads a sector less or more is not."""
    job = job_of(CASES[0], mods)
    bits = mask_reads(find(job.name), job.problem, job.tiling).read_bytes
    note = {"tables": 0, "launches": [{"smem_bytes": 1, "threads": 64, "tensor_cores": True}]}
    plain = verify(Evidence(job, note), None)
    assert plain["mask_read_bytes"] is None and "mask read" not in str(verdict_table([plain]))
    loads = plain["sm_read_bytes"] + bits + more * SECTOR_BYTES
    seen = ProfiledKernel("k", metrics={counters.LOADS: loads, counters.STORES: plain["sm_write_bytes"]})
    row = verify(Evidence(job, note, [seen]), None)
    assert (row["mask_read_bytes"], row["ok"]) == (bits, ok), row["faults"]
    assert (row["read_ratio"] == 1) is ok and "mask read" in str(verdict_table([row]))
