"""A folder of parts has every row once, whatever happened before; it never mixes two sweeps; and it may be an address."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial

import pandas as pd
import pytest
from click.testing import CliRunner
from sweeps_run import FEW, FEW_ROWS, GRID, HEAD, LONG, SMALLEST, gathered, run, until

from iosim import __version__
from iosim.commands.cli import main
from iosim.counting import sweep as counted
from iosim.sweeps import folder as of_folder
from iosim.sweeps.folder import Place, read_manifest

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
def complete(swept, tmp_path):
    """A folder with all parts."""
    return shutil.copytree(swept[1], tmp_path / "sweep")


def manifest_of(folder):
    return json.loads((folder / "_manifest.json").read_text())


def changed_manifest(folder, **values):
    (folder / "_manifest.json").write_text(json.dumps({**manifest_of(folder), **values}))


@pytest.fixture
def begun(complete):
    """A folder with the first of the parts, as a run leaves it that is killed between two parts."""
    first, *others = manifest_of(complete)["files"]
    assert others
    for one in others:
        (complete / one["file"]).unlink()
    changed_manifest(complete, complete=False, files=[first])
    return complete


def test_a_folder_has_parts_and_a_manifest(iosim, tmp_path, whole):
    folder = tmp_path / "sweep"
    assert iosim(*PARTS, "-o", f"{folder}/").exit_code == 0
    manifest = manifest_of(folder)
    assert manifest["complete"] and manifest["iosim"] == __version__ and manifest["argv"] == sys.argv[1:]
    assert manifest["arguments"]["N"] == [*range(64, 1025, 64)] and "M" in manifest["conventions"]
    assert manifest["rows"] == sum(file["rows"] for file in manifest["files"]) == whole.count(b"\n") - 1
    assert manifest["parts"] == len(manifest["files"]) > 1
    for file in manifest["files"]:
        found = (folder / file["file"]).read_bytes()
        assert hashlib.sha256(found).hexdigest() == file["sha256"] and len(found) == file["bytes"]
        assert found.count(b"\n") == file["rows"] + 1
    assert {file.name for file in folder.iterdir()} == {"_manifest.json", *(f["file"] for f in manifest["files"])}
    assert gathered(iosim, folder, tmp_path) == whole
    about = json.loads((tmp_path / "out.csv.meta.json").read_text())
    assert about["rows"] == manifest["rows"] and about["format"] == "csv"


def test_a_folder_without_a_part_is_as_good_as_new(iosim, begun, tmp_path, whole):
    """A run that ended before its first part leaves a manifest. One of another program stays."""
    (begun / "part-00000000.csv").unlink()
    assert iosim(*PARTS, "-o", begun).exit_code == 2, "the manifest says that a part was there"
    changed_manifest(begun, files=[])
    assert iosim(*PARTS, "-o", f"{begun}/").exit_code == 0
    assert gathered(iosim, begun, tmp_path) == whole
    (begun / "_manifest.json").write_text('{"of": "another program"}')
    for more in ((), ("--resume",)):
        assert iosim(*PARTS, *more, "-o", f"{begun}/").exit_code == 2
    assert (begun / "_manifest.json").read_text() == '{"of": "another program"}'


def test_a_sweep_continues_with_the_parts_that_are_there(iosim, begun, tmp_path, whole):
    first = begun / "part-00000000.csv"
    before = first.stat().st_mtime_ns
    (begun / "_part-00000001.csv.77-abcd.part").write_text("N,Nk")  # of a killed process
    (begun / "_manifest.json.77-abcd.part").write_text("{")
    result = iosim("sweep", "--gather", begun, "-o", tmp_path / "early.csv")
    assert result.exit_code == 2 and "--resume finishes it" in result.stderr and not (tmp_path / "early.csv").exists()
    assert iosim(*PARTS, "--resume", "-o", begun).exit_code == 0
    assert first.stat().st_mtime_ns == before, "it is not written again"
    assert gathered(iosim, begun, tmp_path) == whole and not [*begun.glob("*.part")]


def short(file):
    file.write_bytes(file.read_bytes()[:-7])


def changed(file):
    """A byte changed, and the size did not."""
    found = bytearray(file.read_bytes())
    found[len(found) // 2] ^= 1
    file.write_bytes(found)


@pytest.mark.parametrize("fault", [short, changed, lambda file: file.unlink()])
def test_a_part_that_is_not_as_it_was_written_is_found(fault, iosim, complete, tmp_path, whole):
    """Before a byte of it is written, also to stdout, which cannot be taken back."""
    fault(complete / "part-00000001.csv")
    result = iosim("sweep", "--gather", complete, "-o", "-")
    assert result.exit_code == 1 and "part-00000001.csv" in result.stderr and "--resume" in result.stderr
    assert result.stdout == (complete / "part-00000000.csv").read_text()
    assert iosim("sweep", "--gather", complete, "-o", tmp_path / "out.csv").exit_code == 1
    assert not (tmp_path / "out.csv").exists()
    assert iosim(*PARTS, "--resume", "-o", complete).exit_code == 0
    assert gathered(iosim, complete, tmp_path) == whole


@pytest.mark.parametrize(
    "other", [("--d", 16), ("--columns", "N,total"), ("--format", "jsonl"), ("--part-rows", 99999)]
)
def test_other_arguments_are_refused(other, iosim, begun):
    before = {file.name: file.read_bytes() for file in begun.iterdir()}
    line = dict(zip(PARTS[1::2], PARTS[2::2], strict=True)) | {other[0]: other[1]}
    result = iosim("sweep", *[x for pair in line.items() for x in pair], "--resume", "-o", begun)
    assert result.exit_code == 2 and "these differ" in result.stderr
    assert other[0].strip("-").replace("-", "_") in result.stderr
    result = iosim(*PARTS, "--lse", "--resume", "-o", begun)
    assert result.exit_code == 2 and "these differ: lse, columns\n" in result.stderr
    assert {file.name: file.read_bytes() for file in begun.iterdir()} == before


def test_parts_are_not_written_over(iosim, begun, tmp_path):
    result = iosim(*PARTS, "-o", begun)
    assert result.exit_code == 2 and "--resume" in result.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for more in ((), ("--resume",)):
        result = iosim(*PARTS, *more, "-o", f"{tmp_path}/mine/")
        assert result.exit_code == 2 and "notes.txt" in result.stderr
        assert {file.name for file in (tmp_path / "mine").iterdir()} == {"notes.txt"}


@pytest.mark.parametrize("option", [("--resume",), ("--part-rows", 7)])
def test_options_of_folders_need_one(option, iosim, tmp_path):
    for path in ((), ("-o", tmp_path / "x.csv"), ("-o", "-")):
        result = iosim(*FEW, *option, *path)
        assert result.exit_code == 2 and "folder" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("change", [
    lambda m: m["files"][0].update(file="../secret.csv"), lambda m: m["files"][0].update(file="part-00000001.csv"),
    lambda m: m["files"][0].update(part=-1), lambda m: m["files"][0].pop("sha256"), lambda m: m.update(format="exe"),
    lambda m: m["arguments"].update(d=[9]), lambda m: m["files"].pop(), lambda m: m["files"].append(m["files"][0]),
])  # fmt: skip
def test_a_manifest_that_no_sweep_wrote(change, iosim, complete, tmp_path):
    (tmp_path / "secret.csv").write_text("a secret\n")
    manifest = manifest_of(complete)
    change(manifest)
    changed_manifest(complete, **manifest)
    result = iosim("sweep", "--gather", complete, "-o", "-")
    assert result.exit_code == 2 and not result.stdout and "secret" not in result.stderr


def test_the_joined_file_has_the_form_of_the_parts_and_lies_elsewhere(iosim, complete, tmp_path, whole):
    (tmp_path / "other").symlink_to(complete)
    for out in (complete / "out.csv", complete / ".." / "sweep" / "out.csv", tmp_path / "other" / "out.csv"):
        result = iosim("sweep", "--gather", complete, "-o", out)
        assert result.exit_code == 2 and "a file outside the folder of the parts" in result.stderr
    result = iosim("sweep", "--gather", complete, "-o", tmp_path / "out.jsonl")
    assert result.exit_code == 2 and ".csv" in result.stderr and not [*tmp_path.rglob("out.*")]
    for none in (tmp_path, tmp_path / "none"):
        assert iosim("sweep", "--gather", none, "-o", "-").exit_code == 2
    with open(tmp_path / "both", "wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run([sys.executable, "-m", "iosim", "sweep", "--gather", complete], stdout=file, check=True)
    assert (tmp_path / "both").read_bytes() == b"before\n" + whole


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_continues(number, iosim, tmp_path, monkeypatch):
    monkeypatch.undo()
    folder, line = tmp_path / "sweep", (*LONG, *SMALLEST)
    first = run(*line, "-o", f"{folder}/", "--jobs", 2 if number == signal.SIGTERM else 1)
    until(lambda: [*folder.glob("part-*")])
    os.kill(first.pid, number)
    _, said = first.communicate(timeout=60)
    assert first.returncode != 0 and ("rows are in" not in said or "--resume" in said)
    assert iosim(*line, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == iosim(*LONG, "-o", "-").stdout.encode()


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_parts_of_other_forms(kind, iosim, tmp_path):
    folder, one, two = tmp_path / "sweep", tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    assert iosim(*GRID, "-o", one).exit_code == 0
    assert iosim(*GRID, "--format", kind, "-o", f"{folder}/").exit_code == 0
    assert iosim("sweep", "--gather", folder, "-o", two).exit_code == 0
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("rows, slow", [(3000, 2500), (10**6, 700)])
def test_parts_have_the_groups_of_rows_of_one_file(rows, slow, iosim, tmp_path, monkeypatch):
    """Also where chunks do not fill parts, and where points are counted one by one. pandas reads the folder as it is."""
    from pyarrow.parquet import ParquetFile

    monkeypatch.setattr(counted, "PART_ROWS", rows)
    monkeypatch.setattr(counted, "SLOW_PART_ROWS", slow)
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    strided = (*HEAD[:-1], "causal;strided:5", "--M", "3KB:33KB:+1KB", "--tiles", "8x8")
    for line in (GRID, strided):
        folder = tmp_path / str(len(line))
        assert iosim(*line, "-o", one).exit_code == 0
        assert iosim(*line, "--format", "parquet", "--resume", "-o", f"{folder}/").exit_code == 0
        assert iosim("sweep", "--gather", folder, "-o", two).exit_code == 0
        assert one.read_bytes() == two.read_bytes()
        assert rows == 10**6 or ParquetFile(one).num_row_groups > 2
        (folder / "_part-00000007.parquet.77-ab.part").write_text("unfinished")
        pd.testing.assert_frame_equal(pd.read_parquet(folder), pd.read_parquet(one), check_categorical=False)


@pytest.mark.needs("duckdb")
def test_duckdb_reads_the_folder(iosim, tmp_path):
    import duckdb

    assert iosim(*PARTS, "--format", "parquet", "-o", f"{tmp_path}/sweep/").exit_code == 0
    found = duckdb.sql(f"select count(*) from read_parquet('{tmp_path}/sweep/*.parquet')").fetchone()
    assert found == (manifest_of(tmp_path / "sweep")["rows"],)


# ---------------------------------------------------------------- addresses

needs_fsspec = pytest.mark.needs("fsspec")


@pytest.fixture
def memory():
    """An address in the memory of this process."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield "memory://bucket/sweep/"
    files.store.clear()


