"""Nothing that a folder says is believed: its parts are those of the plan, inside it, and read before they are written."""

import hashlib
import json
import shutil

import pytest
from click.testing import CliRunner
from sweeps_run import FEW, FEW_ROWS, SMALLEST

from iosim.commands.cli import main
from iosim.counting import sweep as counted
from iosim.sweeps.folder import line_of, read_manifest, run_of, write_manifest
from iosim.sweeps.parts import Written
from iosim.sweeps.place import place_of


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with all parts: made once. Tests change copies."""
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "CHUNK_ROWS", FEW_ROWS)
        assert CliRunner().invoke(main, [*map(str, (*FEW, *SMALLEST)), "-o", f"{folder}/"]).exit_code == 0
    return folder


@pytest.fixture
def folder(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "sweep")


def resealed(folder, change):
    """Write a manifest that says something else, with the seal that belongs to it."""
    place = place_of(str(folder))
    manifest = read_manifest(place)
    change(manifest)
    write_manifest(place, manifest)


def refused(iosim, folder, tmp_path, said):
    """Neither `gather` nor `--check` takes the folder, and no file is written."""
    for more in (("-o", tmp_path / "out.csv"), ("-o", "-"), ("--check",)):
        result = iosim("gather", folder, *more)
        assert result.exit_code in (1, 2) and said in result.output, result.output
        assert "Traceback" not in result.output and "a secret" not in result.output
    assert not (tmp_path / "out.csv").exists()


def elsewhere(files, secret, kept):
    """The name of a file of the system, with its hash."""
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    files[0] |= {"file": kept, "sha256": digest, "bytes": secret.stat().st_size, "rows": files[0]["rows"]}


@pytest.mark.parametrize("kept", ["../secret.csv", "{}", "part-00000001.csv", "_manifest.json", "part-0.csv", ""])
def test_names_are_those_of_the_plan(kept, iosim, folder, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a secret\n")
    resealed(folder, lambda manifest: elsewhere(manifest["files"], secret, kept.format(secret)))
    refused(iosim, folder, tmp_path, "is not one that a sweep wrote: part 0 is called")


def test_lines_are_not_believed_either(iosim, folder, tmp_path):
    """A sweep that is not complete is read by its lines."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a secret\n")
    place = place_of(str(folder))
    manifest = read_manifest(place)
    elsewhere(manifest["files"], secret, "../secret.csv")
    (folder / "_parts.jsonl").write_text("".join(line_of(Written(**one), manifest["run"]) for one in manifest["files"]))
    write_manifest(place, {**manifest, "complete": False, "files": []})
    refused(iosim, folder, tmp_path, "part 0 is called")


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda m: m["files"].pop(), "it has other parts than 0 to"),
        (lambda m: m["files"].append(m["files"][0]), "it has other parts than 0 to"),
        (lambda m: m["files"].insert(0, m["files"].pop()), "it has other parts than 0 to"),
        (lambda m: m["files"][0].update(part=-1), "it has other parts than 0 to"),
        (lambda m: m["files"][0].update(part="0"), "a part is {'part': '0'"),
        (lambda m: m["files"][0].pop("sha256"), "a part is {'part': 0"),
        (lambda m: m.update(rows=7), "its parts have not 7 rows"),
        (lambda m: m.update(format="exe"), "format 'exe'"),
        (lambda m: m["arguments"].update(d=[9]), "its arguments are those of another run"),
    ],
)
def test_a_manifest_that_no_sweep_wrote(change, said, iosim, folder, tmp_path):
    resealed(folder, change)
    refused(iosim, folder, tmp_path, said)


def test_rows_are_counted(iosim, folder, tmp_path):
    """A line that says one row more, and one less in another part."""

    def change(manifest):
        manifest["files"][0]["rows"] += 1
        manifest["files"][1]["rows"] -= 1

    resealed(folder, change)
    result = iosim("gather", folder, "-o", tmp_path / "out.csv")
    assert result.exit_code == 1 and "part-00000000.csv" in result.stderr and "rows and not" in result.stderr
    assert not (tmp_path / "out.csv").exists()


def test_parts_have_the_same_columns(iosim, folder, tmp_path):
    def change(manifest):
        file = folder / manifest["files"][1]["file"]
        file.write_text(file.read_text().replace("N,", "n,", 1))
        manifest["files"][1]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()

    resealed(folder, change)
    result = iosim("gather", folder, "-o", tmp_path / "out.csv")
    assert result.exit_code == 1 and "other columns than the first part" in result.stderr


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_part_lies_inside_the_folder(kind, iosim, folder, tmp_path):
    part, secret = folder / "part-00000000.csv", tmp_path / "secret.csv"
    part.rename(secret)
    part.symlink_to(secret) if kind == "link" else part.mkdir()
    for more in (("-o", tmp_path / "out.csv"), ("--check",)):
        result = iosim("gather", folder, *more)
        assert result.exit_code == 1 and "part-00000000.csv" in result.output
    assert not (tmp_path / "out.csv").exists()


def test_a_part_is_compared_before_a_byte_of_it_is_written(iosim, folder):
    """Also on stdout, which cannot be taken back."""
    text = (folder / "part-00000001.csv").read_text()
    (folder / "part-00000001.csv").write_text(text.replace("fp16", "fp32"))
    result = iosim("gather", folder, "-o", "-")
    assert result.exit_code == 1 and "part-00000001.csv" in result.stderr
    assert result.stdout == (folder / "part-00000000.csv").read_text() and "fp32" not in result.stdout


