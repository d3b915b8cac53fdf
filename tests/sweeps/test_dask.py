"""Workers of Dask give the bytes of one process; what they lack is one message; and what is killed loses nothing."""

import os
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack

import pytest
from paths import ROOT
from sweeps_run import LARGE, LONG, SMALLEST, begun, cluster_of, ended, gathered, run, scheduler, worker

from iosim.counting.sweep_axes import build
from iosim.errors import CheckError, InputError
from iosim.sweeps.executors import results
from iosim.sweeps.parts import Work
from iosim.sweeps.run import team_of

pytestmark = [pytest.mark.needs("distributed"), pytest.mark.early]  # its tests wait for processes


@pytest.fixture(scope="module")
def whole():
    """The bytes of one process."""
    return run(*LARGE[:-2], "-o", "-").communicate()[0].encode()


def test_workers_of_this_machine_write_the_bytes_of_one_process(tmp_path, whole):
    first = run(*LARGE[:-2], "--dask", "local", "--jobs", 2, "-o", tmp_path / "two.csv")
    said = first.communicate()[1]
    assert first.returncode == 0, said
    assert (tmp_path / "two.csv").read_bytes() == whole
    assert "dashboard at http://127.0.0.1:" in said and "Warning" not in said


def test_workers_of_a_scheduler_write_the_bytes_of_one_process(iosim, tmp_path, whole):
    """Into a folder, an address and one file."""
    with cluster_of(tmp_path) as (address, _, _):
        for place in (f"{tmp_path}/sweep/", f"local://{tmp_path}/sweep2/"):
            assert iosim(*LARGE, "--dask", address, "-o", place).exit_code == 0
            assert gathered(iosim, place, tmp_path) == whole
        for option in ("--scheduler", "--dask"):
            assert iosim(*LARGE[:-2], option, address, "-o", tmp_path / "x.csv").exit_code == 0
            assert (tmp_path / "x.csv").read_bytes() == whole


def test_ctrl_c_is_one_message(iosim, tmp_path):
    folder = tmp_path / "sweep"
    first = begun(folder, "--dask", "local", "--jobs", 2, start_new_session=True)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does, to all processes
    said = first.communicate(timeout=60)[1]
    lines = [line for line in said.splitlines() if line]
    assert first.returncode != 0 and len(lines) <= 3 and "--resume" in lines[-2] and lines[-1] == "Aborted!", said
    assert iosim(*LONG, *SMALLEST, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == run(*LONG, "-o", "-").communicate()[0].encode()


def test_ctrl_c_while_workers_start_ends_the_run(monkeypatch):
    from iosim.sweeps import dask_workers as file

    seen = []

    class Client:
        def __init__(self, **options):
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # threads of other tests would take it at once
            seen.append("begun")

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(file.distributed, "Client", Client)
    with pytest.raises(KeyboardInterrupt):
        file.local(2)
    assert seen == ["begun", "closed"]


@pytest.mark.parametrize("address, why", [("tcp://127.0.0.1:1", "after 1 s"), ("nowhere", "protocol like tcp:")])
def test_an_address_at_which_nobody_listens(address, why, iosim, tmp_path, monkeypatch):
    from iosim.sweeps import dask_workers

    monkeypatch.setattr(dask_workers, "SECONDS_TO_CONNECT", 1)
    result = iosim(*LARGE, "--dask", address, "-o", f"{tmp_path}/sweep/")
    assert result.exit_code == 2 and result.stderr.splitlines()[-1].startswith(f"Error: --dask: found '{address}'")
    assert why in result.stderr and "dask scheduler starts one" in result.stderr
    assert not (tmp_path / "sweep").exists()


def test_a_scheduler_without_workers(iosim, tmp_path, monkeypatch):
    from iosim.sweeps import dask_workers as file

    monkeypatch.setattr(file, "SECONDS_FOR_WORKERS", 1)
    with scheduler(tmp_path) as (address, _):
        result = iosim(*LARGE[:-2], "--dask", address, "-o", tmp_path / "x.csv")
    assert result.exit_code == 3 and f"dask worker {address} starts one" in result.stderr


@pytest.mark.parametrize(
    "said", ["has iosim 0.0.7, and this is iosim", "has other files of iosim", "or none: ModuleNotFoundError"]
)
def test_a_worker_with_another_version(said, iosim, tmp_path):
    """Its folder has another iosim."""
    for name in ("iosim", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    if "none" in said:
        shutil.rmtree(tmp_path / "iosim" / "sweeps")
    file = tmp_path / "iosim" / "version.py"
    file.write_text(file.read_text().replace("0.3.0", "0.0.7") if "0.0.7" in said else file.read_text() + "\n")
    own = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path, cwd=tmp_path, env=own)):
        result = iosim(*LARGE[:-2], "--dask", address, "-o", tmp_path / "x.csv")
    assert result.exit_code == 3 and said in result.stderr and "install the same there" in result.stderr


