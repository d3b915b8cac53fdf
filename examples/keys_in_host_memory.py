"""Three levels of memory: K and V lie in host memory, and each block of queries reads them once, shard by shard.

The outer text moves the words between the host and a GPU. Its step is a schedule inside the GPU, flash2 that goes on
with O, l and m of the last shard. So the same run counts the words of both levels, and a numeric run checks the output.
"""

import numpy as np

from iosim import Attention, Folded, Machine, Numeric, Tiling, Traffic
from iosim.core.levels import Inside, Run
from iosim.core.problem import Tensor
from iosim.distributed.inside import HOP
from iosim.steps.shards import attend_shard, finish
from iosim.steps.softmax import minus_infinity, zeros


def from_host(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q, parallel=True):  # a block of queries, in the memory of the GPU
        q = chip.load("Q", i, own=True)
        o, l = chip.compute("O", (i, 1, p.dv), zeros), chip.compute("l", (i, 1), zeros)
        m = chip.compute("m", (i, 1), minus_infinity)
        for j in chip.tiles(p.Nk, t.rows_k):  # a shard of keys comes from the host
            k, v = chip.load("K", j), chip.load("V", j)
            chip.update((m, l, o), attend_shard, q, k, v, Everything(i, j))
        chip.update((o, l), finish, m)
        chip.store(o, "O", i, own=True)


class Everything:
    """What a tile of queries sees of a tile of keys: all."""

    def __init__(self, i, j):
        self.tiles = i, j

    def array(self):
        return np.ones([tile.size for tile in self.tiles], bool)


def below(machine, step, outputs, inputs):
    """The step is a schedule inside the GPU, once for each pair of sizes."""
    if step is attend_shard:
        i, j = inputs[-1].tiles
        for times, sizes in machine.occurrences(i, j):
            yield Run(times, HOP, Attention(sizes[i], inputs[0].shape[2], Nk=sizes[j]), Tiling(128, 64))


from_host.tensors = {
    name: Tensor((axis, "heads", "d"), kind)
    for name, axis, kind in (("Q", "N", "input"), ("K", "Nk", "cache"), ("V", "Nk", "cache"), ("O", "N", "output"))
}


def count(N, d, block, shard, machine=Folded):
    host, inside = Traffic(), Inside(below)
    machine(Attention(N, d), host, inside).run(from_host, Tiling(block, shard))
    return host.total, inside.total


N, d, block, shard = 65_536, 128, 16_384, 4_096
blocks, (host, inside) = N // block, count(N, d, block, shard)
print(f"from the host {host:,} words, K and V once for each of {blocks} blocks: {host == 2 * d * N * blocks}")
print(f"between device memory and SRAM {inside:,} words")
print(f"every tile visited gives the same: {count(200, 8, 64, 40) == count(200, 8, 64, 40, Machine)}")

rng = np.random.default_rng(0)
x = {name: rng.normal(size=(200, 1, 8)) for name in "QKV"}
q, k, v = (x[name][:, 0] for name in "QKV")
weights = np.exp(q @ k.T / 8**0.5)
o = Numeric(Attention(200, 8), x).run(from_host, Tiling(64, 40)).array("O")[:, 0]
print(f"the output is attention: {np.allclose(o, weights @ v / weights.sum(axis=1, keepdims=True))}")
