"""Counts against a cache that knows nothing of tiles: a fully associative LRU over single words.

A schedule's loads and stores are unrolled into words of HBM, in order, and replayed through an LRU of C words. It
fetches a word that is read and not there, and places a word that is written without reading it. The numbers are
compared with this theory, all of it by hand and not from iosim:

1.  An access misses exactly when at least C other distinct words were touched since the last access to the same word
    (or when there was none): the reuse distance D, LRU's stack property. So C <= D misses and C >= D + 1 hits.
2.  No cache can beat the distinct words that are read before they are written: the compulsory misses.
3.  A larger LRU never misses more (inclusion).
"""

from collections import OrderedDict

import pytest

from iosim import Attention, Machine, Tiling
from iosim.core.shapes import Tile
from iosim.schedules import find


class Words:
    """A watcher that notes every load and store as words (kind, tensor, row, column), row by row."""

    def __init__(self):
        self.trace = []

    def start(self, machine): ...

    def allocate(self, block): ...

    def free(self, block): ...

    def step(self, step, outputs, inputs, flops): ...

    def launch_ended(self): ...

    def load(self, block, tensor, words):
        self._add("read", block, tensor, words)

    def store(self, block, tensor, words):
        self._add("write", block, tensor, words)

    def _add(self, kind, block, tensor, words):
        spans = [range(x.start, x.start + x.size) if isinstance(x, Tile) else range(x) for x in block.shape]
        rows, columns = (*spans, range(1))[:2]
        if words:  # a load under an empty line of the mask moves nothing
            assert words == len(rows) * len(columns), "a counted word is a word of the trace"
            self.trace += [(kind, tensor, r, c) for r in rows for c in columns]


def trace_of(name, problem, tiling):
    watcher = Words()
    Machine(problem, watcher).run(find(name), tiling)
    return watcher.trace


def reads_of(trace, tensors="QKVOlm"):
    return sum(kind == "read" and tensor in tensors for kind, tensor, *_ in trace)


def lru(trace, capacity):
    """The misses of reads, {tensor: misses}, of a cache with this capacity; None is a cache without an end."""
    cache, misses = OrderedDict(), {}
    for kind, *word in trace:
        word = tuple(word)
        if word in cache:
            cache.move_to_end(word)
        else:
            if kind == "read":
                misses[word[0]] = misses.get(word[0], 0) + 1
            cache[word] = None
            if capacity is not None and len(cache) > capacity:
                cache.popitem(last=False)
    return misses


def compulsory(trace):
    """The number of distinct words whose first access is a read."""
    first = {}
    for kind, *word in trace:
        first.setdefault(tuple(word), kind)
    return sum(kind == "read" for kind in first.values())


def test_the_lru_by_hand():
    def misses(word_by_word, capacity):
        return lru([("read", x, 0, 0) for x in word_by_word], capacity)

    assert misses("abcabc", 3) == {"a": 1, "b": 1, "c": 1}
    assert misses("abcabc", 2) == {"a": 2, "b": 2, "c": 2}  # the cycle that LRU is worst at
    assert misses("abacab", 2) == {"a": 1, "b": 2, "c": 1}  # a stays, because it is used
    assert lru([("write", "O", 0, 0), ("read", "O", 0, 0)], 1) == {}  # what was written is there


# N, Nk, d, Br, Bc: whole tiles, ragged ends, more keys than queries, one row a tile
CASES = [(12, 12, 4, 4, 3), (10, 10, 3, 4, 3), (8, 14, 2, 3, 5), (9, 7, 5, 2, 2), (6, 6, 2, 1, 1)]


def case(N, Nk, d, Br, Bc):
    return Attention(N, d, Nk=Nk), Tiling(Br, Bc)


