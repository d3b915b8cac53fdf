"""An option of one other command: the fault says the line that this command takes, with what was typed of it."""

import pytest
from wings_here import skip_if_gone

CLAIM = ("--claim", "5.264 TB/s")
BATCH = ("--requests", "32 * 1:65536", "--d", "128", "--hardware", "h100")


@pytest.mark.parametrize(
    "line, there",
    [
        (
            ("roofline", *BATCH, *CLAIM),
            "iosim batch --requests '32 * 1:65536' --d 128 --hardware h100 --claim '5.264 TB/s'",
        ),
        (("roofline", "--N", 4, "--decode", *BATCH), "iosim batch --requests '32 * 1:65536' --d 128 --hardware h100"),
        (
            ("count", "--N", 64, "--d=8", "--causal", "--at-most", "1MB"),
            "iosim tune --N 64 --d=8 --causal --at-most 1MB",
        ),
    ],
)
def test_a_line_of_another_command_is_written_out(line, there, iosim):
    skip_if_gone(line)
    skip_if_gone(there.split()[1:2])
    done = iosim(*line)
    assert done.exit_code == 2 and done.stderr.splitlines()[-1].endswith(f": ask {there}")
    assert "nothing" not in done.stderr


@pytest.mark.parametrize(
    "line", [("roofline", "--N", 4, "--requests", "1:9"), ("count", "--N", 4, "--M", "1KB", "--pages")]
)
def test_a_line_that_lacks_an_option_there_is_not(line, iosim):
    skip_if_gone(line)
    done = iosim(*line)
    assert done.exit_code == 2 and ": ask " not in done.stderr
