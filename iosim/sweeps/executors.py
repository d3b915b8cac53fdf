"""What makes the parts of a sweep: this process, several processes, or Dask (scheduler.py).

An executor begins parts, waits for those that are ready, and ends what it started. `results` is the one loop that gives
it parts. A part from another process comes with what made it, so that no row of another iosim is taken.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from ..errors import CheckError, IosimError
from .ctrl_c import without_ctrl_c
from .identity import Maker, check_maker, is_as_imported, maker_now, maker_of_process, this_maker

if TYPE_CHECKING:
    from .parts import Job

T = TypeVar("T")
AHEAD = 3  # parts begun or ready for each worker, so that memory is bounded and no worker waits
THIS = "this process"
MOST_DEATHS = 3  # deaths of workers that are allowed before any part is made
MEMORY = "memory ran out in {}; give fewer --jobs, or a smaller --part-rows"
DIED = "{} died {} times before a part was made: memory may be short; give fewer --jobs, or a smaller --part-rows"


class Made(NamedTuple):
    """What a job makes of a part, piece by piece: who made it, and with which iosim. It is None for this process, which
    makes the pieces when they are taken."""

    pieces: Iterable[object]
    who: str = THIS
    maker: Maker | None = None


class Later(Protocol):
    """A part that is begun: a future of the standard library or of Dask."""

    def result(self) -> Made: ...


class Executor(ABC):
    """Makes parts of a job while it is `running`."""

    name: str
    """What makes the parts, for messages."""
    say: Callable[[str], object] = staticmethod(lambda note: None)
    """Takes notes for users while parts are made."""
    notes: Sequence[str] = ()
    """What users should know about it."""
    is_of_this_machine = False
    """Whether other processes of this machine make the parts: files that they write are then read here."""

    @abstractmethod
    def running(self, job: Job[object]) -> AbstractContextManager[None]:
        """Prepare everything for the parts of a job, and end it after the `with` block."""

    @abstractmethod
    def submit(self, part: int) -> Later:
        """Begin a part."""

    def ready(self, begun: Collection[Later]) -> Collection[Later]:
        """The parts that are ready. It waits until there is one."""
        return begun

    def ahead(self) -> int:
        """The number of parts that may be begun before their results are taken."""
        return 1

    def close(self) -> None:
        """End what the executor started."""
        return


def results(executor: Executor, job: Job[T], parts: Iterable[int], ordered: bool = True) -> Generator[T, None, None]:
    """The pieces that a job makes of all parts: in the order of the parts, or in that in which they are ready.

    Parts whose worker died are begun again. Raises CheckError if workers die again and again, and MissingError for a
    part of another iosim.
    """
    todo, waiting, begun, deaths = iter(parts), list[int](), dict[int, Later](), 0
    this_maker()  # before anything is made, so that files that change later are found
    with executor.running(job):
        while True:
            waiting += islice(todo, max(0, executor.ahead() - len(begun) - len(waiting)))
            try:
                begun |= {part: executor.submit(part) for part in waiting}
                if not begun:
                    return
                part = first_ready(executor, dict(islice(begun.items(), 1)) if ordered else begun)
                made = begun[part].result()
            except MemoryError:
                raise CheckError(MEMORY.format(executor.name)) from None
            except BrokenExecutor:
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise CheckError(DIED.format(executor.name, deaths)) from None
                waiting, begun = list(dict.fromkeys([*begun, *waiting])), {}
                continue
            del begun[part]
            waiting, deaths = [], 0
            for piece in cast("Iterable[T]", made.pieces):
                check_maker(made.who, made.maker or maker_now())
                yield piece


def first_ready(executor: Executor, begun: dict[int, Later]) -> int:
    """The first part that is ready."""
    ready = executor.ready(begun.values())
    return next(part for part, later in begun.items() if later in ready)


def prepared(job: Job[object]) -> IosimError | None:
    """Prepare this process for the parts of a job. The error for which it can make none is that of its first part:
    raised here it would only end the process."""
    try:
        job.prepare()
    except IosimError as error:
        return error
    is_as_imported()
    return None


def made_by(who: str, job: Job[object], part: int) -> Made:
    """All pieces of a part, to be sent to another process."""
    return Made(list(job.pieces(part)), who, maker_of_process())


# ---------------------------------------------------------------- this process


class Serial(Executor):
    """Makes parts in this process, one after the other."""

    name = THIS

    @contextmanager
    def running(self, job: Job[object]) -> Iterator[None]:
        self.job = job
        yield

    def submit(self, part: int) -> Later:
        """A part whose pieces are made when they are taken."""
        later: Future[Made] = Future()
        later.set_result(Made(self.job.pieces(part)))
        return later


# ---------------------------------------------------------------- processes of this machine

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # of local workers of Dask
PRELOADED = ["distributed"]  # and NumPy with it; not iosim, whose files each worker reads when it begins
OF_WORKERS = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25), "OMP_NUM_THREADS": "1"}
"""Variables of workers of this machine, two of them for glibc. With its own settings it gives memory back after each
array, and a sweep takes three times as long. Each worker has one thread. A variable of the environment wins."""


@contextmanager
def of_workers(**more: str) -> Iterator[None]:
    """Set the variables of workers of this machine, which they take over when they start."""
    added = {name: value for name, value in {**OF_WORKERS, **more}.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def begin_fork_server() -> None:
    """Start the process from which local workers of Dask are forked: what they import is then imported once, while this
    process imports it as well. None of them gets Ctrl-C, or imports from the folder of this run."""
    if START_METHOD != "forkserver":
        return
    from multiprocessing import forkserver, set_forkserver_preload

    set_forkserver_preload(PRELOADED)
    with without_ctrl_c() as pressed, of_workers(PYTHONSAFEPATH="1"):
        forkserver.ensure_running()
    if pressed:
        raise KeyboardInterrupt


class Pipe(Protocol):
    """The end of a pipe from which nothing is ever read."""

    def poll(self, timeout: float | None) -> bool: ...


class Processes(Executor):
    """Makes parts in processes of this machine. They end when this process ends, for whatever reason."""

    is_of_this_machine = True

    def __init__(self, jobs: int):
        self.jobs, self.name = jobs, f"processes of --jobs {jobs}"

    @contextmanager
    def running(self, job: Job[object]) -> Iterator[None]:
        from multiprocessing import get_context

        context = get_context("spawn")
        hold, held = context.Pipe(duplex=False)
        self.new_pool = lambda: ProcessPoolExecutor(self.jobs, context, begin, (hold, job, self.name))
        self.pool = self.new_pool()
        try:
            yield
        finally:
            self.pool.shutdown(wait=False, cancel_futures=True)
            held.close()

    def submit(self, part: int) -> Later:
        """Begin a part, with new processes if one has died. They never get Ctrl-C, also while they start."""
        with without_ctrl_c() as pressed, of_workers():
            later = self.begun(part)
        if pressed:
            raise KeyboardInterrupt
        return later

    def begun(self, part: int) -> Later:
        try:
            return cast("Later", self.pool.submit(make, part))
        except BrokenExecutor:
            self.pool = self.new_pool()
            return cast("Later", self.pool.submit(make, part))

    def ready(self, begun: Collection[Later]) -> Collection[Later]:
        return wait(cast("Collection[Future[Made]]", begun), return_when=FIRST_COMPLETED).done

    def ahead(self) -> int:
        return AHEAD * self.jobs


JOBS: list[tuple[Job[object], str, IosimError | None]] = []  # the job of this process, who makes it, why it cannot


def begin(hold: Pipe, job: Job[object], who: str) -> None:
    """Prepare this process. It ignores Ctrl-C, and ends when its parent ends."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(hold,), daemon=True).start()
    JOBS[:] = [(job, who, prepared(job))]


def end_with(hold: Pipe) -> None:
    """End this process when the other end of a pipe is closed. The system closes it when the parent dies."""
    hold.poll(None)
    os._exit(1)


def make(part: int) -> Made:
    """A part of the job of this process."""
    ((job, who, why_not),) = JOBS
    if why_not:
        raise why_not
    return made_by(who, job, part)
