"""Fixtures for all tests, and the marks `needs`, `long` and `early` (CONTRIBUTING.md says which command runs what)."""

import gc
import json
import os
import signal
from functools import cache
from importlib.util import find_spec

import nvrtc
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings
from wings_here import skip_if_gone

from iosim.commands.cli import main

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # no test fails because the machine is busy

gc.disable()  # until all tests are found: they stay, so there is nothing to collect
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: its threads would mostly wait
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background, and all that it starts, ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup does so
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # dozens of tests start `python -m iosim`: it is compiled once


def pytest_configure(config):
    """Keep the order of the files under `--dist loadscope`. By itself xdist starts with those that have most tests."""
    config.option.loadscopereorder = False


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000)  # tests make little that only the collector finds


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark tests that need more than the extra `test` installs as long, and skip them if that is missing. Put early
    tests first."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
    for item in items:
        for mark in list(item.iter_markers("needs")):
            item.add_marker(pytest.mark.long)
            if why := missing(*mark.args):
                item.add_marker(pytest.mark.skip(reason=why))


@cache
def missing(name):
    """Why a test cannot run; an empty string if it can."""
    if name == "nvrtc":
        return nvrtc.WHY_NOT
    return "" if find_spec(name) else f"{name} is not installed: pip install iosim[test-all]"


@pytest.fixture
def iosim():
    """Run a command line in this process: iosim("count", "--N", 8) -> click's result. Where the wing of its command was
    deleted (tests/house/test_deletable.py), the test is skipped."""

    def run(*args):
        skip_if_gone(args)
        return CliRunner().invoke(main, [str(a) for a in args], prog_name="iosim")

    return run


@pytest.fixture
def ask(iosim):
    """Run a command line with --json: ask("count", "--N", 8) -> the parsed JSON. The exit code must be 0."""

    def run(*args):
        result = iosim(*args, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="session", autouse=True)
def quiet():
    """No test opens a browser on the screen. On a busy machine no line of progress comes between those of an answer;
    tests of progress ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iosim.progress.QUIET_SECONDS_OF_LINES", 1e6)
        patch.setattr("webbrowser.open", lambda url: True)
        yield
