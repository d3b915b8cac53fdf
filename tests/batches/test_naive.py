"""Random batches, masks, chunks and prefixes against a counter that looks at every pair of tokens, one by one.

It shares no code with iosim: its masks are written out below, and its loops are those that docs/batch.md tells.
"""

import random
from math import ceil

import pytest

import iosim

BETWEEN = {  # masks of a strip of diagonals, whose packed rows are counted
    "dense": lambda x, y, n: True,
    "causal": lambda x, y, n: y <= x,
    "window:{n}": lambda x, y, n: abs(x - y) <= n,
    "causal&window:{n}": lambda x, y, n: x - n <= y <= x,
}
OTHERS = {
    "causal&chunk:{n}": lambda x, y, n: y <= x and x // n == y // n,
    "causal&(window:{n}|sink:2)": lambda x, y, n: y <= x and (x - y <= n or y < 2),
    "causal&strided:{n}": lambda x, y, n: y <= x and (x - y) % n == 0,
    "causal&global:{n}": lambda x, y, n: y <= x and (x < n or y < n),
    "dilated:1:{n}": lambda x, y, n: abs(x - y) <= n and (x - y) % n == 0,
    "~window:{n}": lambda x, y, n: abs(x - y) > n,
}


def cells(first, last, size):
    """The cells of `size` keys from `first` to `last`."""
    return [range(y, min(y + size, last)) for y in range(first, last, size)]


class Naive:
    """One request as rows of a tile: what each row sees, of its `keys`. It counts the words of a head that d words wide
    rows make."""

    def __init__(self, seen, keys, d, Br):
        self.seen, self.keys, self.d = seen, keys, d
        self.tiles = [seen[x : x + Br] for x in range(0, len(seen), Br)]

    def any(self, tile, keys):
        """Whether a row of a tile sees any of some keys."""
        return any(row & set(keys) for row in tile)

    @property
    def queries(self):
        """The queries of tiles that see a key."""
        return sum(len(tile) for tile in self.tiles if any(tile))

    def loaded(self, blocks, Bc):
        """The words of K and V for keys in blocks, each cut into tiles of Bc."""
        parts = [cell for block in blocks for cell in cells(block.start, block.stop, Bc)]
        return 2 * self.d * sum(len(cell) for tile in self.tiles for cell in parts if self.any(tile, cell))

    def flash2(self, Bc):
        return self.d * (self.queries + len(self.seen)) + self.loaded([range(self.keys)], Bc)

    def merged(self, shares):
        """The partial results of shares, written and read, and O; Q is read by each share."""
        return shares * (self.d * self.queries + 2 * len(self.seen) * (self.d + 1)) + self.d * len(self.seen)

    def split(self, Bc, share):
        shares = cells(0, self.keys, share)
        return self.merged(len(shares)) + self.loaded(shares, Bc)

    def pages(self, Bc, page):
        """K, V and the entries of the block table."""
        pages = cells(0, self.keys, page)
        return self.loaded(pages, Bc) + sum(self.any(tile, one) for tile in self.tiles for one in pages)

    def paged(self, Bc, page):
        return self.d * (self.queries + len(self.seen)) + self.pages(Bc, page)

    def paged_split(self, Bc, page, splits):
        pages = ceil(self.keys / page)
        return self.merged(ceil(pages / ceil(pages / splits))) + self.pages(Bc, page)


def ways_of(requests, see, d, heads, kv_heads, Br, Bc, splits, page, chunks, packs):
    """{way: the words of all requests}."""

    def of(new, tokens, pack):
        group = heads // kv_heads if pack else 1
        seen = [{y for y in range(tokens) if see(tokens - new + r, y)} for r in range(new) for _ in range(group)]
        return Naive(seen, tokens, d, Br), heads // group

    longest = max(tokens for _, tokens, _ in requests)
    each = {
        "repeat": lambda one, keys: one.flash2(Bc),
        "pack": lambda one, keys: one.flash2(Bc),
        "split": lambda one, keys: one.split(Bc, ceil(keys / splits)),
        "split-by-length": lambda one, keys: one.split(Bc, ceil(keys / ceil(keys / ceil(longest / splits)))),
        "paged": lambda one, keys: one.paged(Bc, page),
        "paged-split": lambda one, keys: one.paged_split(Bc, page, splits),
    }
    found = {}
    for way, words in each.items():
        total = 0
        for new, tokens, times in requests:
            one, instances = of(new, tokens, packs and way != "repeat")
            total += times * instances * words(one, tokens)
        found[way] = total
    for size in chunks:
        total = 0
        for new, tokens, times in requests:
            for start in range(0, new, size):
                more = min(size, new - start)
                one, instances = of(more, tokens - new + start + more, packs)
                total += times * instances * one.flash2(Bc)
        found[f"chunk-{size}"] = total
    return found


