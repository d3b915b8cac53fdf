"""Ctrl-C, which a terminal sends to all processes: those that count never get it, and this one ends them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def without_ctrl_c() -> Iterator[list[int]]:
    """A block whose new threads and processes never get Ctrl-C. If it was pressed, the list is not empty at the end."""
    pressed = list[int]()
    in_main_thread = threading.current_thread() is threading.main_thread()  # only there can a handler be set
    if sys.platform == "win32" or not in_main_thread:
        yield pressed
        return
    resource_tracker.ensure_running()  # the thread that begins it gets Ctrl-C afterwards
    handler = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield pressed
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
