"""Registers that have no room: stores to a thread's stack, from the profiler's page of instructions, and their DRAM."""

import pytest
from paths import DATA

from iosim import Attention, Tiling
from iosim.gpu.jobs import ScheduleJob, torch_job
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu
from iosim.gpu.ncu.counters import ProfiledKernel
from iosim.gpu.predict.blocks import touches_of
from iosim.gpu.predict.dram import Conditions, dram_bytes
from iosim.schedules import find

PAGES = (DATA / "ncu_instructions.csv").read_text()  # FlashAttention-2, d = 128: causal N = 4096, dense N = 4097
SPILLED = [250_576_896, 284_825_696]  # by the counters of a run of each (to 0.05 %)


def spilling(bytes_, stored=1000):
    return {counters.STORES: stored, counters.TO_L2: stored + bytes_}


def page(name, *instructions):
    lines = [f'"Kernel Name","{name}",', '"Address","Source","inst_executed"']
    return "\n".join(lines + [f'"0x{n:x}","{text}","{runs}"' for n, (text, runs) in enumerate(instructions)])


def test_only_stores_to_the_stack_count():
    text = page("iosim_marker", ("EXIT", 1)) + "\n"
    text += page("k", ("      STL.64 [R1+0x10], R30", "1,024"), ("@!P0  STL [R1], R2", 7), ("LDL R66, [R1+0x1c]", 9),
                 ("STL.128 [R1+0x20], R4", 3), ("STL.U8 [R1+0x3], R4", 2), ("STG.E [R2+0x10], R4", 5), ("STL [R7], R4", 5))  # fmt: skip
    assert counters.parse_stores(text) == [[[(16, 8, 1024), (0, 4, 7), (32, 16, 3), (3, 1, 2)]]]


def test_pages_of_a_real_profile():
    """The page lists a kernel twice, or once; each belongs to the job after whose marker it comes. All that is stored is
    what the counters have beside the stores of tensors."""
    jobs = counters.parse_stores(PAGES)
    assert [len(job) for job in jobs] == [1, 1]
    for (stores,), spilled, grid in zip(jobs, SPILLED, (32, 33), strict=True):
        assert sum(32 * width * runs for _, width, runs in stores) == pytest.approx(spilled, rel=1e-3)
        metrics = spilling(spilled)
        kernel = ProfiledKernel("flash", (grid, 1, 32), (128, 1, 1), metrics, tuple(stores))
        assert counters.block_bytes(kernel) == ((72 * 128, 56 * 128) if grid == 32 else (28 * 128, 32 * 128))


@pytest.mark.parametrize(
    "stores, answer",
    [
        ([(0, 4, 8)], (4, 0)),
        ([(0, 4, 9)], (0, 4)),
        ([(0, 4, 8), (0, 4, 8)], (4, 0)),  # the same bytes twice: still as old as a block when the next one comes
        ([(0, 8, 8), (4, 8, 80)], (4, 8)),
        ([(0, 16, 4), (32, 1, 8)], (17, 0)),
    ],
)
def test_what_a_block_writes_by_hand(stores, answer):
    """Four blocks of 64 threads: 8 warps."""
    seen = sum(32 * width * runs for _, width, runs in stores)
    kernel = ProfiledKernel("k", (4,), (64,), spilling(seen), tuple(stores))
    assert counters.block_bytes(kernel) == tuple(64 * bytes_ for bytes_ in answer)


PROFILER = """#!/bin/sh
case "$*" in
    *--log-file*) while [ "$1" != "--log-file" ]; do shift; done; cp "{csv}" "$2" ;;
    *--import*) cat "{page}" ;;
    *--export*) while [ "$1" != "--export" ]; do shift; done; : > "$2" ;;
esac
"""


def test_stores_are_asked_for_where_registers_spill_and_kept_with_the_profile(tmp_path, monkeypatch):
    """Two of three jobs spill; the kernel of ours is never asked. What is kept replays."""
    head, body = '"ID","Kernel Name","Grid Size","Block Size","Metric Name","Metric Unit","Metric Value"', []
    for number, spilled in enumerate((*SPILLED, 0)):
        for name, metric, value in (("iosim_marker", counters.TIME, 1), ("flash", counters.LOADS, 10**9),
                                    ("flash", counters.FROM_L2, 10**9), ("flash", counters.STORES, 34 * 10**6),
                                    ("flash", counters.TO_L2, 34 * 10**6 + spilled)):  # fmt: skip
            kernel_id = 2 * number + (name == "flash")
            body.append(f'"{kernel_id}","{name}","({32 + number}, 1, 32)","(128, 1, 1)","{metric}","byte","{value}"')
    (tmp_path / "all.csv").write_text("\n".join([head, *body]) + "\n")
    script = tmp_path / "ncu"
    script.write_text(PROFILER.format(csv=tmp_path / "all.csv", page=DATA / "ncu_instructions.csv"))
    script.chmod(0o755)
    monkeypatch.setattr(ncu, "find_ncu", lambda: str(script))
    jobs = [torch_job("torch-flash", Attention(N, 128)) for N in (4096, 4097, 1)]
    found = ncu.profile(jobs, str(tmp_path / "kept.csv"))
    kernels = [kernel for (kernel,) in found.jobs]
    assert [len(kernel.stack_stores) for kernel in kernels] == [len(job[0]) for job in counters.parse_stores(PAGES)] + [
        0
    ]
    assert counters.block_bytes(kernels[0]) == (9216, 7168)
    assert counters.read_profile(tmp_path / "kept.csv") == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.csv", "kept.csv", "ncu"]
    ours = [ScheduleJob("flash2", Attention(4096, 128), Tiling(64, 64))] * 3
    assert not any(k.stack_stores for (k,) in ncu.profile(ours, str(tmp_path / "kept.csv")).jobs)


# ---------------------------------------------------------------- what that means for DRAM


def test_what_every_block_writes_once_by_hand():
    """flash2, 8 blocks of 16 rows on 4 places, 1000 bytes each. In an L2 that holds all: every place is dirty at the
    end, once. In one of no bytes: each block's go to DRAM. Nothing is read for them."""
    p, t = Attention(64, 16, heads=2, dtype="fp32"), Tiling(16, 16)
    found = touches_of(find("flash2"), p, t)
    for capacity, written, dirty in ((10**9, 0, 4), (0, 8, 0)):
        plain, spilling = (dram_bytes(found, p, [4], capacity, Conditions(block_bytes=b)) for b in (0, 1000))
        assert spilling.read_bytes == plain.read_bytes and spilling.first_bytes == plain.first_bytes
        assert spilling.write_bytes - plain.write_bytes == written * 1000
        assert spilling.dirty_bytes - plain.dirty_bytes == dirty * 1000
