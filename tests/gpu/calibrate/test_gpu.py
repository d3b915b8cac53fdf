"""What `iosim calibrate` writes, and how the model reads it back."""

from dataclasses import replace

import pytest
from paths import DATA

from iosim import progress
from iosim.errors import InputError, MissingError
from iosim.gpu.calibrate import gpu
from iosim.gpu.calibrate.gpu import HOW, effective_bytes, profiler_overheads, toml
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu
from iosim.gpu.predict.block_work import StepKey
from iosim.gpu.predict.predict import partition_bytes, rates_of
from iosim.hardware import load

FOUND = {
    "name": "Toy GPU", "date": "2026-11-21", "driver": "580.1", "cuda": 13000, "sm_clock": "1980 MHz",
    "memory_clock": "3201 MHz", "sms": 4, "shared_memory_per_block_bytes": 1000, "shared_memory_per_sm_bytes": 2000,
    "l2_bytes": 50_000, "hbm_bytes": 10**9, "dram_bytes_per_second": 4.2e12, "dram_read_bytes_per_second": 4e12,
    "dram_write_bytes_per_second": 4.1e12, "l2_bytes_per_second": 6.1e12, "l2_effective_bytes": 25_000,
    "simt_operations_per_second": 3.1e13, "exponentials_per_second": 4e12, "launch_seconds": 2.2e-6,
    "profiled_launch_seconds": 3.1e-6, "idle_bytes_per_second": 2e7,
    "wgmma_flops_per_second": 8e14, "steps": {"simt_load": [1e-7, 1e9, 0.0, 2e12], "simt_normalise": [0.0, 1e9, 0.0, 1e12]},
    "latency_seconds": 7.1e-7, "l2_latency_seconds": 2.5e-7, "tensor_flops_per_second": {"fp16": 6e14, "bf16": 5.9e14},
    "tile_latency_seconds": 1.1e-6, "loop_ratios": {"tensor": 1.25, "simt": 0.9},
    "first_seconds": {"tensor": 1.5e-7, "simt": 0.0},
    "asking_ratio": 0.75,
}  # fmt: skip


def test_a_calibration_is_a_hardware_file(tmp_path, ask):
    path = tmp_path / "toy.toml"
    path.write_text(toml(FOUND))
    hardware = load(str(path))
    assert (hardware.sms, hardware.sram_bytes, hardware.hbm_bytes_per_second) == (4, 1000, 4_200_000_000_000)
    assert hardware.flops_per_second == {"fp16": 800_000_000_000_000, "bf16": 800_000_000_000_000,
                                         "fp32": 62_000_000_000_000, "exp": 4_000_000_000_000}  # fmt: skip
    assert "driver 580.1" in hardware.sources["sms"] and "2026-11-21" in hardware.sources["hbm_bytes_per_second"]
    rates = rates_of(hardware)
    assert rates.launch_seconds == pytest.approx(2.2e-6) and rates.tensor_flops_per_second["bf16"] == 5.9e14
    assert rates_of(hardware, profiled=True).launch_seconds == pytest.approx(3.1e-6)
    path.write_text(toml({key: value for key, value in FOUND.items() if key != "profiled_launch_seconds"}))
    assert rates_of(load(str(path)), profiled=True).launch_seconds == rates.launch_seconds, "without a profiler"
    assert (rates.latency_seconds, rates.l2_latency_seconds, rates.tile_latency_seconds) == (7.1e-7, 2.5e-7, 1.1e-6)
    assert {str(key): ratio for key, ratio in rates.loop_ratios.items()} == {"tensor": 1.25, "simt": 0.9}
    assert rates.asking_ratio == 0.75
    assert rates.first_seconds == {"tensor": 1.5e-7, "simt": 0.0}
    assert rates.steps[StepKey("simt", "load")] == (1e-7, 1e9, 0.0, 2e12)
    assert partition_bytes(hardware) == 25_000
    assert {key for key in HOW} <= set(hardware.measured)
    assert ask("count", "--N", 64, "--d", 8, "--hardware", path)["sram"]["M_bytes"] == 1000


@pytest.mark.parametrize("wgmma, peaks", [(0, (6e14, 5.9e14)), (5.95e14, (6e14, 5.95e14)), (8e14, (8e14, 8e14))])
def test_the_peak_is_that_of_the_fastest_instruction(tmp_path, wgmma, peaks):
    """mma.sync or wgmma, whichever was measured to be faster for a type. Predictions keep the rates of mma.sync."""
    path = tmp_path / "toy.toml"
    path.write_text(toml({**FOUND, "wgmma_flops_per_second": wgmma}))
    hardware = load(str(path))
    assert tuple(hardware.flops_per_second[dtype] for dtype in ("fp16", "bf16")) == peaks
    assert rates_of(hardware).tensor_flops_per_second == FOUND["tensor_flops_per_second"]
    replaced = [dtype for dtype, peak in zip(("fp16", "bf16"), peaks, strict=True) if peak == wgmma]
    said = f"; {', '.join(replaced)}: wgmma_flops_per_second" if replaced else ""
    assert hardware.sources["flops_per_second"].endswith(HOW["exponentials_per_second"] + said)


