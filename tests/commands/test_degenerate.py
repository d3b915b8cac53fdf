"""One query, one key, d = 1, and masks that hide everything: a number or a dash everywhere, and no warning."""

import json
import warnings
from itertools import product

import pytest

SIZES = [(6, 6, 2), (1, 1, 1), (1, 7, 1), (7, 1, 3)]  # N, Nk, d
MASKS = ["~dense", "dense", "causal&~causal", "strided:9&~window:0"]
TILES = ["--tiles", "2x2", "--schedule", "block-sparse-q", "--schedule", "flash1"]
COMMANDS = {
    "count": ["--M", "1KB", "--keep-p"],
    "bounds": ["--M", "1KB"],
    "tune": ["--M", "1KB"],
    "tune --curve": [],
    "tune --least-blocks 2": ["--M", "1KB"],
    "roofline": ["--hardware", "h100"],
    "count --pass step": ["--M", "1KB"],
    "sweep": ["--M", "1,1KB"],
    "sweep --tiles best": ["--M", "1,1KB", "--schedule", "block-sparse"],
    "plot --picture mask": ["--tiles", "2x2"],
    "trace": TILES[:4],
    "cache": [*TILES[:4], "--M", "1KB"],
}


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_form_of_an_answer_about_nothing(iosim, command):
    judge(iosim, command, zip(SIZES, MASKS, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_every_size_with_every_mask(iosim, command):
    judge(iosim, command, product(SIZES, MASKS))


def judge(iosim, command, problems):
    name, *more = command.split()
    for (N, Nk, d), mask in problems:
        args = [name, "--d", d, "--mask", mask, *more, "--N", N, "--Nk", Nk, *COMMANDS[command]]
        for form in ([], ["--csv"], ["--json"]):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = iosim(*args, *form)
            assert result.exception is None or isinstance(result.exception, SystemExit), args
            assert result.exit_code in (0, 2) and "Traceback" not in result.stderr, args
            assert "nan" not in result.stdout.lower().replace("repeat", ""), (args, result.stdout)
            if form == ["--json"] and result.exit_code == 0 and name not in ("trace", "sweep"):
                json.loads(result.stdout, parse_constant=refuse)
