"""The verdict of `iosim verify`, from kept profiles and made-up notes: no GPU is needed."""

import json
from dataclasses import replace

import pytest
from gpu_here import has_gpu
from paths import DATA

from iosim.core.problem import Attention, skips_tiles
from iosim.core.tiling import Tiling
from iosim.counting.floors import floor
from iosim.gpu import ask as ask_gpu
from iosim.gpu import verify_run
from iosim.gpu.cuda.sectors import partial_sectors
from iosim.gpu.jobs import ScheduleJob, job_from_json, key_of, runner, torch_job
from iosim.gpu.moved import moved
from iosim.gpu.ncu import counters
from iosim.gpu.verdict import Evidence, dram_row, partial_sectors_of, verify
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES, find

KEPT = DATA / "ncu_generated.csv"
ARGS = ["verify", "--N", 2048, "--d", 64, "--tiles", "64x64", "--heads", 132, "--dtype", "fp32"]
BOTH = ["--schedule", "flash1", "--schedule", "flash2"]


def note_for(job):
    """What the worker says when all is right."""
    words = moved(find(job.name), job.problem, job.tiling).tensors
    fine = {
        "error": 1e-6,
        "baseline_error": 1e-6,
        "allowed_error": 2e-6,
        "unwritten": 0,
        "bias": 1e-5,
        "allowed_bias": 2e-5,
    }
    return {"job": job.to_json(), "words": {k: list(v) for k, v in words.items()}, "seconds": 1e-3, **fine, "large_logits": fine,
            "launches": runner(job).launches, **runner(job).sizes}  # fmt: skip


def kernel(read, written, seconds=1e-3, **more):
    metrics = {counters.LOADS: read, counters.FROM_L2: read, counters.STORES: written, counters.TIME: seconds * 1e9,
               counters.DRAM_READ: read, counters.DRAM_WRITE: written, **more}  # fmt: skip
    return counters.ProfiledKernel("k", metrics=metrics)


def kept(folder, read, written):
    """The profile of a kernel, in a file."""
    body = [(counters.LOADS, read), (counters.FROM_L2, read), (counters.STORES, written), (counters.DRAM_READ, 10**8)]
    (folder / "kept.csv").write_text('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "".join(
        f'"0","k","{name}","byte","{value}"\n' for name, value in body))  # fmt: skip
    return folder / "kept.csv"


def kept_runs(folder, jobs):
    """The profile of several jobs, which the file names, as --keep writes it: a marker before the kernel of each."""
    lines = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for number, job in enumerate(jobs):
        p = moved(find(job.name), job.problem, job.tiling)
        lines.append(f'"{2 * number}","iosim_marker","{counters.LOADS}","byte","0"')
        for name, value in kernel(p.read_bytes, p.write_bytes).metrics.items():
            lines.append(f'"{2 * number + 1}","k","{name}","ns","{value}"' if name == counters.TIME
                         else f'"{2 * number + 1}","k","{name}","byte","{value}"')  # fmt: skip
    notes = [{"job": job.to_json()} for job in jobs] + [note_for(job) for job in jobs]
    (folder / "runs.csv").write_text("\n".join([*lines, *(counters.NOTE + json.dumps(note) for note in notes)]))
    return folder / "runs.csv"


def evidence(job):
    p = moved(find(job.name), job.problem, job.tiling)
    return Evidence(job, note_for(job), [kernel(p.read_bytes, p.write_bytes)])


def measured(monkeypatch):
    """A GPU that counts what the model says."""
    monkeypatch.setattr(ask_gpu, "without_gpu", lambda: None)
    monkeypatch.setattr(verify_run, "gather", lambda jobs, source: [evidence(job) for job in jobs])


JOB = ScheduleJob("flash2", Attention(256, 64, heads=4, dtype="fp32"), Tiling(64, 64))


def test_the_kept_profile_agrees(ask):
    answer = ask(*ARGS, *BOTH, "--from-ncu", KEPT)
    one, two = answer["rows"]
    assert answer["ok"] and one["ok"] and two["ok"]
    assert set(one["tensors"]) >= {"Q", "K", "V", "O", "l", "m"}
    assert (one["sm_read_bytes"], one["sm_write_bytes"]) == (4_636_803_072, 2_283_798_528)
    assert one["read_ratio"] == one["write_ratio"] == two["read_ratio"] == 1.0
    inputs = 3 * 132 * 2048 * 64 * 4
    assert two["dram_compulsory_bytes"] == inputs and two["dram_ratio"] == pytest.approx(1, abs=0.01)
    state = 132 * 2048 * (64 + 2) * 4  # flash1 also reads O, l and m, which the host has filled
    assert one["dram_compulsory_bytes"] == inputs + state
    assert one["dram_ratio"] > 10, "132 working sets exceed the L2"
    assert one["seconds"] == pytest.approx(9e-3) and one["flops_per_second"] == pytest.approx(one_flops() / 9e-3)