@pytest.mark.parametrize(
    "table, why",
    [
        ({"steps": {"tensor_scores": [1e-7, 1e12, 1e-8, 1e14, 1e-7]}}, "tensor_scores = .*4 numbers.*iosim calibrate"),
        ({"steps": {"tensor_scores": [1e-7, 1e12, 1e-8, 1e14]}}, "without tensor_scores_output.*iosim calibrate"),
        ({"steps": {"simt_load": [1e-7, 1e9, 0.0, 2e12]}}, "without simt_normalise.*iosim calibrate"),
        ({"asking_ratio": None}, "measured.asking_ratio: found 'nothing'.*iosim calibrate"),
    ],
)
def test_files_that_an_older_iosim_or_a_hand_wrote_are_refused(tmp_path, table, why):
    """Steps had five numbers once, then four of something else."""
    path = tmp_path / "gpu.toml"
    path.write_text(toml({key: value for key, value in (FOUND | table).items() if value is not None}))
    with pytest.raises(InputError, match=why):
        rates_of(load(str(path)))


def test_what_calibrate_writes_is_enough_for_a_roofline(ask, tmp_path):
    path = tmp_path / "gpu.toml"
    path.write_text(toml(FOUND))
    assert ask("roofline", "--N", 512, "--d", 64, "--hardware", path)


def test_the_command_says_how_to_use_its_file(iosim, ask, tmp_path, monkeypatch):
    """The parts that take long are told while they are measured."""
    told = []
    monkeypatch.setattr(progress, "QUIET_SECONDS_OF_LINES", 0.0)
    monkeypatch.setattr(gpu, "measure_all", lambda tell: told.append(tell("measuring memory")) or FOUND)
    path = tmp_path / "gpu.toml"
    done = iosim("calibrate", "-o", path)
    note = f"note: these are the rates of {FOUND['name']}: give them as --hardware {path}"
    assert done.exit_code == 0 and done.stderr.splitlines() == ["measuring memory", note] and told
    assert ask("roofline", "--N", 512, "--d", 64, "--hardware", path)
    assert iosim("calibrate", "--json").stderr.splitlines() == ["measuring memory"]


def test_an_empty_launch_by_the_profiler(monkeypatch):
    """The markers between the jobs, and what the last of them moved in its time; nothing without a profiler."""
    kept = counters.read_profile(DATA / "ncu_flash_four.csv")
    monkeypatch.setattr(ncu, "profile", lambda jobs, path: kept)
    found, (last,) = profiler_overheads(), kept.jobs[-1]
    assert 1e-6 < found["profiled_launch_seconds"] < 3e-6
    moved = last.get(counters.DRAM_READ) + last.get(counters.DRAM_WRITE)
    assert found["idle_bytes_per_second"] == pytest.approx(moved / last.seconds) and moved > 10**7

    failed = replace(kept, jobs=[*kept.jobs[:-1], []])
    monkeypatch.setattr(ncu, "profile", lambda jobs, path: failed)
    assert profiler_overheads() == {"profiled_launch_seconds": found["profiled_launch_seconds"]}, "the wait did not run"

    def missing(jobs, path):
        raise MissingError("no profiler")

    monkeypatch.setattr(ncu, "profile", missing)
    assert profiler_overheads() == {}


@pytest.mark.parametrize("effective_bytes", [20_000, 36_000, 44_000])
def test_half_of_the_l2_holds_what_all_read(tmp_path, effective_bytes):
    """However large a buffer can be before rates fall: that depends on where it lies, and on how fast DRAM is."""
    path = tmp_path / "toy.toml"
    path.write_text(toml(FOUND | {"l2_effective_bytes": effective_bytes}))
    assert partition_bytes(load(str(path))) == 25_000


def test_the_knee_of_the_l2():
    """6 TB/s up to 28 MB, 3 above: the geometric middle is 4.2."""
    rates = {4: 5.5, 8: 6.0, 16: 6.0, 28: 4.5, 32: 4.0, 64: 3.0}
    assert effective_bytes(rates) == 28
    assert effective_bytes({4: 6.0, 8: 3.0, 16: 6.0, 64: 3.0}) == 4, "not past the first fall"


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_benchmarks_compile(arch):
    import nvrtc

    from iosim.gpu.calibrate.gpu import SOURCE

    _, log = nvrtc.compiled(SOURCE.read_text(), arch, "-std=c++17")
    used = nvrtc.usage(log)
    assert {
        "copy_bytes",
        "read_again",
        "chase",
        "fma_rate",
        "exp_rate",
        "mma_fp16",
        "mma_bf16",
        "nothing",
    } <= set(used)
    assert not any(spills for _, spills in used.values()), used