def problem(rng):
    """(requests, name of the mask, its predicate, fields) of a random problem."""
    text, see = rng.choice([*BETWEEN.items(), *OTHERS.items()])
    n = rng.randint(1, 12)
    kv_heads = rng.randint(1, 2)
    group = rng.choice([1, 1, 2, 3]) if text in BETWEEN else 1
    requests = []
    for _ in range(rng.randint(1, 4)):
        new = rng.choice([1, 1, rng.randint(1, 12)])
        requests.append((new, new + rng.choice([0, rng.randint(0, 40)]), rng.randint(1, 3)))
    fields = {
        "d": rng.randint(1, 4), "heads": kv_heads * group, "kv_heads": kv_heads, "splits": rng.randint(1, 7),
        "page_size": rng.randint(1, 12), "mask": text.format(n=n),
    }  # fmt: skip
    return requests, text, lambda x, y: see(x, y, n), fields


@pytest.mark.parametrize("problems", [150, pytest.param(2500, marks=pytest.mark.long)])
def test_batches_are_what_a_look_at_every_pair_says(problems):
    rng = random.Random(53)
    for _ in range(problems):
        compare(rng)


def compare(rng):
    requests, text, see, fields = problem(rng)
    Br, Bc, chunks = rng.randint(1, 9), rng.randint(1, 9), []
    if text.startswith("causal") and rng.random() < 0.5:
        chunks = [rng.randint(1, 7)]
    asked = ", ".join(f"{times} * {new}:{tokens}" for new, tokens, times in requests)
    found = iosim.batch(asked, tiles=f"{Br}x{Bc}", chunks=chunks, **fields)
    sizes = fields["d"], fields["heads"], fields["kv_heads"], Br, Bc, fields["splits"], fields["page_size"], chunks
    packs = fields["heads"] > fields["kv_heads"]
    wanted = ways_of(requests, see, *sizes, packs)
    said = {way.way: way.total for way in found if way.way in wanted}
    assert said == {way: wanted[way] for way in said}, (asked, Br, Bc, chunks, fields)
    assert {"repeat", "split", "paged", "paged-split", *(f"chunk-{size}" for size in chunks)} <= {*said}
    keys = sum(
        times * len({y for y in range(tokens) for r in range(new) if see(tokens - new + r, y)})
        for new, tokens, times in requests
    )
    assert found.distinct["K"] == fields["d"] * fields["kv_heads"] * keys, (asked, fields)
    assert all(way.ratio_to_floor is None or way.ratio_to_floor >= 1 for way in found)


@pytest.mark.parametrize("problems", [80, pytest.param(1500, marks=pytest.mark.long)])
def test_keys_in_common_count_once_and_only_if_they_are_seen(problems):
    """Tokens have names here; the floor of a family has those that a query sees which sees two or more."""
    rng = random.Random(54)
    for _ in range(problems):
        text, see = rng.choice([*BETWEEN.items(), *OTHERS.items()])
        n, rows = rng.randint(1, 20), []
        parts = {"a": rng.randint(1, 9), "a/b": rng.randint(1, 9), "a/c": rng.randint(1, 9)}
        for _ in range(rng.randint(2, 5)):
            path = rng.choice([["a"], ["a", "a/b"], ["a", "a/c"], []])
            cached = sum(parts[one] for one in path) + rng.randint(0, 6)
            rows.append((rng.randint(1, 4), cached, path))
        every, several, queries = set(), set(), 0
        for index, (new, cached, path) in enumerate(rows):
            names = [(one, k) for one in path for k in range(parts[one])]
            names += [(index, k) for k in range(new + cached - len(names))]
            for r in range(new):
                seen = {names[y] for y in range(new + cached) if see(cached + r, y, n)}
                every, several, queries = (
                    every | seen,
                    several | (seen if len(seen) > 1 else set()),
                    queries + bool(seen),
                )
        given = [
            {"new": new, "cached": cached}
            | ({"prefix": "/".join(f"{one[-1]}:{parts[one]}" for one in path)} if path else {})
            for new, cached, path in rows
        ]
        found = iosim.batch(given, 3, mask=text.format(n=n), tiles="4x4", ways="repeat")
        assert found.distinct["K"] == 3 * len(every), (given, text, n)
        assert found.distinct["Q"] == 3 * queries
        assert found.floor.words == 3 * len(several) + 3 * len(every) + floor_of_rows(rows, see, n)


def floor_of_rows(rows, see, n):
    """The words of Q of queries that see two keys or more, and of O of those that see any, for d = 3."""
    total = 0
    for new, cached, _ in rows:
        for r in range(new):
            seen = sum(see(cached + r, y, n) for y in range(new + cached))
            total += 3 * (seen > 1) + 3 * (seen > 0)
    return total
