"""Workers of Dask, either of a scheduler that the user started anywhere or of this machine. Imports distributed."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

try:
    import distributed
    from distributed.comm import get_address_host_port
except ImportError:
    from ..errors import MissingError

    raise MissingError("--scheduler needs Dask: pip install 'iosim[dist]'; --jobs works without it") from None

from .. import __version__
from ..errors import CheckError, InputError, MissingError
from .parts import WritePart
from .workers import AHEAD, results

if TYPE_CHECKING:
    from .parts import Task, Work
    from .workers import Later

    class Client(Protocol):
        """The methods of a Dask client that are used."""

        dashboard_link: str
        status: str

        def scheduler_info(self) -> Mapping[str, Mapping[str, object]]: ...
        def wait_for_workers(self, n_workers: int, timeout: float) -> None: ...
        def get_versions(self) -> Mapping[str, Mapping[str, object]]: ...
        def nthreads(self) -> Mapping[str, int]: ...
        def run(self, function: Callable[[], object]) -> dict[str, object]: ...
        def run_on_scheduler(self, function: Callable[[], object]) -> object: ...
        def submit(self, function: Callable[[str, int], object], name: str, part: int, pure: bool) -> Later: ...
        def register_plugin(self, plugin: object, name: str) -> object: ...
        def unregister_worker_plugin(self, name: str) -> object: ...
        def close(self) -> None: ...


SECONDS_TO_CONNECT, SECONDS_FOR_WORKERS = 10, 30
LOST = (distributed.CancelledError, OSError)  # a part's own errors of the file system are InputErrors
NO_WORKER = "the scheduler at {} has no worker after {} s: dask worker {} starts one"
GONE = "the scheduler at {} is gone; start it again, then the same line with --resume continues a sweep to a folder"
KILLED = "a part was begun {} times, and its worker died each time: memory may be short; give a smaller --part-rows"


class Dask:
    """Workers of a scheduler: `local` for `jobs` processes of this machine, or an address as tcp://HOST:8786.

    If a worker is killed, nothing is lost: the scheduler gives its parts to others. Workers may come and go.
    """

    def __init__(self, address: str, jobs: int | None = None):
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # one message reports it all
        warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)
        self.address = address
        self.client = cast("Client", local(jobs) if address == "local" else connected(address))
        try:
            self.client.wait_for_workers(1, SECONDS_FOR_WORKERS)
            check_packages(self.client.get_versions())
            check_iosim(self.client)
        except TimeoutError:
            self.close()
            raise MissingError(NO_WORKER.format(address, SECONDS_FOR_WORKERS, address)) from None
        except BaseException:
            self.close()
            raise

    @property
    def dashboard(self) -> str | None:
        """The address of the dashboard, if there is one."""
        services = self.client.scheduler_info().get("services", {})
        return self.client.dashboard_link if "dashboard" in services else None

    def close(self) -> None:
        """Disconnect from the scheduler, and end it if this process started it."""
        self.client.close()

    def run(self, task: Task, work: Work, parts: Iterable[int], ordered: bool) -> Iterator[object]:
        with self.faults():
            if isinstance(task, WritePart):
                self.check_folder(task.folder)
            with self.begun(Begin(task, work)) as name:
                yield from results(
                    lambda part: self.client.submit(make, name, part, pure=False), ready, iter(parts), {},
                    lambda: AHEAD * max(1, sum(self.client.nthreads().values())), ordered,
                )  # fmt: skip

    @contextmanager
    def begun(self, plugin: Begin) -> Iterator[str]:
        """A name by which workers know the task and the work. They forget it after the `with` block."""
        name = f"iosim-{os.urandom(8).hex()}"
        self.client.register_plugin(plugin, name=name)
        lost = False
        try:
            yield name
        except LOST:
            lost = True
            raise
        finally:
            if not lost:
                self.client.unregister_worker_plugin(name)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turn faults of the scheduler and of workers into one message. Faults of a part stay as they are."""
        try:
            yield
        except distributed.KilledWorker as error:
            raise CheckError(KILLED.format(error.allowed_failures + 1)) from None
        except LOST:
            raise CheckError(GONE.format(self.address)) from None

    def check_folder(self, folder: str) -> None:
        """Raise InputError if a worker cannot write into a folder of this machine."""
        for worker, found in self.client.run(partial(probe, folder)).items():
            path, why = cast("tuple[str, str]", found)
            if why or not os.path.exists(path):
                why = why or "it writes to another disk"
                raise InputError(
                    "-o", folder, "a folder that all workers share and can write", f"worker {worker}: {why}"
                )
            os.unlink(path)


