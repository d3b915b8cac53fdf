"""Workers of Dask, either of a scheduler that the user started anywhere or of this machine. Imports distributed."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast

try:
    import dask
    import distributed
    from distributed.comm import get_address_host_port
except ImportError:
    from ..errors import MissingError

    raise MissingError("--scheduler needs Dask: pip install 'iosim[dist]'; --jobs works without it") from None

from ..errors import CheckError, InputError, IosimError, MissingError
from ..version import __version__
from .ctrl_c import without_ctrl_c
from .executors import AHEAD, START_METHOD, Executor, Later, Made, made_by, prepared
from .identity import differs
from .parts import Job, WritePart

if TYPE_CHECKING:
    from distributed.client import VersionsDict

    from .place import Place

    Versions = Mapping[str, Mapping[str, object]]
    """What Dask says of a process: {"host": {...}, "packages": {name: version}}."""

SECONDS_TO_CONNECT, SECONDS_FOR_WORKERS = 10, 30
SECONDS_TO_LOOK, SECONDS_WITHOUT_WORKERS = 5, 300
SECONDS_TO_ASK_AGAIN = (0.2, 1.0, 5.0)  # until the scheduler knows that a worker died
SETTINGS = {
    "distributed.worker.multiprocessing-method": START_METHOD,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}
"""Settings of a local cluster. Dask's profile would stop each worker 100 times a second, and its tick 50 times."""
TLS = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__CLIENT__CERT and ..__CLIENT__KEY"
LOST = (distributed.CancelledError, OSError)  # a part's own errors of the file system are InputErrors
NO_WORKER = "the scheduler at {} has no worker after {} s: dask worker {} starts one"
GONE = "the scheduler at {} is gone; start it again, then the same line with --resume continues a sweep to a folder"
ALONE = "the scheduler at {} has no worker any more; iosim waits {} s for another"
LEFT = "the scheduler at {} had no worker for {} s; start one, then the same line with --resume continues"
NOT_STARTED = "Dask could not start {} workers on this machine: {}; --jobs works without Dask"
KILLED = "a part was begun {} times, and its worker died each time: memory may be short; give a smaller --part-rows"


class Dask(Executor):
    """Workers of a scheduler: `local` for `jobs` processes of this machine, or an address as tcp://HOST:8786.

    If a worker is killed, nothing is lost: the scheduler gives its parts to others. Workers may come and go.
    """

    def __init__(self, address: str, jobs: int | None = None):
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # one message reports it all
        warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)
        self.address, self.name, self.job_name = address, f"the scheduler at {address}", ""
        self.own_workers = (jobs or os.cpu_count() or 1) if address == "local" else 0
        self.is_of_this_machine = bool(self.own_workers)
        self.client = local(self.own_workers) if self.own_workers else connected(address)
        try:
            self.client.wait_for_workers(1, SECONDS_FOR_WORKERS)
            check_packages(**cast("VersionsDict", self.client.get_versions()))
            check_iosim(self.client)
            if "dashboard" in self.client.scheduler_info().get("services", {}):
                self.notes = [f"dashboard at {self.client.dashboard_link}"]
        except TimeoutError:
            self.close()
            raise MissingError(NO_WORKER.format(address, SECONDS_FOR_WORKERS, address)) from None
        except BaseException:
            self.close()
            raise

    def ahead(self) -> int:
        """The number of parts that may be begun: more, when workers come."""
        return AHEAD * max(1, sum(self.client.nthreads().values()))

    @contextmanager
    def running(self, job: Job[object]) -> Iterator[None]:
        """Give the job to all workers, also to those that come later. They forget it at the end."""
        name, lost = f"iosim-{os.urandom(8).hex()}", False
        try:
            if isinstance(job.task, WritePart):
                self.ask_all(partial(self.check_folder, job.task.place))
            self.ask_all(partial(self.client.register_plugin, Begin(job), name=name))
            self.job_name = name
            yield
        except distributed.KilledWorker as error:
            raise CheckError(KILLED.format(error.allowed_failures + 1)) from None
        except LOST:
            lost = True
            raise CheckError(GONE.format(self.address)) from None
        finally:
            if self.job_name == name and not lost:
                with suppress(*LOST):  # a worker that dies now forgets the job as well
                    self.client.unregister_worker_plugin(name)

    def ask_all(self, ask: Callable[[], None]) -> None:
        """Ask all workers, and those that are left if one dies meanwhile. Dask tells both that death and the loss of
        its scheduler by an OSError."""
        for pause in SECONDS_TO_ASK_AGAIN:
            try:
                return ask()
            except OSError:
                if self.client.status != "running":
                    raise
                sleep(pause)
        ask()

    def submit(self, part: int) -> Later:
        return self.client.submit(make, self.job_name, part, pure=False)

    def ready(self, begun: Collection[Later]) -> Collection[Later]:
        """The parts that are ready. If there is no worker, it says so, and waits so many seconds for another."""
        alone_since = None
        while True:
            with suppress(TimeoutError):
                return distributed.wait(list(begun), SECONDS_TO_LOOK, "FIRST_COMPLETED").done
            if self.client.nthreads():
                alone_since = None
            elif alone_since is None:
                alone_since = monotonic()
                self.say(ALONE.format(self.address, SECONDS_WITHOUT_WORKERS))
            elif monotonic() - alone_since > SECONDS_WITHOUT_WORKERS:
                raise CheckError(LEFT.format(self.address, SECONDS_WITHOUT_WORKERS))

    def close(self) -> None:
        """Disconnect from the scheduler, and end it if this process started it."""
        if self.own_workers:
            with suppress(TimeoutError):  # Dask cannot end a worker that is starting again after its death
                self.client.wait_for_workers(self.own_workers, SECONDS_TO_CONNECT)
        self.client.close()

    def check_folder(self, place: Place) -> None:
        """Raise InputError if a worker cannot write into a folder of this machine."""
        for worker, found in self.client.run(partial(probe, place)).items():
            name, why = found
            if why or place.size(name) is None:
                allowed, why = "a folder that all workers share and can write", why or "it writes to another disk"
                raise InputError("-o", place.path, allowed, f"worker {worker}: {why}")
            place.remove(name)


