"""`iosim explain --check`, `--fail-outside` and `--fail-unfit`: what changed since an answer was kept, and by how much."""

import json
from types import SimpleNamespace

import pytest
from paths import TESTS

from iosim.errors import InputError
from iosim.kernels import kept
from iosim.kernels.command_explain import unfit

FILE = TESTS / "helpers" / "triton_kernels.py"
ADD = ["explain", FILE, "--kernel", "add", "--grid", "cdiv(n, BLOCK)", "--const", "BLOCK=64", "--no-resources",
       *[f"--arg={name}=fp32[n]" for name in "XYZ"]]  # fmt: skip


def row(reads=0, writes=0, atomics=0, size=2):
    words = {"reads": reads, "writes": writes, "atomics": atomics}
    return {**words, "read_bytes": reads * size, "write_bytes": writes * size, "atomic_bytes": atomics * size}


class Answer:
    """An answer with these words."""

    def __init__(self, kernel, **tensors):
        self.kernel, self.tensors = kernel, tensors


def written(path, *answers):
    """The path of a kept file with these answers."""
    rows = [{"kernel": a.kernel, "tensors": a.tensors} for a in answers]
    path.write_text(json.dumps(rows[0] if len(rows) == 1 else {"answers": rows}))
    return str(path)


@pytest.mark.parametrize("before, now, said", [
    ({"K": row(100)}, {"K": row(100)}, []),
    ({"K": row(100)}, {"K": row(150)}, ["f: K: 150 words read, 50 more than the 100 before, 1.5 times as many"]),
    ({"K": row(100, 8)}, {"K": row(25, 8)}, ["f: K: 25 words read, 75 fewer than the 100 before, 0.25 times as many"]),
    ({"O": row(0, 64)}, {"O": row(0, 0, 64)}, ["f: O: 0 words written, 64 fewer than the 64 before, 0 times as many",
                                               "f: O: 64 words changed by atomics, 64 more than the 0 before"]),
    ({"K": row(100)}, {"K": row(100, size=4)}, ["f: K: 400 bytes read, 200 more than the 200 before, 2 times as many"]),
    ({"K": row(9)}, {"Key": row(9)}, ["f: K: 0 words read, 9 fewer than the 9 before, 0 times as many",
                                     "f: Key: 9 words read, 9 more than the 0 before"]),
])  # fmt: skip
def test_a_change_names_the_tensor_and_its_words(tmp_path, before, now, said):
    path = written(tmp_path / "words.json", Answer("f", **before))
    assert kept.changes(kept.read_kept(path), [Answer("f", **now)]) == said


def test_launches_are_compared_in_their_order(tmp_path):
    """Those of each kernel by themselves: another kernel between them changes nothing."""
    f, g, longer = Answer("f", X=row(4)), Answer("g", X=row(4)), Answer("f", X=row(5))
    before = kept.read_kept(written(tmp_path / "words.json", f, longer, g))
    assert kept.changes(before, [g, f, longer]) == []
    assert kept.changes(before, [f, f, g])[0].startswith("f, launch 2: X: 4 words read, 1 fewer")
    assert kept.changes(before, [f, g]) == ["f, launch 2: it was launched, and has no answer now"]
    assert kept.changes(before, [f, longer, g, g]) == ["g, launch 2: a launch that was not there"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"answers": []}', '{"answers": [3]}', '{"kernel": "f"}', '{"kernel": "f", '
    '"tensors": {"X": {"reads": 1}}}', "\0", "1", "[" * 50_000])  # fmt: skip
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "words.json").write_text(text)
    with pytest.raises(InputError, match="--check: found"):
        kept.read_kept(str(tmp_path / "words.json"))
    with pytest.raises(InputError, match="no such file"):
        kept.read_kept(str(tmp_path / "absent.json"))


@pytest.mark.needs("triton")
def test_the_command_keeps_and_checks(tmp_path, iosim):
    path = tmp_path / "words.json"
    assert iosim(*ADD, "--arg", "n=100", "-o", path).exit_code == 0
    same = iosim(*ADD, "--arg", "n=100", "--check", path)
    assert same.exit_code == 0 and "X" in same.stdout and same.stderr == ""
    more = iosim(*ADD, "--arg", "n=200", "--check", path, "--json")
    assert more.exit_code == 1 and json.loads(more.stdout)["reads"] == 400
    assert more.stderr.splitlines() == [
        f"Error: --check {path}: 3 changes",
        *(f"  add: {x}: 200 words read, 100 more than the 100 before, 2 times as many" for x in "XY"),
        "  add: Z: 200 words written, 100 more than the 100 before, 2 times as many",
    ]
    assert iosim(*ADD, "--arg", "n=200", "--check", path, "-o", path).exit_code == 1, (
        "it is compared before it is replaced"
    )
    assert iosim(*ADD, "--arg", "n=200", "--check", path).exit_code == 0


@pytest.mark.needs("triton")
def test_words_outside_fail_if_asked(iosim):
    line = [*ADD, "--arg", "n=100", "--arg", "Y=fp32[90]"]
    assert iosim(*line).exit_code == 0
    failed = iosim(*line, "--fail-outside")
    assert failed.exit_code == 1 and failed.stderr.endswith("Error: --fail-outside: words outside of add: Y\n")
    assert "lie outside of its shape (90,) with strides (1,)" in failed.stderr
    assert iosim(*ADD, "--arg", "n=100", "--fail-outside").exit_code == 0


@pytest.mark.needs("triton")
def test_a_kernel_that_does_not_fit_fails_if_asked(iosim):
    line = ["explain", TESTS / "helpers" / "triton_kernels.py", "--kernel", "matmul", "--grid", 16, "--fail-unfit",
            *(f"--arg={x}=fp16[512,512]" for x in "ABC"), *(f"--arg={n}=512" for n in "MNK"), "--warps", 8,
            *(f"--const={n}" for n in ("BM=128", "BN=128", "BK=64", "GROUP=1"))]  # fmt: skip
    assert iosim(*line, "--hardware", "h100").exit_code == 0
    small = iosim(*line, "--hardware", "rtx-3090", "--stages", 5)
    assert small.exit_code == 1 and small.stderr.endswith("Error: --fail-unfit: matmul does not fit\n")
    assert "It does not fit" in small.stdout.splitlines()[0]
    unknown = iosim(*line, "--no-resources")
    assert unknown.exit_code == 2 and "--fail-unfit: found 'no shared memory of a program'" in unknown.stderr


def test_one_configuration_that_fits_is_enough():
    of = lambda fits, place=None: SimpleNamespace(kernel="f", place=place, fits=fits)  # noqa: E731
    assert list(unfit([of(True), of(False)])) == list(unfit([of(False), of(True)])) == []
    lines = list(unfit([of(True, "a.py, line 3"), of(False, "a.py, line 4"), of(False)]))
    assert lines == ["--fail-unfit: f (a.py, line 4) does not fit", "--fail-unfit: f does not fit"]
