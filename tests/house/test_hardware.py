"""Presets load, and their units are what their names say. A bad file gets a message that says what is wrong."""

import dataclasses
import shlex
import subprocess
import sys

import pytest

from iosim import hardware
from iosim.errors import InputError, MissingError

KIB = 1024
GOOD = """
name = "X1"
shared_memory_per_block_bytes = 1000
shared_memory_per_sm_bytes = 1024
sms = 10
l2_bytes = 4096
hbm_bytes = 8192
hbm_bytes_per_second = 50

[flops_per_second]
fp16 = 100

[sources]
shared_memory_per_block_bytes = "a"
shared_memory_per_sm_bytes = "a"
sms = "a"
l2_bytes = "a"
hbm_bytes = "a"
hbm_bytes_per_second = "a"
flops_per_second = "a"
"""


def write(folder, text):
    path = folder / "x1.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_names():
    assert hardware.names() == [
        "A10", "A100-40GB", "A100-80GB", "A6000", "B200", "GB200", "H100", "H20", "H200", "L4", "L40S", "MI300X",
        "RTX-3090", "RTX-4070S", "RTX-4090", "RTX-5090", "T4", "V100",
    ]  # fmt: skip


@pytest.mark.parametrize("name", hardware.names())
def test_presets_load_in_any_case_and_are_plausible(name):
    chip = hardware.load(name)
    assert chip == hardware.load(name.lower()) == hardware.load(name.upper())
    assert chip.name == name
    assert 0 < chip.sram_bytes <= chip.shared_memory_per_sm_bytes < chip.l2_bytes < chip.hbm_bytes
    assert chip.sram_bytes % KIB == chip.shared_memory_per_sm_bytes % KIB == chip.l2_bytes % KIB**2 == 0
    assert chip.hbm_bytes % KIB**3 == 0
    assert 10**11 < chip.hbm_bytes_per_second < 10**13  # bytes, neither bits nor gigabytes
    assert all(10**12 < rate < 10**16 for rate in chip.flops_per_second.values())
    assert chip.flops_per_second["fp16"] > chip.flops_per_second["fp32"]


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("A100-40GB", 163),
        ("A100-80GB", 163),
        ("H100", 227),
        ("H200", 227),
        ("V100", 96),
        ("T4", 64),
        ("L4", 99),
        ("RTX-4070S", 99),
        ("RTX-4090", 99),
        ("RTX-5090", 99),
        ("B200", 227),
        ("GB200", 227),
        ("MI300X", 64),
        ("RTX-3090", 99),
        ("A10", 99),
        ("A6000", 99),
        ("L40S", 99),
        ("H20", 227),
    ],
)
def test_m_is_what_one_block_may_use(name, kib):
    assert hardware.load(name).sram_bytes == kib * KIB


@pytest.mark.parametrize("name", hardware.names())
def test_registers_of_an_sm(name):
    """64K registers of 4 bytes on every NVIDIA GPU here; 512 KiB on a compute unit of AMD."""
    chip = hardware.load(name)
    assert chip.registers_per_sm_bytes == (512 if name == "MI300X" else 256) * KIB
    assert "registers_per_sm_bytes" in {row["key"] for row in hardware.numbers(name)}


def test_registers_do_not_change_what_a_preset_counts(ask):
    line = ("count", "--N", 2048, "--d", 64, "--schedule", "flash2", "--tiles", "64x64")
    preset, plain = (ask(*line, *more)["results"] for more in (("--hardware", "h100"), ("--M", "227KB")))
    assert preset == plain and preset[0]["register_peak_bytes"] == 0


def test_more_registers_than_a_preset_has_are_refused(iosim):
    line = ("count", "--N", 2048, "--d", 64, "--hardware", "h100,mi300x", "--registers")
    assert iosim(*line, "64K").exit_code == 0
    done = iosim(*line, "65K")
    assert done.exit_code == 2 and "at most 256KB, the registers of an SM of H100" in done.stderr


def test_numbers_that_no_vendor_states_are_marked():
    """Blackwell's data sheets say neither how many SMs there are nor the size of the L2; the H20 has none."""
    marked = {name: {row["key"] for row in hardware.numbers(name) if "NOT FROM THE VENDOR" in row["source"]}
              for name in hardware.names()}  # fmt: skip
    assert {"sms", "l2_bytes"} <= marked["B200"] & marked["GB200"] & marked["H20"]
    assert not any(marked[name] for name in ("H100", "H200", "A100-80GB", "RTX-4090", "RTX-5090"))


