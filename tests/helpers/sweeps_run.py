"""Sweeps in processes of their own, and schedulers of Dask with workers, for tests."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

from forks import Forked
from paths import ROOT

HEAD = ("sweep", "--N", "64:1024:+64", "--d", "8:32:+8", "--schedule", "flash1,flash2", "--mask", "dense;causal")
GRID = (*HEAD, "--M", "1KB:17KB:+1KB")
FEW = (*HEAD, "--M", "1KB:5KB:+1KB", "--tiles", "16x16")
FEW_ROWS = 250  # of a chunk: 5 parts
SMALLEST = ("--part-rows", 1)  # parts as small as they can be: a chunk
MANY_M = (*HEAD, "--M", "1KB:129KB:+1KB")
LARGE = (*MANY_M, "--tiles", "16x16", *SMALLEST)  # some parts, even where chunks are large
SLOW = (*MANY_M, *SMALLEST)  # the same rows with a search each, so that it can be met in the middle
LONG = ("sweep", "--N", "64:8192:+64", "--d", "8:32:+8", "--schedule", "flash1,flash2", "--M", "1KB:129KB:+1KB")


def run(*args, program=("-m", "iosim"), **settings):
    """A process that runs a command line."""
    line = [sys.executable, *program, *map(str, args)]
    return subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def gathered(iosim, folder, tmp_path):
    """The bytes of the joined parts of a folder."""
    out = tmp_path / "out.csv"
    result = iosim("sweep", "--gather", folder, "-o", out)
    assert result.exit_code == 0, result.output
    return out.read_bytes()


def begun(folder, *more, **settings):
    """A process that runs LONG into a folder, in the middle: after some parts."""
    process = run(*LONG, *SMALLEST, *more, "-o", f"{folder}/", **settings)
    until(lambda: process.poll() is not None or len([*folder.glob("part-*")]) > 1)
    assert process.poll() is None
    return process


@contextmanager
def ended(*processes):
    """Ends processes at the end."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def dask(command, *args, cwd=ROOT, env=os.environ):
    """A process that runs a command line of Dask."""
    return Forked("dask", (command, *args, "--no-dashboard"), cwd, env)


@contextmanager
def scheduler(tmp_path, *more, **settings):
    """(the address of a scheduler, its process)."""
    file = tmp_path / "scheduler.json"
    line = ("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file, *more)
    with ended(dask(*line, **settings)) as (process,):
        until(lambda: file.exists() and file.read_text().endswith("}"))
        yield json.loads(file.read_text())["address"], process


def worker(address, tmp_path, *more, cwd=ROOT, **settings):
    """A worker of a scheduler."""
    options = ("--nthreads", 1, "--no-nanny", "--local-directory", tmp_path / "workers")
    return dask("worker", address, *options, *more, cwd=cwd, **settings)


def until(true):
    """Wait until something is true."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def cluster_of(tmp_path):
    """(the address of a scheduler, its process, its two workers)."""
    with scheduler(tmp_path) as (address, process), ended(*(worker(address, tmp_path) for _ in range(2))) as workers:
        yield address, process, workers
