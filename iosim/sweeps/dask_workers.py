"""Workers of Dask, of a scheduler that the user started anywhere or of this machine. Imports distributed."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

try:
    import distributed
except ImportError:
    from ..errors import MissingError

    raise MissingError("--dask needs Dask: pip install 'iosim[dist]'; --jobs works without it") from None

from ..errors import CheckError, InputError, MissingError
from .executors import Team, without_ctrl_c
from .inputs import Maker, check_maker, this_maker

SECONDS_TO_CONNECT, SECONDS_FOR_WORKERS = 10, 30
TLS = (
    "for tls:// set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__CLIENT__CERT and ..__CLIENT__KEY: docs/scale.md says how"
)
ADDRESS = "local, or the address of a running scheduler as tcp://HOST:8786"
NO_WORKER = "the scheduler at {} has no worker after {} s: dask worker {} starts one"
NOT_STARTED = "Dask could not start {} workers on this machine: {}; --jobs works without Dask"
KILLED = "a part was begun {} times, and its worker died each time: memory may be short; give a smaller --part-rows"


@contextmanager
def workers(address: str, jobs: int | None, say: Callable[[str], object]) -> Iterator[Team]:
    """Workers of a scheduler: `local` for `jobs` processes of this machine, or an address as tcp://HOST:8786.

    If a worker is killed, the scheduler gives its parts to others. Workers may come and go.
    """
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # one message reports it all
    with closing(local(jobs or os.cpu_count() or 1) if address == "local" else connected(address)) as client:
        try:
            client.wait_for_workers(1, SECONDS_FOR_WORKERS)
        except TimeoutError:
            raise MissingError(NO_WORKER.format(address, SECONDS_FOR_WORKERS, address)) from None
        check_workers(client)
        if "dashboard" in client.scheduler_info().get("services", {}):
            say(f"dashboard at {client.dashboard_link}")
        try:
            yield Team(
                f"the scheduler at {address}",
                lambda: client.get_executor(pure=False),
                lambda: sum(client.nthreads().values()),
                say,
            )
        except distributed.KilledWorker as error:
            raise CheckError(KILLED.format(error.allowed_failures + 1)) from None


def check_workers(client: distributed.Client) -> None:
    """Raise MissingError for a worker with another iosim than this process, or with none. Workers that come later are
    refused when they make a part."""
    for who, theirs in client.run(this_maker, on_error="return").items():
        if isinstance(theirs, Maker):
            check_maker(f"worker {who}", theirs, this_maker())
        elif not isinstance(theirs, OSError):  # of one that died meanwhile
            raise MissingError(f"worker {who} has another iosim, or none: {brief(theirs)}; install the same there")


def local(jobs: int) -> distributed.Client:
    """A client of a scheduler and workers of this machine, which end with it."""
    client = None
    try:
        with without_ctrl_c():
            client = distributed.Client(
                n_workers=jobs,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                direct_to_workers=True,  # rows do not pass through the scheduler
            )
        return client
    except KeyboardInterrupt:
        if client is not None:
            client.close()
        raise
    except Exception as error:  # of a preload, of a port, of Dask itself
        for worker in multiprocessing.active_children():  # one that is begun again would outlive this process
            worker.kill()
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
        raise MissingError(NOT_STARTED.format(jobs, brief(error))) from None


def connected(address: str) -> distributed.Client:
    """The client of a running scheduler."""
    try:
        distributed.comm.get_address_host_port(address, strict=True)  # checked first: a client prints more when deleted
        return distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except TypeError:  # that is what Dask raises without a certificate
        raise InputError("--dask", address, ADDRESS, TLS) from None
    except (OSError, ValueError) as error:
        raise InputError("--dask", address, ADDRESS, f"{brief(error)}; dask scheduler starts one") from None


def brief(error: BaseException) -> str:
    """The first line of an error, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0][:80]
