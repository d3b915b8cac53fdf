"""Shares of a sweep go into one folder, each with its own parts, and together they are the whole sweep."""

import json
import os
from pathlib import Path

import pytest
from sweeps_run import FEW, FEW_ROWS, GRID, SMALLEST, gathered, run

from iosim.counting import sweep as counted
from iosim.errors import InputError
from iosim.sweeps.folder import Share, line_of, parse_share, read_manifest, write_manifest
from iosim.sweeps.parts import Written
from iosim.sweeps.place import place_of

PARTS = (*FEW, *SMALLEST)
OF = 3


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(counted, "CHUNK_ROWS", FEW_ROWS)


def share(iosim, folder, number, *more, of=OF):
    return iosim(*PARTS, "--share", f"{number}/{of}", "-o", f"{folder}/", *more)


def parts_in(folder):
    return {int(file.name[5:13]) for file in folder.glob("part-*.csv")}


def test_shares_are_the_whole_sweep(iosim, tmp_path):
    """In any order. Each has its parts only, and the last one completes the manifest."""
    folder, whole = tmp_path / "sweep", iosim(*FEW, "-o", "-").stdout.encode()
    for done, number in enumerate((2, 3, 1)):
        before = parts_in(folder) if folder.exists() else set()
        assert share(iosim, folder, number).exit_code == 0
        manifest = read_manifest(place_of(str(folder)))
        assert parts_in(folder) - before == {*range(number - 1, manifest["parts"], OF)}
        assert manifest["complete"] is (done == 2)
        result = iosim("gather", folder, "--check")
        assert result.exit_code == (0 if done == 2 else 1), result.output
        if done < 2:
            assert "are not made yet" in result.stdout
            assert "parts" in iosim("gather", folder, "-o", tmp_path / "x.csv").stderr
    assert gathered(iosim, folder, tmp_path) == whole


def test_a_share_continues(iosim, tmp_path):
    folder = tmp_path / "sweep"
    for number in (1, 2, 3):
        assert share(iosim, folder, number, "--resume").exit_code == 0, "in an empty folder it begins"
    whole = gathered(iosim, folder, tmp_path)
    refused = share(iosim, folder, 2)
    assert refused.exit_code == 2 and "parts of this share" in refused.stderr and "--resume continues" in refused.stderr
    (folder / "part-00000001.csv").write_text("another")
    (folder / "part-00000002.csv").unlink()
    times = {file.name: file.stat().st_mtime_ns for file in folder.glob("part-*.csv")}
    assert share(iosim, folder, 2, "--resume").exit_code == 0
    new = {file.name for file in folder.glob("part-*.csv") if file.stat().st_mtime_ns != times.get(file.name)}
    assert new == {"part-00000001.csv"}, "the others are not its own"
    assert iosim("gather", folder, "-o", tmp_path / "x.csv").exit_code != 0
    assert share(iosim, folder, 3, "--resume").exit_code == 0
    assert gathered(iosim, folder, tmp_path) == whole


def test_a_whole_run_continues_what_shares_began(iosim, tmp_path):
    folder = tmp_path / "sweep"
    assert share(iosim, folder, 2).exit_code == 0
    first = folder / "part-00000001.csv"
    before = first.stat().st_mtime_ns
    assert iosim(*PARTS, "-o", f"{folder}/").exit_code == 2
    assert iosim(*PARTS, "--resume", "-o", f"{folder}/").exit_code == 0
    assert first.stat().st_mtime_ns == before and not [*folder.glob("_parts-*")]
    assert gathered(iosim, folder, tmp_path) == iosim(*FEW, "-o", "-").stdout.encode()
    assert share(iosim, folder, 1, "--resume").exit_code == 0 and read_manifest(place_of(str(folder)))["complete"]


def test_a_share_of_another_sweep_is_refused(iosim, tmp_path):
    folder = tmp_path / "sweep"
    assert share(iosim, folder, 1).exit_code == 0
    result = share(iosim, folder, 2, "--lse")
    assert result.exit_code == 2 and "these differ: columns, lse" in result.stderr
    result = share(iosim, folder, 2, of=4)
    assert result.exit_code == 2 and "shares of 3, which this folder has" in result.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    assert "notes.txt" in share(iosim, tmp_path / "mine", 1).stderr


