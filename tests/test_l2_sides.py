"""On which side of an L2 multiprocessors sit, as the distances of lines tell: on made-up GPUs."""

from types import SimpleNamespace

import numpy as np
import pytest

from iosim.gpu import device
from iosim.gpu.l2_sides import FEW, LINES, measure_sides, sides_of_multiprocessors

NEAR, FAR = 200, 260


def clocks_of(sides, seed=0, jitter=10, step=FAR - NEAR):
    """Of each multiprocessor to each line: `step` more where that is at home on the other side; multiprocessors are not
    all as far from the L2, and lines differ by more."""
    rng = np.random.default_rng(seed)
    homes, lines = rng.integers(0, 2, LINES), rng.integers(0, 300, LINES)
    own = rng.integers(0, 20, len(sides))
    across = np.array(sides)[:, None] != homes
    noise = rng.integers(0, jitter + 1, (len(sides), LINES))
    return (NEAR + step * across + lines + own[:, None] + noise).astype(np.uint32)


@pytest.mark.parametrize("sides", [[0, 1] * 6, [0] * 9 + [1] * 3, [0, 1, 1, 1, 0, 1, 1]], ids=str)
def test_two_sides_are_found(sides):
    """By the numbers of multiprocessors, which are not those of blocks. That of the first is 0."""
    where = [7 * block % 31 for block in range(len(sides))]
    found = sides_of_multiprocessors(clocks_of(sides), np.array(where))
    assert found == dict(zip(where, sides, strict=True))
    turned = sides_of_multiprocessors(clocks_of([1 - side for side in sides]), np.array(where))
    assert turned == found, "sides have no names"


@pytest.mark.parametrize("seed", range(5))
def test_an_l2_of_one_partition_has_no_sides(seed):
    """All are as far from each line; and distances that are nothing but noise agree with none."""
    where = np.arange(12)
    assert sides_of_multiprocessors(clocks_of([0] * 12, seed), where) == {}
    assert sides_of_multiprocessors(clocks_of([0, 1] * 6, seed, step=0), where) == {}


def test_one_that_agrees_with_neither_side_leaves_nothing():
    clocks = clocks_of([0, 1] * 6)
    clocks[5] = np.random.default_rng(9).integers(NEAR, FAR, LINES)
    assert sides_of_multiprocessors(clocks, np.arange(12)) == {}


class Buffer(np.ndarray):
    """A CuPy array, of NumPy."""

    def get(self):
        return np.array(self)


class Gpu:
    """Two kernels of calibrate.cu on so many multiprocessors: blocks go to them from the last to the first."""

    def __init__(self, sides):
        self.sides, self.launches = sides, []
        self.kernels = {"distances": self.distances, "placed": self.placed}
        self.found = {name: self.kernel(run) for name, run in self.kernels.items()}

    def kernel(self, run):
        class Kernel:
            def __call__(kernel, grid, block, arguments, shared_mem):
                self.launches.append((run.__name__, grid, kernel.max_dynamic_shared_size_bytes, shared_mem))
                run(grid[0], *arguments)

        return Kernel()

    def get_function(self, name):
        return self.found[name]

    def order(self, blocks):
        return np.arange(len(self.sides))[::-1][:blocks]

    def distances(self, blocks, buffer, lines, stride, clocks, where):
        assert lines == LINES and len(buffer) >= lines * stride, "no line is beyond the buffer"
        where[:] = self.order(blocks)
        clocks[:] = clocks_of([self.sides[multiprocessor] for multiprocessor in where])

    def placed(self, blocks, where, clocks):
        where[:blocks] = self.order(blocks)


def xp():
    return SimpleNamespace(
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(Buffer),
        uint32=np.uint32, int32=np.int32, int64=np.int64,
    )  # fmt: skip


def test_launches_of_some_sizes_are_looked_at(monkeypatch):
    """Each of few blocks, then of as many as there are multiprocessors; a block has all of one's shared memory."""
    monkeypatch.setattr(device, "cupy", xp)
    sides = [int(n % 3 == 0) for n in range(40)]
    gpu = Gpu(sides)
    found = measure_sides(gpu, len(sides), 1000)
    first = sides[39]
    assert list(found) == [str(few) for few in FEW if few < 40] + ["40"]
    for blocks, text in found.items():
        assert text == "".join(str(int(sides[39 - n] != first)) for n in range(int(blocks)))
    assert {launch[2:] for launch in gpu.launches} == {(1000, 1000)}
    assert [launch[1][0] for launch in gpu.launches if launch[0] == "placed"] == list(map(int, found))


def test_without_sides_nothing_is_looked_at(monkeypatch):
    monkeypatch.setattr(device, "cupy", xp)
    gpu = Gpu([0] * 12)
    assert measure_sides(gpu, 12, 1000) == {} and {launch[0] for launch in gpu.launches} == {"distances"}


@pytest.mark.parametrize("sms", [1, 2, 3])
def test_few_multiprocessors_have_no_sides(sms):
    """What differs from the mean of two is opposite, whatever it is; of one there is none."""
    clocks = np.random.default_rng(0).integers(600, 700, (sms, 64))
    assert sides_of_multiprocessors(clocks, np.arange(sms)) == {}