def check_packages(client: Versions, scheduler: Versions, workers: Mapping[str, Versions]) -> None:
    """Raise MissingError for a scheduler or a worker with another version of Python or distributed than this
    process."""
    own = versions_of(client)
    for who, about in {"the scheduler": scheduler, **workers}.items():
        for name, theirs in versions_of(about).items():
            if theirs != own[name]:
                raise differs(named(who), name, theirs, own[name])


def versions_of(found: Versions) -> dict[str, str]:
    """The versions of packages that must be equal in all processes."""
    python = ".".join(str(found["host"]["python"]).split(".")[:2])
    return {"Python": python, "distributed": str(found["packages"]["distributed"])}


def check_iosim(client: distributed.Client) -> None:
    """Raise MissingError for a scheduler or a worker with another version of iosim, or with none."""

    def version() -> str:  # sent as code, because a process may lack this file
        try:
            from iosim import __version__ as found
        except ImportError:
            return "missing"
        return found

    for who, theirs in {"the scheduler": client.run_on_scheduler(version), **client.run(version)}.items():
        if theirs != __version__:
            raise differs(named(who), "iosim", str(theirs), __version__)


def named(who: str) -> str:
    """The scheduler, or a worker with its address, in messages."""
    return who if who.startswith("the ") else f"worker {who}"


def local(jobs: int) -> distributed.Client:
    """A client of a scheduler and workers of this machine. Ctrl-C ends it when they have started."""
    with without_ctrl_c() as pressed, dask.config.set(SETTINGS):
        try:
            client = distributed.Client(
                n_workers=jobs,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                direct_to_workers=True,  # rows do not pass through the scheduler
            )
        except Exception as error:  # of a preload, of a port, of Dask itself
            raise MissingError(NOT_STARTED.format(jobs, reason(error))) from None
    if pressed:
        client.close()
        raise KeyboardInterrupt
    return client


def reason(error: BaseException) -> str:
    """The first line of the error that is the reason for another."""
    while error.__cause__ is not None:
        error = error.__cause__
    return brief(error)


def connected(address: str) -> distributed.Client:
    """The client of a running scheduler."""
    allowed = "local, or the address of a running scheduler as tcp://HOST:8786"
    try:
        get_address_host_port(address, strict=True)  # checked first: a client prints more when deleted
        return distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except TypeError:  # that is what Dask raises
        raise InputError("--scheduler", address, f"{allowed}; for tls:// set {TLS}", "docs/scale.md says how") from None
    except (OSError, ValueError) as error:
        raise InputError("--scheduler", address, allowed, f"{brief(error)}; dask scheduler starts one") from None


def probe(place: Place) -> tuple[str, str]:
    """(the file that a worker wrote into a folder, the reason if it could not)."""
    name = f"_part-0.probe.{os.urandom(4).hex()}.part"
    try:
        place.write_text(name, name)
    except InputError as error:
        return name, error.hint
    return name, ""


def brief(error: BaseException) -> str:
    """The first line of an error, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


class Begin(distributed.WorkerPlugin):  # type: ignore[misc]
    """Prepares each worker, also those that come later."""

    def __init__(self, job: Job[object]):
        self.job = job
        self.why_not: IosimError | None = None

    def setup(self, worker: object) -> None:
        self.why_not = prepared(self.job)


def make(name: str, part: int) -> Made:
    """A part of a job. Runs on a worker."""
    worker = distributed.get_worker()
    begun = cast("Begin", worker.plugins[name])
    if begun.why_not:
        raise begun.why_not
    return made_by(named(worker.address), begun.job, part)
