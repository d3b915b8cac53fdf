"""A folder of parts is a data set for other programs, and it may lie at an address that fsspec knows."""

import os
import signal
import sys

import pandas as pd
import pytest
from sweeps_run import GRID, LARGE, LONG, SMALLEST, cluster_of, gathered, run, until

from iosim.counting import sweep as counted
from iosim.sweeps.folder import read_manifest
from iosim.sweeps.place import place_of

PARTS = (*GRID, *SMALLEST)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(counted, "CHUNK_ROWS", 1000)


@pytest.fixture
def dataset(iosim, tmp_path):
    """(a folder of Parquet, also with what a killed run leaves; the rows)."""
    folder = tmp_path / "sweep"
    assert iosim(*PARTS, "--format", "parquet", "-o", f"{folder}/").exit_code == 0
    assert iosim(*GRID, "-o", tmp_path / "whole.parquet").exit_code == 0
    (folder / "_part-00000007.parquet.77-ab.part").write_text("unfinished")
    assert len([*folder.glob("part-*.parquet")]) > 1
    return folder, pd.read_parquet(tmp_path / "whole.parquet")


def same(found, rows):
    """Whether two tables have the same cells."""
    assert [*found.columns] == [*rows.columns] and len(found) == len(rows)
    for name in rows:
        assert found[name].astype(str).tolist() == rows[name].astype(str).tolist(), name


@pytest.mark.needs("pyarrow")
def test_pandas_reads_the_folder(dataset):
    folder, rows = dataset
    same(pd.read_parquet(folder), rows)
    same(pd.read_parquet(f"{folder}/"), rows)


@pytest.mark.needs("pyarrow")
def test_a_frame_of_dask_reads_the_folder(dataset):
    frame = pytest.importorskip("dask.dataframe", reason="dask[dataframe] is not installed")
    folder, rows = dataset
    same(frame.read_parquet(f"{folder}/").compute(scheduler="sync"), rows)


@pytest.mark.needs("duckdb")
def test_duckdb_reads_the_folder(dataset):
    import duckdb

    folder, rows = dataset
    same(duckdb.sql(f"select * from read_parquet('{folder}/*.parquet') order by filename").df()[rows.columns], rows)


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

    out = tmp_path / f"out.{kind}"
    for place in (f"{tmp_path}/sweep/", memory):
        assert iosim(*PARTS, "--format", kind, "-o", place).exit_code == 0
    files = fsspec.filesystem("memory")
    found = {path.rpartition("/")[2]: files.cat_file(path) for path in files.ls("/bucket/sweep", detail=False)}
    local = {file.name: file.read_bytes() for file in (tmp_path / "sweep").iterdir() if file.name[0] == "p"}
    assert {name: text for name, text in found.items() if name[0] == "p"} == local and len(local) > 1
    assert {*found} - {*local} == {"_manifest.json", "_parts.jsonl"}
    assert iosim("gather", memory, "--check").exit_code == 0
    assert iosim("gather", memory, "-o", out).exit_code == 0
    assert iosim("gather", f"{tmp_path}/sweep/", "-o", f"memory://bucket/out.{kind}").exit_code == 0
    assert files.cat_file(f"/bucket/out.{kind}") == out.read_bytes()
    assert files.exists(f"/bucket/out.{kind}.meta.json")
    assert not os.path.exists("memory:")


