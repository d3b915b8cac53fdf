"""Workers of Dask give the bytes of one process; what they lack is one message; and what is killed loses nothing."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from paths import ROOT, TESTS
from sweeps_run import LARGE, LONG, SMALLEST, begun, cluster_of, ended, gathered, run, scheduler, worker

from iosim.counting.sweep_axes import build
from iosim.errors import CheckError, InputError, MissingError
from iosim.sweeps.executors import results
from iosim.sweeps.parts import Job, Work

pytestmark = [pytest.mark.needs("distributed"), pytest.mark.early]  # its tests wait for processes


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler with two workers."""
    with cluster_of(tmp_path) as (address, _, _):
        yield address


@pytest.fixture(scope="module")
def whole():
    """The bytes of one process."""
    return run(*LARGE[:-2], "-o", "-").communicate()[0].encode()


def test_workers_of_this_machine_write_the_bytes_of_one_process(tmp_path, whole):
    first = run(*LARGE[:-2], "--scheduler", "local", "--jobs", 2, "-o", tmp_path / "two.csv")
    said = first.communicate()[1]
    assert first.returncode == 0, said
    assert (tmp_path / "two.csv").read_bytes() == whole
    assert "dashboard at http://" in said and "Warning" not in said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_workers_of_a_scheduler_write_the_bytes_of_one_process(kind, iosim, cluster, tmp_path):
    address = cluster
    rows = LARGE if kind == "csv" else LARGE[:-2]  # --part-rows sets the groups of rows in Parquet
    assert iosim(*rows, "--scheduler", address, "--format", kind, "-o", f"{tmp_path}/sweep/").exit_code == 0
    for name, more in (("one", ()), ("two", ("--scheduler", address))):
        assert iosim(*LARGE[:-2], *more, "-o", tmp_path / f"{name}.{kind}").exit_code == 0
    assert iosim("gather", tmp_path / "sweep", "-o", tmp_path / f"three.{kind}").exit_code == 0
    assert len({(tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two", "three")}) == 1
    assert kind == "parquet" or len(list((tmp_path / "sweep").glob("*.csv"))) > 2


@pytest.fixture(scope="module")
def whole_long():
    """The bytes of a sweep of seconds in one process."""
    return run(*LONG, "-o", "-").communicate()[0].encode()


def test_ctrl_c_is_one_message(iosim, tmp_path, whole_long):
    folder = tmp_path / "sweep"
    first = begun(folder, "--scheduler", "local", "--jobs", 2, start_new_session=True)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does, to all processes
    said = first.communicate(timeout=60)[1]
    lines = [line for line in said.splitlines() if line]
    assert first.returncode != 0 and len(lines) <= 3 and "--resume" in lines[-2] and lines[-1] == "Aborted!", said
    assert iosim(*LONG, *SMALLEST, "--resume", "-o", folder).exit_code == 0
    assert gathered(iosim, folder, tmp_path) == whole_long


def test_ctrl_c_while_workers_start_ends_the_run(monkeypatch):
    from iosim.sweeps import scheduler as file

    begun = []

    class Client:
        def __init__(self, **options):
            os.kill(os.getpid(), signal.SIGINT)
            begun.append("begun")

        def close(self):
            begun.append("closed")

    monkeypatch.setattr(file.distributed, "Client", Client)
    with pytest.raises(KeyboardInterrupt):
        file.local(2)
    assert begun == ["begun", "closed"]


@pytest.mark.parametrize(
    "address, why", [("tcp://127.0.0.1:1", "after 1 s"), ("nowhere", "protocol like tcp:"), ("x://1:2", "x")]
)
def test_an_address_at_which_nobody_listens(address, why, iosim, tmp_path, monkeypatch):
    from iosim.sweeps import scheduler

    monkeypatch.setattr(scheduler, "SECONDS_TO_CONNECT", 1)
    result = iosim(*LARGE, "--scheduler", address, "-o", f"{tmp_path}/sweep/")
    assert result.exit_code == 2 and result.stderr.splitlines()[-1].startswith(f"Error: --scheduler: found '{address}'")
    assert why in result.stderr and "dask scheduler starts one" in result.stderr
    assert not (tmp_path / "sweep").exists()


def test_a_scheduler_without_workers(iosim, tmp_path, monkeypatch):
    from iosim.sweeps import scheduler as file

    monkeypatch.setattr(file, "SECONDS_FOR_WORKERS", 1)
    with scheduler(tmp_path) as (address, _):
        result = iosim(*LARGE[:-2], "--scheduler", address, "-o", tmp_path / "x.csv")
    assert result.exit_code == 3 and f"dask worker {address} starts one" in result.stderr


def test_a_worker_with_another_version(iosim, tmp_path):
    """Its folder has another iosim."""
    (tmp_path / "iosim").mkdir()
    (tmp_path / "iosim" / "__init__.py").write_text("__version__ = '0.0.7'")
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path, cwd=tmp_path)):
        result = iosim(*LARGE[:-2], "--scheduler", address, "-o", tmp_path / "x.csv")
    assert result.exit_code == 3 and "has iosim 0.0.7, and this is iosim" in result.stderr


def test_another_version_of_dask_is_said_once(iosim, tmp_path, recwarn):
    """Dask warns of it as well, with a table."""
    text = "import distributed.versions as of; of._version_cached = lambda name: '2001.1.0'"
    (tmp_path / "other.py").write_text(text)
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path, "--preload", tmp_path / "other.py")):
        for _ in range(2):  # the second client finds the worker, and then Dask warns
            result = iosim(*LARGE[:-2], "--scheduler", address, "-o", tmp_path / "x.csv")
    assert result.exit_code == 3 and "has distributed 2001.1.0, and this is distributed" in result.stderr
    assert not [warning for warning in recwarn if "ismatch" in str(warning.message)]