DENIED = """
import builtins, io
real = io.open
def opened(name, *more, **options):
    if "part-" in str(name):
        raise PermissionError(13, 'Permission denied')
    return real(name, *more, **options)
builtins.open = opened
"""


def test_a_folder_that_a_worker_may_not_write(iosim, tmp_path):
    (tmp_path / "other.py").write_text(DENIED)
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path, "--preload", tmp_path / "other.py")):
        result = iosim(*LARGE, "--dask", address, "-o", f"{tmp_path}/sweep/")
    assert result.exit_code == 2 and "-o: found" in result.stderr and "Permission denied" in result.stderr
    assert not [*tmp_path.glob("sweep/part-*")]


def small():
    return Work(build({"N": 64, "d": 8, "M": "1KB"}, "flash1"), "csv")


def test_what_a_part_raises():
    """Also a bug, which is no fault of the scheduler. Afterwards the workers make other parts."""

    def number(work, part):
        yield part

    def raises(error):
        def task(work, part):
            raise error
            yield

        return task

    def dies(work, part):
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    import distributed.protocol

    from iosim.sweeps import executors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors.pickle, "dumps", distributed.protocol.pickle.dumps)  # which sends these functions
        with pytest.raises(CheckError, match="its worker died each time"), team_of(1, "local", print) as team:
            errors = [(InputError("-o", "disk", "one with room"), InputError), (RuntimeError("a bug"), RuntimeError)]
            for error, kind in [*errors, (MemoryError(), CheckError)]:
                with pytest.raises(kind, match=str(error) or "memory ran out in the scheduler at local"):
                    list(results(team, raises(error), small(), range(3), ordered=False))
            assert list(results(team, number, small(), range(9))) == [*range(9)]
            list(results(team, dies, small(), range(1)))


def test_the_last_worker_goes(tmp_path):
    """iosim says so and waits; another one finishes the sweep."""
    with scheduler(tmp_path) as (address, _):
        with ended(worker(address, tmp_path)):
            first = begun(tmp_path / "sweep", "--dask", address)
        said = first.stderr.readline()
        while "has no worker any more" not in said and said:
            said = first.stderr.readline()
        assert f"{address} has no worker any more; iosim waits 300 s for another" in said
        with ended(worker(address, tmp_path)):
            assert first.wait(120) == 0, first.stderr.read()


def test_no_other_worker_comes(tmp_path, monkeypatch):
    from iosim.sweeps import executors
    from iosim.sweeps.parts import make_chunks

    monkeypatch.setattr(executors, "SECONDS_TO_LOOK", 0.2)
    monkeypatch.setattr(executors, "SECONDS_WITHOUT_WORKERS", 0.5)
    notes = []
    with (
        scheduler(tmp_path) as (address, _),
        ended(worker(address, tmp_path)) as (only,),
        team_of(None, address, notes.append) as team,
    ):
        assert len([*results(team, make_chunks, small(), range(1))]) == 1
        only.kill()
        with pytest.raises(CheckError, match="had no worker for 0.5 s; start one, then the same line with --resume"):
            list(results(team, make_chunks, small(), [0] * 9, ordered=False))
    assert ["has no worker any more" in note for note in notes].count(True) == 1


def test_workers_of_this_machine_that_do_not_start(tmp_path):
    """Its preload is not there."""
    own = {**os.environ, "DASK_DISTRIBUTED__WORKER__PRELOAD": '["no_such_module"]'}
    first = run(*LARGE, "--dask", "local", "--jobs", 2, "-o", f"{tmp_path}/sweep/", env=own)
    said = first.communicate(timeout=120)[1]
    assert first.returncode == 3 and said.count("\n") == 1, said
    assert "Dask could not start 2 workers on this machine" in said and "no_such_module" in said


@pytest.fixture
def certificate(tmp_path):
    """The settings of a scheduler, workers and clients that speak TLS, as variables of the environment."""
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run([*line, "-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.pem"], check=True)
    except OSError:
        pytest.skip("openssl is not installed")
    found = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(tmp_path / "ca.pem")}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(tmp_path / "ca.pem")
        found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(tmp_path / "key.pem")
    return found


def test_a_scheduler_with_tls(certificate, tmp_path, whole):
    with ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        for name, value in certificate.items():
            patch.setenv(name, value)
        env = {**os.environ}
        address, _ = held.enter_context(scheduler(tmp_path, "--protocol", "tls", env=env))
        held.enter_context(ended(worker(address, tmp_path, env=env)))
        assert address.startswith("tls://127.0.0.1")
        first = run(*LARGE[:-2], "--dask", address, "-o", tmp_path / "x.csv", env=env)
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 0, said
        assert (tmp_path / "x.csv").read_bytes() == whole
        without = {name: value for name, value in env.items() if name not in certificate}
        first = run(*LARGE[:-2], "--dask", address, "-o", tmp_path / "y.csv", env=without)
        said = first.communicate(timeout=120)[1]
    assert first.returncode == 2 and said.count("\n") == 1 and "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in said, said
