"""Nsight Compute's CSV: what is read from it, and what is said when there is none."""

import json

import pytest
from paths import DATA

from iosim import Attention, Tiling
from iosim.errors import InputError, MissingError
from iosim.gpu.jobs import ScheduleJob
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu

JOBS = [ScheduleJob("flash2", Attention(n, 16), Tiling(16, 16)) for n in range(1, 6)]
KERNELS = json.loads((DATA / "h200_sdpa.json").read_text())["kernels"]
KEPT = [
    metric for metric in counters.METRICS if metric not in (counters.L2_WRITES, counters.BANK_READS)
]  # what was asked for at the time


def test_the_long_form():
    (kernel,) = counters.read_profile(DATA / "ncu_flash.csv").jobs[0]
    expected = KERNELS[2]
    assert kernel.name == expected["kernel"] and kernel.grid == (32, 1, 32) and kernel.block == (128, 1, 1)
    for metric in KEPT:
        assert kernel.metrics[metric] == expected["metrics"][metric], metric
    assert kernel.load_bytes == 1090519040 and kernel.store_bytes == 17301504
    assert kernel.seconds == pytest.approx(468.672e-6)


def test_the_wide_form_says_the_same():
    (kernel,) = counters.read_profile(DATA / "ncu_wide.csv").jobs[0]
    assert {m: kernel.metrics[m] for m in KEPT} == {m: KERNELS[7]["metrics"][m] for m in KEPT}
    assert kernel.grid == (32, 1, 32)


def test_markers_cut_the_kernels_into_jobs():
    jobs = counters.read_profile(DATA / "ncu_flash_four.csv").jobs
    assert [[k.load_bytes for k in job] for job in jobs] == [
        [int(k["metrics"][counters.LOADS])] for k in KERNELS[:4]
    ]  # fmt: skip


def test_a_job_may_have_no_kernel_and_several():
    marker, other = counters.ProfiledKernel("iosim_marker()"), counters.ProfiledKernel("softmax")
    assert counters._split([marker, marker, other, other, marker]) == [[], [other, other], []]
    assert counters._split([other, other]) == [[other, other]]


def dram(read, written, name="k"):
    return counters.ProfiledKernel(name, metrics={counters.DRAM_READ: read, counters.DRAM_WRITE: written})


def test_a_job_in_other_places_is_one_job():
    """Its kernels are those of the first place; what the others moved to and from DRAM goes with them."""
    marker, elsewhere = counters.ProfiledKernel("iosim_marker"), counters.ProfiledKernel("iosim_elsewhere")
    first, second = dram(10, 1), dram(20, 2, "other")
    jobs = counters._split([marker, first, second, elsewhere, dram(30, 3), dram(40, 4, "other"), marker, first])
    assert [[k.name for k in job] for job in jobs] == [["k", "other"], ["k"]]
    assert [k.dram_places for k in jobs[0]] == [((10, 1), (30, 3)), ((20, 2), (40, 4))]
    assert jobs[1][0].dram_places == ((10, 1),)
    with pytest.raises(InputError, match="the same ones in all places"):
        counters._split([marker, first, elsewhere, second])


HEAD = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'


@pytest.mark.parametrize(
    "value, unit, bytes_",
    [("1,234,567", "byte", 1234567), ("1234567", "byte", 1234567), ("1.5", "Kbyte", 1500), ("2", "Gbyte", 2 * 10**9)],
)
def test_values(value, unit, bytes_):
    text = HEAD + f'"0","k","dram__bytes_read.sum","{unit}","{value}"\n'
    assert counters.parse_profile(text).jobs[0][0].get(counters.DRAM_READ) == bytes_


def test_loads_through_tma_are_seen_at_the_crossbar():
    kernel = counters.ProfiledKernel(
        "k", metrics={counters.LOADS: 4096, counters.FROM_L2: 10**9, counters.TO_L2: 10**6}
    )
    assert kernel.through_tma and kernel.load_bytes == 10**9
    assert kernel.stores_unseen and kernel.store_bytes == 0
    plain = counters.ProfiledKernel(
        "k", metrics={counters.LOADS: 10**9, counters.FROM_L2: 10**9 + 32, counters.STORES: 5}
    )
    assert not plain.through_tma and plain.load_bytes == 10**9 and plain.store_bytes == 5


def test_stores_in_bulk_are_seen_at_the_l2():
    """S of 1000 x 1000 halves, 6 heads: 960 columns in bulk, of which the LSU sees nothing, and 40 through it."""
    metrics = {counters.STORES: 576000, counters.TO_L2: 13536000, counters.L2_WRITES: 423000}
    kernel = counters.ProfiledKernel("scores", metrics={**metrics, counters.FROM_L2: 3932160})
    assert not kernel.stores_unseen and kernel.store_bytes == 13536000
    spills = counters.ProfiledKernel(
        "flash_fwd", metrics={**metrics, counters.LOADS: 3932160, counters.FROM_L2: 3932160}
    )
    assert spills.store_bytes == 576000, "without loads in bulk there are no such stores: registers were spilled"
    through_lsu = {counters.STORES: 12384000, counters.TO_L2: 12382656, counters.L2_WRITES: 386958}
    assert counters.ProfiledKernel("softmax_rows", metrics=through_lsu).store_bytes == 12384000


