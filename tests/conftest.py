import json

import pytest
from click.testing import CliRunner

from iosim.cli import main


@pytest.fixture
def iosim():
    """Run a command line in this process: iosim("count", "--N", 8) -> click's result."""

    def run(*args):
        return CliRunner().invoke(main, [str(a) for a in args], prog_name="iosim")

    return run


@pytest.fixture
def ask(iosim):
    """The same, as parsed JSON; the exit code must be 0."""

    def run(*args):
        result = iosim(*args, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run