@needs_fsspec
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_address_has_the_bytes_of_a_folder(kind, iosim, memory, tmp_path):
    import fsspec

    for place in (f"{tmp_path}/sweep/", memory):
        assert iosim(*PARTS, "--format", kind, "-o", place).exit_code == 0
    files = fsspec.filesystem("memory")
    found = {path.rpartition("/")[2]: files.cat_file(path) for path in files.ls("/bucket/sweep", detail=False)}
    local = {file.name: file.read_bytes() for file in (tmp_path / "sweep").iterdir() if file.name[0] == "p"}
    assert {name: text for name, text in found.items() if name[0] == "p"} == local and len(local) > 1
    assert {*found} - {*local} == {"_manifest.json"}
    out = tmp_path / f"out.{kind}"
    assert iosim("sweep", "--gather", memory, "-o", out).exit_code == 0
    assert iosim("sweep", "--gather", f"{tmp_path}/sweep/", "-o", f"memory://bucket/out.{kind}").exit_code == 0
    assert files.cat_file(f"/bucket/out.{kind}") == out.read_bytes()
    assert files.exists(f"/bucket/out.{kind}.meta.json") and not os.path.exists("memory:")


@needs_fsspec
def test_a_sweep_at_an_address_continues(iosim, memory, tmp_path):
    import fsspec

    assert iosim(*PARTS, "-o", memory).exit_code == 0
    assert iosim("sweep", "--gather", memory, "-o", tmp_path / "whole.csv").exit_code == 0
    files = fsspec.filesystem("memory")
    with files.open("/bucket/sweep/part-00000000.csv", "ab") as file:
        file.write(b"more\n")
    files.rm_file("/bucket/sweep/part-00000001.csv")
    files.pipe_file("/bucket/sweep/_part-00000001.csv.77-ab.part", b"unfinished")
    assert iosim("sweep", "--gather", memory, "-o", "-").exit_code == 1
    for more in ((), ("--lse", "--resume")):
        assert iosim(*PARTS, *more, "-o", memory).exit_code == 2
    kept = files.modified("/bucket/sweep/part-00000002.csv")
    assert iosim(*PARTS, "--resume", "-o", memory).exit_code == 0
    assert files.modified("/bucket/sweep/part-00000002.csv") == kept and not files.glob("/bucket/sweep/*.part")
    assert iosim("sweep", "--gather", memory, "-o", tmp_path / "again.csv").exit_code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@needs_fsspec