def test_a_file_without_registers_is_read(tmp_path):
    assert hardware.read_hardware(write(tmp_path, GOOD)).registers_per_sm_bytes is None
    more = GOOD.replace("sms = 10", "sms = 10\nregisters_per_sm_bytes = 4096")
    with pytest.raises(InputError, match="sources: registers_per_sm_bytes: found 'nothing'"):
        hardware.read_hardware(write(tmp_path, more))
    sourced = more.replace('sms = "a"', 'sms = "a"\nregisters_per_sm_bytes = "a"')
    assert hardware.read_hardware(write(tmp_path, sourced)).registers_per_sm_bytes == 4096


def test_sram_of_an_sm_is_not_the_total():
    a100 = hardware.load("A100-40GB")
    assert a100.sram_total_bytes == 108 * 164 * KIB > 100 * a100.sram_bytes


def test_ridge():
    a100 = hardware.load("A100-80GB")
    assert a100.ridge("fp16") == 312e12 / 2.039e12
    assert a100.ridge("fp8") is None


def test_presets_are_frozen():
    chip = hardware.load("H100")
    with pytest.raises(dataclasses.FrozenInstanceError):
        chip.sms = 1
    with pytest.raises(TypeError):
        chip.flops_per_second["fp16"] = 1


@pytest.mark.parametrize("name", ["", "A100", "h10", "../h100", "H100 ", None, 7])
def test_unknown_name(name):
    with pytest.raises(InputError) as caught:
        hardware.load(name)
    assert str(caught.value).startswith("--hardware: found ")
    assert "a100-40gb" in caught.value.allowed and "t4" in caught.value.allowed


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'a100-40gb'"):
        hardware.load("A10040GB")


OTHER = "for another GPU give a file: iosim hardware h100 --toml"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("--head_dim 8", "did you mean '--d'?"),
        ("--seq_len 8", "did you mean '--N'?"),
        ("--num_heads 8", "did you mean '--heads'?"),
        ("--nun_heads 8", "did you mean '--heads'?"),
        ("--kv_heads=8", "did you mean '--kv-heads'?"),
        ("--page_size 8", "did you mean '--page-size'?"),
        ("--tile_multple 8", "did you mean '--tile-multiple'?"),
        ("--block-m 8", "did you mean '--tiles'?"),
        ("--block_n 8", "did you mean '--tiles'?"),
        ("--bm 8", "did you mean '--tiles'?"),
        ("--bn 8", "did you mean '--tiles'?"),
        ("--dtype float16", "did you mean 'fp16'?"),
        ("--dtype FP16", "did you mean 'fp16'?"),
        ("--dtype half", "did you mean 'fp16'?"),
        ("--dtype torch.bfloat16", "did you mean 'bf16'?"),
        ("--acc-dtype float32", "did you mean 'fp32'?"),
        ("--acc-dtype float", "did you mean 'fp32'?"),
        ("--acc-dtype float64", "did you mean 'fp64'?"),
        ("--acc-dtype double", "did you mean 'fp64'?"),
        ("--kv-dtype float8", "did you mean 'fp8'?"),
        ("--kv-dtype float8_e4m3fn", "did you mean 'fp8'?"),
        ("--kv-dtype int8", "fp8 has one byte a word too"),
        ("--hardware 3090", "did you mean 'rtx-3090'?"),
        ("--hardware 4090", "did you mean 'rtx-4090'?"),
        ("--hardware 4070", "did you mean 'rtx-4070s'?"),
        ("--hardware a100", "did you mean 'a100-40gb' or 'a100-80gb'?"),
        ("--hardware A100-SXM4-80GB", "did you mean 'a100-80gb'?"),
        ("--hardware h100-sxm", "did you mean 'h100'?"),
        ("--hardware h100sxm", "did you mean 'h100'?"),
        ("--hardware 'RTX 4090'", "did you mean 'rtx-4090'?"),
        ("--hardware RTX4090", "did you mean 'rtx-4090'?"),
        ("--hardware 'geforce rtx 3090'", "did you mean 'rtx-3090'?"),
        ("--hardware 'NVIDIA RTX A6000'", "did you mean 'a6000'?"),
        ("--hardware mi300", "did you mean 'mi300x'?"),
        ("--hardware 3080", OTHER),
        ("--hardware 'RTX 6000 Ada'", OTHER),
        ("--hardware mi250x", OTHER),
    ],
)
def test_a_name_of_another_program_gets_the_name_here(typed, hint, iosim):
    done = iosim("count", "--N", 64, "--d", 8, *([] if "--hardware" in typed else ["--M", "1KB"]), *shlex.split(typed))
    assert done.exit_code == 2 and not done.stdout
    assert hint in done.stderr


