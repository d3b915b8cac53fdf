"""docs/explain.md and docs/will-it-fit.md show what the program prints, and the example in Python runs."""

import contextlib
import io
import re
import shlex
import sys

import pytest
from paths import DOCS, ROOT, TESTS

pytestmark = pytest.mark.needs("triton")
PAGE = (DOCS / "explain.md").read_text()
((COMMAND, OUTPUT),) = re.findall(r"```console\n\$ iosim (.*?)\n(.*?)```", PAGE, re.S)
(MADE_WITH,) = re.findall(r"this page was made with (\d+\.\d+)", PAGE)
FILE = "tests/helpers/triton_kernels.py"
TURN = "        m = new\n"
MISTAKE = "        tl.store(O + head + rows[:, None] * D + dims[None, :], o.to(tl.float16), mask=rows[:, None] < N)\n"


FIT = (DOCS / "will-it-fit.md").read_text()
((TOO_LARGE, SAID),) = re.findall(r"```console\n\$ iosim (.*?)\n(.*?)```", FIT, re.S)
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\dx]+) \| (\d+) \| (\d+) \| (\S+) \| ([\d,]+) \| ([\d,]+) \| (yes|no) \|$", FIT, re.M
)


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_shared_memory_of_the_table(ask, iosim, row):
    kernel, tiles, warps, stages, gpu, required, there, fits = row
    line = {"matmul": TOO_LARGE, "attention": COMMAND.partition(" --as ")[0]}[kernel]
    consts = [f"--const={key}={n}" for key, n in zip(("BM", "BN", "BK"), tiles.split("x"), strict=False)]
    line = [*re.split(r" --warps | --const B", line)[0].split(), *consts, "--warps", warps, "--stages", stages]
    line = [part for part in shlex.split(" ".join(line)) + ["--hardware", gpu]]
    line += ["--const", "GROUP=8"] if kernel == "matmul" else ["--const", "CAUSAL=False"]
    answer = ask(*line)
    assert f"{answer['smem_bytes']:,}" == required and answer["fits"] is (fits == "yes")
    assert (
        there in iosim("hardware").stdout
        and (int(required.replace(",", "")) <= int(there.replace(",", ""))) is answer["fits"]
    )
    assert iosim(*line, "--fail-unfit").exit_code == (fits == "no")


def test_the_public_numbers_are_in_the_table():
    assert {"98,304", "106,496", "131,072", "147,456"} <= {required for *_, required, _, _ in ROWS} and "101376" in FIT


def test_the_session_is_what_is_printed(iosim, monkeypatch):
    import triton

    monkeypatch.chdir(ROOT)
    printed = iosim(*shlex.split(COMMAND)).stdout
    if not triton.__version__.startswith(MADE_WITH):  # another compiler takes other registers
        (taken,) = re.findall(r"(\d+) registers a thread", printed)
        assert 32 <= int(taken) <= 255
        printed = printed.replace(f"{taken} registers", re.findall(r"\d+ registers", OUTPUT)[0])
    assert printed == OUTPUT


def test_the_mistake_is_told_as_the_page_says(iosim, tmp_path):
    file = tmp_path / "mistake.py"
    file.write_text((ROOT / FILE).read_text().replace(TURN, TURN + MISTAKE, 1))
    printed = iosim(*shlex.split(COMMAND.replace(FILE, str(file))), "--no-resources").stdout
    shown, _ = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    first, last = shown.split("...\n")
    assert printed.startswith(first) and printed.endswith(last) and "O is written" in last


def test_the_example_in_python_prints_a_number(monkeypatch, tmp_path):
    code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "kernels.py").write_text((TESTS / "helpers" / "triton_kernels.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(code, {})
    finally:
        sys.modules.pop("kernels", None)
    assert f"K {int(out.getvalue()):,} " in re.sub(r" +", " ", OUTPUT)
