"""What makes the parts of a sweep: this process, or an executor of the standard library's kind.

That is a pool of processes, or the workers of Dask (dask_workers.py). A process with another iosim, or with other
files than those of the sweep's start, makes no part.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from ..errors import CheckError
from .inputs import Maker, check_maker, this_maker

if TYPE_CHECKING:
    from .parts import Work

T = TypeVar("T")
Task = Callable[["Work", int], Iterator[T]]
"""What makes something of a part, piece by piece."""
AHEAD = 3  # parts begun or ready for each worker, so that memory is bounded and no worker waits
MOST_DEATHS = 3  # deaths of processes that are allowed before any part is made
SECONDS_TO_LOOK, SECONDS_WITHOUT_WORKERS = 5, 300
MEMORY = "memory ran out in {}; give fewer --jobs, or a smaller --part-rows"
DIED = "{} died {} times before a part was made: memory may be short; give fewer --jobs, or a smaller --part-rows"
GONE = "{} is gone; start it again, then the same line with --resume continues a sweep to a folder"
ALONE = "{} has no worker any more; iosim waits {} s for another"
LEFT = "{} had no worker for {} s; start one, then the same line with --resume continues"


class Team(NamedTuple):
    """Processes that make parts: their name in messages, a function that gives an executor, one that gives their
    number, and one that takes notes for users."""

    name: str
    executor: Callable[[], Executor]
    size: Callable[[], int]
    say: Callable[[str], object] = lambda note: None


def results(team: Team | None, task: Task[T], work: Work, parts: Iterable[int], ordered: bool = True) -> Generator[T]:
    """What a task makes of all parts: in the order of the parts, or in that in which they are ready.

    Parts whose process died are begun again.
    """
    if team is None:
        for part in parts:
            yield from used(task, work, part)
        return
    begin = partial(make, this_maker(), pickle.dumps((task, work)))
    todo, waiting, begun, deaths = iter(parts), list[int](), dict[Future[list[T]], int](), 0
    executor = team.executor()
    try:
        while True:
            try:
                waiting += islice(todo, max(0, AHEAD * team.size() - len(begun) - len(waiting)))
                while waiting:
                    with without_ctrl_c():
                        begun[cast("Future[list[T]]", executor.submit(begin, waiting[0]))] = waiting[0]
                    del waiting[0]
                if not begun:
                    return
                ready = first_ready(team, [*begun][:1] if ordered else begun)
                made = ready.result()
            except MemoryError:
                raise CheckError(MEMORY.format(team.name)) from None
            except (CancelledError, OSError):  # a part's own errors of the file system are InputErrors
                raise CheckError(GONE.format(team.name)) from None
            except BrokenExecutor:
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise CheckError(DIED.format(team.name, deaths)) from None
                waiting, begun, executor = [*begun.values(), *waiting], {}, team.executor()
                continue
            del begun[ready]
            deaths = 0
            yield from made
    finally:
        for future in begun:
            future.cancel()
        with suppress(OSError):
            executor.shutdown(wait=False)


def first_ready(team: Team, begun: Collection[Future[T]]) -> Future[T]:
    """A part that is ready. While there is no worker it says so, and waits so many seconds for another."""
    alone_since = None
    while not (ready := wait_for(begun, SECONDS_TO_LOOK, FIRST_COMPLETED).done):
        if team.size():
            alone_since = None
        elif alone_since is None:
            alone_since = monotonic()
            team.say(ALONE.format(team.name, SECONDS_WITHOUT_WORKERS))
        elif monotonic() - alone_since > SECONDS_WITHOUT_WORKERS:
            raise CheckError(LEFT.format(team.name, SECONDS_WITHOUT_WORKERS))
    return next(future for future in begun if future in ready)


# ---------------------------------------------------------------- in the process that makes a part


def make(maker: Maker, text: bytes, part: int) -> list[object]:
    """What a task makes of a part. Raises MissingError if this process may not make it."""
    check_maker(f"process {os.getpid()} of {socket.gethostname()}", this_maker(), maker)
    task, work = unpacked(text)
    return list(used(task, work, part))


@lru_cache(maxsize=2)
def unpacked(text: bytes) -> tuple[Task[object], Work]:
    """(a task, the work), after this process has prepared itself for it."""
    task, work = cast("tuple[Task[object], Work]", pickle.loads(text))
    work.inputs.prepare()
    return task, work


def used(task: Task[T], work: Work, part: int) -> Iterator[T]:
    """What a task makes of a part, with the hardware files of the sweep's start."""
    with work.inputs.in_use():
        yield from task(work, part)


# ---------------------------------------------------------------- processes of this machine


def processes(jobs: int) -> Team:
    """Processes of this machine. They end when this process ends, for whatever reason."""
    from multiprocessing import get_context

    context = get_context("spawn")
    return Team(f"processes of --jobs {jobs}", lambda: ProcessPoolExecutor(jobs, context, begin), lambda: jobs)


def begin() -> None:
    """Prepare a process: it has one thread, never gets Ctrl-C, and ends when its parent ends."""
    import signal
    import threading

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End this process when its parent has ended."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """A block whose new threads and processes never get Ctrl-C, which a terminal sends to all. This process gets it at
    the end of the block."""
    if sys.platform == "win32":
        yield
        return
    import signal
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # the thread that begins it gets Ctrl-C afterwards
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