def test_the_file_is_outside_the_folder(iosim, folder, tmp_path):
    (tmp_path / "other").symlink_to(folder)
    for out in (folder / "out.csv", folder / ".." / "sweep" / "out.csv", tmp_path / "other" / "out.csv"):
        result = iosim("gather", folder, "-o", out)
        assert result.exit_code == 2 and "a file outside the folder of the parts" in result.stderr
    assert not [*tmp_path.rglob("out.csv*")]


# ---------------------------------------------------------------- --check


def test_a_file_and_nothing_are_no_folders(iosim, tmp_path):
    (tmp_path / "g.csv").write_text("N\n8\n")
    result = iosim("gather", tmp_path / "g.csv")
    assert result.exit_code == 2 and "Error: folder: found " in result.stderr and "not a file" in result.stderr
    result = iosim("gather")
    assert result.exit_code == 2 and result.stderr.startswith("Error: FOLDER: found 'nothing'; ")


def test_check_of_a_folder_that_is_right(iosim, folder):
    result = iosim("gather", folder, "--check")
    parts, rows = read_manifest(place_of(str(folder)))["parts"], read_manifest(place_of(str(folder)))["rows"]
    assert result.exit_code == 0 and result.stdout == f"{parts} parts with {rows:,} rows are as they were written\n"


def test_check_names_every_bad_part(iosim, folder):
    files = sorted(folder.glob("part-*.csv"))
    changed, gone, short = files[0], files[2], files[-1]
    changed.write_bytes(changed.read_bytes().replace(b"fp16", b"fp32"))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    (folder / "out.parquet").write_text("")
    (folder / "part-99999999.csv").write_text("")
    result = iosim("gather", folder, "--check")
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    assert result.exit_code == 1 and [*lines] == [
        changed.name,
        gone.name,
        short.name,
        "out.parquet",
        "part-99999999.csv",
    ]
    assert lines[changed.name] == "changed" and lines[gone.name] == "missing" and "bytes" in lines[short.name]
    assert "not a part of this sweep" in lines["out.parquet"]
    assert f"{len(files) - 3} parts with" in result.stdout and "5 files are not" in result.stdout


def test_check_says_what_is_not_made_yet(iosim, folder):
    place = place_of(str(folder))
    manifest = read_manifest(place)
    write_manifest(place, {**manifest, "complete": False, "files": []})
    lines = (folder / "_parts.jsonl").read_text().splitlines(True)
    (folder / "_parts.jsonl").write_text(lines[0])
    for one in manifest["files"][1:]:
        (folder / one["file"]).unlink()
    result = iosim("gather", folder, "--check")
    assert result.exit_code == 1 and "1 part with" in result.stdout
    assert f"{len(lines) - 1} parts are not made yet; " in result.stdout and "--resume" in result.stdout


def test_check_writes_no_rows(iosim, folder, tmp_path):
    result = iosim("gather", folder, "--check", "-o", tmp_path / "out.csv")
    assert result.exit_code == 2 and "nothing with --check" in result.stderr


# ---------------------------------------------------------------- a run that ended after its last part, older folders


def test_all_parts_without_the_last_manifest(iosim, folder, tmp_path):
    whole = (tmp_path / "whole.csv", tmp_path / "again.csv")
    assert iosim("gather", folder, "-o", whole[0]).exit_code == 0
    place = place_of(str(folder))
    write_manifest(place, {**read_manifest(place), "complete": False, "files": []})
    assert iosim("gather", folder, "-o", whole[1]).exit_code == 0
    assert whole[0].read_bytes() == whole[1].read_bytes()
    assert json.loads((tmp_path / "again.csv.meta.json").read_text())["rows"] == read_manifest(place)["rows"]


def as_02(folder):
    """The folder as iosim 0.2 wrote it."""
    place = place_of(str(folder))
    manifest = read_manifest(place)
    manifest["arguments"] = {**manifest["arguments"], "iosim": "0.2.0"}
    manifest["arguments"].pop("iosim_files")
    write_manifest(place, {**manifest, "iosim": "0.2.0", "run": run_of(manifest["arguments"])})
    for name in ("manifest.json", "parts.jsonl", "lock"):
        (folder / f"_{name}").rename(folder / name)


def test_folders_of_02_are_gathered_and_not_continued(iosim, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "CHUNK_ROWS", FEW_ROWS)
    assert iosim("gather", folder, "-o", tmp_path / "new.csv").exit_code == 0
    as_02(folder)
    assert iosim("gather", folder, "-o", tmp_path / "old.csv").exit_code == 0
    assert (tmp_path / "old.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()
    assert iosim("gather", folder, "--check").exit_code == 0
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    result = iosim(*FEW, *SMALLEST, "--resume", "-o", f"{folder}/")
    assert result.exit_code == 2 and "these differ: iosim 0.2.0 (now 0.3" in result.stderr
    assert iosim(*FEW, *SMALLEST, "-o", f"{folder}/").exit_code == 2
    (folder / "_lock").unlink()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (folder / "manifest.json").write_text("{")
    assert iosim(*FEW, *SMALLEST, "--resume", "-o", f"{folder}/").exit_code == 2
    assert iosim("gather", folder, "-o", tmp_path / "x.csv").exit_code == 1