def test_reductions_are_stores():
    kernel = counters.ProfiledKernel(
        "k", metrics={counters.STORES: 3.0, counters.REDUCTIONS: 4.0, counters.TO_L2: 100.0}
    )
    assert kernel.store_bytes == 7, "and the crossbar's own count, which holds more, is not used"
    assert kernel.spilled_bytes == 93
    fewer = counters.ProfiledKernel("k", metrics={counters.STORES: 100.0, counters.TO_L2: 80.0})
    assert fewer.spilled_bytes == 0, "requests that share a sector are one"
    assert counters.ProfiledKernel("k", metrics={counters.STORES: 3.0}).spilled_bytes is None, "not counted"
    bulk = {counters.LOADS: 10.0, counters.FROM_L2: 1000.0, counters.STORES: 100.0, counters.TO_L2: 300.0}
    assert counters.ProfiledKernel("k", metrics=bulk).spilled_bytes is None, "stores in bulk, perhaps"


def test_notes_are_kept_in_the_same_file(tmp_path):
    path = tmp_path / "kept.csv"
    path.write_text((DATA / "ncu_flash.csv").read_text())
    ncu.append_notes(str(path), [{"job": {"run": "flash2"}, "words": {"Q": [1, 2]}}])
    profile = counters.read_profile(path)
    assert profile.notes == [{"job": {"run": "flash2"}, "words": {"Q": [1, 2]}}]
    assert profile.jobs == counters.read_profile(DATA / "ncu_flash.csv").jobs


def test_a_file_that_is_no_profile(tmp_path):
    for text in ("", "a,b\n1,2\n"):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match="ncu --csv"):
            counters.read_profile(tmp_path / "x.csv")
    with pytest.raises(InputError, match="no such file"):
        counters.read_profile(tmp_path / "none.csv")
    with pytest.raises(InputError, match="ERR_NVGPUCTRPERM.*run as root"):
        counters.read_profile(DATA / "ncu_denied.csv")


def test_the_command_line_leaves_the_clocks_alone():
    line = ncu.command("ncu", "out.csv", ["python", "-m", "iosim.gpu.worker"])
    assert line[0] == "ncu" and line[-1] == "iosim.gpu.worker"
    text = " ".join(line)
    assert "--clock-control none --csv --print-units base" in text and "--profile-from-start off" in text
    assert all(metric in text for metric in counters.METRICS)


def fake_ncu(tmp_path, csv, notes="", code=0):
    """A profiler that writes a kept CSV where --log-file says, and the notes where the worker would."""
    script = tmp_path / "ncu"
    script.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != "--log-file" ]; do shift; done\n'
        f'cp "{csv}" "$2"\nwhile [ "$1" != "profile" ]; do shift; done\n'
        f"printf '%b' '{notes}' > \"$3\"\nexit {code}\n"
    )
    script.chmod(0o755)
    return str(script)


def test_profile_runs_the_profiler_and_keeps_its_file(tmp_path, monkeypatch):
    jobs = JOBS[:4]
    notes = "".join(json.dumps({"job": job.to_json()}) + "\\n" for job in jobs)
    fake = fake_ncu(tmp_path, DATA / "ncu_flash_four.csv", notes)
    monkeypatch.setattr(ncu, "find_ncu", lambda: fake)
    found = ncu.profile(jobs, str(tmp_path / "kept.csv"))
    assert len(found.jobs) == 4 and [note["job"] for note in found.notes] == [job.to_json() for job in jobs]
    assert counters.read_profile(tmp_path / "kept.csv") == found
    with pytest.raises(MissingError, match="3 jobs were launched and 4 profiled"):
        ncu.profile(jobs[:3], str(tmp_path / "kept.csv"))


def test_a_kernel_that_faults_costs_only_its_own_job(tmp_path, monkeypatch):
    """The worker of the first three jobs dies in the second; the third runs in a new one."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys\n"
        "jobs = json.load(open(sys.argv[2]))\n"
        "out = open(sys.argv[3], 'w')\n"
        "for job in jobs:\n"
        "    bad = job['N'] == 2\n"
        "    out.write(json.dumps({'job': job, **({'failed': 'illegal'} if bad else {'words': {}})}) + '\\n')\n"
        "    if bad:\n        out.close(); sys.exit(4)\n"
    )
    real = ncu.worker_command
    monkeypatch.setattr(
        ncu,
        "worker_command",
        lambda *a, **k: [c if c != "-m" else str(script) for c in real(*a, **k) if c != "iosim.gpu.worker"],
    )
    notes = ncu.notes_of_jobs(JOBS[:3], tmp_path / "notes")
    assert [note["job"]["N"] for note in notes] == [1, 2, 3]
    assert ["failed" in note for note in notes] == [False, True, False]


def test_only_what_ran_is_profiled(tmp_path, monkeypatch):
    notes = [{"job": job.to_json(), **({"failed": "x"} if job.problem.N == 2 else {})} for job in JOBS]
    fake = fake_ncu(tmp_path, DATA / "ncu_flash_four.csv")
    monkeypatch.setattr(ncu, "find_ncu", lambda: fake)
    found = ncu.profile_what_ran(JOBS, notes, str(tmp_path / "kept.csv"))
    assert [len(kernels) for kernels in found] == [1, 0, 1, 1, 1]
    assert counters.read_profile(tmp_path / "kept.csv").notes == notes