def test_a_good_file(tmp_path):
    chip = hardware.read_hardware(write(tmp_path, GOOD))
    assert (chip.name, chip.sram_bytes, chip.sram_total_bytes, chip.ridge("fp16")) == ("X1", 1000, 10240, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = 10", "sms = 0", "x1.toml: sms: found 0; allowed: a whole number above 0"),
        ("sms = 10", "sms = true", "x1.toml: sms: found True; allowed: a whole number"),
        ("sms = 10", "sms = 10.0", "x1.toml: sms: found 10.0; allowed: a whole number"),
        ("sms = 10", "sms = nan", "x1.toml: sms: found nan; allowed: a whole number"),
        ("sms = 10", 'sms = "10"', "x1.toml: sms: found '10'; allowed: a whole number"),
        ("sms = 10\n", "", "x1.toml: sms: found 'nothing'; allowed: this key is required"),
        ("sms = 10", "smss = 10", "x1.toml: key: found 'smss'; allowed: name, .*did you mean 'sms'"),
        ("sms = 10", "sms = ", "x1.toml: found .*; allowed: TOML"),
        ('name = "X1"', "name = 1", "x1.toml: name: found 1; allowed: a text"),
        ("fp16 = 100", "fp16 = -1", "x1.toml: flops_per_second.fp16: found -1; allowed"),
        ("fp16 = 100", "fp15 = 100", "x1.toml: flops_per_second: key: found 'fp15'; allowed: fp16"),
        ("[flops_per_second]\nfp16 = 100", "flops_per_second = 3", "found 3; allowed: a table"),
        ('sms = "a"', 'sms = ""', "x1.toml: sources.sms: found ''; allowed: the title"),
        ('sms = "a"\n', "", "x1.toml: sources: sms: found 'nothing'"),
        ("per_block_bytes = 1000", "per_block_bytes = 1025", "found 1025; allowed: at most 1024"),
    ],
)
def test_bad_files(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(InputError, match=message):
        hardware.read_hardware(write(tmp_path, GOOD.replace(old, new, 1)))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        hardware.read_hardware(tmp_path / "none.toml")
    with pytest.raises(InputError, match="found"):
        hardware.read_hardware(tmp_path)
    (tmp_path / "x1.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="TOML in UTF-8"):
        hardware.read_hardware(tmp_path / "x1.toml")


def test_configs_are_found_in_the_package_or_beside_it(tmp_path, monkeypatch):
    package = tmp_path / "iosim"
    package.mkdir()
    monkeypatch.setattr(hardware, "__file__", str(package / "hardware.py"))
    with pytest.raises(MissingError, match="configs/hardware"):
        hardware.configs_folder()
    beside, inside = tmp_path / "configs", package / "configs"
    (beside / "hardware").mkdir(parents=True)
    assert hardware.configs_folder() == beside.resolve()
    (inside / "hardware").mkdir(parents=True)
    assert hardware.configs_folder() == inside.resolve()


def test_loading_a_preset_needs_no_numpy():
    code = "import sys, iosim.hardware as h; h.load('H100'); print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_was_measured_of_a_gpu_is_found_by_its_name():
    found = hardware.measured_of("NVIDIA H200")
    assert found is not None and found.sms == 132 and found.measured["device"] == "NVIDIA H200"
    other = hardware.measured_of("NVIDIA H100 80GB HBM3")
    assert other is not None and other.l2_bytes == 50 * 2**20 and found.l2_bytes == 60 * 2**20
    assert hardware.measured_of("NVIDIA H100 PCIe") is None and hardware.measured_of("H200") is None
    assert "NVIDIA H200 (measured)" not in hardware.names(), "presets are of datasheets"
