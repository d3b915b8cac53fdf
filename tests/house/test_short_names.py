"""Short names of options: `--columns` is `--state-columns` where a command has no `--columns` of its own."""

import json

LINE = [
    "--rule",
    "linear",
    "--schedule",
    "state-split",
    "--N",
    "8192",
    "--d",
    "128",
    "--dv",
    "64",
    "--chunk",
    "100",
    "--initial-state",
    "--final-state",
]


def test_columns_of_a_state_have_a_short_name(iosim):
    """The words are those of a golden value."""
    for option in (("--columns", "32"), ("--columns=32",), ("--state-columns", "32")):
        (found,) = json.loads(iosim("count", *LINE, *option, "--json").stdout)["results"]
        assert (found["reads"], found["writes"]) == (4_726_784, 532_480)


def test_the_columns_of_a_sweep_are_its_own(iosim):
    found = iosim("sweep", *LINE, "--state-columns", "32", "--columns", "schedule,reads")
    assert found.stdout.splitlines() == ["schedule,reads", "state-split,4726784"]