@pytest.mark.parametrize("name, at", [("Python", "scheduler"), ("distributed", "workers")])
def test_other_versions_of_what_carries_the_parts(name, at):
    from iosim.sweeps.scheduler import check_packages

    def about(python="3.11.7.final.0", distributed="2026.8.0"):
        return {"host": {"python": python}, "packages": {"distributed": distributed}}

    other = about(**{name.lower(): "1.2.3"})
    found = {"client": about(), "scheduler": about("3.11.9.final.0"), "workers": {"tcp://a:1": about()}}
    check_packages(**found)
    found[at] = {"tcp://a:1": about(), "tcp://b:2": other} if at == "workers" else other
    with pytest.raises(MissingError, match=f"{'b:2' if at == 'workers' else 'the scheduler'} has {name} 1.2"):
        check_packages(**found)


FOLDERS = {
    "Permission denied": """
import builtins, io
real = io.open
def opened(name, *more, **options):
    if "part-" in str(name):
        raise PermissionError(13, 'Permission denied')
    return real(name, *more, **options)
builtins.open = opened
""",
    "another disk": """
import os
real = os.replace
def replaced(name, target):
    return os.unlink(name) if "part-" in str(target) else real(name, target)
os.replace = replaced
""",
}


@pytest.mark.parametrize("why", FOLDERS)
def test_a_folder_that_a_worker_does_not_share(why, iosim, tmp_path):
    """The worker does what one of a machine does that lacks the right, or whose folder is on a disk of its own."""
    (tmp_path / "other.py").write_text(FOLDERS[why])
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path, "--preload", tmp_path / "other.py")):
        result = iosim(*LARGE, "--scheduler", address, "-o", f"{tmp_path}/sweep/")
    assert result.exit_code == 2 and "-o: found" in result.stderr and why in result.stderr
    assert [file.name for file in tmp_path.glob("sweep/part-*")] == []


class Fails:
    def __init__(self, error):
        self.error = error

    def __call__(self, work, part):
        raise self.error
        yield


class Dies:
    def __call__(self, work, part):
        os.kill(os.getpid(), signal.SIGKILL)
        yield


class Number:
    def __call__(self, work, part):
        yield part


def test_an_error_of_a_part_is_the_error_of_the_run():
    """Also one of a bug, which is no fault of the scheduler."""
    from iosim.sweeps.scheduler import Dask

    work = Work(build({"N": 64, "d": 8, "M": "1KB"}, "flash1"), "csv")
    with closing(Dask("local", 1)) as workers:
        for error in (InputError("-o", "disk", "one with room"), RuntimeError("a bug")):
            with pytest.raises(type(error), match=str(error)):
                list(results(workers, Job(Fails(error), work), range(3), ordered=False))
        assert list(results(workers, Job(Number(), work), range(9), ordered=True)) == [*range(9)], (
            "and it can be used again"
        )
        with pytest.raises(CheckError, match="its worker died each time"):
            list(results(workers, Job(Dies(), work), range(1), ordered=True))


