"""Launches that a TOML file describes, and the memory that a tensor spans. Triton is not needed."""

import pytest

from iosim import InputError
from iosim.kernels.read.launch_texts import launches_of_file
from iosim.kernels.walk.launch import Tensor


@pytest.mark.parametrize("shape, strides, reach", [
    ((3, 4), None, 12), ((3, 4), (4, 1), 12), ((3, 4), (10, 2), 27), ((3, 4), (1, 3), 12), ((3, 4), (0, 1), 4),
    ((3, 4), (-10, -2), 27), ((0, 4), (10, 1), 0), ((), (), 1), ((5,), (7,), 29),
])  # fmt: skip
def test_a_tensor_reaches_from_its_first_word_to_its_last(shape, strides, reach):
    assert Tensor("fp16", shape, strides=strides).reach == reach


WHOLE = 'file = "k.py"\nkernel = "add"\ngrid = "4"\nwarps = 8\nstages = 2\n[arg]\nN = 7\n[const]\nB = 64\n'


def test_a_file_describes_launches(tmp_path):
    path = tmp_path / "launch.toml"
    path.write_text(WHOLE)
    (one,) = launches_of_file(str(path))
    assert (one.file, one.kernel, one.grid, one.warps, one.stages) == (str(tmp_path / "k.py"), "add", "4", "8", "2")
    assert (one.arg, one.const) == ({"N": "7"}, {"B": "64"})
    path.write_text('file = "k.py"\n[[launch]]\ngrid = 1\n[[launch]]\nfile = "l.py"\n')
    assert [(one.file, one.grid) for one in launches_of_file(str(path))] == [
        (str(tmp_path / "k.py"), "1"), (str(tmp_path / "l.py"), None)]  # fmt: skip


@pytest.mark.parametrize("text, where, found, more", [
    (WHOLE.replace("warps", "warp"), ": warp", "8", "; did you mean 'warps'? allowed: file, kernel, grid, warps, stages, arg, const"),
    ('grid = "4"\n', "", "no file", 'allowed: file = "kernels.py"'),
    (WHOLE.replace("[arg]\nN = 7\n", "arg = 7\n"), ": arg", "7", "allowed: a table of names and values"),
    ("launch = 3\n", ": launch", "3", "allowed: tables [[launch]]"), ("grid = \n", "", "", "allowed: a TOML file with a launch"),
])  # fmt: skip
def test_a_key_that_is_not_known_and_other_faults_are_told(text, where, found, more, tmp_path):
    path = tmp_path / "launch.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        launches_of_file(str(path))
    assert str(error.value).startswith(f"{path}{where}: found '{found}") and more in str(error.value)