def one_flops():
    return 132 * 4 * 2048**2 * 64


RUNS = [
    ScheduleJob(name, Attention(N, 64, heads=4, dtype="fp32"), Tiling(tile, 64))
    for name, N, tile in (("flash2", 256, 64), ("flash2", 512, 64), ("flash1", 256, 32))
]


def test_a_kept_profile_of_several_shapes_is_judged_with_the_shapes_that_it_names(tmp_path, iosim, ask):
    path = kept_runs(tmp_path, RUNS)
    answer = ask("verify", "--from-ncu", path, "--hardware", "h200")
    assert [(row["schedule"], row["N"], row["tiles"]) for row in answer["rows"]] == [
        ("flash2", 256, "64x64"), ("flash2", 512, "64x64"), ("flash1", 256, "32x64")]  # fmt: skip
    assert answer["ok"] and all(row["device_words"] == row["words"] for row in answer["rows"])
    assert all(row["read_ratio"] == row["write_ratio"] == 1 for row in answer["rows"])
    text = iosim("verify", "--from-ncu", path, "--hardware", "h200").stdout
    assert text.split()[:5] == ["schedule", "N", "Nk", "d", "mask"]


def test_one_run_of_a_kept_profile_of_several_is_found_by_its_options(tmp_path, iosim, ask):
    path = kept_runs(tmp_path, RUNS)
    line = ("verify", "--d", 64, "--heads", 4, "--dtype", "fp32", "--tiles", "64x64", "--schedule", "flash2", "--from-ncu", path,
            "--hardware", "h200")  # fmt: skip
    (row,) = ask(*line, "--N", 512)["rows"]
    assert row["ok"] and row["N"] == 512 and row["read_ratio"] == 1
    other = iosim(*line, "--N", 1024)
    assert other.exit_code == 2 and "it has 3" in other.stderr and "leave out --N, --d and --schedule" in other.stderr


def test_without_a_gpu_it_says_what_is_missing(iosim, monkeypatch):
    from iosim.errors import MissingError
    from iosim.gpu import device

    def none():
        raise MissingError("no NVIDIA GPU")

    monkeypatch.setattr(device, "cupy", none)
    for command in ([*ARGS, "--tuned"], ["profile", "torch-flash", "--N", 64, "--d", 64]):
        done = iosim(*command)
        assert done.exit_code == 3 and "GPU" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2"])
def test_all_right(name):
    job = ScheduleJob(name, Attention(256, 64, heads=4, dtype="fp32"), Tiling(64, 64))
    row = verify(evidence(job), load("h200"))
    assert row["ok"] and row["faults"] == "" and row["device_words"] == row["words"]


def test_dram_is_the_mean_of_the_places():
    """Two launches in three places: the sums of each place, by hand."""
    one, two = (replace(kernel(read, written), elsewhere=more) for read, written, more in (
        (100, 10, ((200, 20), (330, 30))), (1, 2, ((3, 4), (5, 6)))))  # fmt: skip
    row = dram_row(Evidence(JOB, kernels=[one, two]))
    assert (row["dram_read_bytes"], row["dram_write_bytes"]) == (
        round((101 + 203 + 335) / 3),
        round((12 + 24 + 36) / 3),
    )
    assert (row["dram_places"], row["dram_least_bytes"], row["dram_most_bytes"]) == (3, 113, 371)
    assert row["dram_ratio"] == 213 / row["dram_compulsory_bytes"] == 213 / (3 * 4 * 256 * 64 * 4)


def test_one_word_too_many_is_seen():
    bad = evidence(JOB)
    bad.note["words"]["K"][0] += 1
    row = verify(bad, None)
    assert not row["ok"] and row["faults"].startswith("K: simulated")
    assert row["tensors"]["K"]["equal"] is False and row["tensors"]["Q"]["equal"] is True
    bad.note["words"]["S"] = [0, 5]
    assert "S: simulated (0, 0)" in verify(bad, None)["faults"], "a tensor that the model does not move"


@pytest.mark.parametrize("change", [-4, 4, 10**6])
@pytest.mark.parametrize("metric, word", [(counters.LOADS, "read"), (counters.STORES, "written")])
def test_bytes_must_be_equal(metric, word, change):
    bad = evidence(JOB)
    bad.kernels[0].metrics[metric] += change
    if metric == counters.LOADS:
        bad.kernels[0].metrics[counters.FROM_L2] += change
    row = verify(bad, None)
    assert not row["ok"] and row["faults"].startswith(word)