def test_no_number_of_processes_for_a_scheduler_that_runs(iosim):
    result = iosim(*LARGE[:-2], "--scheduler", "tcp://a:1", "--jobs", 2, "-o", "-")
    assert result.exit_code == 2 and "--scheduler local" in result.stderr


def test_the_last_worker_goes(tmp_path):
    """iosim says so and waits; another one finishes the sweep."""
    with scheduler(tmp_path) as (address, _):
        with ended(worker(address, tmp_path)):
            first = begun(tmp_path / "sweep", "--scheduler", address)
        said = first.stderr.readline()
        while "has no worker any more" not in said and said:
            said = first.stderr.readline()
        assert f"{address} has no worker any more; iosim waits 300 s for another" in said
        with ended(worker(address, tmp_path)):
            assert first.wait(120) == 0, first.stderr.read()


def test_no_worker_comes(tmp_path, monkeypatch):
    """The wait has an end, and the message says how to continue."""
    from iosim.sweeps import scheduler as file

    monkeypatch.setattr(file, "SECONDS_TO_LOOK", 0.2)
    monkeypatch.setattr(file, "SECONDS_WITHOUT_WORKERS", 0.5)
    notes, work = [], Work(build({"N": 64, "d": 8, "M": "1KB"}, "flash1"), "csv")
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TESTS / "sweeps", TESTS / "helpers")))}
    with (
        scheduler(tmp_path) as (address, _),
        ended(worker(address, tmp_path, env=own)) as (only,),
        closing(file.Dask(address)) as workers,
    ):
        workers.say = notes.append
        assert list(results(workers, Job(Number(), work), range(2))) == [0, 1]
        only.kill()
        while workers.client.nthreads():  # until the scheduler knows
            time.sleep(0.05)
        with pytest.raises(CheckError, match="had no worker for 0.5 s; start one, then the same line with --resume"):
            list(results(workers, Job(Number(), work), range(9), ordered=False))
    assert len(notes) == 1 and "has no worker any more" in notes[0]


class EndsAWorker:
    """Ends the process that reads it, if its environment says so."""

    def __call__(self, work, part):
        yield part

    def __setstate__(self, state):
        if os.environ.get("ENDS_A_WORKER"):
            os._exit(1)

    def __getstate__(self):
        return {"not": "empty"}


def test_the_only_worker_dies_while_it_is_told_of_the_job(tmp_path, monkeypatch):
    """That is no end of the scheduler: it keeps the job for workers that come."""
    from iosim.sweeps import scheduler as file

    monkeypatch.setattr(file, "SECONDS_TO_LOOK", 0.2)
    notes, work = [], Work(build({"N": 64, "d": 8, "M": "1KB"}, "flash1"), "csv")
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TESTS / "sweeps", TESTS / "helpers")))}
    with scheduler(tmp_path) as (address, _), ExitStack() as others:

        def say(note):
            notes.append(note)
            others.enter_context(ended(worker(address, tmp_path, env=own)))

        with (
            ended(worker(address, tmp_path, env={**own, "ENDS_A_WORKER": "1"})),
            closing(file.Dask(address)) as workers,
        ):
            workers.say = say
            assert list(results(workers, Job(EndsAWorker(), work), range(3))) == [0, 1, 2]
    assert [note for note in notes if "has no worker any more" in note] == notes and len(notes) == 1


class RunsOut:
    def __call__(self, work, part):
        raise MemoryError
        yield


def test_memory_that_runs_out_in_a_worker():
    from iosim.sweeps.scheduler import Dask

    work = Work(build({"N": 64, "d": 8, "M": "1KB"}, "flash1"), "csv")
    with (
        closing(Dask("local", 1)) as workers,
        pytest.raises(CheckError, match="memory ran out in the scheduler at local"),
    ):
        list(results(workers, Job(RunsOut(), work), range(3)))


