"""Schedulers and workers of Dask, forked from a process that has imported it: they start in less time.

Run as a program, this file is that process. Each line that it reads asks for one of them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache


class Forked:
    """A process, with what is used of a Popen."""

    def __init__(self, pid):
        self.pid = pid

    def kill(self):
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        while os.path.exists(f"/proc/{self.pid}"):
            time.sleep(0.01)


def forked(command, args, cwd, env):
    """A process that runs a command line of Dask."""
    asked = {"command": command, "args": [*map(str, args)], "cwd": str(cwd), "env": {**env}}
    server().stdin.write(json.dumps(asked) + "\n")
    server().stdin.flush()
    return Forked(int(server().stdout.readline()))


@cache
def server():
    """The process from which others are forked. It ends when this process ends."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve():
    import dask
    import pandas  # noqa: F401 - workers need it for iosim
    from distributed.cli import dask_scheduler, dask_worker

    mains = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        asked = json.loads(line)
        if pid := os.fork():
            print(pid, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        os.environ.clear()
        os.environ.update(asked["env"])
        os.chdir(asked["cwd"])
        sys.path[0:1] = [asked["cwd"], *filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))]
        dask.config.refresh()
        mains[asked["command"]](asked["args"], prog_name="dask")


if __name__ == "__main__":
    serve()