def test_the_crossbar_does_not_judge_stores():
    good = evidence(JOB)
    good.kernels[0].metrics[counters.TO_L2] = 15 * good.kernels[0].metrics[counters.STORES]
    assert verify(good, None)["ok"]


def test_tma_loads_have_a_tolerance_and_no_more():
    e = evidence(JOB)
    read = e.kernels[0].metrics[counters.LOADS]
    for factor, ok in ((1.0003, True), (1.001, False)):
        e.kernels[0].metrics.update({counters.LOADS: 0, counters.FROM_L2: round(read * factor)})
        assert verify(e, None)["ok"] is ok


@pytest.mark.parametrize("d, tiles, whole", [(64, "64x64", True), (20, "16x16", True), (20, "16x10", False)])
def test_the_sector_bound_is_zero_for_whole_sectors(d, tiles, whole):
    """Rows of 20 fp16 words are 40 bytes. 16 of them, one after the other, are 20 whole sectors; 10 are not."""
    rows_q, rows_k = map(int, tiles.split("x"))
    found = partial_sectors(find("flash2"), Attention(128, d, dtype="fp16"), Tiling(rows_q, rows_k))
    assert (found.read_bytes == 0) is whole


def test_the_sector_bound_by_hand():
    """d = 19 fp16, N = Nk = 16, tiles of 8: 304 bytes, which start at the begin of a sector or in its middle.

    A warp loads a row of Q, or stores one of O, as 38 bytes: 2 sectors each, and 3 for one of 8 rows: 17 in all. All
    threads load K and V, as 4 requests of 64 bytes and one of 48. From the middle of a sector these touch 3 sectors
    each, and 2. Q and O are visited twice, K and V 4 times each.
    """
    found = partial_sectors(find("flash2"), Attention(16, 19, dtype="fp16"), Tiling(8, 8))
    row_by_row, all_together = 17 * 32 - 304, (4 * 3 + 2) * 32 - 304
    assert found == (2 * row_by_row + 8 * all_together, 2 * row_by_row)
    scores = partial_sectors(find("standard-tiled"), Attention(36, 32, dtype="fp16"), Tiling(36, 36))
    assert scores.write_bytes > 0, "rows of 36 scores are 72 bytes"


def test_a_word_alone_is_a_sector():
    """standard with 1 x 1 tiles: each of the N^2 scores that are stored costs a sector of its own."""
    found = partial_sectors(find("standard"), Attention(64, 16, dtype="fp32"), Tiling(1, 1))
    assert found.write_bytes >= 64**2 * (32 - 4)