@needs_fsspec
def test_a_sweep_at_an_address_continues(iosim, memory, tmp_path):
    import fsspec

    assert iosim(*PARTS, "-o", memory).exit_code == 0
    assert iosim("gather", memory, "-o", tmp_path / "whole.csv").exit_code == 0
    files = fsspec.filesystem("memory")
    with files.open("/bucket/sweep/part-00000000.csv", "ab") as file:
        file.write(b"more\n")
    files.rm_file("/bucket/sweep/part-00000001.csv")
    result = iosim("gather", memory, "--check")
    assert result.exit_code == 1 and "part-00000000.csv" in result.stdout and "part-00000001.csv" in result.stdout
    assert iosim(*PARTS, "-o", memory).exit_code == 2
    assert iosim(*PARTS, "--lse", "--resume", "-o", memory).exit_code == 2
    kept = files.modified("/bucket/sweep/part-00000002.csv")
    assert iosim(*PARTS, "--resume", "-o", memory).exit_code == 0
    assert files.modified("/bucket/sweep/part-00000002.csv") == kept
    assert iosim("gather", memory, "-o", tmp_path / "again.csv").exit_code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@needs_fsspec
def test_shares_at_an_address(iosim, memory, tmp_path):
    for number in (1, 2):
        assert iosim(*PARTS, "--share", f"{number}/2", "-o", memory).exit_code == 0
    assert iosim("gather", memory, "--check").exit_code == 0
    assert iosim("gather", memory, "-o", tmp_path / "out.csv").exit_code == 0
    assert (tmp_path / "out.csv").read_bytes() == iosim(*GRID, "-o", "-").stdout.encode()


@needs_fsspec
def test_processes_do_not_share_memory(iosim, memory, monkeypatch):
    """Parts that other processes wrote are not at the address that this process sees."""
    from iosim.sweeps import folder

    monkeypatch.setattr(folder, "SECONDS_TO_APPEAR", 1)
    result = iosim(*PARTS, "--jobs", 2, "-o", memory)
    assert result.exit_code == 2 and "all workers share" in result.stderr and "is not there" in result.stderr


@needs_fsspec
@pytest.mark.parametrize("scheme", ["local", "file"])
def test_a_killed_sweep_at_an_address_continues(scheme, iosim, tmp_path, monkeypatch):
    """In processes of its own; and the file of one command."""
    monkeypatch.undo()
    place, parts = f"{scheme}://{tmp_path}/sweep/", tmp_path / "sweep"
    first = run(*LONG, *SMALLEST, "--jobs", 2, "-o", place)
    until(lambda: first.poll() is not None or len([*parts.glob("part-*.csv")]) > 2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = run(*LONG, *SMALLEST, "--jobs", 2, "--resume", "-o", place)
    said = second.communicate(timeout=120)[1]
    assert second.returncode == 0, said
    assert iosim("gather", place, "-o", f"{scheme}://{tmp_path}/out.csv").exit_code == 0
    assert (tmp_path / "out.csv").read_bytes() == run(*LONG, "-o", "-").communicate()[0].encode()
    assert iosim("count", "--N", 64, "--d", 8, "--M", "1KB", "-o", f"{scheme}://{tmp_path}/x.json").exit_code == 0
    assert '"N": 64' in (tmp_path / "x.json").read_text()


@pytest.mark.needs("distributed")
def test_workers_write_to_an_address(iosim, tmp_path, monkeypatch):
    monkeypatch.undo()
    with cluster_of(tmp_path) as (address, _, _):
        assert iosim(*LARGE, "--scheduler", address, "-o", f"local://{tmp_path}/sweep/").exit_code == 0
    assert gathered(iosim, f"local://{tmp_path}/sweep/", tmp_path) == iosim(*LARGE[:-2], "-o", "-").stdout.encode()


@needs_fsspec
@pytest.mark.parametrize(
    "address", ["nonsense://bucket/sweep/", "nonsense://bucket/x.csv", "http://127.0.0.1:1/sweep/"]
)
def test_an_address_that_cannot_be_written(address, iosim, tmp_path, monkeypatch):
    """Nothing is written, and nothing is counted before the message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(counted.Chunks, "__getitem__", None)
    result = iosim(*GRID, "-o", address)
    assert result.exit_code in (2, 3) and len(result.stderr.splitlines()) == 1 and address in result.stderr
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
    assert place_of("sweep/").path == str(tmp_path / "sweep") and read_manifest(place_of("sweep"))["complete"]
