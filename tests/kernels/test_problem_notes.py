"""Notes of `explain` on options that do not suit the launch: another problem, and --tune without configurations."""

import pytest
from paths import ROOT

pytestmark = pytest.mark.needs("triton")
LAUNCH = ("explain", ROOT / "examples" / "attention.toml", "--no-resources")
ASKED = ("--as", "attention", "--N", 512, "--d", 64, "--heads", 2, "--arg", "H=2")
DIFFER = "note: --as attention: distinct words differ from the problem's (in the launch / of the problem): "


@pytest.mark.parametrize("more, told", [
    (("--arg", "N=512"), ""),
    (("--arg", "N=500", "--N", 500), ""),  # the last tiles reach over the end
    (("--arg", "N=1024"), "Q 131,072 / 65,536; K 131,072 / 65,536; V 131,072 / 65,536; O 131,072 / 65,536"),
    (("--arg", "N=512", "--kv-heads", 1), "K 65,536 / 32,768; V 65,536 / 32,768"),
    (("--arg", "N=512", "--Nk", 1024), "K 65,536 / 131,072; V 65,536 / 131,072"),
    (("--arg", "N=512", "--Nk", 1024, "--causal"), ""),  # a mask may hide keys
    (("--arg", "N=256", "--causal"), "O 32,768 / 65,536"),  # it hides no row of O
])  # fmt: skip
def test_distinct_words_that_are_not_the_problems(iosim, more, told):
    found = iosim(*LAUNCH, *ASKED, *more)
    lines = [line.removeprefix(DIFFER) for line in found.stderr.splitlines() if line.startswith(DIFFER)]
    assert found.exit_code == 0 and lines == [told] * bool(told), found.stderr


@pytest.mark.parametrize("causal, asked, told", [(True, False, True), (True, True, False), (False, False, False)])
def test_a_causal_kernel_without_causal(iosim, causal, asked, told):
    found = iosim(*LAUNCH, *ASKED, "--arg", "N=512", "--const", f"CAUSAL={causal}", *["--causal"] * asked)
    note = "note: with --causal the words are those of flash2 128x64: is the kernel causal?"
    assert found.exit_code == 0 and (note in found.stderr) == told, found.stderr


def test_tune_without_configurations(iosim):
    found = iosim(*LAUNCH, "--tune")
    assert found.exit_code == 0 and "note: attention: --tune has nothing to rank" in found.stderr


def test_a_schedule_is_not_a_file(iosim):
    found = iosim("explain", "flash2")
    assert found.exit_code == 2 and found.stderr.rstrip().endswith("; see iosim schedules flash2")