def test_processes_do_not_share_memory(iosim, memory, monkeypatch):
    """Parts that other processes wrote are not at the address that this process sees."""
    monkeypatch.setattr(of_folder, "SECONDS_TO_APPEAR", 1)
    result = iosim(*PARTS, "--jobs", 2, "-o", memory)
    assert result.exit_code == 2 and "all workers share" in result.stderr and "is not there" in result.stderr


@needs_fsspec
@pytest.mark.parametrize(
    "address", ["nonsense://bucket/sweep/", "nonsense://bucket/x.csv", "http://127.0.0.1:1/sweep/"]
)
def test_an_address_that_cannot_be_written(address, iosim, tmp_path, monkeypatch):
    """Nothing is written, and nothing is counted before the message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(counted.Chunks, "__getitem__", None)
    result = iosim(*GRID, "-o", address)
    assert result.exit_code in (2, 3) and len(result.stderr.splitlines()) == 1 and address[:-1] in result.stderr
    assert "Protocol not known: nonsense" in result.stderr or "http" in address
    assert not os.listdir()


@pytest.mark.parametrize("address", ["s3://bucket/sweep/", "s3://bucket/x.csv"])
def test_without_fsspec_the_message_says_what_to_install(address, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    result = iosim(*GRID, "-o", address)
    assert result.exit_code == 3 and "iosim[dist]" in result.stderr and not os.listdir()


def test_a_folder_that_is_asked_for_from_another_place(iosim, tmp_path, monkeypatch):
    """Workers may have another working folder."""
    monkeypatch.chdir(tmp_path)
    assert iosim(*GRID, "-o", "sweep/").exit_code == 0
    assert Place("sweep/").path == str(tmp_path / "sweep") and read_manifest(Place("sweep"))["complete"]
