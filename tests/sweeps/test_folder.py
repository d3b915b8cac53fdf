"""A folder of parts has every row once, whatever happened before; and it never mixes two sweeps."""

import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from click.testing import CliRunner
from sweeps_run import FEW, FEW_ROWS, GRID, HEAD, SLOW, SMALLEST, gathered, run

from iosim import __version__
from iosim.commands.cli import main
from iosim.counting import sweep as counted
from iosim.sweeps.folder import read_manifest, write_manifest
from iosim.sweeps.place import place_of

PARTS = (*FEW, *SMALLEST)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small chunks, and so small parts."""
    monkeypatch.setattr(counted, "CHUNK_ROWS", FEW_ROWS)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The bytes of the sweep in one file, and the folder of its parts: made once. Tests change copies."""
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "CHUNK_ROWS", FEW_ROWS)
        invoke = partial(CliRunner().invoke, main, prog_name="iosim")
        whole = invoke([*map(str, FEW), "-o", "-"]).stdout.encode()
        assert invoke([*map(str, PARTS), "-o", f"{folder}/"]).exit_code == 0
    return whole, folder


@pytest.fixture
def whole(swept):
    """The bytes of the sweep in one file."""
    return swept[0]


@pytest.fixture
def begun(swept, tmp_path):
    """A folder with the first of the parts, as a run leaves it that is killed between two parts."""
    folder = tmp_path / "sweep"
    shutil.copytree(swept[1], folder)
    lines = (folder / "_parts.jsonl").read_text().splitlines(True)
    assert len(lines) > 1
    for line in lines[1:]:
        (folder / json.loads(line)["file"]).unlink()
    (folder / "_parts.jsonl").write_text(lines[0])
    manifest = read_manifest(place_of(str(folder)))
    write_manifest(place_of(str(folder)), {**manifest, "complete": False, "files": []})
    return folder


def test_a_folder_has_parts_and_a_manifest(iosim, tmp_path, whole):
    folder = tmp_path / "sweep"
    assert iosim(*PARTS, "-o", f"{folder}/").exit_code == 0
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert manifest["complete"] and manifest["iosim"] == __version__ and manifest["argv"] == sys.argv[1:]
    assert manifest["arguments"]["N"] == [*range(64, 1025, 64)] and "M" in manifest["conventions"]
    assert manifest["rows"] == sum(file["rows"] for file in manifest["files"]) == whole.count(b"\n") - 1
    assert manifest["parts"] == len(manifest["files"]) > 1
    for file in manifest["files"]:
        found = (folder / file["file"]).read_bytes()
        assert hashlib.sha256(found).hexdigest() == file["sha256"] and len(found) == file["bytes"]
        assert len(list(csv.reader(found.decode().splitlines()))) == file["rows"] + 1
    assert gathered(iosim, folder, tmp_path) == whole
    about = json.loads((tmp_path / "out.csv.meta.json").read_text())
    assert about["rows"] == manifest["rows"] and about["format"] == "csv"


def test_a_folder_without_a_part_is_as_good_as_new(iosim, begun, tmp_path, whole):
    """A run that ended before its first part leaves a manifest. One of another program stays."""
    (begun / "part-00000000.csv").unlink()
    lines = (begun / "_parts.jsonl").read_text()
    result = iosim(*PARTS, "-o", begun)
    assert result.exit_code == 2 and "--resume continues" in result.stderr, "a line says that a part was there"
    (begun / "_parts.jsonl").write_text("")
    assert iosim(*PARTS, "-o", f"{begun}/").exit_code == 0
    assert gathered(iosim, begun, tmp_path) == whole and (begun / "_parts.jsonl").read_text().startswith(lines)
    other = tmp_path / "other"
    other.mkdir()
    for names in (["_manifest.json"], ["_manifest.json", "_parts.jsonl"]):
        for name in names:
            (other / name).write_text('{"of": "another program"}' if name == "_manifest.json" else "")
        assert iosim(*PARTS, "-o", f"{other}/").exit_code == 2
        assert (other / "_manifest.json").read_text() == '{"of": "another program"}'


def test_an_option_that_differs_is_named(iosim, begun):
    result = iosim(*PARTS, "--lse", "--resume", "-o", begun)
    assert result.exit_code == 2 and "these differ: columns, lse\n" in result.stderr


def test_a_sweep_continues_with_the_parts_that_are_there(iosim, begun, tmp_path, whole):
    first = begun / "part-00000000.csv"
    before = first.stat().st_mtime_ns
    assert iosim(*PARTS, "--resume", "-o", begun).exit_code == 0
    assert first.stat().st_mtime_ns == before, "it is not written again"
    assert gathered(iosim, begun, tmp_path) == whole