def test_unfinished_files_of_others_stay(iosim, tmp_path):
    folder = tmp_path / "sweep"
    assert share(iosim, folder, 1).exit_code == 0
    journal = next(folder.glob("_parts-1-of-*.jsonl")).name
    mine = [folder / f"{name}.77-ab.part" for name in ("_part-00000000.csv", journal)]
    others = [folder / f"{name}.77-ab.part" for name in ("_part-00000001.csv", journal.replace("-1-of", "-2-of"))]
    for file in (*mine, *others):
        file.touch()
    assert share(iosim, folder, 1, "--resume").exit_code == 0
    assert all(file.exists() for file in others) and not any(file.exists() for file in mine)


def test_a_resumed_share_removes_each_file_that_it_was_writing(iosim, tmp_path, monkeypatch):
    """A run may be killed at each moment in which a file has its temporary name: parts, lines, the manifest."""
    folder, replace, names = tmp_path / "sweep", os.replace, []
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(old), replace(old, new)))
    assert share(iosim, folder, 1).exit_code == 0
    assert {Path(name).name.split(".")[0] for name in names} >= {"_part-00000000", "_parts-1-of-3", "_manifest-1-of-3"}
    for name in names:
        Path(name).touch()
    assert share(iosim, folder, 1, "--resume").exit_code == 0
    assert not [*folder.glob("*.part")]


def test_lines_that_differ_are_told_by_the_bytes(iosim, tmp_path):
    """A part was made again with other bytes by a share that took it over from a whole run."""
    folder = tmp_path / "sweep"
    for number in (1, 2, 3):
        assert share(iosim, folder, number).exit_code == 0
    whole = gathered(iosim, folder, tmp_path)
    line = json.loads((folder / "_parts-1-of-3.jsonl").read_text().splitlines()[0])
    stale = Written(**{name: line[name] for name in Written._fields})._replace(sha256="0" * 64)
    (folder / "_parts.jsonl").write_text(line_of(stale, line["run"]))
    place = place_of(str(folder))
    write_manifest(place, {**read_manifest(place), "complete": False, "files": []})
    assert gathered(iosim, folder, tmp_path) == whole


@pytest.mark.parametrize("text", ["7", "0/3", "4/3", "1/0", "a/3", "1/", "/3", "-1/3", "1.5/3", "1/3/4"])
def test_what_is_no_share(text, iosim, tmp_path):
    result = iosim(*PARTS, "--share", text, "-o", f"{tmp_path}/sweep/")
    assert result.exit_code == 2 and "--share: found" in result.stderr, result.output
    with pytest.raises(InputError):
        parse_share(text)
    assert not (tmp_path / "sweep").exists()


def test_a_share_needs_a_folder(iosim, tmp_path):
    result = iosim(*FEW, "--share", "1/3", "-o", tmp_path / "x.csv")
    assert result.exit_code == 2 and "a folder as in sweep/, with --share" in result.stderr


def test_parts_of_shares():
    for total in (0, 1, 5, 100):
        dealt = [part for number in range(1, 8) for part in Share(number, 7).parts(total)]
        assert sorted(dealt) == [*range(total)]


@pytest.mark.long
def test_shares_run_at_once(iosim, tmp_path, monkeypatch):
    monkeypatch.undo()
    line = (*GRID[:-1], "1KB:129KB:+1KB", *SMALLEST, "-o", f"{tmp_path}/sweep/")
    several = [run(*line, "--share", f"{k}/4", "--jobs", k % 2 + 1) for k in range(1, 5)]
    for one in several:
        said = one.communicate(timeout=120)[1]
        assert one.returncode == 0, said
    assert gathered(iosim, tmp_path / "sweep", tmp_path) == iosim(*line[:-4], "-o", "-").stdout.encode()
