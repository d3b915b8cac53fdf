"""Presets load, and their units are what their names say. A bad file gets a message that says what is wrong."""

import dataclasses
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

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


@pytest.mark.parametrize("name", hardware.names())
def test_a_preset_names_its_target_with_a_source(name):
    """As its file says in words: compute capability 8.6 is sm_86. A part of its source says it of tables as well."""
    chip, text = hardware.load(name), hardware.toml_of(name)
    said = re.search(r"^# .*compute capability (\d+)\.(\d)", text)
    assert chip.target == (f"sm_{said[1]}{said[2]}" if said else "gfx942") and chip.sources["target"]
    assert said or name == "MI300X"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a100", "did you mean 'sm_80'?"),
        ("RTX 3090", "did you mean 'sm_86'?"),
        ("l4", "did you mean 'sm_89'?"),
        ("MI300", "did you mean 'gfx942'?"),
        ("hopper", ""),
    ],
)
def test_a_gpu_in_the_place_of_a_target_has_a_hint(name, hint):
    assert hardware.target_meant(name) == hint


def test_registers_do_not_change_what_a_preset_counts(ask):
    line = ("count", "--N", 2048, "--d", 64, "--schedule", "flash2", "--tiles", "64x64")
    preset, plain = (
        ask(*line, *more)["results"] for more in (("--hardware", "h100", "--paper-model"), ("--M", "227KB"))
    )
    assert preset == plain and preset[0]["register_peak_bytes"] == 0


def test_numbers_that_no_vendor_states_are_marked():
    """Blackwell's data sheets say neither how many SMs there are nor the size of the L2; the H20 has none."""
    marked = {name: {row["key"] for row in hardware.numbers(name) if "NOT FROM THE VENDOR" in row["source"]}
              for name in hardware.names()}  # fmt: skip
    assert {"sms", "l2_bytes"} <= marked["B200"] & marked["GB200"] & marked["H20"]
    assert not any(marked[name] for name in ("H100", "H200", "A100-80GB", "RTX-4090", "RTX-5090"))


@pytest.mark.parametrize("name", hardware.names())
def test_a_source_of_numbers_below_each_other_is_said_once(name, iosim, ask):
    """JSON has it at each number."""
    rows = ask("hardware", name)["hardware"]
    lines = iosim("hardware", name).stdout.splitlines()[2:]
    assert len(lines) == len(rows)
    for line, row, above in zip(lines, rows, [{"source": None}, *rows], strict=False):
        assert line.startswith(row["key"]) and f"  {row['value']:,}  " in line
        assert line.endswith("  as above" if row["source"] == above["source"] else f"  {row['source']}")


def test_a_file_without_registers_is_read(tmp_path):
    assert hardware.read_hardware(write(tmp_path, GOOD)).registers_per_sm_bytes is None
    more = GOOD.replace("sms = 10", "sms = 10\nregisters_per_sm_bytes = 4096")
    assert hardware.read_hardware(write(tmp_path, more)).registers_per_sm_bytes == 4096


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


def test_a_good_file(tmp_path):
    chip = hardware.read_hardware(write(tmp_path, GOOD))
    assert (chip.name, chip.sram_bytes, chip.sram_total_bytes, chip.ridge("fp16")) == ("X1", 1000, 10240, 2.0)
    floats = GOOD.replace("sms = 10\n", "sms = 1e1\n").replace("fp16 = 100\n", "fp16 = 100.0\n")
    assert floats.count("1e1\n") == floats.count("100.0\n") == 1
    assert hardware.read_hardware(write(tmp_path, floats)) == chip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = 10", "sms = 0", "x1.toml: sms: found 0; allowed: a whole number above 0"),
        ("sms = 10", "sms = true", "x1.toml: sms: found True; allowed: a whole number"),
        ("sms = 10", "sms = 10.5", "x1.toml: sms: found 10.5; allowed: a whole number"),
        ("sms = 10", "sms = nan", "x1.toml: sms: found nan; allowed: a whole number"),
        ("sms = 10", 'sms = "10"', "x1.toml: sms: found '10'; allowed: a whole number"),
        ("sms = 10\n", "", "x1.toml: sms: found 'nothing'; allowed: this key is required"),
        ("sms = 10", "smss = 10", "x1.toml: key: found 'smss'; did you mean 'sms'. allowed: name, "),
        ("sms = 10", "sms = ", "x1.toml: found .*; allowed: TOML"),
        ('name = "X1"', "name = 1", "x1.toml: name: found 1; allowed: a text"),
        ("fp16 = 100", "fp16 = -1", "x1.toml: flops_per_second.fp16: found -1; allowed"),
        ("fp16 = 100", "fp15 = 100", "flops_per_second: key: found 'fp15'; did you mean 'fp16'. allowed: fp16"),
        ("[flops_per_second]\nfp16 = 100", "flops_per_second = 3", "found 3; allowed: a table"),
        ("sms = 10", 'sms = 10\ntarget = "ampere"', "x1.toml: target: found 'ampere'; allowed: a target of compilers"),
        ('sms = "a"', 'sms = ""', "x1.toml: sources.sms: found ''; allowed: the title"),
        ('sms = "a"', 'smms = "a"', "x1.toml: sources: key: found 'smms'; did you mean 'sms'. allowed: "),
        ("l2_bytes = 4096", "l2_bytes = -1", "x1.toml: l2_bytes: found -1; allowed: a whole number, or 0 for none"),
        ("per_block_bytes = 1000", "per_block_bytes = 1025", "found 1025; allowed: at most 1024"),
    ],
)
def test_bad_files(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(InputError, match=message):
        hardware.read_hardware(write(tmp_path, GOOD.replace(old, new, 1)))


def test_all_missing_keys_are_in_one_message(tmp_path):
    with pytest.raises(InputError) as caught:
        hardware.read_hardware(write(tmp_path, 'name = "X1"\nsms = 10\nl2_bytes = 4096\n'))
    for key in ("shared_memory_per_block_bytes", "shared_memory_per_sm_bytes", "hbm_bytes,", "hbm_bytes_per_second"):
        assert key in str(caught.value)
    assert "flops_per_second: found 'nothing'; allowed: each of these keys is required" in str(caught.value)
    assert "l2_bytes" not in str(caught.value) and "sources" not in str(caught.value)


def test_all_faults_of_a_file_are_told_at_once(tmp_path, iosim):
    text = GOOD.replace("sms = 10\n", "smss = 10\n").replace("fp16 = 100", "fp15 = 100\nfp8 = 0").replace('"X1"', "1")
    path = write(
        tmp_path, text.replace("hbm_bytes = 8192", "hbm_bytes = 0.5").replace('l2_bytes = "a"', 'l2_bytes = ""')
    )
    places = ["key: found 'smss'", "name: found 1", "hbm_bytes: found 0.5", "flops_per_second: key: found 'fp15'"]
    places += ["flops_per_second.fp8: found 0", "sources.l2_bytes: found ''"]
    done = iosim("count", "--N", 64, "--d", 64, "--hardware", path)
    first, *lines = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, first) == (2, "", "Error: 6 faults")
    assert [line.partition("x1.toml: ")[2].partition(";")[0] for line in lines] == places
    with pytest.raises(ValueError, match="^6 faults"):
        hardware.load(str(path))
    done = iosim("tune", "--N", "x", "--d", 64, "--hardware", path)
    assert (
        done.stderr.startswith("Error: 7 faults")
        and done.stderr.count("'smss'") == 1
        and "--N: found 'x'" in done.stderr
    )


