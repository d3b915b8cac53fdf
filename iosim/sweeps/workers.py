"""Workers that make the parts of a sweep: this process, or processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

from ..errors import CheckError

if TYPE_CHECKING:
    from .parts import Task, Work

AHEAD = 3  # parts begun or ready for each worker, so that memory is bounded and no worker waits
MOST_DEATHS = 3  # deaths of workers that are allowed before any part is made

DIED = (
    "processes of --jobs {} died {} times before a part was made: memory may be short; give fewer --jobs, or a smaller "
    "--part-rows"
)


class Later(Protocol):
    """A result that comes later: a future of the standard library or of Dask."""

    def result(self) -> object: ...


class Pipe(Protocol):
    """The end of a pipe from which nothing is ever read."""

    def poll(self, timeout: float | None) -> bool: ...


class Workers(Protocol):
    """Makes parts with a task. Results come in the order of parts if `ordered`, else in the order of completion."""

    def run(self, task: Task, work: Work, parts: Iterable[int], ordered: bool) -> Iterator[object]: ...


class Serial:
    """Makes parts in this process."""

    def run(self, task: Task, work: Work, parts: Iterable[int], ordered: bool) -> Iterator[object]:
        for part in parts:
            yield task(work, part)


class Processes:
    """Makes parts in processes of this machine. They end when this process ends, for whatever reason.

    If one is killed, the parts that were not finished are made again.
    """

    def __init__(self, jobs: int):
        self.jobs = jobs

    def ahead(self) -> int:
        """The number of parts that may be begun before their results are taken."""
        return self.jobs * AHEAD

    def run(self, task: Task, work: Work, parts: Iterable[int], ordered: bool) -> Iterator[object]:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        hold, held = context.Pipe(duplex=False)
        todo, pending, deaths = iter(parts), dict[int, "Later | None"](), 0
        try:
            while True:
                pool = ProcessPoolExecutor(self.jobs, context, begin, (hold, task, work))
                try:
                    for result in results(submit_to(pool), first_of, todo, pending, self.ahead, ordered):
                        deaths = 0
                        yield result
                    return
                except BrokenExecutor:
                    deaths += 1
                    if deaths == MOST_DEATHS:
                        raise CheckError(DIED.format(self.jobs, deaths)) from None
                    pending = {part: None for part in pending}
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        finally:
            held.close()


def submit_to(pool: ProcessPoolExecutor) -> Callable[[int], Later]:
    """A function that submits a part to a pool."""
    return lambda part: cast("Later", pool.submit(make, part))


def first_of(futures: Iterable[Later]) -> Iterable[Later]:
    """The futures that are ready. It waits until there is one."""
    return wait(cast("Iterable[Future[object]]", futures), return_when=FIRST_COMPLETED).done


def results(
    submit: Callable[[int], Later], ready: Callable[[Iterable[Later]], Iterable[Later]], todo: Iterator[int],
    pending: dict[int, Later | None], ahead: Callable[[], int], ordered: bool,
) -> Iterator[object]:  # fmt: skip
    """The results of all parts. `pending` are the parts that were begun and whose results are not taken yet, in order.
    `ahead()` is the number of them that is allowed now."""
    while True:
        for part in islice(todo, max(0, ahead() - len(pending))):
            pending[part] = None
        for part, future in pending.items():
            if future is None:
                pending[part] = submit(part)
        begun = {future: part for part, future in pending.items() if future is not None}
        if not begun:
            return
        first = next(iter(begun if ordered else ready(begun)))
        result = first.result()
        del pending[begun[first]]
        yield result


# ---------------------------------------------------------------- in a process

MADE: list[tuple[Task, Work]] = []  # the task and the work of this process


def begin(hold: Pipe, task: Task, work: Work) -> None:
    """Prepare this process. It runs the files of --load, ignores Ctrl-C, and ends when its parent ends."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(hold,), daemon=True).start()
    for source in work.sources:
        source.run()
    MADE[:] = [(task, work)]


def end_with(hold: Pipe) -> None:
    """End this process when the other end of a pipe is closed. The system closes it when the parent dies."""
    hold.poll(None)
    os._exit(1)


def make(part: int) -> object:
    """The result of a part."""
    ((task, work),) = MADE
    return task(work, part)