def ready(futures: Iterable[Later]) -> Iterable[Later]:
    """The futures that are ready. It waits until there is one."""
    return cast("Iterable[Later]", distributed.wait(list(futures), return_when="FIRST_COMPLETED").done)


def check_packages(found: Mapping[str, Mapping[str, object]]) -> None:
    """Raise MissingError for a scheduler or a worker with another version of Python or distributed than this process.
    `found` is the answer of Dask's `get_versions`."""
    own = versions_of(found["client"])
    for who, about in (("the scheduler", found["scheduler"]), *found["workers"].items()):
        for name, theirs in versions_of(about).items():
            if theirs != own[name]:
                raise differs(who, name, theirs, own[name])


def versions_of(about: object) -> dict[str, str]:
    """The versions of packages that must be equal in all processes."""
    found = cast("Mapping[str, Mapping[str, object]]", about)
    python = ".".join(str(found["host"]["python"]).split(".")[:2])
    return {"Python": python, "distributed": str(found["packages"]["distributed"])}


def check_iosim(client: Client) -> None:
    """Raise MissingError for a scheduler or a worker with another version of iosim, or with none."""

    def version() -> str:  # sent as code, because a process may lack this file
        try:
            from iosim import __version__ as found
        except ImportError:
            return "missing"
        return found

    for who, theirs in {"the scheduler": client.run_on_scheduler(version), **client.run(version)}.items():
        if theirs != __version__:
            raise differs(who, "iosim", str(theirs), __version__)


def differs(who: str, name: str, theirs: str, own: str) -> MissingError:
    """The error for a process with another version."""
    who = who if who.startswith("the ") else f"worker {who}"
    return MissingError(f"{who} has {name} {theirs}, and this is {name} {own}: install the same there")


def local(jobs: int | None) -> object:
    """A client of a scheduler and workers of this machine."""
    with deaf_to_ctrl_c():
        return distributed.Client(
            n_workers=jobs or os.cpu_count(),
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """A context in which new processes ignore Ctrl-C, so that this process handles it."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def connected(address: str) -> object:
    """The client of a running scheduler."""
    allowed = "local, or the address of a running scheduler as tcp://HOST:8786"
    try:
        get_address_host_port(address, strict=True)  # checked first: a client prints more when deleted
        return distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except (OSError, ValueError) as error:
        raise InputError("--scheduler", address, allowed, f"{brief(error)}; dask scheduler starts one") from None


def probe(folder: str) -> tuple[str, str]:
    """(the file that a worker wrote into a folder, the reason if it could not)."""
    import os

    path = os.path.join(folder, f"part-0.probe.{os.urandom(4).hex()}.part")
    try:
        with open(path, "x") as file:
            file.write(path)
    except OSError as error:
        return path, error.strerror or str(error)
    return path, ""


def brief(error: Exception) -> str:
    """The first line of an error, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


class Begin(distributed.WorkerPlugin):  # type: ignore[misc]
    """Prepares each worker, also those that come later: it gets the task and the work, and runs the files of --load."""

    def __init__(self, task: Task, work: Work):
        self.task, self.work = task, work

    def setup(self, worker: object) -> None:
        for source in self.work.sources:
            source.run()


def make(name: str, part: int) -> object:
    """The result of a part. Runs on a worker."""
    begun = cast("Begin", distributed.get_worker().plugins[name])
    return begun.task(begun.work, part)