def sectors(address, words, width, request):
    """Bytes of the sectors that a run touches, request by request."""
    starts = range(address, address + words * width, request * width)
    ends = [min(s + request * width, address + words * width) for s in starts]
    return sum(32 * ((e - 1) // 32 - s // 32 + 1) for s, e in zip(starts, ends, strict=True))


@pytest.mark.parametrize("N, rows, columns", [(777, 64, 32), (1002, 48, 48), (100, 16, 16), (777, 48, 40)])
def test_the_sector_bound_holds_for_every_row(N, rows, columns):
    """Scores of fp16 by brute force: every row of every tile, at its address, in requests of 32 words."""
    found = partial_sectors(find("standard-tiled"), Attention(N, 32, dtype="fp16"), Tiling(rows, columns))
    touched = sum(
        sectors(2 * (N * r + c), min(columns, N - c), 2, 32) for r in range(N) for c in range(0, N, columns)
    )  # fmt: skip
    assert 0 < touched - 2 * N * N <= found.write_bytes


def test_the_lse_of_a_tuned_kernel_is_stored_by_eight_rows():
    job = ScheduleJob("flash2", Attention(1000, 64, heads=2, acc_dtype="fp32", lse=True), Tiling(128, 128), tuned=True)
    generated = partial_sectors_of(replace(job, tuned=False))
    assert partial_sectors_of(job).write_bytes == generated.write_bytes + 2 * 125 * 32
    assert partial_sectors_of(replace(job, problem=replace(job.problem, lse=False))).write_bytes == 0


def test_output_errors_and_unwritten_words():
    for part in ("", "large_logits"):
        bad = evidence(JOB)
        target = bad.note[part] = dict(bad.note[part]) if part else bad.note
        target["error"] = 3e-6
        assert "output error" in verify(bad, None)["faults"]
        bad = evidence(JOB)
        target = bad.note[part] = dict(bad.note[part]) if part else bad.note
        target["bias"] = 3e-5
        assert "output bias" in verify(bad, None)["faults"]
    bad = evidence(JOB)
    bad.note["error"] = float("nan")
    assert not verify(bad, None)["ok"]
    bad = evidence(JOB)
    bad.note["unwritten"] = 7
    assert "7 output words are not numbers" in verify(bad, None)["faults"]


def test_a_job_that_failed_is_a_fault():
    row = verify(Evidence(JOB, {"failed": "CompileException: no"}), None)
    assert not row["ok"] and "CompileException" in row["faults"]


def test_the_time_is_measured_and_rates_are_those_in_it():
    row = verify(evidence(JOB), load("h200"))
    assert row["seconds"] == 1e-3 and row["flops_per_second"] == 4 * 4 * 256**2 * 64 / 1e-3
    plain = verify(Evidence(JOB, {**note_for(JOB), "seconds": 2e-3}), None)
    assert plain["seconds"] == plain["event_seconds"] == 2e-3


# ---------------------------------------------------------------- the floor


def test_bytes_over_the_floor():
    """Without a given M it is the SRAM that the tiles need: 2 x 64 rows of K and V, 64 of Q and of O, S, l and m."""
    needed = 4 * (4 * 64 * 64 + 64 * 64 + 2 * 64)
    e = evidence(JOB)
    e.kernels[0].metrics[counters.STORES] *= 2
    for size, M in ((None, needed), (30_000, 30_000)):
        row = verify(replace(e, M_bytes=size), None)
        words = floor(JOB.problem, M).words
        simulated = 4 * sum(sum(pair) for pair in moved(find("flash2"), JOB.problem, JOB.tiling).tensors.values())
        written = 4 * 4 * 256 * 64
        assert (row["floor_M_bytes"], row["floor_bytes"]) == (M, 4 * words)
        assert row["ratio_to_floor"] == simulated / (4 * words) > 1
        assert row["measured_ratio_to_floor"] == (simulated + written) / (4 * words)


def test_the_m_of_the_command_line_is_that_of_the_floor(monkeypatch, ask):
    measured(monkeypatch)
    line = ("verify", "--N", 512, "--d", 64, "--schedule", "flash2", "--hardware", "h200", "--M", "64KB")
    (row,) = ask(*line)["rows"]
    assert row["floor_M_bytes"] == 65536 and row["floor_bytes"] == 2 * floor(Attention(512, 64), "64KB").words


# ---------------------------------------------------------------- the sweep over M


def test_sweep_m(monkeypatch, ask, iosim):
    """The verdict of a sweep on counters that equal the simulation."""
    measured(monkeypatch)
    sweep = [
        "verify",
        "--N",
        8192,
        "--d",
        64,
        "--M",
        "32KB:224KB:x2",
        "--schedule",
        "flash2",
        "--hardware",
        "h200",
    ]
    monkeypatch.setattr(verify_run, "verify", lambda item, hardware: verify(item, None))
    answer = ask(*sweep)
    assert [row["M_bytes"] for row in answer["rows"]] == [32 << 10, 64 << 10, 128 << 10]
    assert all(row["hw_read_bytes"] == row["sm_read_bytes"] for row in answer["rows"]) and "summary" in answer
    assert iosim(*sweep).stdout.splitlines()[0].startswith("schedule")


# ---------------------------------------------------------------- jobs


def test_jobs_survive_json():
    p = Attention(
        100, 32, Nk=70, heads=6, kv_heads=3, batch=2, dtype="bf16", acc_dtype="fp32", mask=parse_mask("causal")
    )
    for job in (ScheduleJob("flash1", p, Tiling(16, 32)), torch_job("torch-flash", p),
                ScheduleJob("flash2", p, Tiling(128, 128), tuned=True, places=4)):  # fmt: skip
        assert job_from_json(json.loads(json.dumps(job.to_json()))) == job
    assert torch_job("torch-flash", p).problem == p
    assert not torch_job("torch-cudnn", replace(p, lse=True)).problem.lse, "only torch-flash stores one"


def test_a_job_of_an_older_profile_has_the_defaults_of_options_that_it_lacks():
    job = ScheduleJob("flash2", Attention(100, 32), Tiling(16, 32), places=3)
    kept = {key: value for key, value in job.to_json().items() if key not in ("splits", "gqa")}
    assert list(job.to_json())[-1] == "places" and job_from_json(kept) == job
    assert key_of(job_from_json(kept)) == key_of(replace(job, places=1)), "places do not tell jobs apart"


@pytest.mark.parametrize("name, mask, visits", [
    ("flash1", "causal", True), ("flash2", "window:9", True), ("flash2", "dense", False),
    ("block-sparse-q", "causal", False), ("flash1-bwd", "causal", True), ("memory-efficient", "causal", False),
])  # fmt: skip
def test_a_kept_job_from_before_visits_the_tiles_that_it_visited(name, mask, visits):
    """Its JSON has no `visit_all`. Today's has it in any case."""
    job = ScheduleJob(name, Attention(64, 16, mask=parse_mask(mask)), Tiling(16, 16))
    now = json.loads(json.dumps(job.to_json()))
    before = {key: value for key, value in now.items() if key != "visit_all"}
    assert now["visit_all"] is False and job_from_json(now) == job
    assert job_from_json(before) == replace(job, problem=replace(job.problem, visit_all=visits))


@pytest.mark.parametrize(
    "name", [n for n, s in SCHEDULES.items() if s.family == "attention" and "ideal" not in s.rules][:6]
)
def test_words_are_those_of_the_hand_formulas(name):
    schedule, p, t = find(name), Attention(96, 16, heads=2, dtype="fp32"), Tiling(16, 32)
    if schedule.exact_traffic is None:
        pytest.skip("this schedule has no formula by hand")
    by_hand = {
        n: (2 * r, 2 * w) for n, (r, w) in schedule.exact_traffic(p.tiled(t, skips_tiles(schedule, p)), t).items()
    }
    found = moved(schedule, p, t).tensors
    assert {n: w for n, w in found.items() if any(w)} == {n: w for n, w in by_hand.items() if any(w)}


@pytest.mark.gpu
def test_on_a_gpu(ask):
    if not has_gpu():
        pytest.skip("no GPU, or no CuPy, is here")
    answer = ask("verify", "--N", 500, "--d", 64, "--heads", 2, "--tiles", "64x64", "--no-counters")
    assert answer["ok"] and all(row["device_words"] == row["words"] for row in answer["rows"])


def test_a_kept_profile_of_latent_rows_in_pages(ask, tmp_path):
    """Every option of the problem reaches the counts: the bytes are those of rows of 656 bytes, read for each
    query tile and share."""
    p = Attention(1, 576, Nk=1024, dv=512, heads=32, kv_heads=1, gqa="pack", latent=True, kv_dtype="fp8",
                  kv_scales="128", page_size=64, splits=2, dtype="bf16", acc_dtype="fp32")  # fmt: skip
    found = moved(find("paged-split-kv"), p.packed, Tiling(32, 32))
    assert found.read_bytes == 1024 * 656 + 16 * 4 + 2 * 32 * 576 * 2 + 2 * 32 * (512 + 1) * 4
    path = kept(tmp_path, found.read_bytes, found.write_bytes)
    path.write_text(path.read_text() + "".join(f'"1","k","{name}","byte","0"\n' for name in (
        counters.LOADS, counters.FROM_L2, counters.STORES)))  # fmt: skip
    sizes = {"N": 1, "d": 576, "Nk": 1024, "dv": 512, "heads": 32, "kv-heads": 1, "gqa": "pack", "kv-dtype": "fp8",
             "kv-scales": 128, "page-size": 64, "splits": 2, "dtype": "bf16", "acc-dtype": "fp32"}  # fmt: skip
    line = [part for name, value in sizes.items() for part in (f"--{name}", value)]
    answer = ask("verify", *line, "--latent", "--schedule", "paged-split-kv", "--tiles", "32x32", "--from-ncu", path)
    assert answer["ok"] and answer["rows"][0]["read_ratio"] == 1.0


STATE = ["verify", "--schedule", "state-fused", "--rule", "gdn", "--N", 100, "--d", 16, "--dtype", "fp32"]


@pytest.mark.parametrize("chunk", [7, 32])
def test_a_chunk_is_the_tile_of_a_state(ask, monkeypatch, chunk):
    """On a CPU the run needs the room of that chunk, on a GPU the kernel is made for it."""
    room = 16 * 16 + chunk * (4 * 16 + 2) + chunk**2
    (row,) = ask(*STATE, "--chunk", chunk, "--cpu")["checks"]
    assert row["ok"] and row["peak_words"] == room
    measured(monkeypatch)
    (row,) = ask(*STATE, "--chunk", chunk, "--hardware", "h200")["rows"]
    assert row["ok"] and row["tiles"] == f"{chunk}x1" and row["floor_M_bytes"] == 4 * room
    assert ask(*STATE, "--hardware", "h200")["rows"][0]["tiles"] == "64x1"