def torn(folder):
    """The disk was full, or the machine stopped, while a line was written."""
    with open(folder / "_parts.jsonl", "a") as file:
        file.write('{"part": 1, "file": "part-000')


def short(folder):
    """A part lost its end."""
    (folder / "part-00000000.csv").write_bytes((folder / "part-00000000.csv").read_bytes()[:-7])


def changed(folder):
    """A byte of a part changed, and its size did not."""
    found = bytearray((folder / "part-00000000.csv").read_bytes())
    found[len(found) // 2] ^= 1
    (folder / "part-00000000.csv").write_bytes(found)


def gone(folder):
    (folder / "part-00000000.csv").unlink()


def no_lines(folder):
    (folder / "_parts.jsonl").unlink()


def wild_lines(folder):
    text = (folder / "_parts.jsonl").read_text()
    found = json.loads(text)
    lines = ["[]", "\0\0", "{}", *(json.dumps({**found, "part": k}) for k in ("0", -1, 10**9, 1)), text]
    (folder / "_parts.jsonl").write_text("\n".join(lines))


def torn_manifest(folder):
    (folder / "_manifest.json").write_text('{"schema": 1, "ru')


def unfinished(folder):
    """Files of a killed process."""
    (folder / "_part-00000001.csv.77-abcd.part").write_text("N,Nk")
    (folder / "_manifest.json.77-abcd.part").write_text("{")


@pytest.mark.parametrize("fault", [torn, short, changed, gone, no_lines, wild_lines, torn_manifest, unfinished])
def test_after_a_fault_nothing_is_lost_or_doubled(fault, iosim, begun, tmp_path, whole):
    fault(begun)
    result = iosim("gather", begun, "-o", tmp_path / "early.csv")
    assert result.exit_code in (1, 2) and "--resume" in result.stderr and not (tmp_path / "early.csv").exists()
    result = iosim(*PARTS, "--resume", "-o", begun)
    assert result.exit_code == 0, result.output
    assert gathered(iosim, begun, tmp_path) == whole
    assert {file.suffix for file in begun.iterdir()} == {".csv", ".json", ".jsonl", ""}


@pytest.mark.parametrize("fault", [short, changed, gone])
def test_a_part_that_is_not_as_it_was_written_is_found(fault, iosim, tmp_path, whole):
    folder = tmp_path / "sweep"
    assert iosim(*PARTS, "-o", f"{folder}/").exit_code == 0
    fault(folder)
    result = iosim("gather", folder, "-o", tmp_path / "out.csv")
    assert result.exit_code == 1 and "part-00000000.csv" in result.stderr and "--resume" in result.stderr
    assert not (tmp_path / "out.csv").exists()
    assert iosim(*PARTS, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == whole


@pytest.mark.parametrize(
    "other", [("--d", 16), ("--columns", "N,total"), ("--format", "jsonl"), ("--part-rows", 99999)]
)
def test_other_arguments_are_refused(other, iosim, begun):
    before = {file.name: file.read_bytes() for file in begun.iterdir()}
    line = dict(zip(PARTS[1::2], PARTS[2::2], strict=True)) | {other[0]: other[1]}
    result = iosim("sweep", *[x for pair in line.items() for x in pair], "--resume", "-o", begun)
    assert result.exit_code == 2 and "these differ" in result.stderr
    assert other[0].strip("-").replace("-", "_") in result.stderr
    assert {file.name: file.read_bytes() for file in begun.iterdir()} == before


def test_a_mask_file_that_changed_is_another_argument(iosim, tmp_path):
    mask, folder = tmp_path / "mask.txt", tmp_path / "sweep"
    mask.write_text("10\n11\n")
    line = (
        "sweep",
        "--N",
        64,
        "--d",
        8,
        "--tiles",
        "32x32",
        "--schedule",
        "block-sparse",
        "--mask",
        f"file:{mask}",
        "-o",
        f"{folder}/",
    )
    assert iosim(*line).exit_code == 0 and iosim(*line, "--resume").exit_code == 0
    mask.write_text("11\n11\n")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and "these differ: mask" in result.stderr


def test_parts_are_not_written_over(iosim, begun, tmp_path):
    result = iosim(*PARTS, "-o", begun)
    assert result.exit_code == 2 and "--resume" in result.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for more in ((), ("--resume",)):
        result = iosim(*PARTS, *more, "-o", f"{tmp_path}/mine/")
        assert result.exit_code == 2 and "notes.txt" in result.stderr
        assert {file.name for file in (tmp_path / "mine").iterdir()} <= {"notes.txt", "_lock"}


@pytest.mark.parametrize("option", [("--resume",), ("--part-rows", 7)])
def test_options_of_folders_need_one(option, iosim, tmp_path):
    for path in ((), ("-o", tmp_path / "x.csv"), ("-o", "-")):
        result = iosim(*FEW, *option, *path)
        assert result.exit_code == 2 and "folder" in result.stderr and result.stdout == ""


def test_two_runs_do_not_share_a_folder(iosim, begun, tmp_path):
    """The lock is held by another process, and goes when that process is killed."""
    code = "import fcntl,sys,time; f=open(sys.argv[1],'a'); fcntl.flock(f,fcntl.LOCK_EX); print('held',flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, begun / "_lock"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    result = iosim(*PARTS, "--resume", "-o", begun)
    assert result.exit_code == 2 and "no other run" in result.stderr
    other.kill()
    other.wait()
    assert iosim(*PARTS, "--resume", "-o", begun).exit_code == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_continues(number, iosim, tmp_path, monkeypatch):
    monkeypatch.undo()
    folder = tmp_path / "sweep"
    first = run(*SLOW, "-o", f"{folder}/", "--jobs", 2 if number == signal.SIGTERM else 1)
    until = time.monotonic() + 60
    while not (folder / "_parts.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(first.pid, number)
    _, said = first.communicate(timeout=60)
    assert first.returncode != 0
    assert number == signal.SIGKILL or "rows are in" not in said or "--resume" in said
    assert iosim(*SLOW, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == iosim(*SLOW[:-2], "-o", "-").stdout.encode()


def test_a_run_that_ended_before_its_first_file_continues(iosim, tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "_parts.jsonl.77-abcd.part").touch()
    assert iosim(*PARTS, "--resume", "-o", f"{tmp_path}/sweep/").exit_code == 0


def test_a_run_that_ended_before_its_manifest_continues(iosim, begun, tmp_path, whole):
    (begun / "_manifest.json").unlink()
    result = iosim(*PARTS, "--resume", "-o", begun)
    assert result.exit_code == 0, result.output
    assert gathered(iosim, begun, tmp_path) == whole


def test_gather_needs_a_folder_of_parts(iosim, tmp_path):
    assert iosim("gather", tmp_path, "-o", tmp_path / "x.csv").exit_code == 2
    assert iosim("gather", tmp_path / "none", "-o", "-").exit_code == 2


def test_gather_adds_to_what_stdout_has(iosim, begun, tmp_path, whole):
    assert iosim(*PARTS, "--resume", "-o", begun).exit_code == 0
    with open(tmp_path / "both", "wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run([sys.executable, "-m", "iosim", "gather", begun, "-o", "-"], stdout=file, check=True)
    assert (tmp_path / "both").read_bytes() == b"before\n" + whole


def test_gather_writes_the_form_of_the_parts(iosim, begun, tmp_path, whole):
    assert iosim(*PARTS, "--resume", "-o", begun).exit_code == 0
    for path in ((), ("-o", tmp_path / "out.jsonl")):
        result = iosim("gather", begun, *path)
        assert result.exit_code == 2 and ".csv" in result.stderr
    assert run("gather", begun, "-o", "-").communicate()[0].encode() == whole


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_parts_of_other_forms(kind, iosim, tmp_path):
    folder, one, two = tmp_path / "sweep", tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    assert iosim(*GRID, "-o", one).exit_code == 0
    assert iosim(*GRID, "--format", kind, "-o", f"{folder}/").exit_code == 0
    assert iosim("gather", folder, "-o", two).exit_code == 0
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("rows, slow", [(3000, 2500), (999, 999), (10**6, 700)])
def test_parts_have_the_groups_of_rows_of_one_file(rows, slow, iosim, tmp_path, monkeypatch):
    """Also where chunks do not fill parts, and where points are counted one by one."""
    from pyarrow.parquet import ParquetFile

    monkeypatch.setattr(counted, "PART_ROWS", rows)
    monkeypatch.setattr(counted, "SLOW_PART_ROWS", slow)
    folder, one, two = tmp_path / "sweep", tmp_path / "one.parquet", tmp_path / "two.parquet"
    strided = (*HEAD[:-1], "causal;strided:5", "--M", "3KB:33KB:+1KB", "--tiles", "8x8")
    for line in (GRID, strided):
        assert iosim(*line, "-o", one).exit_code == 0
        assert iosim(*line, "--format", "parquet", "--resume", "-o", f"{folder}/{len(line)}/").exit_code == 0
        assert iosim("gather", folder / str(len(line)), "-o", two).exit_code == 0
        assert one.read_bytes() == two.read_bytes()
        assert rows == 10**6 or ParquetFile(one).num_row_groups > 2
