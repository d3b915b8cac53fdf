"""A text file is the same matrix whatever its spaces and the size of the parts in which it is read."""

import os
import random
import tracemalloc

import numpy as np
import pytest

from iosim.masks import files
from iosim.masks.files import read_file, read_text_matrix


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 2**22])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n \n"])
def test_any_part_gives_the_same_matrix(tmp_path, monkeypatch, size, end):
    monkeypatch.setattr(files, "CHUNK_BYTES", size)
    random.seed(size)
    wanted = np.array([[random.random() < 0.5 for _ in range(5)] for _ in range(9)])
    rows = ["".join(f"{int(x)}{random.choice(['', ' ', ',', ', ', chr(9)])}" for x in row) for row in wanted]
    for last in ("", end):
        (tmp_path / "m.txt").write_bytes((end.join(rows) + last).encode())
        assert (read_text_matrix(str(tmp_path / "m.txt")) == wanted).all()


@pytest.mark.parametrize("text, fault", [("101\n11\n", "length"), ("11\n1", "length"), ("102\n", "0 and 1"), ("", "0 and 1"),
                                         (" \n", "0 and 1"), ("1é", "0 and 1"), ("1/0", "0 and 1")])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 2**22])
def test_what_is_no_matrix_is_refused(tmp_path, monkeypatch, text, fault, size):
    monkeypatch.setattr(files, "CHUNK_BYTES", size)
    (tmp_path / "m.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=fault):
        read_text_matrix(str(tmp_path / "m.txt"))


def test_memory_is_a_few_bytes_a_character(tmp_path):
    """Twice the characters, and some for the part that is read; it was 17 bytes a character."""
    N = 3000
    (tmp_path / "m.txt").write_bytes((b"1" * N + b"\n") * N)
    tracemalloc.start()
    try:
        assert read_text_matrix(str(tmp_path / "m.txt")).shape == (N, N)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * N * N


def test_a_matrix_is_kept_as_bits(tmp_path):
    """An eighth of a byte a number, whatever the type of the file. Rows and columns are found again."""
    matrix = np.random.default_rng(0).random((70, 45)) < 0.5
    for kind in (bool, np.int64, np.float32):
        np.save(tmp_path / "m.npy", matrix.astype(kind)[None])
        found = files.read_file(str(tmp_path / "m.npy"))
        assert found.packed.nbytes == 70 * 6 and found.size == (70, 45) and (found.data == matrix).all()
        rows, columns = np.array([3, 3, 69]), np.array([44, 0, 7, 7])
        assert (found.at(rows, columns) == matrix[np.ix_(rows, columns)]).all()
        (tmp_path / "m.npy").unlink()


def test_a_file_of_the_same_time_and_size_is_another(tmp_path):
    """A file is known by its bytes: a time may be kept by a copy, or be the same within a tick."""
    path = tmp_path / "mask.txt"
    path.write_text("10\n01\n")
    first, before = read_file(str(path)), path.stat()
    path.write_text("11\n11\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert first.data.sum() == 2 and read_file(str(path)).data.sum() == 4
    path.write_text("10\n01\n")
    assert read_file(str(path)) is first