@pytest.mark.parametrize("sizes", CASES)
def test_flash2_streams_miss_on_every_word_below_their_reuse_distance(sizes):
    """K and V are read once for each of the Tr = ceil(N / Br) query tiles, in the same order, each word once a pass.

    Between two reads of a word of K (or V) in passes i and i+1 come all 2 Nk d - 1 other words of K and V, each exactly
    once (a cycle), the O tile of pass i (stored at its end), and the Q tile of pass i+1. O is only ever written, Q only
    read once, and no tile of theirs comes twice. With Br_i rows in pass i,
        D = 2 Nk d - 1 + (Br_i + Br_(i+1)) d.
    It is least for the two passes of which one has the ragged last tile. An LRU of C <= min D misses on all these
    words. So misses of K and V are Tr * 2 Nk d. flash2 counts the same, with only Bc rows of K and V in SRAM. At
    C = max D + 1 every pass but the first hits.
    """
    N, Nk, d, Br, Bc = sizes
    trace = trace_of("flash2", *case(*sizes))
    Tr = -(-N // Br)
    heights = [min(Br, N - i * Br) for i in range(Tr)]
    distances = [2 * Nk * d - 1 + (a + b) * d for a, b in zip(heights, heights[1:], strict=False)]
    assert reads_of(trace, "KV") == Tr * 2 * Nk * d
    for capacity in (1, 2 * Bc * d, 2 * Nk * d // 2, 2 * Nk * d - 1, min(distances)):
        misses = lru(trace, capacity)
        assert misses == {"Q": N * d, "K": Tr * Nk * d, "V": Tr * Nk * d}
        assert sum(misses.values()) == reads_of(trace), "nothing that is counted is a hit"
    enough = lru(trace, max(distances) + 1)
    assert enough == {"Q": N * d, "K": Nk * d, "V": Nk * d}


@pytest.mark.parametrize("sizes", CASES)
def test_the_edge_of_the_reuse_distance_is_sharp(sizes):
    """With one word more than min D, the words of the passes with that distance hit, and all others still miss. There
    are 2 Nk d hits for each pair of neighbouring query tiles with the least distance."""
    N, Nk, d, Br, Bc = sizes
    trace = trace_of("flash2", *case(*sizes))
    Tr = -(-N // Br)
    heights = [min(Br, N - i * Br) for i in range(Tr)]
    distances = [2 * Nk * d - 1 + (a + b) * d for a, b in zip(heights, heights[1:], strict=False)]
    least = min(distances)
    hits = 2 * Nk * d * distances.count(least)
    assert hits > 0
    assert sum(lru(trace, least + 1).values()) == reads_of(trace) - hits


@pytest.mark.parametrize("sizes", CASES)
def test_flash1_misses_on_every_word_below_its_reuse_distance(sizes):
    """K and V are read once, so each of their 2 Nk d words misses once, whatever the cache.

    Pass j over the keys reads Q, O, l, m of each query tile and stores O, l, m again. The nearest earlier access to
    a word of O, l, m is its store in pass j-1 (and the stores of that tile come in the order O, l, m); of Q it is
    its read there. Between a store in pass j-1 and the read in pass j of a word of tile i come all 2d + 2 words a row
    of the other N - Br_i rows, and the K, V tile of pass j, which are Bc_j 2d more words, and words of tile i itself.
    So with Tr >= 2, leaving out the tile's own words, D >= (N - Br)(2d + 2) + 2 d Bc_min for all of Q, O, l, m, and
    an LRU of that many words misses on every read: 2 Nk d + Tc N (2d + 2).
    """
    N, Nk, d, Br, Bc = sizes
    trace = trace_of("flash1", *case(*sizes))
    Tc = -(-Nk // Bc)
    last = Nk - (Tc - 1) * Bc
    assert Br < N and Tc > 1
    for capacity in (1, 2 * d * Br, (N - Br) * (2 * d + 2) + 2 * d * last):
        misses = lru(trace, capacity)
        assert misses == {"K": Nk * d, "V": Nk * d, "Q": Tc * N * d, "O": Tc * N * d, "l": Tc * N, "m": Tc * N}
        assert sum(misses.values()) == reads_of(trace)


@pytest.mark.parametrize("sizes", CASES)
def test_flash1_with_room_for_the_rows_reads_each_word_once(sizes):
    """The cache holds 2d + 2 words of every row and two neighbouring K, V tiles (4 d Bc). No reuse is farther away. So
    Q, O, l, m hit from the second pass on, and N (2d + 2) + 2 Nk d words miss, once each."""
    N, Nk, d, Br, Bc = sizes
    trace = trace_of("flash1", *case(*sizes))
    misses = lru(trace, N * (2 * d + 2) + 4 * d * Bc)
    assert misses == {"K": Nk * d, "V": Nk * d, "Q": N * d, "O": N * d, "l": N, "m": N}


@pytest.mark.parametrize("sizes", CASES)
@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_without_an_end_only_compulsory_words_miss(name, sizes):
    """flash2 misses on N d + 2 Nk d (O is written first, never read), flash1 on N (2d + 2) + 2 Nk d: Algorithm 1 reads
    the O, l, m that the host has filled in."""
    N, Nk, d, *_ = sizes
    trace = trace_of(name, *case(*sizes))
    expected = 2 * Nk * d + (N * d if name == "flash2" else N * (2 * d + 2))
    assert sum(lru(trace, None).values()) == expected == compulsory(trace)


@pytest.mark.parametrize("sizes", CASES)
@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_a_larger_lru_never_misses_more_and_never_more_than_is_counted(name, sizes):
    trace = trace_of(name, *case(*sizes))
    distinct = len({tuple(word) for _, *word in trace})
    misses = [sum(lru(trace, c).values()) for c in [*range(1, distinct + 1, max(1, distinct // 12)), distinct]]
    assert misses == sorted(misses, reverse=True)
    assert misses[0] <= reads_of(trace) and misses[-1] == compulsory(trace)


def test_one_query_tile_reads_everything_once_whatever_the_cache():
    """With Tr = 1 no word comes twice. So every cache agrees with the count, and that with the compulsory words."""
    trace = trace_of("flash2", Attention(8, 4, Nk=20), Tiling(8, 3))
    assert reads_of(trace) == 8 * 4 + 2 * 20 * 4
    for capacity in (1, 10, 100, None):
        assert sum(lru(trace, capacity).values()) == reads_of(trace) == compulsory(trace)


def test_skipped_tiles_never_reach_the_cache():
    """With causal, N = 12, Br = 4, Bc = 3, row tile i sees keys below 4(i+1), in 2, 3 or 4 tiles. These are
    6 + 9 + 12 = 27 keys of K and of V. A cache of one word misses on all of them; one without an end misses on the
    12 distinct rows."""
    from iosim.masks.mask import parse

    trace = trace_of("block-sparse-q", Attention(12, 4, mask=parse("causal")), Tiling(4, 3))
    assert lru(trace, 1) == {"Q": 12 * 4, "K": 27 * 4, "V": 27 * 4}
    assert lru(trace, None) == {"Q": 12 * 4, "K": 12 * 4, "V": 12 * 4}
