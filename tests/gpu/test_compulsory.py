"""The bytes that a launch cannot but load from DRAM, against brute force and by hand."""

from dataclasses import replace

import pytest

from iosim.core.machine import Machine
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.core.watchers import Watcher, extent_of
from iosim.gpu.compulsory import compulsory_bytes
from iosim.gpu.moved import moved
from iosim.masks import parse_mask
from iosim.schedules import find


class WordByWord(Watcher):
    """For each launch the words, one by one, that are loaded before they are stored."""

    def __init__(self):
        self.launches, self.met, self.first = [], set(), set()

    def start(self, machine):
        self.tensors, self.p = machine.tensors, machine.p

    def words(self, block, tensor):
        (row, rows), (column, columns) = extent_of(block)
        return {(tensor, x, y) for x in range(row, row + rows) for y in range(column, column + columns)}

    def load(self, block, tensor, words):
        if words:
            self.first |= self.words(block, tensor) - self.met
            self.met |= self.words(block, tensor)

    def store(self, block, tensor, words):
        self.met |= self.words(block, tensor)

    def launch_ended(self):
        if self.met:
            self.launches.append(self.first)
        self.met, self.first = set(), set()

    def bytes(self):
        heads = {name: self.p.kv_heads if self.tensors[name].shared else self.p.heads for name in self.tensors}
        width = {name: self.p.hbm_bytes(self.tensors[name]) for name in self.tensors}
        return [sum(heads[name] * width[name] for name, *_ in launch) for launch in self.launches]


@pytest.mark.parametrize("mask", ["dense", "causal", "window:5", "sink:3|window:4"])
@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2", "block-sparse-q", "split-kv"])
def test_words_one_by_one(name, mask):
    schedule, p = find(name), Attention(21, 6, Nk=29, heads=4, kv_heads=2, acc_dtype="fp32", mask=parse_mask(mask))
    words = WordByWord()
    Machine(p, words).run(schedule, Tiling(4, 7))
    assert compulsory_bytes(schedule, p, Tiling(4, 7)) == words.bytes()


def test_a_tile_that_no_query_sees_is_not_loaded():
    """Causal, with more queries than keys: the first 18 queries see no key."""
    p = Attention(29, 6, Nk=11, mask=parse_mask("causal"))
    for name in ("flash1", "flash2"):
        words = WordByWord()
        Machine(p, words).run(find(name), Tiling(9, 4))
        assert compulsory_bytes(find(name), p, Tiling(9, 4)) == words.bytes()
    rows = 29 - 18
    assert compulsory_bytes(find("flash2"), p, Tiling(9, 4)) == [2 * 6 * (rows + 2 * 11)]


def test_inputs_once_and_what_the_host_has_filled():
    p = Attention(256, 64, heads=8, kv_heads=2, acc_dtype="fp32")
    inputs = 2 * 64 * 256 * (8 + 2 + 2)
    assert compulsory_bytes(find("flash2"), p, Tiling(64, 32)) == [inputs]
    filled = 8 * 256 * (2 * 64 + 4 + 4)  # O, l and m of flash1 are read, updated, and read again
    assert compulsory_bytes(find("flash1"), p, Tiling(64, 32)) == [inputs + filled]
    S = 2 * 8 * 256 * 256
    Q, K, V = 2 * 64 * 256 * 8, 2 * 64 * 256 * 2, 2 * 64 * 256 * 2
    assert compulsory_bytes(find("standard-tiled"), p, Tiling(64, 32)) == [Q + K, S, S + V]


def doubled(chip, p, t):
    """O = Q, then O = O in smaller tiles: what a block has stored is in the L2 when it loads it."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        chip.store(chip.load("Q", i), "O", i)
        for k in chip.tiles(i, t.rows_k):
            chip.store(chip.load("O", k), "O", k)


def test_what_a_launch_has_stored_is_not_compulsory():
    p = Attention(64, 8, heads=3)
    assert compulsory_bytes(doubled, p, Tiling(16, 4)) == [2 * 3 * 64 * 8]


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2", "split-kv"])
def test_no_more_than_all_that_is_read(name):
    schedule = find(name)
    for tiles in (Tiling(16, 16), Tiling(64, 16), Tiling(256, 256)):
        for p in (Attention(200, 32, heads=3), replace(Attention(200, 32, heads=3), mask=parse_mask("causal"))):
            assert 0 < sum(compulsory_bytes(schedule, p, tiles)) <= moved(schedule, p, tiles).read_bytes