def page():
    """The example of docs/hardware/files.md, and its commands."""
    text = (ROOT / "docs" / "hardware" / "files.md").read_text(encoding="utf-8")
    (example,), (commands,) = (re.findall(rf"```{form}\n(.*?)```", text, re.S) for form in ("toml", "sh"))
    return example, commands.splitlines()


def test_the_page_on_files_is_true(tmp_path, monkeypatch, iosim):
    example, commands = page()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(example, encoding="utf-8")
    for line in commands:
        done = iosim(*shlex.split(line)[1:])
        assert done.exit_code == 0 and "262144" in done.stdout.replace(",", ""), line


def test_a_chip_without_an_l2_has_no_word_of_one(tmp_path, monkeypatch, iosim, ask):
    monkeypatch.chdir(tmp_path)
    example, _ = page()
    roofline = ("roofline", "--N", 256, "--d", 32, "--tiles", "32x32", "--hardware", "mine.toml")
    for text in (example, "l2_bytes = 0\n" + example):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        for line in (("hardware", "mine.toml"), (*roofline, "--decode"), ("tune", *roofline[1:5], *roofline[7:])):
            done = iosim(*line)
            assert done.exit_code == 0 and "l2" not in (done.stdout + done.stderr).lower()
        row, *_ = ask(*roofline)["results"]
        assert row["l2_seconds"] is None and row["at_least_seconds"] > 0
    (tmp_path / "mine.toml").write_text("l2_bytes = 1048576\n" + example, encoding="utf-8")
    assert "no rate of L2" in iosim(*roofline).stderr and "l2_bytes" in iosim("hardware", "mine.toml").stdout


@pytest.mark.parametrize(
    ("gone", "dtype", "missing"),
    [
        ("", "fp8", "shared memory and fp8 products: times leave them out"),
        ("exp", "fp16", "shared memory and exponentials: times leave them out"),
        ("fp16|exp", "fp16", "shared memory, fp16 products and exponentials: times leave them out"),
    ],
)
def test_the_rate_that_is_missing_is_named(gone, dtype, missing, tmp_path, iosim):
    example, _ = page()
    path = write(tmp_path, re.sub(rf"(?m)^({gone}) = .*\n", "", example) if gone else example)
    for command in ("count", "tune", "roofline"):
        done = iosim(command, "--N", 256, "--d", 32, "--hardware", path, "--dtype", dtype)
        assert done.exit_code == 0 and f"My chip states no rate of {missing}" in done.stderr


@pytest.mark.parametrize("name", hardware.names())
def test_a_preset_as_a_file_is_the_same_gpu(name, tmp_path, iosim):
    done = iosim("hardware", name, "--toml")
    assert done.exit_code == 0 and hardware.load(str(write(tmp_path, done.stdout))) == hardware.load(name)


@pytest.mark.parametrize("name", ["count", "bounds", "tune", "roofline", "sweep", "report", "explain"])
def test_help_says_that_hardware_may_be_a_file(name, iosim):
    assert "a preset, as h100, or a FILE.toml" in " ".join(iosim(name, "--help").stdout.split())


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


OF_LINKS = {hardware.LINK, hardware.NETWORK}  # those of docs/links.md


def test_the_page_names_every_key_of_a_file_and_its_values():
    """The keys that presets have, and all types and matrix units that a file may name."""
    text = (ROOT / "docs" / "hardware" / "files.md").read_text(encoding="utf-8")
    presets = [tomllib.loads(path.read_text()) for path in (ROOT / "configs" / "hardware").glob("*.toml")]
    keys = {key for preset in presets for key in preset} - OF_LINKS | {hardware.TILE_REGISTERS}
    assert {"matrix_unit", "matrix_rows", "l2_bytes_per_second", "l2_bytes"} <= keys
    assert not [key for key in sorted(keys) if key not in text]
    assert not [name for name in (*hardware.UNITS, *hardware.FLOP_DTYPES) if f"`{name}`" not in text]
