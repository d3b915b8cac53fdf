"""Processes that are forked from a small one that has imported what they run: they start in less time.

The small process runs `serve`. Each line that it reads asks for a new process, or for the end of one.
"""

import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

from paths import ROOT

FORK = multiprocessing.get_context("fork")  # a child begins at once, so a kill at any moment finds it at work
MOST_SECONDS = 120


class Forked:
    """A process that runs a command line of a program, with what is used of a Popen."""

    def __init__(self, program, args, cwd=ROOT, env=os.environ, stderr=os.devnull, **more):
        self.server = server(program)
        asked = {"args": [*map(str, args)], "cwd": str(cwd), "env": {**env}, "stderr": str(stderr), **more}
        self.pid = self.answer(asked)

    def answer(self, asked):
        """What the small process answers."""
        self.server.stdin.write(json.dumps(asked) + "\n")
        self.server.stdin.flush()
        assert select([self.server.stdout], [], [], MOST_SECONDS)[0], f"{asked} takes too long"
        return json.loads(self.server.stdout.readline())

    def kill(self):
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def poll(self):
        """The exit code; None while it runs."""
        return self.answer({"pid": self.pid, "seconds": 0})

    def wait(self):
        """The exit code, after the end."""
        return self.answer({"pid": self.pid, "seconds": None})


@cache
def server(program):
    """The process from which those of a program are forked. It ends when this process ends."""
    line = [sys.executable, "-c", f"import forks; forks.serve({program!r})"]  # not a file, which spawn would run again
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(line, cwd=Path(__file__).parent, text=True, **pipes)


# ---------------------------------------------------------------- the small process


def dask():
    """What runs a scheduler or a worker of Dask."""
    import dask
    from distributed.cli import dask_scheduler, dask_worker

    mains = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}

    def run(command, *args):
        dask.config.refresh()
        mains[command](args, prog_name="dask")

    return run


def iosim():
    """What runs a command line of iosim. All that a sweep imports is imported before."""
    from click.testing import CliRunner

    with suppress(ImportError):
        import fsspec.implementations.local  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    import pandas  # noqa: F401

    from iosim.commands.cli import main
    from iosim.counting import sweep
    from iosim.sweeps import folder

    folder.SECONDS_BETWEEN, folder.SHARE_OF_TIME = 0.02, 1  # so that kills meet manifests with parts

    with TemporaryDirectory() as place:
        line = "sweep --N 64 --d 8 --M 1KB --mask dense;causal --schedule flash1,flash2 -o"
        for args in ([*line.split(), f"{place}/sweep/"], ["sweep", "--gather", f"{place}/sweep/"]):
            assert CliRunner().invoke(main, args).exit_code == 0

    def run(*args, chunk_rows, most_bytes=None):
        """`chunk_rows`: the rows of a chunk. `most_bytes`: those of a file."""
        sweep.CHUNK_ROWS, sys.argv = chunk_rows, ["iosim", *args]
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        main(args=list(args), prog_name="iosim")

    return run


def begin(run, args, cwd, env, stderr, **more):
    """What a new process does first."""
    for stream, file in enumerate((os.devnull, os.devnull, stderr)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[0:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    run(*args, **more)


def serve(program):
    sys.path[0] = str(ROOT)
    run, begun = {"dask": dask, "iosim": iosim}[program](), {}
    gc.freeze()  # so that no search for garbage writes to the memory that all share
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            process = begun[asked["pid"]]
            process.join(asked["seconds"])
            print(json.dumps(process.exitcode), flush=True)
        else:
            process = FORK.Process(target=begin, args=(run,), kwargs=asked)
            process.start()
            begun[process.pid] = process
            print(process.pid, flush=True)
    for process in begun.values():
        process.kill()