@pytest.mark.parametrize("process", ["nanny", "worker"])
def test_workers_of_this_machine_that_do_not_start(process, tmp_path):
    """Its preload is not there."""
    own = {**os.environ, f"DASK_DISTRIBUTED__{process.upper()}__PRELOAD": '["no_such_module"]'}
    first = run(*LARGE, "--scheduler", "local", "--jobs", 2, "-o", f"{tmp_path}/sweep/", env=own)
    said = first.communicate(timeout=120)[1]
    assert (
        first.returncode == 3 and said.count("\n") == 1 and "Dask could not start 2 workers on this machine" in said
    ), said
    assert "no_such_module" in said and "--jobs works without Dask" in said


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The settings of a scheduler, workers and clients that speak TLS, as variables of the environment."""
    folder = tmp_path_factory.mktemp("tls")
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run(
            [*line, "-keyout", folder / "key.pem", "-out", folder / "ca.pem"], check=True, capture_output=True
        )
    except OSError:
        pytest.skip("openssl is not installed")
    found = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(folder / "ca.pem")}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(folder / "ca.pem")
        found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(folder / "key.pem")
    return found


def test_a_scheduler_with_tls(certificate, tmp_path, whole, monkeypatch):
    for name, value in certificate.items():
        monkeypatch.setenv(name, value)
    with scheduler(tmp_path, "--protocol", "tls") as (address, _), ended(worker(address, tmp_path)):
        assert address.startswith("tls://127.0.0.1")
        first = run(*LARGE[:-2], "--scheduler", address, "-o", tmp_path / "x.csv")
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 0, said
        assert (tmp_path / "x.csv").read_bytes() == whole
        without = {name: value for name, value in os.environ.items() if name not in certificate}
        first = run(*LARGE[:-2], "--scheduler", address, "-o", tmp_path / "y.csv", env=without)
        said = first.communicate(timeout=120)[1]
    assert first.returncode == 2 and said.count("\n") == 1 and "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in said, said


def test_the_dashboard_is_for_this_machine_only():
    from iosim.sweeps.scheduler import Dask

    with closing(Dask("local", 1)) as workers:
        server = workers.client.cluster.scheduler.http_server
        places = {found.getsockname()[0] for found in server._sockets.values()}
        assert places == {"127.0.0.1"} and "http://127.0.0.1:" in workers.notes[0]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_workers_of_this_machine_keep_their_memory(monkeypatch, tmp_path):
    """Their settings of glibc are there when the process begins from which they are forked. A variable of the
    environment wins. What lies in the folder of the run is not imported by that process, and no variable stays here."""
    from multiprocessing import forkserver

    from iosim.sweeps.run import executor_of

    (tmp_path / "distributed.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "PYTHONSAFEPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1048576")
    forkserver._forkserver._stop()  # that of other tests
    executor_of(1, "local").close()
    server = forkserver._forkserver._forkserver_pid
    begun = dict(line.split("=", 1) for line in Path(f"/proc/{server}/environ").read_text().split("\0") if line)
    forkserver._forkserver._stop()
    assert begun["MALLOC_TRIM_THRESHOLD_"] == "1073741824" and begun["MALLOC_MMAP_THRESHOLD_"] == "1048576"
    assert begun["OMP_NUM_THREADS"] == "1" and not (tmp_path / "imported").exists()
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_workers_of_this_machine_are_forked_from_one_process_that_never_gets_ctrl_c(monkeypatch):
    from multiprocessing import forkserver

    from iosim.sweeps import executors
    from iosim.sweeps.run import executor_of

    monkeypatch.setattr(executors, "PRELOADED", [*executors.PRELOADED, "colorsys"])
    forkserver._forkserver._stop()  # that of other tests

    def about():
        blocked = int(Path("/proc/self/status").read_text().split("SigBlk:")[1].split()[0], 16)
        return os.getppid(), bool(blocked & 1 << signal.SIGINT - 1), "colorsys" in sys.modules

    with closing(executor_of(2, "local")) as workers:
        workers.client.wait_for_workers(2, 60)
        found = list(workers.client.run(about).values())
    assert len(found) == 2 and len({parent for parent, _, _ in found}) == 1 and found[0][0] != os.getpid()
    assert all(blocked and imported for _, blocked, imported in found)
